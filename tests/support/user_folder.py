"""A folder with files of a user: mechanisms that are imported by name, and data files."""

import importlib
import shutil
import sys


def make_user_folder(folder, monkeypatch, files):
    """Write files into a folder and work there; `files` maps names to texts. Imports are removed after every test."""
    monkeypatch.chdir(folder)
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def forget_modules(folder):
    """Remove the modules that were imported from a folder, so that they are imported again, as in a new process."""
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(str(folder)):
            del sys.modules[name]
    # Bytecode is valid for any file of equal size and second, and a rewritten file often is one.
    shutil.rmtree(folder / "__pycache__", ignore_errors=True)
    importlib.invalidate_caches()


def rewrite(path, text):
    """Change a file of the user."""
    path.write_text(text)
    forget_modules(path.parent)

"""A disk that fails: every operation on files below a folder is counted, and chosen ones fail or cut the power.

The operations are opening, writing, synchronising, renaming, removing, listing and making folders. They are intercepted
in the functions of `os` and in `open`, through which the library reaches files.

After a power failure, a name that was changed since its folder was last synchronised holds any of the contents that it
had since then, and each name independently of the others: a later change can survive although an earlier one is lost.
A file that was not synchronised itself is empty, cut or filled with zeros.
"""

import builtins
import contextlib
import errno
import io
import os
import shutil
from pathlib import Path

FOLDER = "folder"  # the state of a name that is a folder; the state of a file is its content, None if there is none


class PowerLoss(BaseException):
    """The machine stops: no code of the library may run after it, so nothing may catch it."""


class FaultyDisk:
    """Counts operations below a folder; `fails(number)` decides which of them fail.

    Attributes
    ----------
    count : int
        Number of operations so far.
    earlier : dict
        The states that each name had since its folder was last synchronised, oldest first, without the present one.
    unsynced : set
        The files whose content was written and not synchronised.
    """

    def __init__(self, folder, fails=lambda number: False, problem=errno.EIO, power=False):
        self.folder, self.fails, self.problem, self.power = str(folder), fails, problem, power
        self.count = 0
        self.earlier, self.unsynced = {}, set()
        self._handles = {}
        self.off = False

    def _is_below(self, path):
        return isinstance(path, (str, os.PathLike)) and os.fspath(path).startswith(self.folder)

    def _full_path(self, path, directory=None):
        """Return the path of an operation; it can be an open folder, or a name in an open folder."""
        if isinstance(path, int):
            return self._handles.get(path)
        return path if directory is None else os.path.join(self._handles.get(directory, ""), path)

    def _operate(self, path=None):
        if self.off:
            raise PowerLoss
        self.count += 1
        if self.fails(self.count):
            if self.power:
                self.off = True
                raise PowerLoss
            raise OSError(self.problem, os.strerror(self.problem), None if path is None else str(path))

    def _remember(self, path):
        """Add the present state of a name to its earlier ones, because it is about to change."""
        path = Path(path)
        if path.is_dir():
            state = FOLDER
        elif not path.exists():
            state = None
        else:
            state = b"" if path in self.unsynced else path.read_bytes()
        self.earlier.setdefault(path, []).append(state)

    @contextlib.contextmanager
    def attached(self, monkeypatch):
        """Intercept the operations until the end of the block."""
        with monkeypatch.context() as patch:
            for name in ("unlink", "mkdir", "rmdir"):
                patch.setattr(os, name, self._wrap(getattr(os, name), is_change=True))
            for name in ("listdir", "scandir"):
                patch.setattr(os, name, self._wrap(getattr(os, name), is_change=False))
            patch.setattr(os, "open", self._open_descriptor(os.open))
            patch.setattr(os, "replace", self._replace(os.replace))
            patch.setattr(os, "fsync", self._fsync(os.fsync))
            for module in (builtins, io):
                patch.setattr(module, "open", self._open_file(builtins.open if module is builtins else io.open))
            yield self

    def _wrap(self, real, is_change):
        def operation(path=".", *more, **keywords):
            full = self._full_path(path, keywords.get("dir_fd"))
            if self._is_below(full):
                self._operate(full)
                if is_change:
                    self._remember(full)
            return real(path, *more, **keywords)

        return operation

    def _open_descriptor(self, real):
        def open_descriptor(path, flags, *more, **keywords):
            full = self._full_path(path, keywords.get("dir_fd"))
            if self._is_below(full):
                self._operate(full)
                if flags & os.O_CREAT:
                    self._note_new_content(full)
            handle = real(path, flags, *more, **keywords)
            self._handles[handle] = os.fspath(full)
            return handle

        return open_descriptor

    def _open_file(self, real):
        def open_file(file, mode="r", *more, **keywords):
            if self._is_below(file):
                self._operate(file)
                if set(mode) & set("wxa+"):
                    self._note_new_content(file)
                return real(file, mode, *more, **keywords)
            stream = real(file, mode, *more, **keywords)
            if isinstance(file, int) and self._is_below(self._handles.get(file)) and "w" in mode:
                return _CountedWriter(stream, self)
            return stream

        return open_file

    def _note_new_content(self, path):
        if not os.path.exists(path):
            self._remember(path)
        self.unsynced.add(Path(path))

    def _replace(self, real):
        def replace(source, target):
            if self._is_below(target):
                self._operate(target)
                for path in (source, target):
                    self._remember(path)
                if Path(source) in self.unsynced:
                    self.unsynced.add(Path(target))
                else:
                    self.unsynced.discard(Path(target))
                self.unsynced.discard(Path(source))
            real(source, target)

        return replace

    def _fsync(self, real):
        def fsync(handle):
            name = self._handles.get(handle)
            if self._is_below(name):
                self._operate(name)
            real(handle)
            if name is not None and os.path.isdir(name):
                for path in [path for path in self.earlier if path.parent == Path(name)]:
                    del self.earlier[path]
            elif name is not None:
                self.unsynced.discard(Path(name))

        return fsync

    def lose(self, rng=None):
        """Leave the files as a power failure does: as much as possible is lost, or with `rng` a random part."""
        for path in sorted(self.earlier):  # a folder comes before what it contains
            if rng is None:
                _set_state(path, self.earlier[path][0])
            elif (number := rng.randrange(len(self.earlier[path]) + 1)) < len(self.earlier[path]):
                _set_state(path, self.earlier[path][number])
        for path in sorted(self.unsynced):
            if path.is_file() and path.stat().st_size:
                content = path.read_bytes()
                damaged = [b"", content[: len(content) // 2], bytes(len(content))]
                path.write_bytes(damaged[0] if rng is None else rng.choice(damaged))


def _set_state(path, state):
    """Give a name one of its earlier states. A name in a folder that is lost is lost, too."""
    if path.is_dir() and state != FOLDER:
        shutil.rmtree(path)
    if not path.parent.is_dir():
        return
    if state is None:
        path.unlink(missing_ok=True)
    elif state == FOLDER:
        path.mkdir(exist_ok=True)
    else:
        path.write_bytes(state)


class _CountedWriter:
    """A file whose writes are operations of the disk. A write that fails leaves half of its content."""

    def __init__(self, stream, disk):
        self._stream, self._disk = stream, disk

    def write(self, content):
        try:
            self._disk._operate()
        except BaseException:
            self._stream.write(bytes(content)[: len(content) // 2])
            raise
        return self._stream.write(content)

    def __enter__(self):
        return self

    def __exit__(self, *problem):
        self._stream.close()

    def __getattr__(self, name):
        return getattr(self._stream, name)

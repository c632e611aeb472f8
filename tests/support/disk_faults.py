"""A disk that fails: every operation on files below a folder is counted, and chosen ones fail or cut the power.

The operations are opening, writing, synchronising, renaming, removing, listing and making folders. They are intercepted
in the functions of `os` and in `open`, through which the library reaches files.
"""

import builtins
import contextlib
import errno
import io
import os
from pathlib import Path


class PowerLoss(BaseException):
    """The machine stops: no code of the library may run after it, so nothing may catch it."""


class FaultyDisk:
    """Counts operations below a folder; `fails(number)` decides which of them fail.

    Attributes
    ----------
    count : int
        Number of operations so far.
    unsynced : dict
        The content that each renamed file had before, for files whose folder has not been synchronised since.
    written : dict
        Whether the content of each open new file was synchronised.
    """

    def __init__(self, folder, fails=lambda number: False, problem=errno.EIO, power=False):
        self.folder, self.fails, self.problem, self.power = str(folder), fails, problem, power
        self.count = 0
        self.unsynced = {}
        self._handles = {}
        self.off = False

    def _is_below(self, path):
        return isinstance(path, (str, os.PathLike)) and os.fspath(path).startswith(self.folder)

    def _operate(self, path=None):
        if self.off:
            raise PowerLoss
        self.count += 1
        if self.fails(self.count):
            if self.power:
                self.off = True
                raise PowerLoss
            raise OSError(self.problem, os.strerror(self.problem), None if path is None else str(path))

    @contextlib.contextmanager
    def attached(self, monkeypatch):
        """Intercept the operations until the end of the block."""
        with monkeypatch.context() as patch:
            for name in ("unlink", "mkdir", "listdir", "scandir", "rmdir"):
                patch.setattr(os, name, self._wrap(getattr(os, name)))
            patch.setattr(os, "open", self._open_descriptor(os.open))
            patch.setattr(os, "replace", self._replace(os.replace))
            patch.setattr(os, "fsync", self._fsync(os.fsync))
            for module in (builtins, io):
                patch.setattr(module, "open", self._open_file(builtins.open if module is builtins else io.open))
            yield self

    def _wrap(self, real):
        def operation(path=".", *more, **keywords):
            if self._is_below(path):
                self._operate(path)
            return real(path, *more, **keywords)

        return operation

    def _open_descriptor(self, real):
        def open_descriptor(path, flags, *more, **keywords):
            if self._is_below(path):
                self._operate(path)
            handle = real(path, flags, *more, **keywords)
            self._handles[handle] = os.fspath(path)
            return handle

        return open_descriptor

    def _open_file(self, real):
        def open_file(file, mode="r", *more, **keywords):
            if self._is_below(file):
                self._operate(file)
                return real(file, mode, *more, **keywords)
            stream = real(file, mode, *more, **keywords)
            if isinstance(file, int) and self._is_below(self._handles.get(file)) and "w" in mode:
                return _CountedWriter(stream, self)
            return stream

        return open_file

    def _replace(self, real):
        def replace(source, target):
            if self._is_below(target):
                self._operate(target)
                path = Path(target)
                self.unsynced.setdefault(path, path.read_bytes() if path.exists() else None)
            real(source, target)

        return replace

    def _fsync(self, real):
        def fsync(handle):
            name = self._handles.get(handle)
            if self._is_below(name):
                self._operate(name)
            real(handle)
            if name is not None and os.path.isdir(name):
                for path in [path for path in self.unsynced if path.parent == Path(name)]:
                    del self.unsynced[path]

        return fsync

    def lose_unsynced(self):
        """Give every renamed file whose folder was not synchronised its old content back, as after a power failure."""
        for path, content in self.unsynced.items():
            if content is None:
                path.unlink(missing_ok=True)
            else:
                path.write_bytes(content)


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

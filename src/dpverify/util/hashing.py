"""Hashes of data by value, by which a run recognises its own checkpoint folder.

Plain data are hashed by value. A function is hashed by its name and its source files. Any other object is hashed by
what `pickle` would store of it, item by item. The bytes of a pickle are not used: they depend on the order of sets and
on which equal objects are the same object.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
from typing import Protocol

import numpy as np

from dpverify.errors import InputError
from dpverify.util.formatting import one_line
from dpverify.util.sources import source_hashes

PICKLE_PROTOCOL = 2  # the first one for which every class has a description of its objects


class _Digest(Protocol):
    def update(self, data: bytes, /) -> None: ...


def fingerprint(value: object, sources: bool = True, closures: bool = False) -> str:
    """Return a SHA-256 hash of an object by value, in hexadecimal digits.

    Parameters
    ----------
    value : object
        Plain data, arrays, dataclasses, functions, and objects that can be pickled.
    sources : bool
        Whether a function of the user contributes the hashes of its source files, besides its qualified name.
    closures : bool
        Whether a function contributes its default arguments and the values that it takes from the functions around it.

    Raises
    ------
    InputError
        If the object has a part that cannot be hashed by value.

    Examples
    --------
    >>> fingerprint((1, "a")) == fingerprint((1, "a")) != fingerprint((1, "b"))
    True
    >>> fingerprint({"b", "a"}) == fingerprint({"a", "b"})
    True
    """
    hasher = _ValueHasher(hashlib.sha256(), sources, [], closures)
    hasher.add(value)
    return hasher.digest.hexdigest()


def _add_words(digest: _Digest, *words: object) -> None:
    """Add words to the digest, with separators that keep different lists of words apart."""
    digest.update(("\x1f".join(map(str, words)) + "\x1e").encode(errors="surrogatepass"))


@dataclasses.dataclass(frozen=True)
class _ValueHasher:
    """Adds values to a digest; `parents` are the objects that are being described, to find cycles."""

    digest: hashlib._Hash
    sources: bool
    parents: list[object]
    closures: bool = False

    def add(self, value: object) -> None:
        """Add a value to the digest, with its type and size, so that values of different types differ."""
        digest = self.digest
        if hasattr(value, "__array__") and not isinstance(value, type):
            # What a mask hides is no data.
            array = np.ma.filled(value, 0) if np.ma.isMaskedArray(value) else np.asarray(value)
            _add_words(digest, "array", array.dtype.str, array.shape)
            for name in ("columns", "index", "mask"):  # the labels of a table, and what is missing from an array
                label = getattr(value, name, None)
                if hasattr(label, "__array__"):
                    self.add(label)
            if array.dtype.hasobject:
                self.add(array.ravel().tolist())
            else:
                digest.update(np.ascontiguousarray(array).tobytes())
            if np.ma.isMaskedArray(value):
                self.add(np.ma.getmaskarray(value))
        elif value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
            _add_words(digest, type(value).__name__, repr(value))
        elif isinstance(value, dict):
            _add_words(digest, "dict", len(value))
            for item in value.items():
                self.add(item)
        elif isinstance(value, (tuple, list)):
            _add_words(digest, type(value).__name__, len(value))
            for item in value:
                self.add(item)
        elif isinstance(value, (set, frozenset)):
            hashes = sorted(fingerprint(item, self.sources, self.closures) for item in value)
            _add_words(digest, type(value).__name__, len(value), *hashes)
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            _add_words(digest, type(value).__name__)
            for field in dataclasses.fields(value):
                self.add((field.name, getattr(value, field.name)))
        elif isinstance(value, functools.partial):
            self.add((value.func, value.args, value.keywords))
        elif hasattr(value, "__qualname__"):
            self._add_function(value)
        else:
            self._add_object(value)

    def _add_function(self, value: object) -> None:
        """Add a function or a class: its qualified name, the object of a method, and the user's source files."""
        _add_words(self.digest, getattr(value, "__module__", ""), getattr(value, "__qualname__", ""))
        owner = getattr(value, "__self__", None)
        if owner is not None and not isinstance(owner, type) and type(owner).__name__ != "module":
            self.add(owner)
        hashes = source_hashes(value) if self.sources else {}
        if hashes:
            self.add(hashes)
        if self.closures and not isinstance(value, type):
            function = inspect.unwrap(getattr(value, "__func__", value))  # type: ignore[arg-type]
            self.add((getattr(function, "__defaults__", None), getattr(function, "__kwdefaults__", None)))
            for cell in getattr(function, "__closure__", None) or ():
                self.add(cell.cell_contents)

    def _add_object(self, value: object) -> None:
        """Add any other object by what `pickle` would store of it."""
        for depth, parent in enumerate(self.parents):
            if parent is value:
                _add_words(self.digest, "cycle", depth)
                return
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        try:
            parts = value.__reduce_ex__(PICKLE_PROTOCOL)
        except MemoryError:
            raise
        except Exception as problem:  # any class can refuse in its own way
            raise InputError(
                f"{kind}: found an object that cannot be hashed ({one_line(problem)}); expected numbers, text, arrays, "
                "or an object that can be pickled; pass plain data, or use no checkpoint folder"
            ) from None
        _add_words(self.digest, "object", kind)
        self.parents.append(value)
        if isinstance(parts, str):  # the name of a global object
            _add_words(self.digest, parts)
        else:
            for part in parts:
                # Iterators of items are consumed; an object that is described by its class alone adds the class.
                self.add(list(part) if hasattr(part, "__next__") else part)
        self.parents.pop()

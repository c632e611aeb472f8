"""Hashes of plain data, by which a run recognises its own checkpoint folder."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from typing import Protocol

import numpy as np


class _Digest(Protocol):
    def update(self, data: bytes, /) -> None: ...


def fingerprint(value: object) -> str:
    """Return a SHA-256 hash of plain data by value, in hexadecimal digits.

    A function contributes its qualified name only, and any other object its type only.

    Examples
    --------
    >>> fingerprint((1, "a")) == fingerprint((1, "a")) != fingerprint((1, "b"))
    True
    """
    digest = hashlib.sha256()
    _add_value(digest, value)
    return digest.hexdigest()


def _add_words(digest: _Digest, *words: object) -> None:
    """Add words to the digest, with separators that keep different lists of words apart."""
    digest.update(("\x1f".join(map(str, words)) + "\x1e").encode(errors="surrogatepass"))


def _add_value(digest: _Digest, value: object) -> None:
    """Add a value to the digest, with its type and size, so that values of different types differ."""
    if hasattr(value, "__array__") and not isinstance(value, type):
        array = np.asarray(value)
        _add_words(digest, "array", array.dtype.str, array.shape)
        if array.dtype.hasobject:
            _add_value(digest, array.ravel().tolist())
        else:
            digest.update(np.ascontiguousarray(array).tobytes())
    elif value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        _add_words(digest, type(value).__name__, repr(value))
    elif isinstance(value, dict):
        _add_words(digest, "dict", len(value))
        for item in value.items():
            _add_value(digest, item)
    elif isinstance(value, (tuple, list)):
        _add_words(digest, type(value).__name__, len(value))
        for item in value:
            _add_value(digest, item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        _add_words(digest, type(value).__name__)
        for field in dataclasses.fields(value):
            _add_value(digest, (field.name, getattr(value, field.name)))
    elif isinstance(value, functools.partial):
        _add_value(digest, (value.func, value.args, value.keywords))
    elif hasattr(value, "__qualname__"):
        _add_words(digest, getattr(value, "__module__", ""), getattr(value, "__qualname__", ""))
    else:
        _add_words(digest, type(value).__module__, type(value).__qualname__)

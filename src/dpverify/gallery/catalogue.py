"""All entries of the gallery, in the order of the page."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from dpverify.errors import InputError
from dpverify.gallery import (
    bounded_noise,
    consensus,
    counting,
    fast,
    grouping,
    kalman,
    location,
    output_noise,
    posterior,
    programs,
    quantiser,
    triggered,
    windows,
)
from dpverify.gallery.entry import Case, Entry

ENTRIES: tuple[Entry, ...] = (
    kalman.ENTRY,
    output_noise.ENTRY,
    posterior.ENTRY,
    consensus.ENTRY,
    triggered.ENTRY,
    counting.BINARY,
    counting.MATRIX,
    fast.ENTRY,
    windows.ENTRY,
    grouping.ENTRY,
    location.ENTRY,
    quantiser.ENTRY,
    bounded_noise.TRUNCATED,
    bounded_noise.BOUNDED_LAPLACE,
    programs.GUARD,
    programs.TREE,
)


def choose_entries(names: Sequence[str]) -> tuple[Entry, ...]:
    """Return the entries with these names, in the order of the gallery; all of them without a name.

    Raises
    ------
    InputError
        If there is no entry of a name.

    Examples
    --------
    >>> [entry.name for entry in choose_entries(["fast", "binary"])]
    ['binary', 'fast']
    """
    known = [entry.name for entry in ENTRIES]
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; the nearest is {near[0]}" if near else ""
            raise InputError(f"gallery: found {name!r}{hint}; expected {', '.join(known)}")
    return tuple(entry for entry in ENTRIES if not names or entry.name in names)


def find_case(name: str) -> Case:
    """Return the case of this name."""
    return next(case for entry in ENTRIES for case in entry.cases if case.name == name)

"""The check of an argument `pairs`: several pairs of data sets in a list or a mapping."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set, Sized

from dpverify.errors import InputError
from dpverify.util.checks import is_real_number
from dpverify.util.formatting import one_line


def check_pairs(pairs: Iterable[object] | Mapping[str, object], listed: Sequence[object]) -> None:
    """Raise InputError if one of the listed objects is no pair (first, second).

    A pair is a tuple or a list of two data sets. An array, a text or a mapping is a data set, never a pair. Two numbers
    are a pair of data sets that are numbers. One case is ambiguous: exactly two objects of two numbers each, which can
    be two such pairs, or one pair of data sets with two numbers each. They are two pairs if they are tuples and `pairs`
    is no tuple, [(0.0, 1.0), (1.0, 2.0)]. Otherwise they are refused. Names make a mapping unambiguous.

    Parameters
    ----------
    pairs : iterable or mapping
        The argument of the user.
    listed : sequence
        What the iterable yields, or the values of the mapping.

    Examples
    --------
    >>> check_pairs([(0.0, 1.0), (1.0, 2.0)], [(0.0, 1.0), (1.0, 2.0)])
    >>> check_pairs(([0.0, 1.0], [1.0, 2.0]), ([0.0, 1.0], [1.0, 2.0]))
    Traceback (most recent call last):
    dpverify.errors.InputError: pairs: found an array as pair 0; expected (first, second); pass a list of pairs, \
[(first, second)]
    """
    labels = list(pairs) if isinstance(pairs, Mapping) else range(len(listed))
    is_ambiguous = not isinstance(pairs, Mapping) and len(listed) == 2 and all(map(_is_numbers, listed))
    are_data_sets = is_ambiguous and (isinstance(pairs, tuple) or not all(isinstance(pair, tuple) for pair in listed))
    for label, pair in zip(labels, listed, strict=True):
        found = "an array" if are_data_sets else _name_other(pair)
        if found:
            advice = "a list of pairs, [(first, second)]"
            if isinstance(pairs, Mapping):
                advice = "a mapping from names to pairs, {name: (first, second)}"
            raise InputError(f"pairs: found {found} as pair {one_line(label)}; expected (first, second); pass {advice}")


def _is_numbers(value: object) -> bool:
    """Return whether an object is a list or a tuple of two numbers."""
    return isinstance(value, (tuple, list)) and len(value) == 2 and all(map(is_real_number, value))


def _name_other(value: object) -> str:
    """Return in words what was found instead of a pair; an empty text for a pair."""
    if hasattr(value, "__array__") and getattr(value, "shape", ()) != ():  # NumPy, JAX, pandas and others
        return "an array"
    if isinstance(value, (str, bytes)):
        return "text"
    if isinstance(value, (Mapping, Set)) or not isinstance(value, Sized):
        return type(value).__name__
    return "" if len(value) == 2 else f"{len(value)} parts"

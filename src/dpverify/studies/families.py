"""Families of mechanisms: functions from a parameter to a mechanism."""

from __future__ import annotations

from collections.abc import Callable

from dpverify.errors import InputError
from dpverify.mechanisms.protocol import Mechanism, accepts_arguments, mechanism_name, positional_names

Family = Callable[[float], Mechanism]


def check_family(family: object, name: str = "family") -> None:
    """Raise InputError if an object cannot be called with one parameter; a mechanism is recognised.

    Examples
    --------
    >>> check_family(lambda scale: lambda data, runs, rng: data)
    >>> check_family(lambda scale, data, runs, rng: data)
    Traceback (most recent call last):
    dpverify.errors.InputError: family: found a function of (scale, data, runs, rng); expected family(parameter) that \
returns a mechanism; define one, for example lambda parameter: ...
    """
    expected = "expected family(parameter) that returns a mechanism"
    if not callable(family):
        raise InputError(f"{name}: found {type(family).__name__}; {expected}")
    if accepts_arguments(family, 1):
        return
    names = ", ".join(positional_names(family))
    if not accepts_arguments(family, 3):
        advice = "define one, for example lambda parameter: ..."
        raise InputError(f"{name}: found a function of ({names}); {expected}; {advice}")
    made = mechanism_name(family)
    made = made if made.isidentifier() else "mechanism"
    raise InputError(
        f"{name}: found a mechanism (its parameters are {names}); {expected}; define one that sets the noise of {made},"
        f" or verify {made} itself: verify({made}, first, second)"
    )

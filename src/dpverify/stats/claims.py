"""Claims about privacy: what a claim allows for the probability of an event (docs/method.md, section 5.10).

A claim bounds the probability of every event under one data set, given its probability `q` under a neighbouring data
set, in both orders: `P_i(E) <= boundary(P_j(E))`. The boundary is concave and does not fall, and it is at least q. Make
a claim with one of the functions `pure`, `approximate`, `points`, `gaussian`, `zcdp`, `renyi`, `profile` and
`tradeoff`, and pass it as `dpverify.verify(..., claim=...)`.

A stored claim is plain data. Its boundary is rounded up, so that a claim that holds is never refuted by rounding.

Examples
--------
>>> import dpverify as dpv
>>> claim = dpv.claims.gaussian(mu=1.0)
>>> round(float(claim.boundary(0.5)), 4)
0.8413
>>> claim.group(2)
Gaussian(mu=2.0)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from dpverify.errors import InputError
from dpverify.stats.claim_kinds import (
    CLAIM_KINDS,
    ZCDP,
    Approximate,
    Claim,
    Gaussian,
    Profile,
    Renyi,
    make_profile,
)
from dpverify.stats.supporting_lines import lower_envelope, tabulate_concave, tabulate_profile, with_mirror_images
from dpverify.util.checks import check_delta, check_epsilon, is_real_number, shorten
from dpverify.util.formatting import format_number

__all__ = [
    "ZCDP",
    "Approximate",
    "Claim",
    "Gaussian",
    "Profile",
    "Renyi",
    "approximate",
    "as_claim",
    "gaussian",
    "points",
    "profile",
    "pure",
    "renyi",
    "resolve_claim",
    "tradeoff",
    "zcdp",
]


def _check_positive(name: str, value: object) -> float:
    """Return the value; raise InputError unless it is a finite number of at least 0."""
    check_epsilon(value, name)
    return float(value)  # type: ignore[arg-type]


def pure(epsilon: float) -> Approximate:
    """Return the claim of pure differential privacy.

    Examples
    --------
    >>> round(float(pure(1.0).boundary(0.1)), 4)
    0.2718
    """
    return approximate(epsilon, 0.0)


def approximate(epsilon: float, delta: float) -> Approximate:
    """Return the claim of (epsilon, delta)-differential privacy.

    Examples
    --------
    >>> claim = approximate(1.0, 1e-5)
    >>> claim.group(2).delta == 1e-5 * (1 + np.e)
    True
    """
    check_delta(delta)
    return Approximate(_check_positive("epsilon", epsilon), float(delta))


def points(pairs: Iterable[tuple[float, float]]) -> Profile:
    """Return the claim of several points (epsilon, delta) together.

    Examples
    --------
    >>> claim = points([(0.5, 0.1), (2.0, 1e-6)])
    >>> claim.boundary(np.array([0.01, 0.3])).round(4).tolist()
    [0.0739, 0.5946]
    """
    found = [(epsilon, delta) for epsilon, delta in pairs]
    if not found:
        raise InputError("points: found no point; expected at least one pair (epsilon, delta)")
    for epsilon, delta in found:
        check_epsilon(epsilon)
        check_delta(delta)
    epsilons, deltas = np.array(found, float).T
    shown = ", ".join(f"({format_number(e)}, {format_number(d)})" for e, d in found[:4])
    text = f"{len(found)} points (epsilon, delta): {shown}{', ...' if len(found) > 4 else ''}"
    return make_profile(lower_envelope(*with_mirror_images(epsilons, deltas)), text)


def gaussian(mu: float) -> Gaussian:
    """Return the claim of Gaussian differential privacy (mu-GDP).

    Examples
    --------
    >>> round(float(gaussian(1.0).boundary(0.7)), 3)
    0.936
    """
    return Gaussian(_check_positive("mu", mu))


def zcdp(rho: float) -> ZCDP:
    """Return the claim of rho-zero-concentrated differential privacy.

    Examples
    --------
    >>> round(float(zcdp(0.5).boundary(0.1)), 3)
    0.484
    """
    return ZCDP(_check_positive("rho", rho))


def renyi(order: float, epsilon: float) -> Renyi:
    """Return the claim of Renyi differential privacy of one order.

    Examples
    --------
    >>> round(float(renyi(order=2.0, epsilon=1.0).boundary(0.1)), 3)
    0.493
    """
    if not (is_real_number(order) and order > 1):
        raise InputError(f"order: found {shorten(order)}; expected a finite number above 1; order infinity is pure")
    return Renyi(float(order), _check_positive("epsilon", epsilon))


def profile(delta_of_epsilon: object) -> Profile:
    """Return the claim of a privacy profile: (epsilon, delta_of_epsilon(epsilon)) for all epsilons together.

    Parameters
    ----------
    delta_of_epsilon : callable or object
        A function of epsilon, from 0 up. Or a privacy accountant or its result: an object with the method
        `get_delta_for_epsilon` or `get_delta` (dp_accounting), or `delta` (OpenDP).

    Examples
    --------
    >>> claim = profile(lambda epsilon: max(0.0, 1 - np.exp(epsilon - 1)))  # pure, epsilon 1
    >>> round(float(claim.boundary(0.1)), 4)
    0.2718
    """
    function = _find_profile(delta_of_epsilon)
    if function is None:
        raise InputError(
            f"profile: found {shorten(delta_of_epsilon)}; expected a function of epsilon, or an object with the method "
            "get_delta_for_epsilon, get_delta or delta"
        )
    epsilons, deltas = tabulate_profile(function)
    kind = type(delta_of_epsilon).__name__
    source = "" if kind in ("function", "method", "builtin_function_or_method") else f" of {kind}"
    text = f"a privacy profile{source}, delta {format_number(float(deltas[0]))} at epsilon 0"
    return make_profile(lower_envelope(*with_mirror_images(epsilons, deltas)), text)


def _find_profile(source: object) -> Callable[[float], float] | None:
    """Return the function of epsilon that an accountant's object has, or the function itself."""
    for name in ("get_delta_for_epsilon", "get_delta", "delta"):
        method = getattr(source, name, None)
        if callable(method):
            return method  # type: ignore[return-value]
    return source if callable(source) else None  # type: ignore[return-value]


def tradeoff(f: Callable[[float], float]) -> Profile:
    """Return the claim of a trade-off function (f-DP), in both orders.

    Parameters
    ----------
    f : callable
        For each type I error from 0 to 1 the smallest type II error. It is convex, it does not rise, and it is at most
        `1 - q`.

    Examples
    --------
    >>> claim = tradeoff(lambda q: max(0.0, 1 - np.e * q))
    >>> round(float(claim.boundary(0.1)), 4)
    0.2718
    """
    if not callable(f):
        raise InputError(f"tradeoff: found {shorten(f)}; expected a function of one number from 0 to 1")
    lines = lower_envelope(*tabulate_concave(lambda q: 1.0 - float(f(q))))
    return make_profile(lines, f"a trade-off function, type II error {format_number(float(f(0.05)))} at 0.05")


def as_claim(source: object) -> Claim:
    """Return a claim as it is, and an accountant's object or a function of epsilon as a profile.

    Examples
    --------
    >>> as_claim(pure(1.0))
    Approximate(epsilon=1.0, delta=0.0)
    """
    if isinstance(source, CLAIM_KINDS):
        return source
    if _find_profile(source) is None:
        raise InputError(
            f"claim: found {shorten(source)}; expected a claim of dpverify.claims, an accountant's privacy profile, or "
            "a function of epsilon"
        )
    return profile(source)


def resolve_claim(epsilon: float | None, delta: float, claim: object = None) -> tuple[Claim | None, float]:
    """Return the claim of a call, and the delta at which epsilon is bounded.

    Parameters
    ----------
    epsilon, delta : float
        A claim as two numbers; without an epsilon, delta is only the delta at which epsilon is bounded.
    claim : object
        What `as_claim` accepts, instead of epsilon.

    Raises
    ------
    InputError
        If both are given, or a number is out of its range.

    Examples
    --------
    >>> resolve_claim(1.0, 1e-5)
    (Approximate(epsilon=1.0, delta=1e-05), 1e-05)
    >>> resolve_claim(None, 1e-5, gaussian(1.0))
    (Gaussian(mu=1.0), 1e-05)
    """
    check_delta(delta)
    if claim is None:
        return (None if epsilon is None else approximate(epsilon, delta)), float(delta)
    if epsilon is not None:
        raise InputError("claim: found a claim and an epsilon; expected one of them; remove epsilon")
    found = as_claim(claim)
    if not isinstance(found, Approximate):
        return found, float(delta)
    if delta not in (0.0, found.delta):
        raise InputError(f"delta: found {delta} for the claim of {found.describe()}; expected one delta; remove delta")
    return found, found.delta

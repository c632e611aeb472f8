"""Claims about privacy: what a claim allows for the probability of an event (docs/method.md, section 5.10).

A claim bounds the probability of every event under one dataset, given its probability `q` under a neighbouring data
set, in both orders: `P_i(E) <= boundary(P_j(E))`. The boundary is concave and does not fall, and it is at least q. Make
a claim with one of the functions `pure`, `approximate`, `points`, `gaussian`, `zcdp`, `renyi`, `profile` and
`tradeoff`, and pass it as `dpverify.verify(..., claim=...)`.

A claim is plain data. Its boundary is rounded up, so that a claim that holds is never refuted by rounding. Everything
that differs between the kinds of claims is a method of the kind: its bounds, tests and words. Kinds with a parameter
(epsilon, mu, rho) name it in `parameter_name`; the boundary rises with it. Counts are in the order of the test: first
those of the dataset that is expected to have more runs in the event.

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

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import numpy as np
import scipy
from numpy.typing import ArrayLike

from dpverify.errors import InputError
from dpverify.stats.binomial import FloatArray
from dpverify.stats.boundaries import (
    MAX_EXPONENT,
    Boundary,
    BoundaryStack,
    GaussianBoundary,
    LineBoundary,
    Lines,
    LinesBoundary,
    compose,
    gaussian_boundary,
    line_boundary,
    lines_above,
    lower_envelope,
    renyi_boundary,
    tabulate_concave,
    tabulate_profile,
    with_mirror_images,
    zcdp_boundary,
)
from dpverify.stats.exact import (
    approximate_runs,
    curve_p_value,
    detectable_epsilon,
    detectable_probability,
    epsilon_lower_bound,
    parameter_lower_bound,
    parameter_p_value,
    repeat_at_smaller_levels,
    runs_to_refute,
    small_p_value,
)
from dpverify.stats.upper import (
    delta_upper_bound,
    epsilon_upper_bound,
    holds_on_partition,
    least_bounded_delta,
    profile_allows,
)
from dpverify.util.checks import BELOW_ONE, check_delta, check_epsilon, check_whole_number, is_real_number, shorten
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

QUANTILES = np.linspace(-8.0, 8.0, 1601)  # normal quantiles of the points of a curve in a figure

P = TypeVar("P", bound="_Parametric")
D = TypeVar("D", bound="_Divergence")


def is_curve(claim: Claim | None) -> bool:
    """Return whether there is a claim, and it is not a claim of one epsilon and delta."""
    return claim is not None and claim.is_curve


def _probabilities(q: ArrayLike) -> FloatArray:
    """Return probabilities as an array; raise InputError unless all lie in [0, 1]."""
    values = np.asarray(q, float)
    if not ((values >= 0.0) & (values <= 1.0)).all():
        raise InputError(f"q: found {shorten(q)}; expected probabilities from 0 to 1")
    return values


def _group_text(size: int) -> str:
    return f", for groups of {size}" if size > 1 else ""


class _Claim:
    """What all kinds of claims have in common: their tests for a boundary that is a curve."""

    parameter_name: ClassVar[str | None] = None
    is_curve: ClassVar[bool] = True  # not one line e^epsilon q + delta
    is_divergence: ClassVar[bool] = False  # of which a single event shows only a part
    has_corners: ClassVar[bool] = False  # the boundary is made of lines

    @property
    def parameter(self) -> float | None:
        """The value of the parameter; None if the claim has none."""
        return None

    @property
    def parameter_words(self) -> str:
        """The parameter in words."""
        return self.parameter_name or "the claim"

    def boundary(self, q: ArrayLike) -> FloatArray:
        """Return the largest probability that the claim allows where the other dataset has q."""
        raise NotImplementedError

    def sloped_boundary(self) -> Boundary:
        """Return the boundary with its slope; if it takes long to compute, lines above it replace it."""
        return LinesBoundary(lines_above(self.boundary))

    def holds_on(self, counts1: ArrayLike, counts2: ArrayLike, runs: int, alpha: float, all_occupied: bool) -> bool:
        """Return whether the claim holds for all unions of cells with these counts, at confidence 1 - alpha.

        `all_occupied` says whether the counts contain every cell of the partition. A divergence is a sum over cells, so
        that bounds on events do not bound it: the result is then False.
        """
        if self.is_divergence:
            return False
        return holds_on_partition(self, counts1, counts2, runs, alpha, all_occupied)

    def follows_from(self, delta_upper: Callable[[float], float]) -> bool:
        """Return whether the claim follows from upper bounds on delta over all events that hold at all epsilons.

        They do not bound a divergence. A curve without a positive delta at every epsilon does not follow from any
        number of runs, because these cannot exclude an event that they never show.
        """
        return not self.is_divergence and profile_allows(self, delta_upper)

    def runs_to_refute(self, p1: float, p2: float, alpha: float) -> float:
        """Return about how many runs per dataset refute the claim with probability 80%, given true probabilities.

        Infinite if the claim allows them.
        """
        return runs_to_refute(p1, p2, self, alpha)

    def noticed_probability(self, runs: int, q: float, alpha: float) -> float:
        """Return the smallest probability of an event that is refuted with probability 80%; infinite where none is.

        `q` is its probability with the other dataset.
        """
        return detectable_probability(runs, q, self, alpha)

    def describe_violation(self, factor: float, event: str = "the witness") -> str:
        """Return a violation of the claim by a factor on an event, in words."""
        return f"the true epsilon and delta of {event} were {format_number(factor)} times the claimed ones"

    def allowed_pairs(self) -> tuple[FloatArray, FloatArray]:
        """Return probabilities q, and the largest probability that the claim allows with q in both orders, for figures.

        The claim also bounds the complement of an event with the datasets exchanged, which matters for likely events.
        """
        q = np.r_[0.0, scipy.special.ndtr(QUANTILES), 1.0]
        p = self.boundary(q)
        return q, np.minimum(p, np.interp(q, 1.0 - p[::-1], 1.0 - q[::-1]))

    def implied_delta(self, epsilons: FloatArray) -> FloatArray:
        """Return the smallest delta that the claim implies at each epsilon, for figures.

        Examples
        --------
        >>> gaussian(1.0).implied_delta(np.array([0.0, 1.0])).round(3).tolist()
        [0.383, 0.127]
        """
        q, p = self.allowed_pairs()
        return np.maximum((p - np.exp(epsilons)[:, None] * q).max(axis=1), 0.0)


class _Parametric(_Claim):
    """What claims with one parameter have in common: the boundary rises with the parameter."""

    @property
    def parameter(self) -> float:
        """The value of the parameter."""
        return getattr(self, str(self.parameter_name))

    def with_parameter(self: P, value: float) -> P:
        """Return the claim of the same kind with another value of its parameter."""
        return dataclasses.replace(self, **{str(self.parameter_name): float(value)})  # type: ignore[type-var]

    def scale(self: P, factor: float) -> P:
        """Return the claim with its parameter multiplied by a factor."""
        return self.with_parameter(factor * self.parameter)

    def code(self) -> str:
        """Return the call that makes the claim."""
        size = getattr(self, "group_size", 1)
        fields = [field.name for field in dataclasses.fields(self) if field.name != "group_size"]  # type: ignore[arg-type]
        numbers = ", ".join(f"{name}={getattr(self, name)!r}" for name in fields)
        return f"dpv.claims.{type(self).__name__.lower()}({numbers}){f'.group({size})' if size > 1 else ''}"

    def describe_violation(self, factor: float, event: str = "the witness") -> str:
        """Return a violation of the claim by a factor on an event, in words."""
        return f"the true {self.parameter_name} of {event} were {format_number(factor * self.parameter)}"

    def lower_bound(self, c1: int, c2: int, runs: int, alpha: float) -> float:
        """Return a certified lower bound on the parameter: only the kind of the claim matters.

        Examples
        --------
        >>> round(gaussian(0.0).lower_bound(700, 300, 1000, 0.05), 3)
        0.95
        """
        return parameter_lower_bound(c1, c2, (runs, runs), alpha, self.with_parameter(0.0))

    def p_value(self, c1: int, c2: int, runs: int, alpha: float, limit: float = 1.0) -> float:
        """Return a valid p-value, at most alpha exactly where the parameter is below the lower bound.

        The test at level alpha is repeated at smaller levels, so that the p-value may be much smaller than alpha. Of a
        p-value above `limit` and above 2 alpha, only this is known, if the boundary is a line.

        Examples
        --------
        >>> gaussian(0.9).p_value(700, 300, 1000, 0.05) < 0.05
        True
        """
        free = self.with_parameter(0.0)

        def at_level(level: float) -> float:
            return parameter_p_value(c1, c2, (runs, runs), level, free, self.parameter)

        return repeat_at_smaller_levels(at_level(alpha), alpha, lambda level: at_level(level) <= level)

    def family_boundary(self, parameters: FloatArray) -> Boundary:
        """Return the boundaries with their slopes for many values of the parameter, along a first axis."""
        return BoundaryStack([sloped_boundary(self.with_parameter(value)) for value in parameters.tolist()])  # type: ignore[arg-type]


@functools.lru_cache(maxsize=256)  # a confidence sequence needs the same parameters again and again
def sloped_boundary(claim: Claim) -> Boundary:
    """Return `claim.sloped_boundary()`, which is kept."""
    return claim.sloped_boundary()


@dataclass(frozen=True)
class Approximate(_Parametric):
    """(epsilon, delta)-differential privacy: `P_i(E) <= e^epsilon P_j(E) + delta`.

    Attributes
    ----------
    epsilon, delta : float
        The claim; pure differential privacy has delta 0.
    """

    epsilon: float
    delta: float = 0.0
    parameter_name: ClassVar[str] = "epsilon"
    is_curve: ClassVar[bool] = False
    has_corners: ClassVar[bool] = True

    def boundary(self, q: ArrayLike) -> FloatArray:
        """Return the largest probability that the claim allows where the other dataset has q."""
        return np.minimum(1.0, math.exp(min(self.epsilon, MAX_EXPONENT)) * _probabilities(q) + self.delta)

    def group(self, size: int) -> Approximate:
        """Return what the claim implies for datasets that differ in a group of this size."""
        size = check_whole_number("size", size, 1)
        factor = float(np.exp(np.minimum(self.epsilon * np.arange(size), MAX_EXPONENT)).sum())
        return Approximate(size * self.epsilon, min(self.delta * factor, BELOW_ONE))

    def scale(self, factor: float) -> Approximate:
        """Return the claim with epsilon and delta multiplied by a factor."""
        return Approximate(factor * self.epsilon, min(factor * self.delta, BELOW_ONE))

    def describe(self) -> str:
        """Return the claim in one line."""
        return f"epsilon {format_number(self.epsilon, 7)}, delta {format_number(self.delta)}"

    def describe_violation(self, factor: float, event: str = "the witness") -> str:
        """Return a violation of the claim by a factor on an event, in words."""
        kind = _Claim if self.delta > 0 else _Parametric
        return kind.describe_violation(self, factor, event)

    def lower_bound(self, c1: int, c2: int, runs: int, alpha: float) -> float:
        """Return a certified lower bound on epsilon at this delta."""
        return epsilon_lower_bound(c1, c2, runs, self.delta, alpha)

    def p_value(self, c1: int, c2: int, runs: int, alpha: float, limit: float = 1.0) -> float:
        """Return a valid p-value, at most alpha exactly where epsilon is below the lower bound."""
        return small_p_value(c1, c2, runs, self.epsilon, self.delta, alpha, limit)

    def holds_on(self, counts1: ArrayLike, counts2: ArrayLike, runs: int, alpha: float, all_occupied: bool) -> bool:
        """Return whether the claim holds for all unions of cells with these counts, at confidence 1 - alpha."""
        if self.delta < least_bounded_delta(runs, alpha):  # then the bound on epsilon at delta 0 is used
            return all_occupied and epsilon_upper_bound(counts1, counts2, runs, 0.0, alpha) <= self.epsilon
        orders = (counts1, counts2), (counts2, counts1)
        return all(delta_upper_bound(*order, runs, self.epsilon, alpha) <= self.delta for order in orders)

    def follows_from(self, delta_upper: Callable[[float], float]) -> bool:
        """Return whether the claim follows from an upper bound on delta over all events at the claimed epsilon."""
        return delta_upper(self.epsilon) <= self.delta

    def sloped_boundary(self) -> LineBoundary:
        """Return the boundary with its slope."""
        return line_boundary(self.epsilon, self.delta)

    def family_boundary(self, parameters: FloatArray) -> LineBoundary:
        """Return the boundaries with their slopes for many epsilons, along a first axis."""
        return line_boundary(parameters[:, None], self.delta)

    def runs_to_refute(self, p1: float, p2: float, alpha: float) -> float:
        """Return about how many runs per dataset refute the claim with probability 80%, given true probabilities."""
        true = math.log((p1 - self.delta) / p2) if p1 > self.delta else 0.0
        return math.inf if true <= self.epsilon else approximate_runs(self.epsilon, true, p1, self.delta, alpha)

    def noticed_probability(self, runs: int, q: float, alpha: float) -> float:
        """Return the smallest probability of an event that is refuted with probability 80%; infinite where none is."""
        epsilon = detectable_epsilon(runs, q, self.epsilon, self.delta, alpha)
        return math.inf if epsilon == math.inf else float(self.with_parameter(epsilon).boundary(q))


@dataclass(frozen=True)
class Gaussian(_Parametric):
    """Gaussian differential privacy (mu-GDP): no test is better than one of N(0, 1) against N(mu, 1).

    Attributes
    ----------
    mu : float
        The distance of the means, in standard deviations.
    """

    mu: float
    parameter_name: ClassVar[str] = "mu"

    def boundary(self, q: ArrayLike) -> FloatArray:
        """Return the largest probability that the claim allows where the other dataset has q."""
        return gaussian_boundary(_probabilities(q), self.mu)

    def sloped_boundary(self) -> GaussianBoundary:
        """Return the boundary with its slope."""
        return GaussianBoundary(self.mu)

    def group(self, size: int) -> Gaussian:
        """Return what the claim implies for datasets that differ in a group of this size."""
        return Gaussian(check_whole_number("size", size, 1) * self.mu)

    def describe(self) -> str:
        """Return the claim in one line."""
        return f"Gaussian differential privacy with mu {format_number(self.mu, 7)}"


class _Divergence(_Parametric):
    """What claims about Renyi divergences have in common."""

    is_divergence: ClassVar[bool] = True
    group_size: int

    def group(self: D, size: int) -> D:
        """Return what the claim implies for datasets that differ in a group of this size."""
        return dataclasses.replace(self, group_size=self.group_size * check_whole_number("size", size, 1))  # type: ignore[type-var]

    def _repeat(self, boundary: Callable[[FloatArray], FloatArray], q: FloatArray) -> FloatArray:
        """Apply a boundary once for each member of the group."""
        for _ in range(self.group_size):
            q = boundary(q)
        return q


@dataclass(frozen=True)
class Renyi(_Divergence):
    """Renyi differential privacy: the Renyi divergence of one order is at most epsilon.

    A single event shows only a part of a divergence. So an event that violates the boundary refutes the claim, but a
    lower bound on epsilon from one event is below the true divergence even for the best event.

    Attributes
    ----------
    order : float
        The order of the divergence, above 1.
    epsilon : float
        The largest divergence.
    group_size : int
        The size of the groups in which the datasets may differ.
    """

    order: float
    epsilon: float
    group_size: int = 1
    parameter_name: ClassVar[str] = "epsilon"

    def boundary(self, q: ArrayLike) -> FloatArray:
        """Return the largest probability that the claim allows where the other dataset has q."""
        return self._repeat(lambda p: renyi_boundary(p, self.order, self.epsilon), _probabilities(q))

    @property
    def parameter_words(self) -> str:
        """The parameter in words: it is not the epsilon of differential privacy."""
        return f"Renyi epsilon of order {format_number(self.order)}"

    def describe(self) -> str:
        """Return the claim in one line."""
        text = f"Renyi differential privacy of order {self.order:.4g}, epsilon {format_number(self.epsilon, 7)}"
        return text + _group_text(self.group_size)


@dataclass(frozen=True)
class ZCDP(_Divergence):
    """Zero-concentrated differential privacy: for every order a, the Renyi divergence is at most rho a.

    A single event shows only a part of a divergence. So an event that violates the boundary refutes the claim, but a
    lower bound on rho from one event is below the true rho even for the best event (Gaussian noise with a small rho:
    about 2/pi of it).

    Attributes
    ----------
    rho : float
        The parameter of the claim.
    group_size : int
        The size of the groups in which the datasets may differ.
    """

    rho: float
    group_size: int = 1
    parameter_name: ClassVar[str] = "rho"

    def boundary(self, q: ArrayLike) -> FloatArray:
        """Return the largest probability that the claim allows where the other dataset has q."""
        values = _probabilities(q)
        if self.rho == 0.0:
            return values
        repeated = self._repeat(lambda p: zcdp_boundary(p, self.rho), values)
        if self.group_size == 1:
            return repeated
        return np.minimum(repeated, zcdp_boundary(values, self.group_size**2 * self.rho))

    def describe(self) -> str:
        """Return the claim in one line."""
        return f"zero-concentrated privacy with rho {format_number(self.rho, 7)}" + _group_text(self.group_size)


@dataclass(frozen=True)
class Profile(_Claim):
    """A curve, as points of a privacy profile: (epsilons[i], deltas[i]) for all i together.

    A negative epsilon is a claim about the complement of an event. A profile or a trade-off function that is given as a
    function is stored as so many points that its boundary is met closely; the stored boundary is never below it.

    Attributes
    ----------
    epsilons, deltas : tuple of float
        The points, by falling epsilon.
    text : str
        What was claimed, in words.
    """

    epsilons: tuple[float, ...]
    deltas: tuple[float, ...]
    text: str
    has_corners: ClassVar[bool] = True

    @functools.cached_property
    def lines(self) -> Lines:
        """The boundary as lines `e^epsilon q + delta`."""
        return lower_envelope(np.array(self.epsilons, float), np.array(self.deltas, float))

    def boundary(self, q: ArrayLike) -> FloatArray:
        """Return the largest probability that the claim allows where the other dataset has q."""
        values = _probabilities(q)
        return np.maximum(values, self.lines.lowest(values))

    def group(self, size: int) -> Profile:
        """Return what the claim implies for datasets that differ in a group of this size."""
        size, lines = check_whole_number("size", size, 1), self.lines
        for _ in range(size - 1):
            lines = compose(self.lines, lines)
        return make_profile(lines, self.text + _group_text(size))

    def scale(self, factor: float) -> Profile:
        """Return the claim with all epsilons and deltas multiplied by a factor."""
        positive = self.lines.epsilons >= 0.0
        points = factor * self.lines.epsilons[positive], np.minimum(factor * self.lines.deltas[positive], BELOW_ONE)
        return make_profile(lower_envelope(*with_mirror_images(*points)), self.text)

    def sloped_boundary(self) -> LinesBoundary:
        """Return the boundary with its slope."""
        return LinesBoundary(self.lines)

    def lower_bound(self, c1: int, c2: int, runs: int, alpha: float) -> None:
        """Return None: there is no parameter to bound."""
        return

    def p_value(self, c1: int, c2: int, runs: int, alpha: float, limit: float = 1.0) -> float:
        """Return a valid p-value; the test at level alpha is repeated at smaller levels."""

        def at_level(level: float) -> float:
            return curve_p_value(c1, c2, (runs, runs), level, self)

        return repeat_at_smaller_levels(at_level(alpha), alpha, lambda level: at_level(level) <= level)

    def code(self) -> str:
        """Return the call that makes the claim: an ellipsis, because its function is not stored."""
        return "..."

    def describe(self) -> str:
        """Return the claim in one line."""
        return self.text


Claim = Approximate | Gaussian | Renyi | ZCDP | Profile
CLAIM_KINDS = (Approximate, Gaussian, Renyi, ZCDP, Profile)


def make_profile(lines: Lines, text: str) -> Profile:
    """Return the profile whose boundary consists of these lines."""
    return Profile(tuple(lines.epsilons.tolist()), tuple(lines.deltas.tolist()), text)


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
    return Approximate(check_epsilon(epsilon), float(delta))


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
    return Gaussian(check_epsilon(mu, "mu"))


def zcdp(rho: float) -> ZCDP:
    """Return the claim of rho-zero-concentrated differential privacy.

    Examples
    --------
    >>> round(float(zcdp(0.5).boundary(0.1)), 3)
    0.484
    """
    return ZCDP(check_epsilon(rho, "rho"))


def renyi(order: float, epsilon: float) -> Renyi:
    """Return the claim of Renyi differential privacy of one order.

    Examples
    --------
    >>> round(float(renyi(order=2.0, epsilon=1.0).boundary(0.1)), 3)
    0.493
    """
    if not (is_real_number(order) and order > 1):
        raise InputError(f"order: found {shorten(order)}; expected a finite number above 1; order infinity is pure")
    return Renyi(float(order), check_epsilon(epsilon))


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
    if isinstance(source, _Claim):
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
        raise InputError("use claim or epsilon, not both")
    found = as_claim(claim)
    if found.is_curve:
        return found, float(delta)
    if delta not in (0.0, found.delta):
        raise InputError(f"delta: found {delta} for the claim of {found.describe()}; expected one delta; remove delta")
    return found, found.delta

"""The kinds of claims, as plain data (docs/method.md, 5.10). `dpverify.claims` has the functions that make them.

Each kind has the methods `boundary(q)`, `group(size)` and `describe()`. Kinds with a parameter (epsilon, mu, rho) name
it in `parameter_name`, and `with_parameter(value)` returns the claim with another value. The boundary rises with the
parameter.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import numpy as np
import scipy
from numpy.typing import ArrayLike

from dpverify.errors import InputError
from dpverify.stats.binomial import FloatArray
from dpverify.stats.divergences import renyi_boundary, zcdp_boundary
from dpverify.stats.supporting_lines import Lines, compose, lower_envelope, with_mirror_images
from dpverify.util.checks import BELOW_ONE, check_whole_number, shorten
from dpverify.util.formatting import format_number

MAX_EXPONENT = 700.0  # exp of more overflows
ROUNDING = 1e-15  # relative error of the normal distribution function and its inverse, with a margin

C = TypeVar("C", bound="Approximate | Gaussian | Renyi | ZCDP")


def _probabilities(q: ArrayLike) -> FloatArray:
    """Return probabilities as an array; raise InputError unless all lie in [0, 1]."""
    values = np.asarray(q, float)
    if not ((values >= 0.0) & (values <= 1.0)).all():
        raise InputError(f"q: found {shorten(q)}; expected probabilities from 0 to 1")
    return values


def _repeat(boundary: Callable[[FloatArray], FloatArray], q: FloatArray, times: int) -> FloatArray:
    """Apply a boundary several times: what the claim allows for data sets that differ in a group of that size."""
    for _ in range(times):
        q = boundary(q)
    return q


def _group_text(size: int) -> str:
    return f", for groups of {size}" if size > 1 else ""


class _Parametric:
    """What claims with one parameter have in common: the boundary rises with the parameter."""

    parameter_name: ClassVar[str]

    @property
    def parameter(self) -> float:
        """The value of the parameter."""
        return getattr(self, self.parameter_name)

    def with_parameter(self: C, value: float) -> C:  # type: ignore[misc]
        """Return the claim of the same kind with another value of its parameter."""
        return dataclasses.replace(self, **{self.parameter_name: float(value)})

    def scale(self: C, factor: float) -> C:  # type: ignore[misc]
        """Return the claim with its parameter multiplied by a factor."""
        return self.with_parameter(factor * self.parameter)


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

    def boundary(self, q: ArrayLike) -> FloatArray:
        """Return the largest probability that the claim allows where the other data set has q."""
        return np.minimum(1.0, math.exp(min(self.epsilon, MAX_EXPONENT)) * _probabilities(q) + self.delta)

    def group(self, size: int) -> Approximate:
        """Return what the claim implies for data sets that differ in a group of this size."""
        size = check_whole_number("size", size, 1)
        factor = float(np.exp(np.minimum(self.epsilon * np.arange(size), MAX_EXPONENT)).sum())
        return Approximate(size * self.epsilon, min(self.delta * factor, BELOW_ONE))

    def describe(self) -> str:
        """Return the claim in one line."""
        return f"epsilon {format_number(self.epsilon)}, delta {format_number(self.delta)}"


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
        """Return the largest probability that the claim allows where the other data set has q."""
        values = _probabilities(q)
        return np.maximum(
            values, np.minimum(1.0, scipy.special.ndtr(scipy.special.ndtri(values) + self.mu) * (1.0 + ROUNDING))
        )

    def group(self, size: int) -> Gaussian:
        """Return what the claim implies for data sets that differ in a group of this size."""
        return Gaussian(check_whole_number("size", size, 1) * self.mu)

    def describe(self) -> str:
        """Return the claim in one line."""
        return f"Gaussian differential privacy with mu {format_number(self.mu)}"


@dataclass(frozen=True)
class Renyi(_Parametric):
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
        The size of the groups in which the data sets may differ.
    """

    order: float
    epsilon: float
    group_size: int = 1
    parameter_name: ClassVar[str] = "epsilon"

    def boundary(self, q: ArrayLike) -> FloatArray:
        """Return the largest probability that the claim allows where the other data set has q."""
        return _repeat(lambda p: renyi_boundary(p, self.order, self.epsilon), _probabilities(q), self.group_size)

    def group(self, size: int) -> Renyi:
        """Return what the claim implies for data sets that differ in a group of this size."""
        return dataclasses.replace(self, group_size=self.group_size * check_whole_number("size", size, 1))

    def describe(self) -> str:
        """Return the claim in one line."""
        text = f"Renyi differential privacy of order {format_number(self.order)}, epsilon {format_number(self.epsilon)}"
        return text + _group_text(self.group_size)


@dataclass(frozen=True)
class ZCDP(_Parametric):
    """Zero-concentrated differential privacy: for every order a, the Renyi divergence is at most rho a.

    A single event shows only a part of a divergence. So an event that violates the boundary refutes the claim, but a
    lower bound on rho from one event is below the true rho even for the best event (Gaussian noise with a small rho:
    about 2/pi of it).

    Attributes
    ----------
    rho : float
        The parameter of the claim.
    group_size : int
        The size of the groups in which the data sets may differ.
    """

    rho: float
    group_size: int = 1
    parameter_name: ClassVar[str] = "rho"

    def boundary(self, q: ArrayLike) -> FloatArray:
        """Return the largest probability that the claim allows where the other data set has q."""
        values = _probabilities(q)
        if self.rho == 0.0:
            return values
        repeated = _repeat(lambda p: zcdp_boundary(p, self.rho), values, self.group_size)
        if self.group_size == 1:
            return repeated
        return np.minimum(repeated, zcdp_boundary(values, self.group_size**2 * self.rho))

    def group(self, size: int) -> ZCDP:
        """Return what the claim implies for data sets that differ in a group of this size."""
        return dataclasses.replace(self, group_size=self.group_size * check_whole_number("size", size, 1))

    def describe(self) -> str:
        """Return the claim in one line."""
        return f"zero-concentrated privacy with rho {format_number(self.rho)}" + _group_text(self.group_size)


@dataclass(frozen=True)
class Profile:
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
    parameter_name: ClassVar[None] = None

    @functools.cached_property
    def lines(self) -> Lines:
        """The boundary as lines `e^epsilon q + delta`."""
        return lower_envelope(np.array(self.epsilons, float), np.array(self.deltas, float))

    def boundary(self, q: ArrayLike) -> FloatArray:
        """Return the largest probability that the claim allows where the other data set has q."""
        values = _probabilities(q)
        return np.maximum(values, self.lines.lowest(values))

    def group(self, size: int) -> Profile:
        """Return what the claim implies for data sets that differ in a group of this size."""
        size, lines = check_whole_number("size", size, 1), self.lines
        for _ in range(size - 1):
            lines = compose(self.lines, lines)
        return make_profile(lines, self.text + _group_text(size))

    def scale(self, factor: float) -> Profile:
        """Return the claim with all epsilons multiplied by a factor."""
        positive = self.lines.epsilons >= 0.0
        points = factor * self.lines.epsilons[positive], self.lines.deltas[positive]
        return make_profile(lower_envelope(*with_mirror_images(*points)), self.text)

    def describe(self) -> str:
        """Return the claim in one line."""
        return self.text


Claim = Approximate | Gaussian | Renyi | ZCDP | Profile
CLAIM_KINDS = (Approximate, Gaussian, Renyi, ZCDP, Profile)


def make_profile(lines: Lines, text: str) -> Profile:
    """Return the profile whose boundary consists of these lines."""
    return Profile(tuple(lines.epsilons.tolist()), tuple(lines.deltas.tolist()), text)

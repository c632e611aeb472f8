"""Transforms of an output: plain data that map outputs to other numbers, to which a score is applied."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from dpverify.events.scores.base import Features
from dpverify.util.arrays import Array, array_namespace

MANTISSA_BITS = 53  # of double precision
ZERO_EXPONENT = 64.0  # stands for the lowest bit of zero


class Transform(Protocol):
    """A function of the output that is plain data."""

    def values(self, flat: Array, /) -> Array:
        """Return the transformed outputs, one row per run."""
        ...

    def describe(self) -> str:
        """Name the result."""
        ...


class OrderStatistics(NamedTuple):
    """The sorted coordinates.

    Attributes
    ----------
    coordinates : ndarray of shape (J,)
        The coordinates.
    """

    coordinates: np.ndarray

    def describe(self) -> str:
        """Name the result."""
        return "the sorted coordinates"

    def values(self, flat: Array) -> Array:
        """Return the sorted coordinates of every run."""
        return array_namespace(flat).sort(flat[:, self.coordinates], axis=1)


class Distances(NamedTuple):
    """Logarithms of one plus the squared distances from some centres.

    Attributes
    ----------
    features : Features
        The features in which distances are measured.
    centres : ndarray of shape (C, F)
        The centres.
    """

    features: Features
    centres: np.ndarray

    def describe(self) -> str:
        """Name the result."""
        return "distances from the two mean outputs"

    def values(self, flat: Array) -> Array:
        """Return one number per run and centre."""
        xp, z = array_namespace(flat), self.features.values(flat)
        return xp.stack([xp.log1p(((z - centre) ** 2).sum(1)) for centre in self.centres], axis=1)


class Circular(NamedTuple):
    """The cosines and sines of angles, and all other coordinates as they are.

    Attributes
    ----------
    angles, others : ndarray of int
        The coordinates that are angles, and the others.
    frequencies : ndarray
        The factor that converts each angle to radians.
    """

    angles: np.ndarray
    others: np.ndarray
    frequencies: np.ndarray

    def describe(self) -> str:
        """Name the result."""
        return "cosines and sines of angles"

    def values(self, flat: Array) -> Array:
        """Return cosines, sines and the other coordinates."""
        xp = array_namespace(flat)
        turned = flat[:, self.angles] * self.frequencies
        return xp.concatenate([xp.cos(turned), xp.sin(turned), flat[:, self.others]], axis=1)


class Folded(NamedTuple):
    """Unit quaternions with the sign for which they are close to an axis, and all other coordinates as they are.

    Attributes
    ----------
    quaternions : ndarray of shape (Q, 4)
        The coordinates of each quaternion.
    axes : ndarray of shape (Q, 4)
        The axis of each quaternion.
    others : ndarray of int
        The other coordinates.
    """

    quaternions: np.ndarray
    axes: np.ndarray
    others: np.ndarray

    def describe(self) -> str:
        """Name the result."""
        return "quaternions up to their sign"

    def values(self, flat: Array) -> Array:
        """Return the quaternions with a sign that does not depend on the run, and the other coordinates."""
        xp = array_namespace(flat)
        parts = []
        for row in range(self.quaternions.shape[0]):
            q = flat[:, self.quaternions[row]]
            parts.append(q * xp.where(q @ self.axes[row] < 0, -1.0, 1.0)[:, None])
        return xp.concatenate([*parts, flat[:, self.others]], axis=1)


class LowBits(NamedTuple):
    """How the coordinates are rounded: the exponent of the lowest bit that is set, and the exponent of the value.

    Attributes
    ----------
    coordinates : ndarray of shape (R,)
        The coordinates; each can occur several times.
    candidates : ndarray of shape (R,)
        Subtracted from each coordinate, for example the true answer that noise was added to.
    """

    coordinates: np.ndarray
    candidates: np.ndarray

    def describe(self) -> str:
        """Name the result."""
        return "the low bits"

    def values(self, flat: Array) -> Array:
        """Return the exponents of the lowest bits, then the exponents of the values."""
        xp = array_namespace(flat)
        mantissa, exponent = xp.frexp(flat[:, self.coordinates] - self.candidates)
        integer = (mantissa * 2.0**MANTISSA_BITS).astype(xp.int64)
        lowest = xp.frexp((integer & -integer).astype(float))[1] - 1
        low = xp.where(integer == 0, ZERO_EXPONENT, 1.0 * exponent - MANTISSA_BITS + lowest)
        return xp.concatenate([low, 1.0 * exponent], axis=1)

"""Continual counting: the binary mechanism, the matrix mechanism for prefix sums, and Honaker's tree."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from dpverify.gallery.entry import Case, Entry, Role, Truth
from dpverify.gallery.laws import laplace_truth, mu_truth
from dpverify.stats.claims import Approximate, gaussian, pure


@dataclass(frozen=True)
class BinaryMechanism:
    """Running sums of a stream from noisy sums over dyadic intervals.

    Attributes
    ----------
    scale : float
        The scale of the Laplace noise of each interval.

    Examples
    --------
    >>> BinaryMechanism(2.0)(np.zeros(4), 5, np.random.default_rng(0)).shape
    (5, 4)
    """

    scale: float

    def __call__(self, data: np.ndarray, runs: int, rng: np.random.Generator) -> np.ndarray:
        """Return the noisy sum after each step."""
        noise = rng.laplace(scale=self.scale, size=(runs, len(data)))  # of the interval that ends in each step
        sums, exact = np.zeros((runs, len(data) + 1)), np.concatenate([[0.0], np.cumsum(data)])
        for step in range(1, len(data) + 1):
            start = step & (step - 1)  # the interval is as long as the lowest bit of the step
            sums[:, step] = sums[:, start] + exact[step] - exact[start] + noise[:, step - 1]
        return sums[:, 1:]


def binary_truth(steps: int, scale: float, claim: Approximate) -> Truth:
    """Return the truth if the first of 2^m items changes: it is in m + 1 intervals."""
    return laplace_truth([1 / scale] * (int(math.log2(steps)) + 1), claim)


def binary_case(steps: int, correct: bool) -> Case:
    """Return the case of the first item of so many steps, at the claim epsilon 1."""
    levels = int(math.log2(steps))
    scale = float(levels + 1 if correct else levels)
    first, second = np.zeros(steps), np.eye(steps)[0]
    title = f"T {steps}, noise scale {'(1 + log2 T)/eps' if correct else 'log2(T)/eps'}"
    role: Role = "corrected" if correct else "implemented"
    name = f"binary-t{steps}{'-corrected' if correct else ''}"
    claim = pure(1.0)
    return Case(
        name, title, BinaryMechanism(scale), first, second, claim, partial(binary_truth, steps, scale, claim), role
    )


BINARY = Entry(
    name="binary",
    title="Binary mechanism for running sums",
    source=(
        "Chan, Shi and Song, Private and continual release of statistics, 2011; control: Dwork, Naor, Pitassi and "
        "Rothblum, Differential privacy under continual observation, 2010"
    ),
    what=(
        "Each running sum of a stream of T numbers is composed of sums over dyadic intervals, each with Laplace "
        "noise of scale log2(T)/eps, as in common implementations. Whether the source rounds log2(T), or excludes "
        "the last step, is not settled here; T is a power of two."
    ),
    neighbours="One item of the stream changes by 1; here the first one.",
    why=(
        "For T = 2^m the first item is in m + 1 intervals: those of length 1, 2, 4, and so on up to T. Every "
        "interval has noise of scale m/eps and costs eps/m, so the sum is eps (m + 1)/m: 2 for T 2, 1.5 for T 4, 4/3 "
        "for T 8 at the claim 1. If the last step is not released, the item is in m intervals and the claim holds. "
        "Noise of scale (1 + log2 T)/eps counts all intervals, and then the claim stands."
    ),
    cases=tuple(binary_case(steps, correct) for steps in (4, 2, 8) for correct in (False, True)),
)


def square_root(steps: int) -> np.ndarray:
    """Return the Toeplitz square root of the matrix of prefix sums: 1, 1/2, 3/8, ... below the diagonal.

    Examples
    --------
    >>> square_root(3) @ square_root(3)
    array([[1., 0., 0.],
           [1., 1., 0.],
           [1., 1., 1.]])
    """
    coefficients = np.ones(steps)
    for k in range(1, steps):
        coefficients[k] = coefficients[k - 1] * (2 * k - 1) / (2 * k)
    lag = np.subtract.outer(np.arange(steps), np.arange(steps))
    return np.where(lag >= 0, coefficients[np.abs(lag)], 0.0)


@dataclass(frozen=True)
class MatrixMechanism:
    """Prefix sums `B (C x + z)` with `B = C`, the square root of the matrix of prefix sums, and Gaussian noise z.

    Attributes
    ----------
    sigma : float
        The standard deviation of the noise.

    Examples
    --------
    >>> MatrixMechanism(1.0)(np.zeros(8), 5, np.random.default_rng(0)).shape
    (5, 8)
    """

    sigma: float

    def __call__(self, data: np.ndarray, runs: int, rng: np.random.Generator) -> np.ndarray:
        """Return the noisy prefix sums."""
        C = square_root(len(data))
        return (C @ data + self.sigma * rng.standard_normal((runs, len(data)))) @ C.T


def tree_matrix(leaves: int) -> np.ndarray:
    """Return the matrix whose rows sum the leaves below each node of a binary tree, the root first.

    Examples
    --------
    >>> tree_matrix(2)
    array([[1., 1.],
           [1., 0.],
           [0., 1.]])
    """
    rows, width = [], leaves
    while width:
        rows.append(np.kron(np.eye(leaves // width), np.ones(width)))
        width //= 2
    return np.vstack(rows)


@dataclass(frozen=True)
class HonakerTree:
    """Prefix sums from the least-squares estimate of the items, given noisy sums over all nodes of a binary tree.

    Attributes
    ----------
    sigma : float
        The standard deviation of the noise of each node.

    Examples
    --------
    >>> HonakerTree(2.0)(np.zeros(8), 5, np.random.default_rng(0)).shape
    (5, 8)
    """

    sigma: float

    def __call__(self, data: np.ndarray, runs: int, rng: np.random.Generator) -> np.ndarray:
        """Return the noisy prefix sums."""
        tree = tree_matrix(len(data))
        nodes = tree @ data + self.sigma * rng.standard_normal((runs, len(tree)))
        return np.cumsum(nodes @ np.linalg.pinv(tree).T, axis=1)


STEPS = 8
ONE_NORM = float(np.linalg.norm(square_root(STEPS)[:, 0]))
TWICE = np.eye(STEPS)[0] + np.eye(STEPS)[4]  # the same person contributes in steps 0 and 4
TWICE_NORM = float(np.linalg.norm(square_root(STEPS) @ TWICE))


def matrix_case(name: str, title: str, change: np.ndarray, norm: float, role: Role) -> Case:
    """Return a case of the matrix mechanism at the claim mu 1, with noise for a change of this norm."""
    mu = float(np.linalg.norm(square_root(STEPS) @ change)) / norm
    zero = np.zeros(STEPS)
    return Case(name, title, MatrixMechanism(norm), zero, change, gaussian(1.0), partial(mu_truth, mu), role)


MATRIX = Entry(
    name="matrix",
    title="Matrix mechanism for prefix sums, and Honaker's tree",
    source=(
        "Kairouz, McMahan, Song, Thakkar, Thakurta and Xu, Practical and private (deep) learning without sampling or "
        "shuffling (DP-FTRL), 2021; Fichtenberger, Henzinger and Upadhyay, Constant matters, 2023; Honaker, "
        "Efficient use of differentially private binary trees, 2015"
    ),
    what=(
        "The 8 prefix sums of a stream are released as B (C x + z) with Gaussian noise z, where B = C is the square "
        "root of the matrix of prefix sums. Honaker's tree adds noise to all 15 nodes of a binary tree and releases "
        "the least-squares estimate. The noise is chosen for the claim mu = 1 of Gaussian differential privacy."
    ),
    neighbours="One person contributes 1 in one step; in the control, in two steps.",
    why=(
        "Both releases are invertible or sufficient functions of Gaussian noise, so mu is exactly the norm of the "
        "change divided by the standard deviation. The noise fits a person who contributes once. A person who "
        "contributes twice changes C x by the norm of the sum of two columns, which is larger, and the claim fails. "
        "With the norm of the whole pattern of contributions it stands."
    ),
    cases=(
        matrix_case("matrix", "one contribution", np.eye(STEPS)[0], ONE_NORM, "published"),
        matrix_case("matrix-twice", "two contributions, noise for one", TWICE, ONE_NORM, "control"),
        matrix_case("matrix-twice-corrected", "two contributions, noise for two", TWICE, TWICE_NORM, "corrected"),
        Case(
            "honaker",
            "Honaker's tree, sigma 2 for 4 levels",
            HonakerTree(2.0),
            np.zeros(STEPS),
            np.eye(STEPS)[0],
            gaussian(1.0),
            partial(mu_truth, 1.0),
        ),
    ),
)

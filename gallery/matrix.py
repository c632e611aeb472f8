"""Matrix mechanism for prefix sums, and Honaker's tree.

Kairouz, McMahan, Song, Thakkar, Thakurta and Xu, Practical and private (deep) learning without sampling or shuffling
(DP-FTRL), 2021; Fichtenberger, Henzinger and Upadhyay, Constant matters, 2023; Honaker, Efficient use of
differentially private binary trees, 2015.

The 8 prefix sums of a stream are released as B (C x + z) with Gaussian noise z, where B = C is the square root of the
matrix of prefix sums. Honaker's tree adds noise to all 15 nodes of a binary tree and releases the least-squares
estimate. The noise is chosen for the claim mu = 1 of Gaussian differential privacy.

Neighbours: One person contributes 1 in one step; in the control, in two steps.

Why: Both releases are invertible or sufficient functions of Gaussian noise, so mu is exactly the norm of the change
divided by the standard deviation. The noise fits a person who contributes once. A person who contributes twice changes
C x by the norm of the sum of two columns, which is larger, and the claim fails. With the norm of the whole pattern of
contributions it holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from dpverify import claims
from gallery.entry import Case, Role, make_entry
from gallery.laws import mu_truth


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
    return Case(name, title, MatrixMechanism(norm), (zero, change), claims.gaussian(1.0), partial(mu_truth, mu), role)


ENTRY = make_entry(
    __name__,
    __doc__,
    matrix_case("matrix", "one contribution", np.eye(STEPS)[0], ONE_NORM, "published"),
    matrix_case("matrix-twice", "two contributions, noise for one", TWICE, ONE_NORM, "control"),
    matrix_case("matrix-twice-corrected", "two contributions, noise for two", TWICE, TWICE_NORM, "corrected"),
    Case(
        "honaker",
        "Honaker's tree, sigma 2 for 4 levels",
        HonakerTree(2.0),
        (np.zeros(STEPS), np.eye(STEPS)[0]),
        claims.gaussian(1.0),
        partial(mu_truth, 1.0),
    ),
)

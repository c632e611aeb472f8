"""Kalman filters and smoothers as affine maps of the data, with their posterior covariances, in NumPy.

A filter of a linear system is an affine map of all measurements. Its matrices are computed once, and every run then
needs one product. Measurements may be missing (docs/method.md, section 7.9).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dpverify.errors import InputError
from dpverify.estimation.system import System
from dpverify.estimation.validation import check_covariance


class LinearModel(NamedTuple):
    """The matrices of a linear system and the covariances that a filter of it assumes."""

    A: np.ndarray
    C: np.ndarray
    process: np.ndarray
    measurement: np.ndarray
    initial: np.ndarray
    start: np.ndarray

    @classmethod
    def of(
        cls, system: System, process: ArrayLike | None, measurement: ArrayLike | None, initial: ArrayLike | None
    ) -> LinearModel:
        """Return the model of a system; a covariance that is None is that of the system's distribution."""
        if system.A is None or system.C is None:
            raise InputError("system: found a system without A or C; expected a linear one; pass both matrices")
        n, m = system.states, system.measurements
        covariances = (
            check_covariance("process", process, system.disturbance.variance, n),
            check_covariance("measurement", measurement, system.noise.variance, m, definite=True),
            check_covariance("initial", initial, system.initial.variance, n),
        )
        return cls(*(np.asarray(x, float) for x in (system.A, system.C, *covariances, system.start)))


class FilterMaps(NamedTuple):
    """The estimate of step k is `gains[k] @ y.ravel() + offsets[k]`, with the posterior covariance `covariances[k]`.

    Attributes
    ----------
    gains : ndarray of shape (K, states, K * measurements)
        The matrices; columns of missing measurements are 0.
    offsets : ndarray of shape (K, states)
        The estimates if all measurements are 0.
    covariances : ndarray of shape (K, states, states)
        The covariances of the states given the measurements.
    """

    gains: np.ndarray
    offsets: np.ndarray
    covariances: np.ndarray

    def released(self, coordinates: tuple[int, ...]) -> FilterMaps:
        """Return the maps of some coordinates of the state."""
        chosen = list(coordinates)
        return FilterMaps(self.gains[:, chosen], self.offsets[:, chosen], self.covariances[:, chosen][:, :, chosen])

    def estimate(self, data: np.ndarray) -> np.ndarray:
        """Return the estimates of shape (K, states)."""
        return self.gains @ data.ravel() + self.offsets

    @property
    def matrix(self) -> np.ndarray:
        """The gains of all steps as one matrix of shape (K * states, K * measurements)."""
        return self.gains.reshape(-1, self.gains.shape[-1])


def filter_maps(model: LinearModel, observed: np.ndarray) -> FilterMaps:
    """Return the Kalman filter. It updates with y_0 before its first prediction.

    Parameters
    ----------
    model : LinearModel
        The system.
    observed : ndarray of bool, of shape (K, measurements)
        Which measurements exist.

    Examples
    --------
    >>> one = np.eye(1)
    >>> maps = filter_maps(LinearModel(one, one, 0 * one, one, one, np.zeros(1)), np.array([[True], [False], [True]]))
    >>> maps.gains[2].round(3).tolist()
    [[0.333, 0.0, 0.333]]
    """
    steps, sensors = observed.shape
    # The last column is the constant part of the map.
    estimate = np.zeros((len(model.start), steps * sensors + 1))
    estimate[:, -1] = model.start
    P, estimates, covariances = model.initial, [], []
    for k in range(steps):
        if k:
            estimate, P = model.A @ estimate, model.A @ P @ model.A.T + model.process
        rows = np.flatnonzero(observed[k])
        C, R = model.C[rows], model.measurement[np.ix_(rows, rows)]
        gain = P @ C.T @ np.linalg.inv(C @ P @ C.T + R)
        measured = np.zeros((len(rows), estimate.shape[1]))
        measured[np.arange(len(rows)), k * sensors + rows] = 1.0
        estimate = estimate + gain @ (measured - C @ estimate)
        P = P - gain @ C @ P
        estimates.append(estimate)
        covariances.append((P + P.T) / 2)
    return _as_maps(np.array(estimates), np.array(covariances))


def smoother_maps(model: LinearModel, observed: np.ndarray) -> FilterMaps:
    """Return the Rauch-Tung-Striebel smoother: every estimate uses all measurements, later ones included.

    Examples
    --------
    >>> one = np.eye(1)
    >>> maps = smoother_maps(LinearModel(one, one, 0 * one, one, one, np.zeros(1)), np.ones((2, 1), bool))
    >>> maps.gains[0].round(3).tolist()
    [[0.333, 0.333]]
    """
    filtered = filter_maps(model, observed)
    estimates = np.concatenate([filtered.gains, filtered.offsets[:, :, None]], axis=2)
    covariances = filtered.covariances.copy()
    for k in range(len(observed) - 2, -1, -1):
        P = filtered.covariances[k]
        predicted = model.A @ P @ model.A.T + model.process
        back = P @ model.A.T @ np.linalg.pinv(predicted, hermitian=True)
        estimates[k] += back @ (estimates[k + 1] - model.A @ estimates[k])
        covariances[k] += back @ (covariances[k + 1] - predicted) @ back.T
    return _as_maps(estimates, covariances)


def _as_maps(estimates: np.ndarray, covariances: np.ndarray) -> FilterMaps:
    """Split the constant part from the matrices."""
    return FilterMaps(estimates[:, :, :-1], estimates[:, :, -1], covariances)

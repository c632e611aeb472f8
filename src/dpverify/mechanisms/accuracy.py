"""Accuracy of a mechanism's outputs: error functions for the argument `error` of `verify`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dpverify.errors import InputError
from dpverify.util.arrays import Array, array_namespace


@dataclass(frozen=True)
class Rmse:
    """The function that `rmse` returns; a dataclass, so that it pickles."""

    truth: np.ndarray

    def __call__(self, samples: Array) -> Array:
        steps, dimension = samples.shape[1:]
        if self.truth.size != steps * dimension:
            raise InputError(
                f"error: found a truth of shape {self.truth.shape}; expected ({steps}, {dimension}), the shape of one "
                "output"
            )
        difference = samples - self.truth.reshape(steps, dimension)
        return array_namespace(samples).sqrt((difference**2).sum(-1).mean(-1))


def rmse(truth: ArrayLike) -> Callable[[Array], Array]:
    """Make an error function: the root mean square error of each run over its steps.

    Parameters
    ----------
    truth : array_like
        The true trajectory, of shape (K, d), or any shape with as many numbers as one output.

    Returns
    -------
    callable
        A function from samples of shape (runs, K, d) to an array of shape (runs,). For each run it is the square root
        of the mean, over the K steps, of the squared Euclidean distance to the truth. A mechanism
        that returns (runs, d) has one step of d dimensions; a scalar filter over K steps returns (runs, K, 1).

    Examples
    --------
    >>> import numpy as np
    >>> import dpverify as dpv
    >>> error = dpv.rmse([[0.0, 0.0], [0.0, 0.0]])
    >>> error(np.array([[[3.0, 4.0], [0.0, 0.0]]])).round(3).tolist()
    [3.536]
    """
    return Rmse(np.asarray(truth, float))

"""What a mechanism returns: validation where samples enter, and error functions for the argument `error` of `verify`.

Shape, data type and finiteness are checked once. Every later function receives float64 arrays of shape (runs, K, d) and
does not check them again. Arrays on an accelerator stay there; all others become NumPy arrays.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpverify.errors import InputError
from dpverify.util.arrays import Array, array_namespace, enable_x64, on_accelerator

EXACT_INTEGER = 1 << 53  # beyond it, double precision does not hold every integer


class CallableOutput(InputError):
    """A mechanism returned a function: it probably makes a mechanism."""


class StructuredOutput(InputError):
    """A mechanism returned outputs that no array of doubles holds exactly; they can be encoded."""


def validate_output(
    output: object, runs: int, shape: tuple[int, int] | None = None, require_finite: bool = True
) -> Array:
    """Check the output of a mechanism and return it as a float64 array of shape (runs, K, d).

    Parameters
    ----------
    output : object
        What the mechanism returned.
    runs : int
        The number of runs that was requested.
    shape : tuple of int, optional
        The (K, d) of earlier outputs; None for the first.
    require_finite : bool
        Whether NaN and infinite values are refused. The caller may check later, see `all_finite`.

    Returns
    -------
    Array
        A JAX array if the output is on an accelerator, else a NumPy array.

    Raises
    ------
    InputError
        If the output cannot be used. The message is one line.
    """
    samples: Any = output
    on_device = False
    if type(samples) is not np.ndarray:
        on_device = on_accelerator(samples)
        if not on_device:
            if np.ma.is_masked(samples):
                raise InputError(
                    "found masked numbers; expected an array without a mask; leave out numbers that are not published, "
                    "or fill in what is published in their place"
                )
            if isinstance(samples, list) and samples and is_table(samples[0]):
                raise StructuredOutput("found tables after arrays of numbers; expected one kind of output")
            try:
                samples = np.asarray(samples)
            except ValueError as problem:
                raise StructuredOutput(
                    "found rows of different lengths, and one length in the first runs; expected one or the other; "
                    'return each output as a dictionary, {"rows": output}, and lengths may differ'
                ) from problem
    steps, dimension = _check_shape(samples, runs, shape)
    if shape is None and samples.dtype.kind in "iu" and samples.dtype.itemsize == 8:
        integers = np.asarray(samples)
        if integers.max() > EXACT_INTEGER or integers.min() < -EXACT_INTEGER:
            raise StructuredOutput("found integers beyond 2**53 after arrays of smaller numbers; expected one kind")
    if not on_device:
        samples = samples.astype(np.float64, copy=False).reshape(runs, steps, dimension)
        finite = not require_finite or np.isfinite(samples).all()
    else:
        with enable_x64():
            samples = samples if samples.dtype == np.float64 else samples.astype(np.float64)
            samples = samples if samples.ndim == 3 else samples.reshape(runs, steps, dimension)
            finite = not require_finite or bool(all_finite(samples))
    if not finite:
        bad = int((~np.isfinite(np.asarray(samples))).any(axis=(1, 2)).sum())
        as_event = 'count such runs as an event: nonfinite="event" (--set nonfinite=event)'
        advice = as_event if bad < runs else "the data, if they contain NaN or infinity"
        raise InputError(
            f"found NaN or infinity in {bad} of {runs} runs; expected finite outputs; fix the mechanism, or {advice}"
        )
    return samples


def is_table(value: object) -> bool:
    """Return whether this is a table, a series or a value of pandas or polars, neither of which is imported for it."""
    return type(value).__module__.partition(".")[0] in ("pandas", "polars")


def _check_shape(samples: Array, runs: int, shape: tuple[int, int] | None) -> tuple[int, int]:
    """Return the number of steps and the dimension of one output, or raise an InputError."""
    if samples.dtype.kind == "O" and samples.size:
        returned = samples.flat[0]
        name = type(returned).__name__
        if callable(returned):
            raise CallableOutput(f"found a {name} instead of outputs; expected real numbers or integers")
        raise StructuredOutput(f"found an object of type {name} after arrays of numbers; expected one kind of output")
    if samples.dtype.kind not in "fiub":
        raise StructuredOutput(f"found dtype {samples.dtype} after arrays of numbers; expected one kind of output")
    if samples.ndim == 4 and samples.shape[3] == 1:  # states as column vectors
        samples = samples[..., 0]
    if not 1 <= samples.ndim <= 3:
        raise InputError(f"found shape {samples.shape}; expected (runs,), (runs, d) or (runs, K, d); or use per_run")
    if samples.shape[0] != runs:
        sizes = " x ".join(map(str, samples.shape))
        raise InputError(
            f"found an array of shape {sizes}: {samples.shape[0]} runs; expected the {runs} that were requested; "
            "return one row per run"
        )
    steps = samples.shape[1] if samples.ndim == 3 else 1
    dimension = samples.shape[-1] if samples.ndim > 1 else 1
    if steps * dimension == 0:
        raise InputError(f"found shape {samples.shape}; expected at least one number per run")
    if shape is not None and (steps, dimension) != shape:
        raise StructuredOutput(
            f"found outputs of {steps} x {dimension}; expected {shape[0]} x {shape[1]} as before; "
            "the shape of one output must not change"
        )
    return steps, dimension


def all_finite(samples: Array) -> Array:
    """Return, for a JAX array, a scalar on its device: whether all values are finite. Nothing waits for the result."""
    with enable_x64():  # always, so that one compilation serves all callers
        return _compiled_all_finite()(samples)


@functools.cache
def _compiled_all_finite() -> Callable[[Array], Array]:
    import jax

    return jax.jit(lambda samples: jax.numpy.isfinite(samples).all())


@dataclass(frozen=True)
class ErrorNorm:
    """The function that `rmse` or `frobenius_error` returns; a dataclass, so that it pickles."""

    truth: np.ndarray
    total: bool  # whether the squares are added over the steps instead of averaged

    def __call__(self, samples: Array) -> Array:
        steps, dimension = samples.shape[1:]
        if self.truth.size != steps * dimension:
            raise InputError(
                f"error: found a truth of shape {self.truth.shape}; expected ({steps}, {dimension}), the shape of one "
                "output"
            )
        squares = ((samples - self.truth.reshape(steps, dimension)) ** 2).sum(-1)
        return array_namespace(samples).sqrt(squares.sum(-1) if self.total else squares.mean(-1))


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
    return ErrorNorm(np.asarray(truth, float), total=False)


def frobenius_error(truth: ArrayLike) -> Callable[[Array], Array]:
    """Make an error function: the Frobenius norm of the whole error of each run, over all steps and coordinates.

    It is sqrt(K) times `rmse`. The errors that the source paper prints are of this size (docs/paper.md).

    Parameters
    ----------
    truth : array_like
        As for `rmse`.

    Returns
    -------
    callable
        A function from samples of shape (runs, K, d) to an array of shape (runs,).

    Examples
    --------
    >>> import numpy as np
    >>> import dpverify as dpv
    >>> dpv.frobenius_error([[0.0, 0.0], [0.0, 0.0]])(np.array([[[3.0, 4.0], [0.0, 0.0]]])).tolist()
    [5.0]
    """
    return ErrorNorm(np.asarray(truth, float), total=True)

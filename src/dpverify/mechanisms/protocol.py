"""The interface of a mechanism: a callable that maps a dataset to random outputs.

A mechanism is called as `mechanism(data, runs, rng)` and returns one output per run, with the runs on the first axis.
It may carry optional attributes (`name`, `block`, `seeded`, `log_density`, `log_lipschitz`, `remarks`, `finish`,
`output_names`, `output_units`, `times`). The functions of this module read these attributes, tell how a function can be
called, and protect the dataset that a mechanism receives.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from dpverify.errors import InputError

T = TypeVar("T")


class Mechanism(Protocol):
    """A randomised mapping from a dataset to an output.

    Any callable with this signature is a mechanism; no base class is needed. `per_run`, `jax_run`, `factory` and
    `program` make mechanisms from functions of other signatures, from classes that cannot be pickled, and from
    executables.

    All statements of a report rest on these conditions, which only the author of a mechanism can ensure:

    * The rows of an output are independent and identically distributed runs of the same randomised algorithm.
    * The runs of the two datasets are independent of each other.
    * All noise comes from `rng`, and no call changes the dataset or the behaviour of later calls.
    * A mechanism that is used with a thread pool is thread-safe. Several threads call the same object at once.

    Parameters
    ----------
    data : object
        One of the two datasets, as it was passed to `verify`. A NumPy array arrives as a read-only view.
    runs : int
        The number of runs. It is the same in every call of one verification, except for the first calls, which have a
        few runs and show the speed of the mechanism.
    rng : numpy.random.Generator
        The generator of this block of runs. Every block has its own.

    Returns
    -------
    array_like
        A NumPy or JAX array of shape (runs,), (runs, d) or (runs, K, d): K steps of d real numbers per run.

    Attributes
    ----------
    name : str, optional
        The name in reports. Without it the name of the function or of the class is used.
    block : int, optional
        The number of runs per call, unless `Settings.block` is given.
    seeded : bool, optional
        False if the noise cannot be seeded by `rng`, for example noise from hardware. The report then states that its
        numbers cannot be reproduced. The default is True. The wrappers have a keyword for it: `per_run(f,
        seeded=False)`.
    log_density : callable, optional
        `log_density(data, samples)` returns the logarithm of the density of the output for this dataset, at samples of
        shape (runs, K, d), one number per run (argument `log_density` of `verify`). With one number per run and step it
        is that of every prefix, which `privacy_over_time` uses.
    log_lipschitz : callable, optional
        `log_lipschitz(data)` returns a Lipschitz constant of the log-density of the output for this dataset, with
        respect to the Euclidean norm of the flattened output.
    remarks : callable, optional
        `remarks(data)` returns a tuple of sentences for the notes of the report.
    finish : callable, optional
        `finish()` is called once when a verification ends, also after an error. It releases processes or connections.
    output_names, output_units : sequence of str, optional
        The name and the unit of each coordinate of a step, for example ("position", "speed") and ("m", "m/s"). Reports
        use them.
    times : sequence of float, optional
        The times of the steps. Reports name a step by its time.

    Examples
    --------
    >>> import numpy as np
    >>> import dpverify as dpv
    >>> def laplace(data, runs, rng):
    ...     return data.sum() + rng.laplace(scale=1.0, size=(runs, 1))
    >>> laplace.block = 512
    >>> report = dpv.verify(laplace, np.array([0.0]), np.array([1.0]), 0.5, select_runs=2000, test_runs=4000)
    >>> report.refuted, report.settings.block
    (True, 512)
    """

    def __call__(self, data: Any, runs: int, rng: np.random.Generator, /) -> ArrayLike: ...


OPTIONAL_ATTRIBUTES = (
    "is_compiled",
    "block",
    "seeded",
    "log_lipschitz",
    "log_density",
    "remarks",
    "finish",
    "output_names",
    "output_units",
    "times",
)


def mechanism_name(mechanism: object) -> str:
    """Return the name of a mechanism: its attribute `name`, its function name, or the name of its class.

    Examples
    --------
    >>> import functools
    >>> mechanism_name(functools.partial(sum, start=1))
    'sum'
    """
    while isinstance(mechanism, functools.partial):
        mechanism = mechanism.func
    name = getattr(mechanism, "name", None) or getattr(mechanism, "__name__", None)
    return str(name) if name else type(mechanism).__name__


def wrapped_name(function: object) -> str:
    """Return the name of a wrapped function; one that is defined in another function has the other's name before it.

    Examples
    --------
    >>> def tracker():
    ...     def estimate(data, rng):
    ...         return data
    ...     return estimate
    >>> wrapped_name(tracker())
    'tracker.estimate'
    """
    qualified = getattr(function, "__qualname__", "")
    if getattr(function, "name", None) or "<locals>" not in qualified:
        return mechanism_name(function)
    return qualified.replace(".<locals>", "")


def is_seeded(mechanism: object) -> bool:
    """Return whether the generator that is passed to the mechanism determines its output."""
    return bool(getattr(mechanism, "seeded", True))


def inherited_attribute(attribute: str, wrapped: Callable[[], object]) -> Any:
    """Return an optional attribute of the wrapped object; every other name raises an AttributeError.

    The name is checked before `wrapped` is called, because an object that is being unpickled has no fields yet.
    """
    if attribute not in OPTIONAL_ATTRIBUTES:
        raise AttributeError(attribute)
    return getattr(wrapped(), attribute)


def has_fixed_block(mechanism: object) -> bool:
    """Return whether the mechanism must always be called with the same number of runs.

    This holds for a mechanism with its own block size, and for one that JAX compiles for each number of runs, where a
    call with another number is expensive.
    """
    return getattr(mechanism, "block", None) is not None or getattr(mechanism, "is_compiled", False)


def check_callable(mechanism: object) -> None:
    """Raise an InputError if a mechanism cannot be called."""
    if not callable(mechanism):
        raise InputError(f"mechanism: found {type(mechanism).__name__}; expected a callable (data, runs, rng) -> array")


def positional_names(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of the positional parameters of a function; none if they are not known.

    Examples
    --------
    >>> positional_names(lambda data, runs, rng: data)
    ('data', 'runs', 'rng')
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except Exception:  # the signature is not known
        return ()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(parameter.name for parameter in parameters if parameter.kind in kinds)


def accepts_arguments(function: Callable[..., Any], number: int) -> bool:
    """Return whether a function can be called with so many positional arguments; True if this is not known."""
    try:
        inspect.signature(function).bind(*[None] * number)
    except TypeError:
        return False
    except Exception:  # the signature is not known
        pass
    return True

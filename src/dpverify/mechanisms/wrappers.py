"""Wrappers that turn other callables into mechanisms: one run per call, JAX functions, and factories.

Every wrapper is a frozen dataclass, so it pickles if the wrapped function pickles. A wrapper has the optional
attributes (`block`, `seeded`, ...) of the function that it wraps. The keyword `seeded=False` of a wrapper marks a
mechanism that cannot be seeded.
"""

from __future__ import annotations

import copy
import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dpverify.errors import InputError
from dpverify.mechanisms.outputs import is_table
from dpverify.mechanisms.protocol import (
    Mechanism,
    accepts_arguments,
    inherited_attribute,
    is_seeded,
    mechanism_name,
    wrapped_name,
)
from dpverify.util.arrays import Array, enable_x64


@dataclass(frozen=True)
class _Wrapped:
    """What the wrappers of a function of one run have in common: the name and the attributes of the function."""

    function: Callable[..., Any]
    can_be_seeded: bool = True

    @property
    def name(self) -> str:
        return wrapped_name(self.function)

    @property
    def seeded(self) -> bool:
        return self.can_be_seeded and is_seeded(self.function)

    def __getattr__(self, attribute: str) -> Any:
        return inherited_attribute(attribute, lambda: self.function)


class PerRun(_Wrapped):
    """A mechanism that calls `function(data, rng)` once per run."""

    def __call__(self, data: object, runs: int, rng: np.random.Generator) -> np.ndarray | list[Any]:
        # Each output is copied, because the function may return the same buffer every time.
        outputs = [_copied(self.function(data, rng)) for _ in range(runs)]
        shapes = {output.shape if isinstance(output, np.ndarray) else None for output in outputs}
        return outputs if None in shapes or len(shapes) > 1 else np.stack(outputs)


def _copied(output: Any) -> Any:
    """Return a copy of one output: an array if it consists of numbers only."""
    if is_table(output):
        return copy.copy(output)
    try:
        array = np.array(output)
    except ValueError:  # rows of different lengths
        return copy.copy(output)
    return array if array.dtype.kind in "biuf" else copy.copy(output)


def per_run(function: Callable[[Any, np.random.Generator], Any], *, seeded: bool = True) -> Mechanism:
    """Make a mechanism from a function that computes one output.

    Parameters
    ----------
    function : callable
        `function(data, rng)` returns one output: a number, an array of shape (d,) or (K, d), or any other Python object
        (a dictionary, a text, a list of any length, a table).
    seeded : bool, default True
        False if `rng` does not determine the output, for example with noise from hardware.

    Returns
    -------
    Mechanism
        A mechanism that calls the function once per run. It has the function's optional attributes. A function that is
        defined in another one has both names in reports, for example `tracker.estimate`.

    Examples
    --------
    >>> import numpy as np
    >>> import dpverify as dpv
    >>> def noisy_mean(data, rng):
    ...     return data.mean() + rng.laplace(scale=0.5)
    >>> mechanism = dpv.per_run(noisy_mean)
    >>> mechanism(np.array([1.0, 3.0]), 4, np.random.default_rng(0)).shape
    (4,)
    """
    if callable(function) and accepts_arguments(function, 3) and not accepts_arguments(function, 2):
        raise InputError(
            "per_run: found a function with three parameters; expected function(data, rng); a function (data, runs, "
            "rng) is a mechanism already, without per_run"
        )
    if callable(function) and accepts_arguments(function, 1) and not accepts_arguments(function, 2):
        raise InputError(
            "per_run: found a function of the data alone, which has no noise; expected function(data, rng); "
            "dpverify.adapters.perturbed(function, scale) adds noise to its result"
        )
    return PerRun(function, bool(seeded))


def jax_key(rng: np.random.Generator) -> Array:
    """Draw a JAX random key from a NumPy generator, so that the generator of a block also seeds JAX code.

    Parameters
    ----------
    rng : numpy.random.Generator
        The generator that the mechanism received. One 63-bit integer is drawn from it.

    Returns
    -------
    jax.Array
        A typed key, as `jax.random.key` makes it.

    Examples
    --------
    >>> import jax
    >>> import numpy as np
    >>> import dpverify as dpv
    >>> key = dpv.jax_key(np.random.default_rng(0))
    >>> jax.random.normal(key, (3,)).shape
    (3,)
    """
    import jax

    with enable_x64():  # without 64-bit mode JAX silently drops the upper half of the seed
        return jax.random.key(int(rng.integers(1 << 63)))  # type: ignore[return-value]  # an array of JAX


@functools.cache
def _compiled_block(function: Callable[[Any, Any], Any], runs: int) -> Callable[[Any, Any], Any]:
    """Return the compiled function of (data, key) that computes all runs of a block."""
    import jax

    def block(data: Any, key: Any) -> Any:
        return jax.vmap(lambda run_key: function(data, run_key))(jax.random.split(key, runs))

    return jax.jit(block)


class JaxRun(_Wrapped):
    """A mechanism that maps `function(data, key)` over the keys of all runs, compiled and in 64-bit mode."""

    is_compiled: ClassVar[bool] = True  # for each number of runs

    def __call__(self, data: object, runs: int, rng: np.random.Generator) -> Array:
        with enable_x64():
            return _compiled_block(self.function, runs)(data, jax_key(rng))


def jax_run(function: Callable[[Any, Any], Any], *, seeded: bool = True) -> Mechanism:
    """Make a mechanism from a JAX function that computes one output.

    Parameters
    ----------
    function : callable
        `function(data, key)` returns one output as a JAX array. It is vectorised over the runs with `jax.vmap`,
        compiled with `jax.jit`, and computed in 64-bit mode.
    seeded : bool, default True
        False if `key` does not determine the output.

    Returns
    -------
    Mechanism
        A mechanism that returns a JAX array. It has the function's optional attributes.

    Examples
    --------
    >>> import jax
    >>> import numpy as np
    >>> import dpverify as dpv
    >>> def noisy_sum(data, key):
    ...     return data.sum() + jax.random.laplace(key, (1,))
    >>> output = dpv.jax_run(noisy_sum)(np.array([1.0, 2.0]), 5, np.random.default_rng(0))
    >>> output.shape, str(output.dtype)
    ((5, 1), 'float64')
    """
    return JaxRun(function, bool(seeded))


_factory_lock = threading.Lock()


@functools.cache
def _made(make: Callable[[], Mechanism]) -> Mechanism:
    """Call `make` once per process."""
    return make()


@dataclass(frozen=True)
class Factory:
    """A mechanism that is built by `make()` at its first use in each process."""

    make: Callable[[], Mechanism]
    can_be_seeded: bool = True

    def mechanism(self) -> Mechanism:
        """Return the mechanism of this process."""
        with _factory_lock:  # two threads must not build two mechanisms
            return _made(self.make)

    @property
    def name(self) -> str:
        return mechanism_name(self.make)

    @property
    def seeded(self) -> bool:
        return self.can_be_seeded and is_seeded(self.mechanism())

    def __getattr__(self, attribute: str) -> Any:
        return inherited_attribute(attribute, self.mechanism)

    def __call__(self, data: object, runs: int, rng: np.random.Generator) -> ArrayLike:
        return self.mechanism()(data, runs, rng)


def factory(make: Callable[[], Mechanism], *, seeded: bool = True) -> Mechanism:
    """Make a mechanism that is built once in each process.

    Use it for a mechanism that cannot be pickled, for example one that holds a connection or a compiled solver, when
    runs are drawn in several processes. Only `make` is pickled.

    Parameters
    ----------
    make : callable
        `make()` returns a mechanism. It must be defined at the top level of a module, so that it can be pickled.
    seeded : bool, default True
        False if the generator that is passed to the mechanism does not determine its output.

    Returns
    -------
    Mechanism
        A mechanism with the optional attributes of the mechanism that `make` returns. Its name is that of `make`.

    Examples
    --------
    >>> import numpy as np
    >>> import dpverify as dpv
    >>> def make_laplace():
    ...     scale = 0.5  # in practice: load a model, open a connection
    ...     return lambda data, runs, rng: data + rng.laplace(scale=scale, size=runs)
    >>> mechanism = dpv.factory(make_laplace)
    >>> mechanism(1.0, 3, np.random.default_rng(0)).shape
    (3,)
    """
    return Factory(make, bool(seeded))

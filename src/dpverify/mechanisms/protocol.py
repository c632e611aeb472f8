"""What is verified: any callable from (data, runs, rng) to an array with the runs on its first axis.

Wrappers turn other shapes of function into one (`per_run`, `jax_run`, `factory`). Samples are never trusted:
`admit` checks shape, dtype and finiteness once, where they enter.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from dpverify.errors import InputError
from dpverify.util.arrays import array_namespace, enable_x64, is_jax, on_accelerator


class Mechanism(Protocol):
    """A randomised mapping. It may also have the attributes `name`, `block`, `seeded`, `log_lipschitz`, `remarks`
    and `finish`.

    `remarks(data)` is a tuple of sentences for the report: what the reader should know of this mechanism on this data.
    `finish()` is called when a verification is over: for what holds a process or a connection.
    """

    def __call__(self, data: Any, runs: int, rng: np.random.Generator, /) -> Any: ...


def mechanism_name(mechanism: Any) -> str:
    named = getattr(mechanism, "name", None) or getattr(mechanism, "__name__", None)
    return str(named) if named else type(mechanism).__name__


def is_seeded(mechanism: Any) -> bool:
    return bool(getattr(mechanism, "seeded", True))


OPTIONAL_ATTRIBUTES = ("block", "seeded", "log_lipschitz", "remarks", "finish")


def inherited_attribute(attribute: str, inner: Callable[[], Any]) -> Any:
    """What a wrapper is asked for and does not have: the optional attributes are those of what it wraps."""
    if attribute not in OPTIONAL_ATTRIBUTES:  # first: an object that is being unpickled has nothing inside yet
        raise AttributeError(attribute)
    return getattr(inner(), attribute)


@dataclass(frozen=True)
class PerRun:
    function: Callable[[Any, np.random.Generator], Any]

    @property
    def name(self) -> str:
        return mechanism_name(self.function)

    def __getattr__(self, attribute: str) -> Any:
        return inherited_attribute(attribute, lambda: self.function)

    def __call__(self, data: Any, runs: int, rng: np.random.Generator) -> np.ndarray:
        return np.stack([np.array(self.function(data, rng)) for _ in range(runs)])  # copies: a function may reuse one


def per_run(function: Callable[[Any, np.random.Generator], Any]) -> Mechanism:
    """A mechanism from `function(data, rng) -> one estimate`."""
    return PerRun(function)


def jax_key(rng: np.random.Generator) -> Any:
    """A JAX key drawn from a NumPy generator, so that a block's generator seeds JAX code too."""
    import jax

    with enable_x64():  # outside 64 bit the upper half of a seed is dropped without a word
        return jax.random.key(int(rng.integers(1 << 63)))


@functools.cache
def _batched(function: Callable[[Any, Any], Any], runs: int) -> Callable[[Any, Any], Any]:
    import jax

    def block(data: Any, key: Any) -> Any:
        return jax.vmap(lambda k: function(data, k))(jax.random.split(key, runs))

    return jax.jit(block)


@dataclass(frozen=True)
class JaxRun:
    function: Callable[[Any, Any], Any]

    @property
    def name(self) -> str:
        return mechanism_name(self.function)

    def __getattr__(self, attribute: str) -> Any:
        return inherited_attribute(attribute, lambda: self.function)

    def __call__(self, data: Any, runs: int, rng: np.random.Generator) -> Any:
        with enable_x64():
            return _batched(self.function, runs)(data, jax_key(rng))


def jax_run(function: Callable[[Any, Any], Any]) -> Mechanism:
    """A mechanism from `function(data, key) -> one estimate` written with JAX: vmapped, jitted, in 64 bit."""
    return JaxRun(function)


_making = threading.Lock()


@functools.cache
def _made(make: Callable[[], Mechanism]) -> Any:
    return make()


@dataclass(frozen=True)
class Factory:
    make: Callable[[], Mechanism]

    def mechanism(self) -> Any:
        with _making:  # two threads must not build two
            return _made(self.make)

    @property
    def name(self) -> str:
        return mechanism_name(self.make)

    def __getattr__(self, attribute: str) -> Any:
        return inherited_attribute(attribute, self.mechanism)

    def __call__(self, data: Any, runs: int, rng: np.random.Generator) -> Any:
        return self.mechanism()(data, runs, rng)


def factory(make: Callable[[], Mechanism]) -> Mechanism:
    """A mechanism that `make()` builds once in each process: for what does not pickle."""
    return Factory(make)


def validate_output(answer: Any, runs: int, shape: tuple[int, int] | None = None, nonfinite: str = "error") -> Any:
    """The door: an answer of the mechanism as a float64 array (runs, K, d), or an InputError in one line.

    `shape` is the (K, d) of earlier answers, None for the first. `nonfinite` is "error", or else such runs may pass.
    """
    if not on_accelerator(answer):  # an array of JAX on the processor is read where it lies
        try:
            answer = np.asarray(answer)
        except ValueError as ragged:
            raise InputError(
                "found rows of different lengths; expected one array; return equal shapes a run"
            ) from ragged
    if answer.dtype.kind not in "fiub":
        raise InputError(f"found dtype {answer.dtype}; expected real numbers or integers; convert before returning")
    if not 1 <= answer.ndim <= 3:
        raise InputError(f"found shape {answer.shape}; expected (runs,), (runs, d) or (runs, K, d); or use per_run")
    if answer.shape[0] != runs:
        shown = f"an array of shape {' x '.join(map(str, answer.shape))}: {answer.shape[0]} runs"
        raise InputError(f"found {shown}, expected the {runs} that were asked for; return one row a run")
    steps = answer.shape[1] if answer.ndim == 3 else 1
    dimension = answer.shape[-1] if answer.ndim > 1 else 1
    if steps * dimension == 0:
        raise InputError(f"found shape {answer.shape}; expected at least one number a run")
    if shape is not None and (steps, dimension) != shape:
        raise InputError(
            f"found outputs of {steps} x {dimension}, expected {shape[0]} x {shape[1]} as before; "
            "the shape of one output must not change"
        )
    with enable_x64(answer):
        samples = answer if answer.dtype == np.float64 else answer.astype(np.float64)
        samples = samples if samples.ndim == 3 else samples.reshape(runs, steps, dimension)
        if nonfinite == "error" and not bool(all_finite(samples)):
            bad = int((~array_namespace(samples).isfinite(samples)).any(axis=(1, 2)).sum())
            raise InputError(
                f"found NaN or infinity in {bad} of {runs} runs; expected finite estimates; "
                'mend the mechanism, or let them be an event: nonfinite="event" (--set nonfinite=event)'
            )
    return samples


def all_finite(samples: Any) -> Any:
    """True or False; for samples on a device a scalar there, which nothing has waited for."""
    return _jitted_all_finite()(samples) if is_jax(samples) else np.isfinite(samples).all()


@functools.cache
def _jitted_all_finite() -> Any:
    import jax

    return jax.jit(lambda x: jax.numpy.isfinite(x).all())


def read_only_view(data: Any) -> Any:
    """Arrays reach the mechanism as read-only views, so that one run can't change the next one's data."""
    if isinstance(data, np.ndarray):
        data = data.view()
        data.flags.writeable = False
    return data

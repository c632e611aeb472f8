"""What the blocks of one side come to: sums of counts, or the samples themselves.

Either is made of arrays, which is how it travels and how it is kept. Sums are exact, floats included, so that the order
in which blocks are finished never matters.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple, Protocol

import numpy as np

from dpverify.errors import InputError
from dpverify.sampling.counts import (
    Counts,
    DeviceTables,
    RunningSum,
    count_cells,
    flatten_result,
    is_dense,
    rebuild_result,
    type_hints,
)
from dpverify.util.arrays import array_namespace, enable_x64, is_jax


class Accumulator(Protocol):
    """What the blocks of one side come to."""

    def add(self, block: int, samples: Any, /) -> None: ...

    def arrays(self) -> list[np.ndarray]:
        """All of it as arrays: what travels, and what is kept."""
        ...

    def include(self, arrays: list[np.ndarray], /) -> None:
        """Another total of other blocks."""
        ...


class SampleBuffer:
    """The samples themselves, by block, copied: a mechanism may answer with views of one buffer."""

    def __init__(self) -> None:
        self._parts: dict[int, np.ndarray] = {}

    def add(self, block: int, samples: Any) -> None:
        self._parts[block] = np.array(samples)

    def arrays(self) -> list[np.ndarray]:
        """The first block of each part, its number of runs, and all runs."""
        if not self._parts:
            return []
        blocks = sorted(self._parts)
        lengths = [len(self._parts[block]) for block in blocks]
        return [np.array(blocks), np.array(lengths), np.concatenate([self._parts[block] for block in blocks])]

    def include(self, arrays: list[np.ndarray]) -> None:
        if arrays:
            blocks, lengths, runs = arrays
            parts = np.split(runs, np.cumsum(lengths)[:-1])
            self._parts.update(zip(blocks.tolist(), parts, strict=True))


@dataclass(frozen=True)
class Rmse:
    truth: np.ndarray

    def __call__(self, samples: Any) -> Any:
        if self.truth.size != samples[0].size:
            steps, d = samples.shape[1:]
            raise InputError(
                f"error: found a truth of shape {self.truth.shape}; expected ({steps}, {d}) as the outputs have"
            )
        difference = samples - self.truth.reshape(samples.shape[1:])
        return array_namespace(samples).sqrt((difference**2).sum(-1).mean(-1))


def rmse(truth: Any) -> Callable[[Any], Any]:
    """For `error=`: a run's root of the mean, over the steps, of the squared distance to the truth (K, d).

    Outputs of shape (runs, d) are one step of d dimensions; a scalar filter over K steps answers (runs, K, 1).
    """
    return Rmse(np.asarray(truth, float))


class Statistic(Protocol):
    """Something that turns a block into a part that can be merged: `Counts`, `Extremes`, an array, or tuples of these.

    Arrays are added up. The annotation of `measure` must say what it returns: what lies in a folder is rebuilt by it.
    """

    def measure(self, samples: Any, /) -> Any: ...


class CellCounter(NamedTuple):
    """Counts the runs in each cell of a partition."""

    partition: Any

    def measure(self, samples: Any) -> Counts:
        return count_cells(self.partition, samples)


@dataclass(frozen=True)
class Statistics:
    """What is measured of every block: a part for each meter, and the error of every run."""

    meters: tuple[Statistic, ...]
    error: Callable[[Any], Any] | None = None


class CountAccumulator:
    """The parts of all meters summed, and the sums of the error and its square.

    The error's sums are fractions: what was summed within a block as floats is added up exactly. Of runs that lie on a
    device, tables of counts are summed there and errors wait there, until someone asks.
    """

    def __init__(self, measure: Statistics):
        self._measure = measure
        self._adders = [RunningSum() for _ in measure.meters]
        self._error = [Fraction(0), Fraction(0)]
        self._empty = True
        cells = ((i, m.partition) for i, m in enumerate(measure.meters) if isinstance(m, CellCounter))
        dense = {i: partition for i, partition in cells if is_dense(partition)}
        self._dense, self._tables = tuple(dense), DeviceTables(tuple(dense.values()))
        self._waiting: list[Any] = []  # sums of errors, on a device

    def add(self, block: int, samples: Any) -> None:
        self._empty = False
        there = is_jax(samples)
        if there and self._dense:
            self._tables.add(samples)
        for i, (adder, meter) in enumerate(zip(self._adders, self._measure.meters, strict=True)):
            if not (there and i in self._dense):
                adder.add(meter.measure(samples))
        if self._measure.error is not None:
            with enable_x64(samples):
                self._add_errors(self._measure.error(samples), samples)

    def _add_errors(self, errors: Any, samples: Any) -> None:
        if not is_jax(errors):
            errors = np.asarray(errors, float)
        if errors.shape != samples.shape[:1]:
            raise InputError(f"error: found shape {errors.shape}; expected one number a run, {samples.shape[:1]}")
        self._waiting.append((errors.sum(), (errors**2).sum()))  # a sum is not finite where an error is not
        if not is_jax(errors):
            self._settle()

    def _settle(self) -> None:
        """What waits on a device comes to the host."""
        for sums in self._waiting:
            numbers = [float(one) for one in sums]
            if not all(map(math.isfinite, numbers)):
                raise InputError(
                    "error: found NaN or infinity; expected one finite number a run; mind non-finite estimates"
                )
            self._add_error(*numbers)
        self._waiting = []
        for i, counts in zip(self._dense, self._tables.read(), strict=False):
            self._adders[i].add(counts)

    def _add_error(self, *sums: Any) -> None:
        self._error = [total + Fraction(one) for total, one in zip(self._error, sums, strict=True)]

    def arrays(self) -> list[np.ndarray]:
        if self._empty:
            return []
        parts = self.parts
        errors = [] if self._measure.error is None else [np.array([str(total) for total in self._error])]
        return errors + flatten_result(parts)

    def include(self, arrays: list[np.ndarray]) -> None:
        if not arrays:
            return
        self._empty = False
        rest = iter(arrays)
        if self._measure.error is not None:
            self._add_error(*next(rest).tolist())
        for adder, meter in zip(self._adders, self._measure.meters, strict=True):
            adder.add(rebuild_result(type_hints(type(meter).measure)["return"], rest))

    @property
    def parts(self) -> tuple[Any, ...]:
        self._settle()
        return tuple(adder.sum() for adder in self._adders)

    def error(self, runs: int) -> tuple[float, float]:
        """The mean error, and its standard error."""
        mean, squares = (float(total) / runs for total in self._error)
        return mean, math.sqrt(max(squares - mean**2, 0.0) / max(runs - 1, 1))

"""Runs come in blocks; every block has its own generator, so it can be drawn anywhere, in any order, or again.

Block b of a stage and side is drawn with `SeedSequence(seed, spawn_key=(stage, side, b))`. The block size is a fixed
function of the settings, never of time, workers or load; timing only decides how many blocks travel in one task.
What leaves a worker is the answer of a `Reduce`: counts, or the few pilot runs themselves.
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import pickle
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from dpverify.arrays import Adder, Counts, count, is_jax, namespace, wide
from dpverify.errors import InputError, MechanismError, Stopped
from dpverify.mechanism import Mechanism, admit
from dpverify.progress import Progress

STAGES = ("pilot", "train", "cut", "decide", "test")  # the position is part of every seed: append, never reorder
SIDES = ("first", "second")
LARGEST = 64 << 20  # bytes of one block's output
TASK_SECONDS = 1.0  # about so long is one task: short enough to lose, long enough to pay for its way

Answer = TypeVar("Answer")
Reduce = Callable[[Any], Answer]


class Source(NamedTuple):
    """Everything a worker needs to draw any block."""

    mechanism: Mechanism
    data: tuple[Any, Any]
    seed: int
    block: int
    nonfinite: str = "error"
    shape: tuple[int, int] | None = None


def default_block(test_runs: int) -> int:
    return 1 << min(max(int(math.log2(max(test_runs, 1) / 64)) if test_runs >= 64 else 0, 6), 16)


def generator(seed: int, stage: str, side: int, block: int) -> np.random.Generator:
    key = (STAGES.index(stage), side, block)
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


def draw(source: Source, stage: str, side: int, block: int) -> Any:
    """One whole block through the door, (source.block, K, d)."""
    try:
        answer = source.mechanism(source.data[side], source.block, generator(source.seed, stage, side, block))
        return admit(answer, source.block, source.shape, source.nonfinite)
    except MechanismError:
        raise
    except (Exception, SystemExit) as problem:  # an exit inside a mechanism is a failure of it, not our end
        kind = (
            "" if isinstance(problem, InputError) else f"{type(problem).__name__}: "
        )  # the door's own lines need none
        where = f"in the {stage} runs of the {SIDES[side]} data set, block {block}"
        raise MechanismError(f"the mechanism failed {where}: {kind}{problem}", stage, side, block) from problem


def _draw_blocks(source: Source, stage: str, runs: int, reduce: Reduce[Answer], blocks: list[tuple[int, int]]):
    """One task: its seconds, and for each block (side, block, answer)."""
    start = time.perf_counter()
    answers = []
    for side, block in blocks:
        samples = draw(source, stage, side, block)
        left = runs - block * source.block
        answers.append((side, block, reduce(samples if left >= source.block else samples[:left])))
    return time.perf_counter() - start, answers


@dataclass(frozen=True)
class Workers:
    """An executor and how many workers it has; (None, 1) draws here, in order."""

    executor: Executor | None = None
    number: int = 1


@contextlib.contextmanager
def open_workers(executor: int | Executor | None) -> Iterator[Workers]:
    """A number becomes that many spawned processes, closed at the end; an executor is used and left open."""
    if executor is None:
        yield Workers()
    elif isinstance(executor, Executor):
        yield Workers(executor, int(getattr(executor, "_max_workers", 0) or 4))
    elif isinstance(executor, int) and not isinstance(executor, bool) and executor >= 1:
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(executor, mp_context=spawn) as pool:
            yield Workers(pool, executor)
    else:
        raise InputError(
            f"executor: found {executor!r}; expected None, a number of processes, or a concurrent.futures.Executor"
        )


def check_pickles(source: Source, workers: Workers) -> None:
    """Before work goes to another process: one line now instead of a broken pool later."""
    if workers.executor is None or isinstance(workers.executor, ThreadPoolExecutor):
        return
    if type(workers.executor).__module__.startswith("distributed"):
        return  # Dask brings cloudpickle, which takes lambdas and closures too
    try:
        pickle.dumps(source)
    except Exception as problem:
        raise InputError(
            f"the mechanism or its data can't be sent to another process ({problem}); expected something that pickles; "
            "define it at the top of a module, or wrap what builds it: dpverify.factory(make)"
        ) from problem


def run_stage(
    source: Source,
    stage: str,
    runs: int,
    reduce: Reduce[Answer],
    workers: Workers,
    progress: Progress,
    sides: tuple[int, ...] = (0, 1),
    known: Collection[tuple[int, int]] = (),
) -> Iterator[tuple[int, int, Answer]]:
    """(side, block, answer) for every block of a stage that is not known yet, in the order they are finished."""
    blocks = ((side, block) for block in range(-(-runs // source.block)) for side in sides)
    todo = deque(key for key in blocks if key not in known)
    progress.stage(stage)
    pending: set[Future[Any]] = set()
    batch = 1
    done = 0
    try:
        while todo or pending:
            if workers.executor is None:
                finished = [_draw_blocks(source, stage, runs, reduce, [todo.popleft()])]
            else:
                while todo and len(pending) < 2 * workers.number:
                    blocks = [todo.popleft() for _ in range(min(batch, len(todo)))]
                    pending.add(workers.executor.submit(_draw_blocks, source, stage, runs, reduce, blocks))
                ready, pending = wait(pending, return_when=FIRST_COMPLETED)
                finished = [future.result() for future in ready]
            for seconds, answers in finished:
                batch = max(1, round(len(answers) * TASK_SECONDS / max(seconds, 1e-6)))
                for answer in answers:
                    yield answer
                    size = min(source.block, runs - answer[1] * source.block)
                    done += size
                    progress.advance(size)
    except KeyboardInterrupt:
        raise Stopped(f"stopped by the keyboard after {done} {stage} runs; nothing was kept", done=done) from None
    except BrokenExecutor as problem:
        raise Stopped(
            f"the workers died after {done} {stage} runs ({problem}); expected processes that import the mechanism: "
            'in a script, put the call under if __name__ == "__main__":',
            done=done,
        ) from problem
    finally:
        for future in pending:
            future.cancel()


# What is made of a block, where it was drawn.


def keep(samples: Any) -> np.ndarray:
    """The samples themselves, copied: a mechanism may answer with views of one buffer."""
    return np.array(samples)


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
        return namespace(samples).sqrt((difference**2).sum(-1).mean(-1))


def rmse(truth: Any) -> Callable[[Any], Any]:
    """For `error=`: a run's root of the mean, over the steps, of the squared distance to the truth (K, d).

    Outputs of shape (runs, d) are one step of d dimensions; a scalar filter over K steps answers (runs, K, 1).
    """
    return Rmse(np.asarray(truth, float))


class Meter(Protocol):
    """Something that turns a block into a part that can be merged: counts, a table, extremes."""

    def measure(self, samples: Any, /) -> Any: ...


class Cells(NamedTuple):
    """Counts the runs in each cell of a partition."""

    partition: Any

    def measure(self, samples: Any) -> Counts:
        return count(self.partition, samples, self.partition.size)


class Tally(NamedTuple):
    """What a block comes to: a part for each meter, and the sums of the error and its square."""

    parts: tuple[Any, ...]
    error: tuple[float, float]


@dataclass(frozen=True)
class Measure:
    meters: tuple[Meter, ...]
    error: Callable[[Any], Any] | None = None

    def __call__(self, samples: Any) -> Tally:
        parts = tuple(meter.measure(samples) for meter in self.meters)
        if self.error is None:
            return Tally(parts, (0.0, 0.0))
        with wide(samples):
            errors = np.asarray(self.error(samples), float)
        if errors.shape != samples.shape[:1]:
            raise InputError(f"error: found shape {errors.shape}; expected one number a run, {samples.shape[:1]}")
        if not np.isfinite(errors).all():
            raise InputError(
                "error: found NaN or infinity; expected one finite number a run; mind non-finite estimates"
            )
        return Tally(parts, (float(errors.sum()), float((errors**2).sum())))


def probe(source: Source) -> tuple[Source, dict[tuple[int, int], np.ndarray], str]:
    """The first pilot block, drawn here, tells the shape of an output and the device.

    The block is halved until its output is at most 64 MB; otherwise the runs that were drawn are kept for the pilot.
    """
    samples = draw(source, "pilot", 0, 0)
    device = str(next(iter(samples.devices()))) if is_jax(samples) else "cpu"
    block = source.block
    while block > 1 and block * samples[0].nbytes > LARGEST:
        block //= 2
    known = {(0, 0): keep(samples)} if block == source.block else {}
    return source._replace(block=block, shape=(samples.shape[1], samples.shape[2])), known, device


def collect_samples(
    source: Source,
    stage: str,
    runs: int,
    workers: Workers,
    progress: Progress,
    sides: tuple[int, ...] = (0, 1),
    known: dict[tuple[int, int], np.ndarray] | None = None,
) -> list[np.ndarray]:
    """The runs of each side asked for, in the order of their blocks; `known` blocks are not drawn again."""
    found = dict(known or {})
    for side, block, samples in run_stage(source, stage, runs, keep, workers, progress, sides, set(found)):
        found[side, block] = samples
    return [np.concatenate([found[key] for key in sorted(found) if key[0] == side])[:runs] for side in sides]


class Tallies(NamedTuple):
    """A stage summed: for each side a part for each meter; the mean error of each side and its standard error."""

    parts: tuple[tuple[Any, ...], tuple[Any, ...]]
    error: tuple[tuple[float, float], tuple[float, float]] | None


def collect(
    source: Source,
    stage: str,
    runs: int,
    measure: Measure,
    workers: Workers,
    progress: Progress,
    known: Collection[tuple[int, int]] = (),
) -> Tallies:
    """The sums over the blocks of a stage, but for the `known` ones."""
    adders = tuple(tuple(Adder() for _ in measure.meters) for _ in SIDES)
    errors: tuple[dict[int, tuple[float, float]], ...] = ({}, {})
    for side, block, tally in run_stage(source, stage, runs, measure, workers, progress, known=known):
        for adder, part in zip(adders[side], tally.parts, strict=True):
            adder.add(part)
        errors[side][block] = tally.error
    parts = tuple(tuple(adder.sum() for adder in side) for side in adders)
    if measure.error is None:
        return Tallies(parts, None)  # type: ignore[arg-type]
    means = []
    for side in errors:
        # Floats are summed in the order of the blocks: the same sum whoever drew them, and when.
        total, squares = np.sum([side[block] for block in sorted(side)], axis=0)
        mean = total / runs
        spread = math.sqrt(max(squares / runs - mean**2, 0.0) / max(runs - 1, 1))
        means.append((float(mean), spread))
    return Tallies(parts, tuple(means))  # type: ignore[arg-type]

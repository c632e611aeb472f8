"""Runs come in blocks; every block has its own generator, so it can be drawn anywhere, in any order, or again.

Block b of a stage and side is drawn with `SeedSequence(seed, spawn_key=(stage, side, b))`. The block size is a fixed
function of the settings, never of time, workers or load; timing only decides how many blocks travel in one task.
What leaves a worker are the arrays of a `Total`: sums of counts, or the few pilot runs themselves. The same arrays are
what a folder keeps. Sums are exact, floats included, so nothing depends on the order in which blocks are finished.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import os
import time
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from dpverify.errors import FolderError, InputError, MechanismError, raised_at
from dpverify.mechanisms.protocol import Mechanism, all_finite, validate_output
from dpverify.sampling.accumulators import Accumulator, CountAccumulator, SampleBuffer, Statistics
from dpverify.sampling.accumulators import CellCounter as CellCounter
from dpverify.sampling.accumulators import Statistic as Statistic
from dpverify.sampling.accumulators import rmse as rmse
from dpverify.sampling.checkpoints import Record
from dpverify.sampling.executors import (
    BlockQueue,
    BlockRanges,
    WorkerPool,
    check_picklable,
    completed_ranges,
    merge_ranges,
)
from dpverify.util.arrays import is_jax, on_accelerator, retain_freed_memory
from dpverify.util.hashing import fingerprint
from dpverify.util.progress import Progress

STAGES = ("pilot", "train", "cut", "decide", "test")  # the position is part of every seed: append, never reorder
SIDES = ("first", "second")
MAX_BLOCK_BYTES = 64 << 20  # bytes of one block's output
PROBE_RUNS = 64  # runs a side that tell one mechanism from another


class SampleSource(NamedTuple):
    """Everything a worker needs to draw any block."""

    mechanism: Mechanism
    data: tuple[Any, Any]
    seed: int
    block: int
    nonfinite: str = "error"
    shape: tuple[int, int] | None = None
    device: str = "cpu"  # where JAX draws them


def default_block_size(test_runs: int) -> int:
    return 1 << min(max(int(math.log2(max(test_runs, 1) / 64)) if test_runs >= 64 else 0, 6), 16)


def block_generator(seed: int, stage: str, side: int, block: int) -> np.random.Generator:
    key = (STAGES.index(stage), side, block)
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


@contextlib.contextmanager
def _blamed(mechanism: Mechanism, stage: str, side: int, block: int) -> Iterator[None]:
    """What goes wrong inside is the mechanism's failure, in this block."""
    process = os.getpid()
    try:
        yield
    except MechanismError:
        raise
    except (Exception, SystemExit) as problem:  # an exit inside a mechanism is a failure of it, not our end
        what = str(problem)
        if not isinstance(problem, InputError):  # the door's lines need neither
            what = f"{type(problem).__name__.lstrip('_')}: {problem}{raised_at(problem)}"
        if isinstance(problem, TypeError) and not _takes_three(mechanism):
            what += "; a mechanism is called as (data, runs, rng); for one run at a time wrap it: dpverify.per_run(f)"
        if isinstance(problem, ValueError) and "read-only" in what:
            what += "; data are handed in read-only, so that no run finds what another has left: work on a copy"
        where = f"in the {stage} runs of the {SIDES[side]} data set, block {block}"
        raise MechanismError(f"the mechanism failed {where}: {what}", stage, side, block) from problem
    finally:
        if os.getpid() != process:  # a child that the mechanism has forked comes back too: only the parent goes on
            os._exit(0)


def _takes_three(mechanism: Mechanism) -> bool:
    try:
        inspect.signature(mechanism).bind(None, None, None)
    except TypeError:
        return False
    except Exception:  # it does not tell
        pass
    return True


def call_mechanism(source: SampleSource, stage: str, side: int, block: int) -> Any:
    """What the mechanism answers, not looked at yet: JAX may still be at work on it."""
    with _blamed(source.mechanism, stage, side, block):
        return source.mechanism(source.data[side], source.block, block_generator(source.seed, stage, side, block))


def validate_block(source: SampleSource, stage: str, side: int, block: int, answer: Any, trusting: bool = False) -> Any:
    """An answer through the door, (source.block, K, d).

    What lies on a device may be let in without a look for NaN, which would wait for it: `draw_span` looks later.
    """
    with _blamed(source.mechanism, stage, side, block):
        later = trusting and on_accelerator(answer)
        return validate_output(answer, source.block, source.shape, "later" if later else source.nonfinite)


def draw_block(source: SampleSource, stage: str, side: int, block: int) -> Any:
    """One whole block."""
    return validate_block(source, stage, side, block, call_mechanism(source, stage, side, block))


def draw_range(
    source: SampleSource, stage: str, runs: int, make: Callable[[], Accumulator], side: int, start: int, stop: int
) -> tuple[float, list[np.ndarray]]:
    """One task: its seconds, and what the blocks from start to stop of one side come to."""
    begin = time.perf_counter()
    retain_freed_memory()
    total, finite = make(), []
    answer = call_mechanism(source, stage, side, start)
    for block in range(start, stop):
        # JAX draws the next block while this one is counted; another library might fill the same buffer again.
        ahead = is_jax(answer) and block + 1 < stop
        after = call_mechanism(source, stage, side, block + 1) if ahead else None
        samples = validate_block(source, stage, side, block, answer, trusting=True)
        if is_jax(samples) and source.nonfinite == "error":
            finite.append(all_finite(samples))
        left = runs - block * source.block
        total.add(block, samples if left >= source.block else samples[:left])
        if block + 1 < stop:
            answer = after if ahead else call_mechanism(source, stage, side, block + 1)
    arrays = total.arrays()  # waits for what is still being drawn on a device
    for block, fine in enumerate(finite, start):
        if not fine:
            draw_block(source, stage, side, block)  # says what is wrong with it
    return time.perf_counter() - begin, arrays


T = TypeVar("T", bound=Accumulator)


class StageState(NamedTuple, Generic[T]):
    """A stage as far as it is drawn: the total of each side, and which blocks are in it."""

    totals: dict[int, T]
    done: dict[int, BlockRanges]

    def page(self, measured: str) -> Record:
        parts = [total.arrays() for total in self.totals.values()]
        lengths = [len(part) for part in parts]
        head = {"measured": measured, "done": list(self.done.values()), "arrays": lengths}
        return Record(head, [array for part in parts for array in part])

    def restore(self, page: Record, where: str) -> None:
        try:
            arrays = iter(page.arrays)
            for side, spans, number in zip(self.totals, page.head["done"], page.head["arrays"], strict=True):
                self.done[side] = [(int(start), int(stop)) for start, stop in spans]
                self.totals[side].include([next(arrays) for _ in range(number)])
        except Exception as problem:  # signed by us, but not as we write it
            raise FolderError(f"{where} is damaged ({type(problem).__name__}); remove it: it is drawn again") from None


def accumulate_stage(
    source: SampleSource,
    stage: str,
    runs: int,
    make: Callable[[], T],
    workers: WorkerPool,
    progress: Progress,
    sides: tuple[int, ...] = (0, 1),
    known: Collection[tuple[int, int]] = (),
    given: dict[tuple[int, int], Any] | None = None,
) -> list[T]:
    """The total of each side over the blocks of a stage; `known` ones are left out, `given` ones are drawn already.

    What the folder holds of it is not drawn again, and what is drawn is kept there, now and then and at the end,
    whatever the end is.
    """
    store, blocks = workers.store, -(-runs // source.block)
    left_out = {side: merge_ranges([(b, b + 1) for s, b in known if s == side]) for side in sides}
    step = StageState({side: make() for side in sides}, left_out.copy())
    name, measured = store.step(stage), fingerprint((runs, sides, make)) if store.folder is not None else ""
    page = store.read(name)
    if page is None:
        for (side, block), samples in (given or {}).items():
            if side in sides and block < blocks:
                step.totals[side].add(block, samples[: runs - block * source.block])
                step.done[side] = merge_ranges([*step.done[side], (block, block + 1)])
    elif page.head["measured"] == measured:
        step.restore(page, f"{store.folder}: {name}")
    else:
        raise FolderError(
            f"{store.folder}: found counts of other cells in {name}; expected those that this run has come to; "
            "go on with the versions and the kind of machine that it was begun with, or take another folder"
        )

    def size(spans: BlockRanges) -> int:
        return sum(min(stop * source.block, runs) - start * source.block for start, stop in spans)

    progress.stage(stage)
    progress.skip(sum(size(step.done[side]) - size(left_out[side]) for side in sides))
    task = partial(draw_range, source, stage, runs, make)
    check_picklable(task, workers)
    whole, saved = True, page is not None
    try:
        for (side, start, stop), arrays in completed_ranges(
            BlockQueue(blocks, step.done), task, workers, source.device != "cpu"
        ):
            whole = saved = False  # an interruption right here must not save one half of a change
            step.totals[side].include(arrays)
            step.done[side] = merge_ranges([*step.done[side], (start, stop)])
            whole = True
            progress.advance(size([(start, stop)]))
            if store.due:
                store.write(name, step.page(measured))
                saved = True
    finally:
        if store.folder is not None and whole and not saved:
            store.write(name, step.page(measured))
    return list(step.totals.values())


def probe_mechanism(
    source: SampleSource, both: bool = False, progress: Progress | None = None
) -> tuple[SampleSource, dict[tuple[int, int], np.ndarray]]:
    """The first pilot block, drawn here, tells the shape of an output and the device.

    The block is halved until its output is at most 64 MB; otherwise the runs that were drawn are kept for the pilot.
    With `both`, at least 64 runs of either side are there in the end, for the hash of what the mechanism does.
    """
    begin = time.perf_counter()
    answer = call_mechanism(source, "pilot", 0, 0)
    samples = validate_block(source, "pilot", 0, 0, answer)
    if progress is not None:
        progress.look(source.block, time.perf_counter() - begin)
    place = next(iter(answer.devices())) if is_jax(answer) else None
    device = f"{place.platform}:{place.id}" if place is not None else "cpu"
    block = source.block
    while block > 1 and block * samples[0].nbytes > MAX_BLOCK_BYTES:
        block //= 2
    found = {(0, 0): np.array(samples)} if block == source.block else {}
    source = source._replace(block=block, shape=(samples.shape[1], samples.shape[2]), device=device)
    if both:
        wanted = {(side, number) for side in (0, 1) for number in range(-(-PROBE_RUNS // block))}
        found |= {key: np.array(draw_block(source, "pilot", *key)) for key in sorted(wanted - set(found))}
    return source, found


def behaviour_hash(found: dict[tuple[int, int], np.ndarray]) -> str:
    """A hash of the first 64 pilot runs of either side."""
    return fingerprint(
        [np.concatenate([found[key] for key in sorted(found) if key[0] == side])[:PROBE_RUNS] for side in (0, 1)]
    )


def collect_samples(
    source: SampleSource,
    stage: str,
    runs: int,
    workers: WorkerPool,
    progress: Progress,
    sides: tuple[int, ...] = (0, 1),
    given: dict[tuple[int, int], np.ndarray] | None = None,
) -> list[np.ndarray]:
    """The runs of each side asked for, in the order of their blocks; `given` blocks are not drawn again."""
    totals = accumulate_stage(source, stage, runs, SampleBuffer, workers, progress, sides, given=given)
    return [total.arrays()[2] for total in totals]


class StageResult(NamedTuple):
    """A stage summed: for each side a part for each meter; the mean error of each side and its standard error."""

    parts: tuple[tuple[Any, ...], tuple[Any, ...]]
    error: tuple[tuple[float, float], tuple[float, float]] | None


def collect_statistics(
    source: SampleSource,
    stage: str,
    runs: int,
    measure: Statistics,
    workers: WorkerPool,
    progress: Progress,
    known: Collection[tuple[int, int]] = (),
) -> StageResult:
    """The sums over the blocks of a stage, but for the `known` ones."""
    first, second = accumulate_stage(
        source, stage, runs, partial(CountAccumulator, measure), workers, progress, known=known
    )
    error = None if measure.error is None else (first.error(runs), second.error(runs))
    return StageResult((first.parts, second.parts), error)

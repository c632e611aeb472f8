"""The context of a verification: settings, the source of samples, the workers, the checkpoint and the progress display.

`open_run` calls the mechanism with a few runs, plans the verification, announces it if it is long, and draws a first
block in this process. It checks that a checkpoint folder belongs to the call, and turns interruptions into `Stopped`
errors.
"""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import BrokenExecutor, Executor
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from dpverify.errors import (
    DPVerifyWarning,
    FolderError,
    InputError,
    MechanismError,
    Stopped,
    StopReason,
    TimeLimitReached,
    describe_exception,
)
from dpverify.events.region import Region, choose_stand_ins, high_likely_set, replace_nonfinite
from dpverify.mechanisms.diagnostics import Diagnostic
from dpverify.mechanisms.encoding import Encoded, Encoding
from dpverify.mechanisms.neighbours import are_equal
from dpverify.mechanisms.protocol import Mechanism, check_callable, is_seeded, mechanism_name
from dpverify.mechanisms.wrappers import has_fixed_block
from dpverify.sampling.blocks import (
    CALLERS_ERRSTATE,
    FIRST_BLOCK,
    FIRST_COMPILED_BLOCK,
    FIRST_RUNS,
    MAX_STOPPING_BLOCK,
    SampleSource,
    copy_runs,
    default_block_size,
    fitting_block_size,
    look_key,
    stated_block_size,
)
from dpverify.sampling.checkpoint import Checkpoint, Record, check_sources, open_checkpoint, run_identity, run_sources
from dpverify.sampling.executors import WorkerPool, all_devices, check_picklable, open_pool
from dpverify.sampling.probe import (
    ANNOUNCED_BYTES,
    BYTES_PER_NUMBER,
    MAX_VOID_RUNS,
    PROBE_RUNS,
    PilotBlocks,
    RunPlan,
    advise,
    blocks_repeat,
    count_bytes,
    estimate_memory,
    measure_pace,
    pilot_runs,
    plan_pilot,
    probe_mechanism,
    shorten_settings,
    with_encoding,
)
from dpverify.settings import Settings
from dpverify.util.arrays import equal_arrays
from dpverify.util.formatting import format_bytes, format_count, one_line
from dpverify.util.hashing import fingerprint
from dpverify.util.progress import Progress
from dpverify.util.provenance import versions
from dpverify.util.read_only import read_only
from dpverify.util.serialization import from_plain, nested_kinds, to_plain

T = TypeVar("T")


class StageClock:
    """A clock that measures the seconds of consecutive stages.

    Attributes
    ----------
    laps : dict
        The seconds of each finished stage, by its name.
    """

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        """Record the time since the end of the previous stage under this name."""
        now = time.perf_counter()
        self.laps[name] = round(now - self._last, 6)
        self._last = now


class RunContext(NamedTuple):
    """A verification that is being run.

    Attributes
    ----------
    source : SampleSource
        Draws the blocks of runs.
    settings : Settings
        The settings, with the final block size.
    pool : WorkerPool
        The workers, and the checkpoint.
    worker_count : int
        The number of workers at the start.
    progress : Progress
        The progress display.
    clock : StageClock
        The duration of each stage.
    pilot_blocks : dict
        The pilot blocks that the probe has drawn, by (side, block).
    plan : RunPlan
        The number of pilot runs, and the data sets that need them.
    fixed_block : int or None
        The block size that the settings or the mechanism state; None if it was chosen.
    notes : list of str
        Problems that do not prevent a result, for the notes of the report.
    """

    source: SampleSource
    settings: Settings
    pool: WorkerPool
    worker_count: int
    progress: Progress
    clock: StageClock
    pilot_blocks: PilotBlocks
    plan: RunPlan
    notes: list[str]
    fixed_block: int | None = None

    @property
    def checkpoint(self) -> Checkpoint:
        return self.pool.checkpoint


@contextlib.contextmanager
def open_run(
    mechanism: Mechanism,
    first: object,
    second: object,
    settings: Settings,
    executor: int | Executor | None,
    progress: bool | None,
    folder: str | os.PathLike[str] | None = None,
    call: Mapping[str, object] | None = None,
    error: Callable[[Any], Any] | None = None,
    trust_results: bool = False,
) -> Iterator[RunContext]:
    """Open the context of a verification.

    Parameters
    ----------
    mechanism : Mechanism
        The mechanism.
    first, second : object
        The two data sets.
    settings : Settings
        The settings.
    executor : int, concurrent.futures.Executor or None
        A number of processes, an executor, or None for this process.
    progress : bool or None
        Whether progress is displayed; None decides it, see `Progress`.
    folder : path-like, optional
        The checkpoint folder.
    call : mapping, optional
        Further arguments that a resumed run must repeat.
    error : callable, optional
        The error function of the call.
    trust_results : bool
        Whether the results in the folder are used although source files have changed, as `check_sources` explains.

    Raises
    ------
    Stopped
        If the run is interrupted from the keyboard, loses its workers, or has no memory left.
    """
    check_callable(mechanism)
    clock, display = StageClock(), Progress(progress, folder is not None)
    block = stated_block_size(mechanism, settings.block)
    is_fixed = block is not None
    if settings.block is None and settings.stop_early:
        first_block = FIRST_COMPILED_BLOCK if has_fixed_block(mechanism) else FIRST_BLOCK
        block = first_block if block is None else min(block, MAX_STOPPING_BLOCK)
    block = block or default_block_size(settings.test_runs)
    data = read_only(first), read_only(second)
    source = SampleSource(mechanism, data, settings.seed, block, settings.nonfinite)
    notes: list[str] = []
    CALLERS_ERRSTATE.set(dict(np.geterr()))
    with open_checkpoint(folder) as checkpoint, np.errstate(all="ignore"):
        try:
            with open_pool(executor, checkpoint) as pool, contextlib.ExitStack() as devices:
                check_picklable(source, pool)
                if settings.stop_early:  # the first runs are training runs, and no others are drawn before them
                    source, pilot_blocks = probe_mechanism(source, display, FIRST_RUNS)
                else:
                    source = announce(source, settings, max(1, pool.number), display, checkpoint.is_started)
                    source, pilot_blocks = probe_mechanism(source, display, 1 if folder is None else PROBE_RUNS)
                assert source.shape is not None
                pool = devices.enter_context(all_devices(pool, source.device))
                settings = settings.change(block=source.block)
                plan = plan_and_announce(display, settings, source)
                source = source._replace(look=look_key(settings, call or {}))
                if folder is not None:
                    about = {"name": mechanism_name(mechanism), **versions()}
                    sources = run_sources(mechanism, settings, error)
                    identity = run_identity(source, settings, pilot_blocks, call or {}, error)
                    recorded = checkpoint.acquire(identity, about, sources)
                    check_sources(checkpoint, recorded, sources, is_seeded(mechanism), trust_results)
                    encoded = stored_encoding(source, checkpoint)
                    if encoded is not source:  # without a seed, other runs have shown other values now
                        source, pilot_blocks, plan = encoded, {}, plan_pilot(settings, encoded.shape, True)
                fixed = source.block if is_fixed else None
                yield RunContext(source, settings, pool, pool.number, display, clock, pilot_blocks, plan, notes, fixed)
        except TimeLimitReached:
            raise _stopped(StopReason.TIME_LIMIT, "", checkpoint, display) from None
        except KeyboardInterrupt:
            raise _stopped(StopReason.KEYBOARD, "", checkpoint, display) from None
        except BrokenExecutor as problem:
            advice = '; in a script, processes need the call under if __name__ == "__main__":'
            detail = f" ({problem}{advice if isinstance(executor, int) else ''})"
            raise _stopped(StopReason.WORKERS_LOST, detail, checkpoint, display) from problem
        except MemoryError as problem:  # not in the mechanism: its failures are MechanismErrors
            raise _stopped(StopReason.OUT_OF_MEMORY, "", checkpoint, display) from problem
        finally:
            display.close()
            finish = getattr(mechanism, "finish", None)
            if finish is not None:
                try_optional_method("finish", finish, notes)


def stored_encoding(source: SampleSource, checkpoint: Checkpoint) -> SampleSource:
    """Return the source with the encoding of the first start of this run, to which the frozen events belong."""
    if not isinstance(source.mechanism, Encoded):
        return source
    stored = read_record(checkpoint, "encoding", nested_kinds(Encoding), lambda record: record["encoding"])
    if stored is None:
        checkpoint.write("encoding", Record(to_plain({"encoding": source.mechanism.encoding})))
    if stored is None or to_plain(stored) == to_plain(source.mechanism.encoding):
        return source
    return source._replace(mechanism=Encoded(source.mechanism.mechanism, stored), shape=(len(stored.kept), 1))


def try_optional_method(name: str, method: Callable[[], T], notes: list[str]) -> T | None:
    """Call an optional method of a mechanism. An exception is a warning and a note, because the result is complete."""
    try:
        return method()
    except KeyboardInterrupt:
        raise
    except BaseException as problem:
        note = f"the mechanism's method {name} failed: {describe_exception(problem, one_line)}"
        notes.append(note)
        warnings.warn(note, DPVerifyWarning, stacklevel=3)
        return None


def announce(
    source: SampleSource, settings: Settings, workers: int, display: Progress, is_resumed: bool = False
) -> SampleSource:
    """Call the mechanism with a few runs; return the source with a block size that fits, and announce a long run."""
    planned_runs = 2 * (settings.select_runs + settings.test_runs) // workers
    try:
        pace = measure_pace(source, planned_runs)
    except MechanismError:  # of outputs that are not arrays of numbers
        source = with_encoding(source)
        pace = measure_pace(source, planned_runs)
    if pace is None:
        return source
    steps, dimension = pace.shape
    block = fitting_block_size(source.block, steps * dimension * BYTES_PER_NUMBER)
    source = source._replace(block=block)
    plan_and_announce(display, settings, source._replace(shape=pace.shape))
    if pace.seconds_per_run is not None:
        rate = workers / max(pace.seconds_per_run, 1e-12)
        (display.announce_later if is_resumed else display.announce)(rate)
    return source


def plan_and_announce(display: Progress, settings: Settings, source: SampleSource) -> RunPlan:
    """Plan the runs, tell the display how many there are, and announce a large need of memory."""
    shape, block = source.shape, source.block
    assert shape is not None
    plan = plan_pilot(settings, shape, isinstance(source.mechanism, Encoded))
    memory = estimate_memory(settings, plan, shape, block)
    display.plan(plan.total(settings), partial(advise, settings, plan, memory))
    if memory >= ANNOUNCED_BYTES:
        counts = count_bytes(settings, shape)
        reason = f", of which {format_bytes(counts)} for the counts of a fine grid" if 2 * counts > memory else ""
        display.announce_once(f"memory about {format_bytes(memory)}{reason}")
    return plan


def _stopped(reason: StopReason, detail: str, checkpoint: Checkpoint, display: Progress) -> Stopped:
    """Return the error for a run that ended early: why, after how many runs, and how it can be resumed."""
    folder = None if checkpoint.folder is None else str(checkpoint.folder)
    if folder is None:
        advice = "nothing was saved; use a checkpoint folder to save finished runs (folder=, --folder)"
    elif checkpoint.problem:
        advice = checkpoint.problem
    else:
        advice = f"they are saved in {folder}; repeat the same call to resume"
    message = f"{reason.value}{detail} after {format_count(display.done)} runs; {advice}"
    return Stopped(message, folder, display.done, reason)


def check_mechanism(context: RunContext) -> tuple[Diagnostic, ...]:
    """Return the diagnostics of a mechanism or pair that breaks the assumptions of the statistics.

    A block that is drawn twice must have the same runs and must not change the data set. Two different blocks must have
    different runs; a verification that may stop early checks this later. The two data sets must differ. A warning is
    given for each finding about the mechanism. The blocks that are drawn here are pilot blocks, which are not drawn
    again.
    """
    source, stop_early = context.source, context.settings.stop_early
    blocks = 1 if stop_early else -(-PROBE_RUNS // source.block)  # as many as contain the probe runs
    first_runs = pilot_runs(source, 0, range(blocks), context.pilot_blocks, keep=True)
    data_before = _fingerprint_or_none(source.data[0])
    repeated_runs = pilot_runs(source, 0, range(blocks))
    data_after = _fingerprint_or_none(source.data[0])

    found = []
    if data_after != data_before:
        found.append(Diagnostic.CHANGED_DATA)
    elif is_seeded(source.mechanism) and not equal_arrays(first_runs, repeated_runs):
        found.append(Diagnostic.UNREPEATABLE_BLOCK)
    if not stop_early:  # otherwise the first batches are compared
        other_runs = pilot_runs(source, 0, range(blocks, 2 * blocks), context.pilot_blocks, keep=True)
        if blocks_repeat(copy_runs(first_runs, PROBE_RUNS), copy_runs(other_runs, PROBE_RUNS)):
            found.append(Diagnostic.REPEATED_BLOCKS)
    for diagnostic in found:
        warnings.warn(diagnostic.value, DPVerifyWarning, stacklevel=3)
    if are_equal(*source.data):
        found.append(Diagnostic.SAME_DATA)
    return tuple(found)


def _fingerprint_or_none(data: object) -> str | None:
    """Return the fingerprint of a data set, or None if it has none; without a folder it is not needed."""
    try:
        return fingerprint(data)
    except InputError:
        return None


def shorten_run(context: RunContext) -> RunContext:
    """Return the context of a verification whose test is void, with as few runs as a report needs."""
    settings = shorten_settings(context.settings)
    if has_fixed_block(context.source.mechanism):
        settings = settings.change(block=context.settings.block)
    plan = context.plan._replace(pilot_runs=min(context.plan.pilot_runs, MAX_VOID_RUNS))
    assert settings.block is not None
    source = context.source._replace(block=settings.block)
    pilot_blocks = context.pilot_blocks if settings.block == context.settings.block else {}
    context.progress.plan(plan.total(settings))
    return context._replace(source=source, settings=settings, plan=plan, pilot_blocks=pilot_blocks)


def read_record(
    checkpoint: Checkpoint, name: str, kinds: tuple[type, ...], build: Callable[[dict[str, Any]], T]
) -> T | None:
    """Return a frozen choice of an earlier start of this run, or None.

    Parameters
    ----------
    checkpoint : Checkpoint
        The folder of the run.
    name : str
        The name of the record.
    kinds : tuple of type
        The kinds that the record may hold, besides plain data.
    build : callable
        Makes the choice from the content of the record; it may raise any exception for a damaged one.
    """
    record = checkpoint.read(name)
    if record is None:
        return None
    try:
        return build(from_plain(record.head, kinds))
    except MemoryError:
        raise
    except Exception as problem:  # another version may have written anything
        raise FolderError(
            f"{checkpoint.folder}: found {name} of another version of dpverify ({one_line(problem)}); expected this "
            "version; resume with that version, or use another folder"
        ) from None


# The pilot runs: the region around them (paper, Algorithm 3), and a few runs for the picture.


def read_region(record: Mapping[str, object]) -> Region:
    """Return the region that the record of an earlier start of a run holds."""
    region = record["region"]
    if not isinstance(region, Region):
        raise TypeError("region: expected a region")
    return region


def make_region(
    pilot: list[np.ndarray], nonfinite: str, is_limited: bool = False
) -> tuple[Region, np.ndarray, list[np.ndarray]]:
    """Return the region around the pilot runs, these runs with finite numbers only, and the runs as they are.

    The arrays of `pilot` are removed from the list, and the returned runs share memory, because the pilot runs of long
    outputs are large.

    Parameters
    ----------
    pilot : list of numpy.ndarray
        The pilot runs of one or both data sets.
    nonfinite : {"error", "event"}
        Whether all runs are finite, or numbers stand for values that are not.
    is_limited : bool
        Whether memory limits the pilot runs. The region then has no scenario guarantee, so that ellipsoids of nearly
        the smallest volume are sufficient.
    """
    lengths = [len(runs) for runs in pilot]
    joined = np.concatenate(pilot)
    pilot.clear()
    runs = np.split(joined, np.cumsum(lengths)[:-1])
    if nonfinite == "error":
        return high_likely_set(joined, approximate=is_limited), joined, runs
    stand_ins = choose_stand_ins(joined)
    filled = replace_nonfinite(joined, stand_ins)
    return high_likely_set(filled, approximate=is_limited)._replace(stand_ins=stand_ins), filled, runs


def picture_runs(context: RunContext, pilot: list[np.ndarray], number: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the first finite runs of each data set, at most `number`, for the picture of a report.

    The paper's region needs pilot runs of the first data set only. Then runs of the second data set are drawn here,
    except for the blocks that the probe has drawn.

    Parameters
    ----------
    context : RunContext
        The verification.
    pilot : list of numpy.ndarray
        The pilot runs of the first data set, or of both.
    number : int
        The largest number of runs per data set.

    Returns
    -------
    tuple of numpy.ndarray
        The runs of the first and of the second data set, each of shape (runs, K, d).
    """
    first = pilot[0]
    if len(pilot) == 2:
        second = pilot[1]
    else:
        blocks = range(-(-number // context.source.block))
        second = np.asarray(pilot_runs(context.source, 1, blocks, context.pilot_blocks))
    return _finite_runs(first, number), _finite_runs(second, number)


def _finite_runs(runs: np.ndarray, number: int) -> np.ndarray:
    """Return the first finite runs, at most `number`."""
    return runs[np.flatnonzero(np.isfinite(runs).all(axis=(1, 2)))[:number]]

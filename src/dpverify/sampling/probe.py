"""The start of a verification: its first runs, its plan, its checkpoint folder, and what ends it early.

A few probe runs come first. They have a random stream of their own and are used for the shape of one output and for
the time per run only. The block size is then known before the first block is requested, and a long verification can be
announced. The first pilot blocks follow; they identify the mechanism. `open_run` checks that a checkpoint folder
belongs to the call, and turns interruptions into `Stopped` errors.

The plan is a fixed function of the settings and of the shape of one output. The measured speed of the mechanism only
decides what is announced, never what is drawn.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor
from typing import Any, NamedTuple, TypeVar

import numpy as np

from dpverify.errors import (
    DPVerifyWarning,
    InputError,
    MechanismError,
    Stopped,
    StopReason,
    TimeLimitReached,
    describe_exception,
)
from dpverify.events.region import (
    Region,
    choose_stand_ins,
    exact_scenario_size,
    high_likely_set,
    replace_nonfinite,
    scenario_size,
)
from dpverify.mechanisms.diagnostics import Diagnostic
from dpverify.mechanisms.encoding import Encoded, Encoding, as_outputs, chunk_size, learn_encoding
from dpverify.mechanisms.neighbours import are_equal
from dpverify.mechanisms.outputs import StructuredOutput
from dpverify.mechanisms.protocol import Mechanism, check_callable, has_fixed_block, is_seeded, mechanism_name
from dpverify.sampling.blocks import (
    BLOCKS_PER_TEST,
    CALLERS_ERRSTATE,
    FIRST_BLOCK,
    FIRST_COMPILED_BLOCK,
    FIRST_RUNS,
    MAX_STOPPING_BLOCK,
    SIDES,
    SampleSource,
    block_size,
    call_mechanism,
    copy_runs,
    draw_block,
    fitting_block_size,
    mechanism_error,
    test_key,
    validate_block,
)
from dpverify.sampling.checkpoint import (
    Checkpoint,
    Record,
    check_sources,
    open_checkpoint,
    run_sources,
)
from dpverify.sampling.executors import WorkerPool, all_devices, check_picklable, open_pool
from dpverify.settings import Settings
from dpverify.util.arrays import Array, array_namespace, enable_x64, is_jax, on_accelerator, read_only
from dpverify.util.formatting import format_bytes, format_count, one_line
from dpverify.util.hashing import fingerprint
from dpverify.util.progress import MIN_ANNOUNCED_SECONDS, Progress
from dpverify.util.provenance import versions
from dpverify.util.serialization import nested_kinds, to_plain

T = TypeVar("T")

FIRST_PROBE_RUNS = 4  # of the first call; later calls have four times as many
MAX_ENCODING_RUNS = 1000  # per dataset; what occurs in one run of 500 is almost always seen
MIN_PROBE_SECONDS = 0.5  # a call of this duration shows the time per run
PROBE_RUNS = 64  # runs per dataset that identify a mechanism
FALSE_REPEAT_PROBABILITY = 1e-9  # that two independent blocks are taken for one block that was drawn twice
MAX_PILOT_BYTES = 256 << 20  # of the kept pilot runs, per dataset
MIN_PILOT_RUNS = 1000  # if the scenario size does not fit; at least 2 (d + 1), so that the runs span all dimensions
MAX_VOID_RUNS = 1000  # runs per dataset and stage of a verification whose test is void
BYTES_PER_NUMBER = 8

PilotBlocks = dict[tuple[int, int], Array]  # the samples of pilot blocks, by (side, block)


class RunPlan(NamedTuple):
    """How many runs a verification draws.

    Attributes
    ----------
    pilot_runs : int
        Pilot runs per dataset.
    sides : tuple of int
        The datasets that need pilot runs.
    is_limited : bool
        Whether memory limits the pilot runs, so that the region has no joint scenario guarantee.
    """

    pilot_runs: int
    sides: tuple[int, ...]
    is_limited: bool = False

    def total(self, settings: Settings) -> int:
        """Return the number of runs of all stages and both datasets."""
        return 2 * (settings.select_runs + settings.test_runs) + len(self.sides) * self.pilot_runs


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
    finished : dict
        The moment when each stage was finished, by its name; "start" is the first one.
    pilot_blocks : dict
        The pilot blocks that the probe has drawn, by (side, block).
    plan : RunPlan
        The number of pilot runs, and the datasets that need them.
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
    finished: dict[str, float]
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
        The two datasets.
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
    finished, display = {"start": time.perf_counter()}, Progress(progress, folder is not None)
    block = block_size(mechanism, settings.block, settings.test_runs)
    is_fixed = (settings.block or getattr(mechanism, "block", None)) is not None
    if settings.block is None and settings.stop_early:
        first_block = FIRST_COMPILED_BLOCK if has_fixed_block(mechanism) else FIRST_BLOCK
        block = min(block, MAX_STOPPING_BLOCK) if is_fixed else first_block
    data = read_only(first), read_only(second)
    source = SampleSource(mechanism, data, settings.seed, block, settings.nonfinite)
    notes: list[str] = []
    CALLERS_ERRSTATE.set(dict(np.geterr()))
    with open_checkpoint(folder) as checkpoint, np.errstate(all="ignore"):
        try:
            with open_pool(executor, checkpoint) as pool, contextlib.ExitStack() as devices:
                check_picklable(source, pool)
                if settings.stop_early:  # the first runs are training runs, and no others are drawn before them
                    source, pilot_blocks = probe_mechanism(source, FIRST_RUNS)
                else:
                    source = announce(source, settings, max(1, pool.number), display, checkpoint.is_started)
                    source, pilot_blocks = probe_mechanism(source, 1 if folder is None else PROBE_RUNS)
                assert source.shape is not None
                pool = devices.enter_context(all_devices(pool, source.device))
                settings = settings.change(block=source.block)
                plan = plan_pilot(settings, source.shape, isinstance(source.mechanism, Encoded))
                display.plan(plan.total(settings), advise(settings))
                source = source._replace(test_key=test_key(settings, call or {}))
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
                yield RunContext(
                    source, settings, pool, pool.number, display, finished, pilot_blocks, plan, notes, fixed
                )
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
    stored = checkpoint.read_choice("encoding", nested_kinds(Encoding))
    if stored is None:
        checkpoint.write("encoding", Record(to_plain(source.mechanism.encoding)))
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
    """Call the mechanism with a few runs; return the source with a block size that fits, and announce a long run.

    A mechanism with its own block size, or one that JAX compiles for each number of runs, is not called. A mechanism
    that fails for a few runs is not measured; its first block reports the failure. If the first call suggests a long
    verification, it is repeated with more runs, because a first call includes imports and other fixed costs.
    """
    if has_fixed_block(source.mechanism):
        return source
    planned_runs = 2 * (settings.select_runs + settings.test_runs) // workers
    runs, block = min(FIRST_PROBE_RUNS, source.block), source.block
    for call in itertools.count():
        start = time.perf_counter()
        small = source._replace(block=runs)
        try:
            output = call_mechanism(small, "probe", 0, call)
            samples = validate_block(small, "probe", 0, call, output)
        except MechanismError as problem:
            if not isinstance(problem.__cause__, StructuredOutput) or isinstance(source.mechanism, Encoded):
                return source
            return announce(with_encoding(source), settings, workers, display, is_resumed)
        seconds = time.perf_counter() - start
        block = fitting_block_size(source.block, samples[0].nbytes)
        is_short = seconds / runs * planned_runs < MIN_ANNOUNCED_SECONDS
        if call == 0:
            plan = plan_pilot(settings, samples.shape[1:], isinstance(source.mechanism, Encoded))
            display.plan(plan.total(settings), advise(settings))
        if is_jax(output) or is_short or (call > 0 and (seconds >= MIN_PROBE_SECONDS or runs >= block)):
            break
        runs = min(4 * runs, block) if call > 0 else runs
    if not is_jax(output):
        display.announce(workers * runs / max(seconds, 1e-9), is_resumed)
    return source._replace(block=block)


def advise(settings: Settings) -> str:
    """Return what a run that takes long can do instead."""
    stopping = "" if settings.stop_early else "stop_early=True ends as soon as a claim is refuted; "
    return f"{stopping}smaller test_runs and select_runs; several processes: executor=N"


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


# The first runs.


def probe_mechanism(source: SampleSource, runs: int = 1) -> tuple[SampleSource, PilotBlocks]:
    """Draw the first pilot blocks in this process, to learn the shape of an output, the device and the block size.

    The block size is halved until the output of a block has at most 64 MB. Outputs that are not arrays of one shape,
    the same for both datasets, are encoded.

    Parameters
    ----------
    source : SampleSource
        The source, with the block size that the settings or the mechanism state.
    runs : int
        How many runs of each dataset are drawn at least.

    Returns
    -------
    tuple
        The source with its final block size, shape and device; and the pilot blocks that were drawn with that size.
    """
    try:
        output = call_mechanism(source, "pilot", 0, 0)
        samples = validate_block(source, "pilot", 0, 0, output)
        steps, dimension = samples.shape[1:]
        block = fitting_block_size(source.block, steps * dimension * samples.dtype.itemsize, on_accelerator(samples))
        drawn: PilotBlocks = {}
        if block == source.block:
            drawn[0, 0] = samples if is_jax(samples) else np.array(samples)
        device = "cpu"
        if is_jax(output):
            place = next(iter(output.devices()))  # type: ignore[attr-defined]
            device = f"{place.platform}:{place.id}"
        probed = source._replace(block=block, shape=(steps, dimension), device=device)
        for side in (0, 1):
            pilot_runs(probed, side, range(-(-runs // block)), drawn)
    except MechanismError as problem:
        if not isinstance(problem.__cause__, StructuredOutput) or isinstance(source.mechanism, Encoded):
            raise
        return probe_mechanism(with_encoding(source), runs)
    return probed, drawn


def with_encoding(source: SampleSource) -> SampleSource:
    """Return the source with a mechanism whose outputs are encoded as numbers, which a few runs of its own show how."""
    runs = source.block if has_fixed_block(source.mechanism) else min(FIRST_PROBE_RUNS, source.block)
    sides: tuple[list[object], list[object]] = ([], [])
    for block in itertools.count():
        small = source._replace(block=runs)
        for side, outputs in enumerate(sides):
            output = call_mechanism(small, "encode", side, block)
            try:
                outputs += as_outputs(output, runs)
            except InputError as problem:
                raise mechanism_error(source, "encode", side, block, problem) from problem
        chunk = chunk_size(sides[0])
        wanted = min(MAX_ENCODING_RUNS, max(chunk, FIRST_RUNS), BLOCKS_PER_TEST * source.block)
        if len(sides[0]) >= wanted:
            break
        if not has_fixed_block(source.mechanism):
            runs = min(wanted - len(sides[0]), chunk)
    try:
        encoding = learn_encoding(*sides)
    except InputError as problem:
        raise mechanism_error(source, "encode", 0, 0, problem) from problem
    return source._replace(mechanism=Encoded(source.mechanism, encoding))


def pilot_runs(source: SampleSource, side: int, blocks: Iterable[int], drawn: PilotBlocks | None = None) -> np.ndarray:
    """Return the runs of some pilot blocks of one dataset. Blocks are taken from `drawn`, and new ones added to it."""
    drawn = {} if drawn is None else drawn
    runs = []
    for block in blocks:
        if (side, block) not in drawn:
            # Nothing can change a JAX array, which stays where it is.
            samples = draw_block(source, "pilot", side, block)
            drawn[side, block] = samples if is_jax(samples) else np.array(samples)
        runs.append(drawn[side, block])
    with enable_x64(runs[0]):
        return runs[0] if len(runs) == 1 else array_namespace(runs[0]).concatenate(runs)


def check_mechanism(context: RunContext) -> tuple[Diagnostic, ...]:
    """Return the diagnostics of a mechanism or pair that breaks the assumptions of the statistics.

    A block that is drawn twice must have the same runs and must not change the dataset. Two different blocks must have
    different runs; a verification that may stop early checks this later. The two datasets must differ. A warning is
    given for each finding about the mechanism. The blocks that are drawn here are pilot blocks, which are not drawn
    again.
    """
    source, stop_early = context.source, context.settings.stop_early
    blocks = 1 if stop_early else -(-PROBE_RUNS // source.block)  # as many as contain the probe runs
    first_runs = pilot_runs(source, 0, range(blocks), context.pilot_blocks)
    hashes = []
    with contextlib.suppress(InputError):  # data that cannot be hashed; without a folder no hash is needed
        hashes.append(fingerprint(source.data[0]))
    repeated_runs = pilot_runs(source, 0, range(blocks))
    with contextlib.suppress(InputError):
        hashes.append(fingerprint(source.data[0]))
    with enable_x64(first_runs):
        repeats = bool(array_namespace(first_runs).array_equal(first_runs, repeated_runs, equal_nan=True))

    found = []
    if len(set(hashes)) > 1:
        found.append(Diagnostic.CHANGED_DATA)
    elif is_seeded(source.mechanism) and not repeats:
        found.append(Diagnostic.UNREPEATABLE_BLOCK)
    if not stop_early:  # otherwise the first batches are compared
        other_runs = pilot_runs(source, 0, range(blocks, 2 * blocks), context.pilot_blocks)
        if blocks_repeat(copy_runs(first_runs, PROBE_RUNS), copy_runs(other_runs, PROBE_RUNS)):
            found.append(Diagnostic.REPEATED_BLOCKS)
    for diagnostic in found:
        warnings.warn(diagnostic.value, DPVerifyWarning, stacklevel=3)
    if are_equal(*source.data):
        found.append(Diagnostic.SAME_DATA)
    return tuple(found)


def shorten_run(context: RunContext) -> RunContext:
    """Return the context of a verification whose test is void, with as few runs as a report needs."""
    settings, block = context.settings, context.source.block
    if not has_fixed_block(context.source.mechanism):
        block = min(block, MAX_VOID_RUNS)
    select_runs, test_runs = min(settings.select_runs, MAX_VOID_RUNS), min(settings.test_runs, MAX_VOID_RUNS)
    settings = settings.change(select_runs=select_runs, test_runs=test_runs, block=block)
    plan = context.plan._replace(pilot_runs=min(context.plan.pilot_runs, MAX_VOID_RUNS))
    pilot_blocks = context.pilot_blocks if block == context.source.block else {}
    context.progress.plan(plan.total(settings))
    source = context.source._replace(block=block)
    return context._replace(source=source, settings=settings, plan=plan, pilot_blocks=pilot_blocks)


def behaviour_hash(drawn: PilotBlocks) -> str:
    """Return a hash of the first 64 pilot runs of each dataset."""
    first_runs = []
    for wanted in (0, 1):
        samples = [copy_runs(drawn[side, block], PROBE_RUNS) for side, block in sorted(drawn) if side == wanted]
        first_runs.append(np.concatenate(samples)[:PROBE_RUNS])
    return fingerprint(first_runs)


def run_identity(
    source: SampleSource,
    settings: Settings,
    drawn: PilotBlocks,
    call: Mapping[str, object],
    error: Callable[[Array], Array] | None,
) -> dict[str, Any]:
    """Return what identifies a run: settings, datasets, and what the mechanism and the error function compute."""
    identity = {**settings.identity, **call}
    for side, data in zip(SIDES, source.data, strict=True):
        identity[f"{side} dataset"] = fingerprint(data)
    seeded = is_seeded(source.mechanism)
    identity["seeded"] = seeded
    # An error function is identified by its values on the probe runs, or by its name if these cannot be reproduced.
    error_values: object = error
    if error is not None and seeded:
        with contextlib.suppress(Exception):  # an error function that fails is reported when it is used
            error_values = [np.asarray(error(drawn[key])) for key in sorted(drawn)]
    identity["error"] = fingerprint(error_values, sources=False)  # the sources are compared by `check_sources`
    if seeded:
        identity["probe"] = behaviour_hash(drawn)
    else:
        identity["mechanism"] = mechanism_name(source.mechanism)
    return identity


def blocks_repeat(first: np.ndarray, second: np.ndarray) -> bool:
    """Return whether two sets of runs are equal, although independent runs would almost never be equal.

    Two independent runs agree with a probability that is estimated by the sum of the squared relative frequencies of
    the outputs. All pairs of runs agree with a power of this probability. Outputs with few values, one of which is
    frequent, may repeat by chance.
    """
    if not np.array_equal(first, second, equal_nan=True):
        return False
    return _is_improbable(first)


def outputs_hash(sides: Sequence[np.ndarray]) -> str | None:
    """Return a hash of the first runs of both datasets, by which equal runs of two verifications are recognised.

    It contains as many runs as independent runs would almost never repeat, from 16 up. Where even all runs could be
    repeated by chance, there is none.

    Examples
    --------
    >>> rare = np.arange(5000) % 1000 == 0
    >>> outputs_hash([rare, rare]) is None, outputs_hash([np.arange(64.0), np.arange(64.0)]) is None
    (True, False)
    """
    length = FIRST_RUNS  # a verification has at least these
    while length <= len(sides[0]):
        if any(_is_improbable(side[:length]) for side in sides):
            return fingerprint([side[:length] for side in sides])
        length *= 2
    return None


def _is_improbable(runs: np.ndarray) -> bool:
    """Return whether independent runs would almost never be equal to these."""
    frequencies = Counter(output.tobytes() for output in runs).values()
    agreement = sum(frequency * frequency for frequency in frequencies) / len(runs) ** 2
    return len(runs) * math.log(agreement) < math.log(FALSE_REPEAT_PROBABILITY)


def plan_pilot(settings: Settings, shape: tuple[int, int], is_encoded: bool = False) -> RunPlan:
    """Return the number of pilot runs per dataset, and the datasets that need them.

    The paper computes the ellipsoid of each step separately, from runs of the first dataset. With `settings.joint`,
    one convex program covers all steps. Each dataset then has the full number of runs, so that the region contains a
    mass of 1 - beta of both output distributions (docs/method.md, section 4.3).

    The pilot runs are kept in memory. If the full number needs more than `MAX_PILOT_BYTES`, the number for one step is
    used, or as many runs as fit. The columns of an encoding are many and mostly codes, so that a joint region would say
    little: each column has an interval of its own.

    Raises
    ------
    InputError
        If not even the smallest useful number of pilot runs fits.
    """
    steps, dimension = shape
    if settings.joint:
        joined = 1 if is_encoded else steps
        wanted, sides = exact_scenario_size(dimension, settings.beta, settings.gamma, joined), (0, 1)
    else:
        wanted, sides = scenario_size(dimension, settings.beta, settings.gamma), (0,)
    run_bytes = steps * dimension * BYTES_PER_NUMBER
    most = MAX_PILOT_BYTES // run_bytes
    if wanted <= most:
        return RunPlan(wanted, sides)
    smallest = max(2 * (dimension + 1), MIN_PILOT_RUNS)
    if smallest > most:
        raise InputError(
            f"pilot runs: found outputs of {steps} x {dimension} numbers, of which {format_count(smallest)} runs take "
            f"{format_bytes(smallest * run_bytes)} per dataset; expected at most {format_bytes(MAX_PILOT_BYTES)}; "
            "return fewer steps or coordinates, or raise dpverify.sampling.probe.MAX_PILOT_BYTES"
        )
    per_step = exact_scenario_size(dimension, settings.beta, settings.gamma)
    return RunPlan(per_step if per_step <= most else most, sides, True)


# The pilot runs: the region around them (paper, Algorithm 3), and a few runs for the picture.


def make_region(
    pilot: list[np.ndarray], nonfinite: str, is_limited: bool = False
) -> tuple[Region, np.ndarray, list[np.ndarray]]:
    """Return the region around the pilot runs, these runs with finite numbers only, and the runs as they are.

    The arrays of `pilot` are removed from the list, and the returned runs share memory, because the pilot runs of long
    outputs are large.

    Parameters
    ----------
    pilot : list of numpy.ndarray
        The pilot runs of one or both datasets.
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
    """Return the first finite runs of each dataset, at most `number`, for the picture of a report.

    The paper's region needs pilot runs of the first dataset only. Then runs of the second dataset are drawn here,
    except for the blocks that the probe has drawn.

    Parameters
    ----------
    context : RunContext
        The verification.
    pilot : list of numpy.ndarray
        The pilot runs of the first dataset, or of both.
    number : int
        The largest number of runs per dataset.

    Returns
    -------
    tuple of numpy.ndarray
        The runs of the first and of the second dataset, each of shape (runs, K, d).
    """
    first = pilot[0]
    if len(pilot) == 2:
        second = pilot[1]
    else:
        blocks = range(-(-number // context.source.block))
        second = np.asarray(pilot_runs(context.source, 1, blocks, context.pilot_blocks))
    first, second = (runs[np.flatnonzero(np.isfinite(runs).all(axis=(1, 2)))[:number]] for runs in (first, second))
    return first, second

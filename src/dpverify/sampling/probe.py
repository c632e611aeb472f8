"""The first runs of a mechanism: they show its speed, the shape and device of an output, and identify what it does.

A few probe runs come first. They have a random stream of their own and are used for the shape of one output and for
the time per run only. The block size is then known before the first block is requested, and a long verification can be
announced. The first pilot blocks follow; they identify the mechanism.
"""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from dpverify.errors import InputError, MechanismError
from dpverify.events.region import exact_scenario_size, scenario_size
from dpverify.mechanisms.encoding import Encoded, as_outputs, chunk_size, learn_encoding
from dpverify.mechanisms.outputs import StructuredOutput
from dpverify.mechanisms.wrappers import has_fixed_block
from dpverify.sampling.blocks import (
    BLOCKS_PER_TEST,
    FIRST_RUNS,
    SampleSource,
    call_mechanism,
    copy_runs,
    draw_block,
    fitting_block_size,
    mechanism_error,
    validate_block,
)
from dpverify.settings import Settings
from dpverify.util.arrays import Array, array_namespace, enable_x64, is_jax, on_accelerator
from dpverify.util.formatting import format_bytes, format_count
from dpverify.util.hashing import fingerprint
from dpverify.util.progress import MIN_ANNOUNCED_SECONDS, MIN_WARNED_SECONDS, Progress

FIRST_PROBE_RUNS = 4  # of the first call; later calls have four times as many
MAX_ENCODING_RUNS = 1000  # per dataset; what occurs in one run of 500 is almost always seen
MIN_PROBE_SECONDS = 0.5  # a call of this duration shows the time per run
MAX_FIRST_PROBE_SECONDS = 30.0  # after a longer first call there is no second one
PROBE_RUNS = 64  # runs per data set that identify a mechanism
FALSE_REPEAT_PROBABILITY = 1e-9  # that two independent blocks are taken for one block that was drawn twice
MAX_PILOT_BYTES = 256 << 20  # of the kept pilot runs, per data set
MIN_PILOT_RUNS = 1000  # if the scenario size does not fit; at least 2 (d + 1), so that the runs span all dimensions
MAX_VOID_RUNS = 1000  # runs per data set and stage of a verification whose test is void
BYTES_PER_NUMBER = 8
BYTES_PER_COUNT = 16  # the code of a cell and its count
PILOT_COPIES = 2  # the pilot runs exist twice while the region is computed
MAX_KEPT_TRAINING_BYTES = 32 << 20  # per data set; the selection keeps no more
ANNOUNCED_BYTES = 1 << 30  # a verification that needs more memory is announced
SUGGESTED_SECONDS = 600.0  # duration of the smaller budget that an announcement suggests
SMALLEST_SUGGESTED_RUNS = 1000  # per data set

PilotBlocks = dict[tuple[int, int], Array]  # the samples of pilot blocks, by (side, block)


class Pace(NamedTuple):
    """What a few probe runs show.

    Attributes
    ----------
    shape : tuple of int
        The shape (K, d) of one output.
    seconds_per_run : float or None
        The time per run in this process; None if it is not known.
    """

    shape: tuple[int, int]
    seconds_per_run: float | None


def measure_pace(source: SampleSource, planned_runs: int) -> Pace | None:
    """Call the mechanism with a few runs, to learn the shape of one output and the time per run.

    A mechanism with its own block size, or one that JAX compiles for each number of runs, is not called. A mechanism
    that fails for a few runs is not measured; its first block reports the failure. If the first call suggests a long
    verification, it is repeated with more runs, because a first call includes imports and other fixed costs.

    Parameters
    ----------
    source : SampleSource
        The source.
    planned_runs : int
        About how many runs each worker draws. It decides whether the speed has to be known more exactly.
    """
    if has_fixed_block(source.mechanism):
        return None
    runs = min(FIRST_PROBE_RUNS, source.block)
    for call in itertools.count():
        start = time.perf_counter()
        small = source._replace(block=runs)
        try:
            output = call_mechanism(small, "probe", 0, call)
            samples = validate_block(small, "probe", 0, call, output)
        except MechanismError as problem:
            if isinstance(problem.__cause__, StructuredOutput):
                raise
            return None
        seconds = time.perf_counter() - start
        shape = samples.shape[1], samples.shape[2]
        if is_jax(output):
            return Pace(shape, None)
        is_short = seconds / runs * planned_runs < MIN_ANNOUNCED_SECONDS
        most = fitting_block_size(source.block, samples[0].nbytes)
        is_measured = call > 0 and (seconds >= MIN_PROBE_SECONDS or runs >= most)
        if is_short or is_measured or seconds >= MAX_FIRST_PROBE_SECONDS:
            return Pace(shape, seconds / runs)
        if call > 0:
            runs = min(4 * runs, most)
    raise AssertionError("the loop ends by a return")


def probe_mechanism(
    source: SampleSource, progress: Progress | None = None, runs: int = 1
) -> tuple[SampleSource, PilotBlocks]:
    """Draw the first pilot blocks in this process, to learn the shape of an output, the device and the block size.

    The block size is halved until the output of a block has at most 64 MB. Outputs that are not arrays of one shape,
    the same for both data sets, are encoded.

    Parameters
    ----------
    source : SampleSource
        The source, with the block size that the settings or the mechanism state.
    progress : Progress, optional
        Announces a first block that takes long.
    runs : int
        How many runs of each data set are drawn at least.

    Returns
    -------
    tuple
        The source with its final block size, shape and device; and the pilot blocks that were drawn with that size.
    """
    try:
        return _draw_first_blocks(source, progress, runs)
    except MechanismError as problem:
        if not isinstance(problem.__cause__, StructuredOutput) or isinstance(source.mechanism, Encoded):
            raise
        return _draw_first_blocks(with_encoding(source), progress, runs)


def _draw_first_blocks(source: SampleSource, progress: Progress | None, runs: int) -> tuple[SampleSource, PilotBlocks]:
    start = time.perf_counter()
    output = call_mechanism(source, "pilot", 0, 0)
    samples = validate_block(source, "pilot", 0, 0, output)
    if progress is not None:
        progress.report_first_block(source.block, time.perf_counter() - start)
    steps, dimension = samples.shape[1:]
    block = fitting_block_size(source.block, steps * dimension * samples.dtype.itemsize, on_accelerator(samples))
    drawn: PilotBlocks = {(0, 0): _kept(samples)} if block == source.block else {}
    source = source._replace(block=block, shape=(steps, dimension), device=_device_name(output))
    for side in (0, 1):
        for number in range(-(-runs // block)):
            if (side, number) not in drawn:
                drawn[side, number] = _kept(draw_block(source, "pilot", side, number))
    return source, drawn


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


def _device_name(output: object) -> str:
    """Return the device of a JAX array, for example "gpu:0"; "cpu" for any other output."""
    if not is_jax(output):
        return "cpu"
    device = next(iter(output.devices()))  # type: ignore[attr-defined]
    return f"{device.platform}:{device.id}"


def pilot_runs(
    source: SampleSource, side: int, blocks: Iterable[int], drawn: PilotBlocks | None = None, keep: bool = False
) -> np.ndarray:
    """Return the runs of some pilot blocks of one data set; `drawn` blocks are not drawn again.

    With `keep`, new blocks are added to `drawn`.
    """
    runs = []
    for block in blocks:
        if drawn is not None and (side, block) in drawn:
            samples = drawn[side, block]
        else:
            samples = _kept(draw_block(source, "pilot", side, block))
            if keep and drawn is not None:
                drawn[side, block] = samples
        runs.append(samples)
    if len(runs) == 1:
        return runs[0]
    with enable_x64(runs[0]):
        return array_namespace(runs[0]).concatenate(runs)


def _kept(samples: Array) -> Array:
    """Return samples that stay the same: a copy, or a JAX array, which nothing can change and which stays in place."""
    return samples if is_jax(samples) else np.array(samples)


def behaviour_hash(drawn: PilotBlocks) -> str:
    """Return a hash of the first 64 pilot runs of each data set."""
    first_runs = []
    for wanted in (0, 1):
        samples = [copy_runs(drawn[side, block], PROBE_RUNS) for side, block in sorted(drawn) if side == wanted]
        first_runs.append(np.concatenate(samples)[:PROBE_RUNS])
    return fingerprint(first_runs)


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
    """Return a hash of the first runs of both data sets, by which equal runs of two verifications are recognised.

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


# The budget of a verification before it starts. The plan is a fixed function of the settings and of the shape of one
# output. The measured speed of the mechanism only decides what is announced, never what is drawn.


class RunPlan(NamedTuple):
    """How many runs a verification draws.

    Attributes
    ----------
    pilot_runs : int
        Pilot runs per data set.
    sides : tuple of int
        The data sets that need pilot runs.
    is_limited : bool
        Whether memory limits the pilot runs, so that the region has no joint scenario guarantee.
    """

    pilot_runs: int
    sides: tuple[int, ...]
    is_limited: bool = False

    def total(self, settings: Settings) -> int:
        """Return the number of runs of all stages and both data sets."""
        return 2 * (settings.select_runs + settings.test_runs) + len(self.sides) * self.pilot_runs


def plan_pilot(settings: Settings, shape: tuple[int, int], is_encoded: bool = False) -> RunPlan:
    """Return the number of pilot runs per data set, and the data sets that need them.

    The paper computes the ellipsoid of each step separately, from runs of the first data set. With `settings.joint`,
    one convex program covers all steps. Each data set then has the full number of runs, so that the region contains a
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
            f"{format_bytes(smallest * run_bytes)} per data set; expected at most {format_bytes(MAX_PILOT_BYTES)}; "
            "return fewer steps or coordinates, or raise dpverify.sampling.probe.MAX_PILOT_BYTES"
        )
    per_step = exact_scenario_size(dimension, settings.beta, settings.gamma)
    return RunPlan(per_step if per_step <= most else most, sides, True)


def shorten_settings(settings: Settings) -> Settings:
    """Return the settings of a verification whose test is void: as few runs as a report needs."""
    return settings.change(
        select_runs=min(settings.select_runs, MAX_VOID_RUNS),
        test_runs=min(settings.test_runs, MAX_VOID_RUNS),
        block=min(settings.block or MAX_VOID_RUNS, MAX_VOID_RUNS),
    )


def estimate_memory(settings: Settings, plan: RunPlan, shape: tuple[int, int], block: int) -> int:
    """Return about how many bytes a verification needs: pilot runs, training runs, a few blocks, and counts.

    A fine grid has one count for each occupied cell, so at most one for each run.
    """
    run_bytes = shape[0] * shape[1] * BYTES_PER_NUMBER
    pilot = PILOT_COPIES * len(plan.sides) * plan.pilot_runs * run_bytes
    training = 2 * min(settings.select_runs // 2 * run_bytes, max(MAX_KEPT_TRAINING_BYTES, block * run_bytes))
    return pilot + 2 * training + 4 * block * run_bytes + count_bytes(settings, shape)


def count_bytes(settings: Settings, shape: tuple[int, int]) -> int:
    """Return an upper bound of the memory for the counts of a grid; 0 for other partitions, which have few cells."""
    if settings.partition != "grid" or settings.resolution is None:
        return 0
    cells = settings.resolution ** min(shape[0] * shape[1], 1000)  # a larger exponent changes nothing
    return 2 * BYTES_PER_COUNT * min(cells, settings.test_runs)


def advise(settings: Settings, plan: RunPlan, memory: int, rate: float) -> str:
    """Return what an announcement adds to the expected time: cheaper ways if it is long, and the memory.

    Parameters
    ----------
    settings : Settings
        The settings.
    plan : RunPlan
        The number of pilot runs.
    memory : int
        Expected memory in bytes.
    rate : float
        Runs per second, over all workers.
    """
    per_side = (rate * SUGGESTED_SECONDS - len(plan.sides) * plan.pilot_runs) / 2
    share = per_side / (settings.select_runs + settings.test_runs)
    cheaper = []
    if 2 * (settings.select_runs + settings.test_runs) > rate * MIN_WARNED_SECONDS:
        cheaper = [] if settings.stop_early else ["stop_early=True ends as soon as a claim is refuted"]
        changes = []
        for name in ("test_runs", "select_runs"):
            runs = int(max(share * getattr(settings, name), SMALLEST_SUGGESTED_RUNS))
            runs = runs // 10 ** (len(str(runs)) - 1) * 10 ** (len(str(runs)) - 1)  # one significant digit
            if runs < getattr(settings, name):
                changes.append(f"{name}={runs}")
        cheaper += [f"a smaller budget: {', '.join(changes)}"] if changes else []
        cheaper += ["several processes: executor=N"]
    return "; ".join([*cheaper, f"memory about {format_bytes(memory)}"])

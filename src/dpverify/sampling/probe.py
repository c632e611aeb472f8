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
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from dpverify.errors import MechanismError
from dpverify.mechanisms.wrappers import has_fixed_block
from dpverify.sampling.blocks import (
    SampleSource,
    call_mechanism,
    copy_runs,
    draw_block,
    fitting_block_size,
    validate_block,
)
from dpverify.util.arrays import Array, array_namespace, enable_x64, is_jax, on_accelerator
from dpverify.util.hashing import fingerprint
from dpverify.util.progress import MIN_ANNOUNCED_SECONDS, Progress

FIRST_PROBE_RUNS = 4  # of the first call; later calls have four times as many
MIN_PROBE_SECONDS = 0.5  # a call of this duration shows the time per run
MAX_FIRST_PROBE_SECONDS = 30.0  # after a longer first call there is no second one
PROBE_RUNS = 64  # runs per data set that identify a mechanism
FALSE_REPEAT_PROBABILITY = 1e-9  # that two independent blocks are taken for one block that was drawn twice

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
        except MechanismError:
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
    source: SampleSource, both_sides: bool = False, progress: Progress | None = None, runs: int = PROBE_RUNS
) -> tuple[SampleSource, PilotBlocks]:
    """Draw the first pilot block in this process, to learn the shape of an output, the device and the block size.

    The block size is halved until the output of a block has at most 64 MB.

    Parameters
    ----------
    source : SampleSource
        The source, with the block size that the settings or the mechanism state.
    both_sides : bool
        Whether at least `runs` runs of each data set are drawn, for `behaviour_hash`.
    progress : Progress, optional
        Announces a first block that takes long.
    runs : int
        The number of runs per data set, if both data sets are drawn.

    Returns
    -------
    tuple
        The source with its final block size, shape and device; and the pilot blocks that were drawn with that size.
    """
    start = time.perf_counter()
    output = call_mechanism(source, "pilot", 0, 0)
    samples = validate_block(source, "pilot", 0, 0, output)
    if progress is not None:
        progress.report_first_block(source.block, time.perf_counter() - start)
    steps, dimension = samples.shape[1:]
    block = fitting_block_size(source.block, steps * dimension * samples.dtype.itemsize, on_accelerator(samples))
    drawn: PilotBlocks = {}
    if block == source.block:
        drawn[0, 0] = _kept(samples)
    source = source._replace(block=block, shape=(steps, dimension), device=_device_name(output))
    if both_sides:
        for side in (0, 1):
            for number in range(-(-runs // block)):
                if (side, number) not in drawn:
                    drawn[side, number] = _kept(draw_block(source, "pilot", side, number))
    return source, drawn


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
    frequencies = Counter(output.tobytes() for output in first).values()
    agreement = sum(frequency * frequency for frequency in frequencies) / len(first) ** 2
    return len(first) * math.log(agreement) < math.log(FALSE_REPEAT_PROBABILITY)

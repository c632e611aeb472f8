"""The first pilot blocks: they show the shape and the device of an output, and identify what a mechanism does."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable

import numpy as np

from dpverify.sampling.blocks import SampleSource, call_mechanism, draw_block, validate_block
from dpverify.util.arrays import is_jax
from dpverify.util.hashing import fingerprint
from dpverify.util.progress import Progress

MAX_BLOCK_BYTES = 64 << 20  # bytes of the output of one block
PROBE_RUNS = 64  # runs per data set that identify a mechanism
FALSE_REPEAT_PROBABILITY = 1e-9  # that two independent blocks are taken for one block that was drawn twice

PilotBlocks = dict[tuple[int, int], np.ndarray]  # the samples of pilot blocks, by (side, block)


def probe_mechanism(
    source: SampleSource, both_sides: bool = False, progress: Progress | None = None
) -> tuple[SampleSource, PilotBlocks]:
    """Draw the first pilot block in this process, to learn the shape of an output, the device and the block size.

    The block size is halved until the output of a block has at most 64 MB.

    Parameters
    ----------
    source : SampleSource
        The source, with the block size that the settings or the mechanism state.
    both_sides : bool
        Whether at least 64 runs of each data set are drawn, for `behaviour_hash`.
    progress : Progress, optional
        Announces a first block that takes long.

    Returns
    -------
    tuple
        The source with its final block size, shape and device; and the pilot blocks that were drawn with that size.
    """
    start = time.perf_counter()
    output = call_mechanism(source, "pilot", 0, 0)
    samples = validate_block(source, "pilot", 0, 0, output)
    if progress is not None:
        progress.look(source.block, time.perf_counter() - start)
    block = source.block
    while block > 1 and block * samples[0].nbytes > MAX_BLOCK_BYTES:
        block //= 2
    drawn: PilotBlocks = {}
    if block == source.block:
        drawn[0, 0] = np.array(samples)
    source = source._replace(block=block, shape=(samples.shape[1], samples.shape[2]), device=_device_name(output))
    if both_sides:
        for side in (0, 1):
            for number in range(-(-PROBE_RUNS // block)):
                if (side, number) not in drawn:
                    drawn[side, number] = np.array(draw_block(source, "pilot", side, number))
    return source, drawn


def _device_name(output: object) -> str:
    """Return the device of a JAX array, for example "gpu:0"; "cpu" for any other output."""
    if not is_jax(output):
        return "cpu"
    device = next(iter(output.devices()))  # type: ignore[attr-defined]
    return f"{device.platform}:{device.id}"


def pilot_runs(source: SampleSource, side: int, blocks: Iterable[int], drawn: PilotBlocks | None = None) -> np.ndarray:
    """Return the runs of some pilot blocks of one data set; `drawn` blocks are not drawn again."""
    runs = []
    for block in blocks:
        if drawn is not None and (side, block) in drawn:
            runs.append(drawn[side, block])
        else:
            runs.append(np.array(draw_block(source, "pilot", side, block)))
    return np.concatenate(runs)


def behaviour_hash(drawn: PilotBlocks) -> str:
    """Return a hash of the first 64 pilot runs of each data set."""
    first_runs = []
    for wanted in (0, 1):
        samples = [drawn[side, block] for side, block in sorted(drawn) if side == wanted]
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

"""The check that a mechanism is thread-safe, for verifications whose blocks are drawn by threads.

A mechanism that stores something on itself while it computes may give other runs when another thread calls it at the
same time, for example those of the other data set. Three checks look for this. Test blocks that threads drew are drawn
again alone; their counts must be the same. A call is interrupted at its lines, and another thread makes a whole call
meanwhile. Two threads draw blocks at the same time, which also shows races within compiled code.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from concurrent.futures import Executor
from types import FrameType
from typing import Any

import numpy as np

from dpverify.mechanisms.protocol import is_seeded
from dpverify.mechanisms.wrappers import has_fixed_block
from dpverify.sampling.accumulators import BlockSum
from dpverify.sampling.block_counts import BlockChecker, BlockCounts
from dpverify.sampling.blocks import SampleSource, draw_block
from dpverify.sampling.executors import WorkerPool

EXTREME_BLOCKS = 2  # test blocks with the smallest, and with the largest counts, that are drawn again
CONCURRENT_BLOCKS = 4  # per data set, that are drawn by two threads at the same time
CONCURRENT_SECONDS = 0.3  # fast mechanisms draw these blocks repeatedly for so long, and for so much processor time
MAX_CONCURRENT_SECONDS = 3.0  # a mechanism that mostly waits uses little processor time and ends here
MAX_CONCURRENT_RUNS = 512  # per such block, and compared of larger ones
FIRST_CONCURRENT_BLOCK = 1 << 20  # of the stage "probe", whose first blocks show the speed of a mechanism
BARRIER_SECONDS = 1.0  # a thread waits at most this long for the other one
SWITCH_SECONDS = 1e-5  # interval in which Python switches threads during the check
MAX_INTERRUPTED_LINES = 64
MAX_INTERRUPTION_SECONDS = 1.0  # for one call of the other thread, and for all of them; it may wait for a lock
UNINTERRUPTED = ("dpverify.sampling.", "dpverify.util.", "numpy.", "threading", "contextlib")  # modules


def threads_agree(
    source: SampleSource, runs: int, checker: BlockChecker, counts: tuple[BlockCounts, BlockCounts], pool: WorkerPool
) -> bool:
    """Return False if threads disturb each other; True for other executors and for mechanisms without seeds.

    Parameters
    ----------
    source : SampleSource
        The source.
    runs : int
        The number of test runs per data set; the surplus of the last block is dropped.
    checker : BlockChecker
        The statistic that gave the counts.
    counts : pair of BlockCounts
        The counts of the test blocks of each data set.
    pool : WorkerPool
        The workers that drew the test blocks.
    """
    if pool.executor is None or not pool.shares_memory or pool.number < 2 or not is_seeded(source.mechanism):
        return True
    return (
        blocks_repeat_alone(source, runs, checker, counts)
        and interrupted_blocks_repeat(source)
        and concurrent_blocks_repeat(source, pool.executor)
    )


def blocks_repeat_alone(
    source: SampleSource, runs: int, checker: BlockChecker, counts: tuple[BlockCounts, BlockCounts]
) -> bool:
    """Draw a few test blocks again, one after the other in this process; return whether their counts are the same.

    A block that another thread disturbed often has the smallest or the largest counts, so these are drawn again.
    """
    for side, checked in enumerate(counts):
        for index in extreme_blocks(checked):
            block = int(checked.blocks[index])
            samples = draw_block(source, "test", side, block)[: runs - block * source.block]
            recount = BlockSum(checker)
            recount.add(block, np.asarray(samples))
            if not np.array_equal(recount.result().counts[0], checked.counts[index]):
                return False
    return True


def extreme_blocks(counts: BlockCounts) -> list[int]:
    """Return the indices of the blocks with the smallest and the largest shares of the event that varies most."""
    if not len(counts.blocks):
        return []
    shares = counts.counts / counts.sizes[:, None]
    spread = np.ptp(shares, axis=0) / np.sqrt(shares.mean(0) * (1 - shares.mean(0)) + 1e-12)
    order = np.argsort(shares[:, spread.argmax()], kind="stable").tolist()
    return sorted({*order[:EXTREME_BLOCKS], *order[-EXTREME_BLOCKS:]})


def interrupted_blocks_repeat(source: SampleSource) -> bool:
    """Draw a block of each data set while calls for the other one interrupt it; return whether both are the same.

    The other call is made in a thread, before each line of the mechanism that was not reached before. Unlike a race of
    two threads, this does not depend on the load of the machine.
    """
    source = _with_small_blocks(source)
    alone = [_draw(source, side, 0) for side in (0, 1)]
    return all(_interrupted_block_repeats(source, side, alone) for side in (0, 1))


def _interrupted_block_repeats(source: SampleSource, side: int, alone: list[np.ndarray]) -> bool:
    reached: set[tuple[object, int]] = set()
    same: list[bool] = []
    threads: list[threading.Thread] = []
    end = time.monotonic() + MAX_INTERRUPTION_SECONDS

    def draw(number: int) -> None:
        try:
            same.append(np.array_equal(_draw(source, number, 0), alone[number], equal_nan=True))
        except Exception:  # alone, the same call did not fail
            same.append(False)

    def interrupt(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_globals.get("__name__", "").startswith(UNINTERRUPTED):
            return None
        line = frame.f_code, frame.f_lineno
        if event == "line" and line not in reached and len(reached) < MAX_INTERRUPTED_LINES and time.monotonic() < end:
            reached.add(line)
            sys.settrace(None)
            thread = threading.Thread(target=draw, args=(1 - side,), daemon=True)
            threads.append(thread)
            thread.start()
            thread.join(MAX_INTERRUPTION_SECONDS)
            sys.settrace(interrupt)
        return interrupt

    tracer = sys.gettrace()
    sys.settrace(interrupt)
    try:
        draw(side)
    finally:
        sys.settrace(tracer)
    for thread in threads:
        thread.join()
    return all(same)


def concurrent_blocks_repeat(source: SampleSource, executor: Executor) -> bool:
    """Draw blocks of both data sets alone, and then again in two threads; return whether they are always the same.

    The blocks are small, so that they can be repeated often.
    """
    source = _with_small_blocks(source)
    alone = {(side, block): _draw(source, side, block) for side in (0, 1) for block in range(CONCURRENT_BLOCKS)}
    barrier = threading.Barrier(2)

    def draw_again(side: int) -> bool:
        with contextlib.suppress(threading.BrokenBarrierError):  # the executor may be busy with other work
            barrier.wait(BARRIER_SECONDS)
        # On a busy machine two threads meet rarely per second, but as often per second of processor time.
        start, cpu_start = time.monotonic(), time.process_time()
        while True:
            for block in range(CONCURRENT_BLOCKS):
                if not np.array_equal(_draw(source, side, block), alone[side, block], equal_nan=True):
                    return False
            seconds = time.monotonic() - start
            cpu_seconds = time.process_time() - cpu_start  # of all threads of this process
            if min(seconds, cpu_seconds) >= CONCURRENT_SECONDS or seconds >= MAX_CONCURRENT_SECONDS:
                return True

    interval = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        futures = [executor.submit(draw_again, side) for side in (0, 1)]
        return all([future.result() for future in futures])
    finally:
        sys.setswitchinterval(interval)


def _with_small_blocks(source: SampleSource) -> SampleSource:
    """Return the source with small blocks, unless the mechanism has its own block size or is compiled for each size."""
    if has_fixed_block(source.mechanism):
        return source
    return source._replace(block=min(source.block, MAX_CONCURRENT_RUNS))


def _draw(source: SampleSource, side: int, block: int) -> np.ndarray:
    """Draw a block of the stage "probe" whose stream no other part uses; return some of its runs on the host."""
    return np.array(draw_block(source, "probe", side, FIRST_CONCURRENT_BLOCK + block)[:MAX_CONCURRENT_RUNS])

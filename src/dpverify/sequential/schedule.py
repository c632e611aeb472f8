"""The schedule of a verification that may stop early: batches, refits and looks, and the parts of alpha.

Nothing here depends on the number of test runs, except the end of a budget. So a verification can be continued with
more test runs: it repeats the same batches up to the end of its first budget, and goes on from there.

| part of alpha | what it pays for |
|---|---|
| `EARLY_SHARE` | the wealth: refutation at any time, and the confidence sequence of epsilon |
| 1 - `EARLY_SHARE` | the exact test of the selected event, once, at the end of the first budget |

The upper bounds have an alpha of their own, as always: `BUDGET_LOOK_SHARE` of it for the end of the first budget, and
the rest for the other looks, of which the next one always receives half of what is left.
"""

from __future__ import annotations

EARLY_SHARE = 0.2
BUDGET_LOOK_SHARE = 0.4
FIRST_RUNS = 16  # training only: without earlier runs there is no event
MIN_BATCH = 4
BATCH_SHARE = 1 / 16  # of the runs so far
BLOCKS_PER_BATCH = 8  # so that several workers can share a batch
SELECTION_RATIO = 4  # between the runs of two selections
MIN_SELECTION_RUNS = 128
PLANNED_RATIO = 4  # test runs that a selection plans for, in selection runs


def batch_size(runs: int, block: int | None = None) -> int:
    """Return the size of the batch after so many runs; a fixed block is never divided.

    Examples
    --------
    >>> batch_size(16), batch_size(1600), batch_size(16, block=64)
    (4, 100, 64)
    """
    return max(MIN_BATCH, int(runs * BATCH_SHARE), block or 1)


def block_size(batch: int, largest: int) -> int:
    """Return the block size of a batch: the largest power of two with about `BLOCKS_PER_BATCH` blocks.

    Examples
    --------
    >>> block_size(4, 4096), block_size(1000, 4096)
    (4, 64)
    """
    size = MIN_BATCH
    while 2 * size * BLOCKS_PER_BATCH <= batch:
        size *= 2
    return min(size, largest)


def selection_sizes(select_runs: int) -> list[int]:
    """Return after how many runs events are selected; the last selection freezes the event of the exact test.

    Examples
    --------
    >>> selection_sizes(50_000)
    [195, 781, 3125, 12500, 50000]
    """
    sizes = [select_runs]
    while sizes[-1] // SELECTION_RATIO >= MIN_SELECTION_RUNS:
        sizes.append(sizes[-1] // SELECTION_RATIO)
    return sizes[::-1]


def look_share(number: int) -> float:
    """Return the share of the upper bounds' alpha that look `number`, from 1 up, receives before the budget ends.

    Examples
    --------
    >>> look_share(1), look_share(2)
    (0.3, 0.15)
    """
    return (1 - BUDGET_LOOK_SHARE) * 0.5**number

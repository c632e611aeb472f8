"""The pilot runs: the region around them (paper, Algorithm 3), and a few runs for the picture."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dpverify.events.region import Region, high_likely_set
from dpverify.sampling.context import RunContext
from dpverify.sampling.probe import pilot_runs
from dpverify.util.joined_rows import join_rows


def read_region(record: Mapping[str, object]) -> Region:
    """Return the region that the record of an earlier start of a run holds."""
    region = record["region"]
    if not isinstance(region, Region):
        raise TypeError("region: expected a region")
    return region


def make_region(pilot: list[np.ndarray], is_limited: bool = False) -> tuple[Region, np.ndarray, list[np.ndarray]]:
    """Return the region around the finite pilot runs, these runs, and all pilot runs.

    The arrays of `pilot` are removed from the list, and the returned runs share memory where possible, because the
    pilot runs of long outputs are large.

    Parameters
    ----------
    pilot : list of numpy.ndarray
        The pilot runs of one or both data sets.
    is_limited : bool
        Whether memory limits the pilot runs. The region then has no scenario guarantee, so that ellipsoids of nearly
        the smallest volume are sufficient.
    """
    lengths = [len(runs) for runs in pilot]
    joined = join_rows(pilot)
    pilot.clear()
    runs = np.split(joined, np.cumsum(lengths)[:-1])
    is_finite = np.isfinite(joined).all(axis=(1, 2))
    finite = joined if is_finite.all() else joined[is_finite]
    if not len(finite):  # any region is valid if no run is finite: all runs are then one event
        finite = np.zeros((1, *joined.shape[1:]))
    return high_likely_set(finite, approximate=is_limited), finite, runs


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

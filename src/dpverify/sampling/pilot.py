"""The pilot runs: how many are drawn, the region around them (paper, Algorithm 3), and a few runs for the picture."""

from __future__ import annotations

import numpy as np

from dpverify.events.region import Region, exact_scenario_size, high_likely_set, scenario_size
from dpverify.sampling.blocks import SampleSource
from dpverify.sampling.context import RunContext
from dpverify.sampling.probe import pilot_runs
from dpverify.settings import Settings


def plan_pilot(settings: Settings, source: SampleSource) -> tuple[int, tuple[int, ...]]:
    """Return the number of pilot runs per data set, and the data sets that need them.

    The paper computes the ellipsoid of each step separately, from runs of the first data set. With `settings.joint`,
    one convex program covers all steps. Each data set then has the full number of runs, so that the region contains a
    mass of 1 - beta of both output distributions (docs/method.md, section 4.3).
    """
    assert source.shape is not None
    steps, dimension = source.shape
    if settings.joint:
        return exact_scenario_size(dimension, settings.beta, settings.gamma, steps), (0, 1)
    return scenario_size(dimension, settings.beta, settings.gamma), (0,)


def make_region(pilot: list[np.ndarray]) -> tuple[Region, np.ndarray]:
    """Return the region around the finite pilot runs, and these runs."""
    runs = np.concatenate(pilot)
    finite = runs[np.isfinite(runs).all(axis=(1, 2))]
    if not len(finite):  # any region is valid if no run is finite: all runs are then one event
        finite = np.zeros((1, *runs.shape[1:]))
    return high_likely_set(finite), finite


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
        second = pilot_runs(context.source, 1, blocks, context.pilot_blocks)
    return _finite_runs(first)[:number], _finite_runs(second)[:number]


def _finite_runs(runs: np.ndarray) -> np.ndarray:
    return runs[np.isfinite(runs).all(axis=(1, 2))]

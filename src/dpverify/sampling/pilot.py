"""TODO."""

from __future__ import annotations

import numpy as np

from dpverify.events.region import Region, exact_scenario_size, high_likely_set, scenario_size
from dpverify.sampling.blocks import SampleSource
from dpverify.settings import Settings


def plan_pilot(settings: Settings, source: SampleSource) -> tuple[int, tuple[int, ...]]:
    """How many pilot runs a side, and of which sides.

    The paper takes each step's ellipsoid on its own, from the first side. Ours is one program over all steps; every
    side has the full number, so the region holds 1 - beta of either law (docs/method.md, section 4.3).
    """
    assert source.shape is not None
    steps, dimension = source.shape
    if settings.joint:
        return exact_scenario_size(dimension, settings.beta, settings.gamma, steps), (0, 1)
    return scenario_size(dimension, settings.beta, settings.gamma), (0,)


def make_region(pilot: list[np.ndarray]) -> tuple[Region, np.ndarray]:
    """The region around the finite pilot runs, and those runs."""
    points = np.concatenate(pilot)
    finite = points[np.isfinite(points).all(axis=(1, 2))]
    if not len(finite):  # nothing but NaN: any region will do, all of it is one event
        finite = np.zeros((1, *points.shape[1:]))
    return high_likely_set(finite), finite

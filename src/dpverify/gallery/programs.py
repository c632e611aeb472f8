"""Two public programs, run as they are: Location Guard in Node.js, and the consistent tree of OpenDP.

Neither is part of dpverify. A short driver reads the requests and calls the installed program.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path

import numpy as np

from dpverify.adapters.program import program
from dpverify.gallery.entry import Case, Entry, Runs, Truth
from dpverify.gallery.location import SMALLEST_DISTANCE
from dpverify.stats.claims import pure
from dpverify.util.arrays import Array

DRIVERS = Path(__file__).parent / "drivers"
LOCATION_GUARD = "LOCATION_GUARD"  # the environment variable with the folder of the clone
EARTH_RADIUS = 6378137.0  # metres, as Location Guard has it
EPSILON = 0.004  # per metre
FIRST = np.array([48.8566, 2.3522])  # latitude and longitude in degrees
SECOND = FIRST + [np.degrees(250.0 / EARTH_RADIUS), 0.0]  # 250 m to the north
TREE_FIRST, TREE_SECOND = np.array([4.0, 2, 0, 1, 3, 5, 2, 1]), np.array([5.0, 2, 0, 1, 3, 5, 2, 1])


def location_guard_file() -> Path:
    """Return the file of the clone that the environment variable names."""
    return Path(os.environ.get(LOCATION_GUARD, LOCATION_GUARD)) / "src" / "js" / "common" / "laplace.js"


def location_guard_missing() -> str | None:
    """Return what is missing to run Location Guard, or None."""
    if shutil.which("node") is None:
        return "Node.js is not installed; install it, and clone github.com/chatziko/location-guard"
    if not location_guard_file().is_file():
        return (
            f"the environment variable {LOCATION_GUARD} names no clone of Location Guard; run git clone "
            f"https://github.com/chatziko/location-guard and set {LOCATION_GUARD} to its folder"
        )
    return None


def opendp_missing() -> str | None:
    """Return what is missing to run OpenDP, or None."""
    if importlib.util.find_spec("opendp") is None:
        return "the package opendp is not installed; run pip install opendp"
    return None


def closeness_to_rings(samples: Array) -> Array:
    """Return how close reported positions are to the rings that a rounded Lambert function leaves around FIRST."""
    latitude, longitude = np.radians(np.asarray(samples)[:, 0]).T
    start = np.radians(FIRST)
    half_latitude, half_longitude = np.sin((latitude - start[0]) / 2), np.sin((longitude - start[1]) / 2)
    chord = np.sqrt(half_latitude**2 + np.cos(latitude) * np.cos(start[0]) * half_longitude**2)
    radius = EPSILON * 1e6 * EARTH_RADIUS * 2 * np.arcsin(chord)
    return -np.log10(np.abs(radius - np.round(radius)) + SMALLEST_DISTANCE)


def tree_bound() -> Truth:
    """Return the claim of OpenDP's own map: 4 levels at scale 4 cost 1; the discrete noise makes it nearly exact."""
    return Truth(1.0, None, "OpenDP's map", is_exact=False)


GUARD = Entry(
    name="location-guard",
    title="Location Guard, the browser extension, as it is",
    source="Location Guard (github.com/chatziko/location-guard), which implements Andrés et al., 2013",
    what=(
        "The file laplace.js of the extension runs in Node.js. Its function addNoise reports a position near Paris "
        "with epsilon 0.004 per metre. It uses Math.random and cannot be seeded, so the numbers differ from run to "
        "run."
    ),
    neighbours="Two positions at 250 m; the claim is eps d = 1.",
    why=(
        "The function LambertW returns its result rounded to six decimals. The reported positions lie on rings "
        "around the true position, as explained under the planar Laplace mechanism, and the distance to a candidate "
        "position tells whether it is the true one. With events that do not know the candidate the claim is not "
        "refuted."
    ),
    cases=(
        Case(
            "location-guard",
            "with the score that knows the candidate",
            program(["node", DRIVERS / "location_guard.js", location_guard_file(), str(EPSILON)], 2, seeded=False),
            FIRST,
            SECOND,
            pure(1.0),
            role="implemented",
            events=closeness_to_rings,
            full=Runs(20_000, 100_000),
            quick=Runs(5_000, 10_000),
        ),
        Case(
            "location-guard-auto",
            "with the library's own events",
            program(["node", DRIVERS / "location_guard.js", location_guard_file(), str(EPSILON)], 2, seeded=False),
            FIRST,
            SECOND,
            pure(1.0),
            role="implemented",
            full=Runs(50_000, 200_000),
            quick=Runs(5_000, 20_000),
        ),
    ),
    requirement=location_guard_missing,
)
TREE = Entry(
    name="opendp-tree",
    title="The consistent binary tree of OpenDP, as it is",
    source="OpenDP (opendp.org), after Hay et al., 2010 and Honaker, 2015",
    what=(
        "OpenDP's Python package sums 8 counts over a binary tree, adds discrete Laplace noise of scale 4 to all 15 "
        "nodes, and returns consistent counts. OpenDP cannot be seeded, so the numbers differ from run to run."
    ),
    neighbours="One count changes by 1. OpenDP's own map states epsilon 1 for it.",
    why=(
        "A count is in the nodes of 4 levels, and each costs 1/4. The consistent counts are a weighted average of "
        "the nodes and hide a part of their noise, so the loss of the release is below the claim, which stands."
    ),
    cases=(
        Case(
            "opendp-tree",
            "scale 4, claim 1",
            program([sys.executable, DRIVERS / "opendp_tree.py", "4.0"], 8, timeout=600, seeded=False),
            TREE_FIRST,
            TREE_SECOND,
            pure(1.0),
            tree_bound,
            role="implemented",
            full=Runs(20_000, 40_000),
            quick=Runs(2_000, 4_000),
        ),
    ),
    requirement=opendp_missing,
)

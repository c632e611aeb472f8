"""Location Guard, the browser extension, as it is.

Location Guard (github.com/chatziko/location-guard), which implements Andrés et al., 2013.

The file laplace.js of the extension runs in Node.js. Its function addNoise reports a position near Paris with epsilon
0.004 per metre. It uses Math.random and cannot be seeded, so the numbers differ from run to run.

Neighbours: Two positions at 250 m; the claim is eps d = 1.

Why: The function LambertW returns its result rounded to six decimals. The reported positions lie on rings around the
true position, as explained under the planar Laplace mechanism, and the distance to a candidate position tells whether
it is the true one. With events that do not know the candidate the claim is not refuted.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np

from dpverify import claims, program
from gallery.entry import Case, Runs, make_entry
from gallery.planar_laplace import SMALLEST_DISTANCE

DRIVERS = Path(__file__).parent / "drivers"

LOCATION_GUARD = "LOCATION_GUARD"  # the environment variable with the folder of the clone

EARTH_RADIUS = 6378137.0  # metres, as Location Guard has it

EPSILON = 0.004  # per metre

FIRST = np.array([48.8566, 2.3522])  # latitude and longitude in degrees

SECOND = FIRST + [np.degrees(250.0 / EARTH_RADIUS), 0.0]  # 250 m to the north


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


def closeness_to_rings(samples: np.ndarray) -> np.ndarray:
    """Return how close reported positions are to the rings that a rounded Lambert function leaves around FIRST."""
    latitude, longitude = np.radians(np.asarray(samples)[:, 0]).T
    start = np.radians(FIRST)
    half_latitude, half_longitude = np.sin((latitude - start[0]) / 2), np.sin((longitude - start[1]) / 2)
    chord = np.sqrt(half_latitude**2 + np.cos(latitude) * np.cos(start[0]) * half_longitude**2)
    radius = EPSILON * 1e6 * EARTH_RADIUS * 2 * np.arcsin(chord)
    return -np.log10(np.abs(radius - np.round(radius)) + SMALLEST_DISTANCE)


ENTRY = make_entry(
    __name__,
    __doc__,
    Case(
        "location-guard",
        "with the score that knows the candidate",
        program(["node", DRIVERS / "location_guard.js", location_guard_file(), str(EPSILON)], 2, seeded=False),
        (FIRST, SECOND),
        claims.pure(1.0),
        role="implemented",
        events=closeness_to_rings,
        full=Runs(20_000, 100_000),
        quick=Runs(5_000, 10_000),
    ),
    Case(
        "location-guard-auto",
        "with the library's own events",
        program(["node", DRIVERS / "location_guard.js", location_guard_file(), str(EPSILON)], 2, seeded=False),
        (FIRST, SECOND),
        claims.pure(1.0),
        role="implemented",
        full=Runs(50_000, 200_000),
        quick=Runs(5_000, 20_000),
    ),
    requirement=location_guard_missing,
)

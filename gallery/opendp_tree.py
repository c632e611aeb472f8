"""The consistent binary tree of OpenDP, as it is.

OpenDP (opendp.org), after Hay et al., 2010 and Honaker, 2015.

OpenDP's Python package sums 8 counts over a binary tree, adds discrete Laplace noise of scale 4 to all 15 nodes, and
returns consistent counts. OpenDP cannot be seeded, so the numbers differ from run to run.

Neighbours: One count changes by 1. OpenDP's own map states epsilon 1 for it.

Why: A count is in the nodes of 4 levels, and each costs 1/4. The consistent counts are a weighted average of the nodes
and hide a part of their noise, so the loss of the release is below the claim, which holds.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np

from dpverify import claims, program
from gallery.entry import Case, Runs, Truth, make_entry

DRIVERS = Path(__file__).parent / "drivers"


TREE_FIRST, TREE_SECOND = np.array([4.0, 2, 0, 1, 3, 5, 2, 1]), np.array([5.0, 2, 0, 1, 3, 5, 2, 1])


def opendp_missing() -> str | None:
    """Return what is missing to run OpenDP, or None."""
    if importlib.util.find_spec("opendp") is None:
        return "the package opendp is not installed; run pip install opendp"
    return None


def tree_bound() -> Truth:
    """Return the claim of OpenDP's own map: 4 levels at scale 4 cost 1; the discrete noise makes it nearly exact."""
    return Truth(1.0, None, "OpenDP's map", is_exact=False)


ENTRY = make_entry(
    __name__,
    __doc__,
    Case(
        "opendp-tree",
        "scale 4, claim 1",
        program([sys.executable, DRIVERS / "opendp_tree.py", "4.0"], 8, timeout=600, seeded=False),
        (TREE_FIRST, TREE_SECOND),
        claims.pure(1.0),
        tree_bound,
        role="implemented",
        full=Runs(20_000, 40_000),
        quick=Runs(2_000, 4_000),
    ),
    requirement=opendp_missing,
)

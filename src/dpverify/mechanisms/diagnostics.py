"""Diagnostics: findings about a mechanism or a pair of data sets that a reader of the report must know.

Each diagnostic is a member of an enum. Code compares members; the value of a member is the sentence that people read.
A voiding diagnostic means that the test answers no question: the verdict of the report is then `NO_ANSWER`.
"""

from __future__ import annotations

import enum


class Diagnostic(enum.Enum):
    """A finding about the mechanism or the data sets; the value is the sentence that is printed."""

    SAME_DATA = "both data sets are equal, so no event can distinguish them; pass two different data sets"
    CHANGED_DATA = (
        "the mechanism modifies its input data, so later runs depend on earlier ones; let it work on a copy of the data"
    )
    UNREPEATABLE_BLOCK = (
        "the mechanism gave two different outputs for the same block and the same generator; draw all noise from the "
        "generator that is passed in and keep no state, or set seeded = False on a mechanism that cannot be seeded"
    )
    REPEATED_BLOCKS = (
        "different blocks contain the same outputs, so the mechanism ignores its generator; draw all noise from the "
        "generator that is passed in"
    )
    IDENTICAL_OUTPUTS = "every run of both data sets gave the same output"
    DETERMINISTIC_OUTPUTS = (
        "all pilot runs of a data set gave one output, and the outputs of the two data sets differ; if the mechanism is "
        "deterministic, it violates every epsilon"
    )
    UNSEEDED = "the mechanism cannot be seeded, so the numbers of this report cannot be reproduced exactly"
    NO_DENSITY = "output values repeat, so the output has no density; the stated Lipschitz constant was not used"
    LIPSCHITZ_DIMENSION = "the bound over all events is informative in one or two dimensions only; the stated Lipschitz constant was not used"

    @property
    def voids(self) -> bool:
        """Whether this finding makes the test meaningless."""
        return self in VOIDING


VOIDING = (
    Diagnostic.SAME_DATA,
    Diagnostic.CHANGED_DATA,
    Diagnostic.UNREPEATABLE_BLOCK,
    Diagnostic.REPEATED_BLOCKS,
)

# Sentences of earlier reports (schema 1), still compared by text until the report stores codes.
SAME_DATA = "both data sets are the same: nothing could tell them apart"
CHANGED_DATA = (
    "the mechanism changes its data: a run finds what the one before has left of it, and nothing said here can be "
    "trusted; let it work on a copy"
)
TWO_ANSWERS = (
    "asked twice for one block, the mechanism gave two answers, so nothing said here can be trusted: draw from the "
    "generator that is handed in and remember nothing, or say mechanism.seeded = False where noise can't be seeded"
)
REPEATED_BLOCKS = (
    "blocks of runs repeat each other: the mechanism ignores its generator, and nothing said here can be trusted; draw "
    "from the one that is handed in"
)
VOIDING_DIAGNOSTICS = (SAME_DATA, CHANGED_DATA, TWO_ANSWERS, REPEATED_BLOCKS)

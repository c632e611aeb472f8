"""TODO."""

from __future__ import annotations

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


VOIDING_DIAGNOSTICS = (
    SAME_DATA,
    CHANGED_DATA,
    TWO_ANSWERS,
    REPEATED_BLOCKS,
)  # what a verification says beside these answers no question

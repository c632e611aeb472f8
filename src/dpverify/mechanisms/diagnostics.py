"""Diagnostics: findings about a mechanism or a pair of data sets that a reader of the report must know.

Each diagnostic is a member of an enum. Code compares members; the value of a member is the sentence that people read.
A voiding diagnostic means that the test answers no question: the verdict of the report is then `NO_ANSWER`.
"""

from __future__ import annotations

import enum


class Diagnostic(enum.Enum):
    """A finding about the mechanism or the data sets; the value is the sentence that is printed.

    Attributes
    ----------
    SAME_DATA
        Both data sets are equal. Voiding.
    CHANGED_DATA
        The mechanism modifies its input data. Voiding.
    UNREPEATABLE_BLOCK
        A seeded mechanism gave two different outputs for the same block and generator. Voiding.
    REPEATED_BLOCKS
        Different blocks contain the same outputs. Voiding.
    DEPENDENT_RUNS
        Counts of an event vary more from block to block than independent runs allow. Voiding.
    IDENTICAL_OUTPUTS
        Every run of both data sets gave the same output.
    DETERMINISTIC_OUTPUTS
        Each data set gave one constant output in the pilot runs, and the two outputs differ.
    UNSEEDED
        The mechanism cannot be seeded.
    NO_DENSITY
        Output values repeat, so a stated Lipschitz constant of the log-density was not used.
    LIPSCHITZ_DIMENSION
        The output has more than two dimensions, so a stated Lipschitz constant was not used.

    Examples
    --------
    >>> from dpverify.mechanisms.diagnostics import Diagnostic
    >>> Diagnostic.SAME_DATA.voids, Diagnostic.UNSEEDED.voids
    (True, False)
    """

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
    DEPENDENT_RUNS = (
        "the number of runs in an event varies more from block to block than independent runs allow; draw new noise "
        "for every run, and share no random number between the runs of one call"
    )
    IDENTICAL_OUTPUTS = "every run of both data sets gave the same output"
    DETERMINISTIC_OUTPUTS = (
        "all pilot runs of a data set gave one output, and the outputs of the two data sets differ; if the mechanism "
        "is deterministic, it violates every epsilon"
    )
    UNSEEDED = "the mechanism cannot be seeded, so the numbers of this report cannot be reproduced exactly"
    NO_DENSITY = "output values repeat, so the output has no density; the stated Lipschitz constant was not used"
    LIPSCHITZ_DIMENSION = (
        "the bound over all events is informative in one or two dimensions only; the stated Lipschitz constant was not "
        "used"
    )

    @property
    def voids(self) -> bool:
        """Whether the test answers no question because of this finding."""
        return self in VOIDING


VOIDING = (
    Diagnostic.SAME_DATA,
    Diagnostic.CHANGED_DATA,
    Diagnostic.UNREPEATABLE_BLOCK,
    Diagnostic.REPEATED_BLOCKS,
    Diagnostic.DEPENDENT_RUNS,
)

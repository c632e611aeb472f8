"""The privacy of every prefix of an output, for one pair of data sets: the bounds, as text, JSON and pages."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from dpverify.timeline import documents, texts
from dpverify.timeline.bounds import PrefixBounds
from dpverify.util.files import write_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False, repr=False)
class PrivacyOverTime(PrefixBounds):
    """The privacy of every prefix of an output: how much the steps 0 to k reveal together, for every k.

    The lower bounds hold over all events and for all steps together, with confidence 1 - alpha. The upper bounds hold
    over unions of the cells of one partition per prefix, for all steps together, with confidence 1 - alpha. Steps count
    from 0. With `stop_early` all of this holds for the look that ended the run. `print` shows a table.

    Attributes
    ----------
    name : str
        The name of the mechanism.
    record : str
        The name of the record in which the two data sets differ; "" without a name.
    delta : float
        The delta at which epsilon is bounded.
    claim : Claim or None
        The claim.
    events : PrefixEvents
        The selected event of every prefix, which was fixed before the test runs.
    counts : ndarray of shape (2, K, E + 1)
        Test runs of each data set in the level sets of every prefix.
    shape : tuple of int
        Steps K and dimensions of one output.
    settings : Settings
        The settings.
    seeded : bool
        Whether the mechanism can be seeded.
    diagnostics : tuple of Diagnostic
        Findings that a reader must know.
    truth : ndarray of shape (K,) or None
        The exact epsilon of every prefix if the mechanism knows it (its method `truth`), otherwise None.
    run : dict
        Time, versions, device and workers; not part of the result.

    Examples
    --------
    >>> import numpy as np
    >>> import dpverify as dpv
    >>> def noisy_stream(data, runs, rng):  # every output is the current reading with Laplace noise
    ...     return data + rng.laplace(size=(runs, len(data), 1))
    >>> first, second = np.zeros((4, 1)), np.array([[0.0], [0.0], [1.0], [1.0]])
    >>> over_time = dpv.privacy_over_time(noisy_stream, first, second, select_runs=4000, test_runs=20_000)
    >>> over_time.start, bool(over_time.epsilon_lower[3] > 1.0)
    (2, True)
    """

    def to_json(self, path: str | Path | TextIO) -> None:
        """Write the result as JSON to a file, or to a stream that is open for text."""
        documents.write_result(self, {"steps": self.rows()}, path)

    @classmethod
    def from_json(cls, path: str | Path) -> PrivacyOverTime:
        """Read a result that `to_json` wrote. All bounds are computed from the counts in the file."""
        return documents.read_result(cls, path)

    def to_html(self, path: str | Path) -> None:
        """Write the result as one self-contained HTML page (needs `dpverify[report]`)."""
        write_file(path, documents.load_pages().curve_page(self))

    def plot(self) -> Figure:
        """Return a figure of the bounds of every step (needs `dpverify[report]`)."""
        return documents.load_pages().curve_plot(self)

    def __str__(self) -> str:
        """Return the result as plain text."""
        return texts.curve_text(self)

    def __repr__(self) -> str:
        """Return name, number of steps and the final bound."""
        bound = "no answer" if self.voiding else f"epsilon >= {math.floor(self.final * 1e4) / 1e4:g}"
        return f"<PrivacyOverTime {self.name}: {self.steps} steps, {bound}>"

"""The pictures of outputs, and the figures of many verifications."""

import numpy as np
import pytest
from matplotlib.patches import StepPatch

import dpverify as dpv
from dpverify.mechanisms.diagnostics import VOIDING
from dpverify.render import Bounds, draw_bounds, heat_map
from dpverify.render.outputs import draw_outputs
from mechanisms import gaussian_trajectory


def histogram_sums(drawing):
    """The sums of the two outlined histograms of a figure, in per cent."""
    outlines = [
        patch for patch in drawing.figure.axes[0].patches if isinstance(patch, StepPatch) and not patch.get_fill()
    ]
    return [float(patch.get_data().values.sum()) for patch in outlines]


@pytest.mark.parametrize("steps", [1, 3], ids=["one coordinate", "a score of all coordinates"])
def test_histograms_are_fine_and_of_all_test_runs(steps):
    report = dpv.verify(
        gaussian_trajectory, np.zeros(steps), np.full(steps, 0.7), 0.2, select_runs=2000, test_runs=20_000
    )
    drawing = draw_outputs(report)[0]
    histogram = report.picture["histogram"]
    assert histogram["counts"].sum(axis=1).tolist() == [20_000, 20_000]
    assert histogram["edges"].size > 90
    assert histogram_sums(drawing) == pytest.approx([100, 100], abs=0.5)  # a few runs are beyond the axis
    assert len(drawing.readout) == histogram["edges"].size - 1
    assert report.witness.text in drawing.description
    report.picture.pop("histogram")
    assert "some runs" in draw_outputs(report)[0].description  # a verification that stops early


def test_bars_are_those_of_all_test_runs():
    def coin(data, runs, rng):
        return (rng.random((runs, 1)) < data).astype(float)

    report = dpv.verify(coin, 0.25, 0.5, 0.1, select_runs=2000, test_runs=20_000)
    heights = [bar.get_height() for bar in draw_outputs(report)[0].figure.axes[0].patches]
    shares = 100 * report.picture["histogram"]["counts"] / 20_000
    assert shares.shape == (2, 2)
    assert all(any(height == pytest.approx(share) for height in heights) for share in shares.ravel())


def test_every_voiding_diagnostic_has_a_cause_and_a_remedy():
    assert all(diagnostic.cause and diagnostic.remedy for diagnostic in VOIDING)


def test_a_void_test_is_a_hollow_mark_without_a_number():
    rows = [Bounds("good", 0.5, 1.0), Bounds("bad", float("nan"), float("nan"))]
    for each in (rows, [row._replace(position=x) for row, x in zip(rows, (1.0, 2.0), strict=True)]):
        drawing = draw_bounds(each, "two", claim=0.4)
        hollow = [line for line in drawing.figure.axes[0].lines if line.get_fillstyle() == "none"]
        assert len(hollow) == 1
        assert "No answer: bad." in drawing.description
        assert [text for *_, text in drawing.readout] == [
            "good: ε at least 0.5, over the cells at most 1",
            "bad: no answer",
        ]
        assert {key.mark for key in drawing.keys} >= {"hollow"}


def test_a_heat_map_has_numbers_a_scale_and_red_beyond_the_claim():
    values = np.array([[0.0, 0.25, 2.0], [np.nan, np.nan, np.nan]])
    drawing = heat_map(["good", "bad"], ["0", "1", "2"], values, "a map", claim=1.0)
    axes, scale = drawing.figure.axes
    assert [text.get_text() for text in axes.texts if text.get_text()[0].isdigit()] == ["0", "0.25", "2"]
    assert [text.get_text() for text in scale.get_yticklabels()] == ["0", "2"]
    assert "No answer: bad. The largest epsilon is 2, for good at 2." in drawing.description
    assert "above the claimed ε = 1" in {key.text for key in drawing.keys}
    many = heat_map(["good"], list(map(str, range(40))), np.ones((1, 40)), "a map")
    assert [text for text in many.figure.axes[0].texts if text.get_text()[0].isdigit()] == []

"""The pictures of outputs, and the figures of many verifications."""

import numpy as np
import pytest
from matplotlib.patches import StepPatch

import dpverify as dpv
from dpverify.mechanisms.diagnostics import VOIDING
from dpverify.render import Bounds, complete_figure, draw_bounds, heat_map
from dpverify.render.figures import MAX_LABELS
from dpverify.render.outputs import draw_outputs
from dpverify.render.pages import attribution_figure
from mechanisms import ONE, ZERO, gaussian_trajectory, laplace


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


@pytest.fixture(scope="module")
def report():
    return dpv.verify(laplace, ZERO, ONE, 0.5, select_runs=1000, test_runs=2000)


@pytest.mark.parametrize(
    ("kind", "words"),
    [("outputs", "witness"), ("delta", "δ"), ("p-value", "p-value"), ("errors", "Errors of an observer")],
)
def test_a_report_is_plotted(report, kind, words, tmp_path):
    figure = report.plot(kind)
    legends = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    assert words in " ".join([figure.get_suptitle(), *legends])
    figure.savefig(tmp_path / "figure.pdf")
    assert (tmp_path / "figure.pdf").stat().st_size > 1000


def test_an_unknown_kind_is_refused(report):
    with pytest.raises(dpv.InputError, match="found kind 'histogram'; expected outputs, delta, p-value, errors"):
        report.plot("histogram")


def test_many_rows_have_no_names_and_a_far_or_infinite_bound_is_not_drawn():
    rows = [Bounds(f"row {number}", 0.1, (100.0, float("inf"))[number % 2]) for number in range(MAX_LABELS + 1)]
    figure = complete_figure(draw_bounds(rows, "many"))
    figure.draw_without_rendering()
    (axes,) = figure.axes
    assert not axes.get_yticks().size
    assert all(line.get_marker() == "o" for line in axes.lines)


def test_bounds_against_a_position_name_what_is_marked():
    rows = [Bounds(str(x), 1 / x, 2 / x, x, exact=1.2 / x) for x in (0.1, 1.0, 10.0)]
    drawing = draw_bounds(rows, "calibration", "scale", 1.0, marks=[(1.0, "sufficient")], xscale="log", yscale="log")
    assert {key.mark for key in drawing.keys} == {"dot", "bar", "cross", "dash"}
    assert "sufficient" in [text.get_text() for text in drawing.figure.axes[0].texts]
    assert "$" not in "".join(text.get_text() for text in drawing.figure.axes[0].get_xticklabels())


def test_what_each_number_leaks_is_a_bar():
    def track(data, runs, rng):
        return data + rng.laplace(size=(runs, 14, 1))

    second = np.arange(14.0)[:, None] / 7
    drawing = attribution_figure(dpv.verify(track, np.zeros((14, 1)), second, select_runs=1000, test_runs=20_000))
    assert [text.get_text() for text in drawing.figure.axes[0].get_yticklabels()] == [f"step {k}" for k in range(2, 14)]
    assert "the 12 numbers that leak most" in drawing.caption
    assert drawing.description.startswith("step 13 leaks most: epsilon at least 1.")
    assert attribution_figure(dpv.verify(laplace, ZERO, ONE, select_runs=1000, test_runs=2000)) is None

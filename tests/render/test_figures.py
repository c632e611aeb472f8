"""Figures of a report page: what they draw, and where names stand."""

import numpy as np
import pytest
from matplotlib.patches import StepPatch

import dpverify as dpv
from dpverify.mechanisms.diagnostics import VOIDING
from dpverify.render.curves import Mark, _mark_epsilons
from dpverify.render.outputs import draw_outputs
from dpverify.render.style import canvas, styled
from dpverify.report.page import page_content
from mechanisms import gaussian_trajectory


def density_areas(drawing):
    """The share of runs under the two outlined densities of a figure, in per cent."""
    outlines = [
        patch for patch in drawing.figure.axes[0].patches if isinstance(patch, StepPatch) and not patch.get_fill()
    ]
    return [float(np.diff(patch.get_data().edges) @ patch.get_data().values) for patch in outlines]


@pytest.mark.parametrize("steps", [1, 3], ids=["one coordinate", "a score of all coordinates"])
def test_densities_are_those_of_all_test_runs(steps):
    """The pilot runs that are drawn as dots are few: their histogram would hide small differences."""
    report = dpv.verify(
        gaussian_trajectory, np.zeros(steps), np.full(steps, 0.7), 0.2, select_runs=2000, test_runs=20_000
    )
    scene = page_content(report).findings.scene
    drawing = draw_outputs(scene)[0]
    assert density_areas(drawing) == pytest.approx([100, 100])
    stored = scene.cell_counts if steps == 1 else scene.event_counts
    assert stored.sum(axis=1).tolist() == [20_000, 20_000]
    without = scene._replace(cell_counts=None, event_counts=None)
    assert not density_areas(draw_outputs(without)[0])  # a report without counts: histograms of the pilot runs


def test_bars_are_those_of_all_test_runs():
    def coin(data, runs, rng):
        return (rng.random((runs, 1)) < data).astype(float)

    report = dpv.verify(coin, 0.25, 0.5, 0.1, select_runs=2000, test_runs=20_000)
    scene = page_content(report).findings.scene
    drawing = draw_outputs(scene)[0]
    heights = [bar.get_height() for bar in drawing.figure.axes[0].patches]
    shares = 100 * scene.cell_counts / 20_000
    assert drawing.caption.startswith("All test runs")
    assert all(any(height == pytest.approx(share) for height in heights) for share in shares[shares > 0])


@pytest.mark.parametrize("claimed", [0.02, 0.1, 0.2, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("critical", [0.05, 0.4, 0.62, 0.75, 0.95])
def test_names_of_vertical_lines_stay_inside_and_cross_no_line(claimed, critical):
    with styled():
        figure = canvas(3.1)
        axes = figure.add_subplot()
        axes.set_xlim(0, 1)
        marks = [Mark(critical, "critical ε = 0.9896", "k", False), Mark(claimed, "claimed ε = 0.5", "k", True)]
        _mark_epsilons(axes, marks)
        figure.draw_without_rendering()
    frame = axes.get_window_extent()
    for name in axes.texts:
        box = name.get_window_extent()
        assert frame.x0 <= box.x0
        assert box.x1 <= frame.x1
        for line in axes.lines:
            (x, _), (_, top) = line.get_transform().transform(line.get_xydata())
            assert not (box.x0 < x < box.x1 and top > box.y0), name.get_text()


def test_every_voiding_diagnostic_has_a_cause_and_a_remedy():
    assert all(diagnostic.cause and diagnostic.remedy for diagnostic in VOIDING)

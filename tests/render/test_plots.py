"""plot() and to_dataframe() of reports and of the results of many verifications."""

import numpy as np
import pytest

import dpverify as dpv
from dpverify.render import Bounds, complete_figure, draw_bounds
from dpverify.render.figures import MAX_LABELS
from mechanisms import ONE, ZERO, laplace

SMALL = {"select_runs": 1000, "test_runs": 2000}


def family(scale):
    return lambda data, runs, rng: data + rng.laplace(scale=scale, size=(runs, 1))


@pytest.fixture(scope="module")
def report():
    return dpv.verify(laplace, ZERO, ONE, 0.5, **SMALL)


def texts(figure):
    figure.draw_without_rendering()
    legends = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    return " ".join([figure.get_suptitle(), *legends])


@pytest.mark.parametrize(
    ("kind", "words"),
    [("outputs", "witness"), ("delta", "delta"), ("p-value", "p-value"), ("errors", "Errors of an observer")],
)
def test_a_report_is_plotted(report, kind, words, tmp_path):
    figure = report.plot(kind)
    assert words.replace("delta", "δ") in texts(figure)
    figure.savefig(tmp_path / "figure.svg")
    assert (tmp_path / "figure.svg").stat().st_size > 1000


def test_an_unknown_kind_is_refused(report):
    with pytest.raises(dpv.InputError, match="found kind 'histogram'; expected outputs, delta, p-value, errors"):
        report.plot("histogram")


def test_a_report_is_one_row_of_a_dataframe(report):
    table = report.to_dataframe()
    assert table.shape[0] == 1
    assert table.loc[0, "epsilon_lower"] == report.epsilon_lower


def test_pairs_trade_offs_and_searches():
    pairs = [(ZERO, ONE), (ZERO, 0.5 * ONE)]
    many = dpv.verify_pairs(laplace, pairs, 1.0, **SMALL)
    assert many.to_dataframe()["pair"].tolist() == ["0", "1"]
    assert "claimed ε = 1" in texts(many.plot())
    search = dpv.search_pairs(laplace, pairs, runs=4000, **SMALL)
    assert len(search.to_dataframe()) == len(search.tried)
    table = dpv.tradeoff({"laplace": (family, [1.0, 2.0])}, ZERO, ONE, 0.0, dpv.rmse(ZERO.reshape(1, 1)), **SMALL)
    assert table.to_dataframe()["parameter"].tolist() == [1.0, 2.0]
    assert "Privacy against accuracy" in texts(table.plot())


def test_calibrations():
    calibration = dpv.calibrate(family, (0.5, 4.0), ZERO, ONE, 1.0, 0.1, **SMALL)
    assert calibration.to_dataframe()["parameter"].tolist() == [trial.parameter for trial in calibration.tried]
    (axes,) = calibration.plot().axes
    assert axes.get_xlabel() == "ε"


def test_a_study(tmp_path):
    np.savetxt(tmp_path / "a.txt", ZERO)
    np.savetxt(tmp_path / "b.txt", ONE)
    (tmp_path / "noise.toml").write_text(
        'epsilon = 0.5\n[pairs.p]\nfirst = "a.txt"\nsecond = "b.txt"\n'
        '[mechanisms.m]\nuse = "dpverify.demo:laplace_sum"\n[settings]\nselect_runs = 500\ntest_runs = 1000\n'
    )
    study = dpv.run_study(tmp_path / "noise.toml")
    assert len(study.to_dataframe()) == 1
    (axes,) = study.plot().axes
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["m, p, seed 0"]


def test_many_rows_have_no_names_and_an_infinite_bound_is_not_drawn():
    rows = [Bounds(f"row {number}", 0.1, float("inf")) for number in range(MAX_LABELS + 1)]
    figure = complete_figure(draw_bounds(rows, "many"))
    figure.draw_without_rendering()
    (axes,) = figure.axes
    assert not axes.get_yticks().size
    assert all(line.get_marker() == "o" for line in axes.lines)


def test_a_missing_package_is_named(report, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(dpv.InputError, match="to_dataframe needs pandas: pip install pandas"):
        report.to_dataframe()

"""Many records: the table of records and steps, neighbours of a stream, files, folders, pages, and bad input."""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
from limits import most
from streams import KnownStream, laplace_stream

import dpverify as dpv
from mechanisms import laplace as one_number

RUNS = {"select_runs": 1000, "test_runs": 4000}
DATA = np.zeros((3, 2))


@pytest.fixture(scope="module")
def table():
    pairs = dpv.neighbours.one_reading(DATA, 3.0, steps=[0, 2], sensors=[1])
    return dpv.privacy_over_time(KnownStream(), pairs=pairs, delta=0.01, **RUNS)


def test_each_record_becomes_visible_at_its_step(table):
    assert table.records == ("reading 0 of sensor 1", "reading 2 of sensor 1")
    assert table.start == (0, 2)
    assert table.epsilon_lower.shape == table.epsilon_upper.shape == table.spent.shape == (2, 3)
    assert (table.epsilon_lower <= table.truth).all()
    assert table["reading 2 of sensor 1"] is table.curves[1]
    assert table.curves[1].headline.startswith("reading 2 of sensor 1 leaks by step 2: epsilon at least ")


def test_the_table_states_its_scope(table):
    assert "the bounds of different records do not hold jointly" in str(table)
    pairs = dict(zip(table.records, [(DATA, DATA + 3.0)] * 2, strict=True))
    joint = dpv.privacy_over_time(KnownStream(), pairs=pairs, delta=0.01, jointly=True, **RUNS)
    assert joint.alpha == pytest.approx(0.05)
    assert joint.curves[0].alpha == pytest.approx(0.025)
    assert "all records and all steps hold together with confidence 95%" in str(joint)


def a_table(p_values, void=()):
    """Return a table of records with these p-values."""
    curves = (
        SimpleNamespace(record=str(i), p_values=np.array([1.0, p]), alpha=0.05, voiding=("void",) * (i in void))
        for i, p in enumerate(p_values)
    )
    return dpv.PrivacyTable(tuple(curves), jointly=False)


def test_a_table_of_true_claims_is_rarely_refuted():
    rng = np.random.default_rng(0)
    tables = [a_table(rng.uniform(size=20)) for _ in range(1000)]
    assert sum(table.refuted for table in tables) <= most(1000, 0.05)
    single = sum(any(curve.p_values[-1] <= 0.05 for curve in table.curves) for table in tables)
    assert single > 500  # negative control: each record at its own alpha


def test_records_are_refuted_together_by_holm_without_the_void_ones():
    assert a_table([0.012, 0.5, 0.03, 0.001]).certain == ("0", "3")
    assert not a_table([0.03, 0.9]).refuted
    assert a_table([0.03, 0.9], void=(1,)).certain == ("0",)
    assert a_table([0.001, 0.9], void=(0,)).certain == ()


def test_a_table_survives_a_file(table, tmp_path):
    table.to_json(tmp_path / "table.json")
    again = dpv.PrivacyTable.from_json(tmp_path / "table.json")
    assert again == table
    assert np.array_equal(again.epsilon_lower, table.epsilon_lower)
    curve = table.curves[0]
    curve.to_json(tmp_path / "curve.json")
    assert dpv.PrivacyOverTime.from_json(tmp_path / "curve.json") == curve
    assert str(dpv.PrivacyOverTime.from_json(tmp_path / "curve.json")) == str(curve)
    with pytest.raises(dpv.InputError, match="found a PrivacyTable; expected a PrivacyOverTime"):
        dpv.PrivacyOverTime.from_json(tmp_path / "table.json")


def test_a_damaged_file_is_refused(table, tmp_path):
    path = tmp_path / "curve.json"
    table.curves[0].to_json(path)
    document = json.loads(path.read_text())
    document["result"]["events"]["threshold"]["values"][0] += 0.5
    path.write_text(json.dumps(document))
    with pytest.raises(dpv.InputError, match="a damaged one"):
        dpv.PrivacyOverTime.from_json(path)


def test_rows_and_dataframes_have_one_row_per_record_and_step(table):
    frame = table.to_dataframe()
    assert len(frame) == 6
    assert frame["epsilon_lower"].tolist() == table.epsilon_lower.ravel().tolist()
    assert table.curves[0].to_dataframe()["step"].tolist() == [0, 1, 2]


def test_pages_name_records_scopes_and_the_closed_form(table, tmp_path):
    table.to_html(tmp_path / "table.html")
    page = (tmp_path / "table.html").read_text()
    assert "leaks by step" in page
    assert "Exact, from the closed form" in page
    assert "do not hold jointly" in page
    table.curves[0].to_html(tmp_path / "curve.html")
    page = (tmp_path / "curve.html").read_text()
    assert "not a confidence interval" in page
    assert "exact epsilon" in page
    assert (len(table.plot().axes), len(table.curves[0].plot().axes)) == (2, 1)  # a heat map has a scale


class Interrupting:
    """A stream that is interrupted once, after so many calls."""

    name = "a stream"

    def __init__(self, calls):
        self.calls_left = calls

    def __call__(self, data, runs, rng):
        self.calls_left -= 1
        if self.calls_left == 0:
            raise KeyboardInterrupt
        return laplace_stream(data, runs, rng)


@pytest.fixture(scope="module")
def uninterrupted():
    pairs = dpv.neighbours.one_reading(DATA, 2.0, steps=[0, 2], sensors=[0])
    return pairs, dpv.privacy_over_time(Interrupting(-1), pairs=pairs, **RUNS, block=64)


@pytest.mark.parametrize("calls", [20, 180, 300])
def test_a_resumed_run_gives_the_same_table(tmp_path, uninterrupted, calls):
    pairs, table = uninterrupted
    with pytest.raises(dpv.Stopped, match="saved in"):
        dpv.privacy_over_time(Interrupting(calls), pairs=pairs, folder=tmp_path, **RUNS, block=64)
    assert dpv.privacy_over_time(Interrupting(-1), pairs=pairs, folder=tmp_path, **RUNS, block=64) == table


def test_threads_give_the_same_result():
    alone = dpv.privacy_over_time(laplace_stream, DATA, DATA + 1.0, **RUNS)
    with ThreadPoolExecutor(2) as executor:
        assert dpv.privacy_over_time(laplace_stream, DATA, DATA + 1.0, executor=executor, **RUNS) == alone


def unequal(data, runs, rng):
    return rng.laplace(size=(runs, len(data), 1))


def vector(data, runs, rng):
    return data + rng.laplace(size=(runs, 2))


def two_steps(data, runs, rng):
    return data[0] + rng.laplace(size=(runs, 2, 1))


BAD_INPUT = {
    "one number per run": (lambda: dpv.privacy_over_time(one_number, 0.0, 1.0), "expected at least two steps"),
    "one step": (
        lambda: dpv.privacy_over_time(vector, 0.0, 1.0),
        r"found outputs of one step \(shape 1 x 2\).* with per_run one run of shape \(steps, coordinates\)",
    ),
    "equal lists": (lambda: dpv.privacy_over_time(two_steps, [0.0], [0.0], **RUNS), "both datasets are equal"),
    "no data": (lambda: dpv.privacy_over_time(laplace_stream), "pass first and second, or pairs"),
    "no difference": (lambda: dpv.privacy_over_time(laplace_stream, DATA, DATA.copy()), "both datasets are equal"),
    "unequal lengths": (
        lambda: dpv.privacy_over_time(unequal, DATA, np.zeros((4, 2)), **RUNS),
        "no arrays of one shape",
    ),
    "unequal records": (
        lambda: dpv.privacy_over_time(
            unequal, pairs={"a": (DATA, DATA + 1), "b": (np.zeros((4, 2)), np.ones((4, 2)))}, **RUNS
        ),
        "found outputs of 3 and 4 steps",
    ),
    "no pairs": (lambda: dpv.privacy_over_time(laplace_stream, pairs={}), "expected a mapping"),
    "no pair": (lambda: dpv.privacy_over_time(laplace_stream, pairs={"a": 1}), r"expected \(first, second\)"),
    "both": (lambda: dpv.privacy_over_time(laplace_stream, DATA, DATA, pairs={"a": (0, 1)}), "not both"),
    "record outside": (lambda: dpv.neighbours.one_reading(DATA, 1.0, steps=[3]), "steps: found 3; expected at most 2"),
    "sensor outside": (lambda: dpv.neighbours.one_sensor(DATA, 1.0, sensors=[2]), "sensors: found 2"),
    "wide window": (lambda: dpv.neighbours.window(DATA, 4, 1.0), "width: found 4; expected at most the 3 steps"),
    "a missing reading": (
        lambda: dpv.neighbours.one_reading(np.array([[1.0], [np.nan]]), 1.0, steps=[1]),
        "change: found a change of 0",
    ),
    "no change": (lambda: dpv.neighbours.whole_stream(DATA, 0.0), "change: found a change of 0"),
    "bad change": (lambda: dpv.neighbours.one_reading(DATA, np.ones(7)), "change: found shape"),
    "no stream": (lambda: dpv.neighbours.one_reading("text", 1.0), "found no arrays of numbers"),
    "one column": (lambda: dpv.neighbours.one_sensor(np.zeros(3), 1.0), "found one column"),
    "stop early": (lambda: dpv.privacy_over_time(laplace_stream, DATA, DATA + 1, stop_early=2), "stop_early: found 2"),
    "paper": (lambda: dpv.privacy_over_time(laplace_stream, 0, 1, settings=dpv.Settings.paper()), "partition"),
    "unknown setting": (lambda: dpv.privacy_over_time(laplace_stream, 0, 1, test_run=1), "unknown setting"),
}


@pytest.mark.parametrize("name", BAD_INPUT)
def test_bad_input_gets_one_clear_line(name):
    call, message = BAD_INPUT[name]
    with pytest.raises((dpv.InputError, dpv.MechanismError), match=message) as problem:
        call()
    assert "\n" not in str(problem.value)


def test_neighbours_differ_in_what_must_stay_hidden():
    data = np.arange(6.0).reshape(3, 2)
    for pairs, changed in (
        (dpv.neighbours.one_reading(data, 1.0), 1),
        (dpv.neighbours.one_sensor(data, 1.0), 3),
        (dpv.neighbours.window(data, 2, 1.0), 4),
        (dpv.neighbours.whole_stream(data, 1.0), 6),
    ):
        for first, second in pairs.values():
            assert np.array_equal(first, data)
            assert (first != second).sum() == changed
    assert len(dpv.neighbours.one_reading(data, 1.0)) == 6
    assert [*dpv.neighbours.one_reading(np.zeros((2, 1)), 1.0)] == ["reading 0", "reading 1"]


def test_a_mechanism_that_ignores_its_generator_gives_no_answer():
    def constant(data, runs, rng):
        return data + np.random.default_rng(0).laplace(size=(runs, *data.shape))

    with pytest.warns(dpv.DPVerifyWarning):
        result = dpv.privacy_over_time(constant, DATA, DATA + 1.0, epsilon=1.0, **RUNS)
    assert result.verdict is dpv.Verdict.NO_ANSWER
    assert "no answer" in str(result)
    assert ": no verdict" in str(result)
    assert repr(result).endswith("no answer>")
    assert (result.until(1.0).bounded, result.until(1.0).exceeded) == (0, None)
    with pytest.warns(dpv.DPVerifyWarning):
        table = dpv.privacy_over_time(constant, pairs={"a": (DATA, DATA + 1.0)}, **RUNS)
    assert table.headline == "no answer for a"
    assert "a: no answer; " in str(table)


def test_pages_need_their_packages(monkeypatch, table, tmp_path):
    monkeypatch.setitem(sys.modules, "dpverify.render.pages", None)
    with pytest.raises(dpv.InputError, match="expected matplotlib and MarkupSafe"):
        table.to_html(tmp_path / "page.html")

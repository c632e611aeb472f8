"""A report: its file, its text, its bounds, and other claims on the same counts."""

import dataclasses
import inspect
import json
import math
from functools import partial
from importlib import resources
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from limits import most
from scipy.optimize import brentq

import dpverify as dpv
from dpverify import Report, Verdict
from dpverify.events.scores import Levels, Linear
from dpverify.mechanisms.diagnostics import Diagnostic
from dpverify.report.document import SCHEMA_1_DIAGNOSTICS, report_schema, with_checksum
from dpverify.report.evaluate import bound_by_event, bound_partition, distinct_pairs
from dpverify.report.power import describe_power
from dpverify.report.statements import OnAllEvents, OnPartition, Paper, Witness
from dpverify.report.validation import check_consistent
from dpverify.sampling.counts import Counts
from dpverify.stats.binomial import clopper_pearson_lower, clopper_pearson_upper
from dpverify.stats.lower_bound import epsilon_lower_bound
from dpverify.stats.upper_bound import frontier, frontier_bound
from dpverify.util.formatting import format_lower, format_percent, format_upper
from mechanisms import ONE, ZERO, gaussian_trajectory, laplace

SMALL = {"select_runs": 2000, "test_runs": 10_000}
KEPT = Path(__file__).parents[1] / "kept"
REPORTS = {
    "laplace": lambda: dpv.verify(laplace, ZERO, ONE, 0.5, error=dpv.rmse(ZERO), **SMALL),
    "measured": lambda: dpv.verify(laplace, ZERO, ONE, **SMALL),
    "paper": lambda: dpv.verify(laplace, ZERO, ONE, 0.5, settings=dpv.Settings.paper()),
    "trajectory": lambda: dpv.verify(gaussian_trajectory, np.zeros((4, 2)), np.full((4, 2), 0.4), 0.5, **SMALL),
    "grid": lambda: dpv.verify(
        gaussian_trajectory, np.zeros((40, 2)), np.full((40, 2), 0.4), 0.5, partition="grid", **SMALL
    ),
}


@pytest.fixture(scope="module", params=REPORTS)
def report(request):
    return REPORTS[request.param]()


def test_a_report_that_is_read_equals_the_one_that_was_written(report, tmp_path):
    path = tmp_path / "report.json"
    report.to_json(path)
    back = Report.from_json(path)
    assert back == report
    assert back.digest == report.digest
    assert str(back) == str(report)
    assert back.row() == report.row()
    assert back.delta_lower(0.3) == report.delta_lower(0.3)
    assert back.on_partition.delta_upper(0.3) == report.on_partition.delta_upper(0.3)
    assert back.against(0.2).digest == report.against(0.2).digest
    samples = report.picture["first"]
    np.testing.assert_array_equal(back.witness.contains(samples), report.witness.contains(samples))


def test_the_file_satisfies_its_json_schema(report, tmp_path):
    path = tmp_path / "report.json"
    report.to_json(path)
    schema = json.loads(resources.files("dpverify.report").joinpath("report.schema.json").read_text())

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    document = json.loads(path.read_text(), parse_constant=refuse)
    jsonschema.validate(document, schema)
    document["result"]["alpha"] = 2
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, schema)


def test_unknown_keys_are_ignored_and_a_newer_schema_is_refused(tmp_path):
    path = tmp_path / "report.json"
    report = REPORTS["measured"]()
    report.to_json(path)
    document = json.loads(path.read_text())
    document["result"]["invented_later"] = 1
    document["result"]["witness"]["also"] = [1]
    path.write_text(json.dumps(with_checksum(document)))
    assert Report.from_json(path) == report
    document["schema"] = 3
    path.write_text(json.dumps(document))
    with pytest.raises(dpv.InputError, match="found schema 3; expected at most 2"):
        Report.from_json(path)


@pytest.mark.parametrize("name", ["report-1.json", "report-2.json"])
def test_a_report_of_an_earlier_version_is_read(name):
    """Reports are kept for years. These files are never written again; a new schema gets a new file."""
    report = Report.from_json(KEPT / name)
    assert report.verdict is dpv.Verdict.REFUTED
    assert (report.witness.counts, report.witness.runs) == ((301, 118), 500)
    assert report.epsilon_lower == pytest.approx(0.7934611691845294)
    assert "REFUTED" in str(report)


def test_a_voided_report_of_schema_1_is_read_as_no_answer():
    """The old version stored the verdict REFUTED beside a sentence; the sentence becomes a diagnostic."""
    document = json.loads((KEPT / "report-1-voided.json").read_text())["result"]
    assert document["verdict"]["name"] == "REFUTED"
    assert "diagnostics" not in document
    report = Report.from_json(KEPT / "report-1-voided.json")
    assert report.diagnostics == report.voiding == (Diagnostic.REPEATED_BLOCKS,)
    assert report.remarks == ()
    assert (report.verdict, report.refuted) == (Verdict.NO_ANSWER, False)
    assert report.witness.counts == (275, 15)
    assert report.next_step == report.against(0.3).next_step


def test_schema_1_sentences_become_diagnostics_and_other_remarks_stay(tmp_path):
    assert {diagnostic.name for diagnostic in SCHEMA_1_DIAGNOSTICS.values()} == {
        "SAME_DATA",
        "CHANGED_DATA",
        "UNREPEATABLE_BLOCK",
        "REPEATED_BLOCKS",
        "IDENTICAL_OUTPUTS",
        "DETERMINISTIC_OUTPUTS",
        "UNSEEDED",
        "NO_DENSITY",
        "LIPSCHITZ_DIMENSION",
    }
    document = json.loads((KEPT / "report-1.json").read_text())
    document["result"]["remarks"] = [*SCHEMA_1_DIAGNOSTICS, "a remark of the mechanism"]
    path = tmp_path / "report.json"
    path.write_text(json.dumps(document))
    report = Report.from_json(path)
    assert report.diagnostics == tuple(SCHEMA_1_DIAGNOSTICS.values())
    assert report.remarks == ("a remark of the mechanism",)


def test_diagnostics_and_remarks_are_stored_separately():
    report = Report.from_json(KEPT / "report-2.json")
    assert report.diagnostics == (Diagnostic.UNSEEDED,)
    assert report.remarks == ("noise of a laboratory source",)
    assert report.voiding == ()
    assert report.notes == (Diagnostic.UNSEEDED.value, "noise of a laboratory source", report.next_step)


def test_a_voiding_diagnostic_gives_no_answer_everywhere(tmp_path):
    report = dpv.verify(laplace, ONE, ONE.copy(), 0.1, **SMALL)
    refuted = REPORTS["laplace"]()
    voided = dataclasses.replace(refuted, diagnostics=(Diagnostic.REPEATED_BLOCKS,)).against(0.5)
    assert refuted.p_value == voided.p_value
    for each in (report, voided, voided.against(None), voided.against(2.0)):
        assert each.verdict is Verdict.NO_ANSWER
        assert not each.refuted
        assert each.row()["verdict"] == "NO_ANSWER"
        assert each.row()["diagnostic"] == each.voiding[0].name
        assert repr(each) == "<Report laplace: NO_ANSWER>"
        assert str(each).startswith(f"laplace: NO ANSWER\n  {Verdict.NO_ANSWER.value}\n")
        assert each.voiding[0].value in str(each)
        each.to_json(tmp_path / "report.json")
        assert Report.from_json(tmp_path / "report.json") == each
    assert refuted.row()["diagnostic"] is None


@pytest.mark.parametrize(
    "changes",
    [
        {"verdict": Verdict.NO_ANSWER},
        {"verdict": Verdict.MEASURED},
        {"verdict": Verdict.NOT_REFUTED},
        {"diagnostics": (Diagnostic.SAME_DATA,)},
        {"alpha": 2.0},
        {"delta": 1.0},
        {"epsilon_lower": -1.0},
        {"p_value": None},
        {"p_value": 1.5},
    ],
)
def test_contradictory_fields_are_refused(changes):
    report = REPORTS["laplace"]()
    check_consistent(report)
    with pytest.raises((ValueError, dpv.InputError)):
        check_consistent(dataclasses.replace(report, **changes))


def test_the_shipped_schema_is_generated_from_the_annotations():
    """After a change of the report's classes: `write_schema(Report)` in report/document.py."""
    shipped = json.loads(resources.files("dpverify.report").joinpath("report.schema.json").read_text())
    assert shipped == report_schema(Report)


def test_the_schema_describes_the_kept_report():
    schema, document = report_schema(Report), json.loads((KEPT / "report-2.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(document, schema)
    result = schema["properties"]["result"]
    for field in dataclasses.fields(Report):
        is_optional = field.name == "run" or field.default is not dataclasses.MISSING
        assert is_optional or field.name in result["required"]
        assert field.name == "run" or field.name in result["properties"]


@pytest.mark.parametrize("kind", [Report, Witness, OnPartition, OnAllEvents, Paper])
def test_every_field_is_documented(kind):
    text = inspect.getdoc(kind)
    lines = [line.split(" : ")[0] for line in text.splitlines() if " : " in line and not line.startswith(" ")]
    assert {name for line in lines for name in line.split(", ")} == {field.name for field in dataclasses.fields(kind)}


@pytest.mark.parametrize("kind", [Report, Witness, OnPartition, OnAllEvents, dpv.Settings])
def test_every_public_method_is_documented(kind):
    for name, member in vars(kind).items():
        if not name.startswith("_") and (callable(member) or isinstance(member, (property, classmethod))):
            assert inspect.getdoc(member), name


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "null",
        '{"schema": 1}',
        '{"schema": "1", "result": {}, "run": {}}',
        '{"schema": 1, "result": {"verdict": {"kind": "os.system"}}, "run": {}}',
        '{"schema": 1, "result": {"verdict": {"kind": "array", "dtype": "O", "values": [], "shape": [0]}}, "run": {}}',
    ],
)
def test_other_files_are_refused_with_one_line(text, tmp_path):
    path = tmp_path / "report.json"
    path.write_text(text)
    with pytest.raises(dpv.InputError, match=r"report.json: (not a|a damaged) report"):
        Report.from_json(path)


def test_a_missing_file_is_refused():
    with pytest.raises(dpv.InputError, match="No such file"):
        Report.from_json("nowhere.json")


def test_a_diagnostic_of_a_later_version_is_named(tmp_path):
    document = json.loads((KEPT / "report-2.json").read_text())
    text = json.dumps(document).replace('"UNSEEDED"', '"OF_A_LATER_VERSION"')
    (tmp_path / "later.json").write_text(text)
    expected = r"one of a later version \(ValueError: Diagnostic: found 'OF_A_LATER_VERSION', which this version"
    with pytest.raises(dpv.InputError, match=expected):
        Report.from_json(tmp_path / "later.json")


def test_another_claim_on_the_same_counts():
    report = REPORTS["laplace"]()
    other = report.against(0.7)
    assert other.witness == report.witness
    assert (other.epsilon, other.refuted) == (0.7, True)
    assert report.against(None).verdict is Verdict.MEASURED
    assert report.against(1.0).p_value > 0.05
    assert report.against(report.epsilon, report.delta) == report
    assert report.against(0.5, 0.1).epsilon_lower < report.epsilon_lower
    with pytest.raises(dpv.InputError):
        report.against(-1)


def test_the_run_is_outside_equality():
    first, second = REPORTS["laplace"](), REPORTS["laplace"]()
    assert first == second
    assert first.run != second.run
    assert set(first.run) == {"seconds", "versions", "device", "workers", "resumed"}


def test_the_text_names_the_scope_of_every_bound():
    text = str(REPORTS["laplace"]())
    assert text.startswith("laplace: REFUTED\n")
    for words in (
        "for this pair of data sets, by the witness",
        "only for events made of the partition's 17 cells",
        "% of runs",
    ):
        assert words in text
    assert REPORTS["laplace"]().refuted


def test_the_text_of_the_witness_describes_the_event():
    report = dpv.verify(laplace, ZERO, ONE, 0.5, partition="grid", resolution=2, **SMALL)
    samples = np.linspace(-20, 20, 2001)
    inside = report.witness.contains(samples)
    low, high = samples[inside].min(), samples[inside].max()
    assert report.witness.direction in ((1, 2), (2, 1))
    assert report.witness.step == 0
    text = report.witness.text
    assert "output" in text
    numbers = [
        float(word)
        for word in text.replace("<=", " ").replace("<", " ").replace(">", " ").split()
        if word[-1].isdigit()
    ]
    assert any(math.isclose(n, low, abs_tol=0.05) or math.isclose(n, high, abs_tol=0.05) for n in numbers)


def test_the_witness_has_limits_and_checks_shapes():
    report = REPORTS["trajectory"]()
    for (share, low, high), count in zip(report.witness.probabilities, report.witness.counts, strict=True):
        assert share == count / 10_000
        assert low < share < high
    with pytest.raises(dpv.InputError, match="expected runs of 4 steps in 2 dimensions"):
        report.witness.contains(np.zeros((5, 3)))


def test_printed_bounds_are_rounded_outwards():
    """A bound that is rounded to nearest would fail more often than the bound itself."""
    assert (format_lower(1.00099), format_upper(1.00091)) == ("1", "1.001")
    assert (format_lower(0.98859), format_upper(0.98851), format_lower(12345.0)) == ("0.9885", "0.9886", "1.234e+04")
    assert (format_lower(0.0), format_upper(math.inf)) == ("0", "infinity")
    assert (format_percent(1 - 1e-4), format_percent(1 - 1e-6), format_percent(0.523), format_percent(1)) == (
        "99.99%",
        "99.9999%",
        "52.3%",
        "100%",
    )


def test_the_profile_has_fixed_epsilons():
    first, second = REPORTS["laplace"](), REPORTS["trajectory"]()
    np.testing.assert_array_equal(first.profile["eps"], second.profile["eps"])
    assert (first.profile["delta_lower"] <= first.profile["delta_upper"]).all()
    assert (np.diff(first.profile["delta_upper"]) <= 1e-9).all()


def test_every_bound_uses_its_stated_share_of_alpha():
    report = REPORTS["laplace"]()
    part, m = report.on_partition, report.witness.runs
    assert part.alpha == pytest.approx(0.9 * 0.05)
    inside = round(brentq(lambda c: clopper_pearson_lower(c, m, 0.005) - part.region_mass, 1, m))
    assert clopper_pearson_lower(inside, m, 0.1 * 0.05) == pytest.approx(
        part.region_mass, abs=1e-9
    )  # at a tenth of alpha
    assert part.region_mass < inside / m
    c1, c2 = (np.repeat(c, part.number) for c in (part.c1, part.c2))
    upper = max(frontier_bound(frontier(a, b, m, part.alpha / 24), 0.5) for a, b in ((c1, c2), (c2, c1)))
    index = int(np.argmin(np.abs(report.profile["eps"] - 0.5)))
    assert report.profile["delta_upper"][index] == pytest.approx(upper)
    events = report.delta_events
    number = len(set(zip(events.aims.edges.tolist(), events.aims.directions.tolist(), strict=True)))
    assert number > 3
    tail = 0.05 / number / 2
    lows = clopper_pearson_lower(events.c1, m, tail) - math.exp(0.5) * clopper_pearson_upper(events.c2, m, tail)
    assert report.profile["delta_lower"][index] == pytest.approx(lows.max())


def test_the_bound_over_all_events_counts_the_rest_and_the_variation():
    c = np.array([400, 300, 200]), np.array([300, 300, 300])
    all_events = OnAllEvents(*c, (100, 100), 0.0, 1000, 0.05)
    without_rest = OnAllEvents(*c, (0, 0), 0.0, 1000, 0.05)
    varied = OnAllEvents(*c, (100, 100), 0.4, 1000, 0.05)
    assert all_events.delta_upper(0.2) > without_rest.delta_upper(0.2) + 0.09
    assert varied.delta_upper(0.6) == pytest.approx(all_events.delta_upper(0.2))
    assert varied.delta_upper(0.2) > all_events.delta_upper(0.2)


def test_the_lower_bound_on_the_mass_of_the_region_has_its_confidence():
    """The limit has a tenth of alpha; the observed share without a limit would be too large half of the time."""
    settings, rng = dpv.Settings(alpha=0.5, test_runs=500), np.random.default_rng(0)
    levels, true = Levels(Linear(np.ones(1)), np.zeros(1)), (0.97, 0.95)
    missed = without_limit = 0
    for _ in range(1000):
        counts = [int(rng.binomial(500, p)) for p in true]
        inside = tuple(Counts(np.array([0, 1]), np.array([500 - c, c])) for c in counts)
        missed += bound_partition(levels, inside, inside, settings).region_mass > min(true)
        without_limit += min(counts) / 500 > min(true)
    assert missed <= most(1000, 0.05) < without_limit


def test_distinct_pairs_of_counts_of_any_size():
    for runs in (10**6, 4 * 10**9):
        c = np.array([3, 3, runs]), np.array([5, 5, 0])
        c1, c2, number = distinct_pairs(*c, runs)
        assert sorted(zip(c1.tolist(), c2.tolist(), number.tolist(), strict=True)) == [(3, 5, 2), (runs, 0, 1)]


def test_a_row_is_flat():
    assert all(not isinstance(value, (dict, list, tuple, np.ndarray)) for value in REPORTS["paper"]().row().values())


def test_every_test_run_is_counted_in_one_cell(report):
    part = report.on_partition
    assert part.c1 @ part.number == part.c2 @ part.number == report.witness.runs
    assert sum(report.cells["number"]) == len(np.repeat(part.c1, part.number))


def test_too_few_runs_are_not_reported_beside_a_bound_that_meets_the_claim():
    """An event that is frequent under both data sets has no detectable epsilon, whatever the number of runs."""
    report = dpv.verify(laplace, ZERO, ONE, 3.0, **SMALL)
    assert report.verdict is Verdict.BOUNDED
    assert report.epsilon_detectable == math.inf
    assert "the witness is so frequent with both data sets that it cannot violate the claim" in str(report)
    witness = dataclasses.replace(report.witness, counts=(3000, 3000), runs=10_000)
    described = partial(
        describe_power, witness=witness, claim=dpv.claims.pure(1.0), delta=0.0, detectable=math.inf, alpha=0.05
    )
    assert described(Verdict.BOUNDED) == "the epsilon of the witness is at most 1.204"
    assert described(Verdict.NOT_REFUTED).endswith("at most 1.204, and these runs are too few to detect that")


def test_outputs_that_only_one_data_set_produces_are_not_a_question_of_more_noise():
    def exact(data, runs, rng):
        return np.where(rng.random((runs, 1)) < 0.2, data, rng.normal(size=(runs, 1)))

    missing = dpv.verify(exact, ZERO, ONE, 1.0, **SMALL)
    assert missing.refuted
    assert missing.witness.ordered[1] == 0
    assert "missing noise or of exact values" in missing.next_step
    assert "increase the noise" not in missing.next_step
    assert "increase the noise" in dpv.verify(laplace, ZERO, ONE, 0.3, **SMALL).next_step


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_the_largest_bound_of_several_events_is_exact_in_any_order(order):
    report = dpv.verify(laplace, ZERO, ONE, test_runs=5000, select_runs=2000)
    event = dataclasses.replace(report.witness.event, direction=0)
    counts = np.array([(1200, 900), (400, 150), (30, 10)])[list(order)].tolist()
    tested = tuple(dataclasses.replace(report.witness, event=event, counts=(a, b), share=1 / 3) for a, b in counts)
    exact = [epsilon_lower_bound(a, b, 5000, 0.0, 0.05 / 3) for a, b in counts]
    bounds = bound_by_event(tested, None, 0.0, 0.05)
    assert max(bounds) == max(exact)
    assert np.argmax(bounds) == np.argmax(exact)
    assert min(exact) > 0  # without the shortcut every event has a bound

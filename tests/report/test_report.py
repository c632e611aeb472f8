"""A report: its file, its text, its bounds, and other claims on the same counts."""

import dataclasses
import inspect
import json
import math
import re
from importlib import resources

import jsonschema
import numpy as np
import pytest
from limits import most
from schema import report_schema
from scipy.optimize import brentq

import dpverify as dpv
from dpverify import Report, Verdict
from dpverify.cli import main
from dpverify.events.scores import Levels, Linear
from dpverify.mechanisms.diagnostics import Diagnostic
from dpverify.report.certificate import DensityCertificate, LipschitzCertificate
from dpverify.report.json import with_checksum
from dpverify.report.statements import CellBounds, Paper, Witness
from dpverify.report.text import describe_power, headline, report_text
from dpverify.sampling.count import Counts
from dpverify.stats.binomial import clopper_pearson_lower, clopper_pearson_upper
from dpverify.stats.upper import frontier, frontier_bound
from dpverify.util.formatting import format_lower, format_percent, format_upper
from mechanisms import ONE, ZERO, gaussian_trajectory, ignores_generator, laplace

SMALL = {"select_runs": 2000, "test_runs": 10_000}
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
    document["result"]["delta"] = "small"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, schema)


def test_unknown_keys_are_ignored_and_another_format_is_refused(tmp_path):
    path = tmp_path / "report.json"
    report = REPORTS["measured"]()
    report.to_json(path)
    document = json.loads(path.read_text())
    document["result"]["invented_later"] = 1
    document["result"]["tested"][0]["also"] = [1]
    path.write_text(json.dumps(with_checksum(document)))
    assert Report.from_json(path) == report
    for number, advice in ((0, "verify again"), (2, "update dpverify to read it")):
        document["format"] = number
        path.write_text(json.dumps(document))
        with pytest.raises(dpv.InputError, match=f"found format {number}; expected 1; {advice}"):
            Report.from_json(path)


NUMBERS = ("epsilon_lower", "claim_lower", "p_value", "epsilon_critical", "epsilon_detectable", "e_value", "profile")
BOUNDS = ("on_partition", "certificate", "paper")
ROW_NUMBERS = (
    *(
        "p_value",
        "epsilon_lower",
        "claim_lower",
        "epsilon_critical",
        "epsilon_detectable",
        "epsilon_upper_on_partition",
    ),
    *("cells", "region_mass", "witness", "witness_cell", "c1", "c2", "eta", "lambda", "error_first", "error_second"),
)


def test_a_report_without_an_answer_has_its_counts_and_no_bounds(tmp_path):
    """The counts are far apart, so a bound that came through would be large."""
    with pytest.warns(dpv.DPVerifyWarning, match="ignores its generator"):
        ignoring = dpv.verify(ignores_generator, ZERO, ONE, 0.5, error=dpv.rmse(ZERO), log_lipschitz=1.0, **SMALL)
    refuted = REPORTS["laplace"]()
    voided = dataclasses.replace(refuted, diagnostics=(Diagnostic.REPEATED_BLOCKS,)).against(0.5)
    for each in (ignoring, voided, voided.against(None), voided.against(2.0), voided.against(dpv.claims.gaussian(0.1))):
        assert (each.verdict, each.refuted, each.holds_on_cells) == (Verdict.NO_ANSWER, False, False)
        assert [getattr(each, name) for name in (*NUMBERS, *BOUNDS)] == [None] * 10
        assert each.delta_lower(0.1) is None
        assert [each.row()[name] for name in ROW_NUMBERS] == [None] * len(ROW_NUMBERS)
        assert each.row()["diagnostic"] == each.voiding[0].name
        assert repr(each) == f"<Report {each.name}: NO_ANSWER>"
        text = report_text(each, width=1000)
        assert text.startswith(
            f"{each.name}: NO ANSWER\n  {Verdict.NO_ANSWER.value}\n  cause     {each.voiding[0].value}"
        )
        assert not re.search(r">=|<=|p-value|proved|confidence|witness|%", text)
        with pytest.raises(dpv.InputError, match="plot: No answer: different blocks contain the same outputs"):
            each.plot()
        each.to_json(tmp_path / "report.json")
        back = Report.from_json(tmp_path / "report.json")
        assert back == each
        assert back.cell_counts.c1.sum() > 0  # what was counted is kept
        assert sum(back.witness.counts) > 0
    assert refuted.row()["diagnostic"] is None  # the negative control
    assert None not in [getattr(refuted, name) for name in ("epsilon_lower", "p_value", "profile", "on_partition")]
    assert refuted.delta_lower(0.1) > 0


def test_a_claim_that_holds_over_the_cells_is_not_refuted_and_nothing_more():
    def in_a_third(data, runs, rng):
        return rng.choice(3, size=(runs, 1), p=[0.3 + 0.2 * data[0], 0.5 - 0.2 * data[0], 0.2])

    report = dpv.verify(in_a_third, ZERO, ONE, 2.0, **SMALL)
    assert report.verdict is Verdict.NOT_REFUTED
    assert report.holds_on_cells
    assert not report.against(None).holds_on_cells
    assert not report.against(0.2).holds_on_cells
    assert not hasattr(Verdict, "BOUNDED")
    text = report_text(report, width=1000)
    assert "over the 3 cells (95% confidence)\n            no union of the cells violates the claim" in text
    assert "epsilon <=" not in text
    assert headline(report).startswith("Not refuted: ε is at least")


def test_only_an_upper_bound_over_all_events_certifies_a_claim(tmp_path):
    report = dpv.verify(laplace, ZERO, ONE, 2.0, 0.1, log_lipschitz=1.0, select_runs=2000, test_runs=40_000)
    assert report.certificate.epsilon_upper(0.1) <= 2.0
    assert report.certificate.delta_upper(2.0) <= 0.1
    assert report.verdict is Verdict.CERTIFIED
    assert headline(report).startswith("Certified: ε = 2, δ = 0.1 holds for all events")
    report.to_json(tmp_path / "report.json")
    assert Report.from_json(tmp_path / "report.json") == report
    unstated = dpv.verify(laplace, ZERO, ONE, 2.0, 0.1, **SMALL)
    assert (unstated.verdict, unstated.holds_on_cells) == (Verdict.NOT_REFUTED, True)
    assert report.against(2.0).verdict is Verdict.NOT_REFUTED  # at delta 0 nothing is known about rare outputs
    assert report.against(0.1, 0.1).verdict is Verdict.REFUTED


def test_a_report_stores_counts_and_computes_the_rest(tmp_path):
    """No derived number of a file is read back, so an edited summary with a valid checksum changes nothing."""
    report = REPORTS["laplace"]()
    stored = {field.name for field in dataclasses.fields(Report)}
    assert not stored & {*ROW_NUMBERS, *NUMBERS, "verdict", "epsilon", "alpha", "witness", "paper", "next_step"}
    report.to_json(tmp_path / "report.json")
    document = json.loads((tmp_path / "report.json").read_text())
    assert set(document) == {"format", "result", "summary", "provenance", "checksum"}
    assert document["summary"].items() >= report.row().items()
    document["summary"] = {"verdict": "NOT_REFUTED", "epsilon_lower": 0.0}
    (tmp_path / "edited.json").write_text(json.dumps(with_checksum(document)))
    back = Report.from_json(tmp_path / "edited.json")
    assert (back.refuted, back.epsilon_lower, back.digest) == (True, report.epsilon_lower, report.digest)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda result: result["cell_counts"]["number"]["values"].__setitem__(0, 10**9), "at most .* occupied cells"),
        (lambda result: result["cell_counts"]["c1"]["values"].__setitem__(0, -1), "expected numbers from 0 to 10000"),
        (lambda result: result["cell_counts"]["c1"].update(values=[1], shape=[1]), "equal lengths"),
        (lambda result: result["tested"][0].update(counts=[1, 10_001]), "expected numbers from 0 to 10000"),
        (lambda result: result.update(tested=[]), "expected a tested event"),
        (lambda result: result.update(delta=1.5), "delta must be"),
    ],
)
def test_counts_that_do_not_fit_together_are_refused_before_anything_large_is_computed(damage, message, tmp_path):
    REPORTS["laplace"]().to_json(tmp_path / "report.json")
    document = json.loads((tmp_path / "report.json").read_text())
    damage(document["result"])
    (tmp_path / "report.json").write_text(json.dumps(with_checksum(document)))
    with pytest.raises(dpv.InputError, match=message):
        Report.from_json(tmp_path / "report.json")


def test_an_edited_report_is_refused_in_one_line(tmp_path, capsys):
    file = tmp_path / "report.json"
    REPORTS["laplace"]().to_json(file)
    assert main(["report", str(file)]) == 0  # the negative control
    document = json.loads(file.read_text())
    document["result"]["tested"][0]["event"]["direction"] ^= 1
    file.write_text(json.dumps(document))
    assert main(["report", str(file)]) == 2
    complaint = capsys.readouterr().err
    assert "found another checksum" in complaint
    assert complaint.count("\n") == 1


def test_the_shipped_schema_is_generated_from_the_annotations():
    """After a change of the report's classes: `python tests/support/schema.py`."""
    shipped = json.loads(resources.files("dpverify.report").joinpath("report.schema.json").read_text())
    assert shipped == report_schema()


def test_the_schema_is_one_and_names_every_field():
    schema = report_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    result = schema["$defs"]["Report"]
    for field in dataclasses.fields(Report):
        assert field.name == "provenance" or field.name in result["properties"]


@pytest.mark.parametrize("kind", [Report, Witness, CellBounds, LipschitzCertificate, DensityCertificate, Paper])
def test_every_field_is_documented(kind):
    text = inspect.getdoc(kind)
    lines = [line.split(" : ")[0] for line in text.splitlines() if " : " in line and not line.startswith(" ")]
    assert {name for line in lines for name in line.split(", ")} == {field.name for field in dataclasses.fields(kind)}


@pytest.mark.parametrize("kind", [Report, Witness, CellBounds, LipschitzCertificate, DensityCertificate, dpv.Settings])
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
        '{"format": 1}',
        '{"format": "1", "result": {}, "provenance": {}}',
        '{"format": 1, "result": {"kind": "Report"}, "provenance": {}, "checksum": ""}',
    ],
)
def test_other_files_are_refused_with_one_line(text, tmp_path):
    path = tmp_path / "report.json"
    path.write_text(text)
    with pytest.raises(dpv.InputError, match=r"report.json: found no Report"):
        Report.from_json(path)


def test_a_missing_file_is_refused():
    with pytest.raises(dpv.InputError, match="No such file"):
        Report.from_json("nowhere.json")


def test_a_diagnostic_of_a_later_version_is_named(tmp_path):
    dpv.verify(laplace, ZERO, ZERO, **SMALL).to_json(tmp_path / "report.json")
    text = (tmp_path / "report.json").read_text().replace('"SHORTENED"', '"OF_A_LATER_VERSION"')
    (tmp_path / "later.json").write_text(json.dumps(with_checksum(json.loads(text))))
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


def test_the_provenance_is_outside_equality():
    first, second = REPORTS["laplace"](), REPORTS["laplace"]()
    assert first == second
    assert first.provenance != second.provenance
    assert set(first.provenance) == {"seconds", "versions", "device", "workers", "resumed"}


def test_the_text_names_the_scope_of_every_bound():
    text = report_text(REPORTS["laplace"](), width=1000)
    assert text.startswith("laplace: REFUTED\n")
    for words in (
        "at delta 0 (95% confidence), for these two datasets",
        "over the 17 cells (95% confidence)\n            events that split a cell were not checked",
        "% of runs",
    ):
        assert words in text
    assert REPORTS["laplace"]().refuted


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
    all_events = LipschitzCertificate(*c, (100, 100), 0.0, 1000, 0.05)
    without_rest = LipschitzCertificate(*c, (0, 0), 0.0, 1000, 0.05)
    varied = LipschitzCertificate(*c, (100, 100), 0.4, 1000, 0.05)
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
        missed += CellBounds.of(levels, inside, inside, settings).region_mass > min(true)
        without_limit += min(counts) / 500 > min(true)
    assert missed <= most(1000, 0.05) < without_limit


def test_every_test_run_is_counted_in_one_cell(report):
    part = report.on_partition
    assert part.c1 @ part.number == part.c2 @ part.number == report.witness.runs
    assert sum(report.cells["number"]) == len(np.repeat(part.c1, part.number))


def test_the_power_line_says_what_these_runs_cannot_notice():
    """A frequent event cannot violate the claim, and events that are too rare are never noticed."""
    report = dpv.verify(laplace, ZERO, ONE, 1.0, **SMALL)
    line = describe_power(report)
    assert "about 80% of the time if the true epsilon of the witness were " in line
    share = float(re.search(r"events less likely than about (\S+)% with both datasets are too rare", line)[1]) / 100
    assert 17 / report.settings.select_runs <= share * 1.001 < 0.1
    frequent = dataclasses.replace(report.witness, counts=(6000, 6000), runs=10_000)
    assert "it cannot violate the claim" in describe_power(dataclasses.replace(report, tested=(frequent,)))
    few = dataclasses.replace(report.witness, counts=(3, 3), runs=10)
    assert "these runs are too few to refute the claim" in describe_power(dataclasses.replace(report, tested=(few,)))
    assert describe_power(report.against(0.1)) is None


def test_outputs_that_only_one_data_set_produces_are_not_a_question_of_more_noise():
    def exact(data, runs, rng):
        return np.where(rng.random((runs, 1)) < 0.2, data, rng.normal(size=(runs, 1)))

    missing = dpv.verify(exact, ZERO, ONE, 1.0, **SMALL)
    assert missing.refuted
    assert missing.witness.ordered[1] == 0
    assert "missing noise or exact values" in missing.next_step
    assert "add noise" not in missing.next_step
    assert "add noise" in dpv.verify(laplace, ZERO, ONE, 0.3, **SMALL).next_step

import json
import math
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
from dpverify.report.assemble import bound_partition, distinct_pairs
from dpverify.report.statements import OnAllEvents
from dpverify.sampling.counts import Counts
from dpverify.stats.binomial import clopper_pearson_lower, clopper_pearson_upper
from dpverify.stats.upper_bound import frontier, frontier_bound
from dpverify.util.formatting import format_lower, format_percent, format_upper
from mechanisms import ONE, ZERO, gaussian_trajectory, laplace

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


def test_json_gives_the_same_report_back(report, tmp_path):
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


def test_json_follows_its_schema_strictly(report, tmp_path):
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
    path.write_text(json.dumps(document))
    assert Report.from_json(path) == report
    document["schema"] = 2
    path.write_text(json.dumps(document))
    with pytest.raises(dpv.InputError, match="found schema 2, expected at most 1"):
        Report.from_json(path)


def test_a_report_that_was_written_long_ago_is_read():
    """Whoever adds a field gives it a default: reports are kept for years. The file is never written again."""
    report = Report.from_json(Path(__file__).parents[1] / "kept" / "report-1.json")
    assert report.verdict is dpv.Verdict.REFUTED
    assert (report.witness.counts, report.witness.runs) == ((301, 118), 500)
    assert report.epsilon_lower == pytest.approx(0.7934611691845294)
    assert "REFUTED" in str(report)


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
def test_what_is_not_a_report_gets_one_line(text, tmp_path):
    path = tmp_path / "report.json"
    path.write_text(text)
    with pytest.raises(dpv.InputError, match=r"report.json: (not a|a damaged) report"):
        Report.from_json(path)


def test_a_missing_file():
    with pytest.raises(dpv.InputError, match="No such file"):
        Report.from_json("nowhere.json")


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
    one, two = REPORTS["laplace"](), REPORTS["laplace"]()
    assert one == two
    assert one.run != two.run
    assert set(one.run) == {"seconds", "versions", "device", "workers", "resumed"}


def test_the_text_says_what_is_proved_and_what_is_not():
    text = str(REPORTS["laplace"]())
    assert text.startswith("laplace: REFUTED\n")
    for words in ("over all events, for this pair", "over unions of 17 cells only", "not a certificate", "% of runs"):
        assert words in text
    assert REPORTS["laplace"]().refuted


def test_the_witness_in_words_is_the_event():
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


def test_the_witness_has_counts_limits_and_checks_shapes():
    report = REPORTS["trajectory"]()
    for (share, low, high), count in zip(report.witness.probabilities, report.witness.counts, strict=True):
        assert share == count / 10_000
        assert low < share < high
    with pytest.raises(dpv.InputError, match="expected runs of 4 steps in 2 dimensions"):
        report.witness.contains(np.zeros((5, 3)))


def test_printed_bounds_are_rounded_outwards():
    """Rounded to nearest, what is printed would be false more often than what was proved."""
    assert (format_lower(1.00099), format_upper(1.00091)) == ("1", "1.001")
    assert (format_lower(0.98859), format_upper(0.98851), format_lower(12345.0)) == ("0.9885", "0.9886", "1.234e+04")
    assert (format_lower(0.0), format_upper(math.inf)) == ("0", "infinity")
    assert (format_percent(1 - 1e-4), format_percent(1 - 1e-6), format_percent(0.523), format_percent(1)) == (
        "99.99%",
        "99.9999%",
        "52.3%",
        "100%",
    )


def test_the_profile_has_fixed_nodes():
    one, two = REPORTS["laplace"](), REPORTS["trajectory"]()
    np.testing.assert_array_equal(one.profile["eps"], two.profile["eps"])
    assert (one.profile["delta_lower"] <= one.profile["delta_upper"]).all()
    assert (np.diff(one.profile["delta_upper"]) <= 1e-9).all()


def test_each_budget_is_spent_as_stated():
    report = REPORTS["laplace"]()
    part, m = report.on_partition, report.witness.runs
    assert part.alpha == pytest.approx(0.9 * 0.05)
    inside = round(brentq(lambda c: clopper_pearson_lower(c, m, 0.005) - part.region_mass, 1, m))
    assert clopper_pearson_lower(inside, m, 0.1 * 0.05) == pytest.approx(part.region_mass, abs=1e-9)  # a whole count, at a tenth
    assert part.region_mass < inside / m
    c1, c2 = (np.repeat(c, part.number) for c in (part.c1, part.c2))
    one = max(frontier_bound(frontier(a, b, m, part.alpha / 24), 0.5) for a, b in ((c1, c2), (c2, c1)))
    at = int(np.argmin(np.abs(report.profile["eps"] - 0.5)))
    assert report.profile["delta_upper"][at] == pytest.approx(one)
    a, b = report.witness.ordered
    low = clopper_pearson_lower(a, m, 0.025) - math.exp(0.5) * clopper_pearson_upper(b, m, 0.025)
    assert report.profile["delta_lower"][at] == pytest.approx(low)


def test_the_bound_over_all_events_counts_the_rest_and_the_variation():
    c = np.array([400, 300, 200]), np.array([300, 300, 300])
    whole = OnAllEvents(*c, (100, 100), 0.0, 1000, 0.05)
    without = OnAllEvents(*c, (0, 0), 0.0, 1000, 0.05)
    varied = OnAllEvents(*c, (100, 100), 0.4, 1000, 0.05)
    assert whole.delta_upper(0.2) > without.delta_upper(0.2) + 0.09
    assert varied.delta_upper(0.6) == pytest.approx(whole.delta_upper(0.2))
    assert varied.delta_upper(0.2) > whole.delta_upper(0.2)


def test_the_mass_of_the_region_is_covered():
    """At a tenth of the second budget; the share itself, without a limit, would miss half the time."""
    settings, rng = dpv.Settings(alpha=0.5, test_runs=500), np.random.default_rng(0)
    levels, true = Levels(Linear(np.ones(1)), np.zeros(1)), (0.97, 0.95)
    missed = plain = 0
    for _ in range(1000):
        held = [int(rng.binomial(500, p)) for p in true]
        inside = tuple(Counts(np.array([0, 1]), np.array([500 - c, c])) for c in held)
        missed += bound_partition(levels, inside, inside, settings).region_mass > min(true)
        plain += min(held) / 500 > min(true)
    assert missed <= most(1000, 0.05) < plain


def test_pairs_of_counts_of_any_size():
    for runs in (10**6, 4 * 10**9):
        c = np.array([3, 3, runs]), np.array([5, 5, 0])
        c1, c2, number = distinct_pairs(*c, runs)
        assert sorted(zip(c1.tolist(), c2.tolist(), number.tolist(), strict=True)) == [(3, 5, 2), (runs, 0, 1)]


def test_a_row_is_flat():
    assert all(not isinstance(value, (dict, list, tuple, np.ndarray)) for value in REPORTS["paper"]().row().values())


def test_counts_conserve_runs(report):
    part = report.on_partition
    assert part.c1 @ part.number == part.c2 @ part.number == report.witness.runs
    assert sum(report.cells["number"]) == len(np.repeat(part.c1, part.number))

"""The paper run again: its numbers, the rule that answers a claim, the page; a tiny reproduction in the long run."""

import json
import math
import re
import tomllib

import numpy as np
import pytest
from limits import most
from scipy.stats import binom

from dpverify.paper import publish
from dpverify.paper.claims import CONFIRMED, CONTRADICTED, UNDECIDED, Claim, apart, at, compare, median_interval
from dpverify.paper.compare import judged, on_sweep
from dpverify.paper.plan import planned, printed, studies, to_toml
from dpverify.paper.remarks import cannot_be
from dpverify.paper.reproduce import reproduce
from dpverify.stats.paper_test import paper_lambda

TUNED = {"tau": 1.4e-5, "s_hat": 0.993, "says": "tau <script>alert(1)</script>"}


def test_the_printed_numbers_are_all_there():
    rows = [row for row in [*printed()["cells"], *printed()["finer"]] if "epsilon_c" in row]
    finite = [row["epsilon_c"] for row in rows if math.isfinite(row["epsilon_c"])]
    assert len(finite) == 14
    assert sum(map(on_sweep, finite)) == 8
    for row in printed()["cells"]:
        if "eta" in row:
            assert round(paper_lambda(0.05, row["eta"], row["epsilon_c"]), 4) == row["lambda"]


def test_the_printed_constants_come_out():
    for name, pair in publish.constants()["constants"].items():
        said = str(pair["printed"])
        digits = len(said.partition(".")[2])
        assert f"{pair['ours']:.{digits}f}" == said, name


def test_every_study_is_a_file_that_reads_back():
    plan = planned()
    for amount in (plan["quick"], plan["full"]):
        tasks = list(studies(plan, amount, TUNED))
        assert {task.name for task in tasks} >= {"critical-Q1", "tables-Q3", "certified-Q2", "finer-Q2-r6", "map-Q1"}
        for task in tasks:
            assert tomllib.loads(to_toml(task.document)) == task.document
    assert plan["full"]["seeds"] == 200
    assert plan["full"]["draws"] >= 20


@pytest.mark.parametrize("n", [10, 20, 21, 40, 100])
def test_the_median_interval_covers_and_one_step_less_does_not(n):
    """Exactly: the interval between the ordered values at `cut` and n - 1 - cut misses if few lie on one side."""
    low, high = median_interval(np.arange(n))
    cut = int(low)
    assert high == n - 1 - cut
    assert 1 - 2 * binom.cdf(cut, n, 0.5) >= 0.95
    assert 1 - 2 * binom.cdf(cut + 1, n, 0.5) < 0.95  # a shorter interval would not do


def test_false_alarms_and_power_of_the_rule():
    rng = np.random.default_rng(0)
    laws = (
        rng.standard_normal((400, 20)),
        rng.exponential(size=(400, 20)) - math.log(2),
        rng.standard_cauchy((400, 20)),
    )
    for values in laws:
        words = [compare("x", row).answer for row in values]
        assert words.count(CONFIRMED) + words.count(CONTRADICTED) <= most(400, 0.05)
    assert all(compare("x", row).answer == CONFIRMED for row in laws[0][:50] + 3)
    assert all(compare("x", row).answer == CONTRADICTED for row in laws[0][:50] - 3)
    assert compare("x", [math.inf] * 20).answer == CONFIRMED
    assert compare("x", np.ones(19)).answer == UNDECIDED  # too few draws, however clear


def test_a_claim_needs_its_comparisons_to_agree():
    yes, no, shown = (compare("x", np.full(20, v), decides=d) for v, d in ((1.0, True), (-1.0, True), (-1.0, False)))
    assert Claim("c", "t", (yes, shown)).answer == CONFIRMED
    assert Claim("c", "t", (no, no)).answer == CONTRADICTED
    assert Claim("c", "t", (yes, no)).answer == UNDECIDED
    assert apart(math.inf, math.inf) == 0


def test_reading_off_a_curve():
    curve = [{"epsilon": 4 / x, "error": x} for x in (1.0, 2.0, 4.0)]
    assert at(curve, "epsilon", 1.5, "error") == pytest.approx(4 / 1.5)
    assert at(curve, "error", 8.0, "epsilon") == pytest.approx(0.5)  # on from the nearest two
    steep = [{"epsilon": math.inf, "error": 1.0}, {"epsilon": 1.0, "error": 2.0}]
    assert at(steep, "error", 0.5, "epsilon") == math.inf  # less noise than where it was infinite
    assert at([{"epsilon": math.inf, "error": x} for x in (1.0, 2.0)], "error", 1.5, "epsilon") == math.inf


def draw(number, rng, better=1.0, spread=0.3, laws=("gibbs",)):
    """A draw whose mechanisms have epsilon = c / error; `better` is how much the others lose."""
    place = math.exp(spread * rng.standard_normal())

    def curve(name, loss):
        c = 0.015 * place * loss * math.exp(0.1 * rng.standard_normal())
        return [
            {"mechanism": name, "parameter": 0.6 - 10 * e, "epsilon_estimate": c / e, "error_first": e}
            for e in (0.004, 0.008, 0.016)
        ]

    names = [*laws, "perturbed", "ekf"]
    return {
        "rows": [row for name in names for row in curve(name, 1.0 if name in laws else better)],
        "again": curve("gibbs", 1.0),
        "paper": [{"mechanism": name, "epsilon_c": 1.0 + rng.random(), "error": 0.004} for name in names],
        "theory": [{"s": 0.5, "sufficient": 1000.0, "certified": 50.0 + rng.random()}],
        "draw": number,
    }


def test_the_four_claims_on_draws_whose_answer_is_known():
    rng, matched = np.random.default_rng(1), planned()["matched"]
    answers = [c.answer for c in judged([draw(k, rng, 2.0, 1.0) for k in range(40)], matched, ["gibbs"])]
    assert answers == [CONFIRMED] * 4
    answers = [c.answer for c in judged([draw(k, rng, 0.5) for k in range(40)], matched, ["gibbs"])]
    assert answers[1] == answers[3] == CONTRADICTED


def test_where_nothing_differs_nothing_is_found():
    rng, matched, times = np.random.default_rng(2), planned()["matched"], 40
    found = [judged([draw(k, rng, 1.0, 0.0) for k in range(20)], matched, ["gibbs"]) for _ in range(times)]
    for k in (1, 2, 3):
        for part in (0, 1):
            wrong = sum(claims[k].comparisons[part].answer != UNDECIDED for claims in found)
            assert wrong <= most(times, 0.05), (k, part)


def fake_folder(place):
    """What a reproduction leaves, small and made up."""
    rng, plan = np.random.default_rng(0), planned()
    amount = {**plan["quick"], "seeds": 3, "draws": 20}
    columns = "mechanism,mechanism.s,mechanism.s_bar,mechanism.s_hat,pair.move,problem,epsilon_critical,error_first,"
    columns += "error_second,eta,lambda,epsilon_lower,epsilon_upper_on_partition,cells,c1,c2,test_runs,witness"
    for task in studies(plan, amount, TUNED):
        folder = place / "studies" / task.name
        folder.mkdir(parents=True)
        lines = [columns]
        for name, entry in task.document["mechanisms"].items():
            moves = task.document["pairs"][task.setup].get("move", [""])
            key = {"perturbed": "s_bar", "ekf": "s_hat"}.get(name, "s")
            for value in np.ravel(entry[key]):
                own = {"s": "", "s_bar": "", "s_hat": "", key: float(value)}
                for move in moves * (3 if len(moves) == 1 else 1):
                    e = 1 + rng.random()
                    first = f"{name},{own['s']},{own['s_bar']},{own['s_hat']},{move},,{e},{0.004 * e},{0.006},.1,.3"
                    lines.append(f"{first},{e},{'inf' if name == 'ekf' else e + 1},257,{int(90 * e)},30,2000,x > 1")
        (folder / "table.csv").write_text("\n".join(lines) + "\n")
    (place / "draws").mkdir()
    for k in range(20):
        (place / "draws" / f"{k:03d}.json").write_text(json.dumps(draw(k, rng, 2.0, 1.0)))
    return plan, amount


def test_the_page_is_whole_and_alone(tmp_path, monkeypatch):
    plan, amount = fake_folder(tmp_path)
    monkeypatch.setattr(publish, "FORMATS", ("svg",))
    monkeypatch.setattr(publish, "scenes", list)  # they compile an estimator: looked at in the long run
    page = publish.publish(tmp_path, plan, amount, TUNED).read_text()
    assert "<script" not in page.replace("&lt;script&gt;", "")
    assert "&lt;script&gt;alert(1)" in page
    assert not re.search(r"(src|href)=\"(?!#)|https?://", page)
    for cell in printed()["cells"]:
        assert cell["epsilon_c"] == math.inf or str(cell["epsilon_c"]).removeprefix("0") in page
    for what, _ in cannot_be():
        assert what.split("(")[0][:20] in page
    assert page.count(">confirmed</span>") >= 3
    assert "6474.3" in page
    numbers = json.loads((tmp_path / "numbers.json").read_text())
    assert len(numbers["cells"]) == 16
    assert {path.stem for path in (tmp_path / "figures").iterdir()} >= {"beside-0", "exchange-0", "map-2", "p-values-1"}
    assert (tmp_path / "table.md").read_text().count("\n| Q") == 16


@pytest.mark.slow
def test_a_tiny_reproduction_goes_on_to_the_same_page(tmp_path):
    plan = planned()
    small = {"select_runs": 256, "test_runs": 512, "block": 256}
    tiny = {**plan["quick"], "seeds": 2, "draws": 2, "draw": small, "certified": small, "map": small}
    page = reproduce(tmp_path / "out", amount=tiny)
    once = page.read_text()
    assert once.count(">undecided</span>") == 4  # two draws are too few for any word
    assert len(list((tmp_path / "out" / "studies" / "critical-Q1" / "reports").iterdir())) == 8  # one a cell
    for path in ("draws/001.json", "index.html"):
        (tmp_path / "out" / path).unlink()
    assert reproduce(tmp_path / "out", amount=tiny).read_text() == once

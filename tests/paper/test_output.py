"""The output files of the reproduction, written from made-up measurements; sentences agree with the numbers."""

import dataclasses
import json
import math
import re

import numpy as np
import pytest
from made_draws import make_draw
from made_readings import make_reading_results, make_row

from dpverify.events.partition import OUTSIDE
from dpverify.paper.claims.decision_rule import Claim, compare
from dpverify.paper.claims.judgement import judge_claims
from dpverify.paper.claims.words import CLAIM_WORDS
from dpverify.paper.constants import computed_constants, eta_sentence
from dpverify.paper.measurements import CalibratedNumbers, PassingPairs, Results, StudyRow
from dpverify.paper.page import figure_groups, findings, output, reading_tables
from dpverify.paper.page.choice_table import choice_table
from dpverify.paper.page.discussion import impossible_statements
from dpverify.paper.page.tables import show_claim
from dpverify.paper.plan import PARAMETER_NAMES, read_plan, study_tasks
from dpverify.paper.printed import read_printed
from dpverify.paper.readings.results import FinerFit, Reading, Summary
from dpverify.paper.study_results import typed_rows

CALIBRATED = CalibratedNumbers(tau=1.4e-5, s_hat=0.993, says="tau <script>alert(1)</script>")
READINGS = make_reading_results()
PAIRS = (
    PassingPairs("paper", 0.39947, 40, 13, (0.19, 0.49), 40, 0.93),
    PassingPairs("exact", 0.39947, 40, 21, (0.36, 0.69), 39, 0.88),
)


def make_results():
    """Return an effort and made-up results that fit it."""
    rng, plan = np.random.default_rng(0), read_plan()
    effort = dataclasses.replace(plan.quick, draws=20)
    tables = {}
    for task in study_tasks(plan, effort, CALIBRATED):
        rows = []
        for name, entry in task.document["mechanisms"].items():
            moves = task.document["pairs"][task.setup].get("move", [None])
            for value in np.ravel(entry[PARAMETER_NAMES[name]]):
                for move in moves * (3 if len(moves) == 1 else 1):
                    epsilon = 1 + rng.random()
                    rows.append(
                        StudyRow(
                            mechanism=name,
                            parameter=float(value),
                            moved_sensor=move,
                            epsilon_critical=epsilon,
                            eta=0.1,
                            lambda_=0.3,
                            epsilon_lower=epsilon,
                            epsilon_upper_on_partition=math.inf if name == "ekf" else epsilon + 1,
                            error_first=0.004 * epsilon,
                            error_second=0.006,
                            cells=257,
                            counts=(int(90 * epsilon), 30),
                            test_runs=2000,
                            worst_outside=False,
                        )
                    )
        tables[task.name] = tuple(rows)
    draws = [make_draw(k, rng, 2.0, 1.0) for k in range(20)]
    return effort, Results(CALIBRATED, tables, draws, READINGS, PAIRS)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Write all files once; the figures that compile an estimator are left to the slow test."""
    folder = tmp_path_factory.mktemp("reproduced")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(output, "FIGURE_FORMATS", ("svg",))
        patch.setattr(figure_groups, "scene_figures", list)
        patch.setattr(figure_groups, "accuracy_figures", list)
        effort, results = make_results()
        output.write_outputs(folder, read_plan(), effort, results)
    return folder


def test_the_page_loads_nothing_and_escapes_text(written):
    page = (written / "index.html").read_text()
    assert "<script" not in page.replace("&lt;script&gt;", "")
    assert "&lt;script&gt;alert(1)" in page
    assert not re.search(r"(src|href)=\"(?!#)|https?://", page)
    assert "`" not in re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)


def test_the_page_has_every_printed_number_with_its_place_in_the_paper(written):
    page = (written / "index.html").read_text()
    for cell in read_printed().cells:
        assert cell.place in page
        assert cell.epsilon_c == math.inf or f">{cell.epsilon_c:g}<" in page
        assert cell.error is None or f"{cell.error:.8g}" in page
        assert cell.lambda_ is None or f"{cell.lambda_:.4f}" in page
        assert cell.eta is None or f"{cell.eta:.3f}" in page
    for figure in ("Fig. 2", "Fig. 3", "Fig. 4 left", "Fig. 5 left", "Fig. 5 right", "Fig. 6 left", "Fig. 6 right"):
        assert f"<h3>{figure}:" in page
    for anchor in re.findall(r'href="#([\w-]+)"', page):
        assert f'id="{anchor}"' in page
    for statement, _ in impossible_statements():
        assert statement.split("(")[0][:20] in page
    assert "6474.3" in page
    assert "13 of 40" in page  # pairs that pass


def test_the_files_have_the_same_numbers_as_the_page(written):
    numbers = json.loads((written / "numbers.json").read_text())
    assert len(numbers["rows"]) == len(READINGS.best.rows) == 12
    assert {row["place"] for row in numbers["rows"]} == {cell.place for cell in read_printed().cells}
    lines = (written / "readings.csv").read_text().splitlines()
    fits = [fit for ranking in READINGS.rankings.values() for reading in ranking for fit in reading.rows]
    assert len(lines) == 1 + sum(len(row.fits) for row in fits)
    names = {path.stem for path in (written / "figures").iterdir()}
    assert names >= {"beside-0", "runs-0", "exchange-0", "map-2", "p-values-4", "events-1"}
    markdown = (written / "table.md").read_text()
    for sentence in findings.lead(READINGS, []):
        assert sentence.split(";")[0].split(",")[0] in markdown


def test_the_lead_counts_what_the_tables_show():
    lead = findings.lead(READINGS, [])
    assert len(lead) == 3
    best, rows = READINGS.best, findings.finite_rows(READINGS)
    marks = [str(cell) for line in reading_tables.main_table(READINGS).rows for cell in line]
    inside = sum(reading_tables.INSIDE in mark for mark in marks)
    assert inside == best.inside
    assert inside + sum(reading_tables.OUTSIDE in mark for mark in marks) == best.printed
    assert f"{inside} of the {best.printed} numbers" in lead[0]
    assert "Table I, row 2, W2-MHE; Table I, row 2, input; Table II, row 3" in lead[1]  # Q3 is made not to fit
    saturated = sum(row.saturated for row in rows)
    assert f"in {saturated} of {len(rows)} rows" in lead[2]
    assert sum("saturated" in mark for mark in marks) == sum(row.saturated for row in best.rows)


def test_the_lead_follows_the_measurements():
    """With every row out of range and none saturated, the same sentences say the opposite."""
    rows = tuple(
        make_row(cell, READINGS.best.reading, 3.0)._replace(saturated_share=0.0) for cell in read_printed().cells
    )
    changed = READINGS._replace(best=READINGS.best._replace(rows=rows))
    lead = findings.lead(changed, [])
    assert "0 of the 39 numbers" in lead[0]
    assert "ε_c 0 of 11" in lead[0]
    assert "in 0 of 11 rows" in lead[2]
    assert len(findings.unexplained(changed)) == 11


def test_the_finding_about_the_ceiling_is_careful_and_agrees_with_the_model():
    paragraphs = findings.ceiling_findings(READINGS)
    favoured = findings.favoured_runs(READINGS.ceiling_by_runs)
    assert favoured.test_runs == 3000
    assert "most probable under disjoint distributions for m = 3000" in paragraphs[2]
    assert "does not prove" in paragraphs[2]
    for ceiling in READINGS.ceiling_by_runs:
        assert reading_tables.summary_text(ceiling.epsilon_c, "epsilon_c") in paragraphs[1]


def test_unexplained_rows_are_those_with_a_number_out_of_range():
    sentences = findings.unexplained(READINGS)
    out = [row for row in READINGS.best.rows if row.inside < len(row.fits)]
    assert len(sentences) == len(out) == 3
    for row, sentence in zip(out, sentences, strict=True):
        assert row.row in sentence


def test_claims_are_stated_with_their_place_and_restrictions(written):
    _, results = make_results()
    claims = judge_claims(results.draws, read_plan().matched)
    assert {claim.name for claim in claims} == set(CLAIM_WORDS)
    page = (written / "index.html").read_text()
    for claim in claims:
        words = CLAIM_WORDS[claim.name]
        assert f">{claim.answer.value}</span>Claim {words.number}." in page
        assert words.hedges[0].split(":")[0] in page.replace("&#39;", "'")


def test_the_better_choice_is_named_only_where_ranges_are_apart():
    rows = choice_table(READINGS).rows
    assert len(rows) == 6
    by_place = {str(line[0]).split("<br>")[0]: [str(cell).split("<br>")[0] for cell in line[1:]] for line in rows}
    overlap = "undecided: the ranges overlap"
    assert by_place["Section V, text on Q1"] == ["input perturbation", overlap, "input perturbation"]
    assert by_place["Table II, row 3"] == ["W2-MHE", "W2-MHE", "W2-MHE"]


def test_every_choice_of_a_reading_has_words():
    assert set(reading_tables.CHOICES) == set(Reading._fields)
    table = reading_tables.choices_table(READINGS)
    assert len(table.rows) == len(Reading._fields) + 2  # n, and what every seed draws
    sentence = findings.best_reading_sentence(READINGS)
    assert all(str(line[1]) in sentence for line in table.rows[: len(Reading._fields)])


def test_formulas_give_every_printed_digit():
    constants = computed_constants()
    assert len(constants) == 13
    assert all(constant.agrees for constant in constants.values())
    assert "8 of the 8" in eta_sentence()


def test_the_complement_of_the_region_is_recognised_by_its_code():
    """The text of the event plays no role; a failed verification is left out."""
    numbers = dict.fromkeys(
        ["epsilon_critical", "eta", "lambda", "epsilon_lower", "epsilon_upper_on_partition", "error_first"], 1.0
    )
    numbers |= {"error_second": 1.0, "cells": 257, "c1": 3, "c2": 4, "test_runs": 10}
    row = {"mechanism": "gibbs", "mechanism.s": 0.8, "problem": None, "witness": "any text", **numbers}
    rows = [{**row, "witness_cell": cell} for cell in (OUTSIDE, 7, None, OUTSIDE)] + [{**row, "problem": "failed"}]
    assert [typed.worst_outside for typed in typed_rows(rows)] == [True, False, False, True]


def test_the_quick_form_says_so_and_does_not_say_that_no_reading_explains_a_row():
    notice = findings.quick_notice(read_plan().quick.readings, 2)
    assert "quick form" in notice
    assert "No claim is answered" in notice
    full, quick = (findings.lead(READINGS, [], quick=quick)[2] for quick in (False, True))
    assert "we do not know why" in full
    assert "we do not know why" not in quick


def test_the_trend_on_finer_partitions_is_named_only_where_it_is_the_opposite():
    def fits(*medians):
        return [
            FinerFit(r, printed, Summary(median, median, median, 9), Summary(3.0, 3.0, 3.0, 9), 0.0, None)
            for r, printed, median in zip((2, 3, 4, 5), (0.89281, 0.98162, 1.9939, None), medians, strict=True)
        ]

    falling = findings.lead(READINGS._replace(finer=tuple(fits(1.77, 0.55, 0.0, 0.0))), [])
    assert "grows from 0.89281 to 1.9939; ours falls from 1.77 to 0.00" in falling[1]
    growing = findings.lead(READINGS._replace(finer=tuple(fits(0.5, 0.7, 0.9, 0.0))), [])
    assert "ours falls" not in growing[1]


def test_an_interval_without_ends_gives_its_reason():
    few, many = (show_claim(Claim("EKF", "", (compare("ratio", [1.0] * n + [math.inf] * n),))) for n in (1, 30))
    assert "too few draws" in few.table.rows[0][1].below
    assert "some ε are infinite" in many.table.rows[0][1].below

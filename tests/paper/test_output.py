"""The output files of the reproduction, written from made-up measurements."""

import dataclasses
import json
import math
import re

import numpy as np
from made_draws import make_draw

from dpverify.events.partition import OUTSIDE
from dpverify.paper import figure_groups, output
from dpverify.paper.comparison import compare_grids
from dpverify.paper.discussion import impossible_statements
from dpverify.paper.measurements import CalibratedNumbers, Results, StudyRow
from dpverify.paper.plan import PARAMETER_NAMES, read_plan, study_tasks
from dpverify.paper.printed import read_printed
from dpverify.paper.study_results import typed_rows

CALIBRATED = CalibratedNumbers(tau=1.4e-5, s_hat=0.993, says="tau <script>alert(1)</script>")


def make_results():
    """Return an effort and made-up results that fit it."""
    rng, plan = np.random.default_rng(0), read_plan()
    effort = dataclasses.replace(plan.quick, seeds=3, draws=20)
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
    return effort, Results(CALIBRATED, tables, draws)


def test_the_page_is_complete_and_loads_nothing(tmp_path, monkeypatch):
    effort, results = make_results()
    monkeypatch.setattr(output, "FIGURE_FORMATS", ("svg",))
    monkeypatch.setattr(figure_groups, "scene_figures", list)  # they compile an estimator; the slow test draws them
    page = output.write_outputs(tmp_path, read_plan(), effort, results).read_text()
    assert "<script" not in page.replace("&lt;script&gt;", "")
    assert "&lt;script&gt;alert(1)" in page
    assert not re.search(r"(src|href)=\"(?!#)|https?://", page)
    for cell in read_printed().cells:
        assert cell.epsilon_c == math.inf or str(cell.epsilon_c).removeprefix("0") in page
    for statement, _ in impossible_statements():
        assert statement.split("(")[0][:20] in page
    assert page.count(">confirmed</span>") >= 3
    assert "6474.3" in page
    numbers = json.loads((tmp_path / "numbers.json").read_text())
    assert len(numbers["cells"]) == 16
    assert {path.stem for path in (tmp_path / "figures").iterdir()} >= {"beside-0", "exchange-0", "map-2", "p-values-1"}
    assert (tmp_path / "table.md").read_text().count("\n| Q") == 16


def test_the_complement_of_the_region_is_recognised_by_its_code():
    """The text of the event plays no role; a failed verification is left out."""
    numbers = dict.fromkeys(
        ["epsilon_critical", "eta", "lambda", "epsilon_lower", "epsilon_upper_on_partition", "error_first"], 1.0
    )
    numbers |= {"error_second": 1.0, "cells": 257, "c1": 3, "c2": 4, "test_runs": 10}
    row = {"mechanism": "gibbs", "mechanism.s": 0.8, "problem": None, "witness": "any text", **numbers}
    rows = [{**row, "witness_cell": cell} for cell in (OUTSIDE, 7, None, OUTSIDE)] + [{**row, "problem": "failed"}]
    assert [typed.worst_outside for typed in typed_rows(rows)] == [True, False, False, True]
    (comparison,) = compare_grids({"finer-Q2-r2": typed_rows(rows)})
    assert comparison.measured.worst_outside == 0.5

"""A reproduction with very few runs, interrupted and resumed; damaged files."""

import dataclasses
import json
import math

import numpy as np
import pytest
from made_draws import make_draw

from dpverify.errors import FolderError
from dpverify.paper.measurements import SensorDraw
from dpverify.paper.parts import read_value, write_value
from dpverify.paper.plan import ReadingSeeds, RunSizes, read_plan
from dpverify.paper.readings.definitions import BASE
from dpverify.paper.readings.runs import FittedParameter, SeedResult
from dpverify.paper.readings.study import ReadingTask, TaskResult
from dpverify.paper.reproduce import reproduce


def test_a_draw_reads_back_and_a_damaged_one_is_refused(tmp_path):
    draw = make_draw(3, np.random.default_rng(0))
    path = tmp_path / "003.json"
    write_value(path, draw)
    assert read_value(path, SensorDraw) == draw
    for text in ("{", json.dumps({"kind": "SensorDraw", "number": 3}), json.dumps([1])):
        path.write_text(text)
        with pytest.raises(FolderError, match=r"damaged file; expected a SensorDraw; remove it"):
            read_value(path, SensorDraw)


def test_a_measured_row_reads_back(tmp_path):
    results = tuple(SeedResult(k, 0.4, 0.011, 0.08, 0.004, 0.02, 0.4, (10, 0), 0.005, 0.03) for k in range(2))
    task = ReadingTask("Q1, W2-MHE, s 0.8", BASE, 0, 2)
    for fitted in (None, FittedParameter(0.0, -math.inf)):
        stored = TaskResult(task, 0.8, fitted, results, 1.5)
        write_value(tmp_path / "row.json", stored)
        assert read_value(tmp_path / "row.json", TaskResult) == stored


@pytest.mark.slow
def test_a_resumed_reproduction_gives_the_same_page(tmp_path):
    small = RunSizes(select_runs=256, test_runs=512, block=256)
    effort = dataclasses.replace(
        read_plan().quick,
        readings=ReadingSeeds(True, blend=2, gibbs=2, input=2, ekf=2, best=2, best_input=2, repetitions=50),
        draws=2,
        draw_families=("gibbs", "perturbed", "ekf"),
        pairs=3,
        draw=small,
        certified=small,
        map=small,
    )
    out = tmp_path / "out"
    page = reproduce(out, effort=effort).read_text()
    stored = sorted((out / "readings").iterdir())
    for path in (out / "draws" / "001.json", out / "index.html", out / "pairs.json", *stored[::7]):
        path.unlink()
    assert reproduce(out, effort=effort).read_text() == page
    assert sorted((out / "readings").iterdir()) == stored

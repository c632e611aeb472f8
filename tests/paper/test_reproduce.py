"""A reproduction with very few runs, interrupted and resumed; damaged files."""

import dataclasses
import json

import numpy as np
import pytest
from made_draws import make_draw

from dpverify.errors import FolderError
from dpverify.paper.measurements import SensorDraw
from dpverify.paper.plan import RunSizes, read_plan
from dpverify.paper.reproduce import _read_value, _write_value, reproduce


def test_a_draw_reads_back_and_a_damaged_one_is_refused(tmp_path):
    draw = make_draw(3, np.random.default_rng(0))
    path = tmp_path / "003.json"
    _write_value(path, draw)
    assert _read_value(path, SensorDraw) == draw
    for text in ("{", json.dumps({"kind": "SensorDraw", "number": 3}), json.dumps([1])):
        path.write_text(text)
        with pytest.raises(FolderError, match=r"damaged file; expected a SensorDraw; remove it"):
            _read_value(path, SensorDraw)


@pytest.mark.slow
def test_a_resumed_reproduction_gives_the_same_page(tmp_path):
    small = RunSizes(select_runs=256, test_runs=512, block=256)
    effort = dataclasses.replace(read_plan().quick, seeds=2, draws=2, draw=small, certified=small, map=small)
    out = tmp_path / "out"
    page = reproduce(out, effort=effort).read_text()
    assert page.count(">undecided</span>") == 4  # two draws are too few to answer a claim
    assert len(list((out / "studies" / "critical-Q1" / "reports").iterdir())) == 8  # one report per cell
    for name in ("draws/001.json", "index.html"):
        (out / name).unlink()
    assert reproduce(out, effort=effort).read_text() == page

"""tradeoff: privacy and accuracy of several mechanisms in one table."""

import csv
import math
import re
from dataclasses import dataclass

import numpy as np
import pytest

import dpverify as dpv

DELTA = 0.01
FEW = {"partition": "atoms", "events": "union", "select_runs": 500, "test_runs": 2000}


@dataclass(frozen=True)
class Response:
    """Randomised response: epsilon ln((p - delta) / (1 - p)) at delta."""

    truth: float

    def __call__(self, data, runs, rng):
        return np.where(rng.random(runs) < self.truth, data, 1 - data)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    families = {"<quiet>": (Response, (0.6, 0.8)), "other": (Response, (0.7,))}
    folder = tmp_path_factory.mktemp("tradeoff")
    return dpv.tradeoff(families, 0.0, 1.0, DELTA, dpv.rmse([[0.0]]), folder=folder / "checkpoints", **FEW)


def test_every_parameter_has_a_row_with_privacy_and_accuracy(table):
    assert [(row["mechanism"], row["parameter"]) for row in table.rows] == [
        ("<quiet>", 0.6),
        ("<quiet>", 0.8),
        ("other", 0.7),
    ]
    for row in table.rows:
        exact = math.log((row["parameter"] - DELTA) / (1 - row["parameter"]))
        assert row["epsilon_lower"] < row["epsilon_estimate"] < row["epsilon_upper_on_partition"]
        assert row["epsilon_estimate"] == pytest.approx(exact, rel=0.15)
        assert row["error_first"] == pytest.approx(1 - row["parameter"], rel=0.1)


def test_the_rows_are_written_as_csv_and_as_a_page(table, tmp_path):
    table.to_csv(tmp_path / "table.csv")
    with (tmp_path / "table.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [float(line["epsilon_lower"]) for line in lines] == [row["epsilon_lower"] for row in table.rows]
    table.to_html(tmp_path / "table.html")
    page = (tmp_path / "table.html").read_text()
    assert "&lt;quiet&gt;" in page
    assert "<quiet>" not in page
    with pytest.raises(dpv.InputError, match=r"nowhere.*; expected "):
        table.to_csv(tmp_path / "nowhere" / "table.csv")


def test_the_printed_table_is_aligned(table):
    finding, title, header, *lines = str(table).splitlines()
    assert re.fullmatch(r"From ε at least .* with error 0.2\S* \(<quiet> 0.8\) to .* \(<quiet> 0.6\)\.", finding)
    assert title == "  Privacy at delta 0.01 (each bound: confidence 95%) and accuracy."
    assert len(lines) == 3
    assert all(line[header.index("parameter") - 2 :].startswith("  0.") for line in lines)


def test_families_without_a_parameter_are_refused():
    with pytest.raises(dpv.InputError, match="families: found no parameter"):
        dpv.tradeoff({"none": (Response, ())}, 0.0, 1.0, DELTA, dpv.rmse([[0.0]]))


def noisy_total(scale):
    return lambda data, runs, rng: data + scale * rng.laplace(size=(runs, 1))


def test_an_estimate_is_at_least_the_lower_bound_of_its_row():
    """With few cells, epsilon over the cells is smaller than that of the tested event: the two are no interval."""
    few = {"partition": "grid", "resolution": 1, "select_runs": 2000, "test_runs": 5000}
    table = dpv.tradeoff({"noise": (noisy_total, (1.0, 2.0))}, 0.0, 1.0, 0.01, dpv.rmse([[0.0]]), **few)
    for row in table.rows:
        assert row["epsilon_upper_on_partition"] < row["epsilon_lower"] <= row["epsilon_estimate"]
    header = str(table).splitlines()[2]
    assert "over the cells" in header

"""Tables as CSV: cells that a spreadsheet would execute are quoted, and every value is read back."""

import math

import numpy as np

from dpverify.studies.tables import (
    column_names,
    csv_text,
    lower_text,
    verdict_text,
)
from dpverify.util.formatting import format_lower

ROWS = [
    {"mechanism": "=HYPERLINK(1)", "scale": -1.5, "note": "-cmd|x", "count": 3},
    {"mechanism": "@sum", "scale": 2e-9, "note": "+1", "count": -4, "pair": "plain"},
    {"mechanism": "'quoted", "scale": float("inf"), "note": "-inf", "count": 0},
]


def test_formulas_are_quoted_and_numbers_are_not():
    lines = csv_text(ROWS, column_names(ROWS)).splitlines()
    assert lines[1] == "'=HYPERLINK(1),-1.5,'-cmd|x,3,"
    assert lines[2] == "'@sum,2e-09,+1,-4,plain"


def test_a_column_name_is_quoted_too():
    assert csv_text([{"=1+1": 2}], ["=1+1"]) == "'=1+1\n2\n"


def test_a_refutation_has_the_digits_that_show_it():
    row = {"claim": "epsilon 0.6, delta 0", "epsilon": 0.6, "epsilon_lower": 0.600035}
    assert lower_text(row) == "epsilon >= 0.60003"
    assert lower_text({**row, "epsilon": 0.61}) == "epsilon >= 0.6"
    for excess in 10.0 ** -np.arange(1.0, 15.0):
        for claim in (0.6, 1 / 3, 1.1, math.log(3), 12.0):
            text = format_lower(claim + excess, claim)
            assert claim < float(text) <= claim + excess


def test_the_verdict_of_a_row_says_how_strong_its_evidence_is():
    words = [verdict_text({"verdict": "REFUTED", "p_value": p, "alpha": 0.05}) for p in (0.02, 0.005, 0.0005)]
    assert words == ["REFUTED, weak evidence", "REFUTED, moderate evidence", "REFUTED, strong evidence"]

"""The page and the files of the reproduction, written from made-up measurements; sentences agree with the numbers."""

import csv
import math
import re

from made_reproduction import make_draws, make_readings

from reproduction import findings
from reproduction.claims import judge_claims
from reproduction.page import claim_section, result_sections
from reproduction.paper import CELLS, PRINTED
from reproduction.tables import INSIDE, main_table

READINGS = make_readings()


def test_the_page_has_every_printed_number_with_its_place_in_the_paper(written):
    page = (written / "index.html").read_text()
    for cell in CELLS:
        if cell.epsilon_c < math.inf:
            assert cell.place in page
            assert f">{cell.epsilon_c:g}<" in page
            assert f"{cell.error:.8g}" in page
        assert cell.lambda_ is None or f"{cell.lambda_:.4f}" in page
        assert cell.eta is None or f"{cell.eta:.3f}" in page
    for figure in ("Fig. 1", "Fig. 2", "Fig. 3", "Fig. 5 left"):
        assert f"<h3>{figure}" in page
    for anchor in re.findall(r'href="#([\w-]+)"', page):
        assert f'id="{anchor}"' in page
    for one in PRINTED["corrections"]:
        assert one["statement"][:20] in page
    for claim in PRINTED["claims"].values():
        assert claim["statement"].split("'")[0][:40] in page
    for text in ("6474.3", "9.7e-07", "0.0198", "0.39947, the printed", "0.41408 and λ 0.0803", "13 of 40", "1.234<"):
        assert text in page


def test_the_page_cites_the_slides_and_says_nothing_about_the_authors_distributions(written):
    for name in ("index.html", "table.md"):
        text = (written / name).read_text()
        assert "y8han/y8han.github.io" in text
        assert "slides 12 and 13" in text
        assert not re.search("saturated|told apart completely|ceiling", text)


def test_a_reading_is_excluded_by_its_shift(written):
    lines = [line for line in (written / "table.md").read_text().splitlines() if line.endswith(("allowed |", "ed |"))]
    assert ("allowed" in lines[0], "excluded" in lines[1]) == (True, True)


def test_the_files_have_the_same_numbers_as_the_page(written):
    lines = list(csv.DictReader((written / "readings.csv").read_text().splitlines()))
    fits = [
        fit for ranking in READINGS.rankings.values() for reading in ranking for row in reading.rows for fit in row.fits
    ]
    assert [float(line["median"]) for line in lines] == [fit.measured.median for fit in fits]
    rows = list(csv.DictReader((written / "rows.csv").read_text().splitlines()))
    assert {line["row"] for line in rows} == {cell.key for cell in CELLS if cell.epsilon_c < math.inf}
    claims = list(csv.DictReader((written / "claims.csv").read_text().splitlines()))
    assert len(claims) == sum(len(claim.comparisons) for claim in judge_claims(make_draws(20)))
    assert {path.name for path in (written / "figures").iterdir()} >= {"curve.png", "beside-0.png", "map.png"}


def test_only_independent_numbers_are_counted():
    """31 in the rows and 3 on finer grids; the 10 of Q3 are made up to be out of range."""
    first = findings.lead(READINGS, [], "full", 20)[1]
    assert first.startswith("26 of 34 independent printed numbers")
    assert "of those that had no part in the choice (Q2, Q3, r = 2 to 4) " in first
    out = make_readings(shift=3.0)
    assert findings.lead(out, [], "full", 20)[1].startswith("3 of 34 independent")
    assert len(findings.unexplained(out)) == 11
    assert not any(INSIDE in str(cell) for line in main_table(out).rows for cell in line)


def test_directions_are_named_by_their_intervals():
    assert "reproduced: s 0.8, 0.7. undecided: r 2, 4." in findings.lead(READINGS, [], "full", 20)[2]


def test_the_quick_form_says_so_and_counts_nothing(written):
    def texts(effort, number):
        claims = claim_section(judge_claims(make_draws(number)), make_draws(number))
        sections = [*result_sections(READINGS, effort == "full"), claims]
        return [*findings.lead(READINGS, [], effort, number), str([section.blocks for section in sections])]

    full, quick = texts("full", 20), texts("quick", 2)
    assert quick[0].startswith("This is the quick form")
    assert "too few to answer a claim" in quick[-1]
    assert "numbers in range" in full[-1]
    assert not re.search(r"\d+ of (the )?\d+ (independent|numbers)|numbers in range'", "".join(quick))
    page = (written / "index.html").read_text()
    assert "of 34 independent" in page
    assert "quick form" not in page

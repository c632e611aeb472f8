"""The page and the files of the reproduction, written from made-up measurements; sentences agree with the numbers."""

import csv
import math
import re

from made_reproduction import make_draws, make_readings, make_row, summary

from reproduction import findings
from reproduction.claims import judge_claims
from reproduction.fit import FinerFit
from reproduction.page import claim_section, reading_sections
from reproduction.paper import CELLS, PRINTED
from reproduction.tables import INSIDE, main_table

READINGS = make_readings()


def test_the_page_has_every_printed_number_with_its_place_in_the_paper(written):
    page = (written / "index.html").read_text()
    for cell in CELLS:
        assert cell.place in page
        assert cell.epsilon_c == math.inf or f">{cell.epsilon_c:g}<" in page
        assert cell.error is None or f"{cell.error:.8g}" in page
        assert cell.lambda_ is None or f"{cell.lambda_:.4f}" in page
        assert cell.eta is None or f"{cell.eta:.3f}" in page
    for figure in ("Fig. 2", "Fig. 3", "Fig. 4 left", "Fig. 5 left", "Fig. 5 right", "Fig. 6 left", "Fig. 6 right"):
        assert f"<h3>{figure}:" in page
    for anchor in re.findall(r'href="#([\w-]+)"', page):
        assert f'id="{anchor}"' in page
    for one in PRINTED["cannot"]:
        assert one["statement"][:20] in page
    for claim in PRINTED["claims"].values():
        assert claim["statement"].split("'")[0][:40] in page
    assert "6474.3" in page
    assert "13 of 40" in page  # pairs that pass
    assert "1.234<" in page  # 1.23456, rounded down


def test_the_page_cites_the_slides_and_says_nothing_about_the_authors_distributions(written):
    for name in ("index.html", "table.md"):
        text = (written / name).read_text()
        assert "y8han/y8han.github.io" in text
        assert "pages 12 and 13" in text
        assert not re.search("saturated|told apart completely|most probable under disjoint", text)


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
    assert {path.name for path in (written / "figures").iterdir()} >= {"runs.png", "beside-0.png", "map-2.png"}


def test_only_independent_numbers_are_counted():
    """39 numbers are printed; 8 lambdas follow from others, and 5 errors fixed a parameter."""
    first = findings.lead(READINGS, [], "full", 20)[1]
    counted = [fit for row in READINGS.best.rows for fit in row.fits if fit.independent]
    assert len(counted) == 26
    assert first.startswith(f"{sum(fit.inside for fit in counted)} of 26 independent printed numbers")
    assert "λ " not in first.split(". ")[0]
    out = READINGS._replace(best=READINGS.best._replace(rows=tuple(make_row(cell, shift=3.0) for cell in CELLS)))
    assert findings.lead(out, [], "full", 20)[1].startswith("0 of 26 independent")
    assert len(findings.unexplained(out)) == 11
    marks = [str(cell) for line in main_table(out).rows for cell in line]
    assert not any(INSIDE in mark for mark in marks)


def test_the_quick_form_says_so_and_counts_nothing(written):
    def texts(effort, number):
        claims = claim_section(judge_claims(make_draws(number)), make_draws(number))
        sections = [*reading_sections(READINGS, effort == "full"), claims]
        return [*findings.lead(READINGS, [], effort, number), str([section.blocks for section in sections])]

    full, quick = texts("full", 20), texts("quick", 2)
    assert quick[0].startswith("This is the quick form")
    assert "too few to answer a claim" in quick[-1]
    assert "numbers in range" in full[-1]
    assert "of 26 independent" in "".join(full)
    assert not re.search(
        r"\d+ of (the )?\d+ (independent|numbers)|printed numbers in range|we do not know why", "".join(quick)
    )
    page = (written / "index.html").read_text()
    assert "of 26 independent" in page
    assert "quick form" not in page


def test_the_ceiling_is_described_by_what_was_measured():
    paragraphs = findings.ceiling_findings(READINGS)
    assert "0.60 (0.42⁠–⁠0.78) with m = 3000" in paragraphs[1]
    assert "5 of the 11 rows" in paragraphs[3]  # those of Q1


def test_the_trend_on_finer_partitions_is_named_only_where_it_is_the_opposite():
    def lead(*medians):
        printed = (0.89281, 0.98162, 1.9939, None)
        fits = [
            FinerFit(r, one, summary(m, 0), summary(3.0), 0.0)
            for r, one, m in zip((2, 3, 4, 5), printed, medians, strict=True)
        ]
        return findings.lead(READINGS._replace(finer=fits), [], "full", 20)[2]

    assert "grows from 0.89281 to 1.9939; ours falls from 1.77 to 0.00" in lead(1.77, 0.55, 0.0, 0.0)
    assert "ours falls" not in lead(0.5, 0.7, 0.9, 0.0)

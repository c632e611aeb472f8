"""The committed figures show what the present code computes: each carries its numbers, which are computed again."""

import runpy

import pytest
from pages import PROJECT

SCRIPT = runpy.run_path(str(PROJECT / "docs" / "make_figures.py"))
FIGURES = PROJECT / "docs" / "figures"


def check_equal(found, expected):
    """Texts are equal, and numbers within two per cent, because another processor may round differently."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for name in expected:
            check_equal(found[name], expected[name])
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            check_equal(one, other)
    elif isinstance(expected, str):
        assert found == expected
    else:
        assert found == pytest.approx(expected, rel=0.02, abs=1e-3, nan_ok=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPT["DRAWN"])
def test_a_figure_is_up_to_date(name):
    shown, _ = SCRIPT["DRAWN"][name]()
    for file in SCRIPT["SCHEMES"] if name == "page" else (name,):
        check_equal(SCRIPT["carried"](FIGURES / f"{file}.png"), shown)


def test_figures_that_documents_show_exist_and_carry_what_they_show():
    for name in SCRIPT["DRAWN"]:
        assert SCRIPT["carried"](FIGURES / f"{name}.png")
    assert SCRIPT["carried"](FIGURES / "page.png") == SCRIPT["carried"](FIGURES / "page-dark.png")

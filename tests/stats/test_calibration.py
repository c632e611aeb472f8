"""The calibration benchmark with few seeds; `make calibration` runs it with many."""

import sys

import pytest
from known import KNOWN
from pages import PROJECT

sys.path.append(str(PROJECT / "benchmarks"))
import calibration as c

FEW = [c.Setting("deaf", "tree", 0.2, 40, 80), c.Setting("gaussian", "paper", 0.05, 40, 80)]


def test_settings_combine_every_level_with_every_number_of_runs():
    settings = c.settings()
    assert len(settings) == len({setting.path for setting in settings}) >= 40
    assert {(s.alpha, s.test_runs) for s in settings} >= {(a, m) for a in c.ALPHAS for _, m in c.RUNS}
    assert {s.mechanism for s in settings} == set(KNOWN)


def test_a_resumed_run_gives_the_same_lines_and_page(tmp_path, monkeypatch):
    monkeypatch.setattr(c, "DOCS", tmp_path)
    for folder in ("figures", "whole", "ended"):
        (tmp_path / folder).mkdir()
    settings = [*FEW, c.Setting("laplace", "grid", 0.01, 40, 80)]
    for setting in settings:
        c.go_on(setting, 1, 0, tmp_path / "ended")
    lines, again = ([c.go_on(s, 3, 2, tmp_path / name) for s in settings] for name in ("whole", "ended"))
    assert [line | {"seconds": 0} for line in lines] == [line | {"seconds": 0} for line in again]
    assert [line["controls"] for line in lines] == [
        0,
        0,
        2,
    ]  # a mechanism that ignores its data has no variant with less noise
    assert "false alarm" not in lines[1]["missed"]
    assert all(set(line["missed"]) <= set(c.STATEMENTS) for line in lines)
    assert "all events" in lines[0]["missed"]
    (tmp_path / "calibration.md").write_text(f"Prose.\n\n{c.MARK}\n\nof old")
    c.publish(lines)
    page = (tmp_path / "calibration.md").read_text()
    assert page.startswith("Prose.")
    assert "of old" not in page
    assert "**None of them exceeds its limit.**" in page
    assert (tmp_path / "figures" / "calibration.png").stat().st_size > 10_000


def test_lines_of_another_version_of_the_code_are_discarded(tmp_path, monkeypatch):
    setting = c.Setting("laplace", "grid", 0.01, 40, 80)
    c.go_on(setting, 1, 0, tmp_path)
    assert c.go_on(setting, 2, 0, tmp_path)["seeds"] == 2
    monkeypatch.setattr(c, "code", lambda: "another")
    assert c.go_on(setting, 1, 0, tmp_path)["seeds"] == 1


def test_bounds_that_do_not_cover_are_detected(tmp_path):
    """Negative control: the bounds for half of the noise are compared with the closed form for all of it."""
    setting = c.Setting("laplace", "grid", 0.05, 100, 200)
    line = {"setting": setting, "seeds": 12, "missed": {}}
    for seed in range(12):
        report = c.report_of(setting, seed, KNOWN["laplace"].half_noise)
        for name, missed in c.misses(setting, report).items():
            line["missed"][name] = line["missed"].get(name, 0) + missed
    too_high = {rate.statement: rate.too_high for rate in c.rates([line])}
    assert too_high["false alarm"]
    assert too_high["epsilon_lower"]
    assert not too_high["delta_upper"]  # an upper bound for less noise is still valid


@pytest.mark.parametrize("alpha", c.ALPHAS)
def test_statements_about_the_partition_share_one_level(alpha):
    report = c.report_of(FEW[0]._replace(alpha=alpha), 0, KNOWN["deaf"].mechanism)
    assert report.on_partition.alpha == pytest.approx(c.level("delta_upper", alpha))
    assert report.on_all_events.alpha == pytest.approx(c.level("all events", alpha))
    assert c.level("delta_upper", alpha) + c.level("region_mass", alpha) == pytest.approx(alpha)

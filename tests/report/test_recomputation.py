"""A report that is read from a file: its numbers and its verdict are recomputed from its counts."""

import json
import warnings

import numpy as np
import pytest

import dpverify as dpv
from dpverify.cli import main
from dpverify.report import recomputation
from dpverify.report.document import with_checksum
from dpverify.util.serialization import to_plain
from mechanisms import ONE, ZERO, laplace

SMALL = {"select_runs": 500, "test_runs": 2000}


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.json"
    dpv.verify(laplace, ZERO, ONE, 1.2, partition="grid", **SMALL).to_json(path)
    return path.read_text()


def change(document, place, path, value):
    """Write the report with another value of one field; return the file."""
    changed = json.loads(document)
    *parents, name = path.split(".")
    part = changed["result"]
    for parent in parents:
        part = part[parent]
    part[name] = value(part[name]) if callable(value) else value
    (place / "report.json").write_text(json.dumps(with_checksum(changed)))
    return place / "report.json"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("verdict.name", "BOUNDED"),
        ("epsilon_lower", lambda number: number * (1 + 2e-6)),
        ("epsilon_lower", 0.0),
        ("epsilon_critical", 5.0),
        ("epsilon_detectable", "inf"),
        ("p_value", lambda number: number * 0.99),
        ("paper.eta", 0.9),
        ("paper.eta_upper", 0.9),
        ("paper.lambda_", 0.1),
        ("paper.p_values", [0.5, 0.5]),
        ("witness.alpha", 0.5),
        ("on_partition.alpha", 0.5),
        ("settings.test_runs", 2001),
    ],
)
def test_an_edited_number_is_refused(path, value, document, tmp_path, capsys):
    file = change(document, tmp_path, path, value)
    with pytest.raises(dpv.InputError, match=r"report.json: found .*; expected .*, recomputed from the counts"):
        dpv.Report.from_json(file)
    assert main(["report", str(file)]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "do not use this file; verify again" in err


def test_the_line_names_both_values(document, tmp_path, capsys):
    assert main(["report", str(change(document, tmp_path, "epsilon_lower", 2.5))]) == 2
    assert "report.json: found epsilon_lower 2.5; expected 0." in capsys.readouterr().err


def test_late_digits_may_differ(document, tmp_path):
    file = change(document, tmp_path, "epsilon_lower", lambda number: number * (1 + 1e-9))
    assert "checked" not in dpv.Report.from_json(file).run


def test_a_claim_on_the_bound_itself_is_accepted(tmp_path):
    """The claim equals the upper bound, so late digits decide the verdict."""
    report = dpv.verify(laplace, ZERO, ONE, partition="grid", resolution=3, **SMALL)
    below, above = 0.0, 10.0
    while np.nextafter(below, above) < above:
        middle = (below + above) / 2
        below, above = (below, middle) if report.on_partition.meets(middle, 0.01) else (middle, above)
    for claim in (below, above):
        report.against(claim, 0.01).to_json(tmp_path / "report.json")
        document = json.loads((tmp_path / "report.json").read_text())
        for name in ("BOUNDED", "NOT_REFUTED"):
            document["result"]["verdict"]["name"] = name
            (tmp_path / "report.json").write_text(json.dumps(with_checksum(document)))
            assert dpv.Report.from_json(tmp_path / "report.json").verdict.name == name


def test_reports_of_the_randomised_test_are_recomputed(tmp_path):
    report = dpv.verify(laplace, ZERO, ONE, 0.9, settings=dpv.Settings.paper().change(**SMALL))
    report.to_json(tmp_path / "report.json")
    assert dpv.Report.from_json(tmp_path / "report.json") == report
    changed = change((tmp_path / "report.json").read_text(), tmp_path, "epsilon_critical", 7.0)
    with pytest.raises(dpv.InputError, match="found epsilon_critical 7; expected"):
        dpv.Report.from_json(changed)


def test_a_report_with_very_many_cells_is_marked_as_not_checked(document, tmp_path, monkeypatch):
    monkeypatch.setattr(recomputation, "MAX_RECOMPUTED_CELLS", 0)
    file = change(document, tmp_path, "epsilon_lower", 0.0)
    with pytest.warns(dpv.Warning, match="were not recomputed from the counts"):
        report = dpv.Report.from_json(file)
    assert report.run["checked"] is False
    monkeypatch.undo()
    report.to_json(file)
    with pytest.raises(dpv.InputError, match="found epsilon_lower 0; expected"):
        dpv.Report.from_json(file)


def test_the_mark_is_removed_when_the_report_is_checked(document, tmp_path):
    changed = json.loads(document)
    changed["run"]["checked"] = to_plain(False)
    (tmp_path / "report.json").write_text(json.dumps(with_checksum(changed)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "checked" not in dpv.Report.from_json(tmp_path / "report.json").run


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("delta_events.aims.epsilons.values", lambda epsilons: [*epsilons[:-1], epsilons[-1] + 1]),
        ("witness.event.direction", lambda direction: 1 - direction),
        ("profile.delta_lower.values", lambda bounds: [0.5, *bounds[1:]]),
        ("name", "another"),
    ],
)
def test_a_change_that_the_counts_do_not_show_is_found_by_the_checksum(path, value, document, tmp_path):
    file = change(document, tmp_path, path, value)
    if path != "witness.event.direction":
        dpv.Report.from_json(file)  # the negative control: without the old checksum, the change is not noticed
    changed = json.loads(file.read_text()) | {"checksum": json.loads(document)["checksum"]}
    file.write_text(json.dumps(changed))
    with pytest.raises(dpv.InputError, match=r"found another checksum; expected the report as|found epsilon_lower"):
        dpv.Report.from_json(file)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("delta_events.c1.values", lambda counts: [counts[0] + 1, *counts[1:]]),  # of one of several equal events
        ("delta_events.aims.edges.values", lambda edges: [0] * len(edges)),  # different counts of one event
    ],
)
def test_edited_events_for_delta_are_refused_although_the_checksum_fits(path, value, document, tmp_path):
    file = change(document, tmp_path, path, value)
    with pytest.raises(dpv.InputError, match="delta_events: no verification gives this value"):
        dpv.Report.from_json(file)

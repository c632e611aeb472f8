"""A report that is read from a file: any change of its content is found by the checksum."""

import json

import pytest

import dpverify as dpv
from dpverify.cli import main
from mechanisms import ONE, ZERO, laplace


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.json"
    dpv.verify(laplace, ZERO, ONE, 1.2, partition="grid", select_runs=500, test_runs=2000).to_json(path)
    return path.read_text()


def change(document, path, value):
    """Return the document with another value of one field."""
    changed = json.loads(document)
    *parents, name = path.split(".")
    part = changed["result"]
    for parent in parents:
        part = part[int(parent) if parent.isdigit() else parent]
    part[name] = value(part[name]) if callable(value) else value
    return changed


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("delta", 0.5),
        ("cell_counts.alpha", 0.5),
        ("delta_events.aims.epsilons.values", lambda epsilons: [*epsilons[:-1], epsilons[-1] + 1]),
        ("tested.0.event.direction", lambda direction: 1 - direction),
        ("name", "another"),
    ],
)
def test_an_edited_report_is_refused(path, value, document, tmp_path, capsys):
    file = tmp_path / "report.json"
    file.write_text(document)
    dpv.Report.from_json(file)  # the negative control
    file.write_text(json.dumps(change(document, path, value)))
    with pytest.raises(dpv.InputError, match="found another checksum"):
        dpv.Report.from_json(file)
    assert main(["report", str(file)]) == 2
    assert capsys.readouterr().err.count("\n") == 1

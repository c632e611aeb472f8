"""The script and the workflow of docs/checks.md: a ledger on a branch of its own, which several clones change."""

import os
import subprocess
import sys

import pytest
from pages import PROJECT, blocks

from dpverify.ci.ledger import Ledger, VersionRun, read_ledger, write_ledger
from dpverify.util.files import locked

PAGE = blocks(PROJECT / "docs" / "checks.md")
SCRIPT = next(block.code for block in PAGE if block.code.startswith("#!/bin/sh"))
WORKFLOW = next(block.code for block in PAGE if block.language == "yaml")


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """Make clones of one bare repository, each with the script and the command `dpverify`."""
    for name in ("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"):
        monkeypatch.setenv(name, "tests")
    for name in ("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"):
        monkeypatch.setenv(name, "tests@example.org")
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "dpverify"
    command.write_text(f"#!{sys.executable}\nimport sys\nfrom dpverify.cli import main\nsys.exit(main(sys.argv[1:]))\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    git(tmp_path, "init", "-q", "--bare", "-b", "main", "origin")

    def make(name):
        git(tmp_path, "clone", "-q", "origin", name)
        place = tmp_path / name
        (place / "ledger.sh").write_text(SCRIPT)
        git(place, "commit", "-q", "--allow-empty", "-m", name)
        return place

    return make


def git(place, *words):
    return subprocess.run(["git", *words], cwd=place, check=True, capture_output=True, text=True).stdout


def script(place, *words):
    return subprocess.Popen(
        ["sh", "ledger.sh", *words], cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def finish(process):
    output = process.communicate()[0]
    assert process.returncode == 0, output
    return output


def add_version(place, seed, log_e=0.0):
    """Do what a test run does."""
    path = place / "ledger.json"
    with locked(path):
        ledger = read_ledger(path).with_claim("a", "epsilon 1")
        ledger, _ = ledger.add(ledger.find("a", "epsilon 1"), VersionRun(f"v{seed}", seed, (log_e,) * 5))
        write_ledger(path, ledger)


def in_the_branch(place):
    finish(script(place))
    return read_ledger(place / "ledger.json").records[0]


def test_two_clones_that_push_at_the_same_time_lose_nothing(clone):
    first, second = clone("first"), clone("second")
    assert finish(script(first)) == ""  # there is no ledger yet
    add_version(first, 2)
    add_version(second, 3, 60.0)
    # The second clone pushes when the first has already decided what to push.
    hook = first / ".git" / "hooks" / "pre-push"
    hook.write_text(f'#!/bin/sh\nrm "$0"\ncd "{second}"\nunset GIT_DIR\nexec sh ledger.sh --merge ledger.json\n')
    hook.chmod(0o755)
    assert "ALARM at version v3" in finish(script(first, "--merge", "ledger.json"))
    assert not hook.exists()
    record = in_the_branch(second)
    assert (sorted(run.seed for run in record.runs), record.alarm) == ([2, 3], "v3")


def test_a_lost_connection_does_not_begin_a_new_ledger(clone, tmp_path):
    place = clone("first")
    add_version(place, 1)
    (tmp_path / "origin").rename(tmp_path / "gone")
    process = script(place, "--merge", "ledger.json")
    process.communicate()
    assert process.returncode != 0


def test_nothing_is_installed_by_its_name_from_an_index():
    install = next(line for line in WORKFLOW.splitlines() if "pip install" in line)
    assert install.split("pip install ")[1] == '. "dpverify @ $DPVERIFY" pytest'
    assert "DPVERIFY: git+https://" in WORKFLOW


def test_copies_of_a_ledger_are_merged():
    common = Ledger(0.05).with_claim("a", "epsilon 1")
    one, _ = common.add(common.records[0], VersionRun("v1", 1, (1.0,) * 5, outputs="same"))
    other, _ = common.add(common.records[0], VersionRun("v2", 2, (70.0,) * 5, outputs="other"))
    repeated, _ = common.add(common.records[0], VersionRun("v3", 3, (1.0,) * 5, outputs="same"))
    started, _ = common.add(common.records[0], VersionRun("v1", 1, finished=False))
    merged = one.merge(other)
    assert ([run.seed for run in merged.records[0].runs], merged.records[0].alarm) == ([1, 2], "v2")
    assert one.merge(repeated) == one.merge(one) == started.merge(one) == one
    assert one.merge(started) == one
    assert Ledger(0.05).merge(one) == one
    assert merged.confirm("a").merge(merged) == merged.confirm("a")
    new = other.with_claim("b", "epsilon 1")
    assert [each.name for each in one.merge(new).records] == ["a", "b"]

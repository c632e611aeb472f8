"""The ledger: shares of alpha, restarts, repeated seeds, damaged files, and versions that are verified."""

import dataclasses
import json
import math
import subprocess
import sys
import time

import numpy as np
import pytest
from limits import most

import dpverify as dpv
from dpverify.ci.ledger import Ledger, VersionRun, claim_key, read_ledger, verify_version, write_ledger
from dpverify.errors import InputError
from dpverify.stats.anytime import STRATEGY_WEIGHTS
from dpverify.util import files
from dpverify.util.files import locked
from mechanisms import ONE, ZERO, laplace, laplace_half_noise

SMALL = {"select_runs": 200, "test_runs": 1800, "progress": False}


def run(number, log_e=0.0):
    return VersionRun(f"v{number}", number, (log_e,) * len(STRATEGY_WEIGHTS))


def with_versions(ledger, name, *log_e):
    ledger = ledger.with_claim(name, "epsilon 1")
    for number, value in enumerate(log_e):
        ledger, record = ledger.add(ledger.find(name, "epsilon 1"), run(number, value))
    return ledger, record


def test_the_levels_of_all_claims_and_restarts_sum_to_alpha_at_most():
    total, ledger = 0.0, Ledger(0.05)
    for number in range(40):
        ledger = ledger.with_claim(f"claim {number}", "epsilon 1")
    for _ in range(12):  # every claim raises an alarm again and again
        total += sum(ledger.level(record) for record in ledger.records)
        for record in ledger.records:
            ledger, _ = ledger.add(record, run(len(record.runs), 60.0))
            ledger = ledger.confirm(record.name)
    assert 0.9 * 0.05 < total <= 0.05


def test_a_later_claim_does_not_change_the_level_of_an_earlier_one():
    one = Ledger(0.05).with_claim("a", "epsilon 1")
    assert one.with_claim("b", "epsilon 1").level(one.records[0]) == one.level(one.records[0])


def test_an_alarm_stays_until_it_is_confirmed_and_names_its_start():
    ledger, record = with_versions(Ledger(0.05), "a", -1.0, -1.0, 5.0, 5.0, -8.0)
    assert record.alarm == "v3"
    assert "ALARM at version v3" in str(ledger)
    assert "began at version v2" in str(ledger)
    restarted = ledger.confirm("a")
    assert restarted.records[0].current == ()
    assert restarted.level(restarted.records[0]) == ledger.level(record) / 2
    with pytest.raises(InputError, match="confirm: found 'b'; expected 'a'"):
        ledger.confirm("b")


def test_a_renamed_test_keeps_its_evidence_and_its_alarm():
    ledger, record = with_versions(Ledger(0.05).with_claim("first", "epsilon 1"), "a", -1.0, 60.0)
    renamed = ledger.rename("a", "b")
    assert [each.name for each in renamed.records] == ["first", "b"]
    assert renamed.records[1] == dataclasses.replace(record, name="b")
    assert renamed.level(renamed.records[1]) == ledger.level(record)
    with pytest.raises(InputError, match="rename: found 'c'; expected 'first', 'a'"):
        ledger.rename("c", "b")
    with pytest.raises(InputError, match="rename: found versions of 'first' with the same claim"):
        ledger.rename("a", "first")


def test_a_repeated_seed_is_refused_also_after_a_restart():
    ledger, record = with_versions(Ledger(0.05), "a", -1.0, 60.0)
    with pytest.raises(InputError, match="seed: found 1, which an earlier version of a had"):
        ledger.add(record, run(1))
    ledger = ledger.confirm("a")
    with pytest.raises(InputError, match="seed: found 1,"):
        ledger.add(ledger.records[0], run(1))


def test_false_alarms_over_whole_lives_of_several_claims():
    """Resampled from e-values with mean 1; a claim that restarts after an alarm may raise another one."""
    rng, lives, false_alarms, naive = np.random.default_rng(0), 100, 0, 0
    for _ in range(lives):
        ledger, alarms = Ledger(0.2), 0
        for name in "abc":
            ledger = ledger.with_claim(name, "epsilon 1")
            for number, log_e in enumerate(rng.normal(-0.5, 1.0, 15)):
                ledger, record = ledger.add(ledger.find(name, "epsilon 1"), run(number, log_e))
                naive += log_e >= math.log(1 / 0.2)
            alarms += record.alarm is not None
        false_alarms += alarms > 0
    assert false_alarms <= most(lives, 0.2)
    assert naive > most(lives, 0.2)  # negative control: every version tested on its own


def test_a_ledger_is_read_back_and_damage_is_reported(tmp_path):
    path = tmp_path / "ledger.json"
    ledger, _ = with_versions(read_ledger(path, 0.01), "a", -1.0, 2.0)
    write_ledger(path, ledger)
    assert read_ledger(path) == ledger
    text = path.read_text()
    path.write_text(text.replace("-1.0", "+1.0".replace("+", "")))
    with pytest.raises(InputError, match=r"another checksum\); expected a ledger as dpverify wrote it"):
        read_ledger(path)
    path.write_text(text[:-40])
    with pytest.raises(InputError, match="found no ledger"):
        read_ledger(path)
    document = json.loads(text)
    path.write_text(json.dumps({**document, "format": 2}))
    with pytest.raises(InputError, match="found format 2; expected 1"):
        read_ledger(path)
    with pytest.raises(InputError, match="alpha must be"):
        read_ledger(tmp_path / "new.json", 2)


def test_claims_that_differ_little_have_records_of_their_own():
    points = [(0.1 * k, 0.5 - 0.05 * k) for k in range(6)]
    other = [*points[:5], (0.5, 0.24)]
    claims = [dpv.claims.pure(1.0), dpv.claims.pure(1.0004), dpv.claims.points(points), dpv.claims.points(other)]
    assert len({claim_key(claim) for claim in claims}) == len(claims)
    assert claim_key(dpv.claims.pure(1.0)) == "epsilon 1, delta 0"  # as in ledgers that exist already


def test_a_lock_excludes_other_writers_and_its_file_may_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "LOCK_SECONDS", 0.1)
    path = tmp_path / "ledger.json"
    with locked(path), pytest.raises(InputError, match="held this lock for"), locked(path):
        pass
    assert (tmp_path / "ledger.json.lock").exists()
    with locked(path):
        pass
    with pytest.raises(InputError, match="expected a folder that can be written"), locked(tmp_path / "no" / "folder"):
        pass


WRITER = """
import sys
from dpverify.ci.ledger import VersionRun, read_ledger, write_ledger
from dpverify.util.files import locked

path, seed = sys.argv[1], int(sys.argv[2])
while True:
    with locked(path):
        ledger = read_ledger(path).with_claim("a", "epsilon 1")
        write_ledger(path, ledger.add(ledger.records[0], VersionRun("v", seed))[0])
    print(seed, flush=True)
    seed += 1
"""


def write_and_kill(path, kills):
    """Kill a process that writes versions without a pause; return how many versions it says that it has written."""
    written = 0
    for kill in range(kills):
        command = [sys.executable, "-c", WRITER, str(path), str(1000 * kill)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            lines = [process.stdout.readline() for _ in range(1 + kill % 3)]
            time.sleep(0.003 * (kill % 7))
            process.kill()
            lines += process.stdout.read().splitlines()
        written += len([line for line in lines if line.strip()])
    return written


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_a_writer_that_is_killed_leaves_no_lock_and_loses_nothing(kills, tmp_path, monkeypatch):
    path = tmp_path / "ledger.json"
    written = write_and_kill(path, kills)
    monkeypatch.setattr(files, "LOCK_SECONDS", 0.0)
    with locked(path):
        kept = len(read_ledger(path).records[0].runs)
    assert written <= kept <= written + kills  # a version may be written, and its writer killed before it says so


def test_a_version_is_written_before_its_runs_are_drawn(tmp_path):
    path = tmp_path / "ledger.json"

    def stopped(data, runs, rng):
        raise KeyboardInterrupt

    for number in (1, 2):
        with pytest.raises(dpv.Stopped):
            version(path, stopped, number)
    ledger = read_ledger(path)
    record = ledger.records[0]
    assert [(run.seed, run.finished) for run in record.runs] == [(1, False), (2, False)]
    assert record.evidence.log_value == pytest.approx(0)
    again = version(path, laplace, 2)  # a version that was stopped is repeated with its seed
    fresh = version(tmp_path / "other.json", laplace, 2)
    assert [run.finished for run in read_ledger(path).records[0].runs] == [False, True]
    assert again.run.log_e_values != fresh.run.log_e_values or again.report.alpha == fresh.report.alpha
    assert again.report.alpha == pytest.approx(fresh.report.alpha / 3)  # its own share, 1/6, not the first one, 1/2


def test_a_ledger_that_cannot_be_written_is_noticed_before_the_first_run(tmp_path):
    calls = []

    def counted(data, runs, rng):
        calls.append(runs)
        return laplace(data, runs, rng)

    (tmp_path / "ledger.json").mkdir()
    with pytest.raises(InputError, match=r"ledger\.json: found"):
        version(tmp_path / "ledger.json", counted, 1)
    assert not calls


def test_a_result_that_cannot_be_written_is_part_of_the_message(tmp_path, monkeypatch):
    path, place = tmp_path / "ledger.json", "dpverify.ci.ledger.write_ledger"
    monkeypatch.setattr(place, fails_at(2, write_ledger))
    with pytest.raises(InputError, match=r"disk; the result is not in the ledger: e-value .*, seed 1"):
        version(path, laplace, 1)


def fails_at(number, function):
    """Return a function that fails once, like a disk that is full."""
    calls = []

    def wrapped(*arguments):
        calls.append(arguments)
        if len(calls) == number:
            raise InputError("disk")
        return function(*arguments)

    return wrapped


class Suite:
    """A suite that seeds a generator, from which a mechanism draws its noise instead of `rng`."""

    seeded = False

    def seed(self, seed):
        self.generator = np.random.default_rng(seed)

    def __call__(self, data, runs, rng):
        return data + self.generator.laplace(size=runs)


repeats = Suite()


def life(path, mechanism, suite_seed, versions, **options):
    """Test versions in a suite that seeds a generator; return the results, None where a version is refused."""
    results = []
    for number in range(versions):
        repeats.seed(suite_seed)
        try:
            results.append(version(path, mechanism, number, **options))
        except InputError:
            results.append(None)
    return results


def test_a_version_whose_runs_occurred_before_is_refused(tmp_path):
    path = tmp_path / "ledger.json"
    results = life(path, repeats, 3, 2)
    assert [result is None for result in results] == [False, True]
    record = read_ledger(path).records[0]
    assert [run.finished for run in record.runs] == [True, False]
    assert record.evidence.log_value == pytest.approx(results[0].evidence.log_value)
    repeats.seed(3)
    with pytest.raises(InputError, match="draw all noise from rng, or do not seed"):
        version(path, repeats, 7, write=False)
    repeats.seed(4)
    assert version(path, repeats, 8).run.finished
    assert not any(result is None for result in life(tmp_path / "seeded.json", laplace, 3, 2))  # negative control


def test_equal_outputs_of_a_rare_event_are_no_repetition(tmp_path):
    def rare(data, runs, rng):
        return rng.random(runs) < 0.001 * (1 + data)

    assert not any(result is None for result in life(tmp_path / "ledger.json", rare, 3, 2))


@pytest.mark.slow
def test_false_alarms_over_lives_with_repeated_runs(tmp_path):
    lives, alarms, few = 200, 0, {"select_runs": 100, "test_runs": 400}
    for seed in range(lives):
        results = life(tmp_path / f"{seed}.json", repeats, seed, 3, **few)
        assert [result is None for result in results] == [False, True, True]
        alarms += results[0].failed
    print(f"{alarms} of {lives} lives with an alarm")
    assert alarms <= most(lives, 0.05)


def version(path, mechanism, number, **options):
    keywords = {"name": "a", "version": f"v{number}", "ledger": path, "seed": number, **SMALL, **options}
    return verify_version(mechanism, ZERO, ONE, 1.0, **keywords)


def test_versions_are_verified_and_a_fault_is_found_and_dated(tmp_path):
    path = tmp_path / "ledger.json"
    results = [version(path, laplace, number) for number in range(3)]
    assert not any(result.failed for result in results)
    assert results[1].run.bet is None  # its counts are the first ones of the cells
    assert results[2].run.bet is not None
    assert results[2].run.log_e_values[1:] != (0.0,) * 4
    read = version(path, laplace_half_noise, 3, write=False)
    assert len(read_ledger(path).records[0].runs) == 3
    assert read.failed == (read.report.refuted or read.run.log_e_value >= math.log(2e6))
    faulty = version(path, laplace_half_noise, 4)
    assert faulty.failed
    assert faulty.start == "v4"
    assert faulty.report.stopped == "refuted"
    repeated = version(path, laplace_half_noise, 4, write=False)
    assert (repeated.failed, repeated.run) == (True, faulty.run)
    assert version(path, laplace, 5).failed  # until the alarm is confirmed
    write_ledger(path, read_ledger(path).confirm("a"))
    assert not version(path, laplace, 6).failed


def test_bad_arguments_of_a_version(tmp_path):
    path = tmp_path / "ledger.json"
    with pytest.raises(InputError, match="there is no claim"):
        verify_version(laplace, ZERO, ONE, name="a", version="v", ledger=path)
    with pytest.raises(InputError, match="use folder or a ledger, not both"):
        version(path, laplace, 1, folder=tmp_path)
    version(path, laplace, 1)
    with pytest.raises(InputError, match="seed: found 1"):
        version(path, laplace, 1)

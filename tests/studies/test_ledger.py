"""The ledger: shares of alpha, restarts, repeated seeds, damaged files, and versions that are verified."""

import dataclasses
import json
import math

import numpy as np
import pytest
from limits import most

import dpverify as dpv
from dpverify.errors import InputError
from dpverify.stats.version_mixture import STRATEGY_WEIGHTS, CarriedBet
from dpverify.studies.releases import ledger as ledger_module
from dpverify.studies.releases.ledger import Ledger, VersionRun, locked, read_ledger, write_ledger
from dpverify.studies.releases.version_check import claim_key, verify_version
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
            ledger, _ = ledger.add(record, run(len(record.earlier_seeds), 60.0))
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
    assert restarted.records[0].runs == ()
    assert restarted.level(restarted.records[0]) == ledger.level(record) / 2
    with pytest.raises(InputError, match="found 'b'; expected a claim with an alarm; these are: 'a'"):
        ledger.confirm("b")


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
    with pytest.raises(InputError, match="found another checksum; expected a ledger as dpverify wrote it"):
        read_ledger(path)
    path.write_text(text[:-40])
    with pytest.raises(InputError, match="found no ledger"):
        read_ledger(path)
    document = json.loads(text)
    path.write_text(json.dumps({**document, "format": 2}))
    with pytest.raises(InputError, match="found format 2; expected 1"):
        read_ledger(path)
    with pytest.raises(InputError, match="alpha: found 2"):
        read_ledger(tmp_path / "new.json", 2)


def test_evidence_that_is_no_number_is_refused(tmp_path):
    path = tmp_path / "ledger.json"
    good, record = with_versions(Ledger(0.05), "a", 0.0)
    bad = dataclasses.replace(good, records=(dataclasses.replace(record, runs=(run(0, math.nan),)),))
    with pytest.raises(ValueError, match="e-values that no version has"):
        ledger_module.check_ledger(bad)
    bet = CarriedBet((0,), 0, ((2.0, -1.0),))
    bad = Ledger(0.05).with_claim("a", "epsilon 1")
    bad, _ = bad.add(bad.find("a", "epsilon 1"), dataclasses.replace(run(0), bet=bet))
    write_ledger(path, bad)
    with pytest.raises(InputError, match="a bet that no version has"):
        read_ledger(path)


def test_claims_that_differ_little_have_records_of_their_own():
    points = [(0.1 * k, 0.5 - 0.05 * k) for k in range(6)]
    other = [*points[:5], (0.5, 0.24)]
    claims = [dpv.claims.pure(1.0), dpv.claims.pure(1.0004), dpv.claims.points(points), dpv.claims.points(other)]
    assert len({claim_key(claim) for claim in claims}) == len(claims)
    assert claim_key(dpv.claims.pure(1.0)) == "epsilon 1, delta 0"  # as in ledgers that exist already


def test_a_lock_that_stays_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(ledger_module, "LOCK_SECONDS", 0.1)
    path = tmp_path / "ledger.json"
    with locked(path), pytest.raises(InputError, match="remove it if no test is running"), locked(path):
        pass
    assert not (tmp_path / "ledger.json.lock").exists()


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
    assert read.failed == (read.report.refuted or read.log_e_value >= math.log(2e6))
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
    with pytest.raises(InputError, match="claim: found none"):
        verify_version(laplace, ZERO, ONE, name="a", version="v", ledger=path)
    with pytest.raises(InputError, match="folder: found it with a ledger"):
        version(path, laplace, 1, folder=tmp_path)
    version(path, laplace, 1)
    with pytest.raises(InputError, match="seed: found 1"):
        version(path, laplace, 1)

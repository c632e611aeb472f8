"""The plan of a verification: pilot runs that fit into memory, probe runs, and announcements before the first block."""

import re

import numpy as np
import pytest

import dpverify as dpv
from dpverify.mechanisms.diagnostics import Diagnostic
from dpverify.sampling import probe
from dpverify.sampling.blocks import SampleSource, block_size, fitting_block_size
from dpverify.sampling.probe import MAX_PILOT_BYTES, MIN_PILOT_RUNS, announce, plan_pilot, probe_mechanism
from dpverify.settings import Settings
from dpverify.util.progress import Progress

SMALL = {"select_runs": 400, "test_runs": 400}


def laplace(data, runs, rng):
    return data + rng.laplace(size=(runs, 1))


# Pilot runs that fit into memory.


@pytest.mark.parametrize("shape", [(200, 10), (200, 50), (1000, 6)])
def test_the_kept_pilot_runs_never_exceed_their_limit(shape):
    plan = plan_pilot(Settings(), shape)
    assert plan.is_limited
    assert plan.pilot_runs * shape[0] * shape[1] * 8 <= MAX_PILOT_BYTES
    assert plan.pilot_runs >= MIN_PILOT_RUNS or plan.pilot_runs >= 2 * (shape[1] + 1)


def test_outputs_that_cannot_fit_are_refused_before_the_first_block():
    asked = []

    def huge(data, runs, rng):
        asked.append(runs)
        return np.zeros((runs, 500, 200))

    with pytest.raises(dpv.InputError, match=r"raise dpverify\.sampling\.probe\.MAX_PILOT_BYTES") as caught:
        dpv.verify(huge, 0.0, 1.0)
    assert "500 x 200 numbers" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert max(asked) <= 64  # so many fit into a block


def test_a_limited_pilot_is_part_of_the_report(monkeypatch):
    monkeypatch.setattr("dpverify.sampling.probe.MAX_PILOT_BYTES", 8 * 4 * 1200)
    report = dpv.verify(lambda data, runs, rng: data + rng.normal(size=(runs, 4, 1)), 0.0, 1.0, beta=0.01, **SMALL)
    assert Diagnostic.PILOT_LIMITED in report.diagnostics
    assert not report.voiding
    assert Diagnostic.PILOT_LIMITED not in dpv.verify(laplace, 0.0, 1.0, **SMALL).diagnostics


# The probe.


def test_the_probe_has_a_stream_of_its_own_and_changes_no_report():
    keys = []

    def recording(data, runs, rng):
        keys.append(rng.bit_generator.seed_seq.spawn_key)
        return laplace(data, runs, rng)

    def with_block(data, runs, rng):
        return laplace(data, runs, rng)

    with_block.block = block_size(laplace, None, SMALL["test_runs"])
    reports = [dpv.verify(mechanism, 0.0, 1.0, 0.5, **SMALL) for mechanism in (recording, with_block)]
    assert keys[0] == (5, 0, 0)
    assert (5, 0, 0) not in keys[1:]
    assert reports[0].epsilon_lower == reports[1].epsilon_lower
    assert reports[0].witness.counts == reports[1].witness.counts


def test_a_mechanism_with_a_block_and_a_compiled_one_are_not_probed():
    asked = []

    class Fixed:
        block = 100

        def __call__(self, data, runs, rng):
            asked.append(runs)
            return laplace(data, runs, rng)

    dpv.verify(Fixed(), 0.0, 1.0, **SMALL)
    assert set(asked) == {100}
    source = SampleSource(dpv.jax_run(lambda data, key: data), (0.0, 1.0), 0, 64)
    for mechanism in (source.mechanism, dpv.factory(lambda: source.mechanism)):
        own = source._replace(mechanism=mechanism)
        assert announce(own, Settings(), 1, Progress(True)) is own  # its data are no arrays, so a call would fail


def test_a_mechanism_that_fails_for_few_runs_is_still_verified():
    def only_many(data, runs, rng):
        if runs < 64:
            raise ValueError("too few runs")
        return laplace(data, runs, rng)

    assert dpv.verify(only_many, 0.0, 1.0, **SMALL).epsilon_lower > 0


def test_the_block_is_sized_before_it_is_requested():
    asked = []

    def large(data, runs, rng):
        asked.append(runs)
        return np.zeros((runs, 100, 100))

    source = SampleSource(large, (0.0, 1.0), 0, 2048)
    source = announce(source, Settings(), 1, Progress(False))
    probe_mechanism(source)
    assert asked[0] == 4
    assert max(asked) == asked[-1] == 512
    assert fitting_block_size(2048, 80_000) == 512


def test_a_fixed_cost_of_the_first_call_is_not_taken_for_slow_runs(monkeypatch, capsys):
    """The clock of this test advances by 8 s in the first call, and by 1 ms plus 1 us per run in the others."""
    clock = [0.0]
    monkeypatch.setattr(probe.time, "perf_counter", lambda: clock[0])

    def mechanism(data, runs, rng):
        clock[0] += 8.0 if clock[0] == 0 else 1e-3 + 1e-6 * runs
        return laplace(data, runs, rng)

    announce(SampleSource(mechanism, (0.0, 1.0), 0, 2048), Settings(), 1, Progress(True))
    assert capsys.readouterr().err == ""


# Announcements.


def test_a_long_run_is_announced_before_its_first_block(monkeypatch, capsys):
    """A mechanism of 17 ms per run is announced after few runs, with the time and what one can do."""
    clock = [0.0]
    monkeypatch.setattr(probe.time, "perf_counter", lambda: clock[0])
    asked = []

    class FirstBlock(Exception):
        pass

    def slow(data, runs, rng):
        clock[0] += 0.017 * runs
        asked.append(runs)
        if runs == 2048:
            raise FirstBlock(capsys.readouterr().err)
        return laplace(data, runs, rng)

    with pytest.raises(dpv.MechanismError) as caught:
        dpv.verify(slow, 0.0, 1.0, progress=True)
    message = str(caught.value.__cause__)
    assert message.startswith("dpverify: about 2.4 h for 500 936 runs at 59 runs/s; stop_early=True ends as soon as ")
    assert "smaller test_runs and select_runs; several processes: executor=N; Ctrl-C stops it" in message
    assert sum(asked[:-1]) < 100


def test_a_resumed_run_announces_what_is_left(monkeypatch, capsys, tmp_path):
    """The folder of a run that was stopped among its test runs; then the folder of a finished run."""
    clock, calls_left = [0.0], [25]
    monkeypatch.setattr(probe.time, "perf_counter", lambda: clock[0])

    def slow(data, runs, rng):
        clock[0] += 0.017 * runs
        calls_left[0] -= 1
        if not calls_left[0]:
            raise KeyboardInterrupt
        return laplace(data, runs, rng)

    def announced():
        found = re.search(r"about \d+ \w+ for ([\d ]+) runs", capsys.readouterr().err)
        return None if found is None else int(found[1].replace(" ", ""))

    call = {"select_runs": 1000, "test_runs": 2000, "block": 256, "progress": True, "folder": tmp_path / "night"}
    with pytest.raises(dpv.Stopped) as stopped:
        dpv.verify(slow, 0.0, 1.0, **call)
    total = announced()
    assert total >= 6000
    assert 2 * 1000 < stopped.value.done < total
    report = dpv.verify(slow, 0.0, 1.0, **call)
    assert announced() == total - stopped.value.done
    assert dpv.verify(slow, 0.0, 1.0, **call) == report
    assert announced() is None

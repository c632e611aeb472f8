"""Samples on an accelerator: they are counted there, with the same result as on the host.

The processor takes the role of the accelerator: its JAX arrays are treated as if the host could not read them.
"""

import dataclasses

import numpy as np
import pytest

import dpverify as dpv
from dpverify.events.scores import Levels, Linear
from dpverify.events.scores.additive import make_binning
from dpverify.events.scores.training import fit_innovations
from dpverify.mechanisms import outputs
from dpverify.sampling import blocks, probe, stages
from dpverify.sampling.count import Accumulator, CellCounter, MeanError, count_cells
from dpverify.selection.proposals import BinnedScore, fine_edges, score_values
from dpverify.util.arrays import is_jax

jax = pytest.importorskip("jax")
SMALL = {"select_runs": 4000, "test_runs": 20_000, "block": 512}
FIRST, SECOND = np.zeros((3, 2)), np.full((3, 2), 0.4)


@dataclasses.dataclass(frozen=True)
class Walk:
    calls: list = dataclasses.field(default_factory=list)

    def __call__(self, data, runs, rng):
        self.calls.append(runs)
        with jax.enable_x64(True):
            return data + jax.random.normal(dpv.jax_key(rng), (runs, 3, 2)).cumsum(1)


@pytest.fixture
def accelerator(monkeypatch):
    monkeypatch.setattr(stages, "MAX_COPIED_RUNS", 0)
    for module in (outputs, blocks, probe):
        monkeypatch.setattr(module, "on_accelerator", is_jax)


CASES = {
    "score": {},
    "union of grid cells": {"partition": "grid", "resolution": 2, "events": "union"},
    "too many cells for a table": {"partition": "grid", "resolution": 12, "events": "union"},
    "tree": {"partition": "tree", "events": "union"},
    "all events": {"events": "auto", "log_lipschitz": 1.0},
    "accuracy": {"error": dpv.rmse(np.zeros((3, 2))), "events": "cell"},
    "non-finite runs are an event": {"nonfinite": "event", "partition": "equal-mass", "events": "union"},
    "a score of the user's": {"events": lambda samples: samples[:, 2, 0]},
}


LONG = {"score", "tree", "too many cells for a table", "all events"}  # many kinds of score to compile


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in LONG else n for n in CASES])
def test_the_report_is_the_same_as_from_the_host(name, monkeypatch):
    keywords = {**SMALL, **CASES[name]}
    host = dpv.verify(Walk(), FIRST, SECOND, 1.0, **keywords)
    asked = []
    monkeypatch.setattr(stages, "MAX_COPIED_RUNS", 0)
    for module in (outputs, blocks):
        monkeypatch.setattr(module, "on_accelerator", lambda x: asked.append(is_jax(x)) or asked[-1])
    device = dpv.verify(Walk(), FIRST, SECOND, 1.0, **keywords)
    assert any(asked)
    # A different order of summation may move a run across an edge, but rarely more than one.
    moved = np.abs(np.subtract(host.witness.counts, device.witness.counts)).max()
    assert moved <= 2
    assert device.epsilon_lower == pytest.approx(host.epsilon_lower, abs=1e-3)
    assert device.provenance["device"] == host.provenance["device"] == f"{jax.default_backend()}:0"
    if host.error is not None:
        np.testing.assert_allclose(device.error, host.error, rtol=1e-12)


def test_a_false_claim_is_refuted_on_a_device(accelerator):
    def halved(data, runs, rng):
        with jax.enable_x64(True):
            return data + jax.random.laplace(dpv.jax_key(rng), (runs, 1)) / 2

    report = dpv.verify(halved, np.zeros(1), np.ones(1), 1.0, partition="equal-mass", events="union", **SMALL)
    assert report.refuted


def test_a_nan_is_found_at_the_end_of_a_task_and_its_block_is_named(accelerator):
    whole, cheap = Walk(), {**SMALL, "events": "cell"}
    dpv.verify(whole, FIRST, SECOND, **cheap)
    late = len(whole.calls) - 3

    class Spoilt:
        """The NaN depends on the generator, as it would in earnest: the block drawn again shows it again."""

        calls = 0
        state = None

        def __call__(self, data, runs, rng):
            Spoilt.calls += 1
            state = rng.bit_generator.state["state"]["state"]
            if Spoilt.calls == late:
                Spoilt.state = state
            with jax.enable_x64(True):
                answer = data + jax.random.normal(dpv.jax_key(rng), (runs, 3, 2)).cumsum(1)
                return answer.at[7, 1, 1].set(np.nan) if state == Spoilt.state else answer

    with pytest.raises(dpv.MechanismError, match=r"NaN or infinity in 1 of 512 runs") as failure:
        dpv.verify(Spoilt(), FIRST, SECOND, **cheap)
    assert failure.value.stage == "test"
    assert f"block {failure.value.block}" in str(failure.value)


def test_an_error_function_that_is_not_finite_is_refused(accelerator):
    def broken(samples):
        return samples[:, 0, 0] / 0.0

    with pytest.raises(dpv.InputError, match="error: found NaN or infinity"):
        dpv.verify(Walk(), FIRST, SECOND, error=broken, events="cell", **SMALL)


def test_the_statistics_of_the_selection_are_the_same_on_a_device():
    rng = np.random.default_rng(0)
    one, two = rng.standard_normal((2, 5000, 6))
    features = fit_innovations(one, two)
    binning = make_binning(features, features.values(np.concatenate([one, two])), [np.zeros(0)] * 6)
    score = Linear(features.whiten.T @ np.arange(6.0))
    ruler = BinnedScore(score, fine_edges(score_values(score, one)))
    with jax.enable_x64(True):
        device = jax.numpy.asarray(one.reshape(-1, 3, 2))
    np.testing.assert_array_equal(binning.measure(device), binning.measure(one))
    there, here = ruler.measure(device), ruler.measure(one)
    assert np.abs(there.table - here.table).sum() <= 2
    np.testing.assert_allclose(there.extremes.low, here.extremes.low)
    np.testing.assert_allclose(there.extremes.high, here.extremes.high)


def test_surplus_runs_of_a_block_are_not_counted():
    samples = np.random.default_rng(0).normal(size=(1000, 2, 1))
    levels = Levels(Linear(np.array([1.0, -0.5])), np.array([-1.0, 0.0, 0.7]))
    sums = Accumulator((CellCounter(levels),))
    with jax.enable_x64(True):
        sums.add(0, jax.numpy.asarray(samples), 700)
    (counts,) = sums.results()
    assert counts.counts.tolist() == count_cells(levels, samples[:700]).counts.tolist()
    assert counts.total == 700
    assert counts.counts.tolist() != count_cells(levels, samples).counts.tolist()


def mean_square(samples):
    return (samples**2).mean((1, 2))


@pytest.mark.parametrize("call", [1, 3, 6])
def test_an_interruption_while_results_are_read_adds_none_of_them_twice(call, accelerator, tmp_path, monkeypatch):
    def verify(folder):
        return dpv.verify(Walk(), FIRST, SECOND, 0.5, error=mean_square, folder=folder, events="cell", **SMALL)

    undisturbed = verify(tmp_path / "undisturbed")
    merge, calls = MeanError.merge, []

    def interrupted(self, results):
        calls.append(call)
        if len(calls) == call:
            raise KeyboardInterrupt
        return merge(self, results)

    monkeypatch.setattr(MeanError, "merge", interrupted)
    with pytest.raises((KeyboardInterrupt, dpv.Stopped)):
        verify(tmp_path / "interrupted")
    assert verify(tmp_path / "interrupted").digest == undisturbed.digest

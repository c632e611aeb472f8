"""verify(stop_early=True): when it stops, what it then states, and that nothing but the claim and the runs matters."""

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import dpverify as dpv
from dpverify.early import BUDGET_LOOK_SHARE, look_share
from dpverify.errors import FolderError, InputError, Stopped
from dpverify.mechanisms.diagnostics import Diagnostic
from support.limits import most
from support.mechanisms import laplace

SMALL = {"stop_early": True, "select_runs": 300, "test_runs": 500}


def scalar(data, runs, rng):
    return data + rng.laplace(size=runs)


def test_a_false_claim_is_refuted_after_few_runs():
    report = dpv.verify(scalar, 0.0, 1.0, 0.3, stop_early=True)
    assert report.refuted
    assert report.stopped == "refuted"
    assert report.runs_used < 1000
    assert report.e_value >= 1 / (0.2 * 0.05)
    assert report.p_value <= 0.05
    assert 0.3 <= report.epsilon_lower < 1.0
    assert "the claim was refuted after" in str(report)


def test_a_false_claim_with_a_large_delta_is_refuted_before_the_budget_is_spent():
    """The event never occurs with one dataset, so the boundary is much larger than its argument there."""

    def leak(data, runs, rng):
        return (data * (rng.random(runs) < 0.56)).astype(float)

    report = dpv.verify(leak, 0.0, 1.0, 1.0, 0.5, stop_early=True, select_runs=2000, test_runs=20_000)
    assert report.stopped == "refuted"
    assert report.runs_used < 6000
    assert report.e_value >= 1 / (0.2 * 0.05)


@pytest.mark.parametrize(
    "claim", [dpv.claims.pure(800.0), dpv.claims.approximate(0.0, 1 - 1e-9)], ids=["pure", "delta"]
)
def test_a_claim_that_allows_everything_is_not_refuted(claim):
    assert not dpv.verify(scalar, 0.0, 1.0, claim=claim, **SMALL).refuted


def rare_leak(data, runs, rng):
    """Return an output above 1.5 in 2% or 5% of the runs; the true epsilon is ln 2.5 = 0.916."""
    leaked = rng.random((runs, 1)) < (0.05 if data else 0.02)
    return np.where(leaked, 1.5, 0.0) + rng.random((runs, 1))


@pytest.mark.parametrize("seed", range(2))
def test_a_false_claim_that_holds_over_few_cells_does_not_stop_the_search(seed):
    """No union of the few cells violates the claim after 4000 runs, and the leak in one of them is found later."""
    settings = {"stop_early": True, "select_runs": 2000, "test_runs": 30_000, "block": 256, "seed": seed}
    report = dpv.verify(rare_leak, 0.0, 1.0, 0.73, **settings)
    assert report.refuted
    assert report.stopped in ("refuted", "budget")
    assert report.runs_used > 4000
    true = dpv.verify(rare_leak, 0.0, 1.0, 2.0, **{**settings, "test_runs": 8000})
    assert (true.verdict, true.holds_on_cells) == (dpv.Verdict.NOT_REFUTED, True)
    assert (true.stopped, true.runs_used) == ("budget", 10_000)  # all runs are used


def test_an_upper_bound_over_all_events_ends_a_verification():
    settings = {"stop_early": True, "select_runs": 4000, "test_runs": 400_000}
    report = dpv.verify(scalar, 0.0, 1.0, 3.0, 0.1, log_lipschitz=1.0, **settings)
    assert (report.verdict, report.stopped) == (dpv.Verdict.CERTIFIED, "certified")
    assert report.runs_used < 100_000
    assert report.certificate.delta_upper(3.0) <= 0.1
    assert report.certificate.alpha < 0.5 * 0.9 * report.alpha  # this look has its own share
    assert "the claim was certified after" in str(report)


def test_the_looks_at_the_upper_bounds_share_one_alpha():
    shares = [BUDGET_LOOK_SHARE, *(look_share(number) for number in range(60))]
    assert sum(shares) <= 1
    report = dpv.verify(scalar, 0.0, 1.0, 1.0, **SMALL)
    assert report.on_partition.alpha == pytest.approx(0.9 * report.alpha)  # the only look: nothing can be certified


def test_the_budget_ends_with_the_exact_test_of_the_event_that_was_frozen_before():
    report = dpv.verify(scalar, 0.0, 1.0, 1.0, **SMALL)
    assert report.stopped == "budget"
    assert report.witness.runs == report.sequence.exact_runs == 500
    level = 0.8 * 0.05
    exact = [dpv.epsilon_lower_bound(*one.ordered, 500, 0.0, one.share * level) for one in report.tested]
    assert sum(one.share for one in report.tested) == pytest.approx(1)
    assert report.epsilon_lower == max(*exact, report.sequence.parameter_lower(report.claim, 0.05))
    assert report.runs_used == 800


def forgetful(data, runs, rng):
    """Add Gaussian noise to four numbers; in one run of a hundred, one of them gets no noise."""
    noise = rng.normal(scale=3.73, size=(runs, 4))
    forgets = rng.random(runs) < 0.01
    noise[forgets, rng.integers(4, size=forgets.sum())] = 0.0
    return data + noise


@pytest.mark.parametrize("alpha", [0.002, *(pytest.param(a, marks=pytest.mark.slow) for a in (0.05, 1e-6))])
def test_a_rare_leak_is_found_at_every_level(alpha):
    """The first bets find nothing and lose; the reserve is left for the event that the last selection finds."""
    first, second = np.array([20.0, 3.0, 7.0, 5.0]), np.array([21.0, 3.0, 7.0, 5.0])
    report = dpv.verify(forgetful, first, second, 1.0, 1e-5, stop_early=True, alpha=alpha, select_runs=20_000)
    assert report.refuted
    assert report.stopped == "refuted"


def test_another_claim_is_evaluated_on_the_same_bets():
    report = dpv.verify(scalar, 0.0, 1.0, 0.3, stop_early=True)
    assert report.against(0.2).refuted
    assert not report.against(1.0).refuted
    assert report.against(report.epsilon_lower).refuted
    assert not report.against(report.epsilon_lower + 0.01).refuted
    assert 0 < report.delta_lower(0.1) < 0.5


@pytest.mark.parametrize(
    ("claim", "lower"),
    [(dpv.claims.gaussian(0.2), 1.0), (dpv.claims.points([(0.1, 0.05), (1.0, 1e-3)]), None)],
    ids=["gaussian", "points"],
)
def test_claims_that_are_curves_are_refuted_too(claim, lower):
    report = dpv.verify(lambda data, runs, rng: data + rng.normal(size=runs), 0.0, 1.0, claim=claim, stop_early=True)
    assert report.stopped == "refuted"
    if lower is None:
        assert report.claim_lower is None
    else:
        assert claim.parameter <= report.claim_lower < lower


def test_without_a_claim_nothing_stops_early_and_the_report_says_so():
    report = dpv.verify(scalar, 0.0, 1.0, **SMALL)
    assert report.verdict is dpv.Verdict.MEASURED
    assert report.stopped is report.runs_used is report.e_value is None
    assert Diagnostic.NOTHING_TO_STOP in report.diagnostics
    assert report.epsilon_lower == dpv.verify(scalar, 0.0, 1.0, select_runs=300, test_runs=500).epsilon_lower


def test_the_paper_test_cannot_stop_early():
    with pytest.raises(InputError, match="stop_early"):
        dpv.Settings.paper(stop_early=True)


def test_threads_and_this_process_give_one_digest():
    settings = {**SMALL, "test_runs": 200}
    serial = dpv.verify(laplace, 0.0, 1.0, 1.0, **settings)
    with ThreadPoolExecutor(2) as threads:
        assert dpv.verify(laplace, 0.0, 1.0, 1.0, executor=threads, **settings).digest == serial.digest


class Interrupted:
    """A mechanism that is interrupted at one of its calls."""

    def __init__(self, seeded=True):
        self.calls, self.last, self.seeded, self.name = 0, math.inf, seeded, "laplace"

    def __call__(self, data, runs, rng):
        self.calls += 1
        if self.calls > self.last:
            raise KeyboardInterrupt
        rng = rng if self.seeded else np.random.default_rng()
        return data + rng.laplace(size=runs)


def test_an_interrupted_run_is_resumed_to_the_same_digest(tmp_path):
    mechanism, settings = Interrupted(), {**SMALL, "test_runs": 300}
    digest = dpv.verify(mechanism, 0.0, 1.0, 1.0, folder=tmp_path / "whole", **settings).digest
    folder = tmp_path / "kept"
    for last in np.random.default_rng(1).integers(10, 50, 4).tolist():  # the first nine calls are repeated
        mechanism.calls, mechanism.last = 0, last
        with pytest.raises(Stopped):
            dpv.verify(mechanism, 0.0, 1.0, 1.0, folder=folder, **settings)
    mechanism.last = math.inf
    report = dpv.verify(mechanism, 0.0, 1.0, 1.0, folder=folder, **settings)
    assert report.digest == digest
    assert report.provenance["resumed"]


@pytest.mark.filterwarnings("ignore::dpverify.DPVerifyWarning")
def test_a_mechanism_without_seeds_is_resumed_with_its_stored_runs(tmp_path):
    mechanism, settings = Interrupted(seeded=False), {**SMALL, "select_runs": 100, "test_runs": 50}
    mechanism.last = 30
    with pytest.raises(Stopped):
        dpv.verify(mechanism, 0.0, 1.0, 1.0, folder=tmp_path, **settings)
    mechanism.last = math.inf
    first = dpv.verify(mechanism, 0.0, 1.0, 1.0, folder=tmp_path, **settings)
    assert dpv.verify(mechanism, 0.0, 1.0, 1.0, folder=tmp_path, **settings).digest == first.digest


def test_an_undecided_verification_is_continued_with_more_runs(tmp_path):
    small = {**SMALL, "select_runs": 128, "test_runs": 100}
    first = dpv.verify(scalar, 0.0, 1.0, 1.0, folder=tmp_path, **small)
    more = dpv.verify(scalar, 0.0, 1.0, 1.0, folder=tmp_path, **{**small, "test_runs": 200})
    assert more.runs_used == first.runs_used + 100
    assert more.witness.counts == first.witness.counts  # the exact test is made once
    batches = first.sequence.bets.batch.size
    assert np.array_equal(more.sequence.bets.c1[:batches], first.sequence.bets.c1)
    with pytest.raises(FolderError, match="at least 200"):
        dpv.verify(scalar, 0.0, 1.0, 1.0, folder=tmp_path, **small)
    with pytest.raises(FolderError, match="claim"):
        dpv.verify(scalar, 0.0, 1.0, 0.9, folder=tmp_path, **{**small, "test_runs": 200})


def one_noise(data, runs, rng):
    return np.full(runs, data + rng.laplace())


def ignores_generator(data, runs, rng):
    return data + np.random.default_rng(0).laplace(size=runs)


@pytest.mark.filterwarnings("ignore::dpverify.DPVerifyWarning")
@pytest.mark.parametrize(
    ("mechanism", "diagnostic"),
    [(one_noise, Diagnostic.DEPENDENT_RUNS), (ignores_generator, Diagnostic.REPEATED_BLOCKS)],
)
def test_dependent_runs_are_found_before_a_claim_is_called_false(mechanism, diagnostic):
    report = dpv.verify(mechanism, 0.0, 1.0, 0.3, **SMALL)
    assert report.verdict is dpv.Verdict.NO_ANSWER
    assert diagnostic in report.diagnostics


def test_equal_data_sets_need_few_runs():
    data = np.zeros(2)
    report = dpv.verify(lambda data, runs, rng: rng.laplace(size=runs), data, data.copy(), 1.0, **SMALL)
    assert report.verdict is dpv.Verdict.NO_ANSWER
    assert report.runs_used < 50


@pytest.mark.parametrize("block", [None, 64], ids=["chosen", "given"])
def test_outputs_with_many_coordinates_are_distinguished(block):
    def steps(data, runs, rng):
        return 0.8 * data + rng.laplace(size=(runs, 3, 2))

    report = dpv.verify(steps, 0.0, 1.0, 0.5, stop_early=True, select_runs=2000, test_runs=1000, block=block)
    assert report.stopped == "refuted"


def test_the_error_is_the_mean_over_all_batches():
    report = dpv.verify(scalar, 0.0, 1.0, 1.0, error=lambda samples: samples[:, 0, 0], **SMALL)
    (mean1, deviation1), (mean2, deviation2) = report.error
    assert abs(mean1) < 5 * deviation1
    assert abs(mean2 - 1) < 5 * deviation2
    assert deviation1 == pytest.approx(math.sqrt(2 / 784), rel=0.2)


def test_discrete_and_constant_outputs_are_verified():
    report = dpv.verify(lambda data, runs, rng: rng.random(runs) < 0.25 + 0.5 * data, 0.0, 1.0, 0.3, stop_early=True)
    assert report.stopped == "refuted"
    constant = dpv.verify(lambda data, runs, rng: np.full(runs, data), 0.0, 1.0, 0.3, **SMALL)
    assert constant.refuted
    assert Diagnostic.DETERMINISTIC_OUTPUTS in constant.diagnostics


@pytest.mark.slow
def test_a_true_claim_is_refuted_at_most_as_often_as_the_level_allows():
    """The whole pipeline: wealth, looks and the exact test. The claim of the negative control is false."""
    trials, settings = 200, {"stop_early": True, "select_runs": 128, "test_runs": 128, "alpha": 0.2}

    def refuted(epsilon):
        return sum(dpv.verify(scalar, 0.0, 1.0, epsilon, seed=seed, **settings).refuted for seed in range(trials))

    assert refuted(1.0) <= most(trials, 0.2)
    assert refuted(0.3) > most(trials, 0.2)

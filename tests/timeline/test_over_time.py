"""The privacy of every prefix: against closed forms, simultaneous coverage, claims, and one pass over the same runs."""

import dataclasses

import numpy as np
import pytest
from limits import most
from streams import KnownStream, gaussian_epsilon, laplace_stream, smoothed_stream

import dpverify as dpv
from dpverify.events.prefix_scores import LinearPrefixes
from dpverify.over_time import PrefixEvents, PrivacyOverTime
from dpverify.stats.exact import epsilon_lower_bound

RUNS = {"select_runs": 4000, "test_runs": 16_000}
DELTA = 0.01


def changed(shape, *places, change=1.0):
    """Return data of zeros, and the same with a change in some rows."""
    first, second = np.zeros(shape), np.zeros(shape)
    second[list(places)] += change
    return first, second


@pytest.fixture(scope="module")
def laplace_result():
    """The level is small, so that a bound above the truth is a fault and not chance."""
    first, second = changed((5, 1), 1, 3)
    runs = {"select_runs": 20_000, "test_runs": 80_000}
    return dpv.privacy_over_time(laplace_stream, first, second, epsilon=1.5, alpha=1e-4, **runs)


def test_a_loss_is_proved_from_the_changed_step_on(laplace_result):
    lower = laplace_result.epsilon_lower
    assert laplace_result.start == 1
    assert (lower[:1] == 0).all()
    assert 0.9 < lower[1] <= lower[2] < 1.0
    assert 1.8 < lower[3] <= lower[4] < 2.0
    assert laplace_result.spent[-1] == 1.0
    assert laplace_result.increments.sum() == pytest.approx(laplace_result.final)


def test_cells_of_steps_without_a_difference_are_not_split_by_the_threshold():
    """A threshold beside another edge would leave a cell with hardly any runs, whose bound is large."""
    first, second = changed((10, 1), 9)
    result = dpv.privacy_over_time(laplace_stream, first, second, **RUNS)
    unproved = np.flatnonzero(~result.events.tested).tolist()
    assert len(unproved) >= 3
    cells = [result.on_partition(step) for step in unproved]
    assert min((part.c1 + part.c2).min() for part in cells) > result.runs / 16  # half of what 16 equal cells have


def test_a_claim_is_refuted_from_the_step_at_which_it_is_exceeded(laplace_result):
    assert laplace_result.refuted_from == 3
    assert laplace_result.verdict is dpv.Verdict.REFUTED
    assert (laplace_result.p_values[:3] > 0.05).all()


def test_a_budget_names_the_steps_that_exceed_it_and_the_bounded_ones(laplace_result):
    budget = laplace_result.until(1.3)
    assert budget.exceeded == 4
    assert budget.bounded <= 3
    assert {*budget.unknown} == {*range(budget.bounded + 1, 4)}
    assert "4 steps or more exceed it" in str(budget)
    free = laplace_result.until(50.0)
    assert (free.bounded, free.exceeded, free.unknown) == (5, None, ())


def test_an_event_of_a_prefix_does_not_depend_on_later_steps(laplace_result):
    rng = np.random.default_rng(0)
    samples = rng.laplace(size=(200, 5, 1))
    other = samples.copy()
    other[:, 3:] += 100.0
    same = laplace_result.events.contains(samples) == laplace_result.events.contains(other)
    assert same[:, :3].all()
    assert not same[:, 3].all()


@pytest.mark.parametrize("change", [0.5, 1.0])
def test_correlated_gaussian_outputs_reach_the_closed_form(change):
    """The running means determine the noisy readings, so the loss is that of one Gaussian reading from step 2 on."""
    first, second = changed((5, 1), 2, change=change)
    result = dpv.privacy_over_time(smoothed_stream, first, second, DELTA, select_runs=10_000, test_runs=40_000)
    exact = gaussian_epsilon(change, DELTA)
    assert (result.epsilon_lower[:2] == 0).all()
    assert (result.epsilon_lower[2:] <= exact).all()
    assert (result.epsilon_lower[2:] > 0.88 * exact - 0.03).all()


def test_the_closed_form_of_the_mechanism_is_part_of_the_result():
    first, second = changed((3, 2), 1)
    result = dpv.privacy_over_time(KnownStream(), first, second, DELTA, **RUNS)
    expected = [0.0, *[gaussian_epsilon(2**0.5, DELTA)] * 2]
    assert result.truth == pytest.approx(expected)
    assert (result.epsilon_lower <= result.truth).all()
    assert "exact" in str(result)


def test_claims_of_other_kinds_have_lower_bounds_of_their_parameter():
    first, second = changed((3, 1), 1, 2)
    claim = dpv.claims.gaussian(mu=1.2)
    result = dpv.privacy_over_time(KnownStream(), first, second, claim=claim, **RUNS)
    assert result.refuted_from == 2
    assert result.claim_lower[0] == 0
    assert 0.9 < result.claim_lower[1] <= 1.0
    assert 1.2 < result.claim_lower[2] <= 2**0.5


def repeats(data, runs, rng):
    """Release the first reading with noise; later the last output again, or a new one if a noisy reading is above 1."""
    output = np.empty((runs, len(data), 1))
    last = data[0, 0] + rng.laplace(size=runs)
    for step, reading in enumerate(data[:, 0]):
        if step:
            new = reading + rng.laplace(size=runs) > 1.0
            last = np.where(new, reading + rng.laplace(size=runs), last)
        output[:, step, 0] = last
    return output


def test_repeated_outputs_are_recognised():
    """Whether an output is repeated reveals the comparison, which costs epsilon 1 beside the released value."""
    first, second = changed((3, 1), 1)
    result = dpv.privacy_over_time(repeats, first, second, select_runs=20_000, test_runs=60_000)
    assert result.start == 1
    assert 1.5 < result.epsilon_lower[1] < 2.0


def made_result(counts, runs, alpha, delta=0.0):
    """Return a result with one event per step and these counts of both datasets, of shape (K, 2)."""
    steps = len(counts)
    zeros = np.zeros(steps, np.int64)
    events = PrefixEvents(
        (LinearPrefixes(np.eye(steps)),), zeros, zeros, np.zeros(steps), np.zeros((steps, 1)), zeros == 0
    )
    table = np.stack([np.stack([runs - counts[:, side], counts[:, side]], 1) for side in (0, 1)])
    settings = dpv.Settings(test_runs=runs, alpha=alpha)
    return PrivacyOverTime("", "", delta, None, events, table, (steps, 1), settings, True, (), None, {})


def share_of_misses(runs, seeds, alpha, bounds):
    """Return how often any bound exceeds the exact epsilon, for independent steps whose events have exactly it."""
    epsilons, p2 = np.array([0.2, 0.4, 0.6, 0.8]), 0.2
    rng = np.random.default_rng(5)
    first = rng.binomial(runs, p2 * np.exp(epsilons), (seeds, 4))
    second = rng.binomial(runs, p2, (seeds, 4))
    return sum(
        bool((bounds(made_result(np.stack([a, b], 1), runs, alpha)) > epsilons).any())
        for a, b in zip(first, second, strict=True)
    )


def test_bounds_of_all_steps_hold_together():
    seeds, alpha = 80, 0.25
    limit = most(seeds, alpha)
    assert share_of_misses(400, seeds, alpha, lambda result: result.epsilon_lower) <= limit

    def without_sharing(result):  # negative control: every step has the whole alpha
        pairs = result.event_counts
        return np.array([epsilon_lower_bound(int(a), int(b), result.runs, 0.0, alpha) for a, b in pairs])

    assert share_of_misses(400, seeds, alpha, without_sharing) > limit


def test_a_claim_that_holds_is_rarely_refuted_at_any_step():
    """The claim is exactly true from step 2 on; the steps are tested from the last one back, at the full alpha."""
    seeds, alpha, runs, p2 = 40, 0.25, 400, 0.2
    rng = np.random.default_rng(6)
    wrong = 0
    for _ in range(seeds):
        probabilities = p2 * np.exp([0.1, 0.3, 0.5, 0.5])
        counts = np.stack([rng.binomial(runs, probabilities), rng.binomial(runs, p2, 4)], 1)
        result = made_result(counts, runs, alpha)
        claimed = dataclasses.replace(result, claim=dpv.claims.pure(0.5))
        wrong += claimed.refuted
    assert wrong <= most(seeds, alpha)


def misses_of_runs(seeds, alpha, steps, **runs):
    """Return in how many seeds any lower bound of a stream with a closed form is false."""
    first, second = changed((steps, 1), 1, change=1.5)
    exact = np.array([0.0, *[gaussian_epsilon(1.5, DELTA)] * (steps - 1)])
    missed = 0
    for seed in range(seeds):
        result = dpv.privacy_over_time(smoothed_stream, first, second, DELTA, alpha=alpha, seed=seed, **runs)
        missed += bool((result.epsilon_lower > exact).any())
    return missed


def test_simultaneous_misses_of_a_few_seeds_are_within_the_limit():
    seeds, alpha = 8, 0.4
    assert misses_of_runs(seeds, alpha, 3, select_runs=400, test_runs=800) <= most(seeds, alpha)


@pytest.mark.slow
def test_simultaneous_misses_of_a_thousand_seeds_are_within_the_limit():
    seeds, alpha = 1000, 0.05
    assert misses_of_runs(seeds, alpha, 6, select_runs=10_000, test_runs=20_000) <= most(seeds, alpha)


def test_the_same_runs_serve_all_prefixes():
    calls = []

    def counting(data, runs, rng):
        calls.append(rng.bit_generator.seed_seq.spawn_key[:3])
        return laplace_stream(data, runs, rng)

    first, second = changed((4, 1), 1)
    dpv.privacy_over_time(counting, first, second, **RUNS, block=1000)
    test_blocks = [call for call in calls if call[0] == 4]
    assert sorted(test_blocks) == [(4, side, block) for side in (0, 1) for block in range(16)]


def test_the_bound_of_the_last_step_is_close_to_that_of_a_verification():
    first, second = changed((6, 1), 2, 4)
    result = dpv.privacy_over_time(KnownStream(2.0), first, second, DELTA, **RUNS)
    report = dpv.verify(KnownStream(2.0), first, second, delta=DELTA, alpha=0.05 / 6, **RUNS)  # the level of one step
    assert result.final > 0.85 * report.epsilon_lower


def test_the_sentence_about_a_claim_follows_the_verdict(laplace_result):
    assert ": refuted from step 3 on; confidence" in laplace_result.claim_sentence()
    between = dataclasses.replace(laplace_result, claim=dpv.claims.pure(laplace_result.final))
    assert between.refuted
    assert "the test of the claim is sharper than the bounds" in between.claim_sentence()

    def sentence(**changes):
        return dataclasses.replace(laplace_result, **changes).claim_sentence()

    assert "no union of the cells violates it" in sentence(claim=dpv.claims.pure(9.0))
    assert "this does not prove that it holds" in sentence(claim=dpv.claims.pure(1.95))
    assert sentence(diagnostics=(dpv.Diagnostic.SAME_DATA,)).endswith("no verdict")

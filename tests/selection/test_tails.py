"""Models of the tails of a score: what they predict, how sure they are, and when they are not used."""

from dataclasses import replace

import numpy as np
import pytest
from limits import most
from scipy.special import ndtr

from dpverify.events.scores import Linear
from dpverify.sampling.count import counts_from_table
from dpverify.selection import proposals
from dpverify.selection.objective import TUNING, SelectionObjective, approximate_bound
from dpverify.selection.proposals import (
    BinnedScore,
    Candidate,
    EquivalentCounts,
    PairedHistogram,
    SelectionCounts,
    fine_edges,
    fit_log_ratio,
    fit_tails,
    judge,
    propose_all_levels,
    refine_threshold,
)

OBJECTIVE = SelectionObjective(10**6, 0.0, 0.05, 1.85)
RUNS = 20_000


BINNED = BinnedScore(Linear(np.ones(1)), fine_edges(np.random.default_rng(0).standard_normal(4000) + 0.5))


def draw_histogram(seed, shift=1.0):
    """Gaussian noise; the first dataset is shifted."""
    rng = np.random.default_rng(seed)
    sides = rng.standard_normal(RUNS) + shift, rng.standard_normal(RUNS)
    return PairedHistogram.of(*(BINNED.count(side) for side in sides), RUNS)


def gaussian_candidate(seed, shift=1.0):
    return Candidate(BINNED, draw_histogram(seed, shift))


def decision_counts(proposal, exceeding, other):
    """Return decision runs with these counts of the event."""
    tables = []
    for side in (0, 1):
        table = np.zeros(proposal.event.partition.size, np.int64)
        table[proposal.event.codes[0]] = exceeding if side == proposal.event.direction else other
        tables.append(counts_from_table(table))
    return SelectionCounts(*tables, RUNS, RUNS)


def test_the_standard_error_of_a_line_is_right():
    """The true slope is within 1.96 standard errors about 95% of the time; with half of the error it is not."""
    misses = control = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        values = np.linspace(0, 3, 60)
        both = rng.poisson(200 * np.exp(-values))
        c1 = rng.binomial(both, 1 / (1 + np.exp(-(values - 1))))
        line = fit_log_ratio(values, c1, both - c1)
        scale = (values[1] - values[0]) / (line.x[1] - line.x[0])
        slope, error = line.slope / scale, np.sqrt(line.covariance[2]) / scale
        misses += abs(slope - 1) > 1.96 * error
        control += abs(slope - 1) > 1.96 * error / 2
    assert misses <= most(200, 0.05)
    assert control > most(200, 0.05)


def test_a_model_knows_more_about_a_rare_event_than_its_counts():
    """Gaussian noise: the predicted log-ratios have smaller errors than those of the counts, and honest variances."""
    errors, raw, standardised = [], [], []
    for seed in range(40):
        model = fit_tails(gaussian_candidate(seed))[0]
        index = int(np.searchsorted(model.counts[0], 40))
        threshold = model.edges[index]
        truth = np.log(ndtr(1 - threshold) / ndtr(-threshold))
        predicted = np.log(model.counts[0][index] / model.predicted[index])
        errors.append(predicted - truth)
        raw.append(np.log((model.counts[0][index] + 0.5) / (model.counts[1][index] + 0.5)) - truth)
        standardised.append(errors[-1] / np.sqrt(model.variance[index]))
    assert np.std(errors) < 0.5 * np.std(raw)
    assert sum(abs(z) > 1.96 for z in standardised) <= most(40, 0.05)


def test_equivalent_counts_have_the_ratio_and_the_variance_of_the_model():
    model = fit_tails(gaussian_candidate(0))[0]
    index = model.best(OBJECTIVE)
    known = model.equivalent_counts(model.edges[index], int(model.counts[0][index]))
    assert known.exceeding / known.other == pytest.approx(model.counts[0][index] / model.predicted[index])
    assert 1 / known.exceeding + 1 / known.other == pytest.approx(model.variance[index])
    assert known.exceeding / known.runs == pytest.approx(model.counts[0][index] / RUNS)
    assert model.equivalent_counts(-10.0, RUNS) is None  # not in the tail


def test_equivalent_counts_are_those_of_an_event_that_exceeds():
    """Also of few runs, whose tails contain most of them. Counts of the other dataset are never larger."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        sides = rng.standard_normal(300) + 0.3, rng.standard_normal(300)
        candidate = Candidate(BINNED, PairedHistogram.of(*(BINNED.count(side) for side in sides), 300))
        known = [one.equivalent for one in propose_all_levels(candidate, OBJECTIVE).proposals]
        assert all(one.other < one.exceeding <= one.runs * (1 + 1e-9) for one in known if one is not None)


def test_both_tails_are_modelled():
    directions = [model.direction for model in fit_tails(gaussian_candidate(0))]
    assert directions == [0, 1]
    upper, lower = fit_tails(gaussian_candidate(0))
    assert upper.edges[0] > upper.edges[-1] > lower.edges[-1] > lower.edges[0]


def test_equal_distributions_give_no_certain_model():
    """The best event of a model of equal distributions promises next to nothing; a shift is the control."""
    for shift, is_found in ((0.0, False), (1.0, True)):
        bounds = []
        for seed in range(10):
            for model in fit_tails(gaussian_candidate(seed, shift)):
                index = model.best(OBJECTIVE)
                if index is not None:
                    p1, p2 = model.counts[0][index] / RUNS, model.predicted[index] / RUNS
                    bounds.append(float(approximate_bound(p1, p2, OBJECTIVE)))
        assert (max(bounds, default=0.0) > 1) is is_found


def test_decision_runs_can_contradict_a_model():
    known = EquivalentCounts(200.0, 4.0, 10_000.0)
    assert known.agrees_with(40, 0)
    assert known.agrees_with(40, 2)
    assert not known.agrees_with(40, 12)
    proposals = propose_all_levels(gaussian_candidate(0), OBJECTIVE).proposals
    proposal = next(one for one in proposals if one.equivalent is not None)
    for other, is_kept in ((0, True), (40, False)):
        judged = judge(proposal, decision_counts(proposal, 40, other), OBJECTIVE)
        assert (judged.proposal.equivalent is not None) is is_kept


def test_a_refined_threshold_is_better_on_average():
    """The model of all runs gives a better true bound than the event that some of the runs preferred."""

    def true_bound(judged):
        threshold = judged.proposal.threshold
        return float(approximate_bound(ndtr(1 - threshold), ndtr(-threshold), OBJECTIVE))

    before, after = [], []
    for seed in range(20):
        candidate, decided = gaussian_candidate(seed), draw_histogram(1000 + seed)
        judged = []
        for proposal in propose_all_levels(candidate, OBJECTIVE).proposals:
            if proposal.equivalent is not None and proposal.is_solid and proposal.event.direction == 0:
                counts = decided.count_beyond(proposal.threshold, BINNED.edges, True)
                judged.append(judge(proposal, decision_counts(proposal, *counts), OBJECTIVE))
        best = max(judged, key=lambda one: one.bound)
        before.append(true_bound(best))
        after.append(true_bound(refine_threshold(best, decided, OBJECTIVE)))
    assert np.mean(after) > max(np.mean(before), 0.9 * 3.52)  # 3.52 is the bound of the best threshold


@pytest.mark.parametrize("control", [False, True])
def test_a_line_says_nothing_about_a_leak(control, monkeypatch):
    """Six runs of the first dataset lie beyond all others. A line through the others makes this leak look harmless."""
    if control:
        monkeypatch.setattr(proposals, "TUNING", replace(TUNING, leak_ratio=np.inf))
    rng = np.random.default_rng(0)
    sides = [0.1 * rng.standard_normal(RUNS) + shift for shift in (0.05, 0.0)]
    sides[0][:6] = 0.6
    binned = BinnedScore(Linear(np.ones(1)), fine_edges(0.1 * rng.standard_normal(4000)))
    candidate = Candidate(binned, PairedHistogram.of(*(binned.count(side) for side in sides), RUNS))
    leaks = [one for one in propose_all_levels(candidate, OBJECTIVE).proposals if one.counts == (6, 0)]
    assert leaks
    assert all(one.equivalent is None for one in leaks) is not control

"""The exact privacy that the gallery states: against simple formulas, and against the mechanisms themselves."""

import math

import numpy as np
import pytest

from dpverify import claims
from gallery import triggered, w_event
from gallery.binary import BinaryMechanism, binary_truth
from gallery.bounded_laplace import BoundedLaplace, bounded_truth
from gallery.catalogue import ENTRIES
from gallery.laws import gaussian_delta, gaussian_truth, laplace_curve, laplace_truth
from gallery.planar_laplace import planar_delta
from gallery.quantiser import outcome_law
from gallery.truncated import staircase_truth

RNG = np.random.default_rng


def test_one_laplace_variable_has_its_closed_form():
    delta_at, _ = laplace_curve((0.7,))
    for epsilon in (0.0, 0.2, 0.6):
        assert delta_at(epsilon) == pytest.approx(1 - math.exp((epsilon - 0.7) / 2), abs=3e-4)
        assert delta_at(epsilon) >= 1 - math.exp((epsilon - 0.7) / 2) - 1e-12  # rounded up
    assert laplace_truth([0.5, 0.25], claims.pure(1.0)).parameter == 0.75


def test_a_convolution_agrees_with_the_mechanism():
    """The loss of the binary mechanism, from the noise of its nodes."""
    noise = np.random.default_rng(0).laplace(scale=2.0, size=(400_000, 3))
    loss = ((np.abs(noise - 1) - np.abs(noise)) / 2).sum(axis=1)  # the first dataset has the noise around 0
    measured = np.maximum(-np.expm1(0.5 - loss), 0)
    truth = binary_truth(4, 2.0, claims.approximate(0.5, 0.0))
    assert truth.delta == pytest.approx(measured.mean(), abs=4 * measured.std() / math.sqrt(len(loss)) + 1e-3)
    assert BinaryMechanism(2.0)(np.zeros(4), 3, np.random.default_rng(0)).shape == (3, 4)


def test_the_gaussian_epsilon_inverts_the_gaussian_delta():
    truth = gaussian_truth(0.8, claims.approximate(1.0, 0.01))
    assert gaussian_delta(0.8, truth.parameter) == pytest.approx(0.01, rel=1e-6)
    assert truth.delta == gaussian_delta(0.8, 1.0)


def test_the_planar_laplace_curve():
    assert [planar_delta(epsilon) for epsilon in (0.5, 0.9, 0.99)] == pytest.approx([0.123, 0.0125, 0.0004], rel=0.03)
    points = np.random.default_rng(1).gamma(2.0, size=200_000), np.random.default_rng(2).uniform(0, 2 * np.pi, 200_000)
    x, y = points[0] * np.cos(points[1]), points[0] * np.sin(points[1])
    loss = np.hypot(x - 1, y) - points[0]
    assert np.maximum(-np.expm1(0.5 - loss), 0).mean() == pytest.approx(planar_delta(0.5), abs=0.002)


def test_the_staircase_and_the_quantiser_are_enumerated_completely():
    assert staircase_truth(1, claims.approximate(0.3, 0.0245)).delta == pytest.approx(0.02441, abs=1e-5)
    assert outcome_law(np.array([0.3, 0.6]), 1.0).sum() == pytest.approx(1)
    assert bounded_truth(BoundedLaplace(1.0)).parameter == pytest.approx(1.4899, abs=1e-4)


@pytest.mark.parametrize("mechanism", [w_event.DISTRIBUTION, w_event.ABSORPTION])
def test_the_loss_of_w_event_mechanisms_is_a_likelihood_ratio(mechanism):
    """The mean of the likelihood ratio under the second dataset is 1, and no loss exceeds the supremum."""
    runs, first, second = 100_000, w_event.FIRST, w_event.SECOND
    samples = mechanism(second, runs, np.random.default_rng(3))
    published = np.diff(np.column_stack([np.zeros(runs), samples]), axis=1) != 0
    ratios, largest = np.zeros(runs), 0.0
    for pattern in np.unique(published, axis=0):
        row = np.flatnonzero((published == pattern).all(axis=1))
        values = {step: samples[row, step] for step in np.flatnonzero(pattern)}
        loss = w_event.pattern_loss(mechanism, first, second, pattern, values)
        ratios[row] = np.exp(loss)
        largest = max(largest, np.abs(loss).max())
    assert ratios.mean() == pytest.approx(1, abs=4 * ratios.std() / math.sqrt(runs))
    supremum = w_event.supremum(mechanism, first, second)
    assert 0.5 * supremum < largest <= supremum
    assert supremum <= mechanism.epsilon + 1e-9


def test_the_likelihood_ratio_of_triggered_release():
    """Its mean under the second dataset is 1, its distribution gives delta, and clipping alone exceeds the claim."""
    runs = 100_000
    ratio = np.exp(triggered.log_likelihood_ratio(triggered.DSAT(triggered.SECOND, runs, RNG(4))[:, None]))
    assert ratio.mean() == pytest.approx(1, abs=4 * ratio.std() / math.sqrt(runs))
    loss = triggered.log_likelihood_ratio(triggered.DSAT(triggered.FIRST, runs, RNG(5))[:, None])
    measured = np.maximum(-np.expm1(0.5 - loss), 0)
    truth = triggered.exact_truth(triggered.DSAT, claims.approximate(0.5, 0.0))
    assert truth.delta == pytest.approx(measured.mean(), abs=4 * measured.std() / math.sqrt(runs))
    assert truth.parameter == pytest.approx(2.2)
    assert np.abs(loss).max() <= truth.parameter
    wrong = np.exp(triggered.log_likelihood_ratio(triggered.UNCLIPPED(triggered.SECOND, runs, RNG(4))[:, None]))
    assert abs(wrong.mean() - 1) > 4 * wrong.std() / math.sqrt(runs)  # the ratio of another mechanism is noticed
    for mechanism in (triggered.UNCLIPPED, triggered.DSFT):
        assert triggered.exact_truth(mechanism).parameter < 1


def test_every_truth_is_consistent_with_its_role():
    """A published claim without a correction is true, and a control is false, where the truth is known."""
    for entry in ENTRIES:
        corrected = any(case.role == "corrected" for case in entry.cases)
        for case in entry.cases:
            truth = case.truth() if case.truth else None
            if truth is None or not truth.is_exact:
                continue
            claimed = case.claim.epsilon if isinstance(case.claim, claims.Approximate) else case.claim.mu
            holds = truth.parameter <= claimed + 1e-9
            if case.role == "control":
                assert not holds, case.name
            elif case.role == "corrected" or not corrected:
                assert holds, case.name

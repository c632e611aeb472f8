"""assert_private: a true claim passes, a false one fails, and a test with too little power fails."""

import dataclasses
import functools
import pickle
from pathlib import Path

import numpy as np
import pytest
from limits import least, most

import dpverify as dpv
from dpverify.mechanisms.diagnostics import Diagnostic
from dpverify.report.power import needed_runs, planned_share
from dpverify.report.statements import Verdict
from dpverify.report.text import describe_weakness
from dpverify.stats.exact import claim_p_value
from mechanisms import ONE, ZERO, laplace, laplace_half_noise

CHEAP = {"select_runs": 4000, "test_runs": 10_000, "block": 1000}


def very_private(data, runs, rng):
    return data + rng.laplace(scale=20.0, size=(runs, 1))


def test_a_private_mechanism_passes_and_its_report_is_returned():
    report = dpv.assert_private(laplace, ZERO, ONE, 1.0)
    assert report.alpha == 1e-6
    assert not report.refuted
    assert report.epsilon_detectable < 1.25


def test_a_mechanism_with_half_the_noise_fails():
    with pytest.raises(AssertionError, match=r"REFUTED\n  refuted at 99\.9999% confidence, strong evidence") as failure:
        dpv.assert_private(laplace_half_noise, ZERO, ONE, 1.0, **CHEAP)
    assert not isinstance(failure.value, dpv.TooWeak)
    assert "witness" in str(failure.value)
    assert failure.traceback.filter(failure)[-1].path == Path(__file__)  # the last line that pytest shows


def outcomes(seeds, mechanism, **options):
    """Count how the assertion ends for several seeds."""
    numbers = {"passed": 0, "refuted": 0, "weak": 0}
    for seed in range(seeds):
        try:
            dpv.assert_private(mechanism, ZERO, ONE, 1.0, seed=seed, **{**CHEAP, **options})
            numbers["passed"] += 1
        except dpv.TooWeak:
            numbers["weak"] += 1
        except AssertionError:
            numbers["refuted"] += 1
    return numbers


SEEDS = [5, pytest.param(300, marks=pytest.mark.slow)]


@pytest.mark.parametrize("seeds", SEEDS)
def test_true_claims_fail_with_probability_alpha_at_most(seeds):
    """The claim is the exact epsilon, the hardest true claim; alpha 0.1 makes some failures likely."""
    assert outcomes(seeds, laplace, detects=2.0)["refuted"] <= most(seeds, 1e-6)
    assert outcomes(seeds, laplace, detects=2.0, alpha=0.1)["refuted"] <= most(seeds, 0.1)


def test_a_mechanism_far_more_private_than_its_claim_passes():
    assert outcomes(5, very_private, test_runs=100_000) == {"passed": 5, "refuted": 0, "weak": 0}


# Too few runs.


def test_too_few_runs_are_an_error_with_the_required_number():
    with pytest.raises(dpv.TooWeak, match=r"too weak: .* were 1\.1, 10 000 test runs per dataset") as failure:
        dpv.assert_private(laplace, ZERO, ONE, 1.0, detects=1.1, **CHEAP)
    weak = failure.value
    assert f"set test_runs={weak.needed}, which is enough" in str(weak)
    assert weak.report.epsilon_detectable > 1.1
    assert str(weak).count("test_runs=") == 1
    assert "\n  next " not in str(weak)
    assert "\n  next " in str(weak.report)
    assert pickle.loads(pickle.dumps(weak)).needed == weak.needed
    enough = {"select_runs": 4000, "test_runs": weak.needed}
    assert dpv.assert_private(laplace, ZERO, ONE, 1.0, detects=1.1, **enough).epsilon_detectable <= 1.1


def with_counts(report, counts, runs, claim):
    """Return the report of a claim that is not refuted, with other counts of the same event."""
    witness = dataclasses.replace(report.witness, counts=counts, runs=runs, share=1.0)
    delta = getattr(claim, "delta", 0.0)
    changed = dataclasses.replace(report, tested=(witness,), claim=claim, delta=delta)
    vars(changed)["verdict"] = Verdict.NOT_REFUTED  # some of these counts refute the claim
    return changed


@functools.cache
def any_report():
    report = dpv.verify(laplace, ZERO, ONE, 1.0, select_runs=500, test_runs=500)
    return report if report.witness.event.direction == 0 else dpv.verify(laplace, ONE, ZERO, 1.0, select_runs=500)


CLAIMS = {
    "pure": dpv.claims.pure(1.0),
    "approximate": dpv.claims.approximate(1.0, 1e-5),
    "gaussian": dpv.claims.gaussian(0.8),
    "zcdp": dpv.claims.zcdp(0.3),
    "profile": dpv.claims.points([(0.5, 0.2), (1.0, 0.05)]),
}


@pytest.mark.parametrize("kind", CLAIMS)
@pytest.mark.parametrize("share", [0.05, 0.42, *(pytest.param(p, marks=pytest.mark.slow) for p in (0.003, 0.3, 0.9))])
def test_detects_agrees_with_the_power_line_of_the_report(kind, share):
    """Too weak means that a violation by `detects` is not noticed, and the stated number of runs is enough."""
    claim, detects = CLAIMS[kind], 1.25
    seen = set()
    for runs in (20, 2000, 200_000, 2_000_000):
        count = round(share * runs)
        report = with_counts(any_report(), (count, count), runs, claim)
        weakness = describe_weakness(report, detects)
        seen.add(weakness is None)
        q, target = (count + 0.5) / (runs + 1), claim.scale(detects)
        event = planned_share(report, target)  # as the witness, or rarer: its larger probability is beta
        assert event == q or target.boundary(event) - target.boundary(0.0) == pytest.approx(report.settings.beta)
        noticed = claim.noticed_probability(runs, event, report.alpha)
        assert (weakness is None) == (noticed <= target.boundary(event) and claim.boundary(q) < 1)
        if kind == "pure":
            assert (weakness is None) == (report.epsilon_detectable <= detects * claim.epsilon)
        if claim.boundary(q) >= 1:
            assert "it cannot violate the claim" in weakness
        elif weakness is not None:
            needed = needed_runs(report, detects)
            if count == 0:
                assert "set test_runs" in weakness or "too rare to state a number of test runs" in weakness
                continue
            assert f"set test_runs={needed}," in weakness
            assert needed > runs
            again = round(q * needed)
            assert describe_weakness(with_counts(report, (again, again), needed, claim), detects) is None
    assert seen == ({False} if claim.boundary(share) >= 1 else {True, False})


def test_a_witness_that_never_occurred_with_the_other_data_set_is_planned_by_its_frequency():
    """The number refutes the claim if the event really never occurs there; the first 1000 runs do not."""
    claim = CLAIMS["approximate"]
    needed = needed_runs(with_counts(any_report(), (4, 0), 1000, claim), 1.25)
    refuted = [claim_p_value(round(0.004 * n), 0, n, 1.0, 1e-5, 1e-3) <= 1e-3 for n in (1000, needed)]
    assert refuted == [False, True]


def scaled(data, runs, rng):
    """Laplace noise with a true epsilon of 1.25."""
    return data + rng.laplace(scale=0.8, size=(runs, 1))


@pytest.mark.slow
def test_the_required_number_of_runs_is_enough():
    """The runs that are required for a true claim refute a mechanism whose epsilon is `detects` times as large."""
    with pytest.raises(dpv.TooWeak) as failure:
        dpv.assert_private(laplace, ZERO, ONE, 1.0, select_runs=20_000, test_runs=500)
    refuted = 0
    for seed in range(100):
        try:
            dpv.assert_private(scaled, ZERO, ONE, 1.0, seed=seed, select_runs=20_000, test_runs=failure.value.needed)
        except dpv.TooWeak:
            pass
        except AssertionError:
            refuted += 1
    assert refuted >= least(100, 0.8)


# Tests that cannot notice a violation.


def key(data, runs, rng):
    """A key that 1.3% of the runs with the second dataset release, and no run with the first."""
    return (rng.random(runs) < 0.013 * data).astype(float)


def rarer_key(data, runs, rng):
    return key(data * 0.0045 / 0.013, runs, rng)


def outcome(mechanism, *claim, **options):
    try:
        report = dpv.assert_private(mechanism, 0.0, 1.0, *claim, **options)
    except dpv.TooWeak as weak:
        return "weak", weak.report.witness.counts
    except AssertionError:
        return "refuted", None
    return "passed", report.witness.counts


def test_a_key_that_one_data_set_releases_is_tested_by_its_presence():
    """Its absence, with 98.7% and 100% of the runs, cannot violate the claim, so that it could only pass."""
    for seed in range(12):
        result, counts = outcome(key, 1.0, 0.0049, seed=seed, select_runs=1000, test_runs=4000)
        assert result == "weak"
        assert counts[0] == 0 < counts[1]
    runs = {"select_runs": 20_000, "test_runs": 150_000}
    assert outcome(key, 1.0, 0.0049, **runs)[0] == "refuted"
    assert outcome(rarer_key, 1.0, 0.0049, **runs)[0] == "passed"


def two_widths(data, runs, rng):
    """Two distributions with the same median, which differ without limit elsewhere."""
    return rng.normal(scale=1 + 4 * data, size=(runs, 1))


def padded(data, runs, rng):
    """Noise with epsilon 3.3 beside a missing number."""
    return np.column_stack([data + rng.laplace(scale=0.3, size=runs), np.full(runs, np.nan)])


@pytest.mark.parametrize(
    ("mechanism", "options"),
    [
        (two_widths, {"partition": "equal-mass", "resolution": 2, "events": "union"}),
        (padded, {"nonfinite": "event"}),
        (lambda data, runs, rng: rng.random(runs) < 0.5, {}),
    ],
)
@pytest.mark.filterwarnings("ignore::dpverify.DPVerifyWarning")
def test_events_that_cannot_violate_the_claim_never_pass(mechanism, options):
    for seed in range(3):
        assert outcome(mechanism, 1.0, seed=seed, select_runs=5000, test_runs=20_000, **options)[0] != "passed"


@pytest.mark.parametrize("claim", [{"epsilon": 1.0}, {"epsilon": 1.0, "delta": 1e-5}, {"claim": CLAIMS["gaussian"]}])
def test_outputs_that_do_not_differ_pass_with_enough_runs(claim):
    def no_difference(data, runs, rng):
        return rng.normal(size=(runs, 2))

    for seed in range(3):
        assert outcome(no_difference, seed=seed, **{**CHEAP, "test_runs": 100_000}, **claim)[0] == "passed"


def rare(data, runs, rng):
    """A flag that is set in one run of a thousand, or in e times as many."""
    return rng.random(runs) < 1e-3 * np.exp(data)


def test_a_rare_event_needs_many_runs():
    with pytest.raises(dpv.TooWeak) as failure:
        dpv.assert_private(rare, ZERO, ONE, 1.0)
    assert 2 * 10**5 < failure.value.needed < 10**7


@pytest.mark.parametrize(
    ("claim", "detects", "message"),
    [(1.0, 1.0, "detects: found 1.0"), (1.0, "2", "detects: found '2'"), (0.0, 1.25, "with a claimed epsilon of 0.0")],
)
def test_bad_arguments_are_refused_in_one_line(claim, detects, message):
    with pytest.raises(dpv.InputError, match=message):
        dpv.assert_private(laplace, ZERO, ONE, claim, detects=detects)


def ignores_generator(data, runs, rng):
    return data + np.random.default_rng(0).laplace(size=runs)


@pytest.mark.parametrize(
    ("mechanism", "second", "diagnostic"),
    [
        (ignores_generator, 1.0, Diagnostic.REPEATED_BLOCKS),
        (laplace, 0.0, Diagnostic.SAME_DATA),
    ],
)
@pytest.mark.filterwarnings("ignore::dpverify.DPVerifyWarning")
def test_a_voiding_diagnostic_fails(mechanism, second, diagnostic):
    with pytest.raises(AssertionError) as failure:
        dpv.assert_private(mechanism, np.zeros(1), np.full(1, second), 4.0, select_runs=500, test_runs=500)
    assert str(failure.value).startswith(f"{diagnostic.value}\n")

"""`verify` from end to end: verdicts, false alarms, outputs of every kind, diagnostics and bad input."""

import math

import numpy as np
import pytest
from limits import most

import dpverify as dpv
from dpverify import Settings, Verdict, verify
from dpverify.events.partition import FIRST_CELL
from dpverify.mechanisms.diagnostics import Diagnostic
from mechanisms import ONE, ZERO, gaussian_trajectory, laplace, laplace_half_noise

SMALL = {"select_runs": 2000, "test_runs": 4000, "block": 1000}  # few blocks take less time


def without_data(mechanism):
    """Return a mechanism that uses 0 in place of its data: both datasets have the same distribution."""
    return lambda data, runs, rng: mechanism(0.0, runs, rng)


def test_a_false_claim_is_refuted_and_a_true_one_is_not():
    report = verify(laplace, ZERO, ONE, 0.5)
    assert report.refuted
    assert report.p_value < 1e-9  # smaller than the p-value of one test at level 0.05 can be
    assert 0.97 < report.epsilon_lower < 1
    assert 1 < report.on_partition.epsilon_upper() < 1.3
    assert verify(laplace, ZERO, ONE, 1.0).verdict is Verdict.NOT_REFUTED


def test_a_loose_claim_is_not_refuted_and_holds_over_the_cells():
    report = verify(laplace, ZERO, ONE, 1.5)
    assert (report.verdict, report.holds_on_cells) == (Verdict.NOT_REFUTED, True)
    assert "events that split a cell were not checked" in str(report)


def test_without_a_claim_the_bounds_are_measured():
    report = verify(laplace, ZERO, ONE, **SMALL)
    assert report.verdict is Verdict.MEASURED
    assert report.p_value is None
    assert report.epsilon is None
    assert report.epsilon_lower > 0.5


def test_epsilon_zero_is_a_claim():
    assert verify(laplace, ZERO, ONE, 0, **SMALL).refuted
    assert verify(without_data(laplace), 0.0, 1.0, 0, alpha=1e-4, **SMALL).verdict is Verdict.NOT_REFUTED


def test_delta_is_part_of_the_claim():
    """Laplace noise at epsilon 0.5 has delta 1 - e^-0.25."""
    exact = 1 - math.exp(-0.25)
    assert verify(laplace, ZERO, ONE, 0.5, 0.8 * exact).refuted
    report = verify(laplace, ZERO, ONE, 0.5, 1.05 * exact)
    assert not report.refuted
    assert 0.9 * exact < report.delta_lower(0.5) < exact < report.on_partition.delta_upper(0.5)


def test_the_settings_of_the_paper_give_its_partition_and_numbers():
    pair = np.zeros((4, 2)), np.full((4, 2), 0.3)
    report = verify(gaussian_trajectory, *pair, 1.0, settings=Settings.paper())
    assert len(report.picture["first"]) == 400
    assert len(report.picture["second"]) == 400  # for the picture; the region needs the first dataset only
    assert report.on_partition.cells == 257
    assert report.paper.lambda_ == pytest.approx(dpv.paper_lambda(0.05, report.paper.eta, report.epsilon_critical))
    assert report.p_value == min(report.paper.p_values)
    assert report.witness.cell is not None
    assert not report.paper.averaged


def test_the_averaged_test_of_the_authors_is_said_to_be_one():
    pair = np.zeros((4, 2)), np.full((4, 2), 0.3)
    report = verify(gaussian_trajectory, *pair, 1.0, settings=Settings.paper(test="averaged"))
    assert report.paper.averaged
    counts = report.witness.counts
    assert report.epsilon_critical == dpv.critical_epsilon(*counts, 2000, averaged=True)
    assert report.paper.p_values == pytest.approx(dpv.p_values(*counts, 2000, 1.0, None))
    assert "averaged over all thinnings" in str(report)
    assert "up to 20%" in str(report)


# Type I error, and a claim that is false by far.


def rejections(seeds, mechanism, first, second, epsilon, settings):
    reports = [verify(mechanism, first, second, epsilon, settings=settings, seed=seed) for seed in range(seeds)]
    assert not any(report.voiding for report in reports)  # such a report is never refuted
    return sum(report.refuted for report in reports)


MANY = Settings(**SMALL)
SEEDS = [100, pytest.param(1000, marks=pytest.mark.slow)]


@pytest.mark.parametrize("seeds", SEEDS)
def test_type_1_error_of_the_paper_settings_at_the_exact_epsilon(seeds):
    assert rejections(seeds, laplace, ZERO, ONE, 1.0, Settings.paper()) <= most(seeds, 0.05)


@pytest.mark.parametrize("seeds", SEEDS)
def test_type_1_error_at_epsilon_zero_and_equal_distributions(seeds):
    """The paper takes the smaller of two p-values, so its level is 2 alpha (docs/method.md, section 4.9)."""
    assert rejections(seeds, without_data(laplace), 0.0, 1.0, 0, Settings.paper()) <= most(seeds, 0.10)
    assert rejections(seeds, without_data(laplace), 0.0, 1.0, 0, MANY) <= most(seeds, 0.05)


@pytest.mark.parametrize("seeds", SEEDS)
def test_type_1_error_of_the_default_at_the_exact_epsilon(seeds):
    assert rejections(seeds, laplace, ZERO, ONE, 1.0, MANY) <= most(seeds, 0.05)


@pytest.mark.parametrize("seeds", [10, pytest.param(1000, marks=pytest.mark.slow)])
def test_type_1_error_of_a_coupled_selection(seeds):
    coupled = MANY.change(coupled_selection=True)
    assert rejections(seeds, laplace, ZERO, ONE, 1.0, coupled) <= most(seeds, 0.05)
    assert rejections(seeds, without_data(laplace), 0.0, 1.0, 0, coupled) <= most(seeds, 0.05)
    assert rejections(5, laplace_half_noise, ZERO, ONE, 1.0, coupled) == 5  # the negative control


@pytest.mark.parametrize("seeds", [30, pytest.param(100, marks=pytest.mark.slow)])
def test_half_the_noise_is_refuted_every_time(seeds):
    for settings in (Settings.paper(), MANY):
        assert rejections(seeds, laplace_half_noise, ZERO, ONE, 1.0, settings) == seeds


# Outputs of every kind.


def constant(data, runs, rng):
    return np.full((runs, 2), data)


def line(data, runs, rng):
    t = data + rng.laplace(size=runs)
    return np.stack([t, 3 * t - 1], axis=1)


def geometric(data, runs, rng):
    return data + rng.geometric(0.5, runs) - rng.geometric(0.5, runs)


def geometric_as_floats(data, runs, rng):
    return geometric(data, runs, rng).astype(float)


def flags_and_values(data, runs, rng):
    flag = rng.random(runs) < (0.3 if data else 0.6)
    return np.stack([flag, np.where(flag, 0.0, rng.standard_normal(runs))], axis=1)


def cauchy(data, runs, rng):
    return data + rng.standard_cauchy(runs)


def shaped(steps, dimension):
    def mechanism(data, runs, rng):
        return 0.5 * data + rng.standard_normal((runs, steps, dimension))

    return mechanism


@pytest.mark.parametrize(
    "mechanism",
    [line, geometric, geometric_as_floats, flags_and_values, cauchy, shaped(1, 1), shaped(50, 1), shaped(1, 10)],
)
def test_any_kind_of_output_distinguishes_different_distributions_and_not_equal_ones(mechanism):
    different = verify(mechanism, 0.0, 2.0, 0.1, select_runs=4000, test_runs=20_000, block=2000)
    assert different.refuted, str(different)
    assert different.witness.text
    same = verify(without_data(mechanism), 0.0, 2.0, 0.1, select_runs=4000, test_runs=20_000, block=2000)
    assert not same.refuted
    assert same.on_partition.region_mass > 0.9


def test_fifty_steps_in_ten_dimensions():
    settings = Settings(beta=0.5, gamma=0.1, select_runs=1000, test_runs=2000, block=1000)
    assert verify(shaped(50, 10), 0.0, 2.0, 0.1, settings=settings).refuted
    assert not verify(without_data(shaped(50, 10)), 0.0, 2.0, 0.1, settings=settings).refuted


def test_integers_and_equal_floats_give_the_same_result():
    integers, floats = (verify(m, 0, 1, 0.5, **SMALL) for m in (geometric, geometric_as_floats))
    assert integers.witness.counts == floats.witness.counts
    assert integers.epsilon_lower == floats.epsilon_lower


def test_geometric_noise_has_its_exact_epsilon():
    """Two-sided geometric noise with ratio 1/2 has epsilon ln 2."""
    report = verify(geometric, 0, 1, math.log(2), select_runs=50_000, test_runs=50_000)
    assert not report.refuted
    assert 0.6 < report.epsilon_lower < math.log(2) < report.on_partition.epsilon_upper(0.01) + 0.05


def test_two_different_constants_are_violated_at_every_epsilon():
    report = verify(constant, 1.0, 2.0, 3.0, **SMALL)
    assert report.refuted
    assert report.witness.counts in ((4000, 0), (0, 4000))
    assert report.diagnostics == (Diagnostic.DETERMINISTIC_OUTPUTS,)


def test_one_constant_has_no_privacy_loss():
    report = verify(without_data(constant), 0.0, 1.0, 0, **SMALL)
    assert not report.refuted
    assert report.epsilon_lower == 0
    assert report.diagnostics == (Diagnostic.IDENTICAL_OUTPUTS,)


def test_all_runs_of_the_second_data_set_can_be_outside_the_region():
    """The complement of the region is an event, unless the paper's procedure is used as printed."""
    report = verify(laplace, 0.0, 1000.0, 1.0, settings=Settings.paper(complement=True))
    assert report.refuted
    assert report.on_partition.region_mass < 0.01
    assert report.witness.text == "an output outside the region of likely outputs"
    printed = verify(laplace, 0.0, 1000.0, 1.0, settings=Settings.paper())
    assert printed.witness.cell >= FIRST_CELL
    assert printed.witness.counts[0] > 1000
    assert printed.witness.counts[1] == 0


def test_the_papers_eta_is_the_largest_share_of_the_first_selection_runs():
    """eta is c1/n of the fullest cell; with three values of known probability it is near the largest of them."""

    def three_values(data, runs, rng):
        return rng.choice(3, size=(runs, 1), p=data).astype(float)

    first, second = np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.1, 0.8])
    settings = Settings.paper(resolution=3, select_runs=1000)
    reports = [verify(three_values, first, second, settings=settings, seed=seed) for seed in range(3)]
    for report in reports:
        assert round(report.paper.eta * 1000) == pytest.approx(report.paper.eta * 1000)
        assert abs(report.paper.eta - 0.5) < 4 * math.sqrt(0.25 / 1000)  # and not the .8 of the second dataset
        assert report.paper.eta_upper > 0.75
        assert report.against(0.5).paper.eta == report.paper.eta
    assert len({report.paper.eta for report in reports}) > 1
    plain = verify(three_values, first, second, **SMALL)
    assert plain.paper.eta == plain.paper.eta_upper


def test_non_finite_estimates_can_be_an_event():
    def sometimes_nan(data, runs, rng):
        return np.where(rng.random(runs) < data, np.nan, rng.standard_normal(runs))

    with pytest.raises(dpv.MechanismError, match="NaN or infinity"):
        verify(sometimes_nan, 0.1, 0.4, 0.5, **SMALL)
    report = verify(sometimes_nan, 0.1, 0.4, 0.5, nonfinite="event", **SMALL)
    assert report.refuted
    assert report.witness.text == "output is NaN"
    assert report.witness.contains(np.array([np.nan, 0.0, np.inf])).tolist() == [True, False, False]


def padded_list(data, runs, rng):
    """Lists of one to three numbers, padded with NaN; each number shows the data."""
    numbers = data + 0.3 * rng.laplace(size=(runs, 4))
    return np.where(np.arange(4) < rng.integers(1, 4, size=(runs, 1)), numbers, np.nan)


def signed_infinity(data, runs, rng):
    infinite = np.where(rng.random(runs) < 0.2 + 0.6 * data, np.inf, -np.inf)
    return np.where(rng.random(runs) < 0.2, infinite, rng.standard_normal(runs))


@pytest.mark.parametrize("mechanism", [padded_list, signed_infinity])
@pytest.mark.parametrize("changes", [{}, {"partition": "grid"}, {"events": "cell"}, {"stop_early": True}])
def test_what_is_not_finite_is_an_atom_of_its_coordinate(mechanism, changes, tmp_path):
    """The other coordinates of such a run count, and NaN, inf and -inf are different outputs."""
    few = {"nonfinite": "event", "select_runs": 4000, "test_runs": 10_000, **changes}
    report = verify(mechanism, 0.0, 1.0, 0.5, **few)
    assert report.refuted
    report.to_json(tmp_path / "report.json")
    again = dpv.Report.from_json(tmp_path / "report.json")
    samples = mechanism(0.5, 500, np.random.default_rng(0))
    assert (again.witness.contains(samples) == report.witness.contains(samples)).all()
    assert not verify(mechanism, 0.5, np.array(0.5 + 1e-9), 0.5, **few).refuted


def test_outputs_that_are_all_nan_are_not_distinguished():
    def nan(data, runs, rng):
        return np.full(runs, np.nan)

    assert not verify(nan, 0, 1, 0, nonfinite="event", **SMALL).refuted


def test_a_partition_may_have_many_more_cells_than_runs():
    report = verify(
        gaussian_trajectory, np.zeros((4, 2)), np.full((4, 2), 0.1), partition="grid", resolution=10, test_runs=20_000
    )
    assert report.on_partition.cells == 10**8 + 1
    assert report.on_partition.epsilon_upper() == math.inf
    assert 0 < report.on_partition.delta_upper(1.0) <= 1


def test_a_mechanism_that_seeds_itself_has_no_answer():
    def fixed_seed(data, runs, rng):
        return data + np.random.default_rng(0).laplace(size=runs)

    with pytest.warns(dpv.DPVerifyWarning, match="ignores its generator"):
        report = verify(fixed_seed, 0.0, 1.0, 0.1, **SMALL)
    assert report.diagnostics == (Diagnostic.REPEATED_BLOCKS, Diagnostic.SHORTENED)
    assert report.verdict is Verdict.NO_ANSWER
    assert report.p_value is None
    assert not report.refuted
    assert any("ignores its generator" in note for note in report.notes)
    assert verify(laplace, ZERO, ONE, **SMALL).diagnostics == ()


def test_an_error_that_is_not_finite_is_refused():
    def sometimes_nan(data, runs, rng):
        return np.where(rng.random(runs) < 0.2, np.nan, rng.standard_normal(runs))

    with pytest.raises(dpv.InputError, match="error: found NaN"):
        verify(sometimes_nan, 0, 1, nonfinite="event", error=dpv.rmse(0.0), **SMALL)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (ONE, ONE.copy()),
        (1.0, 1.0),
        ([1, 2], [1, 2]),
        ([1, 2], np.array([1.0, 2.0])),
        ((1.0, np.nan), (1.0, np.nan)),
        ({"y": [1.0, 2.0]}, {"y": np.array([1.0, 2.0])}),
        ("readings.csv", "readings.csv"),
        ([[1.0], [2.0, 3.0]], [[1.0], [2.0, 3.0]]),
    ],
)
def test_equal_data_sets_of_any_kind_have_no_answer(first, second):
    report = verify(without_data(laplace), first, second, 1.0, **SMALL)
    assert report.diagnostics == (Diagnostic.SAME_DATA, Diagnostic.SHORTENED)
    assert report.verdict is Verdict.NO_ANSWER
    assert report.notes[0] == Diagnostic.SAME_DATA.value


def test_the_mechanism_cannot_change_its_data():
    def careless(data, runs, rng):
        data += 1
        return rng.random(runs)

    with pytest.raises(dpv.MechanismError, match="read-only"):
        verify(careless, np.zeros(3), np.ones(3), **SMALL)


def test_a_coupled_selection_shares_random_numbers_and_the_test_does_not():
    """The first random number of every block is recorded. Four blocks select and eight blocks test."""
    small = {"select_runs": 1024, "test_runs": 2048, "block": 256}

    def shared_blocks(**changes):
        drawn = [], []

        def recording(data, runs, rng):
            noise = rng.laplace(size=(runs, 1))
            drawn[int(data)].append(noise[0, 0])
            return data + noise

        verify(recording, 0.0, 1.0, **small, **changes)
        return len(set(drawn[0]) & set(drawn[1])), len(set(drawn[0]))

    shared, all_blocks = shared_blocks(coupled_selection=True)
    assert shared == 4
    assert all_blocks >= 4 + 8
    assert shared_blocks()[0] == 0  # the negative control


# Bad input.


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epsilon": -1}, "epsilon must be"),
        ({"epsilon": math.nan}, "epsilon must be"),
        ({"epsilon": math.inf}, "epsilon must be"),
        ({"epsilon": "1"}, "epsilon must be"),
        ({"delta": 1.0}, "delta must be"),
        ({"alpha": 0}, "alpha must be"),
        ({"alpha": 1}, "alpha must be"),
        ({"test_runs": 0}, "test_runs must be"),
        ({"select_runs": 3}, "select_runs must be"),
        ({"test_runs": 1.5}, "test_runs must be"),
        ({"seed": -1}, "seed must be"),
        ({"partition": "hexagons"}, "partition must be"),
        ({"joint": "yes"}, "joint: found 'yes'"),
        ({"selection_epsilon": -1}, "selection_epsilon must be"),
        ({"test_run": 10}, "did you mean 'test_runs'"),
        ({"test": "thinned", "delta": 0.1}, "delta 0 only"),
        ({"test": "averaged", "delta": 0.1}, "delta 0 only"),
    ],
)
def test_bad_settings_are_refused_with_one_line(changes, message):
    with pytest.raises(dpv.InputError, match=message) as problem:
        verify(laplace, ZERO, ONE, **changes)
    assert "\n" not in str(problem.value)


def test_a_mechanism_must_be_callable():
    with pytest.raises(dpv.InputError, match="mechanism: found int"):
        verify(3, ZERO, ONE)


def test_the_shape_may_not_change_between_blocks():
    calls = []

    def changing(data, runs, rng):
        calls.append(1)
        return np.zeros((runs, 1 + (len(calls) > 5)))

    with pytest.raises(dpv.MechanismError, match="must not change"):
        verify(changing, ZERO, ONE, **SMALL)


def test_a_mechanism_that_exits_is_a_mechanism_error():
    def leaves(data, runs, rng):
        raise SystemExit(1)

    with pytest.raises(dpv.MechanismError, match="SystemExit"):
        verify(leaves, ZERO, ONE, **SMALL)


def test_identical_outputs_are_reported_only_if_all_test_runs_agree():
    """Outputs that differ too rarely for the pilot runs are found in the test runs, outside the region."""

    def rare(data, runs, rng):
        return np.where(rng.random(runs) < 1e-3 * data, 5.0, 0.0)

    few = {"select_runs": 100, "test_runs": 20_000}
    assert dpv.verify(rare, 0.0, -1.0, **few).diagnostics == (Diagnostic.IDENTICAL_OUTPUTS,)
    assert Diagnostic.IDENTICAL_OUTPUTS not in dpv.verify(rare, 0.0, 1.0, seed=3, **few).diagnostics
    constants = dpv.verify(lambda data, runs, rng: np.full(runs, float(data)), 0.0, 1.0, **few)
    assert constants.diagnostics == (Diagnostic.DETERMINISTIC_OUTPUTS,)


def test_diagnostics_of_a_stated_lipschitz_constant():
    report = verify(geometric, 0.0, 1.0, log_lipschitz=1.0, **SMALL)
    assert (report.diagnostics, report.certificate) == ((Diagnostic.NO_DENSITY,), None)
    report = verify(shaped(3, 1), 0.0, 1.0, log_lipschitz=1.0, **SMALL)
    assert (report.diagnostics, report.certificate) == ((Diagnostic.LIPSCHITZ_DIMENSION,), None)
    assert verify(laplace, ZERO, ONE, log_lipschitz=1.0, **SMALL).certificate is not None

"""A score that the user fits to the training runs: it competes, and it survives folders, processes and JSON."""

import numpy as np
import pytest

import dpverify as dpv
from dpverify.events.scores import Linear
from dpverify.events.scores.transformed import rounding_score

SMALL = {"select_runs": 8000, "test_runs": 10_000, "block": 2000}


def spiral(side, runs, rng):
    """Two interleaved arms: no coordinate, no moment and no distance shows the dataset, but the phase does."""
    radius = rng.uniform(1, 6, runs)
    phase = 4 * radius + np.pi * side + 0.6 * rng.standard_normal(runs)
    return np.stack([radius * np.cos(phase), radius * np.sin(phase)], axis=1)


def phase_of(samples):
    x, y = samples[:, 0, 0], samples[:, 0, 1]
    return np.cos(np.arctan2(y, x) - 4 * np.hypot(x, y))


def learn_phase(first, second):
    assert first.shape[1:] == (1, 2)
    assert not first.flags.writeable
    return phase_of if phase_of(first).mean() > phase_of(second).mean() else lambda samples: -phase_of(samples)


def verify_with(learn, mechanism, *data, **arguments):
    return dpv.verify(mechanism, *data, learn=learn, **SMALL | arguments)


def test_a_learned_score_competes_with_the_others():
    usual = dpv.verify(spiral, 0, 1, **SMALL)
    learned = verify_with(learn_phase, spiral, 0, 1)
    assert learned.epsilon_lower > usual.epsilon_lower + 0.5
    assert "given learner" in learned.witness.text
    useless = verify_with(lambda first, second: lambda samples: samples[:, 0, 0] * 0, spiral, 0, 1)
    assert "given learner" not in useless.witness.text


def test_a_resumed_run_fits_the_same_score_again(tmp_path):
    once = verify_with(learn_phase, spiral, 0, 1)
    stored = verify_with(learn_phase, spiral, 0, 1, folder=tmp_path)
    resumed = verify_with(learn_phase, spiral, 0, 1, folder=tmp_path)
    assert once.digest == stored.digest == resumed.digest
    path = tmp_path / "report.json"
    stored.to_json(path)
    back = dpv.Report.from_json(path)
    assert back.epsilon_lower == stored.epsilon_lower
    with pytest.raises(dpv.InputError, match="does not hold the function"):
        back.witness.contains(np.zeros((1, 1, 2)))


def test_a_learned_score_that_is_plain_data_is_part_of_the_report(tmp_path):
    def shifted(side, runs, rng):
        return side + rng.standard_normal((runs, 1))

    def learn(first, second):
        return Linear(np.array([first.mean() - second.mean()]))

    report = verify_with(learn, shifted, 0.0, 1.0)
    path = tmp_path / "report.json"
    report.to_json(path)
    samples = shifted(0.0, 100, np.random.default_rng(0))[:, None]
    np.testing.assert_array_equal(
        dpv.Report.from_json(path).witness.contains(samples), report.witness.contains(samples)
    )


def test_the_rounding_score_finds_what_the_noise_hides(tmp_path):
    def plain_laplace(answer, runs, rng):
        return answer + rng.laplace(size=runs)

    def on_a_lattice(answer, runs, rng):
        return np.round((answer + rng.laplace(size=runs)) * 4096) / 4096

    report = verify_with(rounding_score(), plain_laplace, 0.0, 1.0)
    assert report.epsilon_lower > 3
    report.to_json(tmp_path / "report.json")
    assert "low bits" in dpv.Report.from_json(tmp_path / "report.json").witness.text
    assert verify_with(rounding_score(), on_a_lattice, 0.0, 1.0).epsilon_lower < 1


def centred(samples):
    return samples[:, 0, 0] - samples[:, 0, 0].mean()


def test_results_of_a_learner_that_are_no_scores_are_refused():
    with pytest.raises(dpv.InputError, match="learn: found float as the result"):
        verify_with(lambda first, second: 1.5, spiral, 0, 1)
    with pytest.raises(dpv.InputError, match="learn: found a score whose values"):
        verify_with(lambda first, second: centred, spiral, 0, 1)
    with pytest.raises(dpv.InputError, match="learn: found nonfinite"):
        verify_with(learn_phase, spiral, 0, 1, nonfinite="event")


def adds_its_neighbour(samples):
    """Add the score of run i xor 1: two halves of a block of even length give the same values as the whole."""
    x = samples.reshape(len(samples))
    even = len(x) // 2 * 2
    return np.append((x[:even].reshape(-1, 2) + x[:even].reshape(-1, 2)[:, ::-1]).ravel(), x[even:])


@pytest.mark.parametrize("early", [False, True])
def test_a_score_that_mixes_neighbouring_runs_is_refused(early):
    def laplace(data, runs, rng):
        return data + rng.laplace(size=runs)

    few = {"select_runs": 2000, "test_runs": 4000, "stop_early": early}
    with pytest.raises(dpv.InputError, match="expected a score that maps each run on its own"):
        dpv.verify(laplace, 0.0, 1.0, 1.0, events=adds_its_neighbour, **few)

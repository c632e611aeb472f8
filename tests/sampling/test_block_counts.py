"""The check that runs are independent: dependent runs void the report, independent runs do not."""

import numpy as np
import pytest
from limits import most

import dpverify as dpv
from dpverify.events.event import Event
from dpverify.events.scores import Levels, Linear
from dpverify.sampling.count import POSITIONS, ROWS, Accumulator, BlockChecker, CheckedEvent
from mechanisms import ONE, ZERO, gaussian_trajectory, laplace

SMALL = {"select_runs": 400, "test_runs": 4000, "block": 64}


def one_noise_per_call(data, runs, rng):
    return np.full(runs, data[0] + rng.laplace())


def shared_part(data, runs, rng):
    """Five percent of the standard deviation of the noise is common to all runs of a call."""
    return data[0] + np.sqrt(1 - 0.05**2) * rng.standard_normal(runs) + 0.05 * rng.standard_normal()


def reused_noise(data, runs, rng):
    """A call draws a fixed number of noises, and uses them again."""
    return data[0] + np.resize(rng.laplace(size=1024), runs)


def fixed_mask(data, runs, rng):
    """Randomised response. Which runs tell the truth is drawn with a fixed seed, so a block always has as many."""
    is_true = np.random.default_rng(42).random(runs) < (np.e - 1) / (np.e + 1)
    return np.where(is_true, data[0], rng.integers(2, size=runs))


def shared_rare(data, runs, rng):
    """A rare output, e times as probable with the second dataset, is shared by 16 neighbouring runs."""
    is_rare = rng.random(-(-runs // 16)) < 0.0003 * np.exp(data[0])
    return np.where(np.repeat(is_rare, 16)[:runs], 50.0, rng.laplace(size=runs))


def per_run(data, rng):
    return data[0] + rng.laplace()


def rare(data, runs, rng):
    return np.where(rng.random(runs) < 0.002 * np.exp(data[0]), 50.0, rng.laplace(size=runs))


def geometric(data, runs, rng):
    return data[0] + rng.geometric(0.6, runs) - rng.geometric(0.6, runs)


def test_one_noise_per_call_voids_the_report():
    report = dpv.verify(one_noise_per_call, ZERO, ONE, 1.0, **SMALL)
    assert report.verdict is dpv.Verdict.NO_ANSWER
    assert not report.refuted
    assert report.voiding == (dpv.Diagnostic.DEPENDENT_RUNS,)
    assert "draw new noise for every run" in " ".join(str(report).split())


@pytest.mark.parametrize("seeds", [3, pytest.param(100, marks=pytest.mark.slow)])
def test_a_small_shared_part_of_the_noise_voids_the_report(seeds):
    for seed in range(seeds):
        report = dpv.verify(shared_part, ZERO, ONE, 1.0, seed=seed)
        assert report.voiding == (dpv.Diagnostic.DEPENDENT_RUNS,)


@pytest.mark.parametrize(
    ("mechanism", "test_runs", "block", "seeds"),
    [
        (reused_noise, 1_000_000, 1 << 15, 2),
        (fixed_mask, 100_000, None, 4),
        (shared_rare, 1_000_000, None, 4),
        *(
            pytest.param(mechanism, runs, None, 100, marks=pytest.mark.slow)
            for mechanism, smallest in ((reused_noise, 400_000), (fixed_mask, 100_000), (shared_rare, 400_000))
            for runs in (smallest, 3 * smallest, 10 * smallest)
        ),
    ],
)
def test_noise_that_runs_share_does_not_refute_a_true_claim(mechanism, test_runs, block, seeds):
    """The claim is exactly true. A selection that does not find the rare output tests another event, which is fine."""
    settings = {"alpha": 1e-6, "select_runs": 100_000, "test_runs": test_runs, "block": block}
    reports = [dpv.verify(mechanism, ZERO, ONE, 1.0, seed=seed, **settings) for seed in range(seeds)]
    assert sum(report.refuted for report in reports) <= most(seeds, 1e-6)
    assert sum(bool(report.voiding) for report in reports) >= (0.4 if mechanism is shared_rare else 0.9) * seeds


@pytest.mark.parametrize("mechanism", [laplace, rare, geometric, dpv.per_run(per_run), gaussian_trajectory])
@pytest.mark.parametrize(
    ("stop_early", "seeds"),
    [
        (False, 5),
        (True, 1),
        pytest.param(False, 300, marks=pytest.mark.slow),
        pytest.param(True, 100, marks=pytest.mark.slow),
    ],
)
def test_independent_runs_do_not_void_the_report(mechanism, stop_early, seeds):
    data = (np.zeros((3, 2)), np.ones((3, 2))) if mechanism is gaussian_trajectory else (ZERO, ONE)
    small = {"select_runs": 200, "test_runs": 1500, "stop_early": stop_early}
    for seed in range(seeds):
        assert not dpv.verify(mechanism, *data, 1.0, seed=seed, **small).voiding


def test_the_event_of_every_prefix_is_checked():
    """Runs share a rare output of step 0. Step 1 reveals more with independent noise, so its event does not show it."""

    def stream(data, runs, rng):
        steps = [shared_rare(data, runs, rng), data[0] + 0.2 * rng.laplace(size=runs)]
        return np.stack(steps, axis=1)[:, :, None]

    result = dpv.privacy_over_time(stream, ZERO, ONE, select_runs=10_000, test_runs=100_000)
    assert result.voiding == (dpv.Diagnostic.DEPENDENT_RUNS,)


def checker_of_positive_outputs():
    event = Event(Levels(Linear(np.ones(1)), np.zeros(1)), np.array([1]), 0)
    return BlockChecker(np.array([0]), np.array([1.0]), (CheckedEvent.of(event),))


@pytest.mark.parametrize("on_device", [False, True])
def test_all_runs_are_counted_by_block_and_by_position(on_device):
    as_array = pytest.importorskip("jax.numpy").asarray if on_device else np.asarray
    counted = Accumulator((checker_of_positive_outputs(),))
    buffer, rng = np.empty((700, 1, 1), np.float32), np.random.default_rng(0)
    blocks, positions = np.zeros((ROWS, 3), int), np.zeros((POSITIONS, 3), int)
    for block, runs in [(1, 700), (0, 130), (ROWS + 1, 64), (3, 5)]:
        buffer[:] = rng.normal(size=buffer.shape)  # a mechanism may use its array again
        counted.add(block, as_array(buffer.copy() if on_device else buffer), runs)
        x = buffer[:runs].ravel()
        events = np.column_stack([np.ones(runs, int), x > 1, x > 0])
        blocks[block % ROWS] += events.sum(0)
        np.add.at(positions, np.arange(runs) % POSITIONS, events)
    (tables,) = counted.results()
    assert (tables.blocks == blocks).all()
    assert (tables.positions == positions).all()


@pytest.mark.parametrize("codes", [[1], [0, 2], [0, 2, 4, 6, 8, 10]])
def test_an_event_on_a_line_is_counted_as_its_cells(codes):
    event = Event(Levels(Linear(np.ones(1)), np.arange(10.0)), np.array(codes), 0)
    checked, samples = CheckedEvent.of(event), np.random.default_rng(0).uniform(-2, 12, (500, 1, 1))
    samples[:10] = np.arange(10.0)[:, None, None]
    assert (checked.indicators(samples, {})[0][0] == event.contains(samples)).all()
    known = {id(event.partition): event.partition.codes(samples)}
    assert (checked.indicators(samples, known)[0][0] == event.contains(samples)).all()

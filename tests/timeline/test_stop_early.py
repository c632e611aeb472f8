"""Early stopping of `privacy_over_time`: when it ends, that all looks share alpha, files and resumed runs."""

import json

import numpy as np
import pytest
from limits import most
from streams import laplace_stream

import dpverify as dpv
from dpverify.cli import main
from dpverify.over_time import plan_looks
from dpverify.report.sequence import StoppedBy
from dpverify.stats.exact import small_p_value

FIRST, SECOND = np.zeros((3, 1)), np.array([[0.0], [1.0], [1.0]])  # the exact epsilons are 0, 1 and 2
RUNS = {"select_runs": 8000, "test_runs": 64_000, "block": 1000, "stop_early": True}


def measure(epsilon, **changes):
    return dpv.privacy_over_time(laplace_stream, FIRST, SECOND, epsilon=epsilon, **{**RUNS, **changes})


@pytest.fixture(scope="module")
def refuted():
    return measure(0.2)


def test_a_false_claim_ends_the_run_at_an_early_look(refuted):
    assert refuted.stopped is StoppedBy.REFUTED
    assert refuted.runs == 4000
    assert refuted.counts.sum(-1).tolist() == [[4000] * 3] * 2
    assert 0.2 < refuted.final <= 2.0
    assert "4 000 of at most 64 000 test runs per dataset" in str(refuted)


def test_the_bounds_of_a_look_have_its_share_of_alpha(refuted):
    assert refuted.share == pytest.approx(0.1)
    assert refuted.step_alpha == refuted.share * refuted.alpha / refuted.events.tested.sum()
    assert refuted.on_partition(2).alpha == pytest.approx(refuted.share * refuted.alpha / 3)
    bounds = [dpv.epsilon_lower_bound(*map(int, pair), 4000, 0.0, refuted.step_alpha) for pair in refuted.event_counts]
    assert refuted.final == max(bound for bound, tested in zip(bounds, refuted.events.tested, strict=True) if tested)


def test_a_claim_that_holds_over_the_cells_takes_all_runs():
    result = measure(4.0, delta=0.01, test_runs=16_000)
    assert (result.verdict, result.stopped) == (dpv.Verdict.NOT_REFUTED, StoppedBy.BUDGET)
    assert result.holds_on_cells
    assert result.runs == 16_000
    assert (result.epsilon_upper <= 4.0).all()


def test_an_undecided_claim_takes_all_runs():
    result = measure(2.0, test_runs=16_000)
    assert result.stopped is StoppedBy.BUDGET
    assert (result.runs, result.share) == (16_000, pytest.approx(0.9))  # both early looks have four blocks
    assert (result.p_values > result.alpha).all()


def test_without_a_claim_nothing_can_stop():
    result = measure(None, test_runs=4000)
    assert (result.runs, result.share, result.stopped) == (4000, 1.0, None)
    assert dpv.Diagnostic.NOTHING_TO_STOP in result.diagnostics


def test_only_the_runs_of_the_looks_are_drawn():
    calls = []

    def counting(data, runs, rng):
        calls.append(rng.bit_generator.seed_seq.spawn_key[:3])
        return laplace_stream(data, runs, rng)

    result = dpv.privacy_over_time(counting, FIRST, SECOND, epsilon=1.7, **RUNS)
    test_blocks = [call for call in calls if call[0] == 4]
    assert result.runs == 16_000  # two looks
    assert sorted(test_blocks) == [(4, side, block) for side in (0, 1) for block in range(result.runs // 1000)]


def test_each_record_ends_on_its_own():
    pairs = {"large": (FIRST, SECOND + 2.0), "small": (FIRST, SECOND / 2)}
    table = dpv.privacy_over_time(laplace_stream, pairs=pairs, epsilon=1.0, **{**RUNS, "test_runs": 16_000})
    assert [curve.runs for curve in table.curves] == [4000, 16_000]


def test_looks_share_alpha_and_consist_of_whole_blocks():
    for runs, block in ((64_000, 1000), (10_000, 64), (300, 64), (100, 128), (7, None)):
        looks = plan_looks(dpv.Settings(test_runs=runs, block=block, stop_early=True))
        assert sum(look.share for look in looks) == pytest.approx(1.0)
        assert looks[-1].runs == runs
        assert all(look.runs % (block or 1) == 0 for look in looks[:-1])
        assert all(look.runs >= 4 * (block or 1) for look in looks[:-1])
        assert [*looks] == sorted(looks)


def test_noise_that_runs_of_a_block_share_is_noticed_at_the_first_look():
    def shared(data, runs, rng):
        return laplace_stream(data, runs, rng) + rng.laplace(size=(1, *data.shape))

    result = dpv.privacy_over_time(shared, FIRST, SECOND, epsilon=0.1, **RUNS)
    assert (result.verdict, result.runs, result.stopped) == (dpv.Verdict.NO_ANSWER, 4000, StoppedBy.BUDGET)
    assert dpv.Diagnostic.DEPENDENT_RUNS in result.diagnostics


def false_refutations(seeds, alpha, shares):
    """Return how often any look refutes a claim that is exactly true for the event."""
    epsilon, p2 = 0.5, 0.2
    looks = plan_looks(dpv.Settings(test_runs=3200, block=50, stop_early=True))
    sizes = np.diff([0, *(look.runs for look in looks)])
    rng = np.random.default_rng(7)
    wrong = 0
    for _ in range(seeds):
        c1, c2 = (np.cumsum(rng.binomial(sizes, p)) for p in (p2 * np.exp(epsilon), p2))
        wrong += any(
            small_p_value(int(a), int(b), look.runs, epsilon, 0.0, alpha * share) <= alpha * share
            for a, b, look, share in zip(c1, c2, looks, shares(looks), strict=True)
        )
    return wrong


def test_a_true_claim_is_rarely_refuted_at_any_look():
    seeds, alpha = 40, 0.25
    assert false_refutations(seeds, alpha, lambda looks: [look.share for look in looks]) <= most(seeds, alpha)
    # Negative control: every look has the whole alpha.
    assert false_refutations(seeds, alpha, lambda looks: [1.0] * len(looks)) > most(seeds, alpha)


class Interrupted:
    """A Laplace stream that is interrupted at one of its calls; it is the same mechanism without the interruption."""

    name = "stream"

    def __init__(self, calls):
        self.left = calls

    def __call__(self, data, runs, rng):
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt
        return laplace_stream(data, runs, rng)

    def __getstate__(self):
        return {}


@pytest.mark.parametrize("calls", [30, 36])
def test_a_resumed_run_ends_at_the_same_look(tmp_path, calls):
    uninterrupted = dpv.privacy_over_time(Interrupted(-1), FIRST, SECOND, epsilon=1.7, **RUNS)
    with pytest.raises(dpv.Stopped):
        dpv.privacy_over_time(Interrupted(calls), FIRST, SECOND, epsilon=1.7, folder=tmp_path / "run", **RUNS)
    resumed = dpv.privacy_over_time(Interrupted(-1), FIRST, SECOND, epsilon=1.7, folder=tmp_path / "run", **RUNS)
    assert resumed == uninterrupted


def test_the_command_stops_early(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text("def stream(data, runs, rng):\n    return data + rng.laplace(size=(runs, 2, 1))\n")
    (tmp_path / "first.json").write_text("0.0")
    (tmp_path / "second.json").write_text("3.0")
    options = ["--first", "first.json", "--second", "second.json", "--epsilon", "0.5", "--stop-early", "--json", "-"]
    runs = ["--set", "select_runs=1000", "--set", "test_runs=8000"]
    assert main(["over-time", "own.py:stream", *options, *runs]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["summary"]["steps"][0]["test_runs"] < 8000


def test_a_folder_of_a_run_that_may_stop_early_names_what_differs(tmp_path):
    few = {"select_runs": 400, "test_runs": 1600, "block": 100, "folder": tmp_path}
    measure(2.0, **few)
    with pytest.raises(dpv.FolderError, match="found stop early True; expected none as in this call"):
        measure(2.0, stop_early=False, **few)

"""Outputs that are not arrays: a leak in their structure alone is found, and equal laws are not refuted."""

import enum
import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
from limits import most

import dpverify as dpv
from dpverify.mechanisms.encoding import learn_encoding

LAWS = ([0.5, 0.3, 0.2], [0.2, 0.3, 0.5])  # of three cases, under both datasets
EPSILON = math.log(2.5)


class Colour(enum.Enum):
    RED, GREEN, BLUE = range(3)


@dataclass(frozen=True)
class Position:
    x: float
    zone: str


def numbers(rng, size):
    return rng.normal(size=size).tolist()


def missing(case, rng):
    return [{"a": 1.0}, {"a": None}, {}][case]


def appearing_key(case, rng):
    return {"total": rng.normal(), "abc"[case]: rng.normal()}


def length(case, rng):
    return numbers(rng, 2 + case)


def text(case, rng):
    return ["red", "green", "blue"][case]


def word(case, rng):
    return f"user {rng.integers(10**9)} is {['in', 'out', 'away'][case]} now"


def row_order(case, rng):
    names = ["north", "south", "east"]
    return pd.DataFrame({"region": names[case:] + names[:case], "total": numbers(rng, 3)})


def number_of_rows(case, rng):
    return pd.DataFrame({"x": numbers(rng, 1 + case)})


def row_of_a_table(case, rng):
    return pd.DataFrame({"region": ["all", ["north", "south", "east"][case]], "total": numbers(rng, 2)})


def last_bit(case, rng):
    value = int(rng.integers(1 << 32)) & ~1 | (case > 0)
    return value.to_bytes(4, "big")


def nested(case, rng):
    return {"a": [rng.normal(), {"b": (True, {"c": case})}]}


def members(case, rng):
    return frozenset(["u1", ["u2", "u3", "u4"][case]])


def of_enumeration(case, rng):
    return (list(Colour)[case], Position(rng.normal(), "here"))


def in_record(case, rng):
    return Position(rng.normal(), ["here", "there", "away"][case])


def large_integer(case, rng):
    return {"serial": 2**70 + case}


def series(case, rng):
    return pd.Series(numbers(rng, 2), index=["a", "bcd"[case]])


KINDS = {
    function.__name__: function
    for function in (
        *(missing, appearing_key, length, text, word, row_order, number_of_rows, row_of_a_table, last_bit, nested),
        *(members, of_enumeration, in_record, large_integer, series),
    )
}


def mechanism(kind, leaks=True):
    """Return a mechanism whose dataset decides the law of the cases, or nothing."""

    def draw(data, rng):
        return KINDS[kind](int(rng.choice(3, p=LAWS[data if leaks else 0])), rng)

    return dpv.per_run(draw)


@pytest.mark.parametrize("kind", KINDS)
def test_a_leak_in_the_structure_is_refuted(kind):
    report = dpv.verify(mechanism(kind), 0, 1, 0.5 * EPSILON, select_runs=1000, test_runs=3000)
    assert report.refuted
    assert "more pieces" not in report.witness.text


def test_a_report_from_a_file_takes_raw_outputs(tmp_path):
    report = dpv.verify(mechanism("text"), 0, 1, select_runs=1000, test_runs=3000)
    report.to_json(tmp_path / "report.json")
    again = dpv.Report.from_json(tmp_path / "report.json")
    assert again == report
    assert again.witness.text == report.witness.text == "output is 'blue'"
    assert again.witness.contains(["red", "blue", "unseen", None]).tolist() == [False, True, False, False]


FEW = {"select_runs": 400, "test_runs": 800}


def keyed(data, runs, rng):
    return [{"n": rng.normal(), "k": data} if rng.random() < 0.5 else {"n": 0.0} for _ in range(runs)]


def test_processes_and_a_folder_give_the_same_report(tmp_path):
    digest = dpv.verify(keyed, 0, 1, 1.0, **FEW).digest
    assert dpv.verify(keyed, 0, 1, 1.0, executor=2, **FEW).digest == digest
    assert dpv.verify(keyed, 0, 1, 1.0, folder=tmp_path / "run", **FEW).digest == digest
    assert dpv.verify(keyed, 0, 1, 1.0, folder=tmp_path / "run", **FEW).digest == digest


def verify_unseeded(unseeded, folder):
    with pytest.warns(dpv.DPVerifyWarning, match="seed"):
        return dpv.verify(unseeded, 0, 1, 1.0, folder=folder, trust_results=True, **FEW)


def test_without_a_seed_the_encoding_of_the_folder_is_used(tmp_path):
    calls = []

    def names(data, rng):
        calls.append(data)
        return f"name {len(calls) % 5}" if len(calls) < 2000 else f"other name {len(calls) % 9}"

    unseeded = dpv.per_run(names, seeded=False)
    first, again = (verify_unseeded(unseeded, tmp_path / "run") for _ in range(2))
    assert len(calls) > 4000
    assert repr(again.witness.encoding) == repr(first.witness.encoding)


def test_an_encoding_sees_runs_of_its_own_only(monkeypatch):
    """Runs of all later stages have another label, which the encoding must not know."""
    from dpverify.sampling import probe

    real, stages = probe.call_mechanism, set()

    def called(source, stage, side, block):
        stages.add(stage)
        return (
            [{"value": f"{stage} {i % 3}"} for i in range(source.block)]
            if stage == "encode"
            else real(source, stage, side, block)
        )

    monkeypatch.setattr(probe, "call_mechanism", called)
    report = dpv.verify(keyed, 0, 1, 1.0, **FEW)
    assert "encode" in stages
    assert "test" not in stages
    names = [column.name for column in report.witness.encoding.columns]
    assert names == ["['value']", "number of other keys in output"]


def test_what_was_never_seen_is_another_value():
    encoding = learn_encoding([{"a": "x"}] * 3, [{"a": "y"}] * 3)
    unseen = [{"a": "z"}, {}, {"a": None}, {"b": 1}, "text", None, 3.0, [1, 2], float("nan")]
    assert np.isfinite(encoding.encode(unseen)).all()
    assert encoding.encode([{"a": "z"}]).ravel().tolist() == [2.0, 0.0]
    assert encoding.encode([{"b": 1}]).ravel().tolist() == [2.0, 1.0]


def test_missing_numbers_are_a_value_of_their_own_and_never_nan():
    outputs = [{"a": 1.0}, {"a": None}, {"a": math.nan}, {}, {"a": math.inf}]
    rows = learn_encoding(outputs, outputs).encode(outputs)[:, :-1, 0]
    assert len(np.unique(rows, axis=0)) == 5
    assert not np.isnan(rows).any()


def test_columns_are_at_most_a_thousand_and_keep_what_differs():
    outputs = [[{f"k{i}-{j}": float(i) for j in range(50)} for i in range(64)] for _ in range(4)]
    others = [[*one[:-1], {**one[-1], "k63-7": 5.0}] for one in outputs]
    encoding = learn_encoding(outputs, others)
    assert len(encoding.kept) == 1000
    assert not np.array_equal(encoding.encode(outputs), encoding.encode(others))


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (lambda runs: None, "expected an array, or a list"),
        (lambda runs: "text", "expected an array, or a list"),
        (lambda runs: {"a": 1}, "expected an array, or a list"),
        (lambda runs: [{"a": 1}] * (runs + 1), "return one output per run"),
        (lambda runs: [None] * runs, "found None in every run"),
        (lambda runs: [{"a": object()}] * runs, "found an object of type object in an output"),
        (lambda runs: [{"a": print}] * runs, "found a function in an output"),
        (lambda runs: [1j] * runs, "found an object of type complex in an output"),
    ],
)
def test_outputs_that_cannot_be_encoded_are_one_clear_line(output, message):
    with pytest.raises(dpv.MechanismError, match=message) as problem:
        dpv.verify(lambda data, runs, rng: output(runs), 0, 1, 1.0, **FEW)
    assert "\n" not in str(problem.value)


@pytest.mark.parametrize("kind", [list, np.asarray])
def test_a_length_that_differs_between_the_datasets_is_refuted(kind):
    """Each dataset gives outputs of one length, so that only both together show that lengths differ."""
    report = dpv.verify(lambda data, runs, rng: kind(rng.random((runs, data)).tolist()), 2, 3, 1.0, **FEW)
    assert report.refuted
    assert "length of output > 2.5" in report.witness.text


def test_lengths_that_change_only_later_say_what_to_do():
    def rows(data, runs, rng):
        return [[data + rng.normal(), 1.0] if rng.random() > 1e-3 else [1.0] for _ in range(runs)]

    with pytest.raises(dpv.MechanismError, match=r'{"rows": output}'):
        dpv.verify(rows, 0, 1, 1.0, select_runs=2000, test_runs=8000, block=50, seed=2)
    report = dpv.verify(lambda *arguments: [{"rows": one} for one in rows(*arguments)], 0, 4, 0.2, test_runs=5000)
    assert report.refuted


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_bound_is_close_to_the_exact_epsilon(kind):
    report = dpv.verify(mechanism(kind), 0, 1, select_runs=20_000, test_runs=60_000)
    assert report.epsilon_lower > 0.9 * EPSILON


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_equal_laws_are_not_refuted(kind):
    settings = dpv.Settings(select_runs=500, test_runs=1000, alpha=0.001)
    equal = mechanism(kind, leaks=False)
    refuted = [dpv.verify(equal, 0, 1, 0.0, settings=settings, seed=seed).refuted for seed in range(200)]
    assert sum(refuted) <= most(200, 0.001)


if __name__ == "__main__":
    for kind in KINDS:
        report = dpv.verify(mechanism(kind), 0, 1, 0.5 * EPSILON, select_runs=20_000, test_runs=60_000)
        print(f"{kind:16} {report.epsilon_lower / EPSILON:.3f} {report.witness.text}", flush=True)

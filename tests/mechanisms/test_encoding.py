"""Outputs that are not arrays: a leak in their structure alone is found, and equal laws are not refuted."""

import enum
import math
from dataclasses import dataclass

import pandas as pd
import pytest
from limits import most

import dpverify as dpv

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

"""Fixed mechanisms with fixed seeds give the counts, bounds and verdicts that `support/golden.py` has recorded."""

import json

import golden
import pytest

STORED = json.loads(golden.FILE.read_text())


@pytest.mark.parametrize("case", golden.CASES)
def test_a_golden_case_is_unchanged(case):
    assert not golden.differences(STORED[case], golden.run(case))


def test_a_changed_count_is_noticed():
    record = STORED["laplace"]
    first, *others = record["counts"]
    changed = {**record, "counts": [[first[0] + 1, *first[1:]], *others]}
    assert golden.differences(record, changed)


def test_no_law_has_a_weaker_bound():
    assert not golden.weaker_laws(STORED[golden.EIGHT_LAWS], golden.run(golden.EIGHT_LAWS))


def test_a_weaker_bound_is_noticed():
    stored = STORED[golden.EIGHT_LAWS]
    assert golden.weaker_laws(stored, {**stored, "ring": 0.94 * stored["ring"]})
    assert golden.weaker_laws(stored, {name: 0.98 * bound for name, bound in stored.items()})

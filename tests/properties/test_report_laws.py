"""A report that is read from JSON equals the one that was written, whatever its counts, claim and names are."""

import dataclasses
import functools

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

import dpverify as dpv
from dpverify import Report
from dpverify.mechanisms.diagnostics import Diagnostic
from dpverify.report.certificate import LipschitzCertificate
from dpverify.report.statements import CellBounds, distinct_pairs
from dpverify.util import serialization as serial
from mechanisms import ONE, ZERO, laplace

costly = settings(max_examples=settings().max_examples // 10)  # the bounds of a report take a tenth of a second
text = st.text(max_size=12) | st.sampled_from(["inf", "-inf", "\\inf", "array", "NaN", "\ud800", "</script>"])
real = st.floats(0, 1e300)
errors = st.none() | st.tuples(st.tuples(real, real), st.tuples(real, real))
shapes = array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)


@functools.cache
def a_report():
    return dpv.verify(laplace, ZERO, ONE, select_runs=1000, test_runs=2000)


@costly
@given(
    text,
    st.lists(text, max_size=2),
    st.lists(st.sampled_from(Diagnostic), max_size=2, unique=True),
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=5),
    st.none() | st.floats(0, 30),
    st.sampled_from([0.0, 1e-5, 0.1]),
    errors,
    st.booleans(),
    st.dictionaries(st.sampled_from(["seconds", "workers", "device"]), real | text | st.integers(-(2**70), 2**70)),
)
@example("inf", ["-inf", "\\inf"], [Diagnostic.SAME_DATA], [(1, 2)], None, 0.0, None, False, {"device": "inf"})
def test_any_report_is_read_as_it_was_written(
    tmp_path_factory, name, remarks, diagnostics, cells, epsilon, delta, error, certified, run
):
    report = a_report()
    runs = max(1, *(sum(column) for column in zip(*cells, strict=True)))
    rest = tuple(runs - sum(column) for column in zip(*cells, strict=True))
    c1, c2 = np.array([*cells, rest]).T
    changed = dataclasses.replace(
        report,
        settings=report.settings.change(test_runs=runs),
        name=name,
        remarks=tuple(remarks),
        diagnostics=tuple(diagnostics),
        error=error,
        tested=(
            dataclasses.replace(report.witness, counts=cells[0], runs=runs, text=name, share=0.75),
            dataclasses.replace(report.witness, counts=cells[-1], runs=runs, text=name, share=0.25),
        ),
        delta_events=None,
        cell_counts=CellBounds(*distinct_pairs(c1, c2), runs, 0.045, len(c1) + 1, (runs, runs)),
        certificate_counts=LipschitzCertificate(c1[:-1], c2[:-1], rest, 0.25, runs, 0.045) if certified else None,
        provenance=run,
    ).against(epsilon, delta)
    path = tmp_path_factory.getbasetemp() / "report.json"
    changed.to_json(path)
    back = Report.from_json(path)
    assert back == changed
    for field in dataclasses.fields(Report):
        if field.name not in (
            "tested",
            "picture",
            "cell_counts",
            "certificate_counts",
        ):  # arrays are in the digest
            assert getattr(back, field.name) == getattr(changed, field.name), field.name
    assert back.witness.text == name
    assert str(back) == str(changed)
    assert (back.verdict is dpv.Verdict.NO_ANSWER) == any(diagnostic.voids for diagnostic in diagnostics)
    assert back.row() == changed.row()


@given(
    arrays(np.float64, shapes, elements=st.floats(allow_nan=False))
    | arrays(np.float32, shapes, elements=st.floats(allow_nan=False, width=32))
    | st.sampled_from([np.int64, np.uint64, np.int8, np.bool_]).flatmap(lambda dtype: arrays(dtype, shapes))
)
def test_any_array_is_read_as_it_was_written(array):
    back = serial.from_plain(serial.to_plain(array), ())
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array, strict=True)
    if array.dtype.kind == "f":
        np.testing.assert_array_equal(np.signbit(back), np.signbit(array))

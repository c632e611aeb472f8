"""The examples in docstrings give the results that they show."""

import doctest

import pytest

import dpverify.mechanisms.diagnostics
import dpverify.pipeline
import dpverify.report.report
import dpverify.settings

MODULES = [dpverify.mechanisms.diagnostics, dpverify.pipeline, dpverify.report.report, dpverify.settings]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_the_examples_run(module):
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0

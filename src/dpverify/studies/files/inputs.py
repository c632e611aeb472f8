"""The mechanisms and the pairs of data sets that a study file names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

from dpverify.errors import InputError
from dpverify.mechanisms.outputs import rmse
from dpverify.mechanisms.protocol import Mechanism
from dpverify.studies.files.loading import call_user_code, load_data, load_object
from dpverify.studies.files.plans import PairFiles, StudyPlan, Variant
from dpverify.util.arrays import Array


class PairData(NamedTuple):
    """A pair of data sets, and the error function of the estimates if the truth is known."""

    first: object
    second: object
    error: Callable[[Array], Array] | None


def make_mechanism(plan: StudyPlan, variant: Variant) -> Mechanism:
    """Return the mechanism: what `use` names, called with the parameters if there are some."""
    assert isinstance(variant.source, str)
    entry = f"mechanisms.{variant.name}"
    if not variant.parameters:
        return load_object(variant.source, plan.base, entry)
    return _call_source(plan, entry, variant.source, variant.parameters)


def make_pair(plan: StudyPlan, variant: Variant) -> PairData:
    """Return the pair: from files, or from the function that `use` names.

    The function returns (first, second), or (first, second, truth), where an error function can replace the truth.
    """
    if isinstance(variant.source, PairFiles):
        parts: list[Any] = [load_data(file, plan.base) for file in variant.source if file is not None]
    else:
        returned = _call_source(plan, f"pairs.{variant.name}", variant.source, variant.parameters)
        parts = list(returned) if isinstance(returned, (tuple, list)) else []
    if len(parts) not in (2, 3):
        found = f"{len(parts)} parts" if parts else "no tuple"
        raise InputError(f"pairs.{variant.name}: found {found}; expected (first, second) or (first, second, truth)")
    first, second, *rest = parts
    if not rest:
        return PairData(first, second, None)
    truth = rest[0]
    error = cast("Callable[[Array], Array]", truth) if callable(truth) else rmse(truth)
    return PairData(first, second, error)


def _call_source(plan: StudyPlan, entry: str, source: str, parameters: Mapping[str, object]) -> Any:
    """Return what a named function or class returns for these parameters."""
    function = load_object(source.removesuffix("()"), plan.base, entry)
    return call_user_code(f"{entry}: calling {source}", lambda: function(**parameters))

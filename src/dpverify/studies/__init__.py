"""Everything that calls `verify` more than once: many pairs, searches, calibration, trade-offs and study files."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpverify.studies.engine import Job, Results, compute_many, verify_many
    from dpverify.studies.tables import ResultColumn, ResultTable, write_csv

__all__ = ["Job", "ResultColumn", "ResultTable", "Results", "compute_many", "verify_many", "write_csv"]


def __getattr__(name: str) -> object:
    """Import a public name when it is first used, because modules of this package are imported one by one elsewhere."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "tables" if name in ("ResultColumn", "ResultTable", "write_csv") else "engine"
    return getattr(importlib.import_module(f"dpverify.studies.{module}"), name)

"""Everything that calls `verify` more than once: many pairs, searches, calibration, trade-offs and study files."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpverify.studies.engine import Job, Results, compute_many, verify_many
    from dpverify.studies.tables import ResultColumn, ResultTable
    from dpverify.util.results import write_csv

__all__ = ["Job", "ResultColumn", "ResultTable", "Results", "compute_many", "verify_many", "write_csv"]


def __getattr__(name: str) -> object:
    """Import a public name when it is first used, because modules of this package are imported one by one elsewhere."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    modules = {"ResultColumn": "studies.tables", "ResultTable": "studies.tables", "write_csv": "util.results"}
    return getattr(importlib.import_module(f"dpverify.{modules.get(name, 'studies.engine')}"), name)

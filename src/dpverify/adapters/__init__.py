"""Adapters: estimators and mechanisms of other software as mechanisms of dpverify.

`program` runs an executable in any language. The other functions adapt Python packages, which are imported only when
they are used.
"""

from dpverify.adapters.program import program
from dpverify.adapters.python import (
    dp_auditorium,
    dynamax_estimates,
    filterpy_estimates,
    fitted,
    opendp,
    perturbed,
    perturbed_jax,
)

__all__ = [
    "dp_auditorium",
    "dynamax_estimates",
    "filterpy_estimates",
    "fitted",
    "opendp",
    "perturbed",
    "perturbed_jax",
    "program",
]

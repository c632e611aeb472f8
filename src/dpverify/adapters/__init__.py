"""Other people's estimators: programs in any language, and Python packages that are imported when they are used."""

from dpverify.adapters.program import program
from dpverify.adapters.python import (
    dynamax_estimates,
    filterpy_estimates,
    opendp_measurement,
    perturbed,
    perturbed_jax,
)

__all__ = ["dynamax_estimates", "filterpy_estimates", "opendp_measurement", "perturbed", "perturbed_jax", "program"]

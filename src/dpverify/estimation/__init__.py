"""State estimators that can be verified, and the parts to build one's own.

The package holds the estimators of the paper (W2-MHE, KL-MHE, private EKF, input perturbation), linear estimators whose
privacy has a closed form for every prefix, a particle filter, filters of the user's own, and the paper's system. It
needs JAX: `pip install ".[estimation]"` in a clone.
"""

from dpverify.errors import how_to_install

try:
    import jax  # noqa: F401
except ImportError as problem:
    raise ImportError(f"dpverify.estimation: {problem}; expected JAX; {how_to_install('estimation')}") from None

import dpverify.estimation.theory as theory
from dpverify.estimation.ekf import PrivateEKF
from dpverify.estimation.input_perturbation import InputPerturbed
from dpverify.estimation.kalman import (
    EqualisedKalman,
    GaussianTruth,
    IntermittentKalman,
    LaplaceTruth,
    PosteriorKalman,
    PrivateConsensus,
    PrivateKalman,
    PrivateSmoother,
    TwoStageKalman,
)
from dpverify.estimation.mhe import W2MHE
from dpverify.estimation.own_filter import OwnFilter
from dpverify.estimation.paper_system import (
    SensorCircle,
    adjacent_pair,
    adjacent_recordings,
    oscillator,
    sensor_circle,
)
from dpverify.estimation.particles import KLMHE, ParticleFilter
from dpverify.estimation.system import Law, Normal, System, TruncatedMixture, Uniform, simulate

__all__ = [
    "KLMHE",
    "W2MHE",
    "EqualisedKalman",
    "GaussianTruth",
    "InputPerturbed",
    "IntermittentKalman",
    "LaplaceTruth",
    "Law",
    "Normal",
    "OwnFilter",
    "ParticleFilter",
    "PosteriorKalman",
    "PrivateConsensus",
    "PrivateEKF",
    "PrivateKalman",
    "PrivateSmoother",
    "SensorCircle",
    "System",
    "TruncatedMixture",
    "TwoStageKalman",
    "Uniform",
    "adjacent_pair",
    "adjacent_recordings",
    "oscillator",
    "sensor_circle",
    "simulate",
    "theory",
]

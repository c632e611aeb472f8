"""State estimators that can be verified, and the parts to build one's own.

The package holds the estimators of the paper (W2-MHE, KL-MHE, private EKF, input perturbation), linear estimators whose
privacy has a closed form for every prefix, a particle filter, and the paper's system. It needs JAX:
`pip install "dpverify[estimation]"`.
"""

from dpverify.errors import how_to_install

try:
    import jax  # noqa: F401
except ImportError as problem:
    raise ImportError(f"dpverify.estimation: {problem}; expected JAX; {how_to_install('estimation')}") from None

import dpverify.estimation.theory as theory
from dpverify.estimation.consensus import PrivateConsensus
from dpverify.estimation.distributions import Law, Normal, TruncatedMixture, Uniform
from dpverify.estimation.input_perturbation import InputPerturbed
from dpverify.estimation.kalman import PrivateEKF, PrivateKalman
from dpverify.estimation.mhe import W2MHE
from dpverify.estimation.paper_system import (
    SensorCircle,
    adjacent_pair,
    adjacent_recordings,
    oscillator,
    sensor_circle,
)
from dpverify.estimation.particle import KLMHE
from dpverify.estimation.particle_filter import ParticleFilter
from dpverify.estimation.streams import (
    EqualisedKalman,
    IntermittentKalman,
    PosteriorKalman,
    PrivateSmoother,
    TwoStageKalman,
)
from dpverify.estimation.system import System, simulate
from dpverify.estimation.truths import GaussianTruth, LaplaceTruth

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

"""The estimators of the paper, and what to build one's own with. Needs JAX: `pip install dpverify[estimation]`."""

import dpverify.estimation.theory as theory
from dpverify.estimation.kalman import GaussianTruth, PrivateEKF, PrivateKalman
from dpverify.estimation.laws import Law, Normal, TruncatedMixture, Uniform
from dpverify.estimation.mhe import W2MHE
from dpverify.estimation.particle import KLMHE
from dpverify.estimation.perturb import InputPerturbed
from dpverify.estimation.system import (
    SensorCircle,
    System,
    adjacent_pair,
    adjacent_recordings,
    oscillator,
    sensor_circle,
    simulate,
)

__all__ = [
    "KLMHE",
    "W2MHE",
    "GaussianTruth",
    "InputPerturbed",
    "Law",
    "Normal",
    "PrivateEKF",
    "PrivateKalman",
    "SensorCircle",
    "System",
    "TruncatedMixture",
    "Uniform",
    "adjacent_pair",
    "adjacent_recordings",
    "oscillator",
    "sensor_circle",
    "simulate",
    "theory",
]

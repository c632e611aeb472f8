"""The estimators of the paper, and what to build one's own with. Needs JAX: `pip install dpverify[estimation]`."""

from dpverify.estimation.laws import Law, Normal, TruncatedMixture, Uniform
from dpverify.estimation.mhe import W2MHE
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
    "W2MHE",
    "Law",
    "Normal",
    "SensorCircle",
    "System",
    "TruncatedMixture",
    "Uniform",
    "adjacent_pair",
    "adjacent_recordings",
    "oscillator",
    "sensor_circle",
    "simulate",
]

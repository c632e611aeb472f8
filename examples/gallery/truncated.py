"""Truncated staircase noise: its delta is the probability of the last stair, and three measurements compose."""

import numpy as np

import dpverify as dpv
from dpverify.gallery.bounded_noise import StaircaseNoise

if __name__ == "__main__":
    for number in (1, 3):
        report = dpv.verify(StaircaseNoise(), np.zeros(number), np.ones(number), epsilon=0.3, delta=0.0245)
        print(report, end="\n\n")

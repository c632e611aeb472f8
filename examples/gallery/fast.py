"""FAST: adaptive sampling with a Kalman correction uses its whole budget, and no more."""

import dpverify as dpv
from dpverify.gallery.fast import FIRST, AdaptiveSampling

if __name__ == "__main__":
    print(dpv.verify(AdaptiveSampling(), FIRST, FIRST + 1, epsilon=1.0))

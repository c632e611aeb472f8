"""Laplace noise that is drawn again until the output lies in a range: the naive scale 1/eps is too small."""

import dpverify as dpv
from dpverify.gallery.bounded_noise import BoundedLaplace, corrected_scale

if __name__ == "__main__":
    for scale in (1.0, corrected_scale(1.0)):
        print(dpv.verify(BoundedLaplace(scale), 0.0, 1.0, epsilon=1.0), end="\n\n")

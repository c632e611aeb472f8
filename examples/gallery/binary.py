"""The binary mechanism with noise log2(T)/eps: the first of four items is in three intervals, and the claim fails."""

import numpy as np

import dpverify as dpv
from dpverify.gallery.counting import BinaryMechanism

if __name__ == "__main__":
    first, second = np.zeros(4), np.array([1.0, 0.0, 0.0, 0.0])
    for scale in (2.0, 3.0):  # log2(T)/eps and (1 + log2 T)/eps, at the claim 1
        print(dpv.verify(BinaryMechanism(scale), first, second, epsilon=1.0), end="\n\n")

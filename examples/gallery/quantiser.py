"""Random quantisation: the delta of one number is not the delta of a trajectory."""

import numpy as np

import dpverify as dpv
from dpverify.gallery.quantiser import RandomQuantiser

if __name__ == "__main__":
    for steps in (1, 4):
        first = np.zeros(steps)
        print(dpv.verify(RandomQuantiser(1.0), first, first + 0.2, epsilon=0.0, delta=0.2), end="\n\n")

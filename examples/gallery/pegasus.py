"""PeGaSus: perturb every count, group similar counts, release medians. One count changes by 1."""

import dpverify as dpv
from dpverify.gallery.grouping import FIRST, SECOND, Pegasus

if __name__ == "__main__":
    print(dpv.verify(Pegasus(epsilon=1.0), FIRST, SECOND, epsilon=1.0))

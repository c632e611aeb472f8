"""A private Kalman filter with noise at its input: what is proved, beside the exact epsilon."""

import dpverify as dpv
from dpverify.gallery.kalman import FIRST, IDENTITY, SECOND, PrivateFilter, truth

if __name__ == "__main__":
    mechanism, claim = PrivateFilter(IDENTITY, epsilon=1.0, delta=0.01), dpv.claims.approximate(1.0, 0.01)
    print(dpv.verify(mechanism, FIRST, SECOND, claim=claim))
    print(f"  truth     epsilon {truth(mechanism, claim).parameter:.4g} at delta 0.01, in closed form")

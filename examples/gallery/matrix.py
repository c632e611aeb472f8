"""The matrix mechanism for prefix sums: noise for one contribution does not hide a person who contributes twice."""

import numpy as np

import dpverify as dpv
from dpverify.gallery.counting import ONE_NORM, TWICE, MatrixMechanism

if __name__ == "__main__":
    mechanism, claim = MatrixMechanism(ONE_NORM), dpv.claims.gaussian(1.0)
    for change in (np.eye(8)[0], TWICE):
        report = dpv.verify(mechanism, np.zeros(8), change, claim=claim, delta=0.01)
        print(f"{int(change.sum())} contributions: {report.verdict.name}, mu >= {report.claim_lower:.3f}")

"""Budget distribution and budget absorption: one user within a window of three steps."""

import dpverify as dpv
from dpverify.gallery.windows import FIRST, SECOND, WindowedRelease, supremum

if __name__ == "__main__":
    for absorbs in (False, True):
        mechanism = WindowedRelease(absorbs)
        report = dpv.verify(mechanism, FIRST, SECOND, epsilon=1.0)
        largest = supremum(mechanism, FIRST, SECOND)
        print(
            f"absorbs {absorbs}: {report.verdict.name}, proved {report.epsilon_lower:.3f}, largest loss {largest:.4f}"
        )

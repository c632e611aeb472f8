"""Event-triggered release with an adaptive threshold (DSAT): silent steps leak once the threshold is clipped."""

import dpverify as dpv
from dpverify.gallery.triggered import DSAT, FIRST, SECOND, UNCLIPPED, log_likelihood_ratio

if __name__ == "__main__":
    runs = {"select_runs": 1_000_000, "test_runs": 2_000_000, "events": log_likelihood_ratio}
    for name, mechanism in {"clipped": DSAT, "without clipping": UNCLIPPED}.items():
        report = dpv.verify(mechanism, FIRST, SECOND, epsilon=1.0, **runs)
        print(f"{name}: {report.verdict.name}, epsilon >= {report.epsilon_lower:.3f}")

"""The planar Laplace mechanism with a rounded radius: a score that knows the candidate position refutes the claim."""

import dpverify as dpv
from dpverify.gallery.location import EPSILON, FIRST, SECOND, PlanarLaplace, closeness_to_rings

if __name__ == "__main__":
    for decimals in (None, 6):
        mechanism = PlanarLaplace(EPSILON, decimals)
        for events in ("auto", closeness_to_rings):
            report = dpv.verify(mechanism, FIRST, SECOND, epsilon=1.0, events=events)
            score = events if isinstance(events, str) else events.__name__
            print(f"decimals {decimals}, {score}: {report.verdict.name}, epsilon >= {report.epsilon_lower:.3f}")

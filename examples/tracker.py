"""A walker and three beacons that measure distances: a private moving-horizon estimate of the position."""

import jax.numpy as jnp
import numpy as np

import dpverify as dpv
from dpverify.estimation import W2MHE, Normal, System, simulate

WALK = np.array([[1, 0, 0.5, 0], [0, 1, 0, 0.5], [0, 0, 1, 0], [0, 0, 0, 1]])  # the state is position and velocity
BEACONS = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])


def ranges(x):
    return jnp.linalg.norm(x[:2] - BEACONS, axis=1)


walker = System(A=WALK, h=ranges, start=(4.0, 3.0, 0.2, 0.1), noise=Normal(0.02), initial=Normal(0.02), released=(0, 1))
recording = simulate(walker, np.random.default_rng(0), steps=5)
first, second = recording.data, recording.data + np.array([0.02, 0.0, 0.0])  # one beacon has an error of 0.02
mechanism = W2MHE(walker, window=3, s=0.8, tau=0.1, law="blend")

if __name__ == "__main__":
    runs = {"select_runs": 8192, "test_runs": 16384, "block": 4096}
    truth = recording.released(walker, 3)
    print(dpv.verify(mechanism, first, second, epsilon=0.5, error=dpv.rmse(truth), **runs))

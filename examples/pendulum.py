"""A pendulum with an angle sensor: how much do the estimates of a private EKF reveal of one faulty measurement?"""

import jax.numpy as jnp
import numpy as np

import dpverify as dpv
from dpverify.estimation import Normal, PrivateEKF, System, simulate

STEP = 0.05


def swing(x):  # the state is angle and angular velocity
    return jnp.array([x[0] + STEP * x[1], x[1] - STEP * 9.81 * jnp.sin(x[0])])


def angle(x):
    return x[:1]


pendulum = System(f=swing, h=angle, start=(0.5, 0.0), disturbance=Normal(0.01), noise=Normal(0.05), initial=Normal(0.1))
recording = simulate(pendulum, np.random.default_rng(0), steps=5)
first, second = recording.data, recording.data + 0.1 * (np.arange(6) == 3)[:, None]
mechanism = PrivateEKF(pendulum, s_hat=0.8)

if __name__ == "__main__":
    runs = {"select_runs": 8192, "test_runs": 16384, "block": 4096}
    print(dpv.verify(mechanism, first, second, epsilon=1.0, error=dpv.rmse(recording.states), **runs))

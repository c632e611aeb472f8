"""Verifies private estimators of twelve systems with their proposed parameters: verdicts, seconds and errors.

Each system is a model as a control engineer writes it, with noise and known inputs. The estimators are the W2-MHE with
both laws, the private EKF, and noise on the data in front of the EKF. A set-up that is not supported must say so in one
line; a traceback or NaN is an error of the library.

Run: python benchmarks/bench_systems.py (some minutes). Some systems only: --only pendulum,bicycle.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

import dpverify as dpv
from dpverify.estimation import W2MHE, InputPerturbed, Normal, PrivateEKF, System

WINDOW, STEPS = 3, 8
RUNS = {"select_runs": 8192, "test_runs": 16384}


def runge_kutta(slope, x, step):
    """Return the state after one step of the classical Runge-Kutta method."""
    a = slope(x)
    b = slope(x + step / 2 * a)
    c = slope(x + step / 2 * b)
    return x + step / 6 * (a + 2 * b + 2 * c + slope(x + step * c))


def swing(x):
    angle, rate = x
    return jnp.array([angle + 0.05 * rate, rate - 0.05 * 9.81 * jnp.sin(angle)])


def first(x):
    return x[:1]


def pendulum():
    return System(f=swing, h=first, start=(0.5, 0.0), disturbance=Normal(0.01), noise=Normal(0.05), initial=Normal(0.1))


def drive(x, u):
    """Move a kinematic bicycle with a wheelbase of 2.5 m: position, heading, speed, steering angle."""
    _, _, heading, speed, steering = x
    turn = speed / 2.5 * jnp.tan(steering)
    slope = jnp.stack([speed * jnp.cos(heading), speed * jnp.sin(heading), turn, u[0], u[1]])
    return x + 0.1 * slope


def position_and_speed(x):
    return x[jnp.array([0, 1, 3])]


def bicycle():
    return System(
        f=drive,
        h=position_and_speed,
        start=(0.0, 0.0, 0.3, 8.0, 0.05),
        inputs=[[0.5, 0.1]] * STEPS,
        disturbance=Normal((0.02, 0.02, 0.002, 0.05, 0.002)),
        noise=Normal((0.5, 0.5, 0.1)),
        initial=Normal((0.5, 0.5, 0.05, 0.3, 0.01)),
        released=(0, 1),
    )


def balance(x, u):
    """Move a cart of 1 kg with a pole of 0.1 kg and 0.5 m: position, speed, angle, rate."""

    def slope(x):
        _, speed, angle, rate = x
        sine, cosine = jnp.sin(angle), jnp.cos(angle)
        push = (u[0] + 0.05 * rate**2 * sine) / 1.1
        turn = (9.81 * sine - cosine * push) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
        return jnp.stack([speed, push - 0.05 * turn * cosine / 1.1, rate, turn])

    return runge_kutta(slope, x, 0.02)


def position_and_angle(x):
    return x[jnp.array([0, 2])]


def cart_pole():
    return System(
        f=balance,
        h=position_and_angle,
        start=(0.0, 0.0, 0.1, 0.0),
        inputs=[[1.0]] * STEPS,
        disturbance=Normal((0.001, 0.01, 0.001, 0.01)),
        noise=Normal((0.01, 0.02)),
        initial=Normal((0.02, 0.05, 0.02, 0.05)),
    )


def drain(x, u):
    """Fill and drain the four tanks of Johansson, levels in cm; the lower tanks come first."""
    root = jnp.sqrt(2 * 981 * x)
    area, hole = jnp.array([28.0, 32.0, 28.0, 32.0]), jnp.array([0.071, 0.057, 0.071, 0.057])
    out = hole * root
    pumped = jnp.stack([0.7 * 3.33 * u[0], 0.6 * 3.35 * u[1], 0.4 * 3.35 * u[1], 0.3 * 3.33 * u[0]])
    return x + 5.0 * (pumped + jnp.stack([out[2], out[3], 0.0, 0.0]) - out) / area


def lower_tanks(x):
    return 0.5 * x[:2]


def four_tanks():
    return System(
        f=drain,
        h=lower_tanks,
        start=(12.4, 12.7, 1.8, 1.4),
        inputs=[[3.0, 3.0]] * STEPS,
        disturbance=Normal(0.05),
        noise=Normal(0.1),
        initial=Normal(0.2),
    )


def oscillate(x, p):
    def slope(x):
        return jnp.stack([x[1], p * (1 - x[0] ** 2) * x[1] - x[0]])

    return runge_kutta(slope, x, 0.1)


def van_der_pol():
    return System(
        f=oscillate,
        h=first,
        start=(1.0, 0.0),
        parameters=1.5,
        disturbance=Normal(0.01),
        noise=Normal(0.1),
        initial=Normal(0.2),
    )


def convect(x):
    def slope(x):
        return jnp.stack([10 * (x[1] - x[0]), x[0] * (28 - x[2]) - x[1], x[0] * x[1] - 8 / 3 * x[2]])

    return runge_kutta(slope, x, 0.02)


def lorenz():
    return System(
        f=convect, h=first, start=(1.0, 1.0, 20.0), disturbance=Normal(0.05), noise=Normal(0.5), initial=Normal(0.5)
    )


def turn(x, w):
    """Move a target with nearly constant turn rate; w is the acceleration along its path, and of its turn."""
    _, _, speed, heading, rate = x
    moved = jnp.stack([speed * jnp.cos(heading), speed * jnp.sin(heading), w[0], rate, w[1]])
    return x + 0.5 * moved


def bearings(x):
    stations = jnp.array([[-20.0, -10.0], [60.0, -20.0]])
    return jnp.arctan2(x[1] - stations[:, 1], x[0] - stations[:, 0])


def constant_turn():
    return System(
        f=turn,
        h=bearings,
        start=(10.0, 20.0, 5.0, 0.2, 0.1),
        disturbance=Normal((0.1, 0.02)),
        noise=Normal(0.01),
        initial=Normal((1.0, 1.0, 0.5, 0.05, 0.02)),
        released=(0, 1),
    )


def discharge(x, u):
    """Discharge a cell of 2.5 Ah: state of charge, and the voltage of its RC pair."""
    return jnp.stack([x[0] - 10 * u[0] / 9000, 0.8 * x[1] + 0.2 * 0.015 * u[0]])


def terminal_voltage(x, u):
    charge = x[0]
    return jnp.stack([3.2 + 1.2 * charge - 0.9 * charge**2 + 0.7 * charge**3 - x[1] - 0.02 * u[0]])


def battery():
    return System(
        f=discharge,
        h=terminal_voltage,
        start=(0.8, 0.0),
        inputs=[[5.0]] * (STEPS + 1),
        disturbance=Normal((0.001, 0.001)),
        noise=Normal(0.01),
        initial=Normal((0.05, 0.01)),
    )


def spring_chain():
    """Five masses between two walls, joined by springs; the positions of the first and the last are measured."""
    stiffness = 2 * np.eye(5) - np.eye(5, k=1) - np.eye(5, k=-1)
    A = np.eye(10) + 0.1 * np.block([[np.zeros((5, 5)), np.eye(5)], [-stiffness, -0.2 * np.eye(5)]])
    C = np.eye(10)[[0, 4]]
    return System(
        A=A,
        C=C,
        start=(0.5,) + (0.0,) * 9,
        disturbance=Normal(0.02),
        noise=Normal(0.1),
        initial=Normal(0.1),
        released=(0, 1, 2, 3, 4),
    )


def infect(x, p):
    susceptible, infected = x
    new = p[0] * susceptible * infected
    return jnp.stack([susceptible - new, infected + new - p[1] * infected])


def reported(x):
    return 100 * x[1:]


def epidemic():
    return System(
        f=infect,
        h=reported,
        start=(0.95, 0.05),
        parameters=(0.4, 0.1),
        disturbance=Normal((0.002, 0.002)),
        noise=Normal(0.5),
        initial=Normal((0.01, 0.01)),
    )


def fly(x, u):
    """Move a quadrotor of 1 kg in a plane: position, pitch, and their rates."""
    _, _, pitch, *rates = x
    thrust = u[0] + u[1]
    slope = [*rates, -thrust * jnp.sin(pitch), thrust * jnp.cos(pitch) - 9.81, 10 * (u[0] - u[1])]
    return x + 0.05 * jnp.stack(slope)


def pose(x):
    return x[:3]


def quadrotor():
    return System(
        f=fly,
        h=pose,
        start=(0.0, 1.0, 0.1, 0.0, 0.0, 0.0),
        inputs=[[5.0, 4.9]] * STEPS,
        disturbance=Normal(0.005),
        noise=Normal((0.05, 0.05, 0.02)),
        initial=Normal(0.05),
        released=(0, 1),
    )


def decay(x):
    return 0.95 * x


def saturating(x):
    return jnp.clip(x, -1.0, 1.0)


def saturated():
    return System(f=decay, h=saturating, start=(1.1,), disturbance=Normal(0.05), noise=Normal(0.1), initial=Normal(0.3))


SYSTEMS: dict[str, Callable[[], System]] = {
    "pendulum": pendulum,
    "bicycle": bicycle,
    "cart-pole": cart_pole,
    "four tanks": four_tanks,
    "van der Pol": van_der_pol,
    "Lorenz": lorenz,
    "constant turn": constant_turn,
    "battery": battery,
    "spring chain": spring_chain,
    "epidemic": epidemic,
    "quadrotor": quadrotor,
    "saturated": saturated,
}


class Row(NamedTuple):
    """What became of one estimator of one system."""

    system: str
    estimator: str
    outcome: str  # the bound on epsilon, or the one line that refuses the set-up
    seconds: float
    error: float  # root-mean-square error over the steps, in units of the state
    is_verified: bool


def estimators(system: System, data: np.ndarray) -> dict[str, Callable[[], dpv.Mechanism]]:
    """Return the estimators with proposed or usual parameters; each is made when it is verified."""
    proposed = functools.partial(W2MHE.proposed, system, data, WINDOW)
    variances = system.measurement_variances
    return {
        "W2-MHE, Gibbs": proposed,
        "W2-MHE, blend": functools.partial(proposed, law="blend"),
        "private EKF": lambda: PrivateEKF(system, 0.95, WINDOW),
        "input perturbation": lambda: InputPerturbed(PrivateEKF(system, 1.0, WINDOW), covariance=variances),
    }


def neighbours(system: System) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a recording, the same with three deviations of the noise on one reading, and the true released states."""
    recording = system.simulate(np.random.default_rng(0), STEPS)
    second = recording.data.copy()
    second[3, 0] += 3 * np.sqrt(system.measurement_variances[0])
    return recording.data, second, recording.released(system, STEPS + 1 - WINDOW)


def verified(name: str, estimator: str, make: Callable[[], dpv.Mechanism], data: tuple, **settings: object) -> Row:
    """Verify one estimator. What the library refuses must be one line; any other exception is not caught."""
    first, second, truth = data
    start, error, is_verified = time.process_time(), np.nan, False
    try:
        report = dpv.verify(make(), first, second, delta=0.01, error=dpv.rmse(truth), **(RUNS | settings))
        outcome, error, is_verified = f"epsilon >= {report.epsilon_lower or 0.0:.3f}", report.error[0][0], True
    except (dpv.InputError, dpv.MechanismError) as problem:
        outcome = str(problem)
        assert "\n" not in outcome
    return Row(name, estimator, outcome, time.process_time() - start, error, is_verified)


def main() -> None:
    """Print a line for each system and estimator."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(SYSTEMS), help="names of systems, with commas between them")
    rows = []
    for name in parser.parse_args().only.split(","):
        system = SYSTEMS[name]()
        data = neighbours(system)
        for estimator, make in estimators(system, data[0]).items():
            rows.append(verified(name, estimator, make, data))
            print("{0:14} {1:18} {3:6.1f} s  error {4:8.4f}  {2}".format(*rows[-1]), flush=True)
    print(f"{sum(row.is_verified for row in rows)} of {len(rows)} verified, the others refused in one line")


if __name__ == "__main__":
    main()

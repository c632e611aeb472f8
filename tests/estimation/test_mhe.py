"""The W2-MHE: its deterministic estimate, the limits s = 0 and s = 1, the blend, and its argument checks."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import least_squares
from scipy.stats import kstest

from dpverify.errors import InputError
from dpverify.estimation import W2MHE, System, oscillator, sensor_circle, simulate
from dpverify.util.arrays import enable_x64

SYSTEM = oscillator()
DATA = simulate(SYSTEM, np.random.default_rng(0)).data
TAU = 1.4e-5


def by_least_squares(mechanism, data):
    """Compute the same trajectory with SciPy, from residuals written with NumPy."""
    system, A = mechanism.system, np.array(mechanism.system.A)
    places, prior, estimates = system.h.places, np.array(system.start), []
    offsets = range(1 if mechanism.span == "open" else 0, mechanism.window + 1)
    root = np.sqrt(np.ones(20) if mechanism.weights is None else np.array(mechanism.weights))
    for k in range(len(data) - mechanism.window):

        def residuals(z, k=k, prior=prior):
            parts = [(z - prior) / np.sqrt(mechanism.tau)]
            for j in offsets:
                x = np.linalg.matrix_power(A, j) @ z
                parts.append(root * (data[k + j] - 100 * np.tanh(0.1 * (x[:2] - places)).reshape(-1)))
            return np.concatenate(parts)

        z = least_squares(residuals, prior, jac="3-point", xtol=1e-15, ftol=1e-15, gtol=1e-15).x
        estimates.append(z)
        prior = A @ z
    return np.array(estimates)


@pytest.mark.parametrize(
    ("angles", "changes"),
    [
        (10, {}),
        (
            np.random.default_rng(1).uniform(0, 2 * np.pi, 10),
            {"span": "open", "tau": 1e-3, "weights": np.linspace(0.5, 2, 20), "window": 3},
        ),
    ],
    ids=["even", "random, open, weighted"],
)
def test_the_deterministic_estimate_is_the_least_squares_one(angles, changes):
    system = oscillator(sensor_circle(angles))
    data = simulate(system, np.random.default_rng(2)).data
    mechanism = W2MHE(**{"system": system, "window": 5, "s": 1.0, "tau": TAU} | changes)
    expected = by_least_squares(mechanism, data)
    assert np.abs(mechanism.deterministic(data) - expected).max() < 1e-8
    samples = np.asarray(mechanism(data, 3, np.random.default_rng(0)))
    assert samples.shape == (3, 9 - mechanism.window, 2)
    assert np.abs(samples - expected[:, :2]).max() < 1e-8


def test_estimates_are_projected_onto_the_sets():
    mechanism = W2MHE(SYSTEM, 5, 1.0, 1e3)
    ball = mechanism.sets(4)
    offset = mechanism.deterministic(DATA + 20.0) - ball.centre
    np.testing.assert_allclose(np.linalg.norm(offset, axis=1), ball.radius, rtol=1e-12)
    np.testing.assert_allclose(2 * ball.radius, 0.1 * SYSTEM.lipschitz ** np.arange(4))
    assert "boundary of K_k" in mechanism.remarks(DATA + 20.0)[-1]
    assert W2MHE(SYSTEM, 5, 1.0, 1e-5).remarks(DATA) == ()


def test_at_s_0_the_estimate_is_uniform_on_the_ball():
    z = np.asarray(W2MHE(SYSTEM, 5, 0.0, TAU)(DATA, 1 << 13, np.random.default_rng(0)))
    ball = W2MHE(SYSTEM, 5, 0.0, TAU).sets(4)
    x = (z[:, 2, 0] - ball.centre[2, 0]) / ball.radius[2]
    # One coordinate of a uniform point of the 4-ball has a density proportional to (1 - x^2)^(3/2).
    angle = np.arcsin(np.clip(x, -1, 1))
    cdf = (angle + np.sin(2 * angle) * 2 / 3 + np.sin(4 * angle) / 12) / np.pi + 0.5
    assert kstest(cdf, "uniform").pvalue > 1e-4


def test_the_blend_has_its_stated_distribution():
    mechanism = W2MHE(SYSTEM, 5, 0.8, TAU, law="blend")
    z = np.asarray(mechanism(DATA, 1 << 13, np.random.default_rng(0)))
    ball, middle = mechanism.sets(4), mechanism.deterministic(DATA)
    half = ball.radius / 2  # of the cube in 4 dimensions
    u = ((z - 0.8 * middle[:, :2]) / 0.2 - ball.centre[:, :2]) / half[:, None]
    assert np.abs(u).max() <= 1 + 1e-9
    assert kstest((u[:, 3, 1] + 1) / 2, "uniform").pvalue > 1e-4


def test_the_blend_on_a_cube_of_constant_diameter_has_nearly_the_printed_error():
    """The errors are .00408 and .00612 (printed: .00404 and .00600), if the deterministic estimate is the truth."""
    for s, error in ((0.8, 0.00408), (0.7, 0.00612)):
        mechanism = W2MHE(SYSTEM, 5, s, TAU, law="blend", support="wide", radius=0.05)
        with enable_x64():
            truth = mechanism.sets(9).centre
            data = np.stack([np.asarray(SYSTEM.h(jnp.asarray(x))) for x in truth])
        z = np.asarray(mechanism(data, 1 << 16, np.random.default_rng(0)))
        assert abs(np.sqrt(np.square(z - truth[:4, :2]).sum(-1).mean()) - error) < 2e-5


def decreasing(x):
    return x - 1.0


def nan_below_zero(x):
    return jnp.where(x > 0.0, x, jnp.nan)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"s": 1.2}, "s: found 1.2"),
        ({"tau": 0.0}, "tau: found 0.0"),
        ({"tau": np.inf}, "tau: found inf"),
        ({"s": "0.8"}, "s: found '0.8'"),
        ({"window": 2.5}, "window must be"),
        ({"weights": "heavy"}, "weights: found 'heavy'"),
        ({"window": -1}, "window must be"),
        ({"law": "normal"}, "law must be"),
        ({"span": "half"}, "span must be"),
        ({"weights": (1.0, 2.0)}, "expected 20 numbers"),
        ({"support": "wide"}, "radius: found None"),
        ({"support": "narrow"}, "support must be"),
        ({"radius": 1.0, "support": "theorem"}, 'expected support="wide"'),
        ({"scale": (1.0,)}, "scale: found (1.0,); expected 4 positive numbers"),
        ({"diameter": 0.0}, "diameter: found 0.0"),
        (
            {"system": System(A=np.zeros((2, 2)), C=np.eye(2), start=(0.0, 0.0)), "support": "theorem"},
            "replace a singular A",
        ),
    ],
)
def test_invalid_parameters_raise_a_one_line_error(changes, line):
    with pytest.raises(InputError) as error:
        W2MHE(**{"system": SYSTEM, "window": 5, "s": 0.8, "tau": TAU} | changes)
    assert line in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("s", [0.5, 1.0])
def test_a_measurement_of_nan_raises_an_error(s):
    system = System(f=decreasing, h=nan_below_zero, start=(0.5,), lipschitz=1.0)
    with pytest.raises(InputError, match="found NaN or infinity"):
        W2MHE(system, 1, s, 1.0)(np.ones((3, 1)), 10, np.random.default_rng(0))

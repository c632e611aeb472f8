"""The plan of the Gibbs sampler: its envelope, its warnings, and runs that it rejects or abandons."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quadrature import QUADRATIC, rounded

from dpverify.errors import DPVerifyWarning, InputError
from dpverify.estimation import W2MHE, System, oscillator, simulate
from dpverify.estimation.moving_horizon import stage_cost
from dpverify.mechanisms.validation import validate_output
from dpverify.util.arrays import enable_x64


def test_every_draw_lies_above_the_envelope_and_below_its_slack():
    """The certified bounds are checked at points of the ball."""
    system = oscillator()
    mechanism = W2MHE(system, 5, 0.8, 1.4e-5)
    data = simulate(system, np.random.default_rng(0)).data
    plan = mechanism._plan(data)
    with enable_x64():
        cost = stage_cost(system, mechanism.problem.residual_weights)

        @jax.jit
        def drawn(step, prior, y, key):
            wide_kappa = 100.0  # much larger than kappa, so that the draws cover the ball
            covariance_root = step.covariance_root * np.sqrt(wide_kappa / mechanism.kappa)
            spread = step._replace(covariance_root=covariance_root)
            draw = spread.draw(jnp.tile(prior[:, None], 2000), key, mechanism.kappa, mechanism.tau)
            return draw, jax.vmap(cost, in_axes=(1, None))(draw.z, y) - draw.lower

        for k in range(4):
            step = jax.tree.map(lambda v, k=k: v[k], plan.envelope)
            draw, gap = drawn(step, plan.trajectory[k], plan.windows[k], jax.random.key(k))
            inside = np.linalg.norm(np.asarray(draw.z).T - plan.support.centre[k], axis=1) <= plan.support.radius[k]
            gap = np.asarray(gap)[inside]
            assert inside.sum() > 50
            assert gap.min() >= -1e-9
            assert (gap <= np.asarray(draw.slack)[inside] + 1e-9).all()
    assert max(plan.faithfulness.M) < 1.01


def steep(x):
    return 60.0 * jnp.clip(x, -2.0, 2.0)


def test_a_sampled_third_derivative_raises_a_warning():
    system = System(f=rounded, h=steep, start=(0.0,), lipschitz=2.0)
    mechanism = W2MHE(system, 0, 0.99, 1.0, support="wide", radius=0.4)
    with pytest.warns(DPVerifyWarning, match="sampled, not proved"):
        assert not mechanism._plan(np.array([[8.0]])).faithfulness.certified
    (remark,) = mechanism.remarks(np.array([[8.0]]))
    assert "sampled, not proved: f or h contains " in remark
    assert W2MHE(QUADRATIC, 0, 0.9, 1.0, support="wide", radius=0.8).remarks(np.array([[0.1, 0.2]])) == ()


def test_abandoned_runs_are_nan_and_rejected_by_validation():
    """Priors of step 1 lie up to ten radii outside K_1. The deterministic prior is 0 and does not show this."""
    system = System(A=[[10.0]], C=[[0.001]], start=(0.0,))
    mechanism, data = W2MHE(system, 0, 0.5, 0.01, support="wide", radius=0.2), np.zeros((2, 1))
    faithfulness = mechanism._plan(data).faithfulness
    assert faithfulness.certified
    assert max(faithfulness.M) < 1.1
    z = np.asarray(mechanism(data, 64, np.random.default_rng(0)))[..., 0]
    abandoned = np.isnan(z[:, 1])
    # The distance to K_1 is 10 |z| - 0.2, and the standard deviation is 0.1. A draw exceeds 4 deviations once in 2^15
    # tries, and 6 deviations practically never.
    assert abandoned[np.abs(z[:, 0]) > 0.08].all()
    assert not abandoned[np.abs(z[:, 0]) < 0.05].any()
    with pytest.raises(InputError, match="NaN"):
        validate_output(z, 64)


def test_a_distribution_that_cannot_be_sampled_raises_a_warning_and_an_error():
    """The data lie far outside K_k, and the only known bound of the cost is that it is not negative."""
    system = System(f=rounded, h=steep, start=(0.0,), lipschitz=2.0)
    mechanism = W2MHE(system, 0, 0.999, 1e3, support="wide", radius=0.1)
    with pytest.warns(DPVerifyWarning, match="can't be sampled"):
        mechanism.faithfulness(np.array([[100.0]]))
    with pytest.raises(InputError, match="can't be sampled"):  # instead of an endless loop
        mechanism(np.array([[100.0]]), 64, np.random.default_rng(0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mechanism.faithfulness(np.array([[100.0]]))  # the warning is raised once per data set

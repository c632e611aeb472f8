"""The plan of the Gibbs sampler: its envelope, and what it refuses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quadrature import rounded

from dpverify.errors import InputError
from dpverify.estimation import W2MHE, System, oscillator, simulate
from dpverify.estimation.moving_horizon import stage_cost
from dpverify.util.arrays import enable_x64


def steep(x):
    return 60.0 * jnp.clip(x, -2.0, 2.0)


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
            draw = spread.draw(jnp.tile(prior[:, None], 2000), key)
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


@pytest.mark.parametrize(
    ("system", "s", "tau", "radius", "data", "advice"),
    [
        (System(f=rounded, h=steep, start=(0.0,)), 0.9999, 1.0, 0.4, [[8.0]], "f or h contains .*: write it with"),
        (System(f=rounded, h=steep, start=(0.0,)), 0.999, 1e3, 0.1, [[100.0]], "choose a smaller diameter"),
    ],
)
def test_a_distribution_that_cannot_be_sampled_is_refused(system, s, tau, radius, data, advice):
    """f has jumps, and draws from the prior are practically never accepted."""
    mechanism = W2MHE(system, 0, s, tau, support="wide", radius=radius)
    assert not mechanism.faithfulness(np.array(data)).feasible
    with pytest.raises(InputError, match=f"can't be sampled exactly at step 0; .*{advice}"):
        mechanism(np.array(data), 64, np.random.default_rng(0))


def test_runs_that_cannot_be_drawn_are_an_error_and_never_nan():
    """Priors of step 1 lie up to ten radii outside K_1. The deterministic prior is 0 and does not show this."""
    mechanism = W2MHE(System(A=[[10.0]], C=[[0.001]], start=(0.0,)), 0, 0.5, 0.01, support="wide", radius=0.2)
    assert max(mechanism.faithfulness(np.zeros((2, 1))).M) < 1.1
    with pytest.raises(InputError, match="lies too far from K_k"):
        mechanism(np.zeros((2, 1)), 64, np.random.default_rng(0))

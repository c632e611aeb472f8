"""The plan of the Gibbs sampler: its envelope, and what it refuses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quadrature import rounded
from scipy.stats import kstest, truncnorm

from dpverify.errors import InputError
from dpverify.estimation import W2MHE, System, oscillator, simulate
from dpverify.estimation.moving_horizon import Windows, stage_cost
from dpverify.util.arrays import enable_x64


def steep(x):
    return 60.0 * x + jnp.floor(x)


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
            return draw, jax.vmap(lambda z: cost(z, Windows(y, 0)), in_axes=1)(draw.z) - draw.lower

        for k in range(4):
            step = jax.tree.map(lambda v, k=k: v[k], plan.envelope)
            draw, gap = drawn(step, plan.trajectory[k], plan.windows.y[k], jax.random.key(k))
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


def test_priors_far_outside_their_set_are_drawn_exactly():
    """Priors of step 1 lie up to ten radii outside K_1. The deterministic prior is 0 and does not show this."""
    runs, radius, deviation, data = 1 << 14, 0.2, 0.1, np.zeros((2, 1))
    mechanism = W2MHE(System(A=[[10.0]], C=[[1e-9]], start=(0.0,)), 0, 0.5, deviation**2, support="wide", radius=radius)
    assert max(mechanism.faithfulness(data).M) < 1.1
    z = np.asarray(mechanism(data, runs, np.random.default_rng(0)))[..., 0]
    line = np.linspace(-radius, radius, 4001)
    first = truncnorm(-2, 2, 0, deviation)
    assert kstest(z[:, 0], first.cdf).pvalue > 1e-3
    with np.errstate(divide="ignore"):
        log = -np.square(line - 10 * first.ppf((np.arange(500) + 0.5) / 500)[:, None]) / (2 * deviation**2)
    density = np.exp(log - log.max(1, keepdims=True))
    cdf = np.cumsum(density / density.sum(1, keepdims=True), 1).mean(0)
    assert kstest(z[:, 1], lambda v: np.interp(v, line, cdf)).pvalue > 1e-3
    assert kstest(z[:, 1], first.cdf).pvalue < 1e-3  # the distribution without the prior's shift is rejected


def test_priors_that_no_draw_can_follow_are_refused_and_never_nan():
    mechanism = W2MHE(System(A=[[1e12]], C=[[0.001]], start=(0.0,)), 0, 0.5, 0.01, support="wide", radius=0.2)
    with pytest.raises(InputError, match="can't be sampled exactly at"):
        mechanism(np.zeros((2, 1)), 64, np.random.default_rng(0))

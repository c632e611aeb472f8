"""What is said of the sampler: its envelope, what is flagged, refused or given up."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quadrature import QUADRATIC, rounded

from dpverify.errors import InputError, Warning
from dpverify.estimation import W2MHE, System, oscillator, simulate
from dpverify.estimation.horizon import stage_cost
from dpverify.mechanisms.validation import validate_output
from dpverify.util.arrays import enable_x64


def test_every_draw_lies_above_the_envelope_and_below_its_slack():
    """What the certificate promises, at points of the ball rather than in the proof."""
    system = oscillator()
    mechanism = W2MHE(system, 5, 0.8, 1.4e-5)
    data = simulate(system, np.random.default_rng(0)).data
    known = mechanism._plan(data)
    with enable_x64():
        cost = stage_cost(system, mechanism.problem.table)

        @jax.jit
        def drawn(step, prior, y, key):
            wide_kappa = 100.0  # far beyond the law: draws all over the ball
            spread = step._replace(root=step.root * np.sqrt(wide_kappa / mechanism.kappa))
            draw = spread.draw(jnp.tile(prior[:, None], 2000), key, mechanism.kappa, mechanism.tau)
            return draw, jax.vmap(cost, in_axes=(1, None))(draw.z, y) - draw.lower

        for k in range(4):
            step = jax.tree.map(lambda v, k=k: v[k], known.envelope)
            draw, gap = drawn(step, known.trajectory[k], known.y[k], jax.random.key(k))
            inside = np.linalg.norm(np.asarray(draw.z).T - known.ball.centre[k], axis=1) <= known.ball.radius[k]
            gap = np.asarray(gap)[inside]
            assert inside.sum() > 50
            assert gap.min() >= -1e-9
            assert (gap <= np.asarray(draw.slack)[inside] + 1e-9).all()
    assert max(known.faithfulness.M) < 1.01


def steep(x):
    return 60.0 * jnp.clip(x, -2.0, 2.0)


def test_without_interval_bounds_a_sampled_third_derivative_is_flagged():
    system = System(f=rounded, h=steep, start=(0.0,), lipschitz=2.0)
    mechanism = W2MHE(system, 0, 0.99, 1.0, support="wide", radius=0.4)
    with pytest.warns(Warning, match="sampled, not proved"):
        assert not mechanism._plan(np.array([[8.0]])).faithfulness.certified
    (remark,) = mechanism.remarks(np.array([[8.0]]))
    assert "sampled, not proved: f or h holds " in remark
    assert W2MHE(QUADRATIC, 0, 0.9, 1.0, support="wide", radius=0.8).remarks(np.array([[0.1, 0.2]])) == ()


def test_runs_that_are_given_up_are_nan_and_refused_at_the_door():
    """The prior is thrown ten times as far out as K_1 reaches: the deterministic one, at 0, does not show it."""
    system = System(A=[[10.0]], C=[[0.001]], start=(0.0,))
    mechanism, data = W2MHE(system, 0, 0.5, 0.01, support="wide", radius=0.2), np.zeros((2, 1))
    known = mechanism._plan(data).faithfulness
    assert known.certified
    assert max(known.M) < 1.1
    z = np.asarray(mechanism(data, 64, np.random.default_rng(0)))[..., 0]
    lost = np.isnan(z[:, 1])
    # the way back into K_1 is 10 |z| - .2, in deviations of .1; one in 2^15 is 4, and beyond 6 nothing comes back
    assert lost[np.abs(z[:, 0]) > 0.08].all()
    assert not lost[np.abs(z[:, 0]) < 0.05].any()
    with pytest.raises(InputError, match="NaN"):
        validate_output(z, 64)


def test_a_law_that_cannot_be_drawn_is_flagged():
    """The data pull far out of K_k, and nothing is known of the cost but that it is not negative."""
    system = System(f=rounded, h=steep, start=(0.0,), lipschitz=2.0)
    mechanism = W2MHE(system, 0, 0.999, 1e3, support="wide", radius=0.1)
    with pytest.warns(Warning, match="can't be drawn"):
        mechanism.faithfulness(np.array([[100.0]]))
    with pytest.raises(InputError, match="can't be drawn"):  # instead of never coming back
        mechanism(np.array([[100.0]]), 64, np.random.default_rng(0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mechanism.faithfulness(np.array([[100.0]]))  # said once for a data set

"""Reference implementations of the W2-MHE for bench_mhe.py: a plain JAX version, and the deterministic one in CasADi.

In the plain version every run solves its own problem at every step: four Gauss-Newton steps from the prediction, a
Gaussian proposal around the solution, and two steps of independence Metropolis. Its output does not have the exact
distribution (docs/method.md, section 7.3).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

GAUSS_NEWTON_STEPS = 4


def plain(system, window, s, tau):
    """Return a compiled function (key, runs, windows of data) -> estimates."""
    kappa = (1 - s) / s

    def residuals(z, y, prior):
        parts, x = [(z - prior) / jnp.sqrt(tau)], z
        for j in range(window + 1):
            parts.append(y[j] - system.h(x))
            x = system.f(x)
        return jnp.concatenate(parts)

    def cost(z, y, prior):
        return jnp.sum(jnp.square(residuals(z, y, prior))) / 2

    def one_run(key, y):
        def step(prior, inputs):
            rows, key = inputs
            z = prior
            for _ in range(GAUSS_NEWTON_STEPS):
                slope = jax.jacfwd(residuals)(z, rows, prior)
                z = z - jnp.linalg.solve(slope.T @ slope, slope.T @ residuals(z, rows, prior))
            factor = jnp.linalg.cholesky(slope.T @ slope)
            keys = jax.random.split(key, 5)

            def propose(key):
                """Return a proposal and the logarithm of its target density over its proposal density."""
                noise = jax.random.normal(key, z.shape)
                proposal = z + jnp.sqrt(kappa) * jax.scipy.linalg.solve_triangular(factor.T, noise)
                return proposal, jnp.sum(noise**2) / 2 - cost(proposal, rows, prior) / kappa

            current, weight = propose(keys[0])
            for i in (1, 3):
                other, other_weight = propose(keys[i])
                accepted = jnp.log(jax.random.uniform(keys[i + 1])) < other_weight - weight
                current, weight = jnp.where(accepted, other, current), jnp.where(accepted, other_weight, weight)
            return system.f(current), current[:2]

        keys = jax.random.split(key, len(y))
        return jax.lax.scan(step, jnp.asarray(system.start), (y, keys))[1]

    def block(key, runs, y):
        return jax.vmap(one_run, (0, None))(jax.random.split(key, runs), y)

    return jax.jit(block, static_argnums=1)


def casadi_sqp(system, window, tau):
    """Return a function from data to the deterministic trajectory; CasADi's SQP method solves one problem per step."""
    import casadi

    A, places = casadi.DM(np.array(system.A)), system.h.places
    z, prior, y = casadi.SX.sym("z", 4), casadi.SX.sym("prior", 4), casadi.SX.sym("y", (window + 1) * 2 * len(places))
    cost, x = casadi.sumsqr(z - prior) / (2 * tau), z
    for j in range(window + 1):
        h = casadi.vertcat(*(100 * casadi.tanh(0.1 * (x[i % 2] - q)) for i, q in enumerate(places.reshape(-1))))
        cost = cost + casadi.sumsqr(y[j * h.numel() : (j + 1) * h.numel()] - h) / 2
        x = A @ x
    options = {
        "qpsol": "qrqp",
        "print_header": False,
        "print_iteration": False,
        "print_status": False,
        "print_time": False,
        "qpsol_options": {"print_iter": False, "print_header": False, "print_info": False},
    }
    solver = casadi.nlpsol("mhe", "sqpmethod", {"x": z, "p": casadi.vertcat(prior, y), "f": cost}, options)

    def trajectory(data):
        estimates, prediction = [], np.array(system.start)
        for k in range(len(data) - window):
            solution = solver(x0=prediction, p=np.concatenate([prediction, data[k : k + window + 1].reshape(-1)]))
            estimates.append(np.array(solution["x"]).reshape(-1))
            prediction = np.array(system.A) @ estimates[-1]
        return np.array(estimates)

    return trajectory

"""The W2-MHE as one would write it first: what the faithful sampler is measured against.

Every run solves its own problem at every step: four Gauss-Newton steps from the prediction, a Gaussian proposal around
what they find, and two proposals of independence Metropolis. That is not the law (docs/method.md, section 7.3).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np


def plain(system, window, s, tau):
    """(key, runs, y) -> estimates; jitted and vmapped over runs."""
    kappa = (1 - s) / s

    def residuals(z, y, prior):
        parts, x = [(z - prior) / jnp.sqrt(tau)], z
        for j in range(window + 1):
            parts.append(y[j] - system.h(x))
            x = system.f(x)
        return jnp.concatenate(parts)

    def cost(z, y, prior):
        return jnp.sum(jnp.square(residuals(z, y, prior))) / 2

    def one(key, y):
        def step(prior, at):
            rows, key = at
            z = prior
            for _ in range(4):
                slope = jax.jacfwd(residuals)(z, rows, prior)
                z = z - jnp.linalg.solve(slope.T @ slope, slope.T @ residuals(z, rows, prior))
            factor = jnp.linalg.cholesky(slope.T @ slope)
            keys = jax.random.split(key, 5)

            def proposed(key):
                noise = jax.random.normal(key, z.shape)
                at = z + jnp.sqrt(kappa) * jax.scipy.linalg.solve_triangular(factor.T, noise)
                return at, jnp.sum(noise**2) / 2 - cost(at, rows, prior) / kappa  # log target - log proposal

            current, weight = proposed(keys[0])
            for i in (1, 3):
                other, other_weight = proposed(keys[i])
                moved = jnp.log(jax.random.uniform(keys[i + 1])) < other_weight - weight
                current, weight = jnp.where(moved, other, current), jnp.where(moved, other_weight, weight)
            return system.f(current), current[:2]

        keys = jax.random.split(key, len(y))
        return jax.lax.scan(step, jnp.asarray(system.start), (y, keys))[1]

    def block(key, runs, y):
        return jax.vmap(one, (0, None))(jax.random.split(key, runs), y)

    return jax.jit(block, static_argnums=1)


def casadi_sqp(system, window, tau):
    """(data) -> the deterministic trajectory by CasADi's SQP method, one problem a step."""
    import casadi

    A, places = casadi.DM(np.array(system.A)), system.h.places
    z, prior, y = casadi.SX.sym("z", 4), casadi.SX.sym("prior", 4), casadi.SX.sym("y", (window + 1) * 2 * len(places))
    cost, x = casadi.sumsqr(z - prior) / (2 * tau), z
    for j in range(window + 1):
        h = casadi.vertcat(*(100 * casadi.tanh(0.1 * (x[i % 2] - q)) for i, q in enumerate(places.reshape(-1))))
        cost = cost + casadi.sumsqr(y[j * h.numel() : (j + 1) * h.numel()] - h) / 2
        x = A @ x
    quiet = {
        "qpsol": "qrqp",
        "print_header": False,
        "print_iteration": False,
        "print_status": False,
        "print_time": False,
    }
    options = quiet | {"qpsol_options": {"print_iter": False, "print_header": False, "print_info": False}}
    solver = casadi.nlpsol("mhe", "sqpmethod", {"x": z, "p": casadi.vertcat(prior, y), "f": cost}, options)

    def trajectory(data):
        found, m = [], np.array(system.start)
        for k in range(len(data) - window):
            answer = solver(x0=m, p=np.concatenate([m, data[k : k + window + 1].reshape(-1)]))
            found.append(np.array(answer["x"]).reshape(-1))
            m = np.array(system.A) @ found[-1]
        return np.array(found)

    return trajectory

"""The KL-MHE, particle sibling of the W2-MHE (docs/method.md, section 7.8).

Without regularisation its law is d mu_k ~ e^{-J_k} d(f0#mu_{k-1}): the minimiser of E[J_k] + KL(mu | f0#mu_{k-1}). With
the entropy factor s it minimises s (E[J_k] + KL(mu | nu)) - (1 - s) Entropy(mu), nu = f0#mu_{k-1}. The terms with
log mu add up to s + (1 - s) = 1 of them, so the minimiser is (e^{-J_k} nu)^s, normalised: s = 1 is the law above,
s = 0 uniform, and in between what was learned j steps ago counts by s^j once more.
"""

from __future__ import annotations

import functools
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpverify.errors import InputError
from dpverify.estimation.blocks import device_block, measurement_weights, one_of, positive, recorded, share, whole
from dpverify.estimation.horizon import SPANS
from dpverify.estimation.small import log_volume
from dpverify.estimation.system import System
from dpverify.mechanisms.wrappers import jax_key
from dpverify.util.arrays import enable_x64

TOGETHER = 1 << 14  # particles that are evaluated at once: what a processor's cache holds


@dataclass(frozen=True)
class KLMHE:
    """Particles, evenly from the ball K_0 around the start, weighted for mu_k; released is one drawn by its weight.

    A run has particles of its own. What is released at step k = 0..T - window is *one* particle, drawn anew at each
    step: its law is mu_k as the particles grow many. (The mean would be random only by the finite number of particles:
    more of them, less privacy, down to none.) `span` and `weights` shape the cost as in `W2MHE`; `diameter` is K_0's.
    """

    system: System
    window: int
    s: float
    _: KW_ONLY
    particles: int = 256
    span: str = "closed"
    weights: tuple[float, ...] | None = None
    diameter: float = 0.1
    name: str = "KL-MHE"

    def __post_init__(self) -> None:
        share("s", self.s)
        object.__setattr__(self, "window", whole("window", self.window))
        object.__setattr__(self, "particles", whole("particles", self.particles, 1))
        object.__setattr__(self, "weights", measurement_weights(self.system, self.weights))
        one_of("span", self.span, SPANS)
        positive("diameter", self.diameter, "that of K_0")
        if self.system.A is not None and np.linalg.matrix_rank(np.asarray(self.system.A)) < self.system.states:
            raise InputError(
                "found a singular A; expected an invertible step, or the law has no density to be tempered"
            )

    @property
    def block(self) -> int:
        return device_block() >> 3  # a run holds hundreds of particles

    def log_weights(self, starts: Any, data: Any, s: Any) -> tuple[Any, Any]:
        """Trajectories (T + 1, M, n) of particles that start at `starts`, and their log weights (K, M) for each mu_k.

        With f0 invertible a particle carries the density of its law exactly, up to a constant: mu_k(z_k) =
        (e^{-J_k(z_k)} mu_{k-1}(z_{k-1}) / D_{k-1})^s, D = |det Df0|. No resampling: with no noise in f0 it would only
        lose points. As the starts are even in K_0, the weight is mu_k(z_k) D_0 .. D_{k-1}.
        """
        system, first = self.system, int(self.span == "open")

        def step(z: Any, y: Any) -> tuple[Any, tuple[Any, Any, Any]]:
            residual = y - jax.vmap(system.h)(z)
            cost = jnp.square(residual) @ jnp.asarray(self.weights) / 2
            volume = jnp.zeros(len(z))  # constant where f is linear, and constants cancel
            if system.A is None:
                volume = jax.vmap(lambda x: log_volume(jax.jacfwd(system.f)(x)))(z)
            return jax.vmap(system.f)(z), (z, cost, volume)

        _, (paths, costs, volumes) = jax.lax.scan(step, starts, data)
        log_density, grown, rows = 0.0, 0.0, []
        for k in range(len(data) - self.window):
            J = costs[k + first : k + self.window + 1].sum(0)
            log_density = s * (log_density - (volumes[k - 1] if k else 0.0) - J)
            grown = grown + (volumes[k - 1] if k else 0.0)
            rows.append(log_density + grown)
        return paths, jnp.stack(rows)

    def effective(self, data: Any, rng: np.random.Generator) -> np.ndarray:
        """How many equally weighted particles one run's are worth, at each step; below about 20, take more of them."""
        with enable_x64():
            y = recorded(self.system, data, self.window + 1)
            return np.asarray(_effective(replace(self, s=1.0, name=""), self.s, y, jax_key(rng)))

    def __call__(self, data: Any, runs: int, rng: np.random.Generator) -> Any:
        with enable_x64():
            y = recorded(self.system, data, self.window + 1)
            plain = replace(self, s=1.0, name="")  # one compilation for all s
            if not bool(_is_finite(plain, y)):
                raise InputError(
                    "found NaN or infinity in f or h on the way from start; expected finite numbers around the "
                    "trajectory; mend them, or compare data and start with the model"
                )
            return _particle_runs(plain, self.s, y, jax_key(rng), runs)


def _starts(mhe: KLMHE, key: Any) -> Any:
    """Even in the ball: a direction, and a radius whose n-th power is even (far cheaper than `jax.random.ball`)."""
    n, (where, far) = mhe.system.states, jax.random.split(key)
    direction = jax.random.normal(where, (mhe.particles, n))
    direction = direction / jnp.linalg.norm(direction, axis=1, keepdims=True)
    radius = jax.random.uniform(far, (mhe.particles, 1)) ** (1 / n)
    return jnp.asarray(mhe.system.start) + mhe.diameter / 2 * radius * direction


@functools.partial(jax.jit, static_argnums=0)
def _is_finite(mhe: KLMHE, data: Any) -> Any:
    return jnp.isfinite(mhe.log_weights(jnp.asarray(mhe.system.start)[None], data, 1.0)[1]).all()


@functools.partial(jax.jit, static_argnums=0)
def _effective(mhe: KLMHE, s: Any, data: Any, key: Any) -> Any:
    weights = jax.nn.softmax(mhe.log_weights(_starts(mhe, key), data, s)[1], axis=1)
    return 1 / jnp.square(weights).sum(1)


@functools.partial(jax.jit, static_argnums=(0, 4))
def _particle_runs(mhe: KLMHE, s: Any, data: Any, key: Any, runs: int) -> Any:
    def one(key: Any) -> Any:
        where, which = jax.random.split(key)
        paths, weights = mhe.log_weights(_starts(mhe, where), data, s)
        chosen = jax.random.categorical(which, weights, axis=1)
        drawn = paths[jnp.arange(len(weights)), chosen][:, jnp.asarray(mhe.system.released)]
        return jnp.where(jnp.isnan(weights).any(1, keepdims=True), jnp.nan, drawn)  # for the door to see

    return jax.lax.map(one, jax.random.split(key, runs), batch_size=max(1, TOGETHER // mhe.particles))

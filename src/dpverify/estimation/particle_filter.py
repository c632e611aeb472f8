"""A bootstrap particle filter, whose own sampling and resampling is the only noise (docs/method.md, section 7.9)."""

from __future__ import annotations

import functools
from dataclasses import KW_ONLY, dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from dpverify.estimation.devices import default_block
from dpverify.estimation.extended_filter import whitener
from dpverify.estimation.particle import PARTICLES_PER_BATCH
from dpverify.estimation.system import System
from dpverify.estimation.validation import check_covariance, check_data, check_integer
from dpverify.mechanisms.wrappers import jax_key
from dpverify.util.arrays import enable_x64
from dpverify.util.checks import check_choice

RELEASES = ("mean", "particle")


@dataclass(frozen=True)
class ParticleFilter:
    """A bootstrap particle filter as a mechanism: data (T + 1, measurements) -> estimates (runs, T + 1, d).

    Every run draws its own particles from the initial distribution, weights them with the Gaussian likelihood of each
    reading, resamples them and moves them with the disturbance. This randomness is the only noise of the output. With
    release "mean" it is the error of a finite number of particles: more particles are more accurate and less private.
    With release "particle" one particle is drawn by its weight at each step; its distribution tends to the posterior.

    Parameters
    ----------
    system : System
        The model of the data, linear or not. Particles are moved with its `disturbance`.
    particles : int
        Number of particles per run.
    release : {"mean", "particle"}
        What is released at each step: the weighted mean, or one particle.
    measurement : array_like, optional
        The covariance of the Gaussian likelihood; by default that of the system's noise.
    name : str
        Name in reports.

    Examples
    --------
    >>> import numpy as np
    >>> from dpverify.estimation import Normal, ParticleFilter, System
    >>> spread = {"noise": Normal(1.0), "disturbance": Normal(0.3), "initial": Normal(1.0)}
    >>> walk = System(A=[[1.0]], C=[[1.0]], start=(0.0,), **spread)
    >>> ParticleFilter(walk, particles=50)(np.zeros((4, 1)), 16, np.random.default_rng(0)).shape
    (16, 4, 1)
    """

    system: System
    particles: int = 100
    _: KW_ONLY
    release: str = "mean"
    measurement: ArrayLike | None = None
    name: str = "particle filter"

    def __post_init__(self) -> None:
        object.__setattr__(self, "particles", check_integer("particles", self.particles, 1))
        check_choice("release", self.release, RELEASES)
        system = self.system
        R = check_covariance("measurement", self.measurement, system.noise.variance, system.measurements, definite=True)
        object.__setattr__(self, "measurement", R)

    @property
    def block(self) -> int:
        """The number of runs per block; smaller than for other mechanisms, as a run has many particles."""
        return default_block() >> 3

    def __call__(self, data: object, runs: int, rng: np.random.Generator) -> jax.Array:
        with enable_x64():
            y = check_data(self.system, data)
            return _filter_runs(replace(self, name=""), y, jax_key(rng), runs)


@functools.partial(jax.jit, static_argnums=(0, 3))
def _filter_runs(mechanism: ParticleFilter, data: jax.Array, key: jax.Array, runs: int) -> jax.Array:
    """Draw the outputs of many runs, in batches of runs."""
    system, M = mechanism.system, mechanism.particles
    whiten, released = whitener(mechanism.measurement), jnp.asarray(system.released)

    def step(particles: jax.Array, inputs: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
        y, uniform, shock = inputs
        residuals = jax.vmap(lambda x: whiten(y - system.h(x)))(particles)
        weights = jax.nn.softmax(-0.5 * jnp.square(residuals).sum(1))
        if mechanism.release == "mean":
            output = weights @ particles[:, released]
        else:
            output = particles[draw_by_weight(weights, uniform[:1])[0]][released]
        chosen = particles[draw_by_weight(weights, (jnp.arange(M) + uniform[1]) / M)]  # systematic resampling
        return jax.vmap(system.f)(chosen) + shock, output

    def draw_run(run_key: jax.Array) -> jax.Array:
        start_key, uniform_key, shock_key = jax.random.split(run_key, 3)
        starts = jnp.asarray(system.start) + system.initial.sample(start_key, (M, system.states))
        uniforms = jax.random.uniform(uniform_key, (len(data), 2))
        shocks = system.disturbance.sample(shock_key, (len(data), M, system.states))
        return jax.lax.scan(step, starts, (data, uniforms, shocks))[1]

    return jax.lax.map(draw_run, jax.random.split(key, runs), batch_size=max(1, PARTICLES_PER_BATCH // M))


def draw_by_weight(weights: jax.Array, positions: jax.Array) -> jax.Array:
    """Return the index of the particle at each position between 0 and 1 of the cumulative weights.

    With equally spaced positions, particle i is drawn floor(M w_i) or ceil(M w_i) times.
    """
    cumulative = jnp.cumsum(weights)
    return jnp.minimum(jnp.searchsorted(cumulative, positions * cumulative[-1]), len(weights) - 1)

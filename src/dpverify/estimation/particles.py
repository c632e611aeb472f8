"""A bootstrap particle filter, whose own sampling and resampling is the only noise (docs/method.md, section 7.9)."""

from __future__ import annotations

import functools
from dataclasses import KW_ONLY, dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from dpverify.errors import InputError
from dpverify.estimation.ekf import log_abs_determinant, whitener
from dpverify.estimation.moving_horizon import SPANS
from dpverify.estimation.system import (
    System,
    check_covariance,
    check_data,
    check_noise_parameter,
    check_positive,
    compiles_for_cpu,
    default_block,
    host_device,
    measurement_weights,
)
from dpverify.mechanisms.wrappers import jax_key
from dpverify.util.arrays import enable_x64
from dpverify.util.checks import check_choice, check_whole_number

PARTICLES_PER_BATCH = 1 << 14  # particles that are evaluated together: what fits into the cache of a CPU
PARTICLES_PER_DEVICE_BATCH = 1 << 23  # what fills an accelerator; about two gigabytes


@dataclass(frozen=True)
class KLMHE:
    """The KL-MHE as a mechanism: data (T + 1, measurements) -> estimates (runs, T + 1 - window, d).

    Every run draws its own particles uniformly from the ball K_0 around the start and weights them for mu_k. The
    release of step k = 0, ..., T - window is *one* particle, drawn anew at each step by the weights; its distribution
    tends to mu_k as the number of particles grows. The mean of the particles would not do: it is random only through
    the finite number of particles, so that more particles would mean less privacy.

    Parameters
    ----------
    system : System
        The model of the data; its step must be invertible.
    window : int
        N, the number of steps that an estimate looks ahead.
    s : float
        Entropy factor, from 0 (uniform) to 1 (no regularisation).
    particles : int
        Number of particles per run.
    span : {"closed", "open"}
        Whether step k uses y_k, ..., y_{k+N} ("closed") or y_{k+1}, ..., y_{k+N} ("open").
    weights : tuple of float, optional
        Weight of the squared residual of each measurement; 1 by default.
    diameter : float
        Diameter of K_0, in units of the state.
    name : str
        Name in reports.

    References
    ----------
    docs/method.md, section 7.8.

    Examples
    --------
    >>> from dpverify.estimation import KLMHE, oscillator
    >>> KLMHE(oscillator(), window=5, s=0.8).particles
    256
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
        check_noise_parameter("s", self.s)
        object.__setattr__(self, "window", check_whole_number("window", self.window))
        object.__setattr__(self, "particles", check_whole_number("particles", self.particles, 1))
        object.__setattr__(self, "weights", measurement_weights(self.system, self.weights))
        check_choice("span", self.span, SPANS)
        check_positive("diameter", self.diameter, "the diameter of K_0")
        if self.system.A is not None and np.linalg.matrix_rank(np.asarray(self.system.A)) < self.system.states:
            raise InputError(
                "system: found a singular A; expected an invertible step, because the predicted distribution needs a "
                "density"
            )

    @property
    def block(self) -> int:
        """The number of runs per block; smaller than for other mechanisms, as a run has hundreds of particles."""
        return default_block() >> (3 if compiles_for_cpu() else 6)

    def log_weights(self, starts: jax.Array, data: jax.Array, s: float) -> tuple[jax.Array, jax.Array]:
        """Return released states (K, d, M) of particles from `starts` (n, M), and their log weights (K, M) for mu_k.

        With f0 invertible, a particle carries the density of its distribution exactly, up to a constant:
        mu_k(z_k) = (e^{-J_k(z_k)} mu_{k-1}(z_{k-1}) / D_{k-1})^s, D = |det Df0|. There is no resampling: f0 has no
        noise, so that resampling would only lose points. As the starts are uniform on K_0, the weight is
        mu_k(z_k) D_0 .. D_{k-1}. The particles are on the last axis, which is the faster layout.
        """
        system, first, weights = self.system, int(self.span == "open"), jnp.asarray(self.weights)[:, None]
        h, f = (jax.vmap(function, in_axes=(-1, None), out_axes=-1) for function in (system.measure, system.step))

        def step(z: jax.Array, inputs: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, tuple[jax.Array, ...]]:
            k, y = inputs
            cost = jnp.sum(weights * jnp.square(y[:, None] - h(z, k)), 0) / 2
            log_volume = jnp.zeros(z.shape[1])  # it is constant where f is linear, and constants cancel
            if system.A is None:
                log_volume = jax.vmap(lambda x: log_abs_determinant(jax.jacfwd(system.step)(x, k)), in_axes=-1)(z)
            return f(z, k), (z[jnp.asarray(system.released)], cost, log_volume)

        _, (paths, costs, log_volumes) = jax.lax.scan(step, starts, (jnp.arange(len(data)), data))
        log_density, log_growth, rows = 0.0, 0.0, []
        for k in range(len(data) - self.window):
            J = costs[k + first : k + self.window + 1].sum(0)
            log_density = s * (log_density - (log_volumes[k - 1] if k else 0.0) - J)
            log_growth = log_growth + (log_volumes[k - 1] if k else 0.0)
            rows.append(log_density + log_growth)
        return paths[: len(rows)], jnp.stack(rows)

    def effective(self, data: object, rng: np.random.Generator) -> np.ndarray:
        """Return the effective sample size of one run's particles at each step; below about 20, use more particles."""
        with enable_x64():
            y = check_data(self.system, data, self.window + 1)
            return np.asarray(_effective_sample_size(replace(self, s=1.0, name=""), self.s, y, jax_key(rng)))

    def __call__(self, data: object, runs: int, rng: np.random.Generator) -> jax.Array:
        with enable_x64():
            y = check_data(self.system, data, self.window + 1)
            static = replace(self, s=1.0, name="")  # one compilation for all s
            if not _is_finite(static, y.shape, y.tobytes()):
                raise InputError(
                    "data: found NaN or infinity in f or h along the trajectory from start; expected finite numbers "
                    "around it; fix f or h, or compare data and start with the model"
                )
            batch = PARTICLES_PER_BATCH if compiles_for_cpu() else PARTICLES_PER_DEVICE_BATCH
            return _particle_runs(static, self.s, y, jax_key(rng), runs, batch)


def _uniform_starts(mhe: KLMHE, key: jax.Array) -> jax.Array:
    """Draw particles uniformly from K_0: a direction, and a radius whose n-th power is uniform.

    This is far cheaper than `jax.random.ball`.
    """
    n, (direction_key, radius_key) = mhe.system.states, jax.random.split(key)
    direction = jax.random.normal(direction_key, (mhe.particles, n))
    direction = direction / jnp.linalg.norm(direction, axis=1, keepdims=True)
    radius = jax.random.uniform(radius_key, (mhe.particles, 1)) ** (1 / n)
    return jnp.asarray(mhe.system.start) + mhe.diameter / 2 * radius * direction


@functools.lru_cache(maxsize=64)
def _is_finite(mhe: KLMHE, shape: tuple[int, ...], data: bytes) -> bool:
    """Return whether the weight of the start is finite for a dataset, given as bytes: the key of a cache."""
    with host_device():
        start, y = jnp.asarray(mhe.system.start)[:, None], jnp.asarray(np.frombuffer(data).reshape(shape))
        return bool(jnp.isfinite(jax.jit(mhe.log_weights)(start, y, 1.0)[1]).all())


@functools.partial(jax.jit, static_argnums=0)
def _effective_sample_size(mhe: KLMHE, s: float, data: jax.Array, key: jax.Array) -> jax.Array:
    weights = jax.nn.softmax(mhe.log_weights(_uniform_starts(mhe, key).T, data, s)[1], axis=1)
    return 1 / jnp.square(weights).sum(1)


@functools.partial(jax.jit, static_argnums=(0, 4, 5))
def _particle_runs(
    mhe: KLMHE, s: float, data: jax.Array, key: jax.Array, runs: int, particles_per_batch: int
) -> jax.Array:
    """Draw the runs in batches: each run has its own key, and the particles of a batch are evaluated together."""

    def draw_batch(keys: jax.Array) -> jax.Array:
        start_keys, index_keys = jnp.moveaxis(jax.vmap(jax.random.split)(keys), 1, 0)
        starts = jax.vmap(functools.partial(_uniform_starts, mhe))(start_keys)  # (batch, particles, n)
        # The barrier prevents a compiler from drawing the same particles once more for each measurement.
        columns = jax.lax.optimization_barrier(jnp.moveaxis(starts, 2, 0).reshape(starts.shape[2], -1))
        paths, log_weights = mhe.log_weights(columns, data, s)
        shape = (log_weights.shape[0], keys.shape[0], mhe.particles)
        log_weights = jnp.moveaxis(log_weights.reshape(shape), 1, 0)  # (batch, K, particles)
        index = jax.vmap(lambda key, logits: jax.random.categorical(key, logits, axis=1))(index_keys, log_weights)
        column = index + mhe.particles * jnp.arange(keys.shape[0])[:, None]
        drawn = jnp.stack([path[:, column[:, k]].T for k, path in enumerate(paths)], axis=1)
        # NaN in any weight makes the output NaN, which the validation of outputs then reports.
        return jnp.where(jnp.isnan(log_weights).any(2)[..., None], jnp.nan, drawn)

    keys = jax.random.split(key, runs)
    batch = min(runs, max(1, particles_per_batch // mhe.particles))
    whole = runs // batch * batch
    drawn = jax.lax.map(draw_batch, keys[:whole].reshape(-1, batch)).reshape(whole, -1, len(mhe.system.released))
    return drawn if whole == runs else jnp.concatenate([drawn, draw_batch(keys[whole:])])


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
        object.__setattr__(self, "particles", check_whole_number("particles", self.particles, 1))
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
        k, y, uniform, shock = inputs
        residuals = jax.vmap(lambda x: whiten(y - system.measure(x, k)))(particles)
        weights = jax.nn.softmax(-0.5 * jnp.square(residuals).sum(1))
        if mechanism.release == "mean":
            output = weights @ particles[:, released]
        else:
            output = particles[draw_by_weight(weights, uniform[:1])[0]][released]
        chosen = particles[draw_by_weight(weights, (jnp.arange(M) + uniform[1]) / M)]  # systematic resampling
        return jax.vmap(lambda x, w: system.step(x, k, w))(chosen, shock), output

    def draw_run(run_key: jax.Array) -> jax.Array:
        start_key, uniform_key, shock_key = jax.random.split(run_key, 3)
        starts = jnp.asarray(system.start) + system.initial.sample(start_key, (M, system.states))
        uniforms = jax.random.uniform(uniform_key, (len(data), 2))
        shocks = system.disturbance.sample(shock_key, (len(data), M, system.noise_size("f")))
        return jax.lax.scan(step, starts, (jnp.arange(len(data)), data, uniforms, shocks))[1]

    return jax.lax.map(draw_run, jax.random.split(key, runs), batch_size=max(1, PARTICLES_PER_BATCH // M))


def draw_by_weight(weights: jax.Array, positions: jax.Array) -> jax.Array:
    """Return the index of the particle at each position between 0 and 1 of the cumulative weights.

    With equally spaced positions, particle i is drawn floor(M w_i) or ceil(M w_i) times.
    """
    cumulative = jnp.cumsum(weights)
    return jnp.minimum(jnp.searchsorted(cumulative, positions * cumulative[-1]), len(weights) - 1)

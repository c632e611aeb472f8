"""The private extended Kalman filter, and linear algebra for matrices of the size of a state.

The filter is written for one run and vmapped. The algorithms on matrices are written as vector operations instead of
calls of BLAS and LAPACK, for two reasons. A batched call costs more than the few operations that a 4 x 4 matrix needs,
and it cannot be fused with the operations around it. And on a CPU it uses the same threads that execute the compiled
program, so that two blocks drawn in two threads can wait for each other forever.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from dpverify.errors import InputError
from dpverify.estimation.system import (
    System,
    arguments_of,
    bind_parameters,
    check_data,
    check_noise_parameter,
    default_block,
    finite_estimate,
    freeze_covariances,
    log_uniform,
    split_parameters,
)
from dpverify.mechanisms.wrappers import jax_key
from dpverify.util.arrays import enable_x64
from dpverify.util.checks import check_choice, check_whole_number

PIVOT_TOLERANCE = 1e-14  # a pivot below this fraction of its diagonal entry counts as rounding error
RUNS_IN_CACHE = 128  # the measurements of so many runs stay in the cache of a processor core


def product(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return `a @ b` for two small matrices."""
    terms = [a[:, k, None] * b[None, k] for k in range(a.shape[1])]
    return sum(terms[1:], terms[0])


def cholesky_factor(matrix: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return (L, 1 / diagonal of L) with matrix = L L' and L lower triangular.

    The matrix must be positive semidefinite. A zero pivot gives a zero column and the inverse 0.
    """
    columns: list[jax.Array] = []
    inverses: list[jax.Array] = []
    for j in range(matrix.shape[0]):
        column = matrix[:, j] - sum(previous * previous[j] for previous in columns)
        positive = column[j] > PIVOT_TOLERANCE * matrix[j, j]
        inverses.append(jnp.where(positive, jax.lax.rsqrt(jnp.where(positive, column[j], 1.0)), 0.0))
        columns.append(jnp.where(np.arange(matrix.shape[0]) >= j, column * inverses[j], 0.0))
    return jnp.stack(columns, axis=1), jnp.stack(inverses)


def forward_substitution(factor: jax.Array, inverse: jax.Array, right: jax.Array) -> jax.Array:
    """Return factor^-1 right for a factor and its inverse diagonal, as `cholesky_factor` returns them."""
    rows: list[jax.Array] = []
    for i in range(len(inverse)):
        rows.append((right[i] - sum(factor[i, k] * row for k, row in enumerate(rows))) * inverse[i])
    return jnp.stack(rows)


def backward_substitution(factor: jax.Array, inverse: jax.Array, right: jax.Array) -> jax.Array:
    """Return factor'^-1 right."""
    return forward_substitution(factor.T[::-1, ::-1], inverse[::-1], right[::-1])[::-1]


def posterior_covariance(prior: jax.Array, information: jax.Array) -> jax.Array:
    """Return (prior^-1 + information)^-1, computed as L (I + L' information L)^-1 L' with prior = L L'.

    The prior covariance is not inverted, so it may be singular.
    """
    factor, _ = cholesky_factor(prior)
    inner, inverse = cholesky_factor(jnp.eye(prior.shape[0]) + product(factor.T, product(information, factor)))
    solved = forward_substitution(inner, inverse, factor.T)
    return product(solved.T, solved)


def log_abs_determinant(jacobian: jax.Array) -> jax.Array:
    """Return log |det jacobian|; it is infinite where the matrix is singular."""
    return -jnp.log(cholesky_factor(product(jacobian.T, jacobian))[1]).sum()


def whitener(measurement: ArrayLike | None) -> Callable[[jax.Array], jax.Array]:
    """Return the map that turns residuals with this covariance into residuals with covariance I."""
    R = np.asarray(measurement)
    if np.array_equal(R, np.diag(np.diag(R))):
        deviations = np.sqrt(np.diag(R))
        return lambda r: r / deviations
    inverse: Any = np.linalg.inv(np.linalg.cholesky(R))
    return lambda r: inverse @ r


@dataclass(frozen=True)
class PrivateEKF:
    """The paper's private extended Kalman filter: each update adds (1 - s_hat)/s_hat * w, w uniform on [0, 1]^n.

    The noise enters the state and therefore all later estimates, or the estimates alone. Its mean is
    (1 - s_hat)/(2 s_hat) and not 0, so that it biases the estimates; this is the paper's definition. The filter starts
    at `system.start` and updates with y_0 before its first prediction.

    Parameters
    ----------
    system : System
        The model of the data.
    s_hat : float
        Amount of noise, above 0 and at most 1; 1 is the filter without noise.
    window : int
        0 releases all steps k = 0, ..., T. N releases the first T + 1 - N steps, which are those of a moving-horizon
        estimator with this window, so that both can be compared on the same events.
    process, measurement, initial : array_like, optional
        The covariances Q, R and P0 of the filter: a number, one variance per coordinate, or a matrix, in squared units
        of the state and of the measurements. By default those of the system's distributions. R must be positive
        definite.
    name : str
        Name in reports.
    where : {"state", "output"}
        Whether the noise is fed back into the filter, as in the paper, or added to the released estimates. Fed
        back, it can drive a filter of small states out of the domain of f and h.

    References
    ----------
    docs/method.md, sections 3 and 7.6.

    Examples
    --------
    >>> from dpverify.estimation import Normal, PrivateEKF, System
    >>> system = System(A=[[1.0]], C=[[1.0]], start=(0.0,), noise=Normal(0.5), initial=Normal(1.0))
    >>> PrivateEKF(system, s_hat=0.9).measurement
    ((0.25,),)
    """

    system: System
    s_hat: float
    window: int = 0
    process: ArrayLike | None = None
    measurement: ArrayLike | None = None
    initial: ArrayLike | None = None
    name: str = "private EKF"
    where: str = "state"

    def __post_init__(self) -> None:
        check_noise_parameter("s_hat", self.s_hat, positive=True)
        check_choice("where", self.where, ("state", "output"))
        object.__setattr__(self, "window", check_whole_number("window", self.window))
        freeze_covariances(self)

    @property
    def block(self) -> int:
        """The number of runs per block."""
        return default_block()

    @functools.cached_property
    def noise_free(self) -> PrivateEKF:
        """The filter without noise. It is the static argument of compiled code, which thus serves all s_hat."""
        return replace(self, s_hat=1.0, name="", where="state")

    def estimate(self, data: jax.Array) -> jax.Array:
        """Return the released estimates without noise, (K, d): pure JAX, can be vmapped over data."""
        steps = data.shape[0] - self.window
        return self.filtered(data, jnp.zeros((steps, self.system.states)))

    def filtered(self, data: jax.Array, shocks: jax.Array, states: jax.Array | None = None) -> jax.Array:
        """Return the released estimates of one run in which update k adds shocks[k] to the state.

        If the states of another run are given, each update starts from the state of that run before it.
        """
        system, n, fixed_whitener = self.system, self.system.states, whitener(self.measurement)
        released, observed = np.asarray(system.released), np.asarray(system.observed)
        # The columns of the other states are 0. To compute them takes 1.5 times as long with the paper's sensors.
        directions = jnp.eye(n)[observed]

        def update_and_predict(
            prior: tuple[jax.Array, jax.Array], inputs: tuple[jax.Array, jax.Array, jax.Array, jax.Array | None]
        ) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
            (x, P), (k, y, shock, given) = prior, inputs
            whiten = fixed_whitener
            if "v" in arguments_of(system.h):  # the noise is not added: its covariance depends on the state
                factor = cholesky_factor(system.noise_covariance("h", self.measurement, x, k))
                whiten = functools.partial(forward_substitution, *factor)
            measured, derivative = jax.linearize(lambda z: whiten(system.measure(z, k)), x)
            columns = jax.vmap(derivative)(directions)
            # The barriers prevent a compiler from computing h and the gain once more for each number that needs them.
            *columns, innovation = jax.lax.optimization_barrier([*columns, whiten(y) - measured])
            sums = jnp.stack([jnp.stack([(a * b).sum() for a in columns]) for b in [*columns, innovation]])
            information = jnp.zeros((n, n)).at[np.ix_(observed, observed)].set(sums[:-1])
            vector = jnp.zeros(n).at[observed].set(sums[-1])
            P = posterior_covariance(P, information)
            x, P = jax.lax.optimization_barrier((x + product(P, vector[:, None])[:, 0] + shock, P))
            estimate, x = x, x if given is None else given
            if system.A is None or system.B is not None:
                predicted, F = system.step(x, k), jax.jacfwd(system.step)(x, k)
            else:
                F = jnp.asarray(system.A, float)
                predicted = product(F, x[:, None])[:, 0]
            Q = system.noise_covariance("f", self.process, x, k)
            return (predicted, product(product(F, P), F.T) + Q), estimate[released]

        start = jnp.asarray(system.start), jnp.asarray(self.initial)
        inputs = jnp.arange(len(shocks)), data[: len(shocks)], shocks, states
        return jax.lax.scan(update_and_predict, start, inputs)[1]

    @property
    def log_density(self) -> Callable[[object, jax.Array], jax.Array]:
        """If all states are released, or the noise is on the output: `log_density(data, samples)`, but for a constant.

        The released estimates then determine the noise of every step, which is uniform. If some states are hidden,
        their noise is not known, and there is no method.
        """
        is_determined = self.where == "output" or sorted(self.system.released) == list(range(self.system.states))
        if self.s_hat == 1 or not is_determined:
            raise AttributeError("log_density")
        return self._log_density

    def _log_density(self, data: object, samples: jax.Array) -> jax.Array:
        with enable_x64():
            y = check_data(self.system, data, self.window + 1)
            template, parameters = split_parameters(self.noise_free)
            if self.where == "output":
                noise = samples - finite_estimate(self.noise_free, y)
            else:
                noise = _ekf_noise(template, parameters, y, jnp.asarray(samples, float))
            return log_uniform(2 * noise * self.s_hat / (1 - self.s_hat) - 1)

    def __call__(self, data: object, runs: int, rng: np.random.Generator) -> jax.Array:
        with enable_x64():
            y = check_data(self.system, data, self.window + 1)
            finite_estimate(self.noise_free, y)
            template, parameters = split_parameters(self.noise_free)
            scale = (1 - self.s_hat) / self.s_hat
            estimates, is_finite = _ekf_runs(template, parameters, scale, self.where, y, jax_key(rng), runs)
            if not is_finite:
                raise InputError(
                    f"s_hat: found runs that the noise of {self.s_hat} drives to NaN or infinity in f or h; expected f "
                    'and h that are finite there; choose a larger s_hat, or where="output"'
                )
            return estimates


@functools.partial(jax.jit, static_argnums=(0, 3, 6))
def _ekf_runs(
    template: PrivateEKF, parameters: Any, scale: float, where: str, data: jax.Array, key: jax.Array, runs: int
) -> tuple[jax.Array, jax.Array]:
    """Draw the runs; few at a time on a CPU, so that what is stored between two operations stays in the cache."""
    noise_free = bind_parameters(template, parameters)
    shape = (runs, data.shape[0] - noise_free.window, noise_free.system.states)
    shocks, filtered = scale * jax.random.uniform(key, shape), functools.partial(noise_free.filtered, data)
    if where == "output":
        estimates = filtered(jnp.zeros(shape[1:])) + shocks[..., np.asarray(noise_free.system.released)]
    else:
        estimates = jax.lax.platform_dependent(
            shocks, cpu=functools.partial(jax.lax.map, filtered, batch_size=RUNS_IN_CACHE), default=jax.vmap(filtered)
        )
    return estimates, jnp.isfinite(estimates).all()


@functools.partial(jax.jit, static_argnums=0)
def _ekf_noise(template: PrivateEKF, parameters: Any, data: jax.Array, samples: jax.Array) -> jax.Array:
    """Return the noise of every step of runs in which all states are released."""
    noise_free = bind_parameters(template, parameters)
    states = samples[..., np.argsort(noise_free.system.released)]
    estimates = jax.vmap(lambda run: noise_free.filtered(data, jnp.zeros_like(run), run))(states)
    return samples - estimates

"""Private average consensus with decaying Laplace noise, and its exact privacy (docs/method.md, section 7.9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpverify.errors import InputError
from dpverify.estimation.truths import LaplaceTruth
from dpverify.estimation.validation import check_integer, check_positive
from dpverify.util.checks import is_real_number


@dataclass(frozen=True)
class PrivateConsensus:
    """Agents agree on the average of their states. All messages are public; the initial states are hidden.

    In step k agent i sends x_i = theta_i + eta_i with Laplace noise eta_i of scale noise * decay^k. Its state becomes
    theta_i - step_size (L x)_i + own_weight * eta_i, with the Laplacian matrix L of the network.

    Parameters
    ----------
    laplacian : sequence of sequences of float
        The matrix L.
    steps : int
        Number of messages of each agent.
    noise : float
        Scale of the noise in the first step, in units of the states.
    decay : float
        Factor of the scale from step to step, above |own_weight - 1| and below 1.
    own_weight : float
        Weight of an agent's own noise in its state; 1 costs only the first message.
    step_size : float
        Step size of the consensus.
    name : str
        Name in reports.

    References
    ----------
    Nozari, Tallapragada and Cortes, Differentially private average consensus, 2017.

    Examples
    --------
    >>> import numpy as np
    >>> from dpverify.estimation import PrivateConsensus
    >>> path = [[1.0, -1.0, 0.0], [-1.0, 2.0, -1.0], [0.0, -1.0, 1.0]]
    >>> mechanism = PrivateConsensus(path, steps=5, noise=1.0, decay=0.5, own_weight=0.9)
    >>> truth = mechanism.truth(np.zeros(3), np.array([1.0, 0.0, 0.0]))
    >>> [round(truth.prefix(steps).epsilon(0.0), 4) for steps in (1, 2, 5)]
    [1.0, 1.2, 1.2496]
    """

    laplacian: Sequence[Sequence[float]]
    steps: int
    noise: float
    decay: float = 0.5
    own_weight: float = 1.0
    step_size: float = 0.2
    name: str = "private consensus"

    def __post_init__(self) -> None:
        L = np.asarray(self.laplacian, float)
        if L.ndim != 2 or L.shape[0] != L.shape[1] or not np.allclose(L.sum(axis=1), 0.0):
            raise InputError(f"laplacian: found shape {L.shape}; expected a square matrix whose rows add up to 0")
        object.__setattr__(self, "laplacian", tuple(tuple(row) for row in L.tolist()))
        object.__setattr__(self, "steps", check_integer("steps", self.steps, 1))
        check_positive("noise", self.noise, "the scale of the noise")
        check_positive("step_size", self.step_size, "the step size of the consensus")
        low = abs(self.own_weight - 1) if is_real_number(self.own_weight) else 1.0
        if not (is_real_number(self.decay) and low < self.decay < 1):
            raise InputError(
                f"decay: found {self.decay!r} with own_weight {self.own_weight!r}; expected a number above "
                "|own_weight - 1| and below 1"
            )

    def __call__(self, data: object, runs: int, rng: np.random.Generator) -> np.ndarray:
        """Return all messages, of shape (runs, steps, agents)."""
        L, states = np.asarray(self.laplacian), np.broadcast_to(self._check(data), (runs, len(self.laplacian)))
        messages = np.empty((runs, self.steps, len(L)))
        for k in range(self.steps):
            eta = rng.laplace(scale=self.noise * self.decay**k, size=states.shape)
            messages[:, k] = states + eta
            states = states - self.step_size * messages[:, k] @ L.T + self.own_weight * eta
        return messages

    def truth(self, first: object, second: object) -> LaplaceTruth:
        """Return the exact privacy: given the messages, the states differ by |1 - own_weight|^k of the start."""
        difference = np.abs(self._check(first) - self._check(second))
        k = np.arange(self.steps)[:, None]
        return LaplaceTruth(difference * (abs(1 - self.own_weight) / self.decay) ** k / self.noise)

    def _check(self, data: object) -> np.ndarray:
        """Return the initial states as an array."""
        try:
            states = np.asarray(data, float)  # pyright: ignore[reportArgumentType, reportCallIssue]
        except (TypeError, ValueError):
            states = np.empty(0)
        if states.shape != (len(self.laplacian),) or not np.isfinite(states).all():
            raise InputError(
                f"data: found {type(data).__name__} of shape {np.shape(states)}; expected {len(self.laplacian)} finite "
                "initial states, one per agent"
            )
        return states

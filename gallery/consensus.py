"""Average consensus with decaying Laplace noise.

Nozari, Tallapragada and Cortés, Differentially private average consensus, 2017.

Three agents on a path exchange messages x = theta + eta during 5 steps, with Laplace noise eta of scale q^k and states
theta(k+1) = theta(k) - h L x(k) + s eta(k). All messages are public.

Neighbours: The initial state of one agent moves by at most 1.

Why: Given the messages, the states under the two datasets differ by |1 - s|^k in step k, and the noise has the scale
q^k. The losses form a geometric series whose infinite sum is the claim q / (c (q - |s - 1|)). Five steps reach nearly
all of it. With s = 1 only the first message costs anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from dpverify import claims
from gallery.entry import Case, Truth, make_entry
from gallery.laws import laplace_truth

LAPLACIAN = np.array([[1.0, -1.0, 0.0], [-1.0, 2.0, -1.0], [0.0, -1.0, 1.0]])  # a path of three agents


@dataclass(frozen=True)
class PrivateConsensus:
    """Agents average their states; all messages are public.

    Attributes
    ----------
    steps : int
        Number of messages of each agent.
    noise : float
        The scale c of the noise in the first step.
    decay : float
        The factor q of the scale from step to step.
    own_weight : float
        The weight s of an agent's own noise in its state.
    step_size : float
        The step size h of the consensus.

    Examples
    --------
    >>> PrivateConsensus()(np.zeros(3), 4, np.random.default_rng(0)).shape
    (4, 5, 3)
    """

    steps: int = 5
    noise: float = 1.0
    decay: float = 0.5
    own_weight: float = 0.9
    step_size: float = 0.2

    def __call__(self, data: np.ndarray, runs: int, rng: np.random.Generator) -> np.ndarray:
        """Return all messages of all agents."""
        state = np.broadcast_to(data, (runs, len(data)))
        messages = np.empty((runs, self.steps, len(data)))
        for k in range(self.steps):
            noise = rng.laplace(scale=self.noise * self.decay**k, size=state.shape)
            messages[:, k] = state + noise
            state = state - self.step_size * messages[:, k] @ LAPLACIAN.T + self.own_weight * noise
        return messages

    def claim(self) -> claims.Approximate:
        """Return the published claim for an initial state that moves by 1."""
        return claims.pure(self.decay / (self.noise * (self.decay - abs(self.own_weight - 1))))


def truth(mechanism: PrivateConsensus, claim: claims.Approximate) -> Truth:
    """Return the truth over finitely many steps: in step k the states differ by |1 - s|^k."""
    ratio = abs(1 - mechanism.own_weight) / mechanism.decay
    return laplace_truth([ratio**k / mechanism.noise for k in range(mechanism.steps)], claim)


MECHANISM = PrivateConsensus()

ONE_SHOT = PrivateConsensus(own_weight=1.0)

WRONG = PrivateConsensus(own_weight=0.5, decay=0.6)

FIRST, SECOND = np.array([1.0, 2.0, 4.0]), np.array([2.0, 2.0, 4.0])

ENTRY = make_entry(
    __name__,
    __doc__,
    Case(
        "consensus-s0.9",
        "s 0.9, q 0.5: claim 1.25",
        MECHANISM,
        (FIRST, SECOND),
        MECHANISM.claim(),
        partial(truth, MECHANISM, MECHANISM.claim()),
    ),
    Case(
        "consensus-s1",
        "s 1: claim 1",
        ONE_SHOT,
        (FIRST, SECOND),
        ONE_SHOT.claim(),
        partial(truth, ONE_SHOT, ONE_SHOT.claim()),
    ),
    Case(
        "consensus-wrong-claim",
        "s 0.5, q 0.6, at the claim of s 1",
        WRONG,
        (FIRST, SECOND),
        ONE_SHOT.claim(),
        partial(truth, WRONG, ONE_SHOT.claim()),
        role="control",
    ),
)

"""Values of epsilon for the W2-MHE that need no samples: the paper's sufficient epsilon, and certified bounds.

`w2mhe_epsilon` and `sufficient_epsilon` are a reconstruction. The paper cites a theorem without restating it, and
prints one value of its formula, 6474.3. The formula here was reconstructed from that one value. It is not a valid bound
for contracting systems (c_f < 1), nor for expanding ones with a long window; `sufficient_epsilon` warns in both cases.
`gibbs_epsilon` and `gibbs_epsilon_within` are proved in docs/method.md, section 7.4, for the Gibbs distribution on
compact sets; they hold over all events.
"""

from __future__ import annotations

import warnings

import numpy as np

from dpverify.errors import DPVerifyWarning, InputError
from dpverify.estimation.bounds import HOW_TO_WRITE, Interval, Jet, NoBound, measurement_jets
from dpverify.estimation.mhe import W2MHE
from dpverify.estimation.moving_horizon import Ball
from dpverify.estimation.system import check_data, check_noise_parameter
from dpverify.util.arrays import enable_x64


def w2mhe_lipschitz(c_f: float, window: int, c_h: float = 100.0) -> float:
    """Return the paper's constant l = 2 (N + 1) c_h c_f.

    Parameters
    ----------
    c_f : float
        Lipschitz constant of the step f.
    window : int
        N, the window of the estimator.
    c_h : float
        The paper's constant of the measurement h; its value there is 100.

    Returns
    -------
    float
        The constant l.

    Examples
    --------
    >>> from dpverify.estimation import theory
    >>> round(theory.w2mhe_lipschitz(1.07767, 5), 1)
    1293.2
    """
    return 2 * (window + 1) * c_h * c_f


def w2mhe_epsilon(s: float, lipschitz: float, c_f: float, diameter: float, distance: float, steps: int) -> float:
    """Return the paper's sufficient epsilon, s/(1 - s) l diam(K_0) c_f^steps d.

    The formula is reconstructed from the one value that the paper prints, and is not proved in the source. For c_f < 1
    it is not a valid bound, because the factor c_f^steps then shrinks the loss of the first step as well; a warning is
    raised.
    The linear system A = 0.3, C = 200 with window 5, s = 0.8, tau = 1 is a counter-example: the formula gives 2.33 at
    distance 1 and 4 released steps, while samples prove that epsilon is at least 4.76.

    Parameters
    ----------
    s : float
        Parameter s of the W2-MHE, from 0 to 1.
    lipschitz : float
        The constant l; see `w2mhe_lipschitz`.
    c_f : float
        Lipschitz constant of the step f.
    diameter : float
        Diameter of K_0, in units of the state.
    distance : float
        Distance d of the two datasets in the Euclidean norm.
    steps : int
        Number of released steps, T - N + 1.

    Returns
    -------
    float
        The value of the formula; infinite for s = 1.

    Warns
    -----
    DPVerifyWarning
        For c_f < 1.

    References
    ----------
    docs/method.md, section 3 ("The sufficient condition") and section 7.4.

    Examples
    --------
    >>> from dpverify.estimation import theory
    >>> round(theory.w2mhe_epsilon(0.8, 1293.2, 1.07767, 0.1, 10, 3))
    6474
    """
    return _reconstructed_epsilon(s, lipschitz, c_f, diameter, distance, steps)


def sufficient_epsilon(mechanism: W2MHE, distance: float, steps: int, c_h: float = 100.0) -> float:
    """Return the paper's sufficient epsilon with the constants of this mechanism.

    The formula is reconstructed from one printed value; see `w2mhe_epsilon`. For the Gibbs distribution it is proved if
    c_f >= 1, c_h is a Lipschitz constant of the weighted h, and it is at least the bound that follows from the same
    constants (docs/method.md, section 7.4). Otherwise a warning is raised. `gibbs_epsilon_within` is a proved bound for
    the same pairs.

    Parameters
    ----------
    mechanism : W2MHE
        An estimator with `support="theorem"`.
    distance : float
        Distance d of the two datasets in the Euclidean norm.
    steps : int
        Number of released steps, T - N + 1.
    c_h : float
        The paper's constant of the measurement h.

    Returns
    -------
    float
        The value of the formula; infinite for s = 1.

    Warns
    -----
    DPVerifyWarning
        For c_f < 1, and where the formula is below the bound that follows from c_f and c_h.

    Examples
    --------
    >>> from dpverify.estimation import W2MHE, oscillator, theory
    >>> round(theory.sufficient_epsilon(W2MHE(oscillator(), 5, 0.8, 1.4e-5), 10, 3), 1)
    6474.3
    """
    c_f = mechanism.problem.system.lipschitz
    if mechanism.support != "theorem" or c_f is None:
        raise InputError(
            f'mechanism: found support "{mechanism.support}"; expected the theorem\'s sets K_k, because the formula '
            'has no value for others; use support="theorem", or gibbs_epsilon, which holds for any K_k'
        )
    lipschitz = w2mhe_lipschitz(c_f, mechanism.window, c_h)
    epsilon = _reconstructed_epsilon(mechanism.s, lipschitz, c_f, mechanism.diameter, distance, steps)
    if c_f >= 1 and not _is_implied_by_constants(c_f, mechanism.window, steps):
        warnings.warn(
            f"steps: found {steps} with window {mechanism.window} and c_f {c_f:.4g}; expected fewer steps or a shorter "
            "window, because the reconstructed formula is not proved here; use gibbs_epsilon or gibbs_epsilon_within",
            DPVerifyWarning,
            stacklevel=2,
        )
    return epsilon


def _is_implied_by_constants(c_f: float, window: int, steps: int) -> bool:
    """Return whether the formula is at least the bound that follows from c_f and c_h (docs/method.md, section 7.4)."""
    proved = np.sum(c_f ** np.arange(steps)) * np.sqrt(np.sum(c_f ** (2 * np.arange(window + 1))))
    return bool(proved <= 2 * (window + 1) * c_f ** (steps + 1))


def _reconstructed_epsilon(
    s: float, lipschitz: float, c_f: float, diameter: float, distance: float, steps: int
) -> float:
    """Evaluate the reconstructed formula; the warning points at the caller of the public function."""
    check_noise_parameter("s", s)
    constants = {"lipschitz": lipschitz, "c_f": c_f, "diameter": diameter, "distance": distance, "steps": steps}
    for name, value in constants.items():
        if value < 0:
            raise InputError(f"{name}: found a negative constant {value}; expected a number from 0 up")
    if c_f < 1:
        warnings.warn(
            f"c_f: found {c_f:.4g}, a contracting system; expected c_f >= 1, because the reconstructed formula is not "
            "a valid bound otherwise; use gibbs_epsilon or gibbs_epsilon_within",
            DPVerifyWarning,
            stacklevel=3,
        )
    return np.inf if s == 1 else s / (1 - s) * lipschitz * diameter * c_f**steps * distance


def gibbs_epsilon(mechanism: W2MHE, first: object, second: object) -> float:
    """Return a certified epsilon of the Gibbs distribution for one pair of datasets.

    It holds at delta = 0, over all events and in both orders. The value is the sum over the steps of the oscillation of
    J_k^1 - J_k^2 over K_k, divided by kappa. It is infinite where f or h may have a jump or a kink in K_k.

    Parameters
    ----------
    mechanism : W2MHE
        An estimator with `law="gibbs"` and 0 < s < 1.
    first, second : array_like
        The datasets, each of shape (T + 1, measurements).

    Returns
    -------
    float
        The certified epsilon.

    References
    ----------
    docs/method.md, section 7.4.

    Examples
    --------
    >>> import numpy as np
    >>> from dpverify.estimation import System, W2MHE, theory
    >>> mechanism = W2MHE(System(A=[[1.0]], C=[[2.0]], start=(0.0,)), 0, 0.5, 1.0)
    >>> round(theory.gibbs_epsilon(mechanism, np.zeros((1, 1)), np.ones((1, 1))), 6)
    0.2
    """
    with enable_x64():
        min_steps = mechanism.window + 1
        y1, y2 = (check_data(mechanism.system, y, min_steps) for y in (first, second))
    if y1.shape != y2.shape:
        raise InputError(f"data: found shapes {y1.shape} and {y2.shape}; expected the same number of steps")
    support, jets = _measurement_jets(mechanism, len(y1) - mechanism.window)
    zero = np.zeros(support.centre.T.shape)
    gradient = Interval(zero, zero)
    for j, (jet, w) in enumerate(zip(jets, mechanism.problem.residual_weights, strict=True)):
        difference = w * (y1 - y2)[j : j + len(support.radius)]
        ends = difference * jet.first.lo, difference * jet.first.hi
        gradient = Interval(gradient.lo + np.minimum(*ends).sum(2), gradient.hi + np.maximum(*ends).sum(2))
    return _summed_oscillation(support, np.linalg.norm(gradient.magnitude, axis=0), mechanism.kappa)


def gibbs_epsilon_within(mechanism: W2MHE, distance: float, steps: int) -> float:
    """Return a certified epsilon of the Gibbs distribution for all pairs of datasets within a distance.

    It holds at delta = 0, over all events and in both orders.

    Parameters
    ----------
    mechanism : W2MHE
        An estimator with `law="gibbs"` and 0 < s < 1.
    distance : float
        Largest distance of the two datasets in the Euclidean norm.
    steps : int
        Number of released steps, T - N + 1.

    Returns
    -------
    float
        The certified epsilon.

    References
    ----------
    docs/method.md, section 7.4.

    Examples
    --------
    >>> from dpverify.estimation import System, W2MHE, theory
    >>> mechanism = W2MHE(System(A=[[1.0]], C=[[2.0]], start=(0.0,)), 0, 0.5, 1.0)
    >>> round(theory.gibbs_epsilon_within(mechanism, 1.0, 1), 6)
    0.2
    """
    if not distance >= 0:
        raise InputError(f"distance: found {distance}; expected a number from 0 up")
    support, jets = _measurement_jets(mechanism, steps)
    weights = mechanism.problem.residual_weights
    squares = sum(np.square(w * jet.first.magnitude).sum((0, 2)) for jet, w in zip(jets, weights, strict=True))
    return _summed_oscillation(support, distance * np.sqrt(squares), mechanism.kappa)


def _summed_oscillation(support: Ball, max_slope: np.ndarray, kappa: float) -> float:
    """Return the sum of diameter times slope over all steps, divided by kappa; a slope of NaN makes it infinite."""
    epsilon = float(np.sum(2 * support.radius * max_slope) / kappa * (1 + 1e-9))
    return np.inf if np.isnan(epsilon) else epsilon


def _measurement_jets(mechanism: W2MHE, steps: int) -> tuple[Ball, list[Jet]]:
    """Return the sets K_k, and bounds of the derivatives of h(f0^j(z)) over each of them."""
    if mechanism.law != "gibbs" or not 0 < mechanism.s < 1:
        raise InputError(
            f'mechanism: found law "{mechanism.law}" at s {mechanism.s}; expected the Gibbs distribution and '
            "0 < s < 1; no epsilon holds for a blend at delta = 0, because its support moves with the data"
        )
    support = mechanism.sets(steps)
    box = Interval(support.centre - support.radius[:, None], support.centre + support.radius[:, None])
    try:
        return support, measurement_jets(mechanism.problem.system, mechanism.window, box)
    except NoBound as operation:
        raise InputError(
            f"f: found the operation {operation} in f or h; expected operations with interval bounds; {HOW_TO_WRITE}"
        ) from operation

"""Comparison with Google's accountant (dp-accounting), which computes delta of compositions by convolution.

The accountant is installed into a separate environment, because it requires an older attrs than the other tests. Our
closed forms must agree with its numbers, and its numbers must lie between our lower and upper bounds.
"""

import json
import subprocess
import venv

import numpy as np
import pytest
from known import KNOWN
from limits import most

import dpverify as dpv

EPSILONS = (0.0, 0.25, 0.5, 1.0, 1.5)
ACCOUNTANT = f"""
import json, math
from dp_accounting.pld import privacy_loss_distribution as pld
losses = {{
    "laplace": pld.from_laplace_mechanism(1.0),
    "gaussian": pld.from_gaussian_mechanism(1.0),
    "geometric": pld.from_discrete_laplace_mechanism(math.log(2)),
    "response": pld.from_randomized_response(0.5, 2),
    "gaussian steps": pld.from_gaussian_mechanism(1 / 0.4).self_compose(8),
    "laplace steps": pld.from_laplace_mechanism(1 / 0.2).self_compose(8),
}}
print(json.dumps({{name: [loss.get_delta_for_epsilon(e) for e in {EPSILONS}] for name, loss in losses.items()}}))
"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def accountant(tmp_path_factory):
    folder = tmp_path_factory.mktemp("accountant")
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    installed = subprocess.run([python, "-m", "pip", "install", "-q", "dp-accounting==0.6.0"], capture_output=True)
    if installed.returncode:
        pytest.skip("dp-accounting cannot be installed")
    answer = subprocess.run([python, "-c", ACCOUNTANT], check=True, capture_output=True, text=True, cwd=folder)
    return json.loads(answer.stdout)


@pytest.mark.parametrize("name", ["laplace", "gaussian", "geometric", "response", "gaussian steps", "laplace steps"])
def test_closed_forms_agree_with_the_accountant(accountant, name):
    ours = [KNOWN[name].delta(epsilon) for epsilon in EPSILONS]
    # The accountant rounds losses up to multiples of 1e-4, once per step; delta changes by no more than the loss.
    steps = 8 if "steps" in name else 1
    assert np.all(np.array(accountant[name]) >= np.array(ours) - 1e-4 * steps / 2)
    np.testing.assert_allclose(accountant[name], ours, atol=1e-4 * steps)


@pytest.mark.parametrize("alpha", [1e-6, 1e-2])  # separate Clopper-Pearson limits, and the joint limit
@pytest.mark.parametrize("name", ["gaussian steps", "laplace steps"])
def test_the_accountants_delta_lies_between_the_bounds(accountant, name, alpha):
    """The cells are level sets of the true log-ratio, with an edge at each epsilon.

    The losses are rounded. Otherwise their last digits, where the log-ratio is 0 up to rounding errors, distinguish the
    two datasets: Laplace noise in double precision has a larger delta than Laplace noise in real numbers.
    """
    runs, missed = 10**6, 0
    shift = 0.4 if name == "gaussian steps" else 0.2
    rng = np.random.default_rng(8)
    losses = []
    for side in (1, 0):  # the dataset with the larger probability comes first
        x = KNOWN[name].mechanism(side, runs, rng)[:, :, 0]
        loss = shift * (x - shift / 2) if name == "gaussian steps" else np.abs(x) - np.abs(x - shift)
        losses.append(loss.sum(1).round(9))
    edges = np.unique(np.concatenate([EPSILONS, np.quantile(losses[0], np.arange(1, 32) / 32)]))
    counts = [np.bincount(np.searchsorted(edges, loss), minlength=edges.size + 1) for loss in losses]
    for epsilon, delta in zip(EPSILONS, accountant[name], strict=True):
        above = [int((loss > epsilon).sum()) for loss in losses]
        lower = dpv.delta_lower_bound(*above, runs, epsilon, alpha)
        upper = dpv.delta_upper_bound(*counts, runs, epsilon, alpha)
        missed += (lower > delta) + (delta > upper)
        assert upper - lower < 0.02
    assert missed <= most(2 * len(EPSILONS), alpha)

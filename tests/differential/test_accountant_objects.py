"""The objects of privacy accountants as claims: a privacy loss distribution, an accountant, and OpenDP's profile.

All describe 30 steps of the subsampled Gaussian mechanism with sampling rate 0.1 and noise 1. dp_accounting requires an
older attrs than the other tests; run this file in an environment that has dp_accounting, opendp and pytest.
"""

import numpy as np
import pytest
from curves import profile_of, subsampled_gaussian

import dpverify as dpv
from dpverify import claims

Q = np.linspace(0.0, 1.0, 101)
STEPS, RATE = 30, 0.1

pytestmark = pytest.mark.slow


def privacy_loss():
    """The privacy loss distribution of dp_accounting."""
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    return pld.from_gaussian_mechanism(1.0, sampling_prob=RATE).self_compose(STEPS)


def accountant():
    """The accountant of dp_accounting that computes with privacy loss distributions."""
    dpa = pytest.importorskip("dp_accounting")
    step = dpa.PoissonSampledDpEvent(RATE, dpa.GaussianDpEvent(1.0))
    return dpa.pld.PLDAccountant().compose(step, STEPS)


def opendp_profile():
    """OpenDP's privacy profile, with the deltas of dp_accounting."""
    dp = pytest.importorskip("opendp.prelude")
    dp.enable_features("contrib", "honest-but-curious")
    return dp.new_privacy_profile(privacy_loss().get_delta_for_epsilon)


OBJECTS = {"privacy loss": privacy_loss, "accountant": accountant, "OpenDP": opendp_profile}


@pytest.mark.parametrize("name", OBJECTS)
def test_an_accountants_object_is_the_claim_of_the_mechanism(name):
    """dp_accounting rounds losses up to multiples of 1e-4. The claim of less noise lies elsewhere (control)."""
    found = claims.as_claim(OBJECTS[name]()).boundary(Q)
    assert found == pytest.approx(claims.profile(profile_of(subsampled_gaussian())).boundary(Q), abs=1e-5)
    assert np.abs(found - claims.profile(profile_of(subsampled_gaussian(sigma=0.9))).boundary(Q)).max() > 1e-2


class SubsampledGaussian:
    """With the first dataset each output is shifted by 1 with probability 0.1."""

    def __init__(self, sigma):
        self.sigma = sigma

    def __call__(self, data, runs, rng):
        return self.sigma * rng.standard_normal((runs, STEPS)) + (rng.random((runs, STEPS)) < RATE * data)


@pytest.mark.parametrize("name", OBJECTS)
@pytest.mark.parametrize(("sigma", "refuted"), [(1.0, False), (0.9, True)])
def test_verify_compares_a_mechanism_with_an_accountants_object(name, sigma, refuted):
    """The claim of noise 1 stands for the mechanism with this noise, and falls for one with 10% less."""
    report = dpv.verify(SubsampledGaussian(sigma), 1.0, 0.0, claim=OBJECTS[name](), test_runs=10**6)
    assert report.refuted is refuted

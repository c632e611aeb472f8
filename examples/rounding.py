"""The last bits of Laplace noise in double precision reveal the data (Mironov 2012); the noise of OpenDP does not."""

import numpy as np
import opendp.prelude as dp

import dpverify as dpv
from dpverify.adapters import opendp

dp.enable_features("contrib")


def textbook(data, runs, rng):  # inverse distribution function; the claim is epsilon 1 for a count
    return data - rng.choice([-1.0, 1.0], runs) * np.log(1 - rng.random(runs))


def numpys(data, runs, rng):
    return data + rng.laplace(scale=1.0, size=runs)


def opendps():
    return dp.m.make_laplace(dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float), scale=1.0)


def finer(samples):
    """Return whether an output has bits below 2^-53. One plus a double has none; a double alone often has."""
    scaled = samples[:, 0, 0] * 2.0**53  # exact
    return (scaled != np.floor(scaled)).astype(float)


if __name__ == "__main__":
    runs = {"select_runs": 1000, "test_runs": 4000, "alpha": 1e-6}
    for mechanism in (textbook, numpys, opendp(opendps)):
        for events in ("auto", finer):
            print(dpv.verify(mechanism, 0.0, 1.0, epsilon=1.0, events=events, **runs), end="\n\n")

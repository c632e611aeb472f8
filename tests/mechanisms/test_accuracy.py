"""The root mean square error of a mechanism's outputs."""

import pickle

import numpy as np
import pytest

import dpverify as dpv


def test_rmse_is_the_root_of_the_mean_squared_distance_over_the_steps():
    samples = np.random.default_rng(0).standard_normal((5, 3, 2))
    truth = np.arange(6.0).reshape(3, 2)
    expected = [np.sqrt(np.mean([np.sum((x - y) ** 2) for x, y in zip(run, truth, strict=True)])) for run in samples]
    np.testing.assert_allclose(dpv.rmse(truth)(samples), expected)
    np.testing.assert_allclose(pickle.loads(pickle.dumps(dpv.rmse(truth.ravel())))(samples), expected)


def test_a_truth_of_another_size_is_refused():
    with pytest.raises(dpv.InputError, match=r"found a truth of shape \(4,\); expected \(3, 2\)"):
        dpv.rmse(np.zeros(4))(np.zeros((5, 3, 2)))

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


def test_the_frobenius_error_is_the_norm_of_the_whole_error():
    rng = np.random.default_rng(3)
    samples, truth = rng.normal(size=(20, 4, 2)), rng.normal(size=(4, 2))
    np.testing.assert_allclose(dpv.frobenius_error(truth)(samples), np.linalg.norm(samples - truth, axis=(1, 2)))
    np.testing.assert_allclose(dpv.frobenius_error(truth)(samples), 2 * dpv.rmse(truth)(samples))


def test_a_truth_of_another_size_is_refused():
    with pytest.raises(dpv.InputError, match=r"found a truth of shape \(4,\); expected \(3, 2\)"):
        dpv.rmse(np.zeros(4))(np.zeros((5, 3, 2)))

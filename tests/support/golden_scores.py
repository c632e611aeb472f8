"""Score and learner of the golden cases. Their test runs depend on the text of this file: do not edit it."""


def square(samples):
    return samples[:, 0, 0] ** 2


def fit_mean_difference(first, second):
    weights = first.reshape(len(first), -1).mean(0) - second.reshape(len(second), -1).mean(0)
    return lambda samples: samples.reshape(len(samples), -1) @ weights

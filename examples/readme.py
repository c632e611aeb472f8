import numpy as np

import dpverify as dpv


def noisy_sum(data, runs, rng):  # claimed: epsilon 0.5
    return data.sum() + rng.laplace(scale=1.0, size=(runs, 1))


first = np.array([3.0, 2.0])
second = np.array([3.0, 3.0])  # one person's value differs by 1
print(dpv.verify(noisy_sum, first, second, epsilon=0.5))

"""Noise at the output of a filter: an event near the end of the horizon is hidden better than one at its start."""

import numpy as np

import dpverify as dpv
from dpverify.gallery.output_noise import PrivateEventFilter

if __name__ == "__main__":
    stream = np.zeros(8)
    for time in (0, 6):
        second = stream + (np.arange(8) == time)
        report = dpv.verify(PrivateEventFilter(False, 1.0, 0.01), stream, second, epsilon=1.0, delta=0.01)
        print(f"event at step {time}: epsilon >= {report.epsilon_lower:.3f} at delta 0.01")

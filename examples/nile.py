"""The flow of the Nile at Aswan: a Kalman filter publishes noisy estimates. Do they reveal one changed measurement?"""

import numpy as np

import dpverify as dpv
from dpverify.estimation import Normal, PrivateKalman, System

# Yearly flow from 1871 to 1970, in 1e8 cubic metres.
FLOW = np.array([
    1120, 1160,  963, 1210, 1160, 1160,  813, 1230, 1370, 1140,  995,  935, 1110,  994, 1020,  960, 1180,  799,  958,
    1140, 1100, 1210, 1150, 1250, 1260, 1220, 1030, 1100,  774,  840,  874,  694,  940,  833,  701,  916,  692, 1020,
    1050,  969,  831,  726,  456,  824,  702, 1120, 1100,  832,  764,  821,  768,  845,  864,  862,  698,  845,  744,
     796, 1040,  759,  781,  865,  845,  944,  984,  897,  822, 1010,  771,  676,  649,  846,  812,  742,  801, 1040,
     860,  874,  848,  890,  744,  749,  838, 1050,  918,  986,  797,  923,  975,  815, 1020,  906,  901, 1170,  912,
     746,  919,  718,  714,  740,
])  # fmt: skip


def nile(before):
    """A private filter for a random walk: yearly change 38, measurement error 123, initial uncertainty `before`."""
    spread = {"disturbance": Normal(38.0), "noise": Normal(123.0), "initial": Normal(before)}
    return PrivateKalman(System(A=[[1.0]], C=[[1.0]], start=(1000.0,), **spread), scale=100.0)


def pair(year, by=200.0):
    """The data, and the neighbouring data in which the measurement of one year is higher."""
    first = FLOW[:, None].astype(float)
    return first, first + by * (np.arange(1871, 1971) == year)[:, None]


if __name__ == "__main__":
    mechanism = nile(before=1000.0)  # the level is unknown at the start
    for year in (1913, 1871):  # the lowest measurement, and the first one
        report = dpv.verify(mechanism, *pair(year), epsilon=2.0, delta=0.01, select_runs=10_000, test_runs=50_000)
        print(f"{year}, {report}")
        print(f"  truth     epsilon {mechanism.truth(*pair(year)).epsilon(0.01):.4g} at delta 0.01, in closed form\n")

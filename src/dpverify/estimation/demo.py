"""The paper's W2-MHE verified in under a minute: `python -m dpverify.estimation.demo`, or `make demo`.

Ten sensors around an oscillator, one of them turned until the data have moved by 10. Nothing is claimed, all is
measured.
"""

from __future__ import annotations

import numpy as np

from dpverify.demo import page
from dpverify.estimation.mhe import W2MHE
from dpverify.estimation.system import adjacent_recordings, oscillator
from dpverify.estimation.theory import gibbs_epsilon, sufficient_epsilon
from dpverify.mechanisms.accuracy import rmse
from dpverify.pipeline import verify
from dpverify.report.report import Report

WINDOW, TAU, DISTANCE = 5, 1.4e-5, 10.0


def rows(levels: tuple[float, ...] = (1.0, 0.8, 0.7)) -> list[tuple[W2MHE, Report, float, float]]:
    """For each s: the mechanism, its report, our bound of epsilon over all events, and the paper's sufficient one."""
    system = oscillator()
    first, second, recording = adjacent_recordings(system, system.h, 0, DISTANCE, np.random.default_rng(0))
    steps = len(first) - WINDOW
    table = []
    for s in levels:
        mechanism = W2MHE(system, WINDOW, s, TAU)
        error = rmse(recording.released(system, steps))
        report = verify(mechanism, first, second, select_runs=20_000, test_runs=100_000, error=error)
        ours = gibbs_epsilon(mechanism, first, second) if s < 1 else np.inf
        table.append((mechanism, report, ours, sufficient_epsilon(mechanism, DISTANCE, steps)))
    return table


def main() -> None:
    print(
        f"W2-MHE, window {WINDOW}, ten sensors, one turned until the data sets are {DISTANCE:g} apart; 95%, delta 0\n"
    )
    print("   s   epsilon proved   bounded (cells)   bounded (proof)   paper's condition   RMSE     adjacent")
    print("       over all events  on its partition  over all events   over all events     correct  data")
    last = None
    for mechanism, report, ours, theorem in rows():
        bounded = report.on_partition.epsilon_upper()
        (correct, _), (adjacent, _) = report.error or ((np.nan, 0), (np.nan, 0))
        print(
            f"{mechanism.s:4.1f}   >= {report.epsilon_lower:<13.4g}<= {bounded:<15.4g}<= {ours:<15.4g}"
            f"<= {theorem:<17.5g}{correct:<9.4g}{adjacent:.4g}"
        )
        last = report
    assert last is not None
    print(f"\n{last}\n{page(last, 'dpverify-w2mhe.html')}")


if __name__ == "__main__":
    main()

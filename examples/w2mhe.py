"""The paper's W2-MHE, verified in under a minute: `make demo`, or `python examples/w2mhe.py`.

Ten sensors observe an oscillator. In the second dataset one sensor stands elsewhere, so that the datasets have the
distance 10. Nothing is claimed: the epsilon of the estimator is measured for three values of s.
"""

from typing import NamedTuple

import numpy as np

import dpverify as dpv
from dpverify.estimation import W2MHE, adjacent_recordings, oscillator, theory

WINDOW, TAU, DISTANCE = 5, 1.4e-5, 10.0
PAGE = "dpverify-w2mhe.html"


class Row(NamedTuple):
    """One value of s: the mechanism, its report, and two values of epsilon that need no samples."""

    mechanism: W2MHE
    report: dpv.Report
    certified_epsilon: float  # proved over all events; infinite for s = 1
    paper_epsilon: float  # the paper's sufficient epsilon


def rows(levels: tuple[float, ...] = (1.0, 0.8, 0.7)) -> list[Row]:
    """Verify the W2-MHE for each s."""
    system = oscillator()
    first, second, recording = adjacent_recordings(system, system.h, 0, DISTANCE, np.random.default_rng(0))
    steps = len(first) - WINDOW
    table = []
    for s in levels:
        mechanism = W2MHE(system, WINDOW, s, TAU)
        error = dpv.rmse(recording.released(system, steps))
        report = dpv.verify(mechanism, first, second, select_runs=20_000, test_runs=100_000, error=error)
        certified = theory.gibbs_epsilon(mechanism, first, second) if s < 1 else np.inf
        table.append(Row(mechanism, report, certified, theory.sufficient_epsilon(mechanism, DISTANCE, steps)))
    return table


def main() -> None:
    """Print the table and the last report, and write its page."""
    print(
        f"W2-MHE, window {WINDOW}, ten sensors; one sensor moved, so that the datasets have distance {DISTANCE:g}; "
        "confidence 95%, delta 0\n"
    )
    print("   s   epsilon proved   over the cells    over all events   paper's condition   RMSE     adjacent")
    print("       over all events  from samples      from a proof      not proved          correct  data")
    table = rows()
    for mechanism, report, certified, paper in table:
        bounded = report.cell_counts.epsilon_upper()
        (correct, _), (adjacent, _) = report.error or ((np.nan, 0), (np.nan, 0))
        print(
            f"{mechanism.s:4.1f}   >= {report.epsilon_lower or 0.0:<13.4g}<= {bounded:<15.4g}<= {certified:<15.4g}"
            f"<= {paper:<17.5g}{correct:<9.4g}{adjacent:.4g}"
        )
    last = table[-1].report
    print(f"\n{last}")
    try:
        last.to_html(PAGE)
    except (dpv.InputError, OSError) as problem:
        print(f"page: not written; {problem}")
    else:
        print(f"page: {PAGE}")


if __name__ == "__main__":
    main()

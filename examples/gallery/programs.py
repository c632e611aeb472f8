"""Two public programs, run as they are: Location Guard (Node.js) and OpenDP, each if it is installed."""

import dpverify as dpv
from dpverify.gallery.programs import GUARD, TREE

if __name__ == "__main__":
    for entry in (GUARD, TREE):
        missing = entry.requirement()
        if missing is not None:
            print(f"{entry.name}: skipped; {missing}")
            continue
        case = entry.cases[0]
        runs = {"select_runs": case.quick.select, "test_runs": case.quick.test}
        print(dpv.verify(case.mechanism, case.first, case.second, claim=case.claim, events=case.events, **runs))

"""Reads requests of dpverify and answers with the consistent tree of OpenDP: counts, binary tree, Laplace noise.

A request is two lines: "runs seed n", and the n counts. OpenDP cannot be seeded. The argument is the scale of the
noise.
"""

# pyright: reportPrivateImportUsage=false, reportOperatorIssue=false, reportMissingImports=false
import sys


def main() -> None:
    """Answer requests until the input ends."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int)
    for line in sys.stdin:
        runs, _, leaves = map(int, line.split())
        counts = [int(float(count)) for count in sys.stdin.readline().split()]
        tree = dp.t.make_b_ary_tree(*space, leaf_count=leaves, branching_factor=2)
        release = tree >> dp.m.then_laplace(float(sys.argv[1])) >> dp.t.make_consistent_b_ary_tree(branching_factor=2)
        for _ in range(runs):
            print(*release(counts))
        sys.stdout.flush()


if __name__ == "__main__":
    main()

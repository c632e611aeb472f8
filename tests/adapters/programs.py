"""Programs that behave well or badly, for the tests: `python programs.py KIND PIDFILE`."""

import os
import random
import subprocess
import sys
import time


def laplace(rng):
    return rng.expovariate(1) - rng.expovariate(1)


def answer(kind, runs, total, rng):
    if kind in ("good", "floods"):
        return "".join(f"{total + laplace(rng)!r}\n" for _ in range(runs))
    if kind == "two":
        return "".join(f"{total + laplace(rng)!r} {laplace(rng)!r}\n" for _ in range(runs))
    if kind == "short":
        return "1.5\n" * (runs - 1)
    if kind == "long":
        return "1.5\n" * (runs + 1)
    if kind == "garbage":
        return "1.5\n" * 6 + "Warning: matrix is singular\n" + "1.5\n" * (runs - 7)
    if kind == "ragged":
        return "1.5 2.5\n" * 3 + "1.5\n" * (runs - 3)
    if kind == "nan":
        return "nan\n" * 3 + "1.5\n" * (runs - 3)
    if kind == "grows":  # the lines become longer than the first
        return "1.5\n" + ("1.5 " * 1000 + "\n") * (runs - 1)
    if kind == "deaf":  # ignores its seed
        return "".join(f"{laplace(random.Random(1))!r}\n{laplace(rng)!r}\n" for _ in range(runs // 2))
    raise ValueError(kind)


def main(kind, pids):
    with open(pids, "a") as file:
        print(os.getpid(), file=file)
        if kind == "hangs":  # with a child process that hangs too
            print(subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(1000)", pids]).pid, file=file)
    if kind == "hangs":
        time.sleep(1000)
    if kind == "mute":
        sys.exit(4)
    if kind == "endless":
        while True:
            sys.stdout.write("x" * 65536)
    unseeded = random.Random()
    while line := sys.stdin.readline():
        runs, seed, n = map(int, line.split())
        data = [float(number) for number in sys.stdin.readline().split()]
        assert len(data) == n
        if kind in ("floods", "drowns"):
            sys.stderr.write("step size too small\n" * 200_000)
        if kind == "dies":
            sys.stdout.write("1.5\n" * 1000)
            sys.stdout.flush()
            sys.exit("state vector lost")
        if kind == "drowns":
            sys.exit("state vector lost")
        if kind == "crashes":
            os.abort()
        rng = {"deaf": random.Random(1), "unseeded": unseeded}.get(kind) or random.Random(seed)
        sys.stdout.write(answer("good" if kind == "unseeded" else kind, runs, sum(data), rng))
        sys.stdout.flush()


def one_block(kind, data, runs, seed, out):
    """Draw one block: the form with placeholders."""
    if kind == "hangs":
        time.sleep(1000)
    if kind == "dies":
        sys.exit("no licence")
    if kind != "forgets":
        with open(data) as file, open(out, "w") as answers:
            total = sum(float(number) for number in file.read().split())
            answers.write(answer(kind, int(runs), total, random.Random(int(seed))))


if __name__ == "__main__":
    main(*sys.argv[1:]) if len(sys.argv) == 3 else one_block(*sys.argv[1:])

"""Writes docs/power.md and its figure from the results of bench_power.py."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"
MARK = "<!-- what follows is written by benchmarks/bench_power.py -->"
COLUMNS = ("bound", "true ratio", "best", "share", "seconds")

Rows = Mapping[str, Mapping[str, float]]  # for each law: its columns, or its shares at each epsilon


def write_page(rows: Rows, profiles: Rows, sizes: str) -> None:
    """Replace the results on the page, and draw its figure.

    Parameters
    ----------
    rows : mapping
        For each law, the values of COLUMNS.
    profiles : mapping
        For each law, the share of the exact delta at each epsilon.
    sizes : str
        The numbers of runs and seeds, in words.
    """
    page = DOCS / "power.md"
    head = page.read_text(encoding="utf-8").partition(MARK)[0]
    parts = [head + MARK, "## Lower bounds on epsilon", summary(rows, sizes)]
    parts += ["![Share of the best expected lower bound](figures/power.png)", shares_table(rows)]
    if profiles:
        parts += ["## Lower bounds on delta", profile_table(profiles)]
    page.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    draw_figure(rows, DOCS / "figures" / "power.png")


def summary(rows: Rows, sizes: str) -> str:
    """Return a sentence about all laws."""
    shares = sorted((row["share"], name) for name, row in rows.items())
    mean = sum(share for share, _ in shares) / len(shares)
    smallest = ", ".join(f"{name} ({share:.2f})" for share, name in shares[:3])
    return f"{len(rows)} pairs of distributions, {sizes}. The mean share is {mean:.3f}. The smallest are {smallest}."


def shares_table(rows: Rows) -> str:
    """Return the table of all laws."""
    lines = [f"| distributions | {' | '.join(COLUMNS)} |", "|---" * (len(COLUMNS) + 1) + "|"]
    for name, row in rows.items():
        values = [f"{row[column]:.1f}" if column == "seconds" else f"{row[column]:.3f}" for column in COLUMNS]
        lines.append(f"| {name} | {' | '.join(values)} |")
    return "\n".join(lines)


def profile_table(profiles: Rows) -> str:
    """Return the table of the shares of the exact delta."""
    epsilons = sorted({epsilon for shares in profiles.values() for epsilon in shares}, key=float)
    lines = [f"| distributions | {' | '.join(f'epsilon {e}' for e in epsilons)} |", "|---" * (len(epsilons) + 1) + "|"]
    for name, shares in profiles.items():
        if shares:
            values = [f"{shares[e]:.3f}" if e in shares else "" for e in epsilons]
            lines.append(f"| {name} | {' | '.join(values)} |")
    return "\n".join(lines)


def draw_figure(rows: Rows, path: Path) -> None:
    """Draw the shares of all laws."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 0.22 * len(rows) + 1), layout="constrained")
    names = list(rows)[::-1]
    axes.barh(names, [rows[name]["share"] for name in names], color="#1f5fa8", label="default verification")
    known = [rows[name]["true ratio"] / max(rows[name]["best"], 1e-9) for name in names]
    axes.plot(known, names, "|", color="#c25a12", markersize=10, markeredgewidth=2, label="exact ratio given as score")
    axes.axvline(1, color="0.4", linewidth=0.8)
    axes.set(xlabel="share of the best expected lower bound", xlim=(0, None))
    axes.margins(y=0.01)
    axes.legend(loc="center right")
    figure.savefig(path, dpi=120)
    plt.close(figure)

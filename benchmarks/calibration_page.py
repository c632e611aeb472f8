"""Writes docs/calibration.md and its figure from the results of calibration.py."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from calibration import ALPHAS, CHOICES, DOUBLED_SETTING, PROJECT, SHARES_OF_ALPHA, SettingResult, true_claim
from scipy.optimize import brentq
from scipy.stats import binom

import dpverify as dpv

sys.path.append(str(PROJECT / "tests" / "support"))
from limits import most

DOCS = PROJECT / "docs"
MARK = "<!-- what follows is written by benchmarks/calibration.py -->"
TABLE_CONFIDENCE = 0.999  # if every level is met, no rate of the whole table exceeds its limit with this probability
DETECTION_PROBABILITY = 0.8
COLOURS = dict(zip(ALPHAS, ("#1f5fa8", "#2a9d6f", "#c25a12"), strict=True))
MARKERS = dict(zip(CHOICES, "ox^sDv", strict=True))


class Rate(NamedTuple):
    """How often one statement of one setting was false, and how often it may be.

    Attributes
    ----------
    result : SettingResult
        The counts of the setting.
    statement : str
        The statement.
    level : float
        The probability with which it may be false.
    limit : int
        The largest acceptable count.
    """

    result: SettingResult
    statement: str
    level: float
    limit: int

    @property
    def count(self) -> int:
        """How often the statement was false."""
        return self.result.false_counts[self.statement]

    @property
    def too_high(self) -> bool:
        """Whether the count exceeds the limit."""
        return self.count > self.limit


def allowed_level(statement: str, alpha: float) -> float:
    """Return the probability with which a statement may be false."""
    return alpha * SHARES_OF_ALPHA[statement]


def all_rates(results: Sequence[SettingResult]) -> list[Rate]:
    """Return the rates of the whole table.

    If every level is met, any of them exceeds its limit with probability at most 1 - TABLE_CONFIDENCE.
    """
    levels = []
    for result in results:
        for statement in result.false_counts:
            factor = 2 if result.setting == DOUBLED_SETTING and statement == "false alarm" else 1
            levels.append((result, statement, factor * allowed_level(statement, result.setting.alpha)))
    return [
        Rate(result, statement, level, count_limit(level, result.seeds, len(levels)))
        for result, statement, level in levels
    ]


def count_limit(level: float, seeds: int, rates: int) -> int:
    """Return the count that a statement at this level exceeds with probability at most (1 - TABLE_CONFIDENCE)/rates."""
    return most(seeds, level, 1 - (1 - TABLE_CONFIDENCE) / rates)


def power(result: SettingResult) -> float | None:
    """Return the mean lower bound divided by the true epsilon; None where that is infinite or zero."""
    true_epsilon = true_claim(result.setting)[0]
    return result.lower_sum / result.seeds / true_epsilon if true_epsilon else None


def draw_figure(results: Sequence[SettingResult], path: Path) -> None:
    """Draw the rates relative to their limits, and the power."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), width_ratios=(1.5, 1))
    draw_rates(left, all_rates(results))
    draw_power(right, results)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=160, bbox_inches="tight")
    plt.close(figure)


def draw_rates(axes, rates: Sequence[Rate]) -> None:
    """Draw each rate as a dot, and each level as a short line."""
    for alpha, colour in COLOURS.items():
        for position, statement in enumerate(SHARES_OF_ALPHA):
            own = [rate for rate in rates if (rate.statement, rate.result.setting.alpha) == (statement, alpha)]
            x = position + 0.24 * (ALPHAS.index(alpha) - 1)
            spread = [x + 0.06 * (i % 3 - 1) for i in range(len(own))]
            axes.scatter(spread, [rate.count / rate.limit for rate in own], 13, colour, alpha=0.7, lw=0)
            for rate in own[:1]:
                height = rate.level * rate.result.seeds / rate.limit
                axes.plot([x - 0.11, x + 0.11], [height] * 2, color=colour, lw=1.4)
        axes.scatter([], [], 13, colour, label=f"alpha {alpha:g}")
    axes.axhline(1, color="#333", lw=1, ls="--")
    labels = [name.replace("_", "\n").replace(" ", "\n") for name in SHARES_OF_ALPHA]
    axes.set_xticks(range(len(labels)), labels, fontsize=8)
    axes.set_title("False statements, relative to the limit", loc="left", fontsize=11)
    axes.set_ylim(-0.03, 1.1)
    axes.legend(frameon=False, fontsize=8, ncols=3, loc="upper right", bbox_to_anchor=(1, 0.88))


def draw_power(axes, results: Sequence[SettingResult]) -> None:
    """Draw the mean lower bound relative to the true epsilon."""
    powers = [(result.setting, value) for result in results if (value := power(result)) is not None]
    names = list(dict.fromkeys(setting.mechanism for setting, _ in powers))
    for setting, value in powers:
        y = names.index(setting.mechanism)
        axes.plot(value, y, MARKERS[setting.choice], color=COLOURS[setting.alpha], ms=5, alpha=0.8, ls="")
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.invert_yaxis()
    axes.axvline(1, color="#333", lw=1, ls="--")
    axes.set_xlim(-0.03, 1.1)
    axes.set_title("Mean proved epsilon / true epsilon", loc="left", fontsize=11)
    for choice, marker in MARKERS.items():
        axes.plot([], [], marker, color="#333", ms=5, ls="", label=choice)
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))


def percent(share: float) -> str:
    """Write a share in per cent, with at most two decimals."""
    return f"{round(100 * share, 2):g}"


def markdown_table(head: list[str], rows: list[list[str]]) -> str:
    """Return a table as Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


def setting_row(result: SettingResult, rates: dict[str, Rate]) -> list[str]:
    """Return the line of a setting in the large table; a rate above its limit is bold."""
    setting, seeds = result.setting, result.seeds
    cells = [setting.mechanism, setting.choice, f"{setting.alpha:g}", f"{setting.select_runs} / {setting.test_runs}"]
    cells.append(str(seeds))
    for statement in SHARES_OF_ALPHA:
        rate = rates.get(statement)
        if rate is None:
            cells.append("")
        else:
            text = percent(rate.count / seeds)
            cells.append(f"**{text}**" if rate.too_high else text)
    proved = power(result)
    caught = percent(result.caught / result.controls) if result.controls else ""
    return [*cells, "" if proved is None else f"{proved:.2f}", caught]


def limits_table(seeds: int, rates: int) -> str:
    """Return the table of levels and limits, one line for the statements with the same share of alpha."""
    rows = []
    for share in dict.fromkeys(SHARES_OF_ALPHA.values()):
        names = [name for name, own_share in SHARES_OF_ALPHA.items() if own_share == share]
        words = ", ".join(f"`{name}`" if "_" in name else name for name in names)
        levels = [share * alpha for alpha in ALPHAS]
        limits = [count_limit(level, seeds, rates) / seeds for level in levels]
        pairs = zip(levels, limits, strict=True)
        rows.append([words, *(f"{percent(level)}, limit {percent(limit)}" for level, limit in pairs)])
    doubled = f"false alarm of *{DOUBLED_SETTING.mechanism}*, *{DOUBLED_SETTING.choice}*"
    limit = count_limit(2 * DOUBLED_SETTING.alpha, seeds, rates) / seeds
    text = f"{percent(2 * DOUBLED_SETTING.alpha)}, limit {percent(limit)}"
    rows.append([doubled, *(text if alpha == DOUBLED_SETTING.alpha else "" for alpha in ALPHAS)])
    return markdown_table(["", *(f"alpha {alpha:g}" for alpha in ALPHAS)], rows)


def detectable_rates(seeds: int, rates: int) -> str:
    """Return the true rates that the table detects with probability 80%."""
    texts = []
    for level in ALPHAS:
        limit = count_limit(level, seeds, rates)
        if limit < seeds:
            rate = brentq(lambda p, limit=limit: binom.sf(limit, seeds, p) - DETECTION_PROBABILITY, 0, 1)
            texts.append(f"{percent(rate)}% at a level of {percent(level)}%")
    if not texts:
        return "With so few seeds no rate can exceed its limit."
    return f"A true rate of at least {', '.join(texts)} exceeds its limit with probability 80%."


def results_section(results: Sequence[SettingResult]) -> str:
    """Return the measured part of the page."""
    rates = all_rates(results)
    most_seeds, fewest_seeds = (pick(result.seeds for result in results) for pick in (max, min))
    each = f"{most_seeds} seeds each" if fewest_seeds == most_seeds else f"{fewest_seeds} to {most_seeds} seeds"
    exceeding = sum(rate.too_high for rate in rates)
    total = f"{sum(result.seeds for result in results):,}".replace(",", " ")
    summary = (
        f"**{exceeding} of them exceed their limit** (bold)." if exceeding else "**None of them exceeds its limit.**"
    )
    worst = max(rates, key=lambda rate: rate.count / rate.limit)
    setting, seeds = worst.result.setting, worst.result.seeds
    rows = []
    for result in results:
        own = {rate.statement: rate for rate in rates if rate.result is result}
        rows.append(setting_row(result, own))
    columns = ["mechanism", "events", "alpha", "runs", "seeds", *SHARES_OF_ALPHA, "power", "half the noise"]
    return "\n\n".join(
        [
            "## Results",
            f"Version {dpv.__version__}: {total} verifications, {len(results)} settings of {each}, {len(rates)} rates. "
            f"{summary} The rate closest to its limit is `{worst.statement}` of *{setting.mechanism}*, "
            f"*{setting.choice}*, at alpha {setting.alpha:g}: {percent(worst.count / seeds)}%; the level is "
            f"{percent(worst.level)}% and the limit {percent(worst.limit / seeds)}%. "
            f"{sum(result.voided for result in results)} of the verifications had no answer because of a diagnostic.",
            "![Rates relative to their limit, and proved epsilon relative to the true one](figures/calibration.png)",
            "*Left: each dot is a setting; 1 is the limit, and the short lines are the levels. "
            "Right: the same colours; the verifications are small.*",
            f"Levels and limits in per cent; the limits are for {most_seeds} seeds. "
            f"{detectable_rates(most_seeds, len(rates))}",
            limits_table(most_seeds, len(rates)),
            "Every setting; rates in per cent:",
            markdown_table(columns, rows),
        ]
    )


def write_page(results: Sequence[SettingResult]) -> None:
    """Replace the measured part of docs/calibration.md, and the figure; fail if a rate is too high."""
    draw_figure(results, DOCS / "figures" / "calibration.png")
    page = DOCS / "calibration.md"
    introduction = page.read_text(encoding="utf-8").split(MARK)[0]
    page.write_text(f"{introduction}{MARK}\n\n{results_section(results)}\n", encoding="utf-8")
    if any(rate.too_high for rate in all_rates(results)):
        raise SystemExit("found a statement that is false more often than its level allows; see docs/calibration.md")

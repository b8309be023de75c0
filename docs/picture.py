"""Draw README's picture: ``python docs/picture.py`` writes docs/picture.svg, the same bytes in every run.

One column of one table: the truth, the released rows, the estimates with their intervals, and synthetic rows.
"""

from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import dpframe as dpf

ROWS, EPSILON = 20_000, 1
EDGES = np.arange(0, 125, 5)
COLOURS = ("#4c566a", "#bf616a", "#2e7d5b", "#3b6ea5")


def main(target: Path) -> None:
    """Draw the four panels."""
    people = dpf.datasets.make_census(ROWS, random_state=0, columns=["age", "sex", "education", "income"])
    spaces = {
        "age": (0, 120),
        "sex": list(dpf.datasets.SEXES),
        "education": list(dpf.datasets.EDUCATION),
        "income": dpf.Nullable(dpf.Real(0, 250_000)),
    }
    safe = dpf.sanitize(people, epsilon=EPSILON, spaces=spaces, key=bytes(32))
    estimates = safe.dp.histogram("age", bins=EDGES)
    synthetic = safe.dp.synthesize(random_state=0)
    panels = {
        "the table (secret)": counted(people),
        "released rows: noise": counted(safe),
        "estimates from the release, 95 %": estimates["estimate"].to_numpy(),
        "synthetic rows": counted(synthetic),
    }
    matplotlib.rcParams |= {
        "svg.fonttype": "none",
        "svg.hashsalt": "dpframe",
        "font.family": "sans-serif",
        "font.size": 9,
    }
    figure, axes = plt.subplots(1, 4, figsize=(10, 2.3), sharey=True, layout="constrained")
    middle = (EDGES[:-1] + EDGES[1:]) / 2
    for axis, (title, counts), colour in zip(axes, panels.items(), COLOURS, strict=True):
        axis.bar(middle, counts, width=4.4, color=colour)
        axis.set_title(title, fontsize=9)
        axis.set_xlabel("age")
        axis.spines[["top", "right"]].set_visible(False)
    axes[2].errorbar(
        middle, estimates["estimate"], yerr=dpf.error_bars(estimates), fmt="none", ecolor="black", elinewidth=1
    )
    axes[0].set_ylabel("people")
    top = 1.6 * panels["the table (secret)"].max()
    axes[0].set_ylim(0, top)
    for axis, counts in zip(axes, panels.values(), strict=True):
        for place in np.flatnonzero(counts > top):
            # A bar that goes on beyond the picture says how far.
            side, align = (EDGES[place + 1] + 1, "left") if place == 0 else (EDGES[place] - 1, "right")
            axis.text(side, top, f"↑ {counts[place]:,.0f}", ha=align, va="top", fontsize=7)
    figure.savefig(target, metadata={"Date": None, "Creator": None})
    print(f"wrote {target}: {target.stat().st_size:,} bytes")


def counted(frame: pd.DataFrame) -> np.ndarray:
    """Return how many rows of a frame lie in each class of ages."""
    return np.histogram(frame["age"], EDGES)[0]


if __name__ == "__main__":
    main(Path(__file__).with_name("picture.svg"))

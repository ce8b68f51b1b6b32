"""Seconds over pieces: planning.svg of planning.csv, and the line through it.

    cargo run --release -p weighbridge --example scale -- DIR sweep > docs/plots/planning.csv
    pip install matplotlib==3.11.2 && python docs/plots/planning.py
"""

import csv
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
rows = list(csv.DictReader((HERE / "planning.csv").open()))
pieces = [int(row["pieces"]) for row in rows]
seconds = [float(row["seconds"]) for row in rows]
n = len(rows)
mean_x, mean_y = sum(pieces) / n, sum(seconds) / n
slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(pieces, seconds)) / sum((x - mean_x) ** 2 for x in pieces)
start = mean_y - slope * mean_x
left = sum((y - start - slope * x) ** 2 for x, y in zip(pieces, seconds))
fit = 1 - left / sum((y - mean_y) ** 2 for y in seconds)

plt.rcParams.update({"font.size": 10, "svg.fonttype": "none", "svg.hashsalt": "planning"})
figure, axes = plt.subplots(figsize=(6.4, 3.8))
for tp, marker, colour in (("1", "o", "#1f6f8b"), ("8", "s", "#d1603d")):
    of = [(x, y) for row, x, y in zip(rows, pieces, seconds) if row["tp"] == tp]
    axes.plot(*zip(*of), marker, color=colour, ms=5, label=f"tp {tp}, ep 128 to 1")
line = f"{start * 1e3:.0f} ms + {slope * 1e6:.2f} µs a piece (R² {fit:.3f})"
axes.plot([0, max(pieces)], [start, start + slope * max(pieces)], color="#555555", lw=1, label=line)
axes.set(xlabel="pieces of the rank", ylabel="seconds", xlim=0, ylim=0,
         title="Planning and proving one rank: 61 layers of 384 experts, FP8 blocks")
axes.xaxis.set_major_formatter(lambda x, _: f"{x / 1000:.0f}k")
axes.grid(color="#dddddd", lw=0.5)
axes.set_axisbelow(True)
axes.legend(frameon=False)
for side in ("top", "right"):
    axes.spines[side].set_visible(False)
figure.savefig(HERE / "planning.svg", metadata={"Date": None}, bbox_inches="tight")
print(line)

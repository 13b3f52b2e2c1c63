"""Pictures of a soak: memory, the store, and file descriptors over time, as small SVG files."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .series import Series, Values
from .shortened import MAX_AUDIT
from .site import Size
from .verdict import MIB

POINTS = 240
"""More cannot be told apart at this size."""

COLOURS = {"learner": "#1f77b4", "api": "#d62728", "steady": "#2ca02c", "store": "#9467bd"}
STYLES = ("-", "--", ":")
_STYLE = {"svg.fonttype": "none", "svg.hashsalt": "soak", "font.size": 9, "axes.grid": True, "grid.alpha": 0.25,
          "axes.spines.top": False, "axes.spines.right": False, "path.simplify": True}  # fmt: skip


def draw(series: Series, size: Size, folder: Path) -> list[Path]:
    """Writes soak-memory.svg, soak-store.svg and soak-descriptors.svg; returns where they are."""
    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(_STYLE):
        pictures = {
            "soak-memory": _memory(series),
            "soak-store": _store(series, size),
            "soak-descriptors": _descriptors(series),
        }
        paths = []
        for name, figure in pictures.items():
            paths.append(folder / f"{name}.svg")
            figure.savefig(paths[-1], metadata={"Date": None, "Creator": None})
    return paths


def _memory(series: Series) -> Figure:
    figure = Figure(figsize=(8.0, 3.6), layout="constrained")
    axes = figure.subplots()
    _of_processes(axes, series, "uss", 1 / MIB)
    axes.set_ylabel("memory of its own, MiB")
    axes.set_xlabel("minutes")
    _name(axes)
    return figure


def _descriptors(series: Series) -> Figure:
    figure = Figure(figsize=(8.0, 4.6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    for axes, measure in ((above, "fds"), (below, "threads")):
        _of_processes(axes, series, measure, 1.0)
        axes.set_ylabel("file descriptors" if measure == "fds" else measure)
    below.set_xlabel("minutes")
    _name(above)
    return figure


def _store(series: Series, size: Size) -> Figure:
    figure = Figure(figsize=(8.0, 6.4), layout="constrained")
    memory, streams, hashes = figure.subplots(3, 1, sharex=True)
    _line(memory, *series.get("store", "used_memory"), 1 / MIB, "used by the store", COLOURS["store"])
    _line(memory, *series.get("keys accord:{pair}:history", "bytes"), 1 / MIB, "histories", COLOURS["learner"])
    _line(memory, *series.get("keys accord:{pair}:state", "bytes"), 1 / MIB, "states", COLOURS["api"])
    memory.set_ylabel("MiB")
    for part, colour in (("history", "learner"), ("audit", "api"), ("rounds", "steady")):
        _line(streams, *series.get(f"keys accord:{{pair}}:{part}", "longest"), 1.0, part, COLOURS[colour])
    streams.axhline(size.history, color=COLOURS["learner"], linewidth=0.7, linestyle=":")
    streams.axhline(MAX_AUDIT, color=COLOURS["api"], linewidth=0.7, linestyle=":")
    streams.set_ylabel("entries, longest stream")
    _line(hashes, *series.get("store", "dbsize"), 1.0, "keys", COLOURS["store"])
    _line(hashes, *series.get("keys accord:{pair}:engines", "longest"), 1.0, "heartbeats of a pair", COLOURS["learner"])
    _line(hashes, *series.get("store", "connected_clients"), 1.0, "connections", COLOURS["steady"])
    hashes.set_ylabel("count")
    hashes.set_xlabel("minutes")
    for axes in (memory, streams, hashes):
        axes.set_ylim(bottom=0.0)
        _name(axes)
    return figure


def _of_processes(axes: Axes, series: Series, measure: str, scale: float) -> None:
    for subject in series.subjects("process "):
        name = subject.removeprefix("process ")
        kind, _, number = name.partition("-")
        if kind in COLOURS:
            style = STYLES[int(number or 0) % len(STYLES)]
            _line(axes, *series.get(subject, measure), scale, name, COLOURS[kind], style)
    axes.set_ylim(bottom=0.0)


def _line(axes: Axes, seconds: Values, values: Values, scale: float, label: str, colour: str, style: str = "-") -> None:
    """Of every few samples the greatest, so that no peak is lost."""
    each = max(1, -(-len(values) // POINTS))
    starts = np.arange(0, len(values), each)
    if len(starts):
        highest = np.maximum.reduceat(values, starts) * scale
        axes.plot(seconds[starts] / 60.0, highest, style, label=label, color=colour, linewidth=1.1)


def _name(axes: Axes) -> None:
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=8)

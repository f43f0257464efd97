"""The plots of a page, as SVG text whose colours are those of the page in light and in dark.

Requires: matplotlib (the extra `plots`). Guarantees: equal data give equal text; the text has no script and no
reference to another file. Refuses: `PlotsMissing` without matplotlib.
"""

from __future__ import annotations

import html
import importlib
import io
import re
from collections.abc import Sequence
from typing import Any

from .report import PlotsMissing

__all__ = ["Interval", "bars", "intervals", "trend"]

#: A label, the value with its interval in percent, and the name of a colour: `good`, `bad`, `neutral`.
Interval = tuple[str, float, float, float, str]

#: The colours that matplotlib draws, and what they are on the page.
_COLOURS = {
    "good": ("#010203", "var(--good)"),
    "bad": ("#010204", "var(--bad)"),
    "neutral": ("#010205", "var(--neutral)"),
    "line": ("#010206", "var(--accent)"),
}


def intervals(rows: Sequence[Interval], label: str, title: str) -> str:
    """Values with intervals around zero, one row each."""
    figure, axes = _figure(5.6, 0.75 + 0.28 * len(rows))
    for place, (_, value, low, high, colour) in enumerate(rows):
        error = [[max(0.0, value - low)], [max(0.0, high - value)]]
        axes.errorbar([value], [place], xerr=error, fmt="o", markersize=4, capsize=3, color=_COLOURS[colour][0])
    _label_rows(axes, [row[0] for row in rows], label)
    return _svg(figure, title)


def bars(rows: Sequence[tuple[str, float, str]], label: str, title: str) -> str:
    """Changes as bars around zero: label, value, name of a colour."""
    figure, axes = _figure(5.6, 0.75 + 0.28 * len(rows))
    for place, (_, value, colour) in enumerate(rows):
        axes.barh(place, value, height=0.6, color=_COLOURS[colour][0])
    _label_rows(axes, [row[0] for row in rows], label)
    axes.margins(x=0.08)
    return _svg(figure, title)


def trend(values: Sequence[float], steps: Sequence[tuple[int, str]], title: str) -> str:
    """A series over results; ``steps`` are the places of steps, with the name of a colour."""
    figure, axes = _figure(3.6, 1.2)
    axes.plot(range(len(values)), values, drawstyle="steps-post", linewidth=1.4, color=_COLOURS["line"][0])
    for index, colour in steps:
        axes.plot([index], [values[index]], "o", markersize=5, color=_COLOURS[colour][0])
    axes.margins(y=0.2)
    axes.set_xticks([])
    axes.locator_params(axis="y", nbins=4)
    axes.ticklabel_format(axis="y", useOffset=False)
    return _svg(figure, title)


def _figure(width: float, height: float) -> tuple[Any, Any]:
    try:
        module: Any = importlib.import_module("matplotlib.figure")
    except ImportError as error:
        raise PlotsMissing(str(error)) from error
    figure = module.Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
    return figure, axes


def _label_rows(axes: Any, names: Sequence[str], label: str) -> None:
    axes.axvline(0, color="#000000", linewidth=0.8)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlabel(label, fontsize=8)


def _svg(figure: Any, title: str) -> str:
    matplotlib: Any = importlib.import_module("matplotlib")
    out = io.StringIO()
    # The names of shapes are hashes with this salt. So no plot of the page uses a shape of another one.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": title}):
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    text = out.getvalue()
    text = text[text.index("<svg") :]
    for pattern in (r"<metadata>.*?</metadata>\s*", r"<defs>\s*<style.*?</style>\s*</defs>\s*"):
        text = re.sub(pattern, "", text, count=1, flags=re.DOTALL)
    text = re.sub(r'<g id="\w[\w.]*">', "<g>", text)
    text = re.sub(r"font-family: [^;\"]*;?", "", text)
    for drawn, shown in (*_COLOURS.values(), ("#000000", "currentColor")):
        text = text.replace(drawn, shown)
    return text.replace("<svg ", f'<svg role="img" aria-label="{html.escape(title)}" class="plot" ', 1)

"""Tables on stdout: rich draws them if colour is on; otherwise they are plain columns."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from . import color

__all__ = ["print_table"]

Cell = str | int | float | None


def print_table(headings: Sequence[str], rows: Sequence[Sequence[Cell]], title: str = "") -> None:
    """Print rows under headings. Columns of numbers are right-aligned; ``None`` is an empty cell."""
    right = [all(isinstance(row[i], int | float | None) for row in rows) for i in range(len(headings))]
    texts = [[_text(cell) for cell in row] for row in rows]
    if color.is_wanted(sys.stdout):
        _draw(headings, texts, right, title)
    else:
        sys.stdout.write(_plain(headings, texts, right, title))


def _text(cell: Cell) -> str:
    return "" if cell is None else f"{cell:.3f}" if isinstance(cell, float) else str(cell)


def _plain(headings: Sequence[str], texts: list[list[str]], right: list[bool], title: str) -> str:
    every = [list(headings), *texts]
    widths = [max(len(row[i]) for row in every) for i in range(len(headings))]
    lines = [title] if title else []
    if not right[-1]:
        widths[-1] = 0  # the last column needs no padding
    for row in every:
        cells = [c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines) + "\n"


def _draw(headings: Sequence[str], texts: list[list[str]], right: list[bool], title: str) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD)
    for heading, is_right in zip(headings, right, strict=True):
        table.add_column(
            heading,
            justify="right" if is_right else "left",
            no_wrap=is_right,
            overflow="fold",
            min_width=min(8, len(heading)),
        )
    for row in texts:
        table.add_row(*(Text(cell) for cell in row))
    Console(file=sys.stdout, force_terminal=True).print(table)

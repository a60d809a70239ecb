"""The one look of tables of results in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table


def results_table(title: str, names: Sequence[str], figures: Sequence[str], caption: str, **look: Any) -> Table:
    """Return a table without rows: columns of names go to the left, those of figures to the right."""
    table = Table(title=escape(title), title_style="bold", caption=escape(caption), **look)
    table.title_justify = table.caption_justify = "left"
    for heading in (*names, *figures):
        table.add_column(heading, justify="left" if heading in names else "right", overflow="fold")
    return table

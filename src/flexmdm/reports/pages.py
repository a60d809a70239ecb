"""Pages: HTML files with everything in them, rendered from the templates of this package."""

from __future__ import annotations

import math
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from flexmdm.reports.charts import GLYPHS, THEME


def render(template: str, **content: Any) -> str:
    """Return a page; everything in ``content`` is escaped unless its template calls it safe."""
    look: dict[str, Any] = {"undefined": StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
    environment = Environment(loader=PackageLoader("flexmdm.reports"), autoescape=True, **look)
    environment.filters |= {"number": number, "percent": percent, "duration": duration}
    return environment.get_template(template).render(theme=THEME, glyphs=GLYPHS, **content)


def number(value: float) -> str:
    """Return a number with about three digits.

    >>> [number(value) for value in (0.1234, 12.345, 1234.5, math.nan)]
    ['0.12', '12.3', '1,234', '–']
    """
    if math.isnan(value):
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def percent(share: float) -> str:
    """Return a share in percent, with about two digits.

    >>> [percent(share) for share in (0.00921, 0.0347, 0.126, 1.0, math.nan)]
    ['0.92%', '3.5%', '13%', '100%', '–']
    """
    if math.isnan(share):
        return "–"
    return f"{100 * share:.0f}%" if share >= 0.0995 else f"{100 * share:.1f}%" if share >= 0.00995 else f"{share:.2%}"


def duration(minutes: float) -> str:
    """Return minutes in words.

    >>> duration(0.5), duration(1), duration(2.5)
    ('30 seconds', '1 minute', '2.5 minutes')
    """
    if minutes < 1:
        return f"{60 * minutes:.0f} seconds"
    return "1 minute" if f"{minutes:.1f}" == "1.0" else f"{minutes:.1f} minutes".replace(".0 ", " ")

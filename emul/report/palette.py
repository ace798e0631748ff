"""Colours of a report, light and dark, and how charts use them.

A chart names a colour by its token, "$lost"; the page puts in the colour of the theme when it draws, `--figures` the
light one. So one chart serves both themes, and a colour is decided in one place.
"""

from __future__ import annotations

from typing import Any

from emul.base.plain import PlainDict

SERIES = 8          # colours for schemes, labels and roles, one after the other

LIGHT = {
    "page": "#ffffff", "card": "#f5f7fa", "text": "#1b2430", "muted": "#566173", "line": "#d3dae3",
    "accent": "#0b5cad",
    "s1": "#0b6bb8", "s2": "#c4490b", "s3": "#12805c", "s4": "#7d3fc1", "s5": "#8f6400", "s6": "#b8246e",
    "s7": "#0d7280", "s8": "#5c5650",
    "delivered": "#6b819c", "late": "#b86a00", "lost": "#cc1f2f", "ended": "#8a3fc7", "rejected": "#1b2430",
    "flight": "#0d7f86",
    "wait": "#77869a", "between": "#b9c3cf", "down": "#cc1f2f", "clean": "#8d9bab",
}
DARK = {
    "page": "#12161c", "card": "#1a2028", "text": "#e6ebf2", "muted": "#a3afbf", "line": "#36404d",
    "accent": "#7ab8f5",
    "s1": "#63b0f5", "s2": "#fb9a5b", "s3": "#4fd1a1", "s4": "#c3a0ff", "s5": "#e8c34a", "s6": "#f495c0",
    "s7": "#5cd5e0", "s8": "#c9c2ba",
    "delivered": "#8299b5", "late": "#f2b54a", "lost": "#ff6b74", "ended": "#cf9dff", "rejected": "#e6ebf2",
    "flight": "#5cd5d0",
    "wait": "#8493a8", "between": "#4a5666", "down": "#ff6b74", "clean": "#76859a",
}

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"


def series(count: int) -> list[str]:
    """Tokens for `count` things that have no colour of their own; they come again after `SERIES`."""
    return [f"$s{i % SERIES + 1}" for i in range(count)]


_AXIS = {"labelColor": "$muted", "titleColor": "$text", "domainColor": "$line", "tickColor": "$line",
         "gridColor": "$line", "gridOpacity": 0.6, "labelFontSize": 11, "titleFontSize": 12,
         "titleFontWeight": "normal", "labelLimit": 150, "titlePadding": 8}

CONFIG: PlainDict = {
    "background": "transparent", "font": FONT, "view": {"stroke": None}, "axis": _AXIS,
    "axisXQuantitative": {"labelSeparation": 5},
    "legend": {"labelColor": "$text", "titleColor": "$muted", "orient": "top", "labelFontSize": 11, "titleFontSize": 11,
               "titleFontWeight": "normal", "symbolSize": 90, "labelLimit": 180, "columnPadding": 14},
    "title": {"color": "$text", "subtitleColor": "$muted", "fontSize": 12, "fontWeight": "normal", "anchor": "start"},
    "text": {"color": "$text", "fill": "$text", "fontSize": 11},
    "header": {"labelColor": "$text", "titleColor": "$muted"},
}


def fill(value: object, tokens: dict[str, object]) -> Any:
    """`value` with every "$token" replaced; a list that holds nothing but a token of a list becomes that list.

    >>> fill({"domain": ["$lanes"], "color": "$lost"}, {"lanes": [1, 2], "lost": "red"})
    {'domain': [1, 2], 'color': 'red'}
    """
    if isinstance(value, dict):
        return {key: fill(item, tokens) for key, item in value.items()}
    if isinstance(value, list):
        if len(value) == 1 and isinstance(value[0], str) and isinstance(tokens.get(value[0][1:]), list):
            return tokens[value[0][1:]]
        return [fill(item, tokens) for item in value]
    if isinstance(value, str) and value.startswith("$"):
        return tokens.get(value[1:], value)
    return value

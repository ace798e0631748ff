"""The HTML of a report: one file with everything in it, no address of anything outside."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from html import escape
from importlib import resources
from typing import Any

import numpy as np
import pandas as pd

from emul import __version__
from emul.base.extras import optional
from emul.base.plain import PlainDict
from emul.report import palette
from emul.report.drawing import Choice, Figure
from emul.report.film import Film

ROWS = 100              # of a table, at most; the whole of it goes to `--figures`
_SCROLLS = 320          # px: a chart that is never narrower gets a frame that can be scrolled by keyboard
_PAIRED = 300           # px: charts that are no wider may stand beside each other

# Nothing may be fetched, whatever a library tries. Vega compiles its expressions, hence 'unsafe-eval'.
_POLICY = ("default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data:; "
           "base-uri 'none'; form-action 'none'")


@dataclass(frozen=True)
class Part:
    """A section. cards: (name, value) shown large. tables: (caption, frame). pictures: (title, [(caption, PNG)]).
    choice: what can be chosen in the first figures. group: runs, each folded up. source: a text to show as it is.
    answer: paragraphs that stand before all else. folded: further tables, each folded up under its caption. film: of a
    run, below the figures.
    """

    key: str
    title: str
    figures: list[Figure] = field(default_factory=list)
    text: str = ""
    cards: list[tuple[str, str]] = field(default_factory=list)
    tables: list[tuple[str, pd.DataFrame]] = field(default_factory=list)
    pictures: list[tuple[str, list[tuple[str, bytes]]]] = field(default_factory=list)
    choice: Choice | None = None
    group: list[Part] = field(default_factory=list)
    source: str = ""
    answer: list[str] = field(default_factory=list)
    folded: list[tuple[str, pd.DataFrame]] = field(default_factory=list)
    film: Film | None = None


def render(title: str, parts: Sequence[Part], warnings: Sequence[str] = ()) -> str:
    """The whole page; `warnings` stand above all else."""
    links = "".join(f'<li><a href="#{escape(p.key)}">{escape(p.title)}</a></li>' for p in parts)
    body = "\n".join(_section(p, 2) for p in parts)
    filmed = any(p.film for p in _flat(parts))
    setup = {"light": palette.LIGHT, "dark": palette.DARK, "config": palette.CONFIG}
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}: emul report</title>
<style>{themes()}{report_asset("page.css")}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the content</a>
<header>
<div class="head"><h1>{escape(title)}</h1>
<button type="button" id="theme" aria-pressed="false" hidden>Dark</button></div>
<nav aria-label="Sections"><ul>{links}</ul></nav>
</header>
<main id="main">
{"".join(f'<p class="banner" role="alert">{escape(text)}</p>' for text in warnings)}
<noscript><p class="note">Charts need JavaScript; every chart's data is in the table under it.</p></noscript>
{body}
</main>
<footer><p>Written by emul {escape(__version__)}. This file holds everything it shows and fetches nothing.</p></footer>
{_json("setup", setup)}
{"".join(_figure_data(p) for p in _flat(parts))}
<script>{bundle()}</script>
<script>{report_asset("charts.js")}</script>
<script>{report_asset("page.js")}</script>
{f'<script>{report_asset("film.js")}</script>' if filmed else ""}
</body>
</html>
"""


def themes() -> str:
    """The colours of both themes, as CSS."""
    def block(colours: dict[str, str], scheme: str) -> str:
        return "".join(f"--{k}:{v};" for k, v in colours.items()) + f"color-scheme:{scheme};"
    light, dark = block(palette.LIGHT, "light"), block(palette.DARK, "dark")
    return (f":root{{{light}--font:{palette.FONT};}}"
            f"@media (prefers-color-scheme: dark){{:root:not([data-theme=light]){{{dark}}}}}"
            f":root[data-theme=dark]{{{dark}}}\n")


@cache
def report_asset(name: str) -> str:
    """A file beside this one, for other pages in the report's style, too."""
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


@cache
def bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed, as vl-convert ships them."""
    with optional("the pages of reports need", "report"):
        import vl_convert

    found = vl_convert.javascript_bundle()  # type: ignore[call-arg]  # its stub knows no default
    # it would end the script element; no release so far has it
    return str(found).replace("</script", r"<\/script").replace("<!--", r"<\!--")


def _flat(parts: Sequence[Part]) -> Iterator[Part]:
    for part in parts:
        yield part
        yield from _flat(part.group)


# --- sections -------------------------------------------------------------------------------------------------------

def _section(part: Part, level: int) -> str:
    inner = [*(f'<p class="answer">{escape(text)}</p>' for text in part.answer),
             f'<p class="lead">{escape(part.text)}</p>' if part.text else ""]
    if part.cards:
        numbers = "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in part.cards)
        inner.append(f'<dl class="cards">{numbers}</dl>')
    picker = _picker(part) if part.choice else ""
    drawn = "".join(_figure(f, level + 1, picker if i == 0 else "") for i, f in enumerate(part.figures))
    narrow = len(part.figures) > 1 and all(f.least_width <= _PAIRED for f in part.figures)
    inner.append(f'<div class="pairs">{drawn}</div>' if narrow else drawn)
    if part.film is not None:
        inner.append(_film(part.film, part.key))
    if part.tables:
        tables = "".join("<div>" + (f'<p class="caption">{escape(caption)}</p>' if caption else "") + _table(table)
                         + "</div>" for caption, table in part.tables)
        inner.append(f'<div class="tables">{tables}</div>')
    inner += [f'<details class="folded"><summary>{escape(caption)}</summary>{_table(table)}</details>'
              for caption, table in part.folded]
    inner += [_pictures(title, found) for title, found in part.pictures]
    if part.source:
        inner.append(f'<details><summary>The scenario as it was run</summary><pre tabindex="0">{escape(part.source)}'
                     "</pre></details>")
    inner += [f'<details class="run" id="{escape(p.key)}"><summary><h{level + 1}>{escape(p.title)}</h{level + 1}>'
              f'</summary>{"".join(_section(q, level + 2) for q in p.group)}</details>' for p in part.group]
    return (f'<section id="{escape(part.key)}" aria-labelledby="{escape(part.key)}-title">'
            f'<h{level} id="{escape(part.key)}-title">{escape(part.title)}</h{level}>{"".join(inner)}</section>')


def _figure(figure: Figure, level: int, picker: str) -> str:
    key = escape(figure.key)
    scrolls = f' tabindex="0" role="group" aria-label="{escape(figure.title)}, can be scrolled"' \
        if figure.least_width > _SCROLLS else ""
    said = f'<p class="said" id="{key}-said" aria-live="polite">{escape(figure.words)}</p>' if picker else ""
    return (f'<figure id="figure-{key}"><h{level}>{escape(figure.title)}</h{level}>'
            f'{picker}{said}'
            f'<div class="scroll"{scrolls}><div class="chart" data-key="{key}" style="min-width:'
            f'{figure.least_width}px"></div></div><figcaption>{escape(figure.text)}</figcaption>'
            f"<details><summary>Data of this figure</summary>{_table(figure.table, f'{figure.key}-data')}</details>"
            "</figure>")


def _film(film: Film, key: str) -> str:
    """A canvas with what it is played by; the slider goes through the whole film in a thousand steps."""
    lengths = "".join(f'<option value="{seconds}"{" selected" if seconds == 20 else ""}>{said}</option>'
                      for seconds, said in ((10, "10 s"), (20, "20 s"), (60, "1 minute"), (180, "3 minutes")))
    said_of = {"message": "message", "useless": "message that comes to nothing", "lost": "lost message",
               "computing": "computing", "away": "away, or link down",
               **({"contact": "link in contact"} if len(film.frames["met"]) else {})}
    legend = "".join(f'<li><span class="swatch {name}"></span>{said}</li>' for name, said in said_of.items())
    return (f'<figure class="film" data-key="{escape(key)}"><div class="picker">'
            '<button type="button" class="play">Play</button>'
            '<label>Time <input type="range" min="0" max="1000" value="0" step="1"></label>'
            f'<label>All of it in <select>{lengths}</select></label></div><p class="said now"></p>'
            f'<canvas role="img" aria-label="{escape(film.words)}"></canvas><ul class="legend">{legend}</ul>'
            f'<figcaption>{escape(film.text)}</figcaption></figure>')


def _picker(part: Part) -> str:
    """A list with buttons, for the first figures of the part."""
    assert part.choice is not None
    options = "".join(f'<option value="{i}"{" selected" if i == part.choice.first else ""}>{escape(label)}</option>'
                      for i, label in enumerate(part.choice.labels))
    keys = " ".join(escape(figure.key) for figure in part.figures[:len(part.choice.shown)])
    return (f'<div class="picker" data-for="{keys}"><button type="button" data-step="-1">Previous</button>'
            f'<label>Show <select>{options}</select></label>'
            '<button type="button" data-step="1">Next</button></div>')


def _pictures(title: str, found: Sequence[tuple[str, bytes]]) -> str:
    """PNGs in a row, each with its caption, which is also what a reader hears."""
    shown = "".join(f'<figure class="picture"><img alt="{escape(caption)}" src="data:image/png;base64,'
                    f'{b64encode(content).decode("ascii")}"><figcaption>{escape(caption)}</figcaption></figure>'
                    for caption, content in found)
    return f'<p class="caption">{escape(title)}</p><div class="pictures">{shown}</div>'


def _table(frame: pd.DataFrame, key: str = "") -> str:
    """The first ROWS rows. A column of numbers is set to the right."""
    right = [pd.api.types.is_numeric_dtype(frame[c]) and not pd.api.types.is_bool_dtype(frame[c]) for c in frame]
    head = "".join(f'<th scope="col"{_right(r)}>{escape(str(c))}</th>' for c, r in zip(frame, right, strict=True))
    columns = [frame[c].head(ROWS).tolist() for c in frame]
    body = "".join("<tr>" + "".join(f"<td{_right(r)}>{escape(shown(v))}</td>" for v, r in zip(row, right, strict=True))
                   + "</tr>" for row in zip(*columns, strict=True))
    more = f'<p class="note">The first {ROWS} of {len(frame):,} rows; <code>--figures</code> writes all.</p>' \
        if len(frame) > ROWS else ""
    name = f' id="{escape(key)}"' if key else ""
    return (f'<div class="scroll table" tabindex="0" role="group" aria-label="Table"><table{name}><thead><tr>{head}'
            f"</tr></thead><tbody>{body}</tbody></table></div>{more}")


def _right(right: bool) -> str:
    return ' class="n"' if right else ""


def shown(value: Any) -> str:
    """A cell.

    >>> shown(1234567), shown(0.949495), shown(12345.678), shown(None), shown(True)
    ('1,234,567', '0.9495', '12,346', '', 'yes')
    """
    if value is None or value is pd.NA or (isinstance(value, float) and value != value):
        return ""
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    if isinstance(value, (int, np.integer)):
        return f"{value:,}"
    if not isinstance(value, (float, np.floating)):
        return str(value)
    number = float(value)
    return f"{number:,.0f}" if 1000 <= abs(number) < 1e15 else f"{number:.4g}"


# --- data -----------------------------------------------------------------------------------------------------------

def _figure_data(part: Part) -> str:
    found = []
    if part.film is not None:
        found.append(_json(f"film-{part.key}", {
            "unit": part.film.unit, "aspect": part.film.aspect, "globe": part.film.globe,
            "frames": {name: packed(frame) for name, frame in part.film.frames.items()}}))
    for i, figure in enumerate(part.figures):
        content: dict[str, object] = {"spec": figure.spec() | {"description": figure.words},
                                   "frames": {name: packed(f) for name, f in figure.frames.items()}}
        if part.choice is not None and i < len(part.choice.shown):
            content |= {"first": part.choice.first, "frames": {},
                        "shown": [{"text": one.text, "tokens": one.tokens, "height": one.height,
                                   "table": packed(one.table),
                                   "frames": {name: packed(f) for name, f in one.frames.items()}}
                                  for one in part.choice.shown[i]]}
        found.append(_json(f"data-{figure.key}", content))
    return "".join(found)


def packed(frame: pd.DataFrame) -> PlainDict:
    """A frame by columns, texts as codes into a list.

    >>> packed(pd.DataFrame({"x": [0.5, 2], "name": ["a", "a"]}))
    {'n': 2, 'columns': {'x': [0.5, 2], 'name': {'of': ['a'], 'at': [0, 0]}}}
    """
    columns: dict[str, object] = {}
    for name, column in frame.items():
        if pd.api.types.is_numeric_dtype(column):
            columns[str(name)] = [None if v != v else int(v) if v == (w := int(v)) and abs(w) < 2**53 else v
                                  for v in column.tolist()]
        else:
            codes, of = pd.factorize(column)
            columns[str(name)] = {"of": [str(v) for v in of], "at": codes.tolist()}
    return {"n": len(frame), "columns": columns}


def _json(key: str, value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json" id="{escape(key)}">{text}</script>\n'

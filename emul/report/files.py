"""Figures as files: PNG, SVG, PDF and the data as CSV, as wide as a page or a column of a paper."""

from __future__ import annotations

import json
import os
import re
import struct
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from emul.base.extras import optional
from emul.base.names import listed
from emul.base.plain import PlainDict
from emul.report import palette
from emul.report.drawing import Figure

_PX = 96 / 72           # of a point
_LETTER = 0.52          # width of a letter, as a share of the size of the text
_LINES = 2.15           # height of a row whose name has two lines, as a share of the size of the text


@dataclass(frozen=True)
class FigureSize:
    """Width in px (96 to the inch), text in px, pixels of a PNG to a px; heights over those of the page: of what is
    elastic, and of a row."""

    width: int
    labels: float
    titles: float
    scale: int
    flat: float = 1.0
    rows: float = 1.0


# a column of two is 3.5 inches, with text of 7 and 8 pt
SIZES = {"page": FigureSize(760, 11, 12, 2),
         "column": FigureSize(336, round(7 * _PX, 2), round(8 * _PX, 2), 4, 0.68, 0.7)}


def write_figures(folder: Path, drawn: Sequence[Figure], size: str = "page", font: str = "",
                  tell: Callable[[str], None] = lambda step: None) -> None:
    """Every figure as KEY.png, KEY.svg, KEY.pdf (light) and KEY.csv. Raises ValueError for a size or a font that there
    is not."""
    with optional("figures as files need", "report"):
        import vl_convert

    if size not in SIZES:
        raise ValueError(f"size = {size}: expected one of {', '.join(SIZES)}")
    if font:
        require_font(font)
    folder.mkdir(parents=True, exist_ok=True)
    for i, figure in enumerate(drawn, 1):
        tell(f"figure {i} of {len(drawn)}: {figure.key}")
        svg = vl_convert.vegalite_to_svg(vega_lite(figure, SIZES[size], font))
        (folder / f"{figure.key}.svg").write_text(svg, encoding="utf-8")
        (folder / f"{figure.key}.png").write_bytes(vl_convert.svg_to_png(svg, scale=SIZES[size].scale))
        head, end, rest = svg.partition(">")            # a PDF takes a px of the outer width and height for a point
        head = re.sub(r' (width|height)="([\d.]+)"', lambda m: f' {m[1]}="{float(m[2]) / _PX:g}"', head)
        (folder / f"{figure.key}.pdf").write_bytes(vl_convert.svg_to_pdf(head + end + rest))
        figure.table.to_csv(folder / f"{figure.key}.csv", index=False)
        for name, frame in figure.more.items():
            frame.to_csv(folder / f"{figure.key}-{name}.csv", index=False)


def vega_lite(figure: Figure, size: FigureSize = SIZES["page"], font: str = "") -> PlainDict:
    """The figure as a Vega-Lite specification that stands alone, in light colours."""
    page = size == SIZES["page"]
    spec = figure.spec() | {"width": size.width, "autosize": {"type": "pad"} if page else {
        "type": "fit-x", "contains": "padding"}}
    spec["config"] = _config(size, font)
    tokens = {**palette.LIGHT, **figure.tokens}
    filled: PlainDict = palette.fill(spec if page else _smaller(spec, size), tokens)
    filled["height"] = max(round(spec["height"] * (size.flat if figure.elastic else size.rows)),
                           round(_two_lines(filled) * _LINES * size.labels))
    return filled | {"datasets": {name: records(f) for name, f in figure.frames.items()}}


def _smaller(spec: object, size: FigureSize) -> Any:
    """The specification with letters that it gives a size itself as large as those of axes, and with names at an axis
    that take half of the width at most: longer ones go on in a second line."""
    if isinstance(spec, list):
        return [_smaller(item, size) for item in spec]
    if not isinstance(spec, dict):
        return spec
    found = {key: _smaller(item, size) for key, item in spec.items()}
    if "fontSize" in found:
        found["fontSize"] = size.labels
    if isinstance(axis := found.get("axis"), dict) and "labelLimit" in axis:
        limit = min(axis["labelLimit"], size.width // 2)
        found["axis"] = axis | {"labelLimit": limit}
        names = found["sort"] if isinstance(found.get("sort"), list) else []
        letters = int(limit / (_LETTER * size.labels))
        if any(len(name) > letters for name in names):
            lines = {name: textwrap.wrap(name, letters, max_lines=2, placeholder=" ...") for name in names}
            found["axis"] |= {"labelExpr": f"{json.dumps(lines)}[datum.label]", "labelLineHeight": size.labels}
    return found


def _two_lines(spec: object) -> int:
    """The rows of an axis on which a name has two lines; 0: there is none."""
    if isinstance(spec, dict):
        return len(spec["sort"]) if "labelLineHeight" in (spec.get("axis") or {}) else max(
            map(_two_lines, spec.values()), default=0)
    return max(map(_two_lines, spec), default=0) if isinstance(spec, list) else 0


def _config(size: FigureSize, font: str) -> PlainDict:
    text = {"labelFontSize": size.labels, "titleFontSize": size.titles}
    found = palette.CONFIG | {"background": palette.LIGHT["page"], **({"font": font} if font else {})}
    if size != SIZES["page"]:
        found |= {"axis": palette.CONFIG["axis"] | text, "text": palette.CONFIG["text"] | {"fontSize": size.labels},
                  "legend": palette.CONFIG["legend"] | text | {"titleFontSize": size.labels, "columnPadding": 8,
                                                           "layout": {"top": {"anchor": "start", "bounds": "full",
                                                                              "direction": "vertical"}}}}
    return found


def records(frame: pd.DataFrame) -> list[dict[str, object]]:
    """Rows as plain values; what is not finite, or missing, becomes null."""
    plain = frame.astype(object).where(frame.notna(), None)
    return [{k: v.item() if isinstance(v, np.generic) else v for k, v in row.items()}
            for row in plain.to_dict("records")]


# --- fonts: whether the renderer has one, and which ones the system has ----------------------------------------------
#
# The renderer draws no text at all, and says nothing, where it finds none of the fonts that a figure names.
_FAMILY = 1             # of the names in a font file
_WINDOWS, _MAC = 3, 1   # platforms of names: UTF-16, and one byte a letter
_BUNDLED = ("Liberation Sans", "Liberation Serif", "Liberation Mono", "Roboto", "Roboto Mono")     # by vl-convert
_SHOWN = 40             # fonts, at most, that an error lists


def require_font(font: str) -> None:
    """Raises ValueError, with the fonts that there are, unless text comes out in `font`: a name, or several with
    commas, the first of which that is there is used."""
    if not font_is_drawn(font):
        there = [name for name in font_families() if font_is_drawn(name)]
        known = f"expected one of {listed(there, _SHOWN)}" if there else "and none was found on this system"
        raise ValueError(f"font = {font}: there is no such font; {known}")


def font_is_drawn(font: str) -> bool:
    """True if the renderer draws letters in this font."""
    import vl_convert

    quoted = font.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    with_letters, without = (vl_convert.svg_to_png(
        '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20"><text x="2" y="15" font-size="14" '
        f'font-family="{quoted}">{text}</text></svg>') for text in ("H8", ""))
    return bool(with_letters != without)


def font_families() -> list[str]:
    """Names of the fonts in the usual directories, and of those that the renderer may bring, in alphabetical order."""
    found = set(_BUNDLED)
    for folder in _folders():
        for file in folder.rglob("*"):
            if file.suffix.lower() in (".ttf", ".otf", ".ttc"):
                found |= font_names_in(file.read_bytes())
    return sorted(found)


def _folders() -> list[Path]:
    home = Path.home()
    if sys.platform == "darwin":
        return [Path("/System/Library/Fonts"), Path("/Library/Fonts"), home / "Library/Fonts"]
    if sys.platform == "win32":
        return [Path(os.environ.get("WINDIR", "C:/Windows")) / "Fonts"]
    return [Path("/usr/share/fonts"), Path("/usr/local/share/fonts"), home / ".fonts", home / ".local/share/fonts"]


def font_names_in(font: bytes) -> set[str]:
    """The names of the families in the bytes of an OpenType file or collection; none of what is no such file."""
    try:
        starts = [0]
        if font[:4] == b"ttcf":
            count, = struct.unpack_from(">I", font, 8)
            starts = list(struct.unpack_from(f">{count}I", font, 12))
        return {name for start in starts for name in _names_at(font, start)}
    except (struct.error, UnicodeDecodeError):
        return set()


def _names_at(font: bytes, start: int) -> set[str]:
    tables, = struct.unpack_from(">H", font, start + 4)
    found = set()
    for i in range(tables):
        tag, _, at, _ = struct.unpack_from(">4sIII", font, start + 12 + 16 * i)
        if tag != b"name":
            continue
        _, count, texts = struct.unpack_from(">HHH", font, at)
        for j in range(count):
            platform, _, _, which, size, offset = struct.unpack_from(">6H", font, at + 6 + 12 * j)
            if which == _FAMILY and platform in (_WINDOWS, _MAC):
                raw = font[at + texts + offset:at + texts + offset + size]
                found.add(raw.decode("utf-16-be" if platform == _WINDOWS else "mac-roman"))
    return found

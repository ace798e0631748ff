"""Figures as files: PNG, SVG, PDF and the data as CSV, as wide as a page or a column of a paper."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from emul.base.extras import optional
from emul.base.plain import PlainDict
from emul.report import fonts, palette
from emul.report.drawing import Figure

_PX = 96 / 72           # of a point


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
        fonts.require(font)
    folder.mkdir(parents=True, exist_ok=True)
    for i, figure in enumerate(drawn, 1):
        tell(f"figure {i} of {len(drawn)}: {figure.key}")
        svg = vl_convert.vegalite_to_svg(vega_lite(figure, SIZES[size], font))
        (folder / f"{figure.key}.svg").write_text(svg, encoding="utf-8")
        (folder / f"{figure.key}.png").write_bytes(vl_convert.svg_to_png(svg, scale=SIZES[size].scale))
        (folder / f"{figure.key}.pdf").write_bytes(vl_convert.svg_to_pdf(_in_points(svg)))
        figure.table.to_csv(folder / f"{figure.key}.csv", index=False)
        for name, frame in figure.more.items():
            frame.to_csv(folder / f"{figure.key}-{name}.csv", index=False)


def _in_points(svg: str) -> str:
    """The drawing with its outer width and height in points: a PDF takes a px for one."""
    head, end, rest = svg.partition(">")
    return re.sub(r' (width|height)="([\d.]+)"', lambda m: f' {m[1]}="{float(m[2]) / _PX:g}"', head) + end + rest


def vega_lite(figure: Figure, size: FigureSize = SIZES["page"], font: str = "") -> PlainDict:
    """The figure as a Vega-Lite specification that stands alone, in light colours."""
    page = size == SIZES["page"]
    spec = figure.spec() | {"width": size.width, "autosize": {"type": "pad"} if page else {
        "type": "fit-x", "contains": "padding"}}
    spec["height"] = round(spec["height"] * (size.flat if figure.elastic else size.rows))
    spec["config"] = _config(size, font)
    tokens = {**palette.LIGHT, **figure.tokens}
    filled: PlainDict = palette.fill(spec if page else _smaller(spec, size), tokens)
    return filled | {"datasets": {name: records(f) for name, f in figure.frames.items()}}


def _smaller(spec: object, size: FigureSize) -> Any:
    """The specification with letters that it gives a size itself as large as those of axes, and with names at an axis
    that take half of the width at most."""
    if isinstance(spec, list):
        return [_smaller(item, size) for item in spec]
    if not isinstance(spec, dict):
        return spec
    found = {key: _smaller(item, size) for key, item in spec.items()}
    if "fontSize" in found:
        found["fontSize"] = size.labels
    if isinstance(axis := found.get("axis"), dict) and "labelLimit" in axis:
        found["axis"] = axis | {"labelLimit": min(axis["labelLimit"], size.width // 2)}
    return found


def _config(size: FigureSize, font: str) -> PlainDict:
    text = {"labelFontSize": size.labels, "titleFontSize": size.titles}
    found = palette.CONFIG | {"background": palette.LIGHT["page"], **({"font": font} if font else {})}
    if size != SIZES["page"]:
        found |= {"axis": palette.CONFIG["axis"] | text, "text": palette.CONFIG["text"] | {"fontSize": size.labels},
                  "legend": palette.CONFIG["legend"] | text | {"titleFontSize": size.labels, "columnPadding": 8,
                                                           "layout": {"top": {"anchor": "start", "bounds": "full"}}}}
    return found


def records(frame: pd.DataFrame) -> list[dict[str, object]]:
    """Rows as plain values; what is not finite, or missing, becomes null."""
    plain = frame.astype(object).where(frame.notna(), None)
    return [{k: v.item() if isinstance(v, np.generic) else v for k, v in row.items()}
            for row in plain.to_dict("records")]

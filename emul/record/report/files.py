"""Figures as files: PNG, SVG, PDF and the data as CSV, as wide as a page or a column of a paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from emul.base.extras import optional
from emul.record.report import palette
from emul.record.report.drawing import Figure

_PX = 96 / 72           # of a point


@dataclass(frozen=True)
class Size:
    """Width in px (96 to the inch), text in px, pixels of a PNG to a px, height of what is elastic over the page's."""

    width: int
    labels: float
    titles: float
    scale: int
    flat: float = 1.0


# a column of two is 3.5 inches, with text of 7 and 8 pt
SIZES = {"page": Size(760, 11, 12, 2), "column": Size(336, round(7 * _PX, 2), round(8 * _PX, 2), 4, 0.68)}


def write_figures(folder: Path, drawn: Sequence[Figure], size: str = "page", font: str = "") -> None:
    """Every figure as KEY.png, KEY.svg, KEY.pdf (light) and KEY.csv. Raises ValueError for a size that there is not."""
    with optional("figures as files need", "report"):
        import vl_convert

    if size not in SIZES:
        raise ValueError(f"size = {size}: expected one of {', '.join(SIZES)}")
    folder.mkdir(parents=True, exist_ok=True)
    for figure in drawn:
        svg = vl_convert.vegalite_to_svg(vega_lite(figure, SIZES[size], font))
        (folder / f"{figure.key}.svg").write_text(svg, encoding="utf-8")
        (folder / f"{figure.key}.png").write_bytes(vl_convert.svg_to_png(svg, scale=SIZES[size].scale))
        (folder / f"{figure.key}.pdf").write_bytes(vl_convert.svg_to_pdf(svg))
        figure.table.to_csv(folder / f"{figure.key}.csv", index=False)
        for name, frame in figure.more.items():
            frame.to_csv(folder / f"{figure.key}-{name}.csv", index=False)


def vega_lite(figure: Figure, size: Size = SIZES["page"], font: str = "") -> dict[str, Any]:
    """The figure as a Vega-Lite specification that stands alone, in light colours."""
    page = size == SIZES["page"]
    spec = figure.spec() | {"width": size.width, "autosize": {"type": "pad"} if page else {
        "type": "fit-x", "contains": "padding"}}
    if figure.elastic:
        spec["height"] = round(spec["height"] * size.flat)
    spec["config"] = _config(size, font)
    tokens = {**palette.LIGHT, **figure.tokens}
    return palette.fill(spec, tokens) | {"datasets": {name: records(f) for name, f in figure.frames.items()}}


def _config(size: Size, font: str) -> dict[str, Any]:
    text = {"labelFontSize": size.labels, "titleFontSize": size.titles}
    found = palette.CONFIG | {"background": palette.LIGHT["page"], **({"font": font} if font else {})}
    if size != SIZES["page"]:
        found |= {"axis": palette.CONFIG["axis"] | text, "text": palette.CONFIG["text"] | {"fontSize": size.labels},
                  "legend": palette.CONFIG["legend"] | text | {"titleFontSize": size.labels, "columnPadding": 8}}
    return found


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as plain values; what is not finite, or missing, becomes null."""
    plain = frame.astype(object).where(frame.notna(), None)
    return [{k: v.item() if isinstance(v, np.generic) else v for k, v in row.items()}
            for row in plain.to_dict("records")]

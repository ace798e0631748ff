"""Small pieces of HTML, for whoever shows a value in a notebook."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def text(said: str) -> str:
    """Lines as they are."""
    return f"<pre>{escape(said)}</pre>"


def table(frame: pd.DataFrame, caption: str = "") -> str:
    """A frame without its index; cells are escaped by pandas."""
    head = f"<p><b>{escape(caption)}</b></p>" if caption else ""
    body: str = frame.to_html(index=False, border=0, na_rep="", float_format="{:.6g}".format)
    return head + body

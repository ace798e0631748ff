"""Fonts of figures as files: whether the renderer has one, and which ones the system has.

The renderer draws no text at all, and says nothing, where it finds none of the fonts that a figure names.
"""

from __future__ import annotations

import os
import struct
import sys
from pathlib import Path

from emul.base.names import listed

_FAMILY = 1             # of the names in a font file
_WINDOWS, _MAC = 3, 1   # platforms of names: UTF-16, and one byte a letter
_BUNDLED = ("Liberation Sans", "Liberation Serif", "Liberation Mono", "Roboto", "Roboto Mono")     # by vl-convert
_SHOWN = 40             # fonts, at most, that an error lists


def require(font: str) -> None:
    """Raises ValueError, with the fonts that there are, unless text comes out in `font`: a name, or several with
    commas, the first of which that is there is used."""
    if not drawn(font):
        there = [name for name in families() if drawn(name)]
        known = f"expected one of {listed(there, _SHOWN)}" if there else "and none was found on this system"
        raise ValueError(f"font = {font}: there is no such font; {known}")


def drawn(font: str) -> bool:
    """True if the renderer draws letters in this font."""
    import vl_convert

    quoted = font.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    with_letters, without = (vl_convert.svg_to_png(
        '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20"><text x="2" y="15" font-size="14" '
        f'font-family="{quoted}">{text}</text></svg>') for text in ("H8", ""))
    return bool(with_letters != without)


def families() -> list[str]:
    """Names of the fonts in the usual directories, and of those that the renderer may bring, in alphabetical order."""
    found = set(_BUNDLED)
    for folder in _folders():
        for file in folder.rglob("*"):
            if file.suffix.lower() in (".ttf", ".otf", ".ttc"):
                found |= names_in(file.read_bytes())
    return sorted(found)


def _folders() -> list[Path]:
    home = Path.home()
    if sys.platform == "darwin":
        return [Path("/System/Library/Fonts"), Path("/Library/Fonts"), home / "Library/Fonts"]
    if sys.platform == "win32":
        return [Path(os.environ.get("WINDIR", "C:/Windows")) / "Fonts"]
    return [Path("/usr/share/fonts"), Path("/usr/local/share/fonts"), home / ".fonts", home / ".local/share/fonts"]


def names_in(font: bytes) -> set[str]:
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

"""The table of link classes that `link` of `devices` names: a CSV file, or the one that comes along."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from emul.base.tables import amount, read, stamp
from emul.network.classes import LinkClass

SHIPPED = Path(__file__).with_name("linkclasses.csv")
_NUMBERS = ("down_mbps", "up_mbps", "rtt_ms", "loss")


def read_links(path: Path) -> dict[str, LinkClass]:
    """Name -> class, of a table. Raises ScenarioError with everything that is wrong with it."""
    return _read_links(path, stamp(path))


@lru_cache(maxsize=64)
def _read_links(path: Path, stamp: tuple[int, int] | None) -> dict[str, LinkClass]:
    # once for the schemes of a scenario; a file that has changed is read again
    table = read(path, ("link", *_NUMBERS, "source"))
    names = table.column("link", _name)
    down, up = table.column("down_mbps", _above), table.column("up_mbps", _above)
    rtt, loss = table.column("rtt_ms", amount), table.column("loss", _probability)
    table.column("source", str)
    table.unique("link")
    table.check()
    found: dict[str, LinkClass] = {}
    for name, each in zip(names, zip(down, up, rtt, loss, strict=True), strict=True):
        assert name is not None
        d, u, r, p = (value or 0.0 for value in each)
        found[name] = LinkClass(name, round(d * 1e6), round(u * 1e6), round(r * 1e6 / 2), p)
    return found


def _name(text: str) -> str:
    if not text or any(c in text for c in "*?[@<>- "):
        raise ValueError("expected a name without blanks and without any of * ? [ @ < > -")
    return text


def _above(text: str) -> float:
    if amount(text) < 1e-6:
        raise ValueError("expected a number above 0, at least 0.000001: 1 bit/s")
    return float(text)


def _probability(text: str) -> float:
    return amount(text, unit="a probability below 1", below=1)

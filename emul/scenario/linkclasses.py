"""The table of link classes that `link` of `devices` names: a CSV file, or the one that comes along."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from emul.base.tables import read, stamp
from emul.network.classes import LinkClass

SHIPPED = Path(__file__).with_name("linkclasses.csv")


def read_links(path: Path) -> dict[str, LinkClass]:
    """Name -> class, of a table. Raises ScenarioError with everything that is wrong with it."""
    return _read_links(path, stamp(path))


@lru_cache(maxsize=64)
def _read_links(path: Path, stamp: tuple[int, int] | None) -> dict[str, LinkClass]:
    # once for the schemes of a scenario; a file that has changed is read again
    table = read(path, ("link", "down=mbps", "up=mbps", "rtt=ms", "loss"))          # and, for people, source
    names = table.column("link", _name)
    down, up, rtt, loss = table.rates("down"), table.rates("up"), table.durations("rtt"), table.shares("loss")
    for (line, _), d, u, p in zip(table.rows, down, up, loss, strict=True):
        for name, value in (("down", d), ("up", u)):
            if value == 0:
                table.problem(line, name, "0", "expected a rate above 0, at least 1 bit/s")
        if p == 1:
            table.problem(line, "loss", "1", "expected a probability below 1")
    table.unique("link")
    table.check()
    return {name: LinkClass(name, d, u, round(r / 2), p)
            for name, d, u, r, p in zip(names, down, up, rtt, loss, strict=True)
            if name is not None and d is not None and u is not None and r is not None and p is not None}


def _name(text: str) -> str:
    if not text or any(c in text for c in "*?[@<>- "):
        raise ValueError("expected a name without blanks and without any of * ? [ @ < > -")
    return text

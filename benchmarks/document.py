"""Two pages, rewritten in place: what stands between `<!-- name -->` and `<!-- end -->` is generated.

`docs/benchmark-tables.md` has a block for each benchmark. `docs/benchmarks.md` is made of these: the blocks `fast` and
`large_runs` hold the headlines, which are the rows whose names are bold, and `sure` how each benchmark was run. So the
front page always says what the tables say. The rest of both pages is written by hand and is kept.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common import BAR, HEAD, ROOT, Table, row
from benchmarks.thresholds import Threshold

END = "<!-- end -->"
FAST, LARGE, SURE, ENVIRONMENT = "fast", "large_runs", "sure", "environment"
SIZES = {"kB", "MB", "GiB"}             # a headline in one of these says how large something is
POPULATIONS = {"large", "untrained"}    # and so do all of these benchmarks
BUSY = 0.5                              # load before a benchmark, above which its wall times say little
_CELLS = re.compile(r"(?<!\\)\|")
_HOW = re.compile(r"^(\d+) repeats?, ([\d-]+), load ([\d.]+) before; ", re.MULTILINE)


@dataclass(frozen=True)
class Pages:
    """The places of the headlines, and of the tables."""

    front: Path
    tables: Path


PAGES = Pages(ROOT / "docs" / "benchmarks.md", ROOT / "docs" / "benchmark-tables.md")


class DocumentError(Exception):
    """A mark is missing, stands there twice or has no end."""


def blocks(text: str) -> dict[str, str]:
    """name -> what stands between its marks, in the order of the document."""
    found: dict[str, str] = {}
    name, lines = "", list[str]()
    for number, line in enumerate(text.splitlines(), 1):
        mark = re.fullmatch(r"<!-- (\w+) -->", line.strip())
        if mark is None or (mark[1] == "end" and not name):
            if mark is not None:
                raise DocumentError(f"line {number}: {line} without a beginning")
            lines.append(line)
        elif mark[1] == "end":
            found[name], name = "\n".join(lines), ""
        elif name:
            raise DocumentError(f"line {number}: {line} before the end of {name}")
        elif mark[1] in found:
            raise DocumentError(f"line {number}: {line} a second time")
        else:
            name, lines = mark[1], []
    if name:
        raise DocumentError(f"{name} has no end: expected {END}")
    return found


def replaced(text: str, name: str, content: str) -> str:
    """The text with `content` between the marks of `name`; everything else as it was. Raises DocumentError."""
    if name not in blocks(text):
        raise DocumentError(f"expected <!-- {name} --> and {END} on lines of their own")
    begin = re.search(rf"^[ \t]*<!-- {re.escape(name)} -->[ \t]*\n", text, re.MULTILINE)
    assert begin is not None
    end = re.compile(rf"^[ \t]*{END}", re.MULTILINE).search(text, begin.end())
    assert end is not None
    return text[:begin.end()] + content.rstrip("\n") + "\n" + text[end.start():]


def generated(table: Table, machine: str) -> str:
    """The text between the marks of a benchmark."""
    how = f"{table.repeats} repeat{'s' * (table.repeats > 1)}, {table.date}, load {table.load:.2f} before; {machine}."
    return "\n".join([HEAD, *map(row, table.figures), "", how])


def cells(line: str) -> list[str]:
    """
    >>> cells(r"| a | 1 | b \\| c |")
    ['a', '1', 'b | c']
    """
    return [cell.strip().replace(BAR, "|") for cell in _CELLS.split(line.strip())[1:-1]]


def headlines(tables: str, large: bool) -> str:
    """A table of the headlines of all blocks, of speed or of size: benchmark, what, measured, target, is it met."""
    lines = ["| benchmark | what | measured | target | |", "|---|---|---|---|---|"]
    for name, content in blocks(tables).items():
        for found in map(cells, content.splitlines()):
            if len(found) != 6 or not re.fullmatch(r"\*\*.+\*\*", found[0]):
                continue
            what, value, unit, target, verdict, _ = (cell.replace("|", BAR) for cell in found)
            if (name in POPULATIONS or unit in SIZES) == large:
                lines.append(f"| `{name}` | {what.strip('*')} | {f'{value} {unit}'.strip()} | {target} "
                             f"| {f'**{verdict}**' if verdict == 'missed' else verdict} |")
    return "\n".join(lines)


def sureness(tables: str, limits: Sequence[Threshold]) -> str:
    """A table of how each benchmark was run, and of how many ratios of it must not fall."""
    held = Counter(limit.benchmark for limit in limits)
    lines = ["| benchmark | measured on | repeats | load before | | ratios held |", "|---|---|---|---|---|---|"]
    for name, content in blocks(tables).items():
        how = _HOW.search(content)
        repeats, date, load = how.groups() if how else ("", "", "")
        busy = "*busy*" if load and float(load) > BUSY else ""
        lines.append(f"| `{name}` | {date} | {repeats} | {load} | {busy} | {held[name] or ''} |")
    return "\n".join(lines)


def environment(text: str, rows: Mapping[str, str]) -> str:
    """The block of machine and versions with these rows new, others as they were."""
    known = {found[0]: found[1] for found in map(cells, blocks(text)[ENVIRONMENT].splitlines())
             if len(found) == 2 and found[0] and not found[0].startswith("---")}
    return "\n".join(["| | |", "|---|---|", *(f"| {key} | {value} |" for key, value in {**known, **rows}.items())])


def front(text: str, tables: str, limits: Sequence[Threshold]) -> str:
    """The front page with its headlines made anew of the tables."""
    for name, content in ((FAST, headlines(tables, large=False)), (LARGE, headlines(tables, large=True)),
                          (SURE, sureness(tables, limits))):
        text = replaced(text, name, content)
    return text


def write(tables: list[Table], machine: str, rows: Mapping[str, str], pages: Pages,
          limits: Sequence[Threshold]) -> None:
    """Put tables in their places, those that ended with an error left out, and make the front page anew."""
    text = pages.tables.read_text(encoding="utf-8")     # read now: somebody may have edited it since the run began
    for table in tables:
        if table.error is None and table.figures:
            text = replaced(text, table.name, generated(table, machine))
    head = pages.front.read_text(encoding="utf-8")
    head = replaced(head, ENVIRONMENT, environment(head, rows))
    pages.tables.write_text(text, encoding="utf-8")
    pages.front.write_text(front(head, text, limits), encoding="utf-8")

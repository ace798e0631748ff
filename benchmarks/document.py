"""Pages, rewritten in place: what stands between `<!-- name -->` and `<!-- end -->` is generated.

A long table of a block stands apart as CSV, in a folder with the name of its page, and the page has a line with a link
to it. `read` gives a page with all its tables, `save` takes such a text and puts the long ones apart again. The built
site shows them in their places. The tables of keys in docs/scenario.md stand apart in the same way (`docs/keys.py`).

`docs/benchmark-tables.md` has a block for each benchmark. `docs/benchmarks.md` is made of these: the blocks `fast` and
`large_runs` hold the headlines, which are the rows whose names are bold, and `sure` how each benchmark was run. So the
front page always says what the tables say. The rest of both pages is written by hand and is kept.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.common import BAR, HEAD, ROOT, Table, row
from benchmarks.thresholds import Threshold

END = "<!-- end -->"
FAST, LARGE, SURE, ENVIRONMENT = "fast", "large_runs", "sure", "environment"
SIZES = {"kB", "MB", "GiB"}             # a headline in one of these says how large something is
POPULATIONS = {"large", "untrained"}    # and so do all of these benchmarks
BUSY = 0.5                              # load before a benchmark, above which its wall times say little
MOST_WORDS = 40                         # of a table that stays in its page: a reader takes it in at a glance
LOOKED_UP = {"evidence"}                # tables of these blocks always stand apart: how old rows are is no result
_APART = re.compile(
    r"^\[(?:Table of \d+ rows?|Keys|Columns|Rows|Options|Fields|Protocols|Calls)\]\(([\w/.-]+\.csv)\)$", re.MULTILINE)
_TABLE = re.compile(r"(?:^\|.*\n?)+", re.MULTILINE)
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


def read(page: Path) -> str:
    """The text of a page with its tables, those that stand apart included."""
    return whole(page.read_text(encoding="utf-8"), page.parent)


def whole(text: str, folder: Path) -> str:
    """The text of a page in `folder` with each link to a table that stands apart replaced by the table."""
    return _APART.sub(lambda link: _markdown((folder / link[1]).read_text(encoding="utf-8")), text)


def apart(text: str) -> list[str]:
    """The files, as the page names them, of the tables that stand apart."""
    return _APART.findall(text)


def save(page: Path, text: str, most_words: int = MOST_WORDS) -> None:
    """Write the text of a page. Tables of its blocks with more words go into files of their own. One beside the blocks
    that stands apart now stays there."""
    files: dict[str, str] = {}

    def put(name: str, found: re.Match[str]) -> str:
        table = found[0]
        lines = table.splitlines()
        if name not in LOOKED_UP and len(table.replace("|", " ").split()) <= most_words:
            return table
        again = 2 + sum(one.startswith(f"{name}-") for one in files)
        file = f"{name}.csv" if f"{name}.csv" not in files else f"{name}-{again}.csv"
        files[file], rows = _csv(lines), len(lines) - 2
        return f"[Table of {rows} row{'s' * (rows > 1)}]({page.stem}/{file})\n"

    for name, content in blocks(text).items():
        text = replaced(text, name, _TABLE.sub(partial(put, name), content))
    beside = page.read_text(encoding="utf-8") if page.exists() else ""
    for name in blocks(beside):
        beside = replaced(beside, name, "")
    for link in _APART.finditer(beside):
        text = text.replace(_markdown((page.parent / link[1]).read_text(encoding="utf-8")), link[0])
    folder = page.with_suffix("")
    if files:
        folder.mkdir(exist_ok=True)
    for file, content in files.items():
        (folder / file).write_text(content, encoding="utf-8")
    for old in folder.glob("*.csv"):
        if old.name not in files and f"({page.stem}/{old.name})" not in text:
            old.unlink()
    page.write_text(text, encoding="utf-8")


def _csv(lines: Sequence[str]) -> str:
    """The rows of a Markdown table, whose second line is a rule."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(cells(line) for line in (lines[0], *lines[2:]))
    return out.getvalue()


def _markdown(text: str) -> str:
    head, *rows = ([cell.replace("|", BAR) for cell in line] for line in csv.reader(io.StringIO(text)))
    lines = [f"| {' | '.join(head)} |".replace("|  |", "| |"), "|" + "---|" * len(head),
             *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines)


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
    text = read(pages.tables)           # now: somebody may have edited it since the run began
    for table in tables:
        if table.error is None and table.figures:
            text = replaced(text, table.name, generated(table, machine))
    head = read(pages.front)
    head = replaced(head, ENVIRONMENT, environment(head, rows))
    save(pages.tables, text, most_words=0)
    save(pages.front, front(head, text, limits))

"""docs/benchmarks.md, rewritten in place: what stands between `<!-- name -->` and `<!-- end -->` is generated.

The rest is written by hand and is kept. The block `overview` is made of the headlines of all other blocks, which are
the rows whose names are bold: so it always says what the tables below it say.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from benchmarks.common import BAR, HEAD, ROOT, Table, row

DOCUMENT = ROOT / "docs" / "benchmarks.md"
END = "<!-- end -->"
OVERVIEW, ENVIRONMENT = "overview", "environment"
_CELLS = re.compile(r"(?<!\\)\|")


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
    """What stands between the marks of a benchmark."""
    how = f"{table.repeats} repeat{'s' * (table.repeats > 1)}, {table.date}, load {table.load:.2f} before; {machine}."
    return "\n".join([HEAD, *map(row, table.figures), "", how])


def cells(line: str) -> list[str]:
    """
    >>> cells(r"| a | 1 | b \\| c |")
    ['a', '1', 'b | c']
    """
    return [cell.strip().replace(BAR, "|") for cell in _CELLS.split(line.strip())[1:-1]]


def overview(text: str) -> str:
    """A table of the headlines of all blocks: benchmark, what, measured, target, whether it is met."""
    lines = ["| benchmark | what | measured | target | |", "|---|---|---|---|---|"]
    for name, content in blocks(text).items():
        for found in map(cells, content.splitlines()):
            if name not in (OVERVIEW, ENVIRONMENT) and len(found) == 6 and re.fullmatch(r"\*\*.+\*\*", found[0]):
                what, value, unit, target, verdict, _ = (cell.replace("|", BAR) for cell in found)
                lines.append(f"| `{name}` | {what.strip('*')} | {f'{value} {unit}'.strip()} | {target} "
                             f"| {f'**{verdict}**' if verdict == 'missed' else verdict} |")
    return "\n".join(lines)


def environment(text: str, rows: Mapping[str, str]) -> str:
    """The block of machine and versions with these rows new, others as they were."""
    known = {found[0]: found[1] for found in map(cells, blocks(text)[ENVIRONMENT].splitlines())
             if len(found) == 2 and found[0] and not found[0].startswith("---")}
    return "\n".join(["| | |", "|---|---|", *(f"| {key} | {value} |" for key, value in {**known, **rows}.items())])


def write(tables: list[Table], machine: str, rows: Mapping[str, str], path: Path) -> None:
    """Put tables in their places, those that ended with an error left out, and make the overview anew."""
    text = path.read_text(encoding="utf-8")         # read now: somebody may have edited it since the run began
    for table in tables:
        if table.error is None and table.figures:
            text = replaced(text, table.name, generated(table, machine))
    text = replaced(text, ENVIRONMENT, environment(text, rows))
    path.write_text(replaced(text, OVERVIEW, overview(text)), encoding="utf-8")

"""Numbers in the documents have a command that made them, and the commands name what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.main import get_command

from emul.cli import main  # noqa: F401  (brings all commands)
from emul.cli.options import app

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")
               if not {"_build", "made"} & set(path.parts))
COMMANDS = set(get_command(app).commands)           # type: ignore[attr-defined]

MADE_BY = re.compile(r"\bemul (run|sweep|compare|suite|attack|recovery|explain|profile|tune)\b"
                     r"|\bpython -m (benchmarks|pytest)\b|\bmake \w+")
MEASURED = re.compile(r"^\|(?=(?:[^|]*\|)*[^|`]*\b\d+\.\d+\b[^|`]*\|[^|`]*\b\d+\.\d+\b).*\|$", re.MULTILINE)


def text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def test_what_is_taken_for_numbers_that_were_measured() -> None:
    assert MEASURED.search("| fedavg | 0.94 | 4.35 |")
    assert not MEASURED.search("| `rate` | 0.1 | gamma of equation 3 |")        # a parameter and its default
    assert not MEASURED.search("| 1 | 2 | 3 |")


@pytest.mark.parametrize("page", [page for page in PAGES if MEASURED.search(text(page))])
def test_a_page_with_numbers_has_a_command_that_makes_them_or_names_the_file_that_they_stand_in(page: str) -> None:
    files = [name for name in re.findall(r"`(emul/[\w/]+\.csv)`", text(page)) if (ROOT / name).is_file()]
    assert MADE_BY.search(text(page)) or files, f"{page}: numbers, and no command that made them"


def shown(page: str) -> list[str]:
    """The commands of a page, in blocks and in lines, joined where they go on."""
    return [line.strip() for line in re.sub(r"\\\n\s*", "", text(page)).splitlines()]


@pytest.mark.parametrize("page", ["README.md", *PAGES])
def test_commands_are_those_that_there_are(page: str) -> None:
    named = {name for line in shown(page) for name in re.findall(
        r"(?:^|`|\$ |&& )emul ([a-z][a-z-]+)\b(?= |`|$)", line)}
    assert named - COMMANDS == set()


@pytest.mark.parametrize("page", ["README.md", *PAGES])
def test_scenarios_and_benchmarks_of_commands_exist(page: str) -> None:
    files = {name for line in shown(page) for name in re.findall(r"\b(scenarios/[\w/]+\.ya?ml)\b", line)}
    assert [name for name in sorted(files) if not (ROOT / name).is_file()] == []
    modules = {name for line in shown(page) for name in re.findall(r"python -m (benchmarks(?:\.\w*[a-z0-9])?)\b", line)}
    missing = [name for name in sorted(modules) if not any(
        (ROOT / name.replace(".", "/")).with_suffix(end).exists() for end in (".py", ""))]
    assert missing == []

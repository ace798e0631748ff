"""The page of the architecture tells the way of a lost message from `node.send` to its row: here the calls are made."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from emul import engine
from emul.base import rows
from emul.record.load import load_run
from emul.scenario import loads

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = re.compile(r"`(emul/[\w/]+\.py): ([\w.]+)`")

SCENARIO = """
emul: 1
name: lost
seed: 3
topology: {generator: star, clients: 1}
links:
  - {match: "*", latency: 20 ms, bandwidth: 20 Mbit/s}
  - {match: "client*->server", outage: {model: bernoulli, p: 1, per: round}}
task: {data: {set: digits}, model: logistic, solver: {sgd: {lr: 0.1, steps: 1, batch: 16}}}
compute: {mode: zero}
schemes: [fedavg]
stop: {rounds: 1}
"""

# what tells that a call is about the update that is lost, and about no other message; the server is node 0
OF_THE_MESSAGE: dict[str, Callable[[dict[str, Any]], bool]] = {
    "Node.send": lambda local: local["self"].id == 1,
    "send": lambda local: local["node"].id == 1,
    "Link.carry": lambda local: local["self"].src == 1,
    "_take": lambda local: any(isinstance(entry[4], tuple) and getattr(entry[4][0], "source", None) == 1
                               for entry in local["step"]),
    "arrive": lambda local: local["copy"].source == 1,
    "_know_loss": lambda local: local["copy"].source == 1,
    "_release": lambda local: any(row[0] == rows.LOST for row in local["kernel"].unwritten),
    "Journal._flush": lambda local: any(row[0] == rows.LOST for row in local["self"]._waiting),
    "messages_of": lambda local: len(local["table"][rows.LOST]["seq"]) == 1,
    "messages_table": lambda local: True}


def told() -> list[tuple[str, str]]:
    """(file, function) of the steps of that section, in the order of the page."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = text.partition("\n## A lost message")[2].partition("\n## ")[0]
    steps = re.findall(r"^\d+\. (`[^`]+`)", section, re.MULTILINE)
    return [match.groups() for step in steps if (match := REFERENCE.fullmatch(step))]      # type: ignore[misc]


@contextmanager
def calls(wanted: list[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    """The calls of the wanted functions that are about the lost message, in the order in which they are made."""
    found: list[tuple[str, str]] = []
    known = {(str(ROOT / file), name): (file, name) for file, name in wanted}

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            step = known.get((frame.f_code.co_filename, frame.f_code.co_qualname))
            if step is not None and OF_THE_MESSAGE[step[1]](frame.f_locals):
                found.append(step)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(before)


def test_at_most_six_files_tell_the_way_of_a_lost_message() -> None:
    steps = told()
    assert len(steps) == len(OF_THE_MESSAGE)
    assert len({file for file, _ in steps}) <= 6


def test_the_calls_are_made_in_the_order_of_the_page(tmp_path: Path) -> None:
    steps = told()
    with calls(steps) as made:
        result, = engine.run(loads(SCENARIO), workers=0, out=tmp_path)
    assert result.error is None
    assert list(dict.fromkeys(made)) == steps

    assert result.directory is not None
    messages = load_run(result.directory).messages
    lost = messages[messages["fate"] == "lost"]
    assert list(lost["source_name"]) == ["client1"]
    assert list(lost["lost_vertex"]) == ["client1"]


def test_the_readme_leads_to_that_page() -> None:
    assert "](docs/architecture.md)" in (ROOT / "README.md").read_text(encoding="utf-8")

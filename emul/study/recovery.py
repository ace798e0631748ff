"""The recovery matrix: outcomes of rounds in which clients drop out at each stage of a protocol, from real runs.

Each scheme runs its EXAMPLE, without losses, attacks and faults, for one round with an audit. Then for every type of
message that clients send: with one client that drops out just before it would send it, and with all clients but one.

    rec+    the sum is exact, with the update of the client that dropped out
    rec-    the sum is exact, without it
    wrong   the sum is not that of the inputs that it says it has
    else why the round was given up (`emul.record.audit.REASONS`): the old model stays
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from emul import engine
from emul.base import rows
from emul.base.kept import artefacts, read_array
from emul.base.rows import Row
from emul.record.audit import both_revealed, reason, wrong_sums
from emul.record.journal import MemoryJournal
from emul.registry import schemes
from emul.report.page import Part, render
from emul.scenario import DropOut, Scenario, Stop, loads
from emul.workers.twin import Twin

COLUMNS = ["scheme", "stage", "one client", "all but one", "why"]


@dataclass(frozen=True)
class Outcome:
    """Of one run of one round. sent: types of messages of clients, in the order in which they first came."""

    verdict: str
    why: str
    sent: tuple[str, ...]


def audited(plugins: Sequence[str] = ()) -> list[str]:
    """The schemes that leave something for an auditor, and have an EXAMPLE."""
    found = {name: schemes.find(name, plugins) for name in schemes.known(plugins)}
    return [name for name, scheme in found.items() if scheme.example and scheme.audits]


def matrix(names: Sequence[str], plugins: Sequence[str] = (), tell: Callable[[str], None] = lambda text: None,
           ) -> pd.DataFrame:
    """COLUMNS, a row for each scheme and message of its clients. `why`: of all but one, in the scheme's words.

    tell: called with the name of each scheme as it begins. Raises UnknownScheme, ScenarioError, RunError.
    """
    table = []
    for name in names:
        tell(name)
        base = undisturbed(name, plugins)
        clean = outcome(base, name, [], plugins)
        if clean.verdict != "rec":
            raise ValueError(f"{name}: without any fault its EXAMPLE ends with {clean.verdict}: {clean.why}")
        plan = engine.wire(base, name, dict(base.schemes)[name], plugins=plugins).plan
        clients = [node for node, role in zip(plan.names, plan.roles, strict=True) if role == "client"]
        for stage in clean.sent:
            one = outcome(base, name, [DropOut(clients[1], stage)], plugins)
            many = outcome(base, name, [DropOut(client, stage) for client in clients[1:]], plugins)
            table.append([name, stage, one.verdict, many.verdict, many.why])
    return pd.DataFrame(table, columns=COLUMNS)


def undisturbed(name: str, plugins: Sequence[str] = ()) -> Scenario:
    """The EXAMPLE of a scheme for one round, with an audit, without losses, attacks and faults."""
    base = loads(schemes.find(name, plugins).example, name, check=False)
    entries = [(scheme, {**entry, "audit": True}) for scheme, entry in base.schemes]
    rules = [replace(rule, outage=None) for rule in base.link_rules]
    return replace(base, faults=[], attacks=[], link_rules=rules, schemes=entries, stop=Stop(rounds=1))


def outcome(base: Scenario, name: str, faults: Sequence[DropOut], plugins: Sequence[str] = ()) -> Outcome:
    """Run it in this process under these faults."""
    scenario = replace(base, faults=list(faults))
    wiring = engine.wire(scenario, name, dict(base.schemes)[name], plugins=plugins)
    journal = MemoryJournal(engine.header(wiring))
    with tempfile.TemporaryDirectory(prefix="emul-") as folder:
        engine.execute(wiring, Twin(), journal, directory=Path(folder))
        arrays = {(node, array): read_array(Path(folder), node, array)
                  for node, kept in artefacts(Path(folder)).items() for array in kept}
    return judged(journal.rows, arrays, wiring, {fault.node for fault in faults})


def judged(log: Sequence[Row], arrays: Any, wiring: engine.Wiring, gone: set[str]) -> Outcome:
    """The outcome of the only round of a run."""
    names, hub = wiring.plan.names, wiring.plan.deciders[0]
    clients = {node for node, role in enumerate(wiring.plan.roles) if role == "client"}
    sent = tuple(dict.fromkeys(row[5] for row in log if row[0] == rows.SEND and row[2] in clients))
    why = next((row[4] for row in log if row[0] == rows.LEAVE and row[2] == hub), "")
    if both_revealed(arrays, 1):
        return Outcome("exposed", why, sent)
    if why:
        return Outcome(reason(why), why, sent)
    if wrong_sums(arrays, names, names[hub]) != {1: 0}:
        return Outcome("wrong", why, sent)
    inside = {names[i] for i in arrays[names[hub], "included-1"].tolist()}
    how = "" if not gone else "+" if gone <= inside else "-" if not gone & inside else "+-"
    return Outcome("rec" + how, why, sent)


def bad(found: pd.DataFrame) -> int:
    """The number of runs that ended with a wrong sum, with both secrets of a client, or for no known reason."""
    return int(found[["one client", "all but one"]].isin(["wrong", "exposed", "other"]).sum().sum())


def page(found: pd.DataFrame) -> str:
    """The matrix as one HTML file."""
    cards = [("runs", str(2 * len(found))), ("schemes", str(found["scheme"].nunique())), ("wrong", str(bad(found)))]
    parts = [Part("matrix", "Recovery matrix", cards=cards, text=(
        "One client, or all but one, drop out of a round just before they would send a message. rec+: the sum is "
        "exact, with the update of the client that dropped out; rec-: exact without it; rec+-: with some of them. "
        "Otherwise the round was given up, with this reason, and the old model stays."))]
    for scheme, rows_ in found.groupby("scheme", sort=False):
        table = rows_.drop(columns="scheme")
        parts.append(Part(str(scheme), str(scheme), tables=[(f"{scheme}, stage by stage", table)]))
    return render("Recovery matrix", parts)


def text(found: pd.DataFrame) -> str:
    """The matrix as Markdown, without the scheme's own words."""
    lines = ["| " + " | ".join(COLUMNS[:-1]) + " |", "|---" * (len(COLUMNS) - 1) + "|"]
    return "\n".join(lines + [f"| {' | '.join(row)} |" for row in found[COLUMNS[:-1]].to_numpy().tolist()])

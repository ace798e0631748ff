"""A run that has not come to its end, from its journal: tables and summary up to the last whole row.

    found = unfinished(path)        reads; every command that reads runs calls it
    write(path)                     writes tables and summary for other tools; the mark INCOMPLETE stays

Nothing is written meanwhile: a run that wrote tables at the end of each round would be killed while it writes them. A
run that was interrupted or killed, or failed, is read alike. Real times, and what the links drew and nobody saw, went
with the processes; `emul resume` computes them, too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from emul.base import kept, rows
from emul.base.errors import EmulError
from emul.base.files import strerror
from emul.base.plain import PlainDict, PlainMapping
from emul.record import payloads
from emul.record.columns import Table, columns
from emul.record.journal import Reading, RecordError, fitting, read
from emul.record.rundir import INCOMPLETE, JOURNAL, SCENARIO, SUMMARY, RunDirectory, fingerprint, read_error, write_json
from emul.record.summary import Facts, summarise
from emul.record.tables import Derived, Observed, derive, write_tables
from emul.roles.events import WaitEnd

_ACTIVATIONS = (rows.START, rows.RESUME, rows.ENTER, rows.COMPUTED)
_HEADER = {"scheme": str, "names": list, "roles": list, "vertices": list, "deciders": list, "network": list}


@dataclass(frozen=True)
class Unfinished:
    """The rows of such a run's journal. The summary's `incomplete` says until when, and why it ended."""

    derived: Derived
    summary: PlainDict


def is_unfinished(path: Path) -> bool:
    """True if a run directory is marked as one of a run that has not ended."""
    return (path / INCOMPLETE).exists()


def unfinished(path: Path, claimed: bool = False) -> Unfinished:
    """Read it. A last record that was cut short is left out. Raises RecordError naming file and place for all else.

    claimed: by the caller, so that nobody else can be running it.
    """
    file = path / JOURNAL
    try:
        source = read(file)
        table = columns(source)
    except OSError as e:
        raise RecordError(f"{file}: {strerror(e)}") from None
    _check_header(file, source.header)
    with fitting(file):
        derived = derive(table, source.header, _observed(source, table))
        return Unfinished(derived, summarise(derived, _facts(path, derived, source, claimed)))


def write(path: Path) -> PlainDict:
    """Write tables and summary into the directory; the summary. Raises RecordError, also if the run is running."""
    there = RunDirectory(path)
    if there.complete:
        raise RecordError(f"{path}: the run has ended: its tables are there" if (path / SUMMARY).is_file() else
                          f"{path}: no directory of a run")
    with there.claimed():
        found = unfinished(path, claimed=True)
        write_tables(path, found.derived)
        write_json(path / SUMMARY, found.summary)
    return found.summary


def _check_header(file: Path, header: PlainMapping) -> None:
    wrong = [name for name, kind in _HEADER.items() if not isinstance(header.get(name), kind)]
    if wrong:
        raise RecordError(f"{file}, byte 0: the header has no {', '.join(wrong)}")
    groups, count = header.get("groups", {}), len(header["names"])
    if not isinstance(groups, dict) or not all(
            isinstance(nodes, list) and all(isinstance(node, int) and 0 <= node < count for node in nodes)
            for nodes in groups.values()):
        raise RecordError(f"{file}, byte 0: the groups of the header are no lists of nodes")


def _observed(source: Reading, table: Table) -> Observed:
    """The observations up to the last round that a deciding node entered; others may have begun a further one."""
    last = _entered(table, source.header)
    found = {(number, node): values for node, number, values in source.observed if number <= last}
    return [(node, number, values) for (number, node), values in sorted(found.items(), key=lambda item: item[0])]


def _entered(table: Table, header: PlainMapping) -> int:
    """The newest round that a deciding node has entered."""
    part = table[rows.ENTER]
    return int(part["round"][np.isin(part["node"], header["deciders"])].max(initial=0))


def _digest(array: Path) -> str:
    """Of an array that a node kept. Raises RecordError."""
    if not array.is_file():                     # to open a pipe would wait for ever
        raise RecordError(f"{array}: expected a regular file")
    try:
        return str(fingerprint(array)["blake2b"])
    except OSError as e:
        raise RecordError(f"{array}: {strerror(e)}") from None


def _facts(path: Path, derived: Derived, source: Reading, claimed: bool) -> Facts:
    header, table = derived.header, derived.table
    until_ns = max(int(part["time_ns"].max(initial=0)) for part in table.values())
    why = "it is running" if not claimed and RunDirectory(path).running else _why(path, source.complete)
    artefacts = {node: {name: _digest(kept.array_file(path, node, name)) for name in names}
                 for node, names in kept.artefacts(path).items()}
    incomplete = {"until_s": until_ns / 1e9, "round": _entered(table, header), "why": why}
    return Facts(
        scheme=header["scheme"], label=header.get("label", ""), virtual_ns=until_ns, real_seconds=_real_seconds(path),
        digest_journal=source.summed, activations=sum(len(table[kind]) for kind in _ACTIVATIONS),
        oracle_waits=_oracle_waits(table, header), models=_models(path, header["names"]), artefacts=artefacts,
        payloads=_payloads(path, until_ns),
        poisoned=header.get("poisoned", ()), idle=header.get("idle", ()), parameters=header.get("parameters", {}),
        given=header.get("parameters_given", ()), incomplete=incomplete)


def _why(path: Path, complete: bool) -> str:
    lines = [line.strip() for line in read_error(path)]
    told = list(dict.fromkeys([lines[0], lines[-1]])) if lines else []   # a traceback: where, and what
    if told:
        return " ... ".join(told)[:500]
    return "it ended, but not all of its files were written" if complete else "it was killed, or its machine stopped"


def _real_seconds(path: Path) -> float:
    """From the first file of the run to its last row, as the files' times tell."""
    try:
        return max(0.0, (path / JOURNAL).stat().st_mtime - (path / SCENARIO).stat().st_mtime)
    except OSError:
        return 0.0


def _oracle_waits(table: Table, header: PlainMapping) -> dict[tuple[str, str], int]:
    """(role, where) -> waits that ended because fates were known; a journal does not say where in the code."""
    ended = table[rows.RESUME]
    nodes, count = np.unique(ended["node"][ended["outcome"] == int(WaitEnd.SETTLED)], return_counts=True)
    found: dict[tuple[str, str], int] = {}
    for node, n in zip(nodes.tolist(), count.tolist(), strict=True):
        key = header["roles"][node], "?"
        found[key] = found.get(key, 0) + n
    return found


def _models(path: Path, names: Sequence[str]) -> dict[str, int]:
    """node -> round of the last model that it has left so far."""
    found = {node: max(rounds) for node in names if (rounds := kept.model_rounds(path, node))}
    for node in kept.models(path):
        with contextlib.suppress(EmulError):        # damaged
            found[node] = kept.read_model(path, node).round
    return found


def _payloads(path: Path, until_ns: int) -> dict[str, dict[str, int]]:
    try:
        return payloads.counted(path, until_ns)
    except RecordError:                             # damaged: whoever reads them is told where
        return {}

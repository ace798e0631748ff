"""A run directory, read: the tables that the run wrote; of a run that has not ended those that its journal gives.

`emul.load_run`, exports and reports begin here. Hops, waits and absences are in no table, which nearly nobody but a
report would read: it takes their rows from the journal. All else comes from tables, which are joined once, at the end
of a run. Errors name the file, and the column where that is known.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from emul.base import kept
from emul.base.plain import PlainDict
from emul.record import salvage
from emul.record.attacks import Attacked, attacks, read_attack
from emul.record.columns import Computations, Messages, Table, columns
from emul.record.journal import RecordError, fitting, header, read
from emul.record.marks import incomplete
from emul.record.payloads import KeptMessage, chosen, listed
from emul.record.rundir import JOURNAL, SEAL, SUMMARY, check_seal, read_json
from emul.record.side_tables import CONTACTS, POSITIONS, SAMPLES, TRAFFIC
from emul.record.tables import (
    ACTIVITY_COLUMNS,
    COLUMNS,
    ENERGY,
    NULLABLE,
    Derived,
    computations_from,
    messages_from,
    read_table,
    tables_of,
)

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

_INDEX = ("round", "k", "start_ns", "end_ns")       # of the table `network`
_OF_NODES = ("name", "role", "source_name", "source_role", "target_name", "target_role")    # said by the header, too


@dataclass(frozen=True)
class OpenedRun:
    """The record of one run. Tables and rows are read when they are asked for.

    derived: of a run that has not ended, what its journal gives; None: it has ended, and has files.
    """

    path: Path
    summary: PlainDict
    derived: Derived | None

    @cached_property
    def header(self) -> PlainDict:
        """Names, roles and places of the nodes, vertices, seed, groups: the header of the journal."""
        return header(self.path / JOURNAL) if self.derived is None else dict(self.derived.header)

    @property
    def end_ns(self) -> int:
        """The time at which the last deciding node returned; of a run that has not ended that of its last row."""
        return round(self.summary["virtual_seconds"] * 1e9)

    @cached_property
    def _made(self) -> dict[str, pa.Table]:
        return {} if self.derived is None else dict(tables_of(self.derived))

    def table(self, name: str, columns: Sequence[str] | None = None, optional: Collection[str] = ()) -> pa.Table:
        """A table of `COLUMNS`, with all columns or these, and the optional ones that it has. Raises RecordError."""
        if self.derived is not None:
            return self._made[name]
        return read_table(self.path / f"{name}.parquet", columns, optional)

    @cached_property
    def messages(self) -> Messages:
        """All copies, from `messages`. Raises RecordError."""
        with fitting(self.path / "messages.parquet"):
            return messages_from(self.table("messages", _of("messages")), len(self.header["names"]),
                                 self.header["network"])

    @cached_property
    def computations(self) -> Computations:
        """All computations, from `computations`. Raises RecordError."""
        with fitting(self.path / "computations.parquet"):
            return computations_from(self.table("computations", _of("computations"), ACTIVITY_COLUMNS),
                                     len(self.header["names"]))

    def rows(self, kinds: Collection[int]) -> Table:
        """The rows of these kinds from the journal, as columns. Raises RecordError."""
        if self.derived is not None:
            return self.derived.table
        source = read(self.path / JOURNAL)
        found = columns(source, kinds)
        if not source.complete:
            raise RecordError(f"{source.path}: the journal was not closed")
        return found


def _of(name: str) -> list[str]:
    return [column for column in COLUMNS[name] if column not in _OF_NODES]


def opened(path: Path, files: Collection[str]) -> OpenedRun:
    """The record of a run. files: those that must be whole, beside the summary, if the run has ended.

    Raises RecordError: not a run directory, or files are missing or damaged.
    """
    if salvage.is_unfinished(path):
        found = salvage.unfinished(path)
        return OpenedRun(path, found.summary, found.derived)
    check_seal(path, {SUMMARY, *files})
    return OpenedRun(path, read_json(path / SUMMARY), None)


class IncompleteRun(UserWarning):
    """Only a part of the run is there: it was interrupted, killed, or failed, or is running."""


class RunTables:
    """The tables of a run, as pandas frames that are made when asked for, and what its nodes left: models and arrays.

    read: gives the table of a name in Arrow. plugins: modules that the caller has given for this run.
    """

    def __init__(self, path: Path, summary: PlainDict, read: Callable[[str], pa.Table], plugins: Sequence[str] = ()):
        self.path, self.summary, self.read, self.plugins = path, summary, read, plugins

    @cached_property
    def rounds(self) -> pd.DataFrame:
        """A row for each round that a deciding node entered."""
        return _frame(self.read("rounds"), NULLABLE)

    @cached_property
    def messages(self) -> pd.DataFrame:
        """A row a copy, in the order of sending."""
        return _frame(self.read("messages"), NULLABLE)

    @cached_property
    def computations(self) -> pd.DataFrame:
        """A row a computation, in the order in which they began."""
        return _frame(self.read("computations"), NULLABLE)

    @cached_property
    def timings(self) -> pd.DataFrame:
        """A row a computation that was measured: real times."""
        return _frame(self.read("timings"), NULLABLE)

    @cached_property
    def network(self) -> pd.DataFrame:
        """The draws of the links."""
        return _frame(self.read("network"), _INDEX)

    @property
    def incomplete(self) -> str | None:
        """Until when a run goes that did not come to its end, and why it ended; None: it came to its end."""
        return incomplete(self.summary)

    @property
    def energy(self) -> pd.DataFrame:
        """Joules by node and state, `emul.record.energy.COLUMNS`. Raises RecordError: the scenario has no devices, or
        the run did not come to its end."""
        return _frame(read_table(self.path / ENERGY), ())

    @property
    def samples(self) -> pd.DataFrame:
        """Training samples by node and class, `emul.record.side_tables.SAMPLE_COLUMNS`. Raises RecordError: they were
        not counted, or the run did not come to its end."""
        return _frame(read_table(self.path / SAMPLES), ("class",))

    @property
    def traffic(self) -> pd.DataFrame:
        """Bytes of background traffic by link and entry, `emul.record.side_tables.TRAFFIC_COLUMNS`. Raises RecordError:
        no link that was used carried any, or the run did not come to its end."""
        return _frame(read_table(self.path / TRAFFIC), ())

    @property
    def contacts(self) -> pd.DataFrame:
        """Contacts of links that began in the run, `emul.record.side_tables.CONTACT_COLUMNS`. Raises RecordError: no
        link has contacts, or the run did not come to its end."""
        return _frame(read_table(self.path / CONTACTS), ("end_ns",))

    @property
    def positions(self) -> pd.DataFrame:
        """Places of vertices over time: t_s, vertex, and x, y (m) or lat, lon (degrees). Raises RecordError: nothing
        moves, or the run did not come to its end."""
        return _frame(read_table(self.path / POSITIONS), ())

    @property
    def groups(self) -> dict[str, list[str]]:
        """Group of the scenario -> its nodes, by name; `others` are in no group. Empty without groups."""
        return {name: list(one["nodes"]) for name, one in self.summary.get("groups", {}).items()}

    @property
    def models(self) -> list[str]:
        """The nodes that left a model, by name."""
        return kept.models(self.path)

    def model(self, node: str | None = None, round_: int | None = None) -> kept.KeptModel:
        """The parameters that a node reported, the last or, with `record: {models: n}`, those of a round; node None: of
        the only deciding node, or the only node at all.

        Raises KeptError: it left none, its file is damaged, or it is not clear whose is meant.
        """
        names = self.models
        if node is None:
            deciding = sorted({str(name) for name in self.rounds.node_name} & set(names)) or names
            if len(deciding) != 1:
                raise kept.KeptError(f"{self.path}: {len(deciding)} deciding nodes left a model: say whose")
            node = deciding[0]
        self._check(kept.model_file(self.path, node, round_))
        return kept.read_model(self.path, node, round_)

    def _check(self, file: Path) -> None:
        """Raises RecordError if a file that a node left is not as it was sealed, which it is when the run ends."""
        if file.is_file() and (self.path / SEAL).is_file():
            check_seal(self.path, [file.relative_to(self.path).as_posix()])

    def model_rounds(self, node: str) -> list[int]:
        """The rounds of which a node's model was kept beside its last."""
        return kept.model_rounds(self.path, node)

    @property
    def attacks(self) -> list[str]:
        """The attacks on this run that have been made (`emul attack`), by their labels."""
        return attacks(self.path)

    def attack(self, label: str) -> Attacked:
        """The results of an attack: `.rows` and `.about`. Raises RecordError."""
        return read_attack(self.path, label)

    @property
    def payloads(self) -> pd.DataFrame:
        """The messages that were kept (`record: {payloads: ...}`): see `emul.record.payloads.listed`."""
        return listed(self.path, self.messages)

    def payload(self, kind: str, round_: int | None = None, source: str | None = None, to: str | None = None,
                plugins: Sequence[str] | None = None) -> list[KeptMessage]:
        """Messages of a type that were kept, whole and decoded: see `emul.record.payloads.chosen`."""
        return chosen(self.path, self.summary["scheme"], self.messages, kind, round_, source, to,
                      plugins or self.plugins)

    @property
    def artefacts(self) -> dict[str, list[str]]:
        """node -> names of the arrays that it kept."""
        return kept.artefacts(self.path)

    def artefact(self, node: str, name: str) -> np.ndarray:
        """An array that a node kept. Raises KeptError; RecordError: it was changed since."""
        self._check(kept.array_file(self.path, node, name))
        return kept.read_array(self.path, node, name)


def load_run(path: str | os.PathLike[str]) -> RunTables:
    """Read a run directory. One of a run that has not ended is read from its journal, with a warning IncompleteRun.

    Raises RecordError: not a run directory, or files are damaged.
    """
    record = opened(Path(path), [f"{name}.parquet" for name in COLUMNS])
    if record.derived is not None:
        warnings.warn(f"{path}: {incomplete(record.summary)}", IncompleteRun, stacklevel=2)
    tables = {name: record.table(name) for name in COLUMNS}
    return RunTables(record.path, record.summary, tables.__getitem__)


def _frame(table: pa.Table, nullable: Sequence[str]) -> pd.DataFrame:
    """As pandas; integers that can be null as Int64, since a float does not hold every nanosecond."""
    import pandas as pd

    return table.to_pandas().assign(**{name: table[name].to_pandas(types_mapper=lambda _: pd.Int64Dtype())
                                       for name in nullable if name in table.column_names})

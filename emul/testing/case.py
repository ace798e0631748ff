"""One case of `check_scheme`: how it is run, and what is compared."""

from __future__ import annotations

import contextlib
import gc
import itertools
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from emul import engine
from emul.base import rows as R
from emul.base.errors import Deadlock, RoleFailed
from emul.base.plain import PlainDict
from emul.kernel import Kernel, who_waits
from emul.record import rundir
from emul.record.journal import Journal as FileJournal
from emul.record.journal import decisions, repeats
from emul.record.summary import write_results
from emul.record.tables import tables_of
from emul.record.verify import first_difference
from emul.roles.events import Reply
from emul.scenario import Scenario
from emul.testing.world import Ran, run_wiring
from emul.workers.setup import Setup
from emul.workers.twin import Twin

UNCHARGED_LIMIT_NS = 10**6          # CPU time of role code outside `compute`, of the largest activation
_QUIETEST_OF = 8                    # runs, where the first are above it: four were too few on a machine with others
ACTIVATIONS_LIMIT = 100_000         # of a check, without the end of a round


class Invented(dict[str, list[float]]):
    """A profile that makes the cost of a computation of its name, when it is asked for.

    Worker processes get a plain copy, with the entries of the runs in this process before.
    """

    def get(self, key: str, default: Any = None) -> list[float]:
        """The entry of a computation. From 1 to 37 ms: about the latencies, so that computing and sending overlap in
        every way."""
        return self.setdefault(key, [1e-3 * (1 + sum(key.encode()) % 37), 0.0])


@dataclass
class Check:
    """One case of one scheme."""

    scheme: str
    case: str
    scenario: Scenario
    params: PlainDict
    plugins: tuple[str, ...]
    profile: Invented = field(repr=False)

    def run(self, pool: Any, delays: Sequence[float] = (), directory: Path | None = None,
            recalled: Path | None = None, store: Path | None = None) -> Ran:
        """Run it.

        directory, recalled: as `emul.engine.execute` takes them. store: a folder for its trainings; None: they are not
        kept.
        """
        keeping = engine.Keeping(store, on=store is not None)
        wiring = engine.wire(self.scenario, self.scheme, self.params, pool.workers, self.plugins,
                             engine.CostSource("profile", self.profile), delays)
        try:
            with _no_collection():
                return run_wiring(keeping.applied(wiring, Path()), pool, self._ends, directory, recalled)
        except RoleFailed as e:
            raise AssertionError(f"{self._who}: a role failed:\n{e}") from e
        except Deadlock as e:
            raise AssertionError(f"{self._who}: {e}") from e

    @property
    def _who(self) -> str:
        return f"{self.scheme}, {self.case}"

    def _ends(self, kernel: Kernel) -> None:
        """Roles that try again and again while nothing arrives would go on for ever."""
        if kernel.activations - kernel.ended_after > ACTIVATIONS_LIMIT:
            raise AssertionError(f"{self._who}: no round has ended since {kernel.ended_ns / 1e9:.9g} s, in more than "
                                 f"{ACTIVATIONS_LIMIT:,} activations; now t = {kernel.now / 1e9:.9g} s. Roles that "
                                 "try again for ever need a deadline of the round, or the scenario a "
                                 f"`stop: {{virtual_time: ...}}`\n{who_waits(kernel.nodes)}")

    def same(self, one: Ran, other: Ran, when: str) -> None:
        """The same journal and models, or AssertionError with the first difference."""
        if one.digest == other.digest:
            return
        was, now = (one.rows, other.rows) if repeats(one.header) else (decisions(one.rows), decisions(other.rows))
        difference = first_difference(was, now, one.header, ("first", "other"))
        raise AssertionError(f"{self._who}: {when} the run is another one: "
                             + (difference or "the journals are equal, the models differ"))

    def recallable(self) -> None:
        """Check that a scheme that cannot repeat itself depends on nothing else but the results that it keeps."""
        with tempfile.TemporaryDirectory(prefix="emul-") as folder:
            first = self.run(Twin(), directory=Path(folder))
            again = self.run(Twin(), recalled=Path(folder))
            difference = first_difference(first.rows, again.rows, first.header, ("first", "recalled"))
            if difference:
                raise AssertionError(f"{self._who}: with the results of its volatile computations from the file the "
                                     f"run is another one: {difference}")

    def storable(self, ran: Ran) -> None:
        """With a store of trainings it is the same run: while they are stored, and when they are found."""
        with tempfile.TemporaryDirectory(prefix="emul-") as folder:
            stored = self.run(Twin(), store=Path(folder))
            self.same(ran, stored, "while its trainings are stored")
            one = stored.finished.store
            if one is None or not one.stored:
                return                          # nothing can be found there: it would be the first run again
            found = self.run(Twin(), store=Path(folder))
            self.same(ran, found, "with its trainings from a store")
        other = found.finished.store
        if other is not None and not other.found:
            raise AssertionError(f"{self._who}: none of the {one.stored} results that were stored was found again")

    def sound(self, ran: Ran, files: bool = True) -> None:
        """The invariants hold, and three counts of the bytes agree. files: the last one in the table as it is written
        and read, which takes 20 ms; False: as it would be written."""
        refused = ran.summary["violations"]
        if refused:
            raise AssertionError(f"{self._who}: honest roles sent what was rejected: " + "; ".join(
                "{count} {type} from {sender}: {reason}".format(**one) for one in refused[:5]))
        broken = ran.invariants.violations
        if broken:
            raise AssertionError(f"{self._who}: invariant violated: "
                                 + "; ".join(f"{v.name}: {v.detail}" for v in broken))
        links: Counter[tuple[int, int]] = Counter()
        for row in ran.rows:
            if row[0] == R.SEND and row[9] >= 0:
                links[row[9], row[10]] += row[7]
            elif row[0] == R.HOP:
                links[row[5], row[6]] += row[4]
        counts = {"links": sum(links.values()), "hops of messages": _hop_bytes(ran),
                  "messages.parquet": _table_bytes(ran, files)}
        if len(set(counts.values())) > 1:
            raise AssertionError(f"{self._who}: bytes are counted differently: "
                                 + ", ".join(f"{name} {count}" for name, count in counts.items()))

    def charged(self, meters: list[Metered]) -> None:
        """No role computes outside of `compute`. An activation's quietest run counts, for the machine has others."""
        for attempt in range(_QUIETEST_OF):
            least = np.min([meter.uncharged for meter in meters], axis=0)
            if least.max(initial=0) <= UNCHARGED_LIMIT_NS:
                return
            if attempt < _QUIETEST_OF - 1:
                meters.append(Metered())
                self.run(meters[-1])
        worst = int(least.argmax())
        raise AssertionError(f"{self._who}: role code of {meters[0].names[meters[0].nodes[worst]]} outside "
                             f"`node.compute` takes {least[worst] / 1e6:.2f} ms of CPU in one activation, which "
                             f"{meters[0].answers[worst]}; at most {UNCHARGED_LIMIT_NS / 1e6:g} ms are accepted")


class KeepingTwin(Twin):
    """A twin that ends no role before its time."""

    def open(self, setups: Sequence[Setup]) -> None:
        super().open(setups)
        self.core.keeps_roles = True


class Metered(Twin):
    """A twin that notes what every activation took."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.nodes: list[int] = []
        self.uncharged: list[int] = []          # CPU ns
        self.answers: list[str] = []

    def open(self, setups: Sequence[Setup]) -> None:
        super().open(setups)
        self.names = setups[0].names
        for seen in (self.nodes, self.uncharged, self.answers):
            seen.clear()                        # of a run that lacked a cost

    def reply(self, node: int, worker: int) -> Reply:
        reply = super().reply(node, worker)
        last = reply.actions[-1] if reply.actions else None
        self.nodes.append(node)
        self.uncharged.append(reply.uncharged)
        self.answers.append(f"goes on to {getattr(last, 'where', '')}" if hasattr(last, "where") else "ends")
        return reply


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Python's collector would count as a role's own time, and what it takes depends on the tests before."""
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


def _hop_bytes(ran: Ran) -> int:
    """The bytes that all copies must have cost on the links of their routes that they reached, from their sizes
    alone."""
    network = ran.finished.wiring.network
    vertices = ran.header["vertices"]
    hops: Counter[tuple[int, int]] = Counter((row[2], row[3]) for row in ran.rows if row[0] == R.HOP)
    total = 0
    for row in ran.rows:
        if row[0] == R.SEND and row[9] >= 0:            # not to itself, and heard
            path = network.route(vertices[row[2]], vertices[row[4]])
            for u, v in itertools.islice(itertools.pairwise(path), 1 + hops[row[2], row[3]]):
                total += network.link(u, v).wire_bytes(row[6] + 16)
    return total


def _table_bytes(ran: Ran, files: bool) -> int:
    """The bytes in the table that a user reads."""
    import pyarrow.parquet as pq

    if not files:
        return int(sum(dict(tables_of(ran.derived))["messages"]["wire_bytes"].to_pylist()))
    with tempfile.TemporaryDirectory(prefix="emul-") as folder:
        directory = rundir.create(Path(folder), "conformance", ran.header["scheme"])
        journal = FileJournal(directory.journal, ran.header)
        for row in ran.rows:
            journal.append(row)
        write_results(directory, engine.facts(ran.finished, journal.close()), engine.observed(ran.finished))
        return int(sum(pq.read_table(directory.path / "messages.parquet")["wire_bytes"].to_pylist()))

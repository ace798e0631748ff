"""A run for the tools of others: Perfetto (a trace of who did what when); TensorBoard, MLflow, Weights & Biases.

The formats: "Trace Event Format" (Google, 2016), which ui.perfetto.dev opens; event files; MLflow's tracking; the
files of an offline run of wandb.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from emul.base.errors import InputError
from emul.base.files import write_atomically
from emul.base.plain import PlainDict
from emul.record.journal import fitting, header
from emul.record.load import RunTables, load_run
from emul.record.marks import in_words
from emul.record.rundir import JOURNAL, SCENARIO, SUMMARY, read_scenario
from emul.record.tables import FATES, LOST, OF_ROUND

if TYPE_CHECKING:
    import pandas as pd

_WIDTH_NS = 1_000       # of what has no duration: a flow needs a slice to begin and to end in
_TOLD = 50_000          # events, of which a person hears
_ROUNDS, _COMPUTE, _SENT, _GOT = 1, 2, 3, 4     # threads of a node
_THREADS = {_ROUNDS: "rounds", _COMPUTE: "computes", _SENT: "sends", _GOT: "receives"}


class ExportError(InputError):
    """The package that an export needs is not installed."""


# --- Perfetto -------------------------------------------------------------------------------------------------------

def perfetto(directory: Path, file: Path, tell: Callable[[str], None] = lambda step: None) -> int:
    """Write the run as trace events (JSON) to `file`, a bit at a time; the number of events. Raises RecordError.

    A node is a process with the tracks `rounds` (of deciding nodes), `computes`, `sends` and `receives`; a message is
    a flow from its sending to where it arrived, or where its loss became known. Times are microseconds of virtual time.
    """
    tell(f"reading {directory}")
    run = load_run(directory)
    head = header(directory / JOURNAL)
    count = 0
    with fitting(directory), write_atomically(file) as temporary, temporary.open("w", encoding="utf-8") as out:
        about = json.dumps({"run": title(run), "digest": run.summary["digest"], "incomplete": run.incomplete})
        out.write(f'{{"displayTimeUnit": "ns", "otherData": {about}, "traceEvents": [\n')
        for event in _events(run, head["names"], head["roles"]):
            out.write((",\n" if count else "") + event)
            count += 1
            if count % _TOLD == 0:
                tell(f"{count:,} events written to {file}")
        out.write("\n]}\n")
    return count


def _events(run: RunTables, names: list[str], roles: list[str]) -> Iterator[str]:
    """The events as JSON: names first, then track by track in the order of time."""
    deciders = set(run.rounds["node"])
    for node, name in enumerate(names):
        yield _named("process_name", node, 0, {"name": f"{name} ({roles[node]})" if roles[node] != name else name})
        yield _named("process_sort_index", node, 0, {"sort_index": node})
        for thread, label in _THREADS.items():
            if thread != _ROUNDS or node in deciders:
                yield _named("thread_name", node, thread, {"name": label})
                yield _named("thread_sort_index", node, thread, {"sort_index": thread})
    end_ns = round(run.summary["virtual_seconds"] * 1e9)
    yield from _rounds(run.rounds, end_ns)
    yield from _computations(run.computations, end_ns)
    yield from _messages(run.messages, names)


def _named(kind: str, node: int, thread: int, args: PlainDict) -> str:
    return f'{{"ph":"M","name":"{kind}","pid":{node + 1},"tid":{thread},"args":{json.dumps(args)}}}'


def us(ns: int) -> str:
    """Nanoseconds as microseconds, exactly.

    >>> us(20_000_001)
    '20000.001'
    """
    return f"{ns // 1000}.{ns % 1000:03d}"


def _slice(node: int, thread: int, start_ns: int, length_ns: int, name: str, args: str = "{}") -> str:
    return (f'{{"ph":"X","name":{name},"pid":{node + 1},"tid":{thread},"ts":{us(start_ns)},"dur":{us(length_ns)},'
            f'"args":{args}}}')


def _rounds(rounds: pd.DataFrame, end_ns: int) -> Iterator[str]:
    ordered = rounds.sort_values(["node", "entered_ns"], kind="stable")
    values = [name for name in ("accuracy", "loss") if name in rounds]
    for row in ordered.to_dict("records"):
        start, left = row["entered_ns"], _or(row["left_ns"], end_ns)
        args: dict[str, object] = {} if row["completed"] else {"failed": row["why"]}
        args |= {name: float(row[name]) for name in values if not _null(row[name])}
        name = json.dumps(f"round {row['round']}" + ("" if row["completed"] else ", failed"))
        yield _slice(row["node"], _ROUNDS, start, max(left - start, 0), name, json.dumps(args))
        if "accuracy" in args:
            yield (f'{{"ph":"C","name":"accuracy","pid":{row["node"] + 1},"tid":{_ROUNDS},"ts":{us(left)},'
                   f'"args":{{"accuracy":{args["accuracy"]}}}}}')


def _or(value: Any, otherwise: int) -> int:
    """`value` as an int, or `otherwise` for null."""
    return otherwise if _null(value) else int(value)


def _null(value: object) -> bool:
    import pandas as pd

    return bool(pd.isna(value))


def _computations(computations: pd.DataFrame, end_ns: int) -> Iterator[str]:
    ordered = computations.sort_values(["node", "start_ns"], kind="stable")
    start_ns = ordered["start_ns"].to_numpy(np.int64)
    known = ordered["end_ns"].fillna(-1).to_numpy(np.int64)
    lengths = np.where(known >= 0, known, np.maximum(end_ns, start_ns)) - start_ns
    names = {label: json.dumps(label) for label in ordered["label"].unique()}
    for node, label, number, start, length, work, finished in zip(
            ordered["node"].tolist(), ordered["label"].tolist(), ordered["round"].tolist(), start_ns.tolist(),
            lengths.tolist(), ordered["work"].tolist(), ordered["finished"].tolist(), strict=True):
        args = f'{{"round":{number},"work":{work},"finished":{"true" if finished else "false"}}}'
        yield _slice(node, _COMPUTE, start, length, names[label], args)


def _messages(m: pd.DataFrame, names: list[str]) -> Iterator[str]:
    """A slice for all that a node sent, or got, at one instant, and the flows that begin or end in it."""
    fates, kinds = m["fate"].astype(str), m["type"].astype(str).tolist()
    sent = m["sent_ns"].to_numpy(np.int64)
    known = m["arrived_ns"].fillna(-1).to_numpy(np.int64)
    known = np.where(fates.to_numpy() == FATES[LOST], m["lost_ns"].fillna(-1).to_numpy(np.int64), known)
    ends = known >= 0                               # else in flight when the run ended: no flow
    source, target = m["source"].to_numpy(np.int64), m["target"].to_numpy(np.int64)
    # one by one Python's own numbers and texts are faster than those of NumPy
    fate, ended, sizes, rounds = fates.tolist(), ends.tolist(), m["wire_bytes"].tolist(), m["round"].tolist()
    copies, quoted = np.arange(len(m)), {kind: json.dumps(kind) for kind in set(kinds)}
    plain = [json.dumps(name)[1:-1] for name in names]
    for thread, node, other, time, mine, to in ((_SENT, source, target, sent, copies, "to"),
                                                (_GOT, target, source, known, copies[ends], "from")):
        at_node, with_node, at_ns = node.tolist(), other.tolist(), time.tolist()
        flow = '"ph":"s"' if thread == _SENT else '"ph":"f","bp":"e"'
        for rows, length in instants(node, time, mine):
            where, at = at_node[rows[0]], at_ns[rows[0]]
            place = f'"pid":{where + 1},"tid":{thread},"ts":{us(at)}'
            others = ", ".join(plain[with_node[i]] + ("" if thread == _SENT or fate[i] == FATES[0] else f" ({fate[i]})")
                               for i in rows)
            args = f'{{"round": {rounds[rows[0]]}, "bytes": {sum(sizes[i] for i in rows)}, "{to}": "{others}"}}'
            said = sorted({kinds[i] for i in rows})
            lost = thread == _GOT and all(fate[i] == FATES[LOST] for i in rows)
            name = ("loses " if lost else "") + ", ".join(said) + (f" x {len(rows)}" if len(rows) > 1 else "")
            yield _slice(where, thread, at, length, json.dumps(name), args)
            for i in rows:
                if ended[i]:
                    yield f'{{{flow},"id":{i + 1},"cat":"message","name":{quoted[kinds[i]]},{place}}}'


def instants(node: np.ndarray, time: np.ndarray, rows: np.ndarray) -> Iterator[tuple[list[int], int]]:
    """`rows` grouped by (node, time), in this order, each with the length that its slice may have.

    node, time: (n,) of all rows. The length is 1 us, or less if the node's next instant comes sooner.
    """
    ordered = rows[np.lexsort((rows, time[rows], node[rows]))]
    n, t = node[ordered], time[ordered]
    begins = np.flatnonzero(np.append(True, (n[1:] != n[:-1]) | (t[1:] != t[:-1]))[:len(ordered)])
    n, t = n[begins], t[begins]
    gaps = np.append(np.where(n[1:] == n[:-1], np.diff(t), _WIDTH_NS), _WIDTH_NS)
    lengths = np.minimum(gaps, _WIDTH_NS)[:len(begins)].tolist()
    places = ordered.tolist()
    for (begin, end), length in zip(pairwise([*begins.tolist(), len(places)]), lengths, strict=True):
        yield places[begin:end], length


# --- curves ---------------------------------------------------------------------------------------------------------

Scalar = tuple[str, int, float, float]


def scalars(run: RunTables) -> list[Scalar]:
    """(name, round, virtual seconds at its end, value) of all numbers that rounds have.

    A name ends in `/<node>` where several nodes decide. `mb` is 10^6 bytes on links of all sent until then.
    """
    frame = run.rounds
    end_ns = round(run.summary["virtual_seconds"] * 1e9)
    many = frame["node"].nunique() > 1
    names = [n for n in frame.columns if n not in OF_ROUND and frame[n].dtype.kind in "iuf"]
    until = np.concatenate([[0], np.cumsum(run.messages["wire_bytes"].to_numpy(np.int64))])
    sent = run.messages["sent_ns"].to_numpy(np.int64)
    found: list[Scalar] = []
    for row in frame.to_dict("records"):
        left = _or(row["left_ns"], end_ns)
        found += of_round(int(row["round"]), row["node_name"] if many else "", left,
                          until[np.searchsorted(sent, left, side="right")], bool(row["completed"]),
                          {name: row[name] for name in names if not _null(row[name])})
    return found


def of_round(number: int, node: str, left_ns: int, sent_bytes: int, completed: bool,
             values: Mapping[str, float]) -> list[Scalar]:
    """The scalars of one round that a node has left, and its values; node: "" where no other one decides."""
    every = {**values, "mb": sent_bytes / 1e6, "virtual_s": left_ns / 1e9, "completed": completed}
    return [(f"{name}/{node}" if node else name, number, left_ns / 1e9, float(value)) for name, value in every.items()]


def title(run: RunTables) -> str:
    """The name of a run beside others, as `titled`; `-INCOMPLETE` if it did not come to its end."""
    name = titled(run.summary["label"], run.summary["seed"], run.path)
    return f"{name}-INCOMPLETE" if run.incomplete else name


def titled(label: str, seed: int | None, directory: Path) -> str:
    """`secagg-seed7-<directory>`."""
    return f"{label}-seed{seed}-{directory.resolve().name}"


class Curves(Protocol):
    """The place of one run in another tool. A run that goes on and one that has ended are written in the same way."""

    def add(self, found: Sequence[Scalar]) -> None:
        """Write scalars as `scalars` has them; those of one round may come in several calls."""

    def close(self, run: RunTables) -> None:
        """The run is over: write what its summary says."""


Kind = TypeVar("Kind", bound=Curves)


def tensorboard(directory: Path, out: Path) -> Path:
    """Write the run's numbers by round below `out`, in a directory of its own, which is returned.

    The time of an event is virtual, so that TensorBoard's axis "relative" shows virtual time. Raises ExportError.
    """
    return _written(directory, lambda name: TensorBoardEvents(out, name)).place


def mlflow(directory: Path, uri: str) -> str:
    """Log the run to the MLflow store `uri`, in an experiment named by its scenario; the id it gets there.

    Parameters are the values of the resolved scenario, metrics the numbers by round at their virtual times, files the
    summary and the scenario. Raises ExportError.
    """
    return _written(directory, lambda name: MLflowRun(directory, uri, name)).id


def wandb(directory: Path, out: Path) -> Path:
    """Write the run for Weights & Biases below `out`, as an offline run; its directory, which `wandb sync` sends.

    Its config is the values of the resolved scenario, its history the numbers by round, its summary those of
    `summary.json`. Nothing is sent. Raises ExportError.
    """
    return _written(directory, lambda name: WandbRun(directory, out, name)).place


def _written(directory: Path, make: Callable[[str], Kind]) -> Kind:
    """The place of a run in a tool, made under the title of the run, with all of its numbers in it."""
    run = load_run(directory)
    with fitting(directory):
        place = make(title(run))
        place.add(scalars(run))
        place.close(run)
    return place


class TensorBoardEvents:
    """Event files in the directory `name` below `out`, instead of what was there: TensorBoard would draw both."""

    def __init__(self, out: Path, name: str):
        """Raises ExportError."""
        try:
            from tensorboard.compat.proto.event_pb2 import Event
            from tensorboard.compat.proto.summary_pb2 import Summary
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ImportError:
            raise ExportError("--tensorboard needs TensorBoard: install emul[tensorboard]") from None
        self.place, self._event, self._summary = out / name, Event, Summary
        for old in self.place.glob("events.out.tfevents.*"):
            old.unlink()
        self._writer = EventFileWriter(str(self.place), flush_secs=5)

    def add(self, found: Sequence[Scalar]) -> None:
        for name, number, seconds, value in found:
            values = self._summary(value=[self._summary.Value(tag=name, simple_value=value)])
            self._writer.add_event(self._event(wall_time=seconds, step=number, summary=values))
        self._writer.flush()

    def close(self, run: RunTables) -> None:
        """All was written: event files have no place for a summary."""
        self._writer.close()


class MLflowRun:
    """A new run in the MLflow store `uri`, with the values of the scenario in `directory` as parameters."""

    def __init__(self, directory: Path, uri: str | None, name: str):
        """Raises ExportError."""
        try:
            from mlflow.entities import Param
            from mlflow.tracking import MlflowClient
        except ImportError:
            raise ExportError("--mlflow needs MLflow: install emul[mlflow]") from None
        document = read_scenario(directory / SCENARIO)[1]
        self._client = client = MlflowClient(tracking_uri=uri)
        known = client.get_experiment_by_name(document["name"])
        experiment = client.create_experiment(document["name"]) if known is None else known.experiment_id
        self.id = str(client.create_run(experiment, run_name=name).info.run_id)
        params = [Param(name, str(value)[:500]) for name, value in _flat(document)]
        for i in range(0, len(params), 100):            # the most that MLflow takes at a time
            client.log_batch(self.id, params=params[i:i + 100])
        client.log_artifact(self.id, str(directory / SCENARIO))

    def add(self, found: Sequence[Scalar]) -> None:
        from mlflow.entities import Metric

        metrics = [Metric(name, value, round(seconds * 1e3), number) for name, number, seconds, value in found]
        for i in range(0, len(metrics), 1000):
            self._client.log_batch(self.id, metrics=metrics[i:i + 1000])

    def close(self, run: RunTables) -> None:
        from mlflow.entities import RunTag

        summary = run.summary
        tags = [RunTag("digest", summary["digest"]), RunTag("scheme", summary["scheme"]),
                RunTag("label", summary["label"]), RunTag("accuracy_of", in_words(summary.get("accuracy_of"))),
                *([RunTag("incomplete", run.incomplete)] if run.incomplete else [])]
        self._client.log_batch(self.id, tags=tags)
        self.add([(f"summary.{name}", 0, summary["virtual_seconds"], value)
                  for name, value in _numbers(summary).items()])
        self._client.log_dict(self.id, summary, SUMMARY)
        self._client.set_terminated(self.id, "KILLED" if run.incomplete else "FINISHED")


class WandbRun:
    """A new offline run of Weights & Biases below `out`; its config is the values of the scenario in `directory`."""

    def __init__(self, directory: Path, out: Path, name: str):
        """Raises ExportError."""
        try:
            import wandb as library
        except ImportError:
            raise ExportError("--wandb needs wandb: install emul[wandb]") from None
        document = read_scenario(directory / SCENARIO)[1]
        out.mkdir(parents=True, exist_ok=True)
        settings = library.Settings(console="off", silent=True, x_disable_stats=True)   # of this machine: no part of it
        self._run = library.init(project=document["name"], name=name, config=dict(_flat(document)), dir=str(out),
                                 mode="offline", reinit="create_new", settings=settings)
        # wandb drops values of a step that is over, and evaluations end after their round: each row names its round
        self._run.define_metric("*", step_metric="round")
        self.place = Path(self._run.dir).parent

    def add(self, found: Sequence[Scalar]) -> None:
        by_round: dict[int, dict[str, float]] = {}
        for name, number, _, value in found:
            by_round.setdefault(number, {})[name] = value
        for number, values in sorted(by_round.items()):
            self._run.log({"round": number, **values})

    def close(self, run: RunTables) -> None:
        self._run.summary.update({**_numbers(run.summary), "digest": run.summary["digest"],
                                  "accuracy_of": in_words(run.summary.get("accuracy_of"))})
        self._run.finish(exit_code=1 if run.incomplete else 0)


def _numbers(summary: Mapping[str, object]) -> dict[str, float]:
    """Those values of a summary that are numbers."""
    return {k: float(v) for k, v in summary.items() if isinstance(v, (int, float)) and not isinstance(v, bool)}


def _flat(value: Any, path: str = "") -> list[tuple[str, object]]:
    """The leaves of a document with their paths, in a form that MLflow takes as names: `links/1/outage/p`."""
    items: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if items is None:
        return [(path, value)]
    return [leaf for key, below in items for leaf in _flat(below, f"{path}/{key}" if path else str(key))]

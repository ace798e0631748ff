"""Tables of a study, from its run directories. `COLUMNS` says what they hold."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from emul.base.plain import PlainDict
from emul.record.marks import epsilons
from emul.record.rundir import SUMMARY, read_json
from emul.record.summary import parameter_columns
from emul.record.tables import read_table
from emul.study.cells import Cell
from emul.study.job import CELLS

if TYPE_CHECKING:
    import pandas as pd

COLUMNS: dict[str, dict[str, str]] = {
    # one row a run; after `seed` a column a path of the grid, then `parameters.X` for each that the scenario gives
    "results": {
        "scheme": "The label of its entry, which is the scheme's name if there is one entry of it.",
        "seed": "The seed.",
        "name": "The scheme's name.",
        "directory": "The run directory, below that of the study.",
        "accuracy": "The last accuracy observed; null: none.",
        "accuracy_of": "Its kind (`emul.roles.evaluation.KINDS`); empty: there is no accuracy, or an older run.",
        "epsilon_in_total": "Epsilon of the client that has lost most over the run, by observer, or none.",
        "epsilon_of_a_round": "The same of the costliest round.",
        "delta": "The delta of both.",
        "best_accuracy": "The highest accuracy observed.",
        "best_five": "If several nodes have models of their own: the mean of the five largest means of a round over "
                     "them, without poisoned clients; else null.",
        "attack_success": "The last share of triggered test samples that were taken for a backdoor's target; null: "
                          "no backdoor.",
        "rounds": "Rounds completed.",
        "rounds_failed": "Failed rounds: entered, and completed by no deciding node.",
        "virtual_s": "Virtual seconds, until the last deciding node returned.",
        "bytes": "All bytes that crossed links.",
        "bytes_payload": "Of these the encoded frames, once a copy.",
        "messages_sent": "Copies sent.",
        "messages_lost": "Copies lost.",
        "oracle_waits": "Waits without a timeout that ended because fates were known, which no real node can know. "
                        "Do not compare times of such a scheme with those of one with deadlines.",
        "invariants": "`hold`, or the number of violated ones.",
        "digest": "Of journal and models.",
        "real_s": "Real seconds that the run took.",
    },
    "curves": {                         # one row an observation of a run
        "scheme": "The scheme.",
        "seed": "The seed.",
        "round": "The round at whose end the model was observed.",
        "virtual_s": "Virtual seconds when the deciding nodes had left the round.",
        "mb": "10^6 bytes on links of everything sent until then.",
        "accuracy": "Accuracy, the mean where several nodes were observed.",
        "loss": "Loss, likewise.",
    },
    "metrics": {                        # one row a scheme, seed and metric
        "metric": "The metric, one of METRICS of emul.study.comparison.",
        "scheme": "The scheme.",
        "seed": "The seed.",
        "value": "Its value; null: not reached, or not observed.",
        "unit": "Its unit; empty: a fraction.",
    },
    "differences": {                    # one row a metric and pair of schemes
        "metric": "The metric, one of METRICS of emul.study.comparison.",
        "scheme": "The scheme.",
        "baseline": "The scheme that it is compared with.",
        "n_seeds": "Seeds that both have a value for.",
        "mean": "The mean over these seeds of value of scheme - value of baseline.",
        "low": "Lower end of the interval; null: none can be had.",
        "high": "Upper end of the interval.",
        "t_low": "Lower end of the interval by the paired t-test; null: none can be had.",
        "t_high": "Upper end of that interval.",
        "p": "p-value of the paired t-test.",
        "p_holm": "The same, adjusted for the number of pairs on this metric (Holm).",
        "seeds_needed": "Seeds that would settle a difference of this size; null: it is settled, or more than "
                        "1,000.",
        "unit": "Its unit; empty: a fraction.",
        "note": "Seeds that were left out, and why there is no interval.",
    },
}


def results(study: Path, cells: Sequence[Cell], grid: Sequence[str] = ()) -> pd.DataFrame:
    """One row a run, in the order of `cells`, from their summaries."""
    import pandas as pd

    summaries = [read_json(study / CELLS / cell.key / SUMMARY) for cell in cells]
    rows = [result(study, cell, summary) for cell, summary in zip(cells, summaries, strict=True)]
    frame = pd.DataFrame(rows, columns=list(COLUMNS["results"]))
    more = {path: [cell.values.get(path) for cell in cells] for path in grid}
    more |= parameter_columns(summaries)
    for place, (name, values) in enumerate(more.items(), start=2):
        frame.insert(place, name, grid_column(values))
    return frame


def result(study: Path, cell: Cell, summary: PlainDict) -> PlainDict:
    """The row of one run; see `COLUMNS`."""
    run = study / CELLS / cell.key
    observed = observations(run)
    held = summary["invariants"]
    return {
        "scheme": cell.scheme, "seed": cell.seed, "name": summary["scheme"], "directory": f"{CELLS}/{cell.key}",
        "accuracy": summary["accuracy"], "accuracy_of": summary.get("accuracy_of") or "",
        "epsilon_in_total": epsilons(summary.get("privacy")) or "none",
        "epsilon_of_a_round": epsilons(summary.get("privacy"), "epsilon_of_a_round") or "none",
        "delta": np.nan if (delta := (summary.get("privacy") or {}).get("delta")) is None else float(delta),
        "best_accuracy": None if observed.empty else float(observed["accuracy"].max()),
        "best_five": (summary["accuracy_of_clients"] or {}).get("best_five", np.nan),
        "attack_success": np.nan if summary["attack_success"] is None else summary["attack_success"],
        "rounds": summary["rounds"], "rounds_failed": summary["rounds_failed"],
        "virtual_s": summary["virtual_seconds"], "bytes": summary["bytes_total"],
        "bytes_payload": summary["bytes_payload"], "messages_sent": summary["messages_sent"],
        "messages_lost": summary["messages_lost"], "oracle_waits": sum(summary["oracle_waits"].values()),
        "invariants": held if isinstance(held, str) else f"{len(held)} violated", "digest": summary["digest"],
        "real_s": summary["real_seconds"]}


def kinds_of(results: pd.DataFrame) -> dict[str, str]:
    """Scheme -> the kind of its accuracy, of those that have one."""
    known = results.dropna(subset=["accuracy"])
    return dict(zip(map(str, known["scheme"]), map(str, known["accuracy_of"]), strict=True))


def by_kind(schemes: Sequence[str], accuracy_of: Mapping[str, str]) -> dict[str, list[str]]:
    """Kind of accuracy -> the schemes that have it, in their order: only these are compared with one another."""
    found: dict[str, list[str]] = {}
    for scheme in schemes:
        if scheme in accuracy_of:
            found.setdefault(accuracy_of[scheme], []).append(scheme)
    return found


def grid_column(values: Sequence[object]) -> list[object]:
    """Values of a path as one type that a table holds: as they are if they are numbers or text, else as JSON."""
    kinds = {type(v) for v in values if v is not None}
    if kinds <= {int, float} or kinds in ({str}, {bool}):
        return list(values)
    return [None if v is None else v if isinstance(v, str) else json.dumps(v) for v in values]


def observations(run: Path) -> pd.DataFrame:
    """(round, left_ns, accuracy, loss) of a run, a row a round with an accuracy; the mean over the nodes observed.

    left_ns: when the last of them left the round; of the round in which the run ended, when it ended. Raises
    RecordError.
    """
    import pandas as pd

    table = read_table(run / "rounds.parquet")
    names = [n for n in ("round", "left_ns", "accuracy", "loss") if n in table.column_names]
    if "accuracy" not in names:
        return pd.DataFrame({"round": [], "left_ns": [], "accuracy": [], "loss": []})
    frame = table.select(names).to_pandas(integer_object_nulls=True).dropna(subset=["accuracy"])
    end_ns = round(read_json(run / SUMMARY)["virtual_seconds"] * 1e9)
    frame["left_ns"] = [end_ns if left is None or left != left else int(left) for left in frame["left_ns"]]
    if "loss" not in names:
        frame["loss"] = np.nan
    return frame.groupby("round", as_index=False).agg({"left_ns": "max", "accuracy": "mean", "loss": "mean"})


def curve(run: Path) -> pd.DataFrame:
    """(round, virtual_s, mb, accuracy, loss) of a run: what it knew, when, and what it had cost until then.

    Raises RecordError.
    """
    import pandas as pd

    seen = observations(run)
    sent = read_table(run / "messages.parquet", ["sent_ns", "wire_bytes"])
    until = np.concatenate([[0], np.cumsum(sent["wire_bytes"].to_numpy())])         # in the order of sending
    left = seen["left_ns"].to_numpy(np.int64)
    total = until[np.searchsorted(sent["sent_ns"].to_numpy(), left, side="right")]
    return pd.DataFrame({"round": seen["round"].astype("int64"), "virtual_s": left / 1e9, "mb": total / 1e6,
                         "accuracy": seen["accuracy"].astype(float), "loss": seen["loss"].astype(float)})


def curves(study: Path, cells: Sequence[Cell]) -> pd.DataFrame:
    """The curves of all runs, one below the other."""
    import pandas as pd

    parts = [curve(study / CELLS / cell.key).assign(scheme=cell.scheme, seed=cell.seed) for cell in cells]
    names = list(COLUMNS["curves"])
    return pd.concat(parts, ignore_index=True)[names] if parts else pd.DataFrame(columns=names)

"""Attacks on runs of MP-DP and its relatives, as rows: images that a server reconstructs, members that a client tells.

    python -m benchmarks.mp_dp_attacks --seeds 1 2 --table attacks.csv

Tables II and IV of X. Yang et al., arXiv 2412.11737, on digits: the runs of `scenarios/privacy`, attacked by what they
have kept (`emul attack`). A run whose rows are in the file is not run again. Prints both tables as Markdown.
"""

from __future__ import annotations

import argparse
import csv
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.common import ROOT
from benchmarks.finished import Row, markdown
from emul import engine
from emul.engine.reopening import attack
from emul.scenario import load
from emul.study.job import ORIGIN_COLUMNS, origin

FOLDER = ROOT / "scenarios" / "privacy"
COLUMNS = ("file", "scheme", "seed", "attack", "parameters", "view", "by", "messages", "psnr", "psnr_blind", "ssim",
           "test_mse", "feat_mse", "asr", "auc", "r_error", "digest", *ORIGIN_COLUMNS)


@dataclass(frozen=True)
class AttackOfTable:
    """A run and an attack on it. printed, for CIFAR-10: of a server PSNR, Test-MSE and Feat-MSE of the paper's
    Table II, of a client the success rate of Table IV in %."""

    what: str
    file: str
    scheme: str
    attack: str = "gradient_inversion"
    parameters: tuple[tuple[str, Any], ...] = ()
    of: str = ""                        # the scheme of the paper for which it stands
    printed: tuple[float, ...] = ()


SUM = (("of", "sum"), ("labels", "known"))
SERVER = (
    AttackOfTable("every gradient", "mp_dp_digits.yaml", "fedsgd", of="FedAvg",
                  printed=(13.56, 0.80, 0.15)),
    AttackOfTable("the sum alone, five clients", "mp_dp_sum.yaml", "quiet", parameters=SUM, of="PILE",
                  printed=(13.68, 0.78, 0.14)),
    AttackOfTable("the noisy sum alone, five clients", "mp_dp_sum.yaml", "sound", of="TP-SMC, HybridAlpha",
                  parameters=(*SUM, ("iterations", 100)), printed=(10.39, 1.54, 1.29)),
    AttackOfTable("every clipped gradient, and draws the noise", "mp_dp_digits.yaml", "central", of="MP-CDP",
                  printed=(12.15, 0.91, 0.51)),
    AttackOfTable("gradients with the noise of each client", "mp_dp_digits.yaml", "local"),
    AttackOfTable("`paper`: noisy gradients", "mp_dp_digits.yaml", "paper", of="MP-DP", printed=(9.22, 2.00, 4.13)),
    AttackOfTable("`paper`: Phi, in the clear", "mp_dp_digits.yaml", "paper", parameters=(("match", "clear"),)),
    AttackOfTable("`masked`: words of a ring", "mp_dp_digits.yaml", "masked"),
    AttackOfTable("`sound`: words of a ring", "mp_dp_digits.yaml", "sound"))
CLIENT = (
    AttackOfTable("`paper`, r as published", "mp_dp_clients.yaml", "published", "client_membership", of="MP-DP",
                  printed=(50.30,)),
    AttackOfTable("`paper`, r / n_{L-1}", "mp_dp_clients.yaml", "default", "client_membership"),
    AttackOfTable("`sound`, no r", "mp_dp_clients.yaml", "sound", "client_membership"),
    *(AttackOfTable(f"`{scheme}`", "mp_dp_clients_of_baselines.yaml", scheme, "client_membership", of=of,
                    printed=(printed,))
      for scheme, of, printed in (("fedsgd", "FedAvg", 72.01), ("tp_smc", "TP-SMC", 58.19),
                                  ("hybrid_alpha", "HybridAlpha", 59.49), ("pile", "PILE", 50.44))))
VIEWS = {"server": "the server's model, undisguised", "disguised": "disguised", "adaptive": "disguised, r estimated"}
WAYS = ("threshold", "surrogate", "shadow")


# --- rows -------------------------------------------------------------------------------------------------------------

def rows_of(made: AttackOfTable, seed: int, run: Path) -> list[dict[str, Any]]:
    """The findings of an attack: of a server a row of means over the messages, of a client a row each view and way."""
    found = attack(run, made.attack, dict(made.parameters))
    about = {"file": f"scenarios/privacy/{made.file}", "scheme": made.scheme, "seed": seed, "attack": made.attack,
             "parameters": json.dumps(dict(made.parameters)), "digest": found.about["digest"], **origin()}
    if made.attack == "client_membership":
        return [{**about, **{name: _shown(row[name]) for name in ("view", "by", "asr", "auc", "r_error")}}
                for row in found.rows.to_dict("records")]
    names = ("psnr", "psnr_blind", "ssim", "test_mse", "feat_mse")
    return [{**about, "messages": len(found.rows), **{name: _shown(found.rows[name].mean()) for name in names}}]


def _shown(value: Any) -> Any:
    return "" if value is None or value != value else f"{value:.5g}" if isinstance(value, float) else value


def read(table: Path) -> list[dict[str, str]]:
    """The rows that there are."""
    if not table.is_file():
        return []
    with table.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def of(rows: Sequence[Row], made: AttackOfTable, seed: int | None = None) -> list[Row]:
    """The rows of an attack, of one seed or of all."""
    return [row for row in rows if (row["file"].rpartition("/")[2], row["scheme"], row["attack"],
                                    json.loads(row["parameters"])) ==
            (made.file, made.scheme, made.attack, dict(made.parameters)) and seed in (None, int(row["seed"]))]


def add(table: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Append rows."""
    with table.open("a", newline="", encoding="utf-8") as lines:
        writer = csv.DictWriter(lines, COLUMNS, restval="", lineterminator="\n")
        if not lines.tell():
            writer.writeheader()
        writer.writerows(rows)


def attacked(table: Path, seeds: Sequence[int]) -> None:
    """Run and attack what has no rows yet."""
    for seed in seeds:
        runs: dict[tuple[str, str], Path] = {}
        with tempfile.TemporaryDirectory() as folder:
            for made in (*SERVER, *CLIENT):
                if of(read(table), made, seed):
                    continue
                key = made.file, made.scheme
                if key not in runs:
                    result, = engine.run(load(FOLDER / made.file, [f"seed={seed}"]), scheme=made.scheme, workers=0,
                                         out=Path(folder), quiet=True)
                    assert result.directory is not None, result.error
                    runs[key] = result.directory
                add(table, rows_of(made, seed, runs[key]))


# --- tables -----------------------------------------------------------------------------------------------------------

def server(rows: Sequence[Row]) -> str:
    """The columns of Table II that are of attacks: means over the seeds, and PSNR of each."""
    head = ["what the server sees", "stands for", "PSNR, dB (each seed)", "Test-MSE", "Feat-MSE",
            "printed: PSNR, Test-MSE, Feat-MSE"]
    lines = [[made.what, made.of, _psnr(own), _mean(own, "test_mse"), _mean(own, "feat_mse"),
              ", ".join(f"{value:.2f}" for value in made.printed)] for made in SERVER if (own := of(rows, made))]
    first = of(rows, SERVER[0])
    blind = [float(row["psnr_blind"]) for row in first]
    lines += [["the mean training image, no attack", "", _all(blind), "", "", ""]] if blind else []
    return markdown(head, lines)


def client(rows: Sequence[Row]) -> str:
    """Attack success of Table IV: means over the seeds, each seed. A model that is not disguised is the server's."""
    head = ["run", "what the attacking client looks at", *(f"ASR, {way}" for way in WAYS), "printed"]
    lines = []
    for made in CLIENT:
        seen = [view for view in VIEWS if any(row["view"] == view for row in of(rows, made))]
        for view in seen:
            found = [[100 * float(row["asr"]) for row in of(rows, made) if (row["view"], row["by"]) == (view, way)]
                     for way in WAYS]
            got = seen[0] if len(seen) == 1 else "disguised"        # of which the paper tells
            printed = f"{made.of}: {made.printed[0]:.2f}" if view == got and made.printed else ""
            lines.append([made.what, VIEWS[view], *map(_all, found), printed])
    return markdown(head, lines)


def _all(values: Sequence[float]) -> str:
    if not values:
        return "-"
    return f"{mean(values):.1f}" + (f" ({', '.join(f'{value:.1f}' for value in values)})" if len(values) > 1 else "")


def _psnr(own: Sequence[Row]) -> str:
    return _all([float(row["psnr"]) for row in own])


def _mean(own: Sequence[Row], name: str) -> str:
    return f"{mean(float(row[name]) for row in own):.2g}"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--table", type=Path, default=Path("mp_dp_attacks.csv"), help="of what was found, added to")
    given = parser.parse_args()
    attacked(given.table, given.seeds)
    rows = read(given.table)
    print(f"{server(rows)}\n\n{client(rows)}")


if __name__ == "__main__":
    main()

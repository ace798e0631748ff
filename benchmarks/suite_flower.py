"""Flower apps on five networks of the suite, and the table of docs/suite.md.

    python -m benchmarks.suite_flower --out DIR     # runs what is missing, then makes the table anew
    python -m benchmarks.suite_flower               # makes the table anew

One app in NumPy with the strategies of `flwr.serverapp.strategy`, its other kinds (older API, polling, half precision,
local noise), and the apps in PyTorch and scikit-learn, each for some rounds. Rows go to
docs/studies/data/suite_flower.csv; an app that did not run has the last line of its error there.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks import document
from benchmarks.common import ROOT
from benchmarks.document import replaced
from benchmarks.finished import markdown
from emul.study.engines import in_turn
from emul.study.runs import Where, summary_of
from emul.study.suite import suite

APPS = ROOT / "tests" / "flower" / "apps"
PAGE, DATA = ROOT / "docs" / "suite.md", ROOT / "docs" / "studies" / "data" / "suite_flower.csv"
NETWORKS = ("lan", "home", "mobile", "lossy", "edge")
ROUNDS = 10
COLUMNS = ["app", "network", "seed", "accuracy", "rounds", "rounds_failed", "virtual_s", "mb", "digest", "error"]
STRATEGIES = ("FedAvg", "FedAvgM", "FedProx", "FedAdagrad", "FedAdam", "FedYogi", "FedMedian", "FedTrimmedAvg", "Krum",
              "MultiKrum", "Bulyan", "QFedAvg", "DifferentialPrivacyServerSideFixedClipping",
              "DifferentialPrivacyClientSideFixedClipping", "DifferentialPrivacyServerSideAdaptiveClipping",
              "DifferentialPrivacyClientSideAdaptiveClipping", "FedXgbBagging", "FedXgbCyclic")
CLIENTS = {"DifferentialPrivacyClientSideFixedClipping": "variants.privacy:client",
           "DifferentialPrivacyClientSideAdaptiveClipping": "variants.strategies:adaptive_client"}
KINDS: dict[str, dict[str, str]] = {
    "older API": {"server": "variants.legacy:server", "client": "variants.legacy:client"},
    "polling": {"server": "variants.polling:server"},
    "half precision": {"client": "variants.half:client"},
    "noise of the clients": {"client": "variants.privacy:local_client"}}


def apps() -> list[dict[str, Any]]:
    """The entries of all apps, as a scenario writes them."""
    numpy = {"name": "flower", "app": str(APPS / "quickstart_numpy")}
    config = {"num-server-rounds": ROUNDS}
    found = [{**numpy, "label": name, "server": "variants.strategies:server",
              "client": CLIENTS.get(name, "variants.strategies:client"), "config": {**config, "strategy": name}}
             for name in STRATEGIES]
    found += [{**numpy, "label": name, **parts, "config": config} for name, parts in KINDS.items()]
    return found + [{"name": "flower", "label": name, "app": str(APPS / folder), "config": config} for name, folder in
                    (("PyTorch", "quickstart_pytorch"), ("scikit-learn", "quickstart_sklearn"))]


def ran(out: Path, entries: Sequence[dict[str, Any]], networks: Sequence[str], seeds: Sequence[int]) -> pd.DataFrame:
    """One row an app, network and seed, `COLUMNS`; `error` says why it did not run."""
    study = suite(Where(in_turn, 1), schemes=entries, networks=networks, seeds=seeds, out=out,
                  sets=["compute.default=5 ms", "stop.virtual_time=1 h"])
    rows = []
    for cell in study.study.runs:
        said = summary_of(study.study.path, cell)
        rows.append({"app": cell.scheme, "network": cell.network, "seed": cell.seed, "accuracy": said["accuracy"],
                     "rounds": said["rounds"], "rounds_failed": said["rounds_failed"],
                     "virtual_s": said["virtual_seconds"], "mb": said["bytes_total"] / 1e6, "digest": said["digest"],
                     "error": ""})
    rows += [{"app": one.cell.scheme, "network": one.cell.network, "seed": one.cell.seed,
              "error": one.error.strip().splitlines()[-1]} for one in study.study.failed]
    rows += [{"app": one.scheme, "network": one.network, "seed": seed, "error": one.reason}
             for one in study.results.refused for seed in seeds]
    return pd.DataFrame(rows, columns=COLUMNS)


def table(found: pd.DataFrame) -> str:
    """Markdown: a line an app, with its accuracy on each network; below it why something did not run."""
    networks, lines, reasons = list(dict.fromkeys(found["network"])), [], dict[str, str]()
    for app, mine in found.groupby("app", sort=False):
        cells = [str(app)]
        for network in networks:
            here_ = mine[mine["network"] == network]
            errors = [str(error) for error in here_["error"] if error]
            there = here_[here_["error"] == ""]["accuracy"].dropna()
            lost = int(here_["rounds_failed"].fillna(0).sum())
            if errors:
                reasons[str(app)] = errors[0]
            cells.append("did not run" if errors else f"{100 * there.mean():.1f} %" if len(there) else "no accuracy")
            cells[-1] += f" (rounds lost: {lost})" if lost and not errors else ""
        lines.append(cells)
    said = markdown(["app", *(f"`{network}`" for network in networks)], lines)
    return "\n".join([said, "", *(f"- {app}: `{error}`" for app, error in reasons.items())])


def read() -> pd.DataFrame:
    """The committed rows."""
    return pd.read_csv(DATA).fillna({"error": ""})


def filled(page: str, found: pd.DataFrame) -> str:
    """The text of the page with its table made anew."""
    return replaced(page, "flower", table(found))


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="directory of the runs; those that are there are not run again")
    parser.add_argument("--networks", nargs="*", default=NETWORKS)
    said = parser.parse_args(arguments)
    if said.out is not None:
        ran(said.out, apps(), said.networks, [0]).to_csv(DATA, index=False, float_format="%.6g", lineterminator="\n")
    document.save(PAGE, filled(document.read(PAGE), read()))


if __name__ == "__main__":
    main()

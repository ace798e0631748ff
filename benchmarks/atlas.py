"""The runs and tables of docs/atlas.md, from the directories of `emul suite`.

    python -m benchmarks.atlas --refused                        # finds which scheme cannot run on which network
    python -m benchmarks.atlas runs/atlas --done atlas.csv      # takes the runs of a directory, makes the page anew
    python -m benchmarks.atlas --dropout runs/atlas-dropout --done atlas.csv
    python -m benchmarks.atlas --attacked atlas_robust.csv      # the table of a sweep of atlas_robust.yaml

docs/atlas.md has the commands that make the runs. A call puts runs into docs/studies/data/atlas.csv in place of those
of the same network, scheme, seed and change, and makes all blocks of the page anew; without a directory it does the
latter alone.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import document
from benchmarks.common import ROOT
from benchmarks.document import replaced
from benchmarks.finished import markdown
from emul import scenario
from emul.base.errors import Problem, ScenarioError
from emul.record.rundir import SCENARIO, read_json
from emul.registry import schemes as registry
from emul.study import suite_text, tables
from emul.study.done import AGAIN
from emul.study.job import CELLS
from emul.study.stats import FEWEST, holm, student
from emul.study.suite import Suite, entries, patience_of, patient, reason
from emul.study.suite_tables import COSTS, METRICS, RefusedScheme, SuiteResults, measure

PAGE, DATA = ROOT / "docs" / "atlas.md", ROOT / "docs" / "studies" / "data" / "atlas.csv"
REFUSED = DATA.with_name("atlas_refused.csv")
ATTACKED = DATA.with_name("atlas_robust.csv")
README = ROOT / "docs" / "schemes" / "README.md"
ENTRIES = ROOT / "scenarios" / "atlas.yaml"
HARMED = ROOT / "scenarios" / "atlas_robust.yaml"
TARGET, BASE, SEEDS, FIRST = 0.93, "fedavg", (0, 1, 2), "lan"
DROPOUT = "20 % dropout"                # the change of rows whose scenario was edited; "" for all others
HARMS = ("neither", "attackers", "dropout", "both")     # of the rows of `ATTACKED`, by the values of their grid
COLUMNS = [*AGAIN, "network", "change", *METRICS, "last", "rounds", "rounds_failed", "sent", "lost", "phases",
           "oracle_waits", "accuracy_of"]
# `emul verify` takes `bytes` and `accuracy` of a table for those of the whole run. A run ends with the round that is
# under way when the network's time is over, and `measure` does not count that round.
IN_FILE = {"bytes": "mb_to_target", "sent": "bytes", "accuracy": "accuracy_in_time", "last": "accuracy"}
UNASKED = {"heavy_hitters": "It counts, and has no model.", "histogram": "It counts, and has no model.",
           "ddp": "Its rounds are single steps; it has not been run here yet.",
           "flower": "It needs an app: `emul suite --flower APP` runs one."}
FREE = ("split", "splitfed", "mp_dp", "mp_cdp", "mp_dp_naive")  # their computations have labels without a price
SECURE = ("secagg", "secagg_plus", "ccesa", "lightsecagg", "fastsecagg", "swiftagg_plus")
ROBUST = ("krum", "median", "trimmed_mean", "foolsgold")
LATE = ("fedasync", "fedbuff", "fedat")

# --- runs -------------------------------------------------------------------------------------------------------------

def runs(study: Path, done: Path, change: str = "") -> pd.DataFrame:
    """One row a run of a directory of `emul suite`, `COLUMNS`. done: its table, which says what makes a run again.
    change: of all its runs; some schemes have one digest with and without it."""
    with done.open(newline="", encoding="utf-8") as lines:
        known = {(row["digest"], row["scheme"], row["seed"]): row for row in csv.DictReader(lines)
                 if (row["sets"] != _plain_sets(row)) is bool(change)}
    found = []
    for summary in sorted(study.glob(f"{CELLS}/[!.]*/summary.json")):
        said = read_json(summary)
        row = known.get((said["digest"], said["label"], str(said["seed"])))
        if row is not None:
            found.append({name: row[name] for name in AGAIN} | {"change": change} | _row(summary.parent, said, row))
    return pd.DataFrame(found, columns=COLUMNS)


def _row(run: Path, summary: Mapping[str, Any], row: Mapping[str, str]) -> dict[str, Any]:
    limit = scenario.load(run / SCENARIO, check=False).stop.virtual_time_ns
    assert limit is not None
    values = measure(run, summary, tables.curve(run), TARGET, limit / 1e9)
    return {"network": row["scenario"].partition("-")[2], **{metric: values.get(metric) for metric in METRICS},
            "last": row["accuracy"], "rounds": summary["rounds"], "rounds_failed": summary["rounds_failed"],
            "sent": summary["bytes_total"], "lost": summary["messages_lost"] / max(1, summary["messages_sent"]),
            "phases": json.dumps(summary["bytes_by_type"]), "oracle_waits": sum(summary["oracle_waits"].values()),
            "accuracy_of": summary["accuracy_of"]}


def _plain_sets(row: Mapping[str, str]) -> str:
    """The edits of a row of the suite that changes nothing of a network: the scheme's entry alone."""
    return json.dumps(json.loads(row["sets"])[:1], ensure_ascii=False)


def kept(file: Path, found: pd.DataFrame) -> pd.DataFrame:
    """All runs of a file with these in place of their equals; the file is written anew."""
    before = read(file) if file.is_file() else found.iloc[:0]
    together = pd.concat([before, found], ignore_index=True) if len(before) else found
    # A measure that none of the new runs has would make the column one of objects, whose numbers are not rounded.
    together = together.astype(dict.fromkeys(METRICS, float))
    together["change"] = together["change"].fillna("")
    together["seed"] = together["seed"].astype(int)
    together = together.drop_duplicates(["network", "change", "scheme", "seed"], keep="last")
    together = together.sort_values(["change", "network", "scheme", "seed"])
    file.parent.mkdir(parents=True, exist_ok=True)
    together.rename(columns=IN_FILE).to_csv(file, index=False, float_format="%.6g", lineterminator="\n")
    return read(file)


def read(file: Path = DATA) -> pd.DataFrame:
    """The runs of a file."""
    found = pd.read_csv(file).rename(columns={name: metric for metric, name in IN_FILE.items()})
    return found.assign(change=found["change"].astype(object).fillna(""), oracle_waits=found["oracle_waits"].fillna(0))


def kept_attacked(done: Path, file: Path = ATTACKED) -> None:
    """Into a file, the rows of a table of `emul sweep --done` of `HARMED`."""
    found = pd.read_csv(done, dtype=str, keep_default_na=False).assign(file=HARMED.relative_to(ROOT).as_posix())
    found = found.sort_values(["scheme", "values", "seed"])
    found["accuracy_of"] = [registry.find(name).accuracy_of(SimpleNamespace(**json.loads(parameters)))
                            for name, parameters in zip(found["scheme"], found["parameters"], strict=True)]
    found[[*AGAIN, "accuracy", "accuracy_of", "rounds", "rounds_failed", "virtual_s", "bytes"]].to_csv(
        file, index=False, lineterminator="\n")


def read_attacked(file: Path = ATTACKED) -> pd.DataFrame:
    """The runs of a file, with their harm, one of `HARMS`."""
    found = pd.read_csv(file)
    return found.assign(harm=[harm(json.loads(values)) for values in found["values"]])


def harm(values: Mapping[str, Any]) -> str:
    """The one of `HARMS` that the values of a grid mean.

    >>> harm({"attacks": [], "links[1].outage.p": 0.2})
    'dropout'
    """
    return HARMS[bool(values["attacks"]) + 2 * (values["links[1].outage.p"] > 0)]


def refused(suite: Suite) -> list[RefusedScheme]:
    """The schemes that cannot run on a network, with the reason.

    All schemes of a network are checked at once; those with mistakes are taken out, and the others are checked
    again, since mistakes of parameters hide those of places.
    """
    wanted = entries(suite, [name for name in registry.known() if name not in UNASKED])
    wanted |= entries(suite, [str(ENTRIES)])
    found = []
    for network, file in suite.networks.items():
        left = {label: own.get(network) or patient(own[""], patience_of(file), ()) for label, own in wanted.items()}
        while left:
            try:
                scenario.load(file, [f"schemes={json.dumps(list(left.values()))}"])
                break
            except ScenarioError as error:
                mistakes: dict[str, list[Problem]] = {}
                for one in error.problems:
                    at = re.search(r"schemes\[(\d+)\]", one.place)
                    if at is None:
                        raise
                    place = one.place.replace(at[0], "schemes[0]")
                    mistakes.setdefault(list(left)[int(at[1])], []).append(replace(one, place=place))
                found += [RefusedScheme(network, label, reason(ScenarioError(network, own)))
                          for label, own in mistakes.items()]
                left = {label: entry for label, entry in left.items() if label not in mistakes}
    return found


def read_refused(file: Path = REFUSED) -> list[RefusedScheme]:
    """Those of a file."""
    with file.open(newline="", encoding="utf-8") as lines:
        return [RefusedScheme(**row) for row in csv.DictReader(lines)]


def write_refused(found: Sequence[RefusedScheme], file: Path = REFUSED) -> None:
    """Into a file, a row each."""
    with file.open("w", newline="", encoding="utf-8") as lines:
        writer = csv.DictWriter(lines, ["network", "scheme", "reason"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(vars(one) for one in found)


def asked() -> list[str]:
    """The labels of all schemes of the atlas."""
    return sorted(name for name in registry.known() if name not in UNASKED)


@cache
def lossless() -> frozenset[str]:
    """The schemes whose network loses nothing: it is another one than that of the others."""
    return frozenset(name for name in registry.known() if registry.find(name).ideal_links)


def results(found: pd.DataFrame, schemes: Sequence[str], networks: Sequence[str], missing: Sequence[RefusedScheme] = (),
            baseline: str = BASE, complete: bool = False) -> SuiteResults:
    """The runs as a suite has them. complete: only schemes with all seeds on a network count there."""
    values: dict[tuple[str, str, str], dict[int, float]] = {}
    ended: dict[tuple[str, str], list[int]] = {}
    knowing: dict[tuple[str, str], int] = {}
    kinds = {str(name): str(kind) for name, kind in zip(found["scheme"], found["accuracy_of"], strict=True)}
    for (network, scheme), mine in found.groupby(["network", "scheme"], sort=False):
        if scheme not in schemes or network not in networks or (complete and len(mine) < len(SEEDS)):
            continue
        key = str(network), str(scheme)
        ended[key] = [int(seed) for seed in mine["seed"]]
        knowing[key] = int(mine["oracle_waits"].sum())
        for metric in METRICS:
            there = mine.dropna(subset=[metric])
            values[metric, *key] = {int(seed): float(value) for seed, value in zip(there["seed"], there[metric],
                                                                                   strict=True)}
    values = {key: own for key, own in values.items() if own}
    return SuiteResults(list(networks), list(schemes), list(SEEDS), baseline, dict.fromkeys(networks, TARGET), values,
                        ended, {name: kinds[name] for name in schemes if name in kinds}, knowing, list(missing),
                        pd.DataFrame(),
                        [name for name in schemes if name in lossless()])


# --- tables -----------------------------------------------------------------------------------------------------------

def _shown(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _interval(values: Sequence[float], unit: float = 1) -> str:
    """The mean, with its 95 % interval by Student's t from three values on."""
    if not len(values):
        return ""
    scaled = [float(value) / unit for value in values]
    mean = _shown(float(np.mean(scaled)))
    if len(scaled) < FEWEST:
        return mean
    found = student(scaled)
    return mean if found.low == found.high else f"{mean} [{_shown(found.low)}, {_shown(found.high)}]"


def purposes() -> dict[str, tuple[str, str]]:
    """Scheme -> what one takes it for and its page, seen from docs, as docs/schemes/README.md says both."""
    found: dict[str, tuple[str, str]] = {}
    for line in README.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == 3 and "`" in cells[1]:
            link = re.search(r"\]\((\S+?)\)", cells[2])
            page = "" if link is None else os.path.normpath(f"schemes/{link[1]}")
            for name in cells[1].split("`")[1::2]:
                found.setdefault(name, (cells[0], page))
    return found


def needs(name: str) -> str:
    """The places of a scheme's roles, from its declaration."""
    places = dict.fromkeys(place.replace(" | ", " or ") for place in registry.find(name).all_places().values())
    return ", ".join(places)


def atlas(found: pd.DataFrame, names: Sequence[str]) -> str:
    """Markdown: one line a scheme, from its runs on the first network, without a change and with one."""
    known, lines = purposes(), []
    for name in names:
        mine = found[(found["scheme"] == name) & (found["network"] == FIRST)]
        plain, dropped = mine[mine["change"] == ""], mine[mine["change"] == DROPOUT]
        there = plain.dropna(subset=["time"])
        purpose, page = known.get(name) or known.get(registry.find(name).of, ("", ""))
        lines.append([
            f"[{name}]({page})" if page else name, purpose, needs(name),
            kind_of(plain), f"{len(there)} of {len(plain)}" if len(plain) else "", _interval(list(there["time"])),
            _interval(list(there["bytes"])), _interval(list(there["joules"].dropna()), 1e3),
            _interval(list(100 * plain["accuracy"].dropna())), phases(plain),
            _interval(list(100 * dropped["accuracy"].dropna())),
            _interval([100 * failed / max(1, failed + rounds) for failed, rounds in
                       zip(dropped["rounds_failed"], dropped["rounds"], strict=True)])])
    return markdown(["scheme", "what for", "places", "accuracy of", "reached", "time, s", "MB", "kJ", "accuracy, %",
                     "bytes by phase, kB a round", "accuracy under dropout, %", "rounds lost under dropout, %"], lines)


def kind_of(rows: pd.DataFrame) -> str:
    """The kind of accuracy of runs of one scheme, as they were made."""
    return ", ".join(dict.fromkeys(rows["accuracy_of"].dropna()))


def phases(rows: pd.DataFrame) -> str:
    """Kilobytes of a round by type of message, the largest three first; the others together."""
    if rows.empty:
        return ""
    total: dict[str, float] = {}
    rounds = max(1, int((rows["rounds"] + rows["rounds_failed"]).sum()))
    for said in rows["phases"]:
        for name, size in json.loads(said).items():
            total[name] = total.get(name, 0.0) + size
    sizes = sorted(((size / rounds / 1e3, name) for name, size in total.items()), key=lambda one: (-one[0], one[1]))
    shown = [f"{name} {_shown(size)}" for size, name in sizes[:3] if size]
    rest = sum(size for size, _ in sizes[3:])
    return ", ".join([*shown, *([f"others {_shown(rest)}"] if rest else [])]) or "0"


def by_network(found: pd.DataFrame, networks: Sequence[str]) -> str:
    """Markdown: one line a network and scheme."""
    plain, lines = found[found["change"] == ""], []
    for network in networks:
        for name, mine in plain[plain["network"] == network].groupby("scheme"):
            there = mine.dropna(subset=["time"])
            mark = "*" if mine["oracle_waits"].sum() else ""
            lines.append([network, f"{name}{mark}", kind_of(mine), f"{len(there)} of {len(mine)}",
                          _interval(list(there["time"])), _interval(list(there["bytes"])),
                          _interval(list(there["joules"].dropna()), 1e3),
                          _interval(list(100 * mine["accuracy"].dropna())),
                          f"{int(mine['rounds_failed'].sum())} of "
                          f"{int(mine['rounds_failed'].sum() + mine['rounds'].sum())}"])
    return markdown(["network", "scheme", "accuracy of", "reached", "time, s", "MB", "kJ", "accuracy, %",
                     "rounds lost"], lines)


def unable(found: Sequence[RefusedScheme], networks: Sequence[str]) -> str:
    """Markdown: which scheme cannot run where, and why; reasons without what differs between networks alone."""
    by: dict[str, dict[str, list[str]]] = {}
    for one in found:
        reason = one.reason.partition("; say where")[0].partition(", it has")[0]
        by.setdefault(one.scheme, {}).setdefault(reason, []).append(one.network)
    lines = [[name, "all" if len(where) == len(networks) else ", ".join(where), reason.replace("|", "or")]
             for name, reasons in sorted(by.items()) for reason, where in reasons.items()]
    lines += [[name, "all", reason] for name, reason in UNASKED.items()]
    return markdown(["scheme", "networks", "why not"], lines)


def missing(found: pd.DataFrame, without: Sequence[RefusedScheme], networks: Sequence[str]) -> str:
    """Markdown: by network how many of its runs are there, and which schemes lack seeds."""
    cannot = {(one.network, one.scheme) for one in without}
    plain, lines = found[found["change"] == ""], []
    counts = plain.groupby(["network", "scheme"]).size().to_dict()
    for network in networks:
        can = [name for name in asked() if (network, name) not in cannot]
        there = {name: int(counts.get((network, name), 0)) for name in can}
        lacking = [f"{name} ({len(SEEDS) - n})" for name, n in there.items() if n < len(SEEDS)]
        few = f"all but {', '.join(n for n in can if there[n] >= len(SEEDS))}" if len(lacking) > len(can) / 2 else ""
        lines.append([network, f"{sum(there.values())} of {len(can) * len(SEEDS)}",
                      (few if few != "all but " else "all") or ", ".join(lacking) or "none"])
    return markdown(["network", "runs there", "schemes that lack seeds"], lines)


# --- answers ----------------------------------------------------------------------------------------------------------

def winners(found: pd.DataFrame, networks: Sequence[str]) -> str:
    """A table of who wins where, of schemes with all seeds on each network that is compared."""
    names, there = compared(found, networks)
    if len(there) < 2 or len(names) < 2:
        return "*Fewer than two networks have two schemes on all seeds.*"
    free = [name for name in names if name in FREE]
    names = [name for name in names if name not in lossless() and name not in FREE]
    r = results(found[found["change"] == ""], names, there, complete=True)
    head = (f"{len(names)} schemes have all {len(SEEDS)} seeds on {', '.join(there)}. "
            + (f"Not among them: {', '.join(f'`{name}`' for name in free)}, whose computations cost nothing here. "
               if free else "")
            + "Kinds of accuracy are different measures and are not compared with one another: "
            + "; ".join(f"{kind}: {', '.join(f'`{name}`' for name in schemes)}" for kind, schemes in r.kinds().items())
            + ". *Settled* counts networks on which the paired t-test settles the lead over the second, *pairs* those "
            "pairs of networks whose winners differ.")
    lines = [line for kind in r.kinds() for metric in METRICS if (line := _won(r, metric, kind))]
    return head + "\n\n" + markdown(["measure", "accuracy", "networks won", "of", "settled", "pairs", "winner of "
                                     f"{there[0]}", "which does not win on"], lines)


def _won(r: SuiteResults, metric: str, kind: str) -> list[str]:
    won = r.winners(metric, kind)
    if not won or len(r.kinds()[kind]) < 2:
        return []
    pairs = list(combinations(won, 2))
    tested = [suite_text.settled(r, metric, network, kind) for network in won]
    first = next(iter(won.values()))
    elsewhere = [network for network, scheme in won.items() if scheme != first]
    return [metric, kind, ", ".join(f"`{scheme}` {n}" for scheme, n in Counter(won.values()).most_common()),
            str(len(won)), str(sum(map(bool, tested))), f"{sum(won[a] != won[b] for a, b in pairs)} of {len(pairs)}",
            f"`{first}`", ", ".join(elsewhere)]


def compared(found: pd.DataFrame, networks: Sequence[str]) -> tuple[list[str], list[str]]:
    """The schemes that have all seeds on every network on which the baseline has, and these networks."""
    plain = found[(found["change"] == "") & (found["scheme"] != "local")]
    whole = plain.groupby(["network", "scheme"]).size().ge(len(SEEDS))
    full = {network: {scheme for (at, scheme), ok in whole.items() if ok and at == network} for network in networks}
    there = [network for network in networks if len(full[network]) >= 5]
    names = set.intersection(*(full[network] for network in there)) if there else set()
    return sorted(names, key=lambda name: (name != BASE, name)), there


def against(found: pd.DataFrame, group: Sequence[str], metric: str, networks: Sequence[str],
            baseline: str = BASE, settled: str = "settled") -> str:
    """Markdown: by network the differences of a group to the baseline, seed by seed, with p by Holm in the group.
    settled: the head of the last column."""
    r = results(found[found["change"] == ""], [baseline, *group], networks, baseline=baseline, complete=True)
    frame = r.frames()["differences"]
    scale, unit = (100, "points") if metric == "accuracy" else (1, METRICS[metric][0])
    lines = []
    for row in frame[frame["metric"] == metric].itertuples():
        known = pd.notna(row.t_low)
        ends = f" [{_shown(scale * row.t_low)}, {_shown(scale * row.t_high)}]" if known else ""
        lines.append([row.network, row.scheme, str(row.n_seeds), f"{_shown(scale * row.mean)}{ends}",
                      "yes" if known and row.p_holm < 0.05 else "no"])
    if not lines:
        return "*No runs yet.*"
    return markdown(["network", "scheme", "seeds", f"difference to {baseline}, {unit}", settled], lines)


def accuracies(found: pd.DataFrame, scheme: str, harm: str) -> pd.Series[float]:
    """Percent by seed."""
    mine = found[(found["scheme"] == scheme) & (found["harm"] == harm)]
    return mine.set_index("seed")["accuracy"].sort_index() * 100


def apart(found: pd.DataFrame, scheme: str, harm: str) -> list[float]:
    """Points more than `BASE` has under the same harm, seed by seed."""
    return list((accuracies(found, scheme, harm) - accuracies(found, BASE, harm)).dropna())


def harmed(found: pd.DataFrame) -> str:
    """Markdown: a line a scheme, its accuracy under each harm and the points more than `BASE` has."""
    lines = []
    for name in dict.fromkeys([BASE, *sorted(found["scheme"].unique())]):
        lines.append([name, *(cell for harm in HARMS for cell in (
            _interval(list(accuracies(found, name, harm))),
            "" if name == BASE or name not in comparable(found) else _interval(apart(found, name, harm))))])
    return markdown(["scheme", *(cell for harm in HARMS for cell in (
        f"{harm}: accuracy, %", f"more than {BASE}, points"))], lines)


def comparable(found: pd.DataFrame) -> list[str]:
    """The schemes whose accuracies are of the same kind as those of `BASE`, without it."""
    kinds = found.groupby("scheme")["accuracy_of"].first()
    return sorted(kinds[kinds == kinds[BASE]].index.drop(BASE))


def harms_said(found: pd.DataFrame) -> str:
    """Paragraphs: by harm how robust schemes compare with `BASE`, then how `LATE` do, then who is not compared."""
    names = comparable(found)
    left = found[~found["scheme"].isin([BASE, *names])].groupby("scheme")["accuracy_of"].first()
    groups = {"": [name for name in names if name not in LATE], "Asynchronous schemes. ": [*LATE]}
    when = {"neither": "Without attackers and dropout", "attackers": "With attackers", "dropout": "With dropout",
            "both": "With both"}
    sides = {harm: settled_sides(found, names, harm) for harm in HARMS}
    said = [
        f"{head}{when[harm]} `{BASE}` has {_interval(list(accuracies(found, BASE, harm)))} %. "
        + _sides(found, {name: side for name, side in sides[harm].items() if name in group}, harm)
        for head, group in groups.items() for harm in HARMS]
    if len(left):
        said.append(f"Not compared with `{BASE}`, whose accuracy is global: "
                    + ", ".join(f"`{name}` ({kind})" for name, kind in left.items()) + ".")
    return "\n\n".join(said)


def settled_sides(found: pd.DataFrame, names: Sequence[str], harm: str) -> dict[str, str]:
    """Scheme -> `lower` or `higher` than `BASE` if the paired t-test settles that, by Holm for all; else `open`."""
    tests = {name: student(apart(found, name, harm)) for name in names}
    return {name: "open" if p >= 0.05 else "lower" if test.high < 0 else "higher"
            for (name, test), p in zip(tests.items(), holm([test.p for test in tests.values()]), strict=True)}


def _sides(found: pd.DataFrame, sides: Mapping[str, str], harm: str) -> str:
    texts = {"lower": "Settled and below it, in points", "higher": "Settled and above it", "open": "Not settled"}
    listed = {side: [f"`{name}` ({_interval(apart(found, name, harm))})" for name in sides if sides[name] == side]
              for side in texts}
    return " ".join(f"{texts[side]}: {', '.join(own)}." for side, own in listed.items() if own)


def cheapest(found: pd.DataFrame, group: Sequence[str], networks: Sequence[str]) -> str:
    """Markdown: by network the scheme of a group that needs least, with how many of the group there are."""
    r, lines = results(found[found["change"] == ""], list(group), networks, complete=True), []
    for network in networks:
        cells = [network, str(sum((network, name) in r.ended for name in group))]
        for metric in COSTS:
            ranked = r.ranked(metric, network, "global")
            if ranked:
                sure = {True: "settled", False: "not settled", None: "not asked"}[
                    suite_text.settled(r, metric, network, "global")]
                unit = 1e3 if metric == "joules" else 1
                of = len(r.of(metric, network, ranked[0]))
                cells.append(f"`{ranked[0]}`: {_interval(list(r.of(metric, network, ranked[0]).values()), unit)}"
                             f"{'' if of == len(SEEDS) else f', {of} of {len(SEEDS)} seeds'}, {sure}")
            else:
                cells.append("none got there")
        if int(cells[1]):
            lines.append(cells)
    return markdown(["network", "of them ran", "least time, s", "fewest MB", "fewest kJ"], lines)


# --- page -------------------------------------------------------------------------------------------------------------

def filled(page: str, found: pd.DataFrame, without: Sequence[RefusedScheme], attacked: pd.DataFrame) -> str:
    """The text of the page with its blocks made anew."""
    networks = list(Suite.of().networks)
    robust = against(found, ROBUST, "accuracy", networks)
    blocks = {"atlas": atlas(found, asked()), "networks": by_network(found, networks),
              "unable": unable(without, networks), "missing": missing(found, without, networks),
              "winners": winners(found, networks), "secure": cheapest(found, SECURE, networks), "robust": robust,
              "late": against(found, LATE, "time", networks, settled="settled for these deadlines"),
              "harmed": harmed(attacked), "harms": harms_said(attacked)}
    for name, content in blocks.items():
        page = replaced(page, name, content)
    return page


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path, nargs="*", help="directories of `emul suite`")
    parser.add_argument("--dropout", type=Path, nargs="*", default=[], help=f"those with {DROPOUT.replace('%', '%%')}")
    parser.add_argument("--attacked", type=Path, help="the table of the sweep of scenarios/atlas_robust.yaml")
    parser.add_argument("--done", type=Path, help="their table")
    parser.add_argument("--refused", action="store_true", help="find out again which scheme cannot run where")
    said = parser.parse_args(arguments)
    if (said.study or said.dropout) and said.done is None:
        parser.error("expected --done, the table that the suite was run with")
    for study in said.study:
        kept(DATA, runs(study, said.done))
    for study in said.dropout:
        kept(DATA, runs(study, said.done, DROPOUT))
    if said.attacked is not None:
        kept_attacked(said.attacked)
    if said.refused:
        write_refused(refused(Suite.of()))
    text = filled(document.read(PAGE), read(), read_refused(), read_attacked())
    document.save(PAGE, text)


if __name__ == "__main__":
    main()

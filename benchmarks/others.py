"""Results of others, run again: the rows of docs/reproductions/others.md.

    emul sweep scenarios/published/safa_reg.yaml --done docs/reproductions/data/others_runs.csv
    emul sweep scenarios/published/safa_cnn.yaml --done docs/reproductions/data/others_runs.csv
    python -m benchmarks.others

and so on with the other scenarios of scenarios/published. The last computes the clock or the formula that a source used
in place of a network, and puts it beside what the source has printed (docs/reproductions/data/safa_printed.csv,
safa_lag_printed.csv, and `TIMES` here) and beside the runs: safa.csv, safa_accuracy.csv, safa_boston.csv, safa_lags.csv
and times.csv in docs/reproductions/others.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from benchmarks.common import ROOT
from emul.scenario import load

DATA = ROOT / "docs" / "reproductions" / "data"
OUT = ROOT / "docs" / "reproductions" / "others"
SEEDS = 20
BY = {"fedavg": ("fedavg", "averaged", "begun"), "safa": ("safa", "program")}     # ways in which accuracies were run
MODEL_MB, CLIENT_MB_S, SERVER_MB_S = 10.0, 0.175, 1250.0


@dataclass
class Setup:
    """A task of Wu et al., IEEE TC 2021, as their program has it."""

    scenario: str           # or the table of its speeds
    rounds: int
    epochs: int
    batch: int
    samples: int
    limit_s: float
    waits: bool             # FedAvg waits until the limit where somebody crashes: only one of their tables is so

    @cached_property
    def speeds(self) -> np.ndarray:
        """Batches a second, (clients,), as they were drawn."""
        if self.scenario.endswith(".csv"):
            return np.loadtxt(DATA / self.scenario, skiprows=1)
        return np.array([rule.speed for rule in load(ROOT / "scenarios" / "published" / self.scenario).node_speeds])


SETUPS = {"Reg": Setup("safa_reg.yaml", 100, 3, 5, 506, 830.0, waits=False),
          "CNN": Setup("safa_cnn.yaml", 50, 5, 40, 70_000, 5600.0, waits=True),
          "SVM": Setup("safa_svm_speeds.csv", 100, 5, 100, 186_480, 1620.0, waits=True)}


@dataclass(frozen=True)
class Clock:
    """A run by their formula. Lengths in seconds, means over its rounds."""

    round_s: float          # the length that they print
    t_dist_s: float         # of it, for handing out models: of all rounds so far, since their counter is never set back
    sync_ratio: float       # models that a round hands out, a client
    update_ratio: float     # updates that a round takes, a client
    version_variance: float

    def mended_s(self, setup: Setup) -> float:
        """The length of a round with the models of that round alone."""
        return self.round_s - self.t_dist_s + MODEL_MB * self.sync_ratio * len(setup.speeds) / SERVER_MB_S


def shards(setup: Setup, clients: int, rng: np.random.Generator) -> np.ndarray:
    """Samples of each client: N(mu, 0.3 mu), scaled to all samples, drawn again where one is too small."""
    mean = setup.samples / clients
    while True:
        sizes = rng.normal(mean, 0.3 * mean, clients)
        sizes *= setup.samples / sizes.sum()
        if sizes.min() >= max(20, setup.batch):
            return np.floor(sizes)


def clock(setup: Setup, scheme: str, crash: float, fraction: float, seed: int, lag: int = 5) -> Clock:
    """The clock of their program for `scheme`, with draws of our own.

    A round of FedAvg and FedCS lasts as long as the slowest of a random cohort; FedCS leaves those out that cannot make
    the limit. SAFA takes the fastest of those that do not crash, first the ones that it did not take the round before;
    who crashes and who is fast is known beforehand, and all others end within the round, however short it is.
    """
    rng = np.random.default_rng(seed)
    speeds = setup.speeds
    clients = len(speeds)
    training = shards(setup, clients, rng) / setup.batch * setup.epochs / speeds
    whole = np.minimum(setup.limit_s, 2 * MODEL_MB / CLIENT_MB_S + training)
    never = training > setup.limit_s
    quota = math.ceil(clients * fraction)
    versions, picked = np.full(clients, -1), np.zeros(clients, bool)
    handed = taken = 0
    lengths, distribution, variances = [], [], []
    for t in range(setup.rounds):
        crashed = rng.random(clients) <= crash
        if scheme == "safa":
            able = np.flatnonzero(~crashed & ~never)
            order = sorted(able, key=lambda k: (picked[k], -speeds[k]))
            cohort = np.array(order[:quota], int)
            picked = np.isin(np.arange(clients), cohort)
            deprecated = t - 1 - versions > lag
            handed += int((deprecated | (versions == t - 1)).sum())
            versions[deprecated] = t - 1
            variances.append(float(np.var(versions[~crashed])) if len(cohort) else 0.0)
            versions[~crashed] = t
            taken += len(cohort)
        else:
            cohort = rng.choice(clients, quota, replace=False)
            if scheme == "fedcs":
                cohort = cohort[training[cohort] + MODEL_MB / CLIENT_MB_S <= setup.limit_s]
            handed += len(cohort)
            taken += int((~crashed[cohort]).sum())
        length = whole[cohort].max(initial=0.0)
        if scheme == "fedavg" and setup.waits and (crashed | never)[cohort].any():
            length = setup.limit_s
        distribution.append(MODEL_MB * handed / SERVER_MB_S)
        lengths.append(length + distribution[-1])
    each = setup.rounds * clients
    return Clock(float(np.mean(lengths)), float(np.mean(distribution)), handed / each, taken / each,
                 float(np.mean(variances)) if variances else 0.0)


def cells(printed: pd.DataFrame, done: Sequence[Mapping[str, str]]) -> Iterator[dict[str, object]]:
    """Printed, formula and runs of each cell."""
    for one in printed.to_dict("records"):
        setup, of = SETUPS[one["task"]], (one["scheme"], one["crash"], one["fraction"])
        clocks = [clock(setup, *of, seed) for seed in range(SEEDS)]
        lengths = [found.round_s for found in clocks]
        own = [row for row in done if row["file"].endswith(setup.scenario)
               and row["scheme"] == f"{one['scheme']}_{round(100 * one['fraction'])}"
               and json.loads(row["values"]) == {"links[1].outage.p": one["crash"]}]
        ours = [float(row["virtual_s"]) / (int(row["rounds"]) + int(row["rounds_failed"])) for row in own]
        synchronised = [json.loads(row["means"]).get("synchronised", math.nan) for row in own]
        yield one | {
            "formula_s": round(float(np.mean(lengths)), 1), "formula_least_s": round(min(lengths), 1),
            "formula_most_s": round(max(lengths), 1),
            "within": min(lengths) - 0.1 <= one["round_s"] <= max(lengths) + 0.1,
            "formula_t_dist_s": round(float(np.mean([found.t_dist_s for found in clocks])), 3),
            "formula_mended_s": round(float(np.mean([found.mended_s(setup) for found in clocks])), 1),
            "formula_sync_ratio": round(float(np.mean([found.sync_ratio for found in clocks])), 3),
            "run_s": round(float(np.mean(ours)), 1) if ours else "",
            "run_least_s": round(min(ours), 1) if ours else "", "run_most_s": round(max(ours), 1) if ours else "",
            "run_sync_ratio": (round(float(np.mean(synchronised)) / len(setup.speeds), 3)
                               if own and one["scheme"] == "safa" else ""), "seeds": len(ours)}


def accuracies(printed: pd.DataFrame, done: Sequence[Mapping[str, str]]) -> Iterator[dict[str, object]]:
    """Best accuracies of CNN in %, means of the seeds. FedAvg by the mean of those that answer (`fedavg`), by that of
    all clients, as their program takes it (`averaged`), and by this behind an epoch of all clients (`begun`); SAFA by
    messages (`safa`) and by their program's loop behind that epoch (`program`). Of a run in which who crashes does not
    train and one in which it trains for nothing, the former."""
    found: dict[tuple[str, float, float], dict[str, float]] = {}
    for row in sorted(done, key=lambda row: "match" in row["sets"]):
        if row["file"].endswith(("safa_accuracy.yaml", "safa_program.yaml")):
            name, _, share = row["scheme"].partition("_")
            values = json.loads(row["values"])
            key = "begun" if "task.model" in values else name, values["links[1].outage.p"], int(share) / 100
            found.setdefault(key, {})[row["seed"]] = 100 * float(row["best_accuracy"])
    of = (printed["task"] == "CNN") & printed["scheme"].isin(BY)
    for one in printed[of].to_dict("records"):
        runs = {name: found.get((name, one["crash"], one["fraction"]), {}) for name in BY[one["scheme"]]}
        if any(runs.values()):
            yield {name: one[name] for name in ("scheme", "crash", "fraction")} | {
                "printed": round(100 * one["best_accuracy"], 2)} | {
                name: round(float(np.mean(list(runs[name].values()))), 2) if runs.get(name) else ""
                for names in BY.values() for name in names}


def boston(printed: pd.DataFrame, done: Sequence[Mapping[str, str]]) -> Iterator[dict[str, object]]:
    """Best accuracies of Reg in %, by their program's loops: mean, least and most of the seeds."""
    for one in printed[(printed["task"] == "Reg") & printed["scheme"].isin(BY)].to_dict("records"):
        of = (f"{one['scheme']}_{round(100 * one['fraction'])}", {"links[1].outage.p": one["crash"]})
        found = [100 * float(row["best_accuracy"]) for row in done if row["file"].endswith("safa_boston.yaml")
                 and (row["scheme"], json.loads(row["values"])) == of]
        if found:
            accuracy = 100 * one["best_accuracy"]
            yield {name: one[name] for name in ("scheme", "crash", "fraction")} | {
                "printed": round(accuracy, 2), "run": round(float(np.mean(found)), 2),
                "run_least": round(min(found), 2), "run_most": round(max(found), 2),
                "within": min(found) - 0.05 <= accuracy <= max(found) + 0.05, "seeds": len(found)}


def by_lag(done: Sequence[Mapping[str, str]], scenario: str, own: int | None = None,
           ) -> dict[tuple[float, float, int], list[Mapping[str, str]]]:
    """{(crash, fraction, lag): runs of SAFA in this scenario}; own: the lag of rows that name none, None: left out."""
    found = dict[tuple[float, float, int], list[Mapping[str, str]]]()
    for row in done:
        scheme, _, share = row["scheme"].partition("_")
        if row["file"].endswith(scenario) and scheme == "safa":
            values = json.loads(row["values"])
            lag = next((value for key, value in values.items() if key.endswith(".lag")), own)
            if lag is not None:
                found.setdefault((values["links[1].outage.p"], int(share) / 100, lag), []).append(row)
    return found


def lags(printed: pd.DataFrame, done: Sequence[Mapping[str, str]]) -> Iterator[dict[str, object]]:
    """Printed and formula of each lag tolerance, of Reg: ratios and variances, mean, least and most of the seeds; by
    messages, means of the seeds; the best loss by their loop (`square`: an accuracy is 1 less the loss)."""
    messages, loops = by_lag(done, "safa_reg.yaml", 5), by_lag(done, "safa_boston.yaml")
    reported = {"update_ratio": "received", "sync_ratio": "synchronised", "version_variance": "version_variance"}
    for one in printed.to_dict("records"):
        of = ("safa", one["crash"], one["fraction"])
        clocks = [clock(SETUPS["Reg"], *of, seed, one["lag"]) for seed in range(SEEDS)]
        found: dict[str, object] = {}
        for name in ("update_ratio", "sync_ratio", "version_variance"):
            values = [getattr(it, name) for it in clocks]
            found |= {f"{name}_formula": round(float(np.mean(values)), 3), f"{name}_least": round(min(values), 3),
                      f"{name}_most": round(max(values), 3),
                      f"{name}_within": min(values) - 0.0005 <= one[name] <= max(values) + 0.0005}
        cell = one["crash"], one["fraction"], one["lag"]
        for name, column in reported.items():
            means = [json.loads(row["means"])[column] for row in messages.get(cell, ())]
            clients = 1 if name == "version_variance" else len(SETUPS["Reg"].speeds)
            found[f"{name}_run"] = round(float(np.mean(means)) / clients, 3) if means else ""
        losses = [1 - float(row["best_accuracy"]) for row in loops.get(cell, ())]
        yield one | found | {"best_loss_run": round(float(np.mean(losses)), 4) if losses else ""}


# --- times of FLGo, NVFlare, FedDES and a Flower app -----------------------------------------------------------------

def waited(k: int, of: int, rounds: int) -> float:
    """Expected units until k of so many have answered, in so many rounds; their responses are U(5, 1000)."""
    return rounds * (5 + 995 * k / (of + 1))


def tiers(of: int, rounds: int) -> tuple[float, float]:
    """Expected units of FedAvg with `of` of 100 clients, whose times are 100 quantiles of U(5, 1000), and of TiFL with
    tiers of so many, one of which is drawn for each round behind the first, in which all are profiled."""
    times = 5 + 995 * (np.arange(100) + 0.5) / 100
    last = np.array([math.comb(k, of - 1) for k in range(100)], float) / math.comb(100, of)
    return (rounds * float(times @ last),
            float(times[-1] + (rounds - 1) * times[of - 1::of].mean()))


def stale(seed: int, first: int = 0, budget: float = 0.0, rounds: int = 6) -> tuple[float, float]:
    """FLGo's loop: a client's response always takes the same time, drawn once from U(5, 1000); each round starts 20
    idle clients, and ends with the `first` updates or after `budget`; updates of earlier rounds count. (units of
    `rounds`, mean number of versions that the stale updates of the next have missed, which FLGo prints behind the
    accuracy; nan: none is stale)."""
    rng, now, flying, missed = np.random.default_rng(seed), 0.0, dict[int, tuple[float, int]](), list[int]()
    takes, took = rng.uniform(5, 1000, 100), 0.0
    for number in range(rounds + 1):
        took = now
        idle = [k for k in range(100) if k not in flying]
        flying |= {int(k): (now + takes[k], number) for k in rng.choice(idle, min(20, len(idle)), False)}
        now = max(now, sorted(flying.values())[first - 1][0]) if first else now + budget
        missed = [number - begun for at, begun in flying.values() if at <= now and begun < number]
        flying = {k: it for k, it in flying.items() if it[0] > now}
    return took, float(np.mean(missed)) if missed else math.nan


def loops() -> Iterator[dict[str, object]]:
    """FLGo's loop where stale updates count: units and staleness, means and quantiles of 1,000 seeds."""
    for case, how, printed in (("budget of 200", {"budget": 200.0}, (1206.0, 2.05)),
                               ("first 10", {"first": 10}, (1113.0, 3.14))):
        found = np.array([stale(seed, **how) for seed in range(1000)]).T
        for what, values, one in zip(("units", "versions missed"), found, printed, strict=True):
            values = values[np.isfinite(values)]
            yield _spread("FLGo 4.5", f"{case}, its loop: {what}", one, values, 2 if one < 10 else 1)


def saved(done: Sequence[Mapping[str, str]]) -> Iterator[dict[str, object]]:
    """TiFL's share of FedAvg's time that it saves on the same seed, in %."""
    took = {(row["scheme"], row["seed"]): float(row["virtual_s"]) for row in done
            if row["file"].endswith("flgo_fixed.yaml")}
    values = [100 - 100 * took["tifl", seed] / took["fedavg", seed] for name, seed in took if name == "tifl"]
    yield _spread("FLGo 4.3", "TiFL, % of the time saved", 40.0, values, 1)


def learnt(done: Sequence[Mapping[str, str]]) -> Iterator[dict[str, object]]:
    """Accuracies of FLGo's tutorial 4.5 after six rounds by its loop, in %."""
    for case, label, printed in (("wait for all of 20", "wait_for_all", 85.31), ("budget of 200", "budget_200", 68.74),
                                 ("first 10", "first_10", 71.33)):
        values = [100 * float(row["accuracy"]) for row in done
                  if row["file"].endswith("flgo_accuracy.yaml") and row["scheme"] == label]
        if values:
            yield _spread("FLGo 4.5", f"{case}, its loop: accuracy", printed, values, 2)


def _spread(study: str, case: str, printed: float, values: Sequence[float] | np.ndarray, digits: int,
            ) -> dict[str, object]:
    low, high = np.quantile(values, [0.025, 0.975])
    return {"study": study, "case": case, "printed": printed, "run": round(float(np.mean(values)), digits),
            "run_2.5": round(float(low), digits), "run_97.5": round(float(high), digits),
            "printed_within": bool(low <= printed <= high), "seeds": len(values)}


KINDS_S = (100.0, 200.0, 400.0)         # means of NVFlare's kinds of devices
CHANNEL_S = 5.0

MEAN = sum(KINDS_S) / len(KINDS_S) + CHANNEL_S
HARMONIC = len(KINDS_S) / sum(1 / (kind + CHANNEL_S) for kind in KINDS_S)
LARGEST = KINDS_S[-1] + 1.5 / math.sqrt(math.pi) * 4 + CHANNEL_S        # their maximum of three normals
FEDAVG_UNITS, TIFL_UNITS = tiers(20, 20)


def slowest(draws: int = 20_000) -> float:
    """Expected seconds of the last of 16 devices, each of one of the kinds, by draws."""
    rng = np.random.default_rng(0)
    kinds = rng.integers(0, 3, (draws, 16))
    trained = rng.normal(np.array(KINDS_S)[kinds], np.array([1.0, 2.0, 4.0])[kinds])
    return float((trained + rng.normal(CHANNEL_S, 1.0, kinds.shape)).max(axis=1).mean())


FEDDES_CLIENTS, FEDDES_ROUNDS = 1023, 3
FEDDES_B_S = 38_123_587 / 200e9         # a model on one of its links; it travels as 8 and 32 of them, asynchronously 8

# study, case, scenario, label, seconds or units that are printed, those of the source's formula, those of ours.
# FedDES prints none: in their place stands what its actors take on SimGrid (feddes_peer.py).
TIMES = (
    ("FLGo 4.5", "wait for all of 20", "flgo_stale.yaml", "wait_for_all", 5545.0, None, waited(20, 20, 6)),
    ("FLGo 4.5", "budget of 200, stale updates lost", "flgo_stale.yaml", "budget_200", 1206.0, None, 6 * 200.0),
    ("FLGo 4.5", "first 10 of 20, stale updates lost", "flgo_stale.yaml", "first_10", 1113.0, None, None),
    ("FLGo 4.5", "buffer of 10, 20 train", "flgo_stale.yaml", "buffer_10", 1113.0, None, None),
    ("FLGo 4.3", "FedAvg", "flgo_fixed.yaml", "fedavg", None, None, FEDAVG_UNITS),
    ("FLGo 4.3", "TiFL", "flgo_fixed.yaml", "tifl", None, None, TIFL_UNITS),
    ("NVFlare", "sync, 10 rounds", "nvflare_edge.yaml", "fedavg", 72 * 60.0, 10 * LARGEST, 10 * slowest()),
    ("NVFlare", "async, 160 versions", "nvflare_async.yaml", "fedbuff", 35 * 60.0, 10 * MEAN, 10 * HARMONIC),
    ("FedDES", "FedAvg, 3 rounds", "feddes.yaml", "fedavg", 700.8, None,
     FEDDES_ROUNDS * FEDDES_CLIENTS * (0.05 + 0.17 + 40 * FEDDES_B_S)),
    ("FedDES", "FedAsync, 3 updates a client", "feddes_async.yaml", "fedasync", 711.9, None,
     FEDDES_CLIENTS * (0.05 + 8 * FEDDES_B_S + FEDDES_ROUNDS * (0.05 + 0.0113 + 0.15 + 16 * FEDDES_B_S))),
    *(("Flower", f"{runtime}, M = {m}", "flower_semi.yaml", f"{runtime}_{m}",
       {18: 64.6, 20: 168.5}[m] if runtime == "simulation" else None, None, None)
      for runtime in ("simulation", "superlink", "links") for m in (18, 20)))


def times(done: Sequence[Mapping[str, str]]) -> Iterator[dict[str, object]]:
    """Printed, formulas and runs of each of `TIMES`; the runs' mean and their quantiles of 2.5 and 97.5 %."""
    for study, case, scenario, label, printed, theirs, ours in TIMES:
        found = [float(row["virtual_s"]) for row in done if row["file"].endswith(scenario) and row["scheme"] == label]
        low, high = np.quantile(found, [0.025, 0.975]) if found else (math.nan, math.nan)
        yield {"study": study, "case": case, "printed": printed or "",
               "their_formula": round(theirs, 1) if theirs else "", "formula": round(ours, 1) if ours else "",
               "run": round(float(np.mean(found)), 1) if found else "",
               "run_2.5": round(float(low), 1) if found else "", "run_97.5": round(float(high), 1) if found else "",
               "printed_within": bool(low <= printed <= high) if printed and len(found) > 9 else "",
               "seeds": len(found)}


def conditions(done: Sequence[Mapping[str, str]]) -> Iterator[dict[str, object]]:
    """Runs of the studies that print no times, one for each of their conditions."""
    for study, scenario in (("5G, WiFi, Ethernet", "access_5g.yaml"), ("Flower at the edge", "flower_edge.yaml")):
        for row in done:
            if row["file"].endswith(scenario):
                told = [f"{key.rpartition('.')[2]} {value}" for key, value in json.loads(row["values"]).items()]
                told += [said for said in json.loads(row["sets"]) if not said.startswith(("training", "schemes"))]
                yield {"study": study, "case": ", ".join([row["scheme"], *told]),
                       "run": row["virtual_s"], "rounds": row["rounds"],
                       "received": json.loads(row["means"])["received"], "seeds": 1}


def main() -> None:
    """Write the tables."""
    printed = pd.read_csv(DATA / "safa_printed.csv", comment="#")
    done = pd.read_csv(DATA / "others_runs.csv", dtype=str, keep_default_na=False).to_dict("records")
    OUT.mkdir(exist_ok=True)
    found = pd.DataFrame(cells(printed, done))
    found.to_csv(OUT / "safa.csv", index=False)
    for task, of in found.groupby("task"):
        still = of["formula_most_s"] - of["formula_least_s"] < 0.05
        print(f"{task}: {int(of['within'].sum())} of {len(of)} printed lengths of rounds within {SEEDS} seeds of the "
              f"formula, of which {int(still.sum())} have nothing drawn, {int((of['within'] & still).sum())} so")
    of_accuracy = pd.DataFrame(accuracies(printed, done))
    of_accuracy.to_csv(OUT / "safa_accuracy.csv", index=False)
    print(of_accuracy.to_string())
    of_boston = pd.DataFrame(boston(printed, done))
    of_boston.to_csv(OUT / "safa_boston.csv", index=False)
    print(of_boston.to_string())
    timed = pd.DataFrame([*times(done), *loops(), *learnt(done), *saved(done), *conditions(done)])
    timed.to_csv(OUT / "times.csv", index=False)
    print(timed.to_string())
    of_lags = pd.DataFrame(lags(pd.read_csv(DATA / "safa_lag_printed.csv"), done))
    of_lags.to_csv(OUT / "safa_lags.csv", index=False)
    for name in ("update_ratio", "sync_ratio", "version_variance"):
        print(f"{int(of_lags[name + '_within'].sum())} of {len(of_lags)} printed {name} so")


if __name__ == "__main__":
    main()

"""Seconds of a step of training: measured on this machine, fitted, and held against what others have printed.

    python -m benchmarks.bench_devices --measure      measure all pairs again: 4 minutes of a quiet machine
    python -m benchmarks.bench_devices --count        count the models of all rows again: 1 minute
    python -m benchmarks.bench_devices --write        fit the rows, rewrite the tables of docs/devices.md and the fitted
                                                      numbers of emul/scenario/devices.csv

A pair is a model and a batch. A step is emul's own (`emul.learning.training.batch_step`), plain SGD on one batch that
lies in memory, with torch's own choice of kernels. e, u, o, and those of convolutions, are fitted to the pairs of a
device by |log(predicted / measured)|, each time without a model, then without a batch; the pairs left out are
predicted. Then they are fitted to all pairs of another device.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache, partial
from itertools import product
from math import exp, log
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from benchmarks import published_models
from benchmarks.common import ROOT, Figure, Options
from emul.scenario.devices import DeviceClass, read_devices, step_time

if TYPE_CHECKING:
    from torch import nn

    from emul.learning.counting import StepCount, StepCounts
    from emul.learning.objectives import Batch
    from emul.learning.solver import Solver

DATA = ROOT / "docs" / "studies" / "data"
MEASURED, PUBLISHED, GPU = DATA / "devices.csv", DATA / "devices_published.csv", DATA / "gpu.csv"
COUNTS = DATA / "devices_operations.csv"
TABLE = ROOT / "emul" / "scenario" / "devices.csv"
PAGE = ROOT / "docs" / "devices"         # its folder of tables; the page is PAGE.md
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
_SECONDS = 0.8                          # of each pair: 158 of them are to take 4 minutes
_COLUMNS = ("device", "model", "batch", "seconds", "peak_flops", "bandwidth", "clock")

Shape = tuple[int, ...]
# name -> (what makes it, shape of a sample, outputs); a shape of one number is a row of tokens
MODELS: dict[str, tuple[object, Shape, int]] = {
    "logistic": ("logistic", (1, 28, 28), 10),
    "mnist_2nn": ("mnist_2nn", (1, 28, 28), 10),
    "wide_mlp": ("wide_mlp", (1, 28, 28), 10),
    "digits_cnn": ("digits_cnn", (1, 8, 8), 10),
    "mnist_classic": ("mnist_classic", (1, 28, 28), 10),
    "mnist_printed": ("mnist_printed", (1, 28, 28), 10),
    "cinic_cnn": ("cinic_cnn", (3, 32, 32), 10),
    "resnet20_bn": ("resnet20_bn", (3, 32, 32), 10),
    "resnet18": ("resnet18", (3, 32, 32), 10),
    "transformer": ({"transformer": {"blocks": 2, "width": 64, "heads": 4}}, (64,), 64),
}


@dataclass(frozen=True)
class Pair:
    """A step of a model with a batch on a device, measured or printed, with the device's peaks."""

    device: str
    model: str
    batch: int
    seconds: float
    peak_flops: float
    bandwidth: float

    @property
    def count(self) -> StepCount:
        """The counts of its step, as they are kept."""
        return kept_counts()[self.model].of(self.batch)


@dataclass(frozen=True)
class Fit:
    """The fitted numbers of a device: e, u, o, and those of convolutions."""

    efficiency: float
    use: float
    launch_s: float
    conv_efficiency: float
    conv_use: float
    conv_launch_s: float

    def seconds(self, pair: Pair) -> float:
        """As `emul.scenario.devices.step_time` has it."""
        device = DeviceClass(pair.device, "", flops=pair.peak_flops, bandwidth=pair.bandwidth, **asdict(self))
        return step_time(device, pair.count).seconds


# --- measuring ------------------------------------------------------------------------------------------------------

def module_of(model: str) -> nn.Module:
    """The module of a name of MODELS, made anew."""
    from torch import nn

    from emul.learning import models

    spec, shape, outputs = MODELS[model]
    if spec == "wide_mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(),
                             nn.Linear(2048, outputs))
    return models.create(spec, shape, outputs, 0)


def batch_of(shape: Shape, outputs: int, samples: int) -> Batch:
    """A batch of noise."""
    import torch

    from emul.learning.objectives import Batch

    tokens = len(shape) == 1
    x = torch.randint(outputs, (samples, *shape)) if tokens else torch.randn(samples, *shape)
    return Batch(x, torch.randint(outputs, (samples, *shape) if tokens else (samples,)))


def stepped(module: nn.Module, batch: Batch) -> Callable[[], None]:
    """A step of plain SGD on the batch."""
    from emul.learning.objectives import CROSS_ENTROPY
    from emul.learning.parameters import FlatModule
    from emul.learning.training import batch_step

    model = FlatModule(module)
    model.module.train()
    return partial(batch_step(model, _sgd(), CROSS_ENTROPY), batch)


def counted(make: Callable[[], nn.Module], shape: Shape, outputs: int, small: int = 4) -> StepCounts:
    """The counts of its step by batch, from two small ones, as in a run."""
    from emul.learning.counting import StepCounts, count_step
    from emul.learning.objectives import CROSS_ENTROPY

    return StepCounts(small, *(count_step(make(), batch_of(shape, outputs, samples), _sgd(), CROSS_ENTROPY)
                               for samples in (small, 2 * small))).grouped()


def _sgd() -> Solver:
    from emul.learning import solver

    return solver.make({"sgd": {"lr": 1e-3, "steps": 1}})


def timed(step: Callable[[], object], clock: Callable[[], float], seconds: float = _SECONDS) -> float:
    """Seconds of a step: the median over at least five, after three that warm up."""
    for _ in range(3):
        step()
    found: list[float] = []
    end = time.perf_counter() + seconds
    while len(found) < 5 or time.perf_counter() < end:
        begin = clock()
        step()
        found.append(clock() - begin)
    return median(found)


def peaks(clock: Callable[[], float]) -> tuple[float, float]:
    """(FLOP/s of a product of two matrices of 2048, bytes/s of a copy of 256 MB): the better of two medians of five."""
    import torch

    n, size = 2048, 64 * 2**20
    a, b, source, target = torch.randn(n, n), torch.randn(n, n), torch.randn(size), torch.empty(size)

    def best(work: Callable[[], object]) -> float:
        return min(timed(work, clock, 0.0) for _ in range(2))

    return 2 * n**3 / best(lambda: torch.mm(a, b)), 8 * size / best(lambda: target.copy_(source))


def measure(threads: Sequence[int] = (1, 2), clock: str = "wall", batches: Sequence[int] = BATCHES,
            seconds: float = _SECONDS) -> Iterator[Pair]:
    """All pairs on this machine's CPU. clock: "wall", or "cpu", the CPU time of one thread under load."""
    import torch

    read = time.perf_counter if clock == "wall" else time.thread_time
    for count in threads:
        torch.set_num_threads(count)
        device, (peak, bandwidth) = f"xeon-{count}-thread{'s' * (count > 1)}", peaks(read)
        for model, batch in product(MODELS, batches):
            if (model, batch) == ("resnet18", 1):       # its last batch normalisation has one value a channel then
                continue
            took = timed(stepped(module_of(model), batch_of(*MODELS[model][1:], batch)), read, seconds)
            yield Pair(device, model, batch, took, peak, bandwidth)


def read_pairs(path: Path = MEASURED) -> list[Pair]:
    """The measured rows."""
    with path.open(encoding="utf-8", newline="") as file:
        return [Pair(row["device"], row["model"], int(row["batch"]), *(float(row[name]) for name in _COLUMNS[3:-1]))
                for row in csv.DictReader(file)]


def write_pairs(pairs: Iterable[Pair], clock: str, path: Path = MEASURED) -> list[Pair]:
    """Keep them, a line at a time, and return them."""
    found = []
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(_COLUMNS)
        for pair in pairs:
            found.append(pair)
            writer.writerow([pair.device, pair.model, pair.batch, *(
                f"{getattr(pair, name):.6g}" for name in _COLUMNS[3:-1]), clock])
            file.flush()
    return found


# name of a model of the bare PyTorch loop of `bench_gpu` -> (its name here, shape of a sample)
_ON_GPU: dict[str, tuple[str, Shape]] = {"logistic": ("logistic on digits", (1, 8, 8)),
                                         "digits_cnn": ("digits_cnn", (1, 8, 8)),
                                         "cinic_cnn": ("cinic_cnn", (3, 32, 32))}
AT_224 = " at 224"                      # behind the name of a published model: `resnet18` is measured at 32
_STEPS, _BATCH = 5, 32                  # of each client


def gpu_pairs() -> list[Pair]:
    """Those of the GPU's rows that time a plain loop. All of them are bound by launches, so they tell o alone."""
    known, found = read_devices(TABLE)["h200"], []
    for row in _rows(GPU):
        named = re.fullmatch(r"cohort: (\w+), \d+ clients, as one, times faster than bare PyTorch", row["figure"])
        took = re.fullmatch(r"([\d.]+) ms a client", row["note"])
        if named is not None and took is not None and named[1] in _ON_GPU:
            found.append(Pair("h200", _ON_GPU[named[1]][0], _BATCH, float(took[1]) / 1e3 / _STEPS, known.flops or 0.0,
                              known.bandwidth or 0.0))
    return found


# --- counts ---------------------------------------------------------------------------------------------------------

def count_models() -> None:
    """Count the models of all rows anew, and keep the counts."""
    from emul.learning import models

    lines = {model: counted(partial(module_of, model), *MODELS[model][1:]) for model in MODELS}
    name, shape = _ON_GPU["logistic"]
    lines[name] = counted(partial(models.create, "logistic", shape, 10, 0), shape, 10)
    for name in dict.fromkeys(row["model"] for row in _rows(PUBLISHED)):
        # of a single sample attention makes no copies of its heads, so it launches less
        small = 2 if name.startswith("vit") else 1
        lines[name + AT_224] = counted(partial(published_models.make, name), (3, 224, 224), 1000, small)
    write_counts(lines)


def write_counts(lines: Mapping[str, StepCounts]) -> None:
    """Keep counts, a row for operations that are alike."""
    _write(COUNTS, [{"model": name, "small": str(line.small), "times": str(a.times),
                     "convolution": str(int(a.convolution)),
                     **{f"{key}_{place}": f"{getattr(one, key):.9g}"
                        for place, one in (("small", a), ("twice", b)) for key in ("flops", "bytes")}}
                    for name, line in lines.items()
                    for a, b in zip(line.at_small.operations, line.at_twice.operations, strict=True)])


@cache
def kept_counts() -> dict[str, StepCounts]:
    """Model -> its counts by batch; no memory, which no rule here asks for."""
    from emul.learning.counting import Operation, StepCount, StepCounts

    rows: dict[tuple[str, int], list[dict[str, str]]] = {}
    for row in _rows(COUNTS):
        rows.setdefault((row["model"], int(row["small"])), []).append(row)
    return {name: StepCounts(small, *(StepCount(tuple(Operation(
        int(row["times"]), row["convolution"] == "1", float(row[f"flops_{place}"]), float(row[f"bytes_{place}"]))
        for row in own), 0.0) for place in ("small", "twice"))) for (name, small), own in rows.items()}


# --- fitting --------------------------------------------------------------------------------------------------------

Combine = Callable[[np.ndarray, np.ndarray], np.ndarray]      # seconds of arithmetic, of moving -> of both

# of e, u, o, and e, u, o of convolutions
_STARTS = ((0.5, 1.2, 6e-6, 0.5, 0.15, 3e-4), (0.3, 2.0, 1e-5, 0.3, 0.3, 2e-4), (0.2, 2.0, 1e-5, 0.2, 2.0, 3e-5))


class Operations:
    """The operations of all steps of some pairs, as arrays of equal length: which pair, how often, is it a convolution,
    seconds at the peaks."""

    def __init__(self, pairs: Sequence[Pair]):
        rows = [(i, one.times, one.convolution, one.flops / pair.peak_flops, one.bytes / pair.bandwidth)
                for i, pair in enumerate(pairs) for one in pair.count.operations]
        self.where, self.times, self.conv, self.compute, self.memory = map(np.array, zip(*rows, strict=True))

    def seconds(self, numbers: Sequence[float] | np.ndarray, combine: Combine) -> np.ndarray:
        """(pairs,): of each step, by the numbers of a `Fit`."""
        e, u, o, conv_e, conv_u, conv_o = numbers
        both = combine(self.compute / np.where(self.conv, conv_e, e), self.memory / np.where(self.conv, conv_u, u))
        return np.bincount(self.where, self.times * (both + np.where(self.conv, conv_o, o)))


def fit(pairs: Sequence[Pair], combine: Combine = np.add) -> Fit:
    """The numbers that make |log(predicted / measured)| small: least squares of the logarithms, with a loss that is
    linear beyond 5 %, from several starts."""
    from scipy.optimize import least_squares

    operations, measured = Operations(pairs), np.array([pair.seconds for pair in pairs])

    def residuals(x: np.ndarray) -> np.ndarray:
        return np.asarray(np.log(operations.seconds(np.exp(x), combine) / measured))

    best = min((least_squares(residuals, np.log(start), loss="soft_l1", f_scale=0.05) for start in _STARTS),
               key=lambda found: float(found.cost))
    return Fit(*map(float, np.exp(best.x)))


def fit_of_step(pairs: Sequence[Pair]) -> Callable[[Pair], float]:
    """Seconds by max(F / (e P), B / (u W)) + k o of the whole step, with the three numbers that fit best."""
    from scipy.optimize import minimize

    def parts(pair: Pair) -> tuple[float, float, float]:
        count = pair.count
        return count.flops / pair.peak_flops, count.bytes / pair.bandwidth, count.launches

    compute, memory, launches = map(np.array, zip(*map(parts, pairs), strict=True))
    measured = np.array([pair.seconds for pair in pairs])

    def loss(x: np.ndarray) -> float:
        e, u, o = np.exp(x)
        return float(np.abs(np.log((np.maximum(compute / e, memory / u) + launches * o) / measured)).mean())

    best = min((minimize(loss, np.log(start), method="Nelder-Mead", options={"xatol": 1e-3, "fatol": 1e-6})
                for start in ((0.5, 1.0, 5e-6), (0.2, 2.0, 2e-5))), key=lambda found: float(found.fun))
    e, u, o = np.exp(best.x)

    def seconds(pair: Pair) -> float:
        own = parts(pair)
        return float(max(own[0] / e, own[1] / u) + own[2] * o)

    return seconds


Predict = Callable[[Sequence[Pair], Sequence[Pair]], list[float]]      # (pairs to fit, pairs to predict) -> seconds


def by_model(fitted: Sequence[Pair], wanted: Sequence[Pair]) -> list[float]:
    """The model of this page."""
    found = fit(fitted)
    return [found.seconds(pair) for pair in wanted]


def by_roofline(fitted: Sequence[Pair], wanted: Sequence[Pair]) -> list[float]:
    """The larger of F / (e P) and B / (u W) of each operation in place of their sum. Williams et al., CACM 2009."""
    found = fit(fitted, np.maximum)
    return list(map(float, Operations(wanted).seconds(list(asdict(found).values()), np.maximum)))


def by_whole_step(fitted: Sequence[Pair], wanted: Sequence[Pair]) -> list[float]:
    """One maximum for the whole step, and nothing apart for convolutions."""
    return list(map(fit_of_step(fitted), wanted))


def by_peak(fitted: Sequence[Pair], wanted: Sequence[Pair]) -> list[float]:
    """FLOPs over the peak, times the one factor that fits best."""
    factor = exp(median(log(pair.seconds * pair.peak_flops / pair.count.flops) for pair in fitted))
    return [factor * pair.count.flops / pair.peak_flops for pair in wanted]


def by_samples(fitted: Sequence[Pair], wanted: Sequence[Pair]) -> list[float]:
    """FedScale's rule (Lai et al., ICML 2022): three times a latency of the device for a sample, whatever the model."""
    latency = exp(median(log(pair.seconds / (3 * pair.batch)) for pair in fitted))
    return [3 * pair.batch * latency for pair in wanted]


def by_scores(reference: Mapping[tuple[str, int], Pair]) -> Predict:
    """Ratios of scores: the time of the same pair on another device that was measured, over the ratio of the peaks."""
    def predict(fitted: Sequence[Pair], wanted: Sequence[Pair]) -> list[float]:
        return [reference[pair.model, pair.batch].seconds * reference[pair.model, pair.batch].peak_flops
                / pair.peak_flops for pair in wanted]

    return predict


def held_out(pairs: Sequence[Pair], key: str, predict: Predict) -> list[tuple[Pair, float]]:
    """(pair, predicted seconds) of every pair of one device, predicted from those that differ from it in `key`."""
    found = []
    for value in dict.fromkeys(getattr(pair, key) for pair in pairs):
        wanted = [pair for pair in pairs if getattr(pair, key) == value]
        rest = [pair for pair in pairs if getattr(pair, key) != value]
        found += list(zip(wanted, predict(rest, wanted), strict=True))
    return found


def median_error(found: Sequence[tuple[Pair, float]]) -> float:
    """The median of |predicted / measured - 1|."""
    return median(abs(seconds / pair.seconds - 1) for pair, seconds in found)


def spearman(found: Sequence[tuple[Pair, float]]) -> float:
    """The correlation of the ranks of predicted and measured seconds."""
    from scipy.stats import spearmanr

    return float(spearmanr([pair.seconds for pair, _ in found], [seconds for _, seconds in found]).statistic)


@dataclass(frozen=True)
class HeldOut:
    """The result of a rule on the pairs of a device that it was not fitted to."""

    device: str
    rule: str
    left_out: str
    pairs: int
    median_error: float
    spearman: float


def evaluate(pairs: Sequence[Pair]) -> Iterator[HeldOut]:
    """For each device, rule and what is left out: a model, a batch, or the device itself, predicted from the other."""
    devices = {name: [pair for pair in pairs if pair.device == name] for name in dict.fromkeys(
        pair.device for pair in pairs)}
    for name, own in devices.items():
        other = next((each for key, each in devices.items() if key != name and len(each) == len(own)), None)
        rules: dict[str, Predict] = {"model": by_model, "maximum of each operation": by_roofline,
                                     "one maximum a step": by_whole_step, "FLOPs over peak": by_peak,
                                     "FedScale's rule": by_samples}
        if other is not None:
            rules["ratio of scores"] = by_scores({(pair.model, pair.batch): pair for pair in other})
        left_out = [key for key in ("model", "batch") if len({getattr(pair, key) for pair in own}) > 1]
        for (rule, predict), key in product(rules.items(), left_out):
            found = held_out(own, key, predict)
            yield HeldOut(name, rule, f"each {key}", len(found), median_error(found), spearman(found))
        for rule, predict in rules.items():
            if other is not None and rule != "ratio of scores":         # which needs no pair of this device at all
                found = list(zip(own, predict(other, own), strict=True))
                yield HeldOut(name, rule, "the device", len(found), median_error(found), spearman(found))


def devices(options: Options) -> Iterable[Figure]:
    """Held-out pairs of this machine, measured now; the kept rows are those of docs/studies/data/devices.csv."""
    for row in evaluate(list(measure())):
        if row.rule == "model":
            what = f"{row.device}, {row.left_out} left out"
            yield Figure(f"{what}: median error", row.median_error, "", at_most=0.15, minor=True)
            yield Figure(f"{what}: Spearman", row.spearman, "", at_least=0.95, minor=True)


# --- published rows -------------------------------------------------------------------------------------------------

def published(fitted: Sequence[Pair]) -> list[dict[str, str]]:
    """Printed seconds over ours, by row; and over the two rules that need nothing of a device but its peak, which are
    fitted to the pairs of one measured device."""
    known, found = read_devices(TABLE), []
    for row in _rows(PUBLISHED):
        device = known[row["device"]]
        pair = Pair(device.name, row["model"] + AT_224, int(row["batch"]), float(row["seconds"]), device.flops or 0.0,
                    device.bandwidth or 0.0)
        ours = step_time(device, pair.count).seconds
        blind = by_samples(fitted, [pair])[0] * fitted[0].peak_flops / pair.peak_flops
        found.append({"source": row["source"], "device": device.name, "model": row["model"], "batch": row["batch"],
                      "printed, s": f"{pair.seconds:.4g}", "ours, s": f"{ours:.4g}",
                      "printed / ours": f"{pair.seconds / ours:.2f}",
                      "printed / FLOPs over peak": f"{pair.seconds / by_peak(fitted, [pair])[0]:.2f}",
                      "printed / FedScale's rule": f"{pair.seconds / blind:.2f}"})
    return found


# --- the table of devices, and the page -----------------------------------------------------------------------------

_FITTED = tuple(field.name for field in fields(Fit))
MEASURED_HERE = "benchmarks/bench_devices.py, docs/studies/data/devices.csv"


def write_table(pairs: Sequence[Pair], on_gpu: Sequence[Pair]) -> None:
    """Put what was measured and fitted here into the table of devices, and what others take over from it: shares of the
    peaks from the CPU, launches from the CPU or, of a GPU, from that GPU."""
    launch_s = median(pair.seconds / pair.count.launches for pair in on_gpu)
    fits = {name: fit([pair for pair in pairs if pair.device == name]) for name in dict.fromkeys(
        pair.device for pair in pairs)}
    first = next(iter(fits))
    text = TABLE.read_text(encoding="utf-8").splitlines()
    comments = [line for line in text if line.startswith("#")]
    rows = [row for row in csv.DictReader(line for line in text if not line.startswith("#"))
            if row["device"] not in fits]
    for row in rows:
        if row["quantity"] in _FITTED and row["basis"] == "assumed":
            row.update(value=f"{getattr(fits[first], row['quantity']):.4g}", source=f"as fitted on {first}")
        of_gpu = row["kind"] == "gpu" or row["device"].startswith("jetson")
        if of_gpu and row["quantity"] in ("launch_s", "conv_launch_s"):
            own = row["device"] == "h200"
            row.update(value=f"{launch_s:.4g}", basis="measured" if own else "assumed",
                       source="docs/studies/data/gpu.csv, bare PyTorch" if own else "as measured on h200")
    for name, found in fits.items():
        pair = next(pair for pair in pairs if pair.device == name)
        rows += [{"device": name, "kind": "server", "quantity": quantity, "value": f"{value:.4g}", "basis": "measured",
                  "source": MEASURED_HERE} for quantity, value in (
                      ("flops", pair.peak_flops), ("bandwidth", pair.bandwidth), *asdict(found).items())]
    _write(TABLE, rows, comments)


def write_page(pairs: Sequence[Pair], on_gpu: Sequence[Pair]) -> None:
    """Write the two tables of docs/devices.md, and the lines that sum them up."""
    first = [pair for pair in pairs if pair.device == pairs[0].device]
    results, rows = list(evaluate([*pairs, *on_gpu])), published(first)
    PAGE.mkdir(exist_ok=True)
    _write(PAGE / "held-out.csv", [{
        "device": one.device, "rule": one.rule, "left out": one.left_out, "pairs": str(one.pairs),
        "median error": f"{one.median_error:.1%}", "Spearman": f"{one.spearman:.3f}"} for one in results])
    _write(PAGE / "published.csv", rows)
    clocks = {"wall": "by the wall clock", "cpu": "as CPU time of one thread, under load: a first look"}
    how = ", ".join(clocks[clock] for clock in dict.fromkeys(row["clock"] for row in _rows(MEASURED)))
    lines = [f"{len(pairs)} pairs were measured {how}.", ""]
    lines += [f"Held out, {one.device}, {one.left_out} left out: median error {one.median_error:.1%}, Spearman "
             f"{one.spearman:.3f} over {one.pairs} pairs." for one in results if one.rule == "model"]
    ratios = sorted(float(row["printed / ours"]) for row in rows)
    sources = len({row["source"] for row in rows})
    lines += ["", f"[Table of {len(results)} rows](devices/held-out.csv)", "",
              f"Printed over ours, {len(rows)} rows of {sources} sources, none of them fitted: median "
              f"{median(ratios):.2f}, from {ratios[0]:.2f} to {ratios[-1]:.2f}.", "",
              f"[Table of {len(rows)} rows](devices/published.csv)"]
    page = PAGE.with_suffix(".md")
    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition(_BEGIN)
    page.write_text(before + "\n".join((_BEGIN, *lines, _END)) + rest.partition(_END)[2], encoding="utf-8")


_BEGIN, _END = "<!-- bench_devices -->", "<!-- end -->"


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _write(path: Path, rows: Sequence[Mapping[str, str]], comments: Sequence[str] = ()) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        file.writelines(f"{line}\n" for line in comments)
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_devices",
                                     description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--measure", action="store_true", help=f"measure all pairs again, into {MEASURED.name}")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="cpu: one thread alone, under load")
    parser.add_argument("--count", action="store_true", help="count the models of all rows again")
    parser.add_argument("--write", action="store_true", help="rewrite the table of devices and the tables of the page")
    chosen = parser.parse_args()
    if chosen.measure:
        write_pairs(measure((1,) if chosen.clock == "cpu" else (1, 2), chosen.clock), chosen.clock)
    if chosen.count:
        count_models()
    pairs = read_pairs()
    if chosen.write:
        write_table(pairs, gpu_pairs())
        write_page(pairs, gpu_pairs())
    for one in evaluate([*pairs, *gpu_pairs()]):
        print(f"{one.device:16} {one.rule:25} {one.left_out:11} {one.pairs:4} pairs  median error "
              f"{one.median_error:7.1%}  Spearman {one.spearman:.3f}")
    for name in dict.fromkeys(pair.device for pair in pairs):
        print(name, fit([pair for pair in pairs if pair.device == name]))
    return 0


if __name__ == "__main__":
    sys.exit(main())

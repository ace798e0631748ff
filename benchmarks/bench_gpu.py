"""Everything that needs a GPU, in the order of its worth: a GPU is at hand for minutes, if at all.

    python -m benchmarks.bench_gpu --out DIR [--budget 8m] [--only PART]... [--device cuda]

Each part runs in a process of its own with a limit of time, and every figure is written to DIR/gpu.json when it is
there: a part that hangs, breaks the device or is cut off takes nothing of the others with it. Without a GPU the same
parts run small on the CPU, which says nothing about speed: nothing here is to be met for the first time on a GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import multiprocessing
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.common import ROOT, Figure, shown, versions
from emul import engine
from emul.base.streams import torch_stream
from emul.base.units import duration_ns
from emul.learning import evaluation, fused
from emul.learning.adapters import lora
from emul.learning.data import DataSet
from emul.learning.device import Device
from emul.learning.fused import FuseError, train_fused
from emul.learning.local import LocalTraining, train_alone
from emul.learning.models import create
from emul.learning.parameters import FlatModule
from emul.learning.smoke import smoke
from emul.learning.solver import Sgd
from emul.learning.training import Samples, Stream
from emul.scenario import Scenario, load

SHORT_S = 2.0                       # what a figure is measured for, at least; on the CPU once


@dataclass(frozen=True)
class Scale:
    """The amount of work: on a GPU all of it, on a CPU as little as passes every line."""

    device: str
    cohorts: tuple[int, ...] = (100, 1000)
    rounds: int = 5
    steps: int = 5
    batch: int = 32
    most: int = 4096                # clients as one, at most
    workers: tuple[int, ...] = (1, 2, 4)
    nets: tuple[str, ...] = ("logistic", "digits_cnn", "cinic_cnn", "transformer", "resnet18")
    resnet_clients: int = 1000
    resnet_workers: tuple[int, ...] = (1, 4, 8)
    long_rounds: int = 500
    seconds: float = SHORT_S

    @property
    def on_gpu(self) -> bool:
        return self.device != "cpu"


SMALL = Scale("cpu", cohorts=(3,), rounds=1, steps=2, batch=4, most=8, workers=(0,),
              nets=("logistic", "digits_cnn", "transformer"), resnet_clients=2, resnet_workers=(0,), long_rounds=2,
              seconds=0.0)


# --- what is trained ------------------------------------------------------------------------------------------------

class Transformer(nn.Module):
    """A small language model: two blocks of attention and a feed-forward net, 64 wide, over 32 tokens of 64 kinds.
    Written out, since torch's own layer of it takes another way where it is not trained."""

    def __init__(self, width: int = 64, heads: int = 4, kinds: int = 64, length: int = 32):
        super().__init__()
        self.tokens, self.places = nn.Embedding(kinds, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(2))
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens (B, length) -> logits (B, 10)."""
        hidden = self.tokens(x) + self.places.weight
        for block in self.blocks:
            hidden = block(hidden)
        found: Tensor = self.head(hidden.mean(1))
        return found


class Block(nn.Module):
    """Attention and a feed-forward net, each after a normalisation and added to what came in."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """(B, length, width) -> the same."""
        b, length, width = x.shape
        normed = self.before(x)
        q, k, v = (layer(normed).view(b, length, self.heads, -1).transpose(1, 2)
                   for layer in (self.query, self.key, self.value))
        weights = torch.softmax(q @ k.transpose(2, 3) * (width // self.heads) ** -0.5, -1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(b, length, width))
        found: Tensor = x + self.narrow(torch.relu(self.wide(self.between(x))))
        return found


_SHAPES = {"logistic": (1, 8, 8), "digits_cnn": (1, 8, 8), "cinic_cnn": (3, 32, 32), "resnet18": (3, 32, 32)}


def net(name: str) -> nn.Module:
    """One of `Scale.nets`, with weights of its own stream."""
    if name != "transformer":
        return create(name, _SHAPES[name], 10, 1)
    with torch_stream(1, "bench/gpu"):
        return lora(Transformer(), 4, trained=lambda part: part.startswith("head"))


def trainings(name: str, clients: int, scale: Scale, before: np.ndarray) -> list[LocalTraining]:
    """So many local trainings on made data, of which a client has as many samples as its steps take."""
    own = scale.steps * scale.batch
    rng, count = np.random.default_rng(1), min(clients, 64) * own           # on a device, data are kept
    if name == "transformer":
        x: np.ndarray = rng.integers(0, 64, (count, 32))
    else:
        x = rng.integers(0, 256, (count, *_SHAPES[name]), np.uint8)
    data = DataSet("made", x, rng.integers(0, 10, count), x[:own], rng.integers(0, 10, own), 10,
                   *((255.0, 0.13, 0.31) if name != "transformer" else ()))
    solver = Sgd(lr=0.05, epochs=1, batch=scale.batch)
    held = [Samples(data, np.arange(i * own, (i + 1) * own)) for i in range(count // own)]
    return [LocalTraining(before, held[i % len(held)], solver, Stream(1, f"c{i}", 1, 0)) for i in range(clients)]


def bare(module: nn.Module, locals_: Sequence[LocalTraining], where: torch.device) -> None:
    """The same trainings as a loop of plain PyTorch: a client after the other, with its data on the device."""
    module = module.to(where)
    first = {name: t.detach().clone() for name, t in module.state_dict().items()}
    trained = [p for p in module.parameters() if p.requires_grad]
    loss = nn.CrossEntropyLoss()
    for local in locals_:
        module.load_state_dict(first)
        optimiser = torch.optim.SGD(trained, lr=local.solver.lr)
        x, y = (part.to(where) for part in local.samples.take(np.arange(len(local.samples))))
        size = local.solver.batch or len(y)
        for start in range(0, len(y), size):
            optimiser.zero_grad()
            loss(module(x[start:start + size]), y[start:start + size]).backward()
            optimiser.step()
    for p in trained:
        p.detach().cpu()


def seconds(work: Callable[[], Any], scale: Scale) -> float:
    """The median of calls after the first, which makes kernels and plans."""
    work()
    taken: list[float] = []
    begun = time.perf_counter()
    while not taken or (time.perf_counter() - begun < scale.seconds and len(taken) < 20):
        _wait(scale)
        start = time.perf_counter()
        work()
        _wait(scale)
        taken.append(time.perf_counter() - start)
    return median(taken)


def _wait(scale: Scale) -> None:
    if scale.on_gpu:
        torch.cuda.synchronize()


# --- the parts, in the order of their worth -------------------------------------------------------------------------

def checked(scale: Scale) -> Iterator[Figure]:
    """`emul check --device`: does it compute what a CPU does, and the same bits again?"""
    found = smoke(scale.device)
    print(found)
    yield Figure("check: as a CPU, and the same again", float(found.ok), "", at_least=1, note=", ".join(
        f"{key} {value}".strip() for key, value in found.about.items()))
    yield Figure("check: ready after", found.first_s, "s")
    for one in found.compared:
        yield Figure(f"check: {one.what}, largest difference", one.difference, "", note=f"{one.device_s:.4f} s")


def digests(scale: Scale) -> Iterator[Figure]:
    """A run again, and with another number of workers; kernels that torch has no deterministic form of."""
    plan = _plan(ROOT / "scenarios/quickstart.yaml", scale, "schemes=[fedavg]", "fuse={clients: 8, lanes: 1}")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        first = _ran(plan, 0)
    random = sorted({str(one.message).split(" ")[0] for one in said if "deterministic" in str(one.message)})
    yield Figure("digests: kernels that are not deterministic", len(random), "", at_most=0, note=", ".join(random))
    yield Figure("digests: equal again", float(_ran(plan, 0)[0] == first[0]), "", at_least=1)
    for workers in (1, 2) if scale.on_gpu else ():
        yield Figure(f"digests: equal with workers: {workers}", float(_ran(plan, workers)[0] == first[0]), "",
                     at_least=1)


def cohorts(scale: Scale) -> Iterator[Figure]:
    """Clients of one model trained as one, against one after the other and against bare PyTorch."""
    device = Device(scale.device)
    for name in scale.nets:
        model = FlatModule(net(name), device)
        for clients in scale.cohorts:
            asked = trainings(name, clients, scale, model.read())
            few = asked[:min(clients, 20)]
            alone = seconds(partial(_one_by_one, model, few), scale) / len(few)
            plain = seconds(partial(bare, net(name), few, device.kind), scale) / len(few)
            group, as_one = _fused(model, asked, scale)
            what = f"cohort: {name}, {clients} clients"
            if as_one is None:
                yield Figure(f"{what}, as one", 0.0, "x", note=group)
                continue
            yield Figure(f"{what}, as one, times faster than one by one", alone / as_one, "x",
                         at_least=20 if name in ("logistic", "digits_cnn") and scale.on_gpu else None,
                         note=f"{1e3 * as_one:.3f} ms a client in groups of {group}, alone {1e3 * alone:.3f} ms")
            yield Figure(f"{what}, as one, times faster than bare PyTorch", plain / as_one, "x",
                         note=f"{1e3 * plain:.3f} ms a client")


def _fused(model: FlatModule, asked: Sequence[LocalTraining], scale: Scale) -> tuple[Any, float | None]:
    """(size of the groups, s a client): the whole cohort as one, or half, or half of that, as memory has it."""
    group = len(asked)
    while group:
        groups = [asked[i:i + group] for i in range(0, len(asked), group)][:2]
        try:
            return group, seconds(partial(_each, model, groups), scale) / sum(map(len, groups))
        except torch.OutOfMemoryError:
            group //= 2
            torch.cuda.empty_cache()
        except FuseError as error:
            return str(error), None
    return "no memory for one", None


def _one_by_one(model: FlatModule, asked: Sequence[LocalTraining]) -> None:
    for one in asked:
        train_alone(model, one)


def _each(model: FlatModule, groups: Sequence[Sequence[LocalTraining]]) -> None:
    for group in groups:
        train_fused(model, group)


def convolutions(scale: Scale) -> Iterator[Figure]:
    """A 3 x 3 convolution of a group, forward and backward: which layout of the maps is faster, by its channels."""
    clients = scale.cohorts[0]
    for inside, outside, size in ((1, 16, 8), (3, 32, 32), (64, 64, 16)):
        taken = {}
        for name, layout in (("channels last", torch.channels_last), ("planes", torch.contiguous_format)):
            x, weight = (torch.randn(shape, device=scale.device).contiguous(memory_format=layout).requires_grad_()
                         for shape in ((scale.batch, clients * inside, size, size),
                                       (clients * outside, inside, 3, 3)))

            def work(x: Tensor = x, weight: Tensor = weight) -> None:
                y = nn.functional.conv2d(x, weight, padding=1, groups=clients)
                torch.autograd.grad(y, (x, weight), torch.ones_like(y))

            taken[name] = 1e6 * seconds(work, scale) / clients
        yield Figure(f"convolution: {inside} to {outside} channels, {size} x {size}, planes, a client",
                     taken["planes"], "us", note=f"channels last {taken['channels last']:.1f} us, {clients} clients")


def memory(scale: Scale) -> Iterator[Figure]:
    """Memory that a client takes in a group, and the largest group that fits."""
    device = Device(scale.device)
    for name in scale.nets:
        model = FlatModule(net(name), device)
        asked = trainings(name, scale.most, scale, model.read())
        held: dict[int, int] = {}
        group = 1
        with contextlib.suppress(torch.OutOfMemoryError):
            while group <= scale.most:
                held[group] = device.peak(partial(train_fused, model, asked[:group]))
                group *= 2
        if not held:
            yield Figure(f"memory: {name}, clients as one", 0, "", at_least=1)
            continue
        largest = max(held)
        slope = (held[largest] - held[1]) / (largest - 1) if largest > 1 else float(held[1])
        yield Figure(f"memory: {name}, a client", slope / 2**20, "MiB", note=f"{model.dimension:,} parameters")
        yield Figure(f"memory: {name}, clients as one", largest, "",
                     note=f"tried up to {scale.most}, doubled; {held[largest] / 2**30:.2f} GiB")
        device.let_go()


def shared(scale: Scale) -> Iterator[Figure]:
    """Several workers and several lanes on one GPU."""
    for workers in scale.workers:
        for lanes in (1, 4) if workers in scale.workers[:2] else (1,):
            plan = _plan(ROOT / "scenarios/quickstart.yaml", scale, "schemes=[fedavg]", "topology.clients=40",
                         f"fuse={{clients: 40, lanes: {lanes}}}", "compute.mode=zero", "compute.file=null")
            begun = time.perf_counter()
            _, taken = _ran(plan, workers)
            yield Figure(f"shared: workers: {workers}, lanes: {lanes}, a round", taken, "s",
                         note=f"the run {time.perf_counter() - begun:.2f} s")


def narrow(scale: Scale) -> Iterator[Figure]:
    """bfloat16 where torch's autocast takes it, against float32."""
    device = Device(scale.device)
    for name in scale.nets:
        model = FlatModule(net(name), device)
        asked = trainings(name, scale.cohorts[0], scale, model.read())

        def work(model: FlatModule = model, asked: list[LocalTraining] = asked) -> np.ndarray:
            return np.stack(train_fused(model, asked))

        def cast(work: Callable[[], np.ndarray] = work) -> np.ndarray:
            with torch.autocast(device.kind.type, torch.bfloat16):
                return work()

        try:
            off, times = np.abs(cast() - work()).max(), seconds(work, scale) / seconds(cast, scale)
        except (torch.OutOfMemoryError, FuseError, RuntimeError) as error:
            yield Figure(f"bf16: {name}", 0.0, "x", note=str(error).partition("\n")[0])
            continue
        yield Figure(f"bf16: {name}, times faster than float32", times, "x", note=f"parameters differ by {off:.1e}")


def out_of_memory(scale: Scale) -> Iterator[Figure]:
    """No memory in the middle of a round: does the run go on, and to the same models?"""
    plan = _plan(ROOT / "scenarios/quickstart.yaml", scale, "schemes=[fedavg]", "fuse={clients: 8, lanes: 1}")
    expected, _ = _ran(plan, 0)
    kept, refused = fused.train_fused, [0]

    def short(model: FlatModule, asked: Sequence[LocalTraining]) -> list[np.ndarray]:
        """As if the device had room for four."""
        if len(asked) > 4:
            refused[0] += 1
            raise torch.OutOfMemoryError("bench_gpu: as if there were no memory")
        return kept(model, asked)

    fused.train_fused = short
    try:
        found, _ = _ran(plan, 0)
        yield Figure("out of memory: the run goes on", 1, "", at_least=1, note=f"refused {refused[0]} times")
        yield Figure("out of memory: the same models", float(found == expected), "",
                     note="groups of another size may round otherwise")
    except RuntimeError as error:
        yield Figure("out of memory: the run goes on", 0, "", at_least=1, note=str(error).partition("\n")[0])
    finally:
        fused.train_fused = kept


def evaluated(scale: Scale) -> Iterator[Figure]:
    """Evaluation by chunks of 250 test samples, as on a CPU, and larger ones."""
    device = Device(scale.device)
    samples = 20_000 if scale.on_gpu else 60
    kept = evaluation._CHUNK
    for name in scale.nets[:3]:
        model = FlatModule(net(name), device)
        local, = trainings(name, 1, dataclasses.replace(scale, steps=1, batch=samples), model.read())
        data, w = dataclasses.replace(local.samples.data, test_x=local.samples.data.train_x,
                                      test_y=local.samples.data.train_y), model.read()
        times = {}
        for chunk in (250, 2500):
            evaluation._CHUNK = chunk
            times[chunk] = seconds(partial(evaluation.scores, model, w, data), scale)
        evaluation._CHUNK = kept
        yield Figure(f"evaluation: {name}, {samples:,} samples, chunks of 2,500 for 250", times[250] / times[2500], "x",
                     note=f"{1e3 * times[250]:.1f} ms")


def whole(scale: Scale) -> Iterator[Figure]:
    """Scenarios from end to end, against the CPU of this machine."""
    for file, scheme in (("quickstart.yaml", "fedavg"), ("paper/fedrfq_digits.yaml", "fedrfq")):
        times = {}
        for device in ("cpu", scale.device):
            plan = _plan(ROOT / "scenarios" / file, dataclasses.replace(scale, device=device), f"schemes=[{scheme}]")
            begun = time.perf_counter()
            _ran(plan, scale.workers[0])
            times[device] = time.perf_counter() - begun
        yield Figure(f"whole: {file}, times faster than the CPU", times["cpu"] / times[scale.device], "x",
                     note=f"{times[scale.device]:.2f} s")


def _plan(file: Path, scale: Scale, *sets: str) -> Scenario:
    return load(file, sets=[*sets, f"stop={{rounds: {scale.rounds}}}", f"compute.device={scale.device}"])


def _ran(plan: Scenario, workers: int) -> tuple[str, float]:
    """(digest, s a round). Raises RuntimeError: the run failed."""
    with tempfile.TemporaryDirectory() as folder:
        result, = engine.run(plan, workers=workers, out=Path(folder))
        if result.error is not None or result.summary is None:
            raise RuntimeError(f"{plan.name}: {result.error}")
        return result.summary["digest"], result.summary["real_seconds"] / result.summary["rounds"]


RESNET = """
emul: 1
name: resnet18
seed: 1
topology: {{generator: star, clients: {clients}}}
links: [{{match: "*", latency: 5 ms, bandwidth: 1 Gbit/s}}]
task:
  data: {{set: arrays, directory: {images}}}
  partition: iid
  model: resnet18
  solver: {{sgd: {{lr: 0.05, epochs: {steps}, batch: {batch}}}}}
compute: {{mode: zero, device: {device}}}
fuse: {{clients: 50, lanes: 1}}
schemes: [{{name: fedavg, fraction: {fraction}}}]
stop: {{rounds: {rounds}}}
evaluation: {{every: {rounds}}}
"""


def resnet(scale: Scale) -> Iterator[Figure]:
    """Whole rounds of ResNet-18, 5 steps of 32 images a client, by the number of workers on the GPU; the same app in
    Flower: `benchmarks/peers/flwr_gpu.py`."""
    for workers in scale.resnet_workers:
        taken = _resnet(scale, 1.0, 3 if scale.on_gpu else 1, workers)
        yield Figure(f"resnet18: {scale.resnet_clients} clients a round, workers: {workers}, a client",
                     1e3 * taken / scale.resnet_clients, "ms", note=f"a round {taken:.1f} s")


def long(scale: Scale) -> Iterator[Figure]:
    """Many rounds in one process: memory that is not given back would end them."""
    clients = min(10, scale.resnet_clients)
    taken = _resnet(scale, clients / scale.resnet_clients, scale.long_rounds, 1)
    yield Figure(f"resnet18: {scale.long_rounds} rounds of {clients} clients without an error", 1, "", at_least=1,
                 note=f"a round {taken:.3f} s")


def _resnet(scale: Scale, fraction: float, rounds: int, workers: int) -> float:
    """s a round. Raises RuntimeError: the run failed."""
    clients, rng = scale.resnet_clients, np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        images = Path(folder) / "images.npz"
        np.savez(images, train_x=rng.integers(0, 256, (clients * scale.batch, 3, 32, 32), np.uint8),
                 train_y=rng.integers(0, 10, clients * scale.batch),
                 test_x=rng.integers(0, 256, (100, 3, 32, 32), np.uint8), test_y=rng.integers(0, 10, 100))
        file = Path(folder) / "resnet18.yaml"
        file.write_text(RESNET.format(clients=clients, images=images, steps=scale.steps, batch=scale.batch,
                                      device=scale.device, fraction=fraction, rounds=rounds))
        result, = engine.run(load(file), workers=workers, out=Path(folder))
        if result.error is not None or result.summary is None:
            raise RuntimeError(str(result.error))
        for warning in result.warnings:
            print(warning)
    return float(result.summary["real_seconds"]) / rounds


PARTS: Mapping[str, tuple[Callable[[Scale], Iterator[Figure]], float]] = {     # and the most of the budget it may take
    "check": (checked, 0.2), "digests": (digests, 0.2), "cohorts": (cohorts, 0.4), "memory": (memory, 0.2),
    "out_of_memory": (out_of_memory, 0.1), "whole": (whole, 0.2), "evaluation": (evaluated, 0.1),
    "shared": (shared, 0.2), "bf16": (narrow, 0.2), "resnet": (resnet, 0.4), "long": (long, 0.3),
    "convolutions": (convolutions, 0.1)}


# --- each in a process, with a limit --------------------------------------------------------------------------------

def run(parts: Sequence[str], scale: Scale, out: Path, seconds_: float) -> list[dict[str, Any]]:
    """Run the parts in turn and write what is found as it is found. The document that was written."""
    out.mkdir(parents=True, exist_ok=True)
    end, document = time.monotonic() + seconds_, []
    about = {"device": scale.device, **versions()}
    for name in parts:
        figures: list[dict[str, Any]] = []
        part = {"part": name, "seconds": 0.0, "error": "", "figures": figures}
        document.append(part)
        part_of_budget = min(PARTS[name][1] * seconds_, end - time.monotonic())
        begun = time.monotonic()
        if part_of_budget <= 0:
            part["error"] = "no time was left"
        for figure in _measured(name, scale, part_of_budget, part) if part_of_budget > 0 else ():
            figures.append(dataclasses.asdict(figure))
            print(f"{figure.name}: {shown(figure.value)} {figure.unit} {figure.target} {figure.verdict}  {figure.note}",
                  flush=True)
            _write(out, about, document)
        part["seconds"] = round(time.monotonic() - begun, 3)
        if part["error"]:
            print(f"{name}: {part['error']}", flush=True)
        _write(out, about, document)
    return document


def _write(out: Path, about: Mapping[str, str], document: Sequence[Mapping[str, Any]]) -> None:
    new = out / "gpu.json.new"
    new.write_text(json.dumps({"about": about, "parts": document}, indent=2) + "\n")
    new.replace(out / "gpu.json")


def _measured(name: str, scale: Scale, limit_s: float, part: dict[str, Any]) -> Iterator[Figure]:
    """The figures of a part, in a process of its own, as they come."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    context = multiprocessing.get_context("fork")           # torch is imported once, and a GPU not yet touched
    child = context.Process(target=_tell, args=(theirs, name, scale))
    child.start()
    theirs.close()
    end = time.monotonic() + limit_s
    try:
        while ours.poll(max(0.0, end - time.monotonic())):
            try:
                came = json.loads(ours.recv_bytes())
            except EOFError:
                break
            if "error" in came:
                part["error"] = came["error"]
            else:
                yield Figure(**came)
        else:
            part["error"] = f"cut off after {limit_s:.0f} s"
    finally:
        if part["error"].startswith("cut off"):
            child.kill()
        child.join()
        if child.exitcode and not part["error"]:
            part["error"] = f"ended with {child.exitcode}"


def _tell(to: Connection, name: str, scale: Scale) -> None:
    try:
        for figure in PARTS[name][0](scale):
            to.send_bytes(json.dumps(dataclasses.asdict(figure)).encode())
    except BaseException as error:
        traceback.print_exc()
        to.send_bytes(json.dumps({"error": f"{type(error).__name__}: {error}"}).encode())
    to.close()


def budget_s(text: str) -> float:
    """Seconds.

    >>> budget_s("8m"), budget_s("90 s")
    (480.0, 90.0)
    """
    return duration_ns(text.removesuffix("m") + " min" if text.endswith("m") else text) / 1e9


def main() -> int:
    """1: a part failed or missed what it should reach on any device."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="results are written into it")
    parser.add_argument("--budget", default="8m", help="time for all parts, such as 8m or 90 s [default: %(default)s]")
    parser.add_argument("--only", action="append", choices=list(PARTS), help="a part; may be repeated")
    parser.add_argument("--device", help="[default: cuda where torch finds a GPU, else cpu, small]")
    given = parser.parse_args()
    device = given.device or ("cuda" if torch.cuda.device_count() else "cpu")
    torch.set_num_threads(1)
    scale = Scale(device) if device != "cpu" else SMALL
    document = run(given.only or list(PARTS), scale, given.out, budget_s(given.budget))
    missed = [f["name"] for part in document for f in part["figures"] if Figure(**f).verdict == "missed"]
    failed = [part["part"] for part in document if part["error"]]
    print(f"missed: {', '.join(missed) or 'nothing'}; failed: {', '.join(failed) or 'nothing'}; "
          f"written: {given.out / 'gpu.json'}")
    return int(bool(missed or failed))


if __name__ == "__main__":
    sys.exit(main())

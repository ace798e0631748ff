"""The files that `emul new-scheme NAME` and `new-task NAME` write: a module that runs, a scenario for it, and its test;
the package of `emul new-plugin NAME`; the files that `emul init DIR` puts there; and the scenario that `emul network
from-matrix` makes of measurements."""

from __future__ import annotations

import importlib.util
import json
import keyword
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from emul.base.errors import InputError, NetworkError
from emul.base.files import shipped
from emul.base.names import listed
from emul.network.graph.topology import unknown
from emul.registry import schemes

_SCHEME = '''\
"""NAME: federated averaging, to be changed into a scheme of your own. McMahan et al. 2017, Algorithm 1.

Run it with `emul run NAME.yaml --plugin NAME`.
"""

from dataclasses import dataclass

from emul import Message, Node, Scheme, Vector, World, weighted_mean


@dataclass(frozen=True)
class Model(Message):               # server to client; what crosses the network is what stands here, byte for byte
    parameters: Vector              # (d,) float32


@dataclass(frozen=True)
class Update(Message):              # client to server
    delta: Vector                   # (d,) float32, parameters after minus before
    samples: int


@dataclass(frozen=True)
class Params:                       # a field is a key of the scenario: deadline_s is written `deadline: 2 s`
    deadline_s: float | None = None     # None: wait until the fate of every update is known
    fraction: float = 1.0               # of the clients, drawn each round


@dataclass
class State:                        # values that outlive a round, and a crash
    model: Vector


async def server(node: Node, p: Params) -> None:
    s = node.state(State(node.task.initial_parameters()))
    async for round_ in node.rounds():
        with round_:                # a round that fails by its protocol ends here, and the next begins
            cohort = node.sample(node.clients, p.fraction)
            node.broadcast(cohort, Model(s.model))
            updates = await node.gather(Update, cohort, timeout_s=p.deadline_s)        # {client: Update}
            s.model = await node.compute("aggregate", weighted_mean, s.model, updates)
            node.report(parameters=s.model, received=len(updates))


async def client(node: Node, p: Params) -> None:
    async for round_ in node.rounds(of=node.server):
        with round_:
            model = await node.recv(Model, node.server)
            delta, samples = await node.compute("train", node.task.local_update, model.parameters)
            node.send(node.server, Update(delta, samples))


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound. Shown before a run begins."""
    if not 0 < params.fraction <= 1:
        return [f"fraction = {params.fraction}: expected a number in (0, 1]"]
    return []


SCHEME = Scheme(params=Params, roles={"server": server, "client": client}, messages=(Model, Update), check=check,
                timeouts=("deadline_s",), oblivious=True, stateless=("client",))
'''

_SCENARIO = '''\
# Five clients on a star, three rounds. Run it with `emul run NAME.yaml --plugin NAME`.
emul: 1
name: NAME
seed: 1
topology: {generator: star, clients: 5}
links:
  - {match: "*", latency: 20 ms, bandwidth: 20 Mbit/s}
  - {match: "client*->server", outage: {model: bernoulli, p: 0.1, per: round}}
task:
  data: {set: digits}
  partition: {dirichlet: 0.5}
  model: digits_cnn
  solver: {sgd: {lr: 0.1, steps: 5, batch: 32}}
compute: {mode: zero}               # computing takes no virtual time; `emul profile` measures what it takes here
schemes:
  - {name: NAME, deadline: 100 ms, fraction: 1.0}
stop: {rounds: 3}
'''

_TEST = '''\
"""NAME: what holds of every scheme, and what this one is for."""

import numpy as np
from emul.testing import check_scheme, drive

from NAME import Model, Params, Update, server


def test_NAME_conforms():
    """Same log for any number of workers; late, lost and crashed; every byte counted once."""
    check_scheme("NAME", plugins=["NAME"])


class Task:
    """Stands for the learning task: a model of two parameters."""

    def initial_parameters(self):
        return np.zeros(2, np.float32)


def test_the_server_averages_what_has_come_by_the_deadline():
    role = drive(server, Params(deadline_s=2.0), clients=[1, 2, 3], task=Task())
    assert list(role.sent(Model)) == [1, 2, 3]
    role.deliver({1: Update(np.float32([1, 0]), 10), 2: Update(np.float32([0, 1]), 30)})
    role.advance_to(role.deadline)
    assert role.reports == [{"received": 2}]
    assert role.node.state(None).model.tolist() == [0.25, 0.75]     # (10 * 1 + 30 * 0) / 40, ...
'''

_TASK = """\
\"\"\"NAME: points of a plane in three rings, each by one of ten people; to be changed into a task of your own.

Run it with `emul run NAME.yaml --plugin NAME`. docs/own-task.md says what each part may be.
\"\"\"

from dataclasses import dataclass
from math import prod

import numpy as np
from torch import nn
from torch.nn.functional import cross_entropy

from emul.learning.objectives import Objective


def rings(spec):
    \"\"\"spec: `task.data` of the scenario, with keys of your own. The same arrays each time that it is called.\"\"\"
    n, noise = spec.get("samples", 1200), spec.get("noise", 0.15)
    rng = np.random.default_rng(1)
    label, person, angle = rng.integers(0, 3, n), rng.integers(0, 10, n), rng.uniform(0, 2 * np.pi, n)
    radius = 1 + label + rng.normal(0, noise, n)
    x = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)          # (n, 2) floats
    test = np.arange(n) < n // 4
    return {"train_x": x[~test], "train_y": label[~test], "train_person": person[~test],
            "test_x": x[test], "test_y": label[test], "test_person": person[test]}


def at_random(targets, columns, clients, value, rng):
    \"\"\"An array of indices for each client: here, as many samples as the others, at random.\"\"\"
    return np.array_split(rng.permutation(len(targets)), clients)


def net(input_shape, outputs):
    \"\"\"A torch.nn.Module: (B, *input_shape) -> (B, outputs). What has requires_grad=False stays as it is.\"\"\"
    return nn.Sequential(nn.Linear(prod(input_shape), 16), nn.ReLU(), nn.Linear(16, outputs))


@dataclass(frozen=True, eq=False)
class Smooth(Objective):
    \"\"\"Cross entropy with smoothed labels.\"\"\"

    smoothing: float = 0.1

    def __call__(self, outputs, batch, weights):        # (B,), a loss for each sample
        return cross_entropy(outputs.logits, batch.y, reduction="none", label_smoothing=self.smoothing)


DATA = {"NAME_data": rings}
PARTITIONS = {"NAME_parts": at_random}
MODELS = {"NAME_net": net}
OBJECTIVES = {"NAME_loss": Smooth}
"""

_TASK_SCENARIO = """\
# Five clients on a star, three rounds, with a task of your own. `emul run NAME.yaml --plugin NAME`
emul: 1
name: NAME
seed: 1
topology: {generator: star, clients: 5}
links:
  - {match: "*", latency: 20 ms, bandwidth: 20 Mbit/s}
task:
  data: {set: NAME_data, samples: 1200}
  partition: {by: person}             # or NAME_parts
  model: NAME_net
  objective: {NAME_loss: {smoothing: 0.05}}
  solver: {sgd: {lr: 0.2, steps: 20, batch: 32}}
compute: {mode: zero}
schemes:
  - {name: fedavg, deadline: 10 s}
stop: {rounds: 3}
"""

_TASK_TEST = """\
\"\"\"NAME: the task holds what emul expects of one, and can be learnt.\"\"\"

from emul.learning import Task
from emul.testing import check_task

SPEC = {"data": {"set": "NAME_data"}, "partition": {"by": "person"}, "model": "NAME_net", "objective": "NAME_loss",
        "solver": {"sgd": {"lr": 0.2, "steps": 60, "batch": 32}}}


def test_NAME_is_a_task():
    \"\"\"All parts fit each other, are the same each time, and train together as they do alone.\"\"\"
    check_task(SPEC, clients=5, plugins=["NAME"])
    check_task(SPEC | {"partition": "NAME_parts"}, clients=5, plugins=["NAME"])


def test_a_client_learns():
    task = Task(SPEC, clients=5, seed=1, plugins=["NAME"])
    node, start = task.for_node("client1", 0, lambda: 1), task.initial_parameters()
    update, samples = node.local_update(start)
    assert samples == node.samples()
    assert node.loss(start + update, on="test") < node.loss(start, on="test")
"""


_PLUGIN_PROJECT = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "NAME"
version = "0.1.0"
description = "A scheme for emul"
readme = "README.md"
requires-python = ">=3.11"
dependencies = ["emul"]

[project.optional-dependencies]
test = ["pytest", "mypy"]

[project.entry-points."emul.schemes"]       # name in scenarios = module
NAME = "NAME.scheme"

# [project.entry-points."emul.models"]      # likewise emul.data, emul.partitions, emul.objectives
# my_net = "NAME.tasks:my_net"

[tool.setuptools.packages.find]
where = ["src"]

[tool.setuptools.package-data]
NAME = ["py.typed"]

[tool.mypy]
strict = true
files = ["src"]
"""

_PLUGIN_README = """\
# NAME

A scheme for emul, in a package of its own: once it is installed, every command knows it without `--plugin`.

    pip install --editable '.[test]'
    emul schemes                # lists NAME
    emul run NAME.yaml
    mypy                        # emul says what its functions take
    pytest
"""


class TemplateError(InputError):
    """A new scheme, task or plug-in cannot be written; the text says why."""


_MATRIX_SCENARIO = """\
# Made by `emul network from-matrix`. SAID.
# Messages take the one link between two sites, as they did when it was measured: nobody forwards.
emul: 1
name: NAME
seed: 7

topology:
  matrix: MATRIX
RATES  roles: ROLES
MORE
task:
  data: {set: digits}
  model: logistic
  solver: {sgd: {lr: 0.1, steps: 10, batch: 32}}

compute: {mode: zero}                     # only the network takes time; see docs/devices.md

schemes: [SCHEME]

stop: {rounds: 20}
"""


_MATRIX_MORE = """
# links:                                  # nodes have the names of their sites; below: every uplink
#   - {match: UPLINKS, bandwidth: {trace: FILE}, outage: {model: bernoulli, p: 0.1}}
# faults:                                 # in every round one site in ten trains for nothing
#   - {node: "*", stage: Update, drop: {p: 0.1, per: round}}
"""


def scenario_of_matrix(matrix: Path, rates: Path | None, out: Path, server: str | None, peers: bool, one_way: bool,
                       unit: str | None) -> tuple[str, str]:
    """(the text of a scenario at `out` whose network is that matrix, what is in it). Raises InputError."""
    from emul.network import Measured, TopologySpec, build

    try:
        network = build(TopologySpec(matrix=Measured(matrix, unit, "one_way" if one_way else None),
                                     rates=None if rates is None else Measured(rates)), [], 0)
    except NetworkError as error:
        raise InputError(str(error)) from None
    sites = range(len(network.names))
    round_trip = {(u, v): network.latency_ns(u, v) + network.latency_ns(v, u)
                  for u in sites for v in network.topology.neighbours(u)}
    if server is not None and server not in network.names:
        raise InputError(f"{server}: {unknown(server, network.names, f'site of {matrix}')}")
    if not round_trip:
        raise InputError(f"{matrix}: no latency between two sites")
    if server is None:                  # linked with most of the others, then the nearest to them
        server = network.names[min(sites, key=lambda u: (-sum((u, v) in round_trip for v in sites),
                                                         sum(round_trip.get((u, v), 0) for v in sites), u))]
    said = (f"{len(sites)} sites, round trips from {min(round_trip.values()) / 1e6:.4g} to "
            f"{max(round_trip.values()) / 1e6:.4g} ms")
    by_name = json.dumps(server, ensure_ascii=False)
    clients = [name for v, name in enumerate(network.names)
               if (network.names.index(server), v) in round_trip]
    more = {"unit": unit, "values": "one_way" if one_way else None}
    keys = "".join(f", {key}: {value}" for key, value in more.items() if value is not None)
    place = json.dumps(_from(out, matrix), ensure_ascii=False)
    texts = {
        "SAID": said, "NAME": re.sub(r"[^\w.-]+", "-", matrix.stem, flags=re.ASCII) or "matrix",
        "MATRIX": f"{{file: {place}{keys}}}" if keys else place,
        "RATES": "  capacity: infinite                      # of links; give rates: FILE, or such as 100 Mbit/s\n"
        if rates is None else f"  rates: {json.dumps(_from(out, rates), ensure_ascii=False)}\n",
        "ROLES": "{peer: {rule: all}}" if peers else f"{{server: [{by_name}], client: "
        + ("{rule: all}}" if len(clients) == len(sites) - 1 else json.dumps(clients, ensure_ascii=False) + "}"),
        "MORE": "" if peers else _MATRIX_MORE, "UPLINKS": json.dumps(f"*->{server}", ensure_ascii=False),
        "SCHEME": "gossip" if peers else "fedavg"}
    text = _MATRIX_SCENARIO
    for key, value in texts.items():
        text = re.sub(rf"\b{key}\b", lambda _, value=value: value, text, count=1)     # type: ignore[misc]
    return text, said + ("" if peers else f"; {server} serves")


def _from(out: Path, file: Path) -> str:
    """The file as a scenario at `out` names it."""
    return os.path.relpath(file.absolute(), out.absolute().parent)


def write_scheme(name: str, directory: Path) -> list[Path]:
    """Write `NAME.py`, `NAME.yaml` and `test_NAME.py` into `directory`, which is made; the paths, in this order.

    Never overwrites. Raises TemplateError for a name that Python or emul cannot take, and for a file that exists.
    """
    return _write("scheme", name, directory, (_SCHEME, _SCENARIO, _TEST))


def write_task(name: str, directory: Path) -> list[Path]:
    """As `write_scheme`, a learning task: data set, partition, model and objective."""
    return _write("task", name, directory, (_TASK, _TASK_SCENARIO, _TASK_TEST))


def write_plugin(name: str, directory: Path) -> list[Path]:
    """Write a package `NAME` that brings a scheme, to be installed: a project in the folder `directory`/`NAME`.

    Its entry point makes the scheme known to every command. Raises TemplateError as `write_scheme`, and for a folder
    that exists.
    """
    _check_name("plugin", name)
    home = directory / name
    texts = {"pyproject.toml": _PLUGIN_PROJECT, "README.md": _PLUGIN_README, "NAME.yaml": _installed(_SCENARIO),
             "src/NAME/__init__.py": '"""Schemes for emul."""\n', "src/NAME/py.typed": "",
             "src/NAME/scheme.py": _installed(_SCHEME),
             "tests/test_NAME.py": _installed(_TEST).replace("from NAME import", "from NAME.scheme import")}
    if home.exists() or home.is_symlink():
        raise TemplateError(f"{home}: exists already; nothing was written. Expected a name or a directory (--dir) "
                            "without such a folder")
    _check_free("plugin", name)
    return _written({home / file.replace("NAME", name): text for file, text in texts.items()}, name)


def _installed(text: str) -> str:
    """A template for a scheme that needs no `--plugin`."""
    return text.replace(" --plugin NAME", "").replace(', plugins=["NAME"]', "")


def write_starter(directory: Path) -> list[Path]:
    """Put scenarios with their profiles, topologies, the schema of scenario files and pinned versions there; their
    paths.

    Never overwrites. Raises TemplateError for files that exist, and where nothing can be written.
    """
    try:
        wanted = {directory / name / file.relative_to(shipped(name)): file
                  for name in ("scenarios", "topologies")
                  for file in sorted(shipped(name).rglob("*")) if file.is_file() and "__pycache__" not in file.parts}
        wanted |= {directory / name: shipped(name) for name in ("emul.schema.json", "constraints.txt")}
    except FileNotFoundError as e:
        raise TemplateError(str(e)) from None
    taken = [str(path) for path in wanted if path.exists()]
    if taken:
        raise TemplateError(f"{listed(taken, 3)}: exists already; nothing was written. Expected another "
                            "folder")
    try:
        for path, file in wanted.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, path)
    except OSError as e:
        raise TemplateError(f"{e.filename}: cannot be written: {e.strerror}") from None
    return list(wanted)


def _write(what: str, name: str, directory: Path, texts: tuple[str, str, str]) -> list[Path]:
    _check_name(what, name)
    paths = [directory / file for file in (f"{name}.py", f"{name}.yaml", f"test_{name}.py")]
    taken = [str(path) for path in paths if path.exists() or path.is_symlink()]
    if taken:
        raise TemplateError(f"{', '.join(taken)}: exists already; nothing was written. Expected a name or a "
                            "directory (--dir) without such files")
    _check_free(what, name)
    return _written(dict(zip(paths, texts, strict=True)), name)


def _written(texts: Mapping[Path, str], name: str) -> list[Path]:
    """Write each text, with the name in place of NAME; the paths."""
    try:
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(path, "x", encoding="utf-8") as file:     # "x": not even if it came into being just now
                file.write(text.replace("NAME", name))
    except OSError as e:
        raise TemplateError(f"{e.filename}: cannot be written: {e.strerror}") from None
    return list(texts)


def _check_name(what: str, name: str) -> None:
    if not (name.isascii() and name.isidentifier()) or keyword.iskeyword(name):
        raise TemplateError(f'{what} name "{name}": expected a Python identifier that is no keyword, such as my_{what}')


def _check_free(what: str, name: str) -> None:
    if name in schemes.known():
        raise TemplateError(f'{what} name "{name}": there is a scheme of this name already; expected another')
    if name.startswith("_") or importlib.util.find_spec(name) is not None:      # else one would hide the other
        raise TemplateError(f'{what} name "{name}": expected a name that no Python module has and that does not begin '
                            f'with "_", such as my_{what}')

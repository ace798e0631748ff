"""The tables of reference, from the code: `python docs/keys.py` writes them.

scenario.md: keys, from comments above the fields of models. writing-a-scheme.md: fields and protocols, from docstrings.
run-directory.md, studies.md, suite.md: columns, rows, keys and options, from the lists and commands that have them.
sheet-node.md, attacks.md: calls and attacks, from signatures and docstrings.
They stand apart as CSV in folders of the pages' names, as long tables do; the built site shows them in their places.
"""

from __future__ import annotations

import ast
import csv
import importlib
import inspect
import pkgutil
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from typer.main import get_command

import emul.protocols
from emul.base import rows
from emul.cli import main  # noqa: F401  (`main` brings all commands)
from emul.cli.options import app
from emul.learning import solver
from emul.learning.node_task import NodeTask
from emul.primitives import compress, robust, selection
from emul.record import summary, tables
from emul.registry import attacks
from emul.roles import Node, Scheme
from emul.scenario.params import scenario_keys
from emul.scenario.schema import descriptions, parameters, schema, sections
from emul.study import comparison, done, suite_tables
from emul.study import tables as study_tables

HERE = Path(__file__).resolve().parent
FILLED_IN = ("name", "module", "doc", "of")         # of a Scheme, by the registry
INTERNAL = {"untouched", "charged_alike"}           # of a node's task: workers and costs ask them, no role does

# heading of scenario.md -> the models whose keys its table has
SECTIONS = {
    "Top level": ["Document"], "topology": ["TopologySection"], "roles of a topology": ["RoleSection"],
    "matrices": ["MeasuredFile"], "latency by distance": ["LatencyByDistance"], "capacity": ["CapacityRule"],
    "access": ["AccessLink"],
    "links": ["LinkSection"], "traffic": ["TrafficRule"], "rates of traffic": ["RateRule"],
    "sine and ramp": ["SineRule", "RampRule"], "on_off and walk": ["OnOffRule", "WalkRule"],
    "laws of rates": ["RateLawRule", "NormalRule", "PoissonRule"], "laws of times": ["StayRule", "ParetoLaw"],
    "messages": ["MessagesRule"], "laws of sizes": ["SizeRule", "ParetoSizeRule", "LogNormalSizeRule"],
    "media": ["MediumRule"],
    "radio": ["RadioRule"], "places of radio": ["PlacesRule"], "move": ["MoveRule", "WaypointRule"],
    "loss by distance": ["LossRule", "LogDistanceRule"], "rates by power": ["RatesRule"], "attach": ["AttachRule"],
    "contacts": ["ContactsRule"], "constellation": ["ConstellationSection"],
    "outage": ["OutageSection"], "latency": ["LatencySection"],
    "overhead": ["Overhead"], "transport": ["Transport"], "connections of TCP": ["TcpKeys"],
    "switching": ["Packetized"], "groups": ["ClientGroupRule"], "nodes": ["NodeRule"],
    "devices": ["DevicesRule"], "who has which": ["DeviceNodes"],
    "faults": ["FaultRule"], "drop": ["DropRule"], "set": ["LinkValues"], "churn": ["ChurnRule", "OwnChurn"],
    "availability": ["AvailabilityRule", "OwnAvailability"],
    "laws of durations": ["LawRule", "WeibullLaw", "LogNormalLaw"], "diurnal": ["DiurnalRule"],
    "group": ["GroupRule"], "bandwidth": ["BandwidthTrace"], "attacks": ["AttackRule", "AttackedShare"],
    "compute": ["ComputeSection"], "fuse": ["FuseSection"], "stop": ["StopSection"],
    "evaluation": ["EvaluationSection"], "workers": ["WorkersSection"], "network": ["NetworkRule"],
    "sweep": ["SweepRule"], "limits": ["LimitsRule"], "record": ["RecordRule"]}


def of_headings() -> dict[str, list[tuple[str, str, str]]]:
    """Name of a file -> its rows: key, default, what it is. Needed keys come first."""
    models = sections()
    found = {}
    for heading, names in SECTIONS.items():
        keys: dict[str, tuple[str, str]] = {}
        for name in names:
            said = descriptions(models[name])
            for field, info in models[name].model_fields.items():
                key = info.alias or field
                default, text = re.fullmatch(r"(?:\[(.*?)\] )?(.*)", said[key]).groups()      # type: ignore[union-attr]
                keys.setdefault(key, (_plain(info.default) if default is None else default, text))
        ordered = sorted(keys.items(), key=lambda row: row[1][0] != "needed")
        found[file(heading)] = [(f"`{key}`", *rest) for key, rest in ordered]
    return found


def _attacks() -> dict[str, list[tuple[str, ...]]]:
    """Of each kind of attack, what their docstrings say, examples left out."""
    found = {}
    for kind in attacks.KINDS:
        rows: list[tuple[str, ...]] = [(kind, "parameters", "what it is", "needs")]
        for name, attack in attacks.known(kind).items():
            said = " ".join((inspect.getdoc(attack) or "").partition(">>>")[0].split())
            rows.append((f"`{name}`", _parameters(attacks.parameters(attack)), said, attacks.needs(attack)))
        found[f"attacks-{kind}.csv"] = rows if kind == "update" else [row[:-1] for row in rows]
    return found


def _rules() -> list[tuple[str, ...]]:
    """The rules that aggregate updates, by what the dataclasses of their parameters say."""
    return [("rule", "parameters", "the aggregate"), *(
        (f"`{name}`", _parameters(rule.params), " ".join((inspect.getdoc(rule.params) or "").split()))
        for name, rule in robust.RULES.items())]


def _codecs() -> list[tuple[str, ...]]:
    """The codecs of updates."""
    found = [("codec", "parameters", "decoded", "bytes of d numbers")]
    for name, kind in compress.CODECS.items():
        decoded, _, size = " ".join((inspect.getdoc(kind) or "").split()).partition(" Bytes: ")
        found.append((f"`{name}`", _parameters(kind), decoded, size))
    return found


def _choices() -> list[tuple[str, ...]]:
    """The rules that choose clients, without the parameters that all have."""
    common = parameters(selection.Common)
    return [("rule", "chosen clients", "parameters"), *(
        (f"`{name}`", " ".join((inspect.getdoc(kind) or "").split()), _parameters(kind, common))
        for name, kind in selection.KINDS.items())]


def _parameters(cls: type, without: Collection[str] = ()) -> str:
    """The parameters of an attack or a rule with their defaults and comments."""
    found, fields = [], scenario_keys(cls)
    for key, one in parameters(cls).items():
        if key in without or key.startswith("_"):
            continue
        default = (_plain(one["default"]) or "none") if "default" in one else "needed"
        if fields[key].name == f"{key}_s" and default != "none":
            default += " s"
        notes = [" or ".join(map(str, one.get("enum", ()))), one.get("description", "")]
        found.append(f"`{key}` {default}" + (f" ({'; '.join(filter(None, notes))})" if any(notes) else ""))
    return "; ".join(found)


def _solver() -> list[tuple[str, ...]]:
    """The options of all solvers, each once."""
    rows = {}
    for kind in solver.SOLVERS.values():
        for key, one in parameters(kind).items():
            default = _plain(one["default"]) if "default" in one else "needed"
            rows.setdefault(key, (f"`{key}`", default, one.get("description", "")))
    return [("key", "default", "what it is"), *rows.values()]


def _task(part: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The keys of a section of `task`."""
    return [("key", "what it is"), *((f"`{key}`", one["description"]) for key, one in part["properties"].items())]


def file(heading: str) -> str:
    return f"{heading.lower().replace(' ', '-')}.csv"


def _plain(default: object) -> str:
    """A default as a scenario has it."""
    if default is None:
        return ""
    if isinstance(default, float):
        return f"{default:g}"
    return str(default).lower() if isinstance(default, bool) else str(default)


def _fields() -> list[tuple[str, str]]:
    """The fields of `Scheme` with the texts below them."""
    body = ast.parse(inspect.getsource(Scheme)).body[0].body          # type: ignore[attr-defined]
    found = [(one.target.id, " ".join(ast.literal_eval(text.value).split())) for one, text in pairwise(body)
             if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and isinstance(text, ast.Expr)]
    return [(f"`{name}`", said) for name, said in found if name not in FILLED_IN]


def _protocols() -> Iterator[tuple[str, str]]:
    """The first paragraph of every module of `emul.protocols`."""
    for module in pkgutil.iter_modules(emul.protocols.__path__):
        said = inspect.getdoc(importlib.import_module(f"emul.protocols.{module.name}")) or ""
        yield f"`{module.name}`", " ".join(said.partition("\n\n")[0].split())


def _calls(*classes: type) -> list[tuple[str, ...]]:
    """The public methods and properties of classes, in the order of their source."""
    found: list[tuple[str, ...]] = [("call", "", "what it does")]
    for cls in classes:
        for name, member in vars(cls).items():
            function = member.fget if isinstance(member, property) else getattr(member, "func", member)
            if name.startswith("_") or name in INTERNAL or not callable(function):
                continue
            call, how = name, ""
            if not isinstance(member, property):
                whole = inspect.signature(function)
                _, *given = (one.replace(annotation=inspect.Parameter.empty) for one in whole.parameters.values())
                call += str(whole.replace(return_annotation=inspect.Signature.empty, parameters=given))
                kind = str(whole.return_annotation).partition("[")[0]
                how = {"Await": "*await*", "Awaitable": "*await*", "Rounds": "*async for*"}.get(kind, "")
            said = (inspect.getdoc(function) or "").partition("\n\n")[0]
            found.append((f"`{call}`", how, " ".join(said.split())))
    return found


def write(docs: Path) -> None:
    """Write all tables into folders of these."""
    _save(docs / "scenario", _scenario())
    kinds = [(str(kind), f"`{name}`", ", ".join(names), rows.MEANS[kind])
             for kind, (name, *names) in rows.NAMES.items()]
    _save(docs / "run-directory", {
        **_columns(tables.COLUMNS), "journal.csv": [("number", "kind", "fields", "what it is"), *kinds],
        "summary.csv": [("key", "what it is"), *((", ".join(f"`{key}`" for key in keys), said)
                                                 for keys, said in summary.KEYS.items())]})
    options = {f"emul-{command}.csv": _options(command) for command in ("sweep", "compare", "verify")}
    _save(docs / "studies", {**_columns({**study_tables.COLUMNS, "done": done.COLUMNS}), **options,
                             "compared.csv": _metrics(comparison.METRICS)})
    _save(docs / "schemes" / "selection", {"rules.csv": _choices()})
    _save(docs / "schemes" / "compression", {"codecs.csv": _codecs()})
    _save(docs / "sheet-node", {"node.csv": _calls(Node), "task.csv": _calls(*NodeTask.__mro__[:-1])})
    known = attacks.known(attacks.PRIVACY).items()
    _save(docs / "attacks", {"attacks.csv": [("attack", "parameters", "what it is, and what it needs"), *(
        (f"`{name}`", _parameters(kind), " ".join((inspect.getdoc(kind) or "").split())) for name, kind in known)]})
    _save(docs / "suite", {"emul-suite.csv": _options("suite"), "measures.csv": _metrics(suite_tables.METRICS)})
    _save(docs / "writing-a-scheme", {"fields.csv": [("field", "what it is"), *_fields()],
                                      "protocols.csv": [("protocol", "what it has"), *_protocols()]})


def _metrics(known: Mapping[str, tuple[str, str]]) -> list[tuple[str, ...]]:
    return [("metric", "unit", "what it is"), *((f"`{name}`", unit, said) for name, (unit, said) in known.items())]


def _columns(known: Mapping[str, Mapping[str, str]]) -> dict[str, list[tuple[str, ...]]]:
    return {f"{table}.csv": [("column", "what it is"), *((f"`{name}`", said) for name, said in columns.items())]
            for table, columns in known.items()}


def _options(command: str) -> list[tuple[str, ...]]:
    """The options of a command as its `--help` has them."""
    found: list[tuple[str, ...]] = [("option", "default", "what it is")]
    for one in get_command(app).commands[command].params:           # type: ignore[attr-defined]
        if one.param_type_name == "option":
            said, _, default = one.help.partition(" [default: ")
            if not default and one.default is not None and not isinstance(one.default, bool):
                default = str(one.default)
            found.append((f"`{' '.join(filter(None, (one.opts[0], one.metavar)))}`", default.rstrip("]"), said))
    return found


def _scenario() -> dict[str, list[tuple[str, ...]]]:
    section = schema()["properties"]["task"]
    task = section["properties"]
    wanted: dict[str, list[tuple[str, ...]]] = {
        "solver.csv": _solver(), "data.csv": _task(task["data"]), "declared.csv": _task(task["declared"]),
        "task.csv": _task(section), "root.csv": _task(task["root"]), "clusters.csv": _task(task["clusters"]),
        "partition.csv": _task(task["partition"]["anyOf"][1]), "objective.csv": _task(task["objective"]["anyOf"][1]),
        "rules.csv": _rules(), **_attacks()}
    for name, lines in of_headings().items():
        defaults = any(default for _, default, _ in lines)
        wanted[name] = [("key", "default", "what it is") if defaults else ("key", "what it is"),
                        *(line if defaults else (line[0], line[2]) for line in lines)]
    return wanted


def _save(folder: Path, wanted: Mapping[str, Sequence[tuple[str, ...]]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in wanted.items():
        with (folder / name).open("w", encoding="utf-8", newline="") as out:
            csv.writer(out, lineterminator="\n").writerows(lines)


if __name__ == "__main__":
    write(HERE)

"""The tables of keys of scenario.md: `python docs/keys.py` writes them from the comments above the fields of models.

They stand apart as CSV, in `docs/scenario/`, as long tables do; the built site shows them in their places.
"""

from __future__ import annotations

import csv
import inspect
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from emul.learning import solver
from emul.registry import attacks
from emul.scenario.schema import descriptions, parameters, schema, sections

HERE = Path(__file__).resolve().parent
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


def tables() -> dict[str, list[tuple[str, str, str]]]:
    """Name of a file -> its rows: key, default, what it is. Needed keys come first."""
    models = sections()
    found = {}
    for heading, names in SECTIONS.items():
        rows: dict[str, tuple[str, str]] = {}
        for name in names:
            said = descriptions(models[name])
            for field, info in models[name].model_fields.items():
                key = info.alias or field
                default, text = re.fullmatch(r"(?:\[(.*?)\] )?(.*)", said[key]).groups()      # type: ignore[union-attr]
                rows.setdefault(key, (_plain(info.default) if default is None else default, text))
        ordered = sorted(rows.items(), key=lambda row: row[1][0] != "needed")
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


def _parameters(cls: type) -> str:
    """The parameters of an attack with their defaults and comments."""
    return "; ".join(f"`{key}` {_plain(one['default']) or 'none'}" + (f" ({one['description']})" if "description" in one
                                                                      else "")
                     for key, one in parameters(cls).items())


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


def write(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    task = schema()["properties"]["task"]["properties"]
    wanted: dict[str, list[tuple[str, ...]]] = {
        "solver.csv": _solver(), "data.csv": _task(task["data"]), "declared.csv": _task(task["declared"]), **_attacks()}
    for name, rows in tables().items():
        defaults = any(default for _, default, _ in rows)
        wanted[name] = [("key", "default", "what it is") if defaults else ("key", "what it is"),
                        *(row if defaults else (row[0], row[2]) for row in rows)]
    for name, lines in wanted.items():
        with (folder / name).open("w", encoding="utf-8", newline="") as out:
            csv.writer(out, lineterminator="\n").writerows(lines)


if __name__ == "__main__":
    write(HERE / "scenario")

"""The tables of keys of scenario.md: `python docs/keys.py` writes them from the comments above the fields of models.

They stand apart as CSV, in `docs/scenario/`, as long tables do; the built site shows them in their places.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path

from emul.scenario.schema import descriptions, sections

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


def file(heading: str) -> str:
    return f"{heading.lower().replace(' ', '-')}.csv"


def _plain(default: object) -> str:
    """A default as a scenario has it."""
    if default is None:
        return ""
    return str(default).lower() if isinstance(default, bool) else str(default)


def write(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for name, rows in tables().items():
        kept = rows if any(default for _, default, _ in rows) else [(key, text) for key, _, text in rows]
        with (folder / name).open("w", encoding="utf-8", newline="") as out:
            writer = csv.writer(out, lineterminator="\n")
            writer.writerow(("key", "default", "what it is") if kept is rows else ("key", "what it is"))
            writer.writerows(kept)


if __name__ == "__main__":
    write(HERE / "scenario")

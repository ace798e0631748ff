"""The sheets: one page has every key of a scenario with an example that loads, another every method of a node."""

from __future__ import annotations

import importlib.util
import inspect
import re
import shutil
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from ruamel.yaml import YAML
from test_docs import ARGUMENT, MODELS, ROOT, blocks, first_cells, text

from emul.learning import solver
from emul.learning.node_task import NodeTask
from emul.roles import Node
from emul.scenario import loads
from emul.scenario.task import TASK_KEYS

SCENARIO, NODE = "docs/sheet-scenario.md", "docs/sheet-node.md"
BELOW = {       # section at the top level -> models of what stands in it
    "topology": ["TopologySection", "ConstellationSection", "RoleSection", "LatencyByDistance", "CapacityRule",
                 "MeasuredFile", "AccessLink"],
    "links": ["LinkSection", "OutageSection", "LatencySection", "Overhead", "Transport", "TcpKeys", "Packetized",
              "BandwidthTrace"],
    "groups": ["ClientGroupRule"], "nodes": ["NodeRule"], "devices": ["DevicesRule", "DeviceNodes"],
    "faults": ["FaultRule", "LinkValues", "ChurnRule", "OwnChurn", "AvailabilityRule", "OwnAvailability",
               "DropRule", "LawRule", "WeibullLaw", "LogNormalLaw", "DiurnalRule", "GroupRule"],
    "traffic": ["TrafficRule", "StayRule", "ParetoLaw", "RateRule", "SineRule", "RampRule", "OnOffRule", "WalkRule",
                "RateLawRule", "NormalRule", "PoissonRule", "MessagesRule", "SizeRule", "ParetoSizeRule",
                "LogNormalSizeRule"],
    "media": ["MediumRule"],
    "radio": ["RadioRule", "PlacesRule", "MoveRule", "WaypointRule", "LossRule", "LogDistanceRule", "RatesRule",
              "AttachRule"],
    "contacts": ["ContactsRule"], "attacks": ["AttackRule", "AttackedShare"],
    "compute": ["ComputeSection"], "fuse": ["FuseSection"],
    "stop": ["StopSection"], "evaluation": ["EvaluationSection"], "workers": ["WorkersSection"],
    "network": ["NetworkRule"], "sweep": ["SweepRule"], "limits": ["LimitsRule"], "record": ["RecordRule"]}
# in a comment or a sentence
IN_WORDS = {"greedy", "default", "extends", "sha256", "replay", "attribute", "value", "file", "trace", "take",
            "beyond", "behave", "dialect", "tle", "uniform", "exponential", "poisson", "unit", "weibull", "lognormal",
            "matrix", "rates", "values", "repeated", "forward"}
INTERNAL = {"untouched", "charged_alike"}        # of a node's task: workers and costs ask them, no role does
WHOLE, *PARTS = blocks(SCENARIO, "yaml")
read = YAML(typ="safe").load       # version 1.2, as emul reads it: `on` is a word


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the files lie that the examples name."""
    (tmp_path / "topologies").symlink_to(ROOT / "topologies")
    here = tmp_path / "scenarios"
    shutil.copytree(ROOT / "scenarios" / "traces", here / "traces")
    shutil.copytree(ROOT / "scenarios" / "moving", here / "moving")
    for table in ("devices.csv", "linkclasses.csv"):
        shutil.copy(ROOT / "emul" / "scenario" / table, here / table)
    (here / "traces" / "lte.csv").write_text("trace,t_s,bandwidth_mbps\nA,0,5\nA,60,7\n")
    (here / "traces" / "up.csv").write_text("t_s,up\n0,1\n10,0\n20,1\n")
    (here / "traces" / "passes.csv").write_text(
        "start_s,end_s,source,destination,rate_mbps,latency_ms\n0,60,client6,server,10,5\n")
    (here / "traces" / "walk.csv").write_text("t_s,name,x_m,y_m\n0,bus,1,1\n")
    (here / "traces" / "aps.csv").write_text("name,x_m,y_m\nap1,50,50\nap2,150,50\n")
    (here / "traces" / "rtt.csv").write_text("latency_ms\n12\n15\n40\n")
    return here


def test_the_whole_scenario_of_the_sheet_loads(folder: Path) -> None:
    loads(WHOLE, base=folder)


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.split(":")[0] + part[-40:].strip())
def test_every_part_of_the_sheet_loads(part: str, folder: Path) -> None:
    whole = {key: value for key, value in read(WHOLE).items() if key not in ("sweep", "fuse", "network")}
    found = read(part)
    whole.update(found, schemes=["fedavg"])
    if "topology" in found:                     # without the clients that rules of the others name
        whole |= {"links": [{"match": "*", "latency": "20 ms", "bandwidth": "20 Mbit/s"}]}
        whole |= {"schemes": ["gossip"]} if "peers" in found["topology"] else {}
    if "links" in found and "attacks" not in found:
        whole.pop("attacks", None)
    loads(yaml.safe_dump(whole, sort_keys=False), base=folder)


def keys_of(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield str(key)
            yield from keys_of(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from keys_of(inner)


def test_the_models_below_each_section_are_all_there_are() -> None:
    assert {name for names in BELOW.values() for name in names} == set(MODELS) - {"Document"}


@pytest.mark.parametrize("section", BELOW)
def test_no_key_of_a_section_is_missing(section: str) -> None:
    shown = {key for block in (WHOLE, *PARTS) for key in keys_of(read(block).get(section))}
    known = {info.alias or key for name in BELOW[section] for key, info in MODELS[name].model_fields.items()}
    missing = known - shown
    assert missing <= IN_WORDS
    assert all(re.search(rf"`[^`]*\b{key}\b[^`]*`|# .*\b{key}\b", text(SCENARIO)) for key in missing)


def test_no_section_and_no_key_of_a_task_is_missing() -> None:
    shown = {key for block in (WHOLE, *PARTS) for key in read(block)}
    assert {info.alias or key for key, info in MODELS["Document"].model_fields.items()} - shown <= IN_WORDS
    task = {key for block in (WHOLE, *PARTS) for key in keys_of(read(block).get("task"))}
    wanted = {*TASK_KEYS, *(f.name for kind in solver.SOLVERS.values() for f in fields(kind))}
    assert wanted - task == set()


def test_the_sheet_of_a_scenario_is_a_page() -> None:
    assert len(text(SCENARIO).splitlines()) < 200


# --- Node -------------------------------------------------------------------------------------------------------------

def names(cells: set[str]) -> set[str]:
    return {word.partition("(")[0].removeprefix("node.").removeprefix("task.") for word in cells}


def test_every_method_of_a_node_has_its_line() -> None:
    own, _, task = text(NODE).partition("\n## node.task\n")
    public = {name for name, _ in inspect.getmembers(Node) if not name.startswith("_")}
    assert names(first_cells(own)) | set(re.findall(r"`node\.(\w+)`", own)) == public
    offered = {name for name, _ in inspect.getmembers(NodeTask) if not name.startswith("_")} - INTERNAL
    assert offered - names(first_cells(task)) == set()


def test_calls_are_written_with_their_own_arguments() -> None:
    own, _, task = text(NODE).partition("\n## node.task\n")
    for kind, part in ((Node, own), (NodeTask, task)):
        for call in first_cells(part):
            name, _, arguments = call.partition("(")
            if arguments:
                known = inspect.signature(getattr(kind, name.removeprefix("node.").removeprefix("task."))).parameters
                assert set(re.findall(ARGUMENT, arguments)) <= set(known), call


def test_the_sheet_of_a_node_is_a_page() -> None:
    assert len(text(NODE).splitlines()) < 110


# --- as HTML and PDF --------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def sheets() -> ModuleType:
    pytest.importorskip("markdown_it", reason="the extra `docs` brings it")
    spec = importlib.util.spec_from_file_location("sheets", ROOT / "docs" / "sheets.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_sheet_is_a_file_of_its_own(sheets: ModuleType) -> None:
    for name in sheets.SHEETS:
        page = sheets.page(name)
        assert not re.search(r"(href|src)=|url\(|\]\(", page)
    assert "<td><code>emul run SCENARIO</code></td>" in sheets.page("commands")
    assert page.count("<tr>") == len(re.findall(r"^\|(?! ?-)", text(NODE), re.MULTILINE))


@pytest.mark.slow
def test_a_sheet_is_printed_on_one_page(sheets: ModuleType, tmp_path: Path) -> None:
    if sheets.CHROMIUM is None:
        pytest.skip("no browser: chromium is not installed")
    printed = [file for file in sheets.write(tmp_path) if file.suffix == ".pdf"]
    assert [file.stem for file in printed] == list(sheets.SHEETS)
    for file in printed:
        assert len(re.findall(rb"/Type\s*/Page\b", file.read_bytes())) == 1, file.name

"""The JSON schema of scenario files: all that is shipped fits it, every key has a description, mistakes are marked."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from emul.registry import attacks, schemes
from emul.roles import Variant
from emul.scenario.schema import parameters, schema
from emul.scenario.sections import QUANTITY
from emul.scenario.source import read

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = [path for path in sorted((ROOT / "scenarios").rglob("*.yaml"))]
SMALL = """
emul: 1
name: small
seed: 7
topology: {generator: star, clients: 3}
links: [{match: "*", latency: 20 ms, outage: {model: bernoulli, p: 0.3}}]
task: {data: {set: digits}, model: logistic, solver: {sgd: {lr: 0.1, steps: 1, batch: 16}}}
attacks: [{nodes: {fraction: 0.4}, update: {name: scale, factor: 3}}]
compute: {mode: zero}
schemes: [{name: fedavg, deadline: 2 s}, {name: secagg, threshold: 2}, krum, mine]
stop: {rounds: 2}
"""


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    return schema()


@pytest.fixture(scope="module")
def validator(made: dict[str, Any]) -> jsonschema.Draft202012Validator:
    jsonschema.Draft202012Validator.check_schema(made)
    return jsonschema.Draft202012Validator(made)


def wrong(validator: jsonschema.Draft202012Validator, text: str) -> list[str]:
    return sorted(error.json_path for error in validator.iter_errors(read(text).tree))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_what_is_shipped_fits_the_schema_and_names_it(path: Path, validator: jsonschema.Draft202012Validator) -> None:
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert first.startswith("# yaml-language-server: $schema=")
    assert (path.parent / first.partition("=")[2]).resolve() == ROOT / "emul.schema.json"
    assert wrong(validator, path.read_text(encoding="utf-8")) == []


def test_the_schema_in_the_folder_is_the_one_that_is_made_now(made: dict[str, Any]) -> None:
    written = (ROOT / "emul.schema.json").read_text(encoding="utf-8")
    assert json.loads(written) == json.loads(json.dumps(made)), "run: emul schema > emul.schema.json"


def test_every_key_of_a_section_has_a_description(made: dict[str, Any]) -> None:
    sections = {**made["$defs"], "Document": made}
    keys = [(name, key, value) for name, section in sections.items() for key, value in section["properties"].items()]
    assert len(keys) > 120
    assert [f"{name}.{key}" for name, key, value in keys if not value.get("description")] == []


def cases(made: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Scheme -> the properties of an entry that names it."""
    entry = made["properties"]["schemes"]["items"]["anyOf"][-1]
    return {case["if"]["properties"]["name"]["const"]: case["then"]["properties"] for case in entry["allOf"]}


def test_every_scheme_and_attack_is_there_with_its_parameters(made: dict[str, Any]) -> None:
    found = cases(made)
    assert set(found) == set(schemes.known())
    assert found["fedavg"]["deadline"] == {"type": ["string", "integer", "null"], "default": None, "description":
                                           "None: wait until the fate of every update is known"}
    assert found["fedavg"]["weights"]["enum"] == ["samples", "uniform"]
    assert found["fedavg"]["personal"]["description"].endswith("test samples, beside that of the received one")
    assert {"lambda", "keys", "s"} <= set(found["fair_seccogc"])
    said = {name: import_module(f"emul.schemes.{name}").SCHEME for name in found}
    fixed = {name: one.fixed for name, one in said.items() if isinstance(one, Variant)}
    assert len(fixed) > 3
    assert [(name, key) for name, keys in fixed.items() for key in keys if key.rstrip("_") in found[name]] == []
    rule = made["$defs"]["AttackRule"]["properties"]
    for kind in attacks.KINDS:
        assert rule[kind]["anyOf"][0]["anyOf"][1]["enum"] == list(attacks.known(kind))


@dataclass(frozen=True)
class Base:
    bits: int = 8               # of the base

    def twice(self) -> int:
        # inside of a method
        left: int = 2           # no field
        return left * self.bits


@dataclass(frozen=True)
class Commented(Base):
    bits: int = 4               # of the class itself
    first: int = 1              # behind,
    #                             and going on
    # above, on
    # two lines
    second: int = 2
    # above
    third: int = 3              # and behind
    bare: int = 0


def test_a_comment_describes_the_field_that_it_stands_above_or_behind(made: dict[str, Any]) -> None:
    said = {key: one.get("description") for key, one in parameters(Commented).items()}
    assert said == {"bits": "of the class itself", "first": "behind, and going on", "second": "above, on two lines",
                    "third": "above and behind", "bare": None}
    described = cases(made)
    assert described["ccesa"]["eta"]["description"] == "tight: a round is lost with at most 2^-eta"
    assert described["ccesa"]["small_neighbourhood"]["description"].startswith("prune: a client with too few")
    assert described["secagg"]["threshold"]["description"].startswith("t, shares that give a secret")


@pytest.mark.parametrize("text", ["20 ms", "1.5h", ".5 s", "1e3 us", "20 Mbit/s", "2 MB / s", "64 KiB", "0", "1 week"])
def test_whatever_has_a_number_and_a_unit_fits_as_a_quantity(text: str) -> None:
    assert re.search(QUANTITY, text)
    if text != "0":
        assert not re.search(QUANTITY, text.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ/ "))


def test_a_sound_scenario_fits_and_mistakes_are_marked_where_they_are(
        validator: jsonschema.Draft202012Validator) -> None:
    assert wrong(validator, SMALL) == []
    for right, mistake, place in [
            ("seed: 7", "sed: 7", "$"), ("clients: 3", "clients: many", "$.topology.clients"),
            ("model: bernoulli", "model: bernouli", "$.links[0].outage"),
            ("mode: zero", "mode: none", "$.compute.mode"), ("latency: 20 ms", "latency: 20", "$.links[0].latency"),
            ("latency: 20 ms", "latency: soon", "$.links[0].latency"),
            ("deadline: 2 s", "dedline: 2 s", "$.schemes[0]"), ("threshold: 2", "threshold: two", "$.schemes[1]"),
            ("factor: 3", "faktor: 3", "$.attacks[0].update"), ("model: logistic", "modell: logistic", "$.task"),
            ("model: logistic", "model: logistik", "$.task.model"), ("set: digits", "set: digts", "$.task.data.set"),
            ("name: fedavg", "name: fedvag", "$.schemes[0]"), (", mine]", ", secaggg]", "$.schemes[3]"),
            ("emul: 1", "emul: 2", "$.emul"), ("stop: {rounds: 2}", "", "$")]:
        assert place in wrong(validator, SMALL.replace(right, mistake)), mistake
    for own in ("logistics", "my_model", "fedavgm", "net"):             # of a plug-in
        assert wrong(validator, SMALL.replace("model: logistic", f"model: {own}")) == []
    assert wrong(validator, "extends: base.yaml\nstop: {rounds: 9}\n") == []


def test_a_network_for_a_loop_fits_and_needs_what_a_network_needs(validator: jsonschema.Draft202012Validator) -> None:
    loop = "emul: 1\nname: mine\nseed: 7\ntopology: {generator: star, clients: 3}\n"
    assert wrong(validator, loop) == []
    assert wrong(validator, loop + "compute: {mode: zero}\nlinks: [{match: '*', latency: 1 ms}]\n") == []
    for own in ("seed: 7\n", "topology: {generator: star, clients: 3}\n"):
        assert wrong(validator, loop.replace(own, "")) == ["$"]
    assert wrong(validator, loop + "schemes: [fedavg]\n") == ["$"] * 3

"""`emul cite`: every scheme has its paper, every keyword names something, and an entry is cited where it is used."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from emul import __version__, cli
from emul.citing import bibliography, references, uses
from emul.learning import data, models, partition
from emul.primitives.compress import CODECS
from emul.primitives.robust import RULES
from emul.primitives.selection import KINDS
from emul.registry import attacks, schemes

ROOT = Path(__file__).resolve().parents[1]
WITHOUT = {"local"}                         # nobody's paper
OF_OTHERS = {"flower", "histogram", "fl_ideal"}         # their texts name no paper: a program, a protocol, a yardstick


def cited(name: str) -> list[str]:
    return [one.bibtex for one in references() if ("schemes", name) in one.uses]


def test_every_scheme_has_the_paper_that_its_text_names() -> None:
    for name in schemes.known():
        text = schemes.find(name).doc
        known = [(entry, re.findall(r"author = \{([^,]+),|eprint = \{([\d.]+)\}", entry)) for entry in cited(name)]
        assert bool(known) != (name in WITHOUT), name
        if known and name not in OF_OTHERS:
            assert any(word and word in text for _, found in known for words in found for word in words), name
        number = re.search(r"arXiv[: ](\d{4}\.\d{5})", text.partition("\n\n")[0])
        if number and name != "cogc":       # two papers, of which the later is cited
            assert any(number[1] in entry for entry, _ in known), (name, number[1])


def test_every_keyword_names_what_a_scenario_can_say() -> None:
    known = {"schemes": set(schemes.known()), "aggregate": set(RULES), "selection": set(KINDS),
             "set": set(data.BUILT_IN), "model": {*models.BUILT_IN, "gilbert_elliott"},
             "partition": set(partition.RULES), "clusters": {"rotate", "relabel"}, "congestion": {"cubic"},
             "update": set(attacks.known("update")), "data": set(attacks.known("data")),
             "trace": {file.name for file in (ROOT / "scenarios/traces").glob("*.csv")},
             "file": {file.name for file in (ROOT / "topologies").glob("*.graphml")},
             "up": set(CODECS), "down": set(CODECS), "compress": set(CODECS)}
    for one in references():
        assert one.uses, one.bibtex
        for key, word in one.uses:
            assert word in known[key], (key, word)
    entries = [one.bibtex for one in references()]
    keys = [re.match(r"@\w+\{(\w+),", entry) for entry in entries]
    assert len({key[1] for key in keys if key}) == len(entries)
    assert all(entry.count("{") == entry.count("}") and "keywords" not in entry for entry in entries)
    assert len(entries) == (ROOT / "emul/references.bib").read_text(encoding="utf-8").count("\n@")


def test_a_scenario_cites_what_it_uses_and_nothing_else(monkeypatch: pytest.MonkeyPatch,
                                                       capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["emul", "cite", str(ROOT / "scenarios/geant.yaml")])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert re.findall(r"^@\w+\{(\w+),$", said, re.MULTILINE) == [
        "emul", "mcmahan2017", "alpaydin1998", "hsu2019", "knight2011"]
    assert f"version = {{{__version__}}}" in said


def test_rules_attacks_and_the_axes_of_a_sweep_are_cited() -> None:
    document = {"name": "krum", "attacks": [{"update": {"name": "alie"}, "data": "backdoor"}],
                "schemes": [{"name": "fedavg", "aggregate": {"median": {}}, "compress": {"up": "qsgd"}}],
                "sweep": {"grid": {"schemes[0].selection": ["oort", "uniform"]}},
                "links": [{"outage": {"model": "gilbert_elliott"}, "latency": {"lognormal": {"median": "1 s"}}}]}
    found = set(uses(document))
    assert {("schemes", "fedavg"), ("aggregate", "median"), ("update", "alie"), ("data", "backdoor"), ("up", "qsgd"),
            ("selection", "oort"), ("model", "gilbert_elliott")} <= found
    keys = {re.split(r"[{,]", one.bibtex)[1] for one in references() if one.uses & found}
    assert {"yin2018", "baruch2019", "lai2021", "elliott1963", "gu2017"} <= keys
    assert not {"blanchard2017", "bonawitz2017"} & keys


def test_a_scheme_of_a_user_has_its_papers_beside_its_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "cited_own.py").write_text((ROOT / "emul/schemes/local.py").read_text(encoding="utf-8"))
    assert bibliography(["cited_own"], ["cited_own"]).count("\n@") == 0
    paper = "@misc{own2026,\n  title = {Mine},\n"
    (tmp_path / "references.bib").write_text(paper + "  keywords = {schemes cited_own},\n}\n")
    assert bibliography(["cited_own"], ["cited_own"]).endswith(paper + "}")

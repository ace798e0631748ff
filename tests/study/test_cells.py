"""Which cells a study has, and what they are called."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from emul import scenario
from emul.base.errors import ScenarioError
from emul.study.cells import cells, contents, key, parse_grid


def test_every_combination_of_values_seeds_and_schemes_is_a_cell(small: Path) -> None:
    found = cells(small, {"stop.rounds": [2, 3]}, [0, 4])
    assert [(c.values["stop.rounds"], c.seed, c.scheme) for c in found] == [
        (rounds, seed, scheme) for rounds in (2, 3) for seed in (0, 4) for scheme in ("fedavg", "secagg")]
    assert len({c.key for c in found}) == 8
    assert all(c.scenario.stop.rounds == c.values["stop.rounds"] and c.scenario.seed == c.seed for c in found)
    assert all([name for name, _ in c.scenario.schemes] == [c.scheme] for c in found)


def test_a_value_that_a_scheme_does_not_depend_on_gives_it_no_second_cell(small: Path) -> None:
    found = cells(small, {"schemes.secagg.threshold": [2, 3], "stop.rounds": [2, 3]}, [0])
    assert [(c.scheme, c.values) for c in found] == [
        ("fedavg", {"stop.rounds": 2}), ("secagg", {"schemes.secagg.threshold": 2, "stop.rounds": 2}),
        ("fedavg", {"stop.rounds": 3}), ("secagg", {"schemes.secagg.threshold": 2, "stop.rounds": 3}),
        ("secagg", {"schemes.secagg.threshold": 3, "stop.rounds": 2}),
        ("secagg", {"schemes.secagg.threshold": 3, "stop.rounds": 3})]


def test_a_scheme_parameter_is_reached_by_the_name_of_the_scheme_and_by_its_place(small: Path) -> None:
    by_name = cells(small, {"schemes.secagg.threshold": [3]}, only=["secagg"])
    by_place = cells(small, {"schemes[1].threshold": [3]}, only=["secagg"])
    assert [c.key for c in by_name] == [c.key for c in by_place]
    assert by_name[0].scenario.schemes == [("secagg", {"threshold": 3})]


def test_entries_that_differ_by_their_codec_or_their_places_alone_are_cells_of_their_own(small: Path) -> None:
    entries = ["schemes=[{name: fedavg, label: plain}, {name: fedavg, label: coded, compress: {up: {qsgd: {}}}}, "
               "{name: fedavg, label: placed, places: {client: [client1, client2]}}]"]
    found = cells(small, {}, sets=entries)
    assert len({cell.key for cell in found}) == 3
    said = {cell.scheme: cell.scenario.schemes[0][1] for cell in found}
    assert "up" in said["coded"]["compress"]
    assert said["placed"]["places"] == {"client": ["client1", "client2"]}


@pytest.mark.parametrize(("edit", "said"), [
    ("schemes.secag.threshold=3", 'schemes has no "secag"; did you mean "secagg"?'),
    ("schemes.secagg.treshold=3", 'unknown parameter; did you mean "threshold"?'),
])
def test_a_path_to_a_scheme_that_is_not_there_is_refused_with_the_nearest(small: Path, edit: str, said: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        scenario.load(small, [edit])
    assert said in str(caught.value)
    assert f"--set {edit.partition('=')[0]}" in str(caught.value)


def test_a_name_that_two_entries_have_asks_for_the_place(small: Path) -> None:
    with pytest.raises(ScenarioError, match=r'schemes has several "fedavg": say which, as in schemes\[0\]'):
        scenario.load(small, ["schemes=[fedavg, {name: fedavg, fraction: 0.5}]", "schemes.fedavg.fraction=0.1"])


TWO = ["schemes=[{name: fedavg, label: all}, {name: fedavg, fraction: 0.5}, {name: fedavg, fraction: 0.8}]"]


def test_schemes_are_picked_by_label_or_by_name(small: Path) -> None:
    def picked(*only: str) -> list[str]:
        return [c.scheme for c in cells(small, {}, sets=TWO, only=only)]
    assert picked("all") == ["all"]
    assert picked("fedavg fraction=0.8", "all") == ["all", "fedavg fraction=0.8"]
    assert picked("fedavg") == ["all", "fedavg fraction=0.5", "fedavg fraction=0.8"]


def test_a_series_keeps_its_label_whatever_the_grid_does_to_its_parameters(small: Path) -> None:
    found = cells(small, {"schemes[1].fraction": [0.6, 0.7]}, sets=TWO, only=["fedavg fraction=0.5"])
    assert [(c.scheme, c.values) for c in found] == [("fedavg fraction=0.5", {"schemes[1].fraction": 0.6}),
                                                    ("fedavg fraction=0.5", {"schemes[1].fraction": 0.7})]
    assert [c.scenario.schemes[0][1]["fraction"] for c in found] == [0.6, 0.7]


def test_what_a_scheme_is_called_is_no_part_of_its_key_but_two_labels_are_two_cells(small: Path) -> None:
    same = cells(small, {}, sets=["schemes=[fedavg, {name: fedavg, label: again}]"])
    assert [c.scheme for c in same] == ["fedavg", "again"]
    assert len({c.key for c in same}) == 1


def test_schemes_that_nobody_knows_are_refused(small: Path) -> None:
    with pytest.raises(ScenarioError, match=r'--schemes +"krum" +expected one of its schemes: fedavg, secagg'):
        cells(small, {}, only=["fedavg", "krum"])


def test_an_unsound_combination_is_refused_before_anything_runs(small: Path) -> None:
    with pytest.raises(ScenarioError, match=r"--set links\[1\].outage.p +1.3 +expected a probability"):
        cells(small, {"links[1].outage.p": [0.3, 1.3]}, [0])


# --- the grid on the command line -----------------------------------------------------------------------------------

def test_values_of_a_grid_are_read_as_the_entries_of_a_yaml_list() -> None:
    assert parse_grid(["links[0].latency=20 ms, 50 ms", "stop={rounds: 3},{rounds: 4, accuracy: 0.9}",
                       "a.b=1,x,0.5"]) == {
        "links[0].latency": ["20 ms", "50 ms"], "stop": [{"rounds": 3}, {"rounds": 4, "accuracy": 0.9}],
        "a.b": [1, "x", 0.5]}


@pytest.mark.parametrize(("texts", "said"), [
    (["stop.rounds"], '--grid  "stop.rounds"  expected path=value,value such as "links[1].outage.p=0.1,0.3"'),
    (["stop.rounds="], '--grid  "stop.rounds="  expected path=value,value such as "links[1].outage.p=0.1,0.3"'),
    (["a=1", "a=2"], '--grid a  "2"  was given before'),
    (["seed=1,2"], "--grid seed  cannot be varied here: use --seeds"),
    (["a=[1"], '--grid a  "[1"  is no valid YAML'),
])
def test_a_grid_that_makes_no_sense_is_refused(texts: list[str], said: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        parse_grid(texts)
    assert said in re.sub(" {2,}", "  ", str(caught.value))


# --- keys -------------------------------------------------------------------------------------------------------------

def one(path: Path, *sets: str) -> scenario.Scenario:
    return scenario.load(path, ["schemes=[fedavg]", *sets])


def test_a_key_changes_with_what_changes_the_result_and_with_nothing_else(small: Path) -> None:
    base = key(one(small))
    assert key(one(small, "stop.rounds=2")) == base
    assert key(one(small, "workers={timeout: 50 s}")) == base
    others = [key(one(small, edit)) for edit in (
        "stop.rounds=3", "seed=8", "links[0].latency=21 ms", "schemes=[secagg]", "task.solver.sgd.lr=0.2",
        "compute.mode=measured")]
    assert len({base, *others}) == 7


def test_a_key_holds_the_contents_of_files_and_not_where_they_lie(small: Path) -> None:
    text = small.read_text().replace("{mode: zero}", "{mode: profile, file: p.json}")
    keys = []
    for folder, costs in (("here", "1"), ("there", "1"), ("there", "2")):
        path = small.parent / folder / "small.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        (path.parent / "p.json").write_text(f'{{"emul_profile": 1, "costs": {{"fedavg/client/train": [{costs}, 0]}}}}')
        keys.append(cells(path, {}, only=["fedavg"])[0].key)
    assert keys[0] == keys[1] != keys[2]


def test_a_directory_is_known_by_the_names_and_sizes_of_its_files(tmp_path: Path) -> None:
    def seen(name: str) -> object:
        return contents({"data": [str(tmp_path / name)]})

    for name in ("a", "b", "c"):
        (tmp_path / name / "below").mkdir(parents=True)
        (tmp_path / name / "below" / "images").write_text("12345")
    (tmp_path / "c" / "labels").write_text("1")
    assert seen("a") == seen("b") != seen("c")
    assert contents("/no/such/file") == "/no/such/file"


def test_a_cell_of_a_recorded_run_is_known_by_its_journal(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "journal").write_bytes(b"rows")
    (tmp_path / "b" / "report.html").write_text("written later")
    assert contents(str(tmp_path / "a")) == contents(str(tmp_path / "b"))


def test_a_key_changes_with_the_file_of_a_plug_in(small: Path, picky: str) -> None:
    edit = [f"schemes=[{picky}]"]
    before = cells(small, {}, sets=edit, plugins=[picky])[0].key
    shutil.copy(small.parent / "picky.py", small.parent / "kept.py")
    assert cells(small, {}, sets=edit, plugins=[picky])[0].key == before
    (small.parent / "picky.py").write_text((small.parent / "kept.py").read_text() + "# now better\n")
    assert cells(small, {}, sets=edit, plugins=[picky])[0].key != before


def test_a_key_of_a_variant_changes_with_the_scheme_that_it_varies(small: Path, picky: str) -> None:
    (small.parent / "pickier.py").write_text(
        '"""As picky."""\n\nfrom emul.roles import Variant\n\nSCHEME = Variant(of="picky")\n')
    plugins, edit = ["picky", "pickier"], ["schemes=[pickier]"]
    before = cells(small, {}, sets=edit, plugins=plugins)[0].key
    (small.parent / "picky.py").write_text((small.parent / "picky.py").read_text() + "# now better\n")
    assert cells(small, {}, sets=edit, plugins=plugins)[0].key != before

"""The data set `csv`: what is read of files as users have them, and what is said of those that cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emul import engine
from emul.base.errors import ScenarioError
from emul.learning.data import DataError, load, missing
from emul.scenario import Scenario
from emul.scenario import load as load_scenario

PEOPLE = """\
age,town,income,member,writer,label
31,Bern,2.5,true,ann,no
45,Chur,3.5,false,bob,yes
22,Bern,1.0,false,cy,no
60,Genf,9.0,true,ann,yes
38,Chur,4.0,true,bob,no
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("people.csv").write_text(PEOPLE)


def spec(**more: Any) -> dict[str, Any]:
    return {"set": "csv", "directory": "people.csv", "y": "label", "columns": "writer", **more}


def test_numbers_are_standardised_texts_become_columns_and_targets_classes() -> None:
    found = load(spec())
    assert (len(found.train_y), len(found.test_y), found.classes) == (4, 1, 2)
    assert found.input_shape == (1 + 3 + 1 + 1,)
    x = np.concatenate([np.asarray(found.train_x), np.asarray(found.test_x)])
    y = np.concatenate([found.train_y, found.test_y])
    towns = {("Bern", "Chur", "Genf")[int(np.argmax(row[1:4]))] for row in x}
    assert towns == {"Bern", "Chur", "Genf"}
    assert set(np.unique(x[:, 1:4])) == {0.0, 1.0}
    assert np.allclose(np.asarray(found.train_x)[:, [0, 4, 5]].mean(0), 0, atol=1e-6)
    assert np.allclose(np.asarray(found.train_x)[:, 0].std(), 1)
    assert sorted(y.tolist()) == [0, 0, 0, 1, 1]                    # no, yes
    assert set(found.columns["writer"].train) <= {"ann", "bob", "cy"}
    again = load(spec())
    assert np.array_equal(np.asarray(again.train_x), np.asarray(found.train_x))


def test_values_stay_as_they_are_with_normalise_and_columns_can_be_named() -> None:
    found = load(spec(x=["income", "age"], normalise={"mean": 0, "std": 1}, test=0.4))
    assert len(found.test_y) == 2
    rows = np.concatenate([np.asarray(found.train_x), np.asarray(found.test_x)]).tolist()
    assert sorted(map(tuple, rows)) == [(1.0, 22.0), (2.5, 31.0), (3.5, 45.0), (4.0, 38.0), (9.0, 60.0)]
    assert load(spec(y="income")).classes == 0                      # floats: a regression
    assert load(spec(y="age")).classes == 61


def test_semicolons_a_byte_order_mark_and_a_folder_of_two_files() -> None:
    lines = PEOPLE.replace(",", ";").splitlines()
    Path("mine").mkdir()
    Path("mine/train.csv").write_text("\ufeff" + "\n".join(lines[:4]), encoding="utf-8")
    Path("mine/test.csv").write_text("\n".join([lines[0], *lines[4:]]))
    found = load(spec(directory="mine"))
    assert (found.train_y.tolist(), found.test_y.tolist()) == ([0, 1, 0], [1, 0])
    assert found.columns["writer"].test.tolist() == ["ann", "bob"]  # type: ignore[union-attr]
    assert found.input_shape == (6,)                                # Genf is in the test samples alone


def test_a_number_for_each_column_normalises_samples_without_places() -> None:
    np.savez("flat.npz", train_x=np.array([[1.0, 10.0], [3.0, 30.0]]), train_y=[0, 1], test_x=[[2.0, 20.0]],
             test_y=[1])
    found = load({"set": "arrays", "directory": "flat.npz", "normalise": {"mean": [2, 20], "std": [1, 10]}})
    assert found.inputs(found.train_x).tolist() == [[-1, -1], [1, 1]]
    fused = np.asarray(found.train_x)[np.array([[0, 1, 1], [1, 1, 0]])]         # clients that are trained as one
    assert found.inputs(fused)[:, :, 1].tolist() == [[-1, 1, 1], [1, 1, -1]]


@pytest.mark.parametrize(("changes", "said"), [
    ({"y": "lable"}, r'people\.csv: unknown column "lable"; did you mean "label"\?'),
    ({"x": ["aeg"]}, r'unknown column "aeg"; did you mean "age"\?'),
    ({"y": None}, "expected y, the name of the column of targets, found None"),
    ({"x": 3}, "expected x, the name of a column or a list of names, found 3"),
    ({"test": 1.5}, r"expected test, a share of the rows between 0 and 1, found 1\.5"),
    ({"directory": "none.csv"}, r"none\.csv: there is no such file"),
    ({"directory": None}, "expected directory: a file, or a folder with train.csv and test.csv"),
    ({"x": ["label"], "y": "label", "columns": None}, None)])
def test_what_is_wrong_with_a_description_is_said(changes: dict[str, Any], said: str | None) -> None:
    if said is None:
        assert load(spec(**changes)).classes == 2
    else:
        with pytest.raises(DataError, match=said):
            load(spec(**changes))


@pytest.mark.parametrize(("text", "said"), [
    (PEOPLE.replace("45,", ","), r'people\.csv: line 3: no value in column "age"'),
    (PEOPLE.replace("3.5,", "inf,"), r'line 3: column "income": expected a finite number, found inf'),
    (PEOPLE.replace("3.5,false,", "3.5,"), r"people\.csv: no CSV file: .*Expected 6 columns, got 5"),
    ("age,label\n" + "".join(f"a{k},1\n" for k in range(200)), r'column "age" has 200 different texts, such as "a0"'),
    ("age,age,label\n1,2,0\n", 'two columns are called "age"'), ("label\n1\n0\n", "expected columns of inputs beside"),
    ("day,label\n2024-01-01,0\n2024-01-02,1\n", 'column "day": expected numbers or texts, found date32'),
    ("age,label\n1,-1\n2,1\n", "expected targets of 0 or more, found -1"), ("", "no CSV file"),
    ("\x00\xff", "no CSV file"),
    ("age,label\n1,0\n2,1\n".encode("utf-16"), r"^people\.csv: no CSV file: is UTF-16: save it as UTF-8$"),
    ("age,label\n1,caf\u00e9\n".encode("latin-1"), r"^people\.csv: no CSV file: is no UTF-8 text: save it as UTF-8$")])
def test_what_is_wrong_with_a_file_is_said_with_its_line(text: str | bytes, said: str) -> None:
    raw = text.encode() if isinstance(text, str) else text
    Path("people.csv").write_bytes(raw)
    with pytest.raises(DataError, match=said):
        load(spec(columns=None) if b"writer" not in raw else spec())


def scenario(text: str = "", **data: Any) -> Scenario:
    return load_scenario({
        "emul": 1, "name": "people", "seed": 1, "topology": {"generator": "star", "clients": 3},
        "links": [{"match": "*", "latency": "1 ms"}], "compute": {"mode": "zero"}, "schemes": ["fedavg"],
        "task": {"data": spec(directory="many.csv", **data), "partition": {"by": "writer"}, "model": "logistic",
                 "solver": {"sgd": {"lr": 0.5, "steps": 5, "batch": 16}}}, "stop": {"rounds": 4}})


def test_a_scenario_trains_on_a_file_and_a_mistake_stands_at_its_key(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    age = rng.uniform(0, 100, 400)
    lines = [f"{a:.3f},{('x', 'y')[k % 2]},{w},{'old' if a > 50 else 'young'}"
             for k, (a, w) in enumerate(zip(age, rng.choice(["ann", "bob", "cy"], 400), strict=True))]
    Path("many.csv").write_text("\n".join(["age,kind,writer,label", *lines]))
    result = engine.run(scenario(), workers=0, out=tmp_path / "runs")[0]
    assert result.summary is not None
    assert result.summary["accuracy"] > 0.9
    assert missing(spec()) is None
    with pytest.raises(ScenarioError, match=r'task\.data\.colums  .*did you mean "columns"'):
        scenario(colums="writer")
    with pytest.raises(ScenarioError, match=r'task\.data.*unknown column "labell"; did you mean "label"'):
        scenario(y="labell")


def numbers(text: str, **more: Any) -> np.ndarray:
    """The inputs of a table as they are, its rows in one order."""
    Path("table.csv").write_text(text)
    found = load({"set": "csv", "directory": "table.csv", "y": "label", "normalise": {"mean": 0, "std": 1}, **more})
    return np.sort(np.concatenate([np.asarray(found.train_x), np.asarray(found.test_x)]), axis=0)


GOOD = [[-3.0, 7.0], [0.0, 9.0], [1.5, 1000.0], [2.0, 1e4]]


@pytest.mark.parametrize("text", [
    "a,b,label\n1.5,7,0\n-3,9,1\n2,1e3,0\n0,10000,1\n",
    "a;b;label\n1,5;7;0\n-3,0;9;1\n2;1000;0\n,0;1e4;1\n",
    "a\tb\tlabel\n1,5\t7\t0\n-3\t9\t1\n2\t1000\t0\n0\t10000\t1\n",
    "a|b|label\r\n1.5|7|0\r\n-3|9|1\r\n2|1000|0\r\n0|10000|1\r\n",
    "# made by a spreadsheet\n\nsep=;\na;b;label;;\n1,5;7;0;;\n# a pause\n-3;9;1;;\n2;1000;0;;\n0;10000;1;;\n",
    "\ufeffa,b,label,\n1.5,7,0,\n-3, 9,1,\n2 ,1000,0,\n0,10000,1,\n",
    ",a, b, label\n7,1.5,7,0\n8,-3,9,1\n9,2,1000,0\n10,0,10000,1\n",                     # as pandas writes its index
    'Unnamed: 0,"a","b","label"\n7,"1.5","7","0"\n8,"-3","9","1"\n9,"2","1000","0"\n10,"0","10000","1"\n'])
def test_columns_of_numbers_are_numbers_however_they_are_written(text: str) -> None:
    assert numbers(text).tolist() == GOOD


@pytest.mark.parametrize("mark", ["?", "NA", "nan", "", "-", " ?", "N/A", "null"])
@pytest.mark.parametrize("between", [",", ";"])
def test_a_mark_of_a_missing_value_is_told_or_left_out_or_the_mean(mark: str, between: str) -> None:
    text = f"a,b,label\n\n1,10,0\n2,20,1\n{mark},30,0\n4,40,1\n5,50,0\n".replace(",", between)
    with pytest.raises(DataError, match=r'^table\.csv: line 5: no value in column "a"; such a row can be left out: '
                                        "missing: drop; or the mean of the column be put there: missing: mean$"):
        numbers(text)
    assert numbers(text, missing="drop").tolist() == [[1, 10], [2, 20], [4, 40], [5, 50]]
    with_mean = numbers(text, missing="mean", test=0.2)
    assert with_mean.shape == (5, 2)
    known = load({"set": "csv", "directory": "table.csv", "y": "label", "missing": "mean",
                  "normalise": {"mean": 0, "std": 1}})
    rows = {row[1]: row[0] for row in np.concatenate([np.asarray(known.train_x), np.asarray(known.test_x)]).tolist()}
    others = [a for b, a in ((b, a) for a, b in np.asarray(known.train_x).tolist()) if b != 30]
    assert rows[30] == pytest.approx(np.mean(others))
    assert known.classes == 2                                   # labels stay integers


def test_a_missing_target_has_no_mean_and_is_left_out_as_an_integer() -> None:
    text = "a,label\n1,0\n2,\n3,1\n4,2\n"
    with pytest.raises(DataError, match=r'line 3: no value in column "label"; such a row .* left out: missing: drop$'):
        numbers(text, missing="mean")
    assert numbers(text, missing="drop").tolist() == [[1], [3], [4]]
    found = load({"set": "csv", "directory": "table.csv", "y": "label", "missing": "drop"})
    assert (found.classes, found.train_y.dtype.kind) == (3, "i")
    assert found.notes[0] == "table.csv: missing values in label: 1 of 4 rows left out"


@pytest.mark.parametrize(("cells", "said"), [
    (["1", "2", "1.234,56", "4"], r'line 4: column "a": expected a number such as 1234\.5, as 3 of its 4 values are'),
    (["1 234", "2 000", "3 100", "4 000"], 'line 2: column "a": .* as 0 of its 4 values are, found "1 234"'),
    (["1.234", "2,5", "3,5", "4,0"], 'line 2: column "a": .* found "1.234"; a column of texts'),
    (["12%", "13%", "14%", "9%"], 'found "12%"; a column of texts is named in categories'),
    (["$12", "$13", "$14.5", "$9"], r'found "\$12"; a column of texts'),
    (["5.5 kg", "7 kg", "3 kg", "1 kg"], 'found "5.5 kg"; a column of texts'),
    (["\u22125", "\u22127", "3", "1"], 'found "\u22125"; a column of texts'),
    (["1'200", "3'400", "2'000", "1'000"], """found "1'200"; a column of texts"""),
    (["1", "2", "inf", "4"], 'line 4: column "a": expected a finite number, found inf')])
def test_a_column_of_numbers_never_becomes_texts_without_a_word(cells: list[str], said: str) -> None:
    text = "a;label\n" + "".join(f"{cell};{k % 2}\n" for k, cell in enumerate(cells))
    with pytest.raises(DataError, match=said):
        numbers(text)
    assert numbers(text, categories="a").shape == (4, 4)        # as one says
    assert load({"set": "csv", "directory": "table.csv", "y": "label", "categories": ["a"]}).notes[-1] == (
        "table.csv: 3 training and 1 test samples, 4 inputs: 0 columns of numbers, texts as zeros and ones: 4 of a; "
        "label: 2 classes")


def test_a_mark_behind_the_first_mebibyte_is_seen() -> None:
    cells = ["1.5"] * 400_000
    cells[-1] = "?"
    Path("table.csv").write_text("a,label\n" + "".join(f"{cell},{k % 2}\n" for k, cell in enumerate(cells)))
    with pytest.raises(DataError, match='line 400001: no value in column "a"'):
        load({"set": "csv", "directory": "table.csv", "y": "label"})

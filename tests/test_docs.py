"""The documents say what is true of the code: names that exist, keys and columns that are complete, code that runs."""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import inspect
import pkgutil
import re
from dataclasses import fields
from pathlib import Path

import pytest
from typer.main import get_command

import emul.protocols
from benchmarks.document import read
from emul import engine
from emul.base import rows
from emul.base.errors import ScenarioError
from emul.cli import main, options  # noqa: F401  (`main` brings all commands)
from emul.cli.options import app
from emul.learning import data, models, partition, solver
from emul.primitives import robust
from emul.record.journal import MemoryJournal
from emul.record.summary import Facts, summarise
from emul.record.tables import COLUMNS, columns, derive
from emul.registry import attacks, schemes
from emul.roles import Node
from emul.scenario import links, load, loads
from emul.scenario.schema import sections as section_models
from emul.scenario.task import TASK_KEYS
from emul.study import done
from emul.study import tables as study_tables
from emul.study.comparison import METRICS
from emul.testing import Shuffled

ROOT = Path(__file__).resolve().parents[1]
README = "README.md"
DOCUMENTS = [README, *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")),
             *sorted(f"docs/{folder}/{path.name}" for folder in ("decisions", "schemes", "studies", "reproductions")
                     for path in (ROOT / "docs" / folder).glob("*.md"))]
REFERENCE = re.compile(r"`((?:emul|tests)/[\w/]+\.py)(?::\s+([\w.]+))?`")
DECISIONS = [name for name in DOCUMENTS if name.startswith("docs/decisions/") and not name.endswith("README.md")]


def text(name: str) -> str:
    """The page with its tables, those that stand apart included."""
    return read(ROOT / name)


def blocks(name: str, language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text(name), re.MULTILINE | re.DOTALL)
    return [block for kind, block in found if kind == language]


def sections(name: str) -> dict[str, str]:
    """Heading -> what stands below it, up to the next heading of any level; headings in code blocks are none."""
    bare = re.sub(r"^```.*?^```$", "", text(name), flags=re.MULTILINE | re.DOTALL)
    parts = re.split(r"^#{1,3} (.+)$", bare, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def first_cells(section: str) -> set[str]:
    """What stands in backticks in the first column of the tables."""
    return {word for line in section.splitlines() if line.startswith("|")
            for word in re.findall(r"`([^`]+)`", line.split("|")[1])}


def scenarios(name: str) -> list[str]:
    return [block for block in blocks(name, "yaml") if block.startswith("emul: 1")]


# --- architecture.md ------------------------------------------------------------------------------------------------

def test_every_folder_of_emul_has_a_sentence_in_the_architecture() -> None:
    folders = {str(path.parent.relative_to(ROOT)) for path in (ROOT / "emul").rglob("*.py")} - {"emul"}
    folders = {folder for folder in folders if not folder.startswith("emul/schemes/")}      # each says it at its head
    table = sections("docs/architecture.md")["Folders"]
    said = dict(re.findall(r"^\| `(emul/[\w/]+)` \| (\S.*\.) \|$", table, re.MULTILINE))
    assert set(said) == folders


def test_every_name_of_code_in_the_documents_exists() -> None:
    found = [(name, *match) for name in DOCUMENTS      # the table of files that moved names those of before
             for match in REFERENCE.findall(text(name).partition("\n### Files that moved")[0])]
    missing = [f"{name}: {path}: {place}" for name, path, place in found
               if not (ROOT / path).is_file() or (place and not _defines(ROOT / path, place.split(".")))]
    assert missing == []
    assert len(found) > 40


def _defines(path: Path, names: list[str]) -> bool:
    body: list[ast.stmt] = ast.parse(path.read_text()).body
    for name in names:
        found = next((n for n in body if name in _names(n)), None)
        if found is None:
            return False
        body = getattr(found, "body", [])
    return True


def _names(statement: ast.stmt) -> set[str]:
    """What a statement at the top of a module or class gives a name to."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return {target.id for target in targets if isinstance(target, ast.Name)}


def test_the_architecture_fits_into_half_an_hour_of_reading() -> None:
    assert len(text("docs/architecture.md").split()) <= 2500


@pytest.mark.parametrize("name", DECISIONS)
def test_a_decision_says_what_why_what_else_at_which_price_and_which_tests_hold_it(name: str) -> None:
    found = sections(name)
    assert list(found)[1:] == ["Decision", "Reasons", "Alternatives", "Price", "Tests"]
    assert all(found[heading].strip() for heading in list(found)[1:])
    held = [line for line in found["Tests"].splitlines() if line]
    assert all(REFERENCE.fullmatch(line.removeprefix("- ")) and "`tests/" in line for line in held)


def test_every_decision_is_in_the_index_under_its_title() -> None:
    index = dict(re.findall(r"^- \[(.+)\]\(([\w-]+\.md)\)$", text("docs/decisions/README.md"), re.MULTILINE))
    titles = {text(name).partition("\n")[0].removeprefix("# "): Path(name).name for name in DECISIONS}
    assert index == titles


def test_links_between_documents_lead_somewhere() -> None:
    """Pages below `made/` are made with the site, which test_site.py builds without a dead link."""
    dead = [f"{name}: {link}" for name in DOCUMENTS for link in re.findall(r"\]\(([^)#:]+)\)", text(name))
            if not link.startswith("made/") and not (ROOT / name).parent.joinpath(link).is_file()]
    assert dead == []


# --- sentences --------------------------------------------------------------------------------------------------------

SENTENCE = re.compile(r"(?:^|(?<=[.!?:|] )|(?<=- ))(?:What|Who|Whoever|Whom|Whatever|Where) [^.?|]*[.?|]", re.MULTILINE)
AS_THEY_ARE = re.compile(r"docs/(fidelity|flower|reproductions/\w+)\.md")


@pytest.mark.parametrize("name", [name for name in DOCUMENTS if not AS_THEY_ARE.fullmatch(name)])
def test_no_sentence_has_a_clause_as_its_subject(name: str) -> None:
    """"What is lost is lost": readers whose first language is not English look for the noun. Questions are none."""
    bare = re.sub(r"^```.*?^```$|^#[^\n]*$", "", text(name), flags=re.MULTILINE | re.DOTALL)
    assert [" ".join(found.split()) for found in SENTENCE.findall(bare) if not found.endswith(("?", "|"))] == []


# --- scenario.md ----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", [README, "docs/scenario.md"])
def test_whole_scenarios_in_the_documents_load(name: str) -> None:
    found = scenarios(name)
    assert found
    for block in found:
        loads(block, check=False)
        assert loads(block).warnings == []


ARGUMENT = r"(?:^|, )([a-z_]\w*)(?=[,)=])"       # a name among the arguments of a call; types begin with a capital
_spec = importlib.util.spec_from_file_location("keys", ROOT / "docs" / "keys.py")
assert _spec is not None
assert _spec.loader is not None
keys = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(keys)
MODELS = {name: model for name, model in section_models().items() if model.__module__.startswith("emul.scenario.")}


def test_every_model_of_a_scenario_has_a_section() -> None:
    assert {name for names in keys.SECTIONS.values() for name in names} == set(MODELS)


def test_the_tables_of_keys_are_made_anew_and_stand_below_their_headings(tmp_path: Path) -> None:
    keys.write(tmp_path)
    made = {file.relative_to(tmp_path): file.read_text(encoding="utf-8") for file in tmp_path.rglob("*.csv")}
    assert made == {file: (ROOT / "docs" / file).read_text(encoding="utf-8") for file in made}, "python docs/keys.py"
    left = {file.relative_to(ROOT / "docs") for file in (ROOT / "docs" / "scenario").iterdir()} - set(made)
    assert left == set()
    said = {heading: first_cells(section) for heading, section in sections("docs/scenario.md").items()}
    missing = {heading: {row[0].strip("`") for row in keys.of_headings()[keys.file(heading)]} - said[heading]
               for heading in keys.SECTIONS}
    assert {heading for heading, left in missing.items() if left} == set()


def test_every_attack_is_explained_with_its_parameters() -> None:
    section = text("docs/scenario.md").partition("\n## attacks\n")[2].partition("\n## compute\n")[0]
    for kind in attacks.KINDS:
        for name, attack in attacks.known(kind).items():
            row = next((line for line in section.splitlines() if line.startswith(f"| `{name}` |")), "")
            assert row, f"{kind} {name}"
            fields = {f.name for f in dataclasses.fields(attacks.parameters(attack))}
            assert fields <= set(re.findall(r"`(\w+)`", row)), f"{kind} {name}"


def test_every_robust_rule_is_explained_with_its_parameters() -> None:
    for name, rule in robust.RULES.items():
        row = next((line for line in sections("docs/scenario.md")["aggregate"].splitlines()
                    if line.startswith(f"| `{name}` |")), "")
        assert {f.name for f in dataclasses.fields(rule.params)} <= set(re.findall(r"`(\w+)`", row)), name


def test_other_names_of_bandwidth_are_all_told() -> None:
    assert all(f"`{name}`" in sections("docs/scenario.md")["links"] for name in links.BANDWIDTH_NAMES)


def test_the_task_section_names_every_key_and_every_built_in_thing() -> None:
    section = sections("docs/scenario.md")["task"]
    said = set(re.findall(r"`([^`]+)`", section))
    options = {f.name for kind in solver.SOLVERS.values() for f in fields(kind)}
    wanted = {*TASK_KEYS, *data.BUILT_IN, *models.BUILT_IN, *options, "set", "directory", "normalise",
              "held_out"}
    assert wanted - said == set()
    assert all(re.search(rf"`\{{?{rule}\b", section) for rule in partition.RULES)


def test_the_errors_shown_are_those_that_are_raised() -> None:
    shown = next(b for b in blocks("docs/scenario.md", "") if b.startswith("bad.yaml"))
    wrong = """emul: 1
name: bad
seed: 7
topology: {generator: star, clients: 10}
links:
  - {match: "*", latency: 20, bandwidth: 20 Mbit/s}
  - {match: "client*->server", outage: {model: bernoulli, p: 1.4, per: round}}
task:
  data: {set: digits}
  model: digits_cn
  solver: {sgd: {lr: 0.1, steps: 5, batch: 32}}
compute: {mode: zero}
schemes:
  - {name: fedavgg}
  - {name: secagg, threshold: 40}
stop: {round: 30}
"""
    with pytest.raises(ScenarioError, match=r"^bad\.yaml: 5 errors\n") as caught:
        loads(wrong, "bad.yaml")
    assert str(caught.value) == shown.strip()


# --- run-directory.md -----------------------------------------------------------------------------------------------

@pytest.mark.parametrize("table", COLUMNS)
def test_every_column_of_a_table_is_explained(table: str) -> None:
    assert first_cells(sections("docs/run-directory.md")[table]) == set(COLUMNS[table])


def test_every_row_of_a_journal_is_explained_with_its_fields() -> None:
    lines = re.findall(r"^\| (\d+) \| `(\w+)` \| ([\w, ]+) \|", sections("docs/run-directory.md")["Journal"],
                       re.MULTILINE)
    assert {int(number): (kind, *said.split(", ")) for number, kind, said in lines} == rows.NAMES


def test_every_key_of_a_summary_is_explained() -> None:
    header = {"names": ["server"], "roles": ["server"], "vertices": [0], "network": ["server"], "deciders": [0],
              "groups": {"slow": []}}
    background = [("client1", "server", 3, 2, 1)]
    summary = summarise(derive(columns([]), header), Facts("fedavg", 0, 0.0, "00" * 16, background=background))
    assert first_cells(sections("docs/run-directory.md")["summary.json"]) == set(summary)


# --- studies.md -------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("table", study_tables.COLUMNS)
def test_every_column_of_a_study_is_explained(table: str) -> None:
    assert first_cells(sections("docs/studies.md")[table]) == set(study_tables.COLUMNS[table])


def test_every_column_of_a_table_of_finished_cells_is_explained() -> None:
    assert first_cells(sections("docs/studies.md")["done"]) - {"+", "~"} == set(done.COLUMNS)


def test_the_metrics_of_a_comparison_are_explained() -> None:
    assert first_cells(sections("docs/studies.md")["What is compared"]) == set(METRICS)


# --- writing-a-scheme.md and the README -----------------------------------------------------------------------------

def test_everything_that_a_node_offers_is_explained() -> None:
    """At the call itself; docs/sheet-node.md has a line of each (tests/test_sheets.py)."""
    silent = [name for name, _ in inspect.getmembers(Node) if not name.startswith("_") and not getattr(
        Node, name).__doc__ and name not in ("id", "name", "role", "task", "now_ns", "world")]
    assert silent == []


def test_every_protocol_has_a_line() -> None:
    table, = (text for text in sections("docs/writing-a-scheme.md").values() if "| protocol |" in text)
    assert first_cells(table) == {module.name for module in pkgutil.iter_modules(emul.protocols.__path__)}


def test_the_scheme_of_the_readme_has_at_most_20_lines() -> None:
    code, = blocks(README, "python")
    assert len([line for line in code.splitlines() if line.strip()]) <= 20


SMALL = """
emul: 1
name: docs
seed: 1
topology: {topology}
links: [{{match: "*", latency: 20 ms, bandwidth: 20 Mbit/s, outage: {{model: bernoulli, p: 0.2}}}}]
task: {{data: {{set: digits}}, model: digits_cnn, solver: {{sgd: {{lr: 0.1, steps: 2, batch: 32}}}}}}
compute: {{mode: zero}}
schemes: [{scheme}]
stop: {{rounds: 2}}
"""


@pytest.mark.parametrize(("document", "name", "topology"), [
    ("docs/writing-a-scheme.md", "docs_fedavg", "{generator: star, clients: 3}"),
    (README, "my_gossip", "{generator: complete, peers: 3}")])
def test_a_scheme_of_the_documents_can_be_imported_and_run(
        document: str, name: str, topology: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if document == README:              # a name that emul has itself would be refused
        assert f"Save it as `{name}.py`" in text(README)
    (tmp_path / f"{name}.py").write_text(blocks(document, "python")[0])
    (tmp_path / "s.yaml").write_text(SMALL.format(topology=topology, scheme=name))
    monkeypatch.syspath_prepend(tmp_path)
    scenario = load(tmp_path / "s.yaml", plugins=[name])
    result, = engine.run(scenario, workers=0, out=tmp_path / "runs", plugins=[name])
    assert result.error is None
    assert result.summary is not None
    assert (result.summary["rounds"], result.summary["invariants"]) == (2, "hold")


TREE = "{generator: tree, branching: 2, height: 2, roles: {server: [n1], edge: [n2, n3], client: {rule: leaves}}}"


def test_nested_rounds_of_the_documents_run_beside_a_flat_scheme(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = next(block for block in blocks("docs/writing-a-scheme.md", "python") if "edge_rounds" in block)
    (tmp_path / "docs_hierarchical.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    plugins = ["docs_hierarchical"]
    text = SMALL.format(topology=TREE, scheme="{name: docs_hierarchical, edge_rounds: 3}, fedavg")
    scenario = loads(text.replace(", outage: {model: bernoulli, p: 0.2}", ""), "s", plugins=plugins)
    nested, flat = engine.run(scenario, workers=0, out=tmp_path, plugins=plugins)
    assert nested.error is None
    assert nested.summary is not None
    assert flat.summary is not None
    assert (nested.summary["rounds"], nested.summary["invariants"], nested.summary["idle"]) == (2, "hold", [])
    assert flat.summary["idle"] == ["n2", "n3"]
    assert nested.summary["messages_sent"] == 2 * 2 * (2 + 3 * 4)       # rounds, up and down, edges and their clients
    assert nested.summary["accuracy"] > flat.summary["accuracy"]        # it has learnt three times as often
    wiring = engine.wire(scenario, *scenario.schemes[0], workers=3, plugins=plugins)
    journal = MemoryJournal(engine.header(wiring))
    engine.execute(wiring, Shuffled(3), journal)
    assert journal.close() == nested.summary["digest_journal"]

    once = loads(text.replace("edge_rounds: 3", "edge_rounds: 1").replace(", outage: {model: bernoulli, p: 0.2}", ""),
                 "s", plugins=plugins)
    nested, flat = engine.run(once, workers=0, out=tmp_path, plugins=plugins)
    assert nested.summary is not None
    assert flat.summary is not None
    assert nested.summary["accuracy"] == pytest.approx(flat.summary["accuracy"], abs=0.005)     # means of means

    lossy, _ = engine.run(loads(text, "s", plugins=plugins), workers=0, out=tmp_path, plugins=plugins)
    assert lossy.error is None
    assert lossy.summary is not None
    assert lossy.summary["messages_lost"] > 0
    with pytest.raises(ScenarioError, match=r"places +n4 has no edge on its way to the server"):
        loads(text.replace("edge: [n2, n3]", "edge: [n3]"), "s", plugins=plugins)


def test_the_test_of_the_documents_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scheme, *others = blocks("docs/writing-a-scheme.md", "python")
    test = next(block for block in others if "def test_" in block)
    (tmp_path / "myscheme.py").write_text(scheme)
    monkeypatch.syspath_prepend(tmp_path)
    space: dict[str, object] = {}
    exec(compile(test, "writing-a-scheme.md", "exec"), space)       # our own document, not input
    tests = [value for name, value in space.items() if name.startswith("test_")]
    assert len(tests) == 1
    tests[0]()      # type: ignore[operator]


# --- commands.md, schemes/README.md --------------------------------------------------------------------------------

def test_every_command_has_a_line() -> None:
    known = set()
    for name, command in get_command(app).commands.items():         # type: ignore[attr-defined]
        known |= {f"{name} {sub}" for sub in command.commands} if hasattr(command, "commands") else {name}
    cells = {cell for section in sections("docs/commands.md").values() for cell in first_cells(section)}
    said = [re.match(r"emul ([a-z -]*[a-z])(?= |$)", cell) for cell in cells]
    assert {found[1].partition(" -")[0] for found in said if found} == known


def test_every_exit_code_is_told() -> None:
    cells = re.findall(r"^\| ([\d, ]+) \|", sections("docs/commands.md")["Exit codes"], re.MULTILINE)
    told = {int(code) for cell in cells for code in cell.split(",")}
    assert told == {options.OK, options.FAILED, options.BAD_INPUT, options.VIOLATED, options.INTERRUPTED,
                    options.TERMINATED}


def test_every_scheme_has_its_place_on_the_page_of_schemes() -> None:
    named = set(re.findall(r"`([a-z_]+)`", text("docs/schemes/README.md")))
    assert set(schemes.known()) - named == set()


# --- docstrings -------------------------------------------------------------------------------------------------------

RIDDLE = re.compile(r"(What|Who|Whom|Whose|Where|Which|Whether|How|When|Why|Whatever|Whoever|Wherever|Whenever)\b")
SUBJECT = re.compile(r"(What|Who|Whom|Whatever|Whoever)\b")


def riddles(doc: str) -> list[str]:
    """Sentences that name their subject by a clause: the first, if it begins with one, and any other whose subject is
    one. "When ..., the kernel sends ..." is a sentence only inside a text: at its head stands the thing itself."""
    first, *others = re.split(r"(?<=[.?!])\s+(?=[A-Z`])", " ".join(doc.split()))
    return [sentence for sentence, begin in [(first, RIDDLE), *((one, SUBJECT) for one in others)]
            if begin.match(sentence) and not sentence.endswith("?")]


@pytest.mark.parametrize(("doc", "found"), [
    ("What a client holds.", 1), ("Whether it ends.", 1), ("The inbox. What lies in it goes\n    first.", 1),
    ("When a node enters a round, it reads.", 1), ("Read it. When a node enters a round, it reads.", 0),
    ("The messages that a client holds.", 0), ("Which of both is shorter? The first.", 0), ("Whatsoever", 0)])
def test_a_riddle_is_known_by_its_first_word(doc: str, found: int) -> None:
    assert len(riddles(doc)) == found


def test_no_docstring_is_a_riddle() -> None:
    """Every string that stands as a statement: docstrings, and the texts below the fields of a class."""
    texts = [(path, node.lineno, node.value.value) for folder in ("emul", "benchmarks")
             for path in sorted((ROOT / folder).rglob("*.py"))
             for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
             if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
             and isinstance(node.value.value, str)]
    assert len(texts) > 3000
    found = [f"{path.relative_to(ROOT)}:{line}: {one}" for path, line, text_ in texts for one in riddles(text_)]
    assert found == [], "say what the thing is: `The messages that a client holds`, not `What a client holds`"


# --- the README -----------------------------------------------------------------------------------------------------

def test_the_readme_has_exactly_two_set_up_commands_and_they_are_targets() -> None:
    below = sections(README)["Set-up"].partition("**With a GPU")[0]
    commands = re.findall(r"^    (.+)$", below, re.MULTILINE)
    assert commands == ["make demo", "make test"]
    assert all(re.search(rf"^{c.removeprefix('make ')}:", text("Makefile"), re.MULTILINE) for c in commands)


def test_the_readme_is_short_and_leads_to_the_reference() -> None:
    assert len(text(README).split()) < 900
    assert all(f"](docs/{page})" in text(README) for page in (
        "commands.md", "schemes/README.md", "scenario.md", "architecture.md", "decisions/README.md"))


def test_the_readme_keeps_a_place_for_the_table_of_a_real_run() -> None:
    assert re.search(r"^<!-- quickstart table -->$.*^<!-- end -->$", text(README), re.MULTILINE | re.DOTALL)


def test_wherever_keys_are_made_it_says_that_they_are_for_emulation_only() -> None:
    makes = re.compile(r'\.bytes\(KEY_BYTES\)|"ed25519"|def key_pair|def public_key')
    found = [file for file in sorted((ROOT / "emul").rglob("*.py")) if makes.search(file.read_text())]
    assert len(found) >= 6
    silent = [file.relative_to(ROOT) for file in found if "for emulation only" not in " ".join(
        file.read_text().lower().split())]
    assert silent == []

"""The site: built strictly from the documents and the code, every link leading somewhere, searchable offline."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from site_source import load_made

from emul.registry import schemes

pytest.importorskip("sphinx", reason="the extra `docs` brings Sphinx")

ROOT = Path(__file__).resolve().parents[1]


# stems of words of questions that users asked -> a page that answers
ASKED = {"cite": "citing", "bibtex": "citing", "quota": "questions", "meter": "questions", "reorder": "questions",
         "gib": "questions", "join": "questions", "straggler": "studies/stragglers", "optuna": "tasks",
         "hydra": "tasks", "latex": "studies", "slurm": "cluster", "resum": "commands",
         "protect": "made/schemes", "lora": "fine-tuning", "stale": "schemes/asynchronous"}


@pytest.fixture(scope="module")
def made() -> ModuleType:
    return load_made()


@pytest.mark.parametrize(("written", "shown"), [
    ("see [studies](studies.md#done)", "see [studies](studies.md#done)"),
    ("[a](https://example.org/x)", "[a](https://example.org/x)"),
    ("[below](#here)", "[below](#here)"),
    ("![figure](images/report-round.png)", "![figure](images/report-round.png)"),
    ("[own](../scenarios/own/diabetes.py)", "own (`scenarios/own/diabetes.py`)"),
    ("[`scenarios/tree.yaml`](../scenarios/tree.yaml)", "`scenarios/tree.yaml`"),
    ("[cells](reproductions/data/a.csv)", "cells (`docs/reproductions/data/a.csv`)")])
def test_links_to_what_the_site_does_not_have_show_its_path(made: ModuleType, written: str, shown: str) -> None:
    source = [written]
    made.links(None, "tour", source)
    assert source == [shown]


def test_docstrings_are_plain_text(made: ModuleType) -> None:
    lines = ["w <- w + *x* of `Keys`.", "", "    a_b = 1", "", "Then more_."]
    made.plain(None, "function", "f", None, None, lines)
    assert made._escaped("some `Keys`s") == "some ``Keys``\\ s"
    assert lines == ["w <- w + \\*x\\* of ``Keys``.", "", "", "::", "", "    a_b = 1", "", "", "Then more\\_.", ""]


def test_a_page_of_a_scheme_has_its_equations_parameters_messages_and_example(made: ModuleType) -> None:
    page = made._scheme("fair_seccogc", ())
    scheme = schemes.find("fair_seccogc")
    assert all(f"| `{key}` |" in page for key in made.parameters(scheme.params))
    assert all(f"| `{kind.__name__}` |" in page for kind in scheme.messages)
    assert scheme.example.strip() in page
    assert "../schemes/seccogc.md" in page


def test_the_table_of_schemes_says_what_each_is_and_protects(made: ModuleType) -> None:
    row, = (line for line in made._index(["secagg", "adpsgd"]).splitlines() if line.startswith("| [secagg]"))
    assert "Secure aggregation by double masking. Bonawitz et al., CCS 2017" in row
    assert "a client's update from the server and fewer than t colluding clients" in row


@pytest.mark.slow
@pytest.mark.timeout(1100)
def test_the_site_is_built_without_a_warning_and_is_whole(tmp_path: Path) -> None:
    """Without the pictures, which run every scheme: `make docs` makes them."""
    done = subprocess.run([sys.executable, "-m", "sphinx", "-q", "--fail-on-warning", "--keep-going", "-b", "html",
                           str(ROOT / "docs"), str(tmp_path / "html"), "-d", str(tmp_path / "trees")],
                          env={**os.environ, "EMUL_DOCS_FIGURES": "none"}, capture_output=True, text=True, timeout=1000)
    assert (done.returncode, done.stderr) == (0, "")
    html = tmp_path / "html"
    pages = {path.relative_to(html).as_posix() for path in html.rglob("*.html")}
    assert pages > {f"made/scheme-{name}.html" for name in schemes.known()}
    assert pages > {path.relative_to(ROOT / "docs").with_suffix(".html").as_posix()
                    for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts}
    listed = (html / "llms.txt").read_text(encoding="utf-8")
    assert listed.startswith("# emul\n\n> `emul` runs federated-learning schemes")
    assert {f"{page}.html" for page in ("tour", "schemes/secure_aggregation", "made/keys", "citing")} <= set(
        re.findall(r"\]\(([\w/-]+\.html)\)", listed)) <= pages
    assert all(line.endswith((".", "?", ":", ")")) for line in listed.splitlines() if line.startswith("- "))
    written = [page for page in pages if not page.startswith("reports/")]      # those have scripts with links in them
    dead = [f"{page}: {link}" for page in written for link in _local(html / page) if not (html / page).parent.joinpath(
        link).exists()]
    assert dead == []
    index = (html / "searchindex.js").read_text(encoding="utf-8")
    found = json.loads(index[index.index("(") + 1:index.rindex(")")])
    for word, page in ASKED.items():            # the search box stems words as the index does
        numbers = [found[where].get(word, []) for where in ("terms", "titleterms")]
        number = found["docnames"].index(page)
        assert any(one == number or (isinstance(one, list) and number in one) for one in numbers), word
    assert not re.search(r"""(src|href)="https?://[^"]+\.(js|css)""", (html / "index.html").read_text(encoding="utf-8"))


def _local(page: Path) -> set[str]:
    found = re.findall(r'(?:href|src)="([^"#?]+)', page.read_text(encoding="utf-8"))
    return {link for link in found if "://" not in link and not link.startswith(("mailto:", "data:"))}

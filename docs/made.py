"""Pages of the site that are made of the code: a page a scheme, the keys of a scenario, the Python API, a gallery.

A page of a scheme shows a round of its own `EXAMPLE`, drawn from a run that is made here. EMUL_DOCS_FIGURES=none leaves
these runs out.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import io
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import Any

import vl_convert

import emul
from benchmarks import document, leagues
from emul.citing import references
from emul.cli import app
from emul.registry import schemes
from emul.report import data, files
from emul.report.figures import space_time
from emul.report.sequence import message_sequence, sequences
from emul.report.spacetime import one_round
from emul.roles import Scheme
from emul.roles.evaluation import KINDS
from emul.scenario import loads
from emul.scenario.schema import parameters, schema
from emul.study.league_runs import page

HERE = Path(__file__).resolve().parent
MADE = HERE / "made"
SCHEME_PAGES = HERE / "schemes"

# what users import; everything else is the project's own
PUBLIC = ("emul.api", "emul.loop", "emul.roles", "emul.testing", "emul.learning", "emul.learning.node_task",
          "emul.scenario", "emul.network", "emul.schemes.ebs_cfl.masking", "emul.primitives.compress",
          "emul.primitives.dp", "emul.primitives.he", "emul.primitives.robust", "emul.record.load")


def write(app: object) -> None:
    """Sphinx is about to read: make all pages."""
    MADE.mkdir(exist_ok=True)
    names = schemes.known()
    drawn = os.environ.get("EMUL_DOCS_FIGURES") != "none"
    key, code = MADE / "figures.key", _code()
    anew = not key.exists() or key.read_text(encoding="utf-8") != code
    figures = _figures(names, MADE, anew) if drawn else {}
    for name in names:
        _save(f"scheme-{name}.md", _scheme(name, figures.get(name, ())))
    _save("schemes.md", _index(names))
    reports = _reports(MADE, anew) if drawn else ()
    _save("gallery.md", _gallery(figures, _shown(MADE, anew) if drawn else {}, reports))
    _save("keys.md", "\n".join(_keys(schema())))
    _save("api.md", _api())
    if drawn:
        key.write_text(code, encoding="utf-8")


def _code() -> str:
    """A digest of all that the pictures are made by: they are drawn again where it changes."""
    found = hashlib.blake2b(digest_size=16)
    for file in (*sorted((HERE.parent / "emul").rglob("*.py")), HERE / "made.py"):
        found.update(file.read_bytes())
    return found.hexdigest()


def _save(name: str, text: str) -> None:
    """Write a page, unless it is there as it is: Sphinx then leaves it alone."""
    path = MADE / name
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def place_reports(app: Any, error: Exception | None) -> None:
    """The site is built: put the reports of the gallery beside its pages."""
    if error is None and app.builder.name == "html":
        for file in MADE.glob("*.html"):
            Path(app.outdir, "reports").mkdir(exist_ok=True)
            shutil.copy(file, Path(app.outdir, "reports"))


def place_leagues(app: Any, error: Exception | None) -> None:
    """The site is built: put the page of each league that is whole, with its curves, beside the reports."""
    if error is None and app.builder.name == "html":
        for league, rows in leagues.leagues():
            if leagues.whole(league, rows):
                Path(app.outdir, "reports").mkdir(exist_ok=True)
                Path(app.outdir, "reports", f"league-{league.name}-{league.task}.html").write_text(
                    page(league, rows), encoding="utf-8")


def llms(app: Any, error: Exception | None) -> None:
    """The site is built: list its pages for assistants in `llms.txt`, each with its title and first sentence."""
    if error is not None or app.builder.name != "html":
        return
    title, _, rest = (HERE / "index.md").read_text(encoding="utf-8").removeprefix("# ").partition("\n\n")
    lines = [f"# {title}", "", "> " + rest.partition("\n\n")[0].replace("\n", " "), ""]
    for caption, pages in _listed(app.env):
        lines += [f"## {caption}", ""]
        lines += [f"- [{app.env.titles[page].astext()}]({page}.html){_begin(page)}" for page in pages] + [""]
    Path(app.outdir, "llms.txt").write_text("\n".join(lines), encoding="utf-8")


def _listed(env: Any) -> Iterator[tuple[str, list[str]]]:
    """Caption and pages of each part of the index."""
    from sphinx import addnodes

    for tree in env.get_doctree("index").findall(addnodes.toctree):
        yield tree["caption"], [page for page in tree["includefiles"] if not page.startswith("made/scheme-")]


def _begin(page: str) -> str:
    """The first sentence of a page, in plain text."""
    for part in (HERE / f"{page}.md").read_text(encoding="utf-8").split("\n\n"):
        if re.match(r"(?!```)[A-Z`*\[]", part):
            plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", part.replace("\n", " "))
            return ": " + re.split(r"(?<=[a-z`)][.?]) ", plain, maxsplit=1)[0]
    return ""


# --- schemes --------------------------------------------------------------------------------------------------------

def _scheme(name: str, figures: Sequence[str]) -> str:
    scheme = schemes.find(name)
    body = inspect.cleandoc(scheme.doc).partition("\n\n")[2]
    lines = [f"# {name}", "", _marked(scheme.headline), "", *_paragraphs(body.strip())]
    if further := _mentioned(name):
        lines += ["", "More: " + ", ".join(f"[{page}](../{page}.md)" for page in further) + "."]
    if figures:
        lines += ["", "## A round", "", "From a run of the example below: `emul run FILE`, then `emul report RUN`.", "",
                  *(f"![A round of {name}]({figure})\n" for figure in figures)]
    lines += ["", f"Its accuracy is of: {_accuracy(scheme)} ([kinds](schemes.md))."]
    lines += ["", "## Parameters", "", *_table(("key", "default", "what it is"), _parameters(scheme))]
    lines += ["", "## Roles and messages", "",
              *_table(("role", "placed at"), [(role, f"`{place}`") for role, place in _places(scheme)]), "",
              *_table(("message", "fields", "what it is"), _messages(scheme))]
    lines += ["", "## Example", "", "```yaml", scheme.example.strip(), "```", ""]
    if papers := [one.bibtex for one in references() if ("schemes", name) in one.uses]:
        lines += ["## BibTeX", "", f"`emul cite {name}` prints this, and the entry of emul:", "", "```bibtex",
                  "\n\n".join(papers), "```", ""]
    return "\n".join(lines)


def _parameters(scheme: Scheme[Any]) -> Iterator[tuple[str, ...]]:
    for key, one in parameters(scheme.params).items():
        default = f"`{one['default']}`" if "default" in one else ""
        kinds = " or ".join(f"`{value}`" for value in one["enum"]) if "enum" in one else ""
        yield f"`{key}`", default, ": ".join(filter(None, (kinds, _marked(one.get("description", "")))))


def _places(scheme: Scheme[Any]) -> Iterator[tuple[str, str]]:
    for role in scheme.roles:
        yield role, scheme.places.get(role, role)


def _messages(scheme: Scheme[Any]) -> Iterator[tuple[str, ...]]:
    for kind in scheme.messages:
        fields = ", ".join(f"`{field}`" for field in kind.__dataclass_fields__)
        yield f"`{kind.__name__}`", fields, _marked((inspect.getdoc(kind) or "").split("\n\n")[0].replace("\n", " "))


def _mentioned(name: str) -> list[str]:
    """Pages written by hand that are about this scheme."""
    pages = [*sorted(SCHEME_PAGES.glob("*.md")), *sorted((HERE / "reproductions").glob("*.md"))]
    pages = [page for page in pages if page.stem != "README"]         # it names all of them
    return [page.relative_to(HERE).with_suffix("").as_posix() for page in pages
            if page.stem == name or f"`{name}`" in document.read(page)]


def _index(names: list[str]) -> str:
    found = {name: schemes.find(name) for name in names}
    rows = [(f"[{name}](scheme-{name}.md)", _marked(one.headline), _accuracy(one), _marked(one.protects or "nothing"))
            for name, one in found.items()]
    toctree = ["```{toctree}", ":hidden:", "", *(f"scheme-{name}" for name in names), "```"]
    return "\n".join(["# All schemes", "", "Every scheme, and what it protects against whom.", "",
                      *_table(("scheme", "what it is", "accuracy of", "protects"), rows), "",
                      "*Accuracy of*: " + "; ".join(f"`{of}`: {what}" for of, what in KINDS.items())
                      + ". A comparison ranks no kind against another.", "", *toctree, ""])


def _accuracy(scheme: Scheme[Any]) -> str:
    return "; ".join(f"{of} with `{given.lower()}`" if given else of for given, of in scheme.accuracies().items())


def _gallery(figures: Mapping[str, Sequence[str]], shown: Mapping[str, str], reports: Sequence[str]) -> str:
    lines = ["# Gallery", "", "Reports and figures, each with the commands that made it.", ""]
    if reports:
        lines += ["## Ten reports", "", "`emul report` writes such a page, one file. These were made with the site, of "
                  "short runs of scenarios that `emul init .` writes.", ""]
    for name in reports:
        title, commands = REPORTS[name]
        lines += [f'<a href="../reports/{name}.html"><b>{title}</b></a>', "", "```sh", *commands, "```", ""]
    for title, command, pictures in PICTURES:
        lines += [f"## {title}", "", "```sh", command, "```", "", *(f"![{title}]({one})\n" for one in pictures)]
    if shown:
        lines += ["## A run of Fair-SecCoGC", "", "The example of [fair_seccogc](scheme-fair_seccogc.md), in Python: "
                  "`(run,) = emul.run(\"example.yaml\")`.", ""]
        for call, picture in shown.items():
            lines += [f"`run.plot.{call}`", "", f"![{call}]({picture})", ""]
    lines += ["## A round of every scheme", "", "Each from a run of its example, `run.plot.sequence(2)`; who computed, "
              "waited and sent, node by node, stands on its page.", ""]
    for name, drawn in figures.items():
        lines += [f"### [{name}](scheme-{name}.md)", "", f"![The messages of a round of {name}]({drawn[0]})", ""]
    return "\n".join(lines)


# name of the page -> title, commands
REPORTS = {
    "quickstart": ("Three ways to average over links that fail", (
        "emul run scenarios/quickstart.yaml --set stop.rounds=10 --quiet",
        "emul report runs")),
    "compared": ("A third of the clients is slow and on LTE: three schemes on three seeds, compared", (
        "emul compare scenarios/stragglers/groups.yaml --seeds 0:3 --set stop.rounds=8 --quiet --no-report",
        "emul report runs/groups-compare")),
    "swept": ("A sweep over losses and seeds", (
        'emul sweep scenarios/quickstart.yaml --schemes fedavg --grid "links[1].outage.p=0.1,0.3,0.5" --seeds 0:3 '
        "--set stop.rounds=8 --quiet",
        "emul report runs/quickstart-sweep")),
    "office": ("Laptops that walk through an office and share a radio cell", (
        "emul run scenarios/moving/office.yaml --quiet",
        "emul report runs")),
    "satellites": ("Satellites that meet a station now and then", (
        "emul run scenarios/moving/passes.yaml --quiet",
        "emul report runs")),
    "split": ("Split learning beside federated averaging", (
        "emul run scenarios/split/latency.yaml --set stop.rounds=5 --quiet",
        "emul report runs")),
    "tree": ("Forty places in a tree", (
        "emul run scenarios/tree.yaml --set stop.rounds=5 --quiet",
        "emul report runs")),
    "background": ("Seven patterns of background traffic", (
        "emul run scenarios/background/fleet.yaml --set stop.rounds=10 --quiet",
        "emul report runs")),
    "compressed": ("Codecs of updates", (
        "emul run scenarios/compression.yaml --set stop.rounds=10 --quiet",
        "emul report runs")),
    "attacked": ("Attackers against the mean and robust rules", (
        "emul run scenarios/robustness.yaml --set stop.rounds=4 --quiet",
        "emul report runs")),
}
# title, command, pictures: of runs that take longer than building a page may
PICTURES = (
    ("Three schemes side by side", "emul compare scenarios/quickstart.yaml --seeds 0:3\n"
     "emul report runs/quickstart-compare", ("../images/report-compare.png", "../images/report-phases.svg",
                                                "../images/report-sequence.svg")),
    ("A network with its load and losses, and a round in space and time",
     "emul compare scenarios/quickstart.yaml --seeds 0:3\nemul report runs/quickstart-compare",
     ("../images/report-network.png", "../images/report-round.png")),
    ("A round as wide as a column of a paper", "emul run scenarios/quickstart.yaml\n"
     "emul report runs/quickstart-fair_seccogc-1 --figures figures --size column", ("../images/round-column.png",)),
    ("Secure aggregation against clients, parameters and losses", "python -m benchmarks.secagg_networks",
     tuple(f"../images/secagg-{axis}.svg" for axis in ("n", "d", "loss"))))
CALLS = ("accuracy()", 'bytes(by="phase")', "network()", "losses()", "waiting()", "stragglers()")


def _draw(name: str, folder: Path) -> None:
    """Save the two pictures of a scheme."""
    with tempfile.TemporaryDirectory() as out:
        (run,) = emul.run(loads(schemes.find(name).example, name), workers=0, out=out, quiet=True)
        number = min(2, int(run.rounds["round"].max()))
        found = data.open_run(run.path)
        (sequence,) = sequences(found, [number])
        # as `run.plot.sequence` and `run.plot.round`, without charts of Altair, which take three times as long
        for kind, figure in (("sequence", message_sequence(sequence)),
                             ("round", space_time(one_round(found, data.waits(found), number)))):
            svg = vl_convert.vegalite_to_svg(files.vega_lite(figure))
            (folder / f"{kind}-{name}.svg").write_text(svg, encoding="utf-8")


def _figures(names: list[str], folder: Path, anew: bool) -> dict[str, list[str]]:
    """Scheme -> files of the pictures of the second round of its example: messages in order, space and time. anew: they
    are drawn, else only those that are not there."""
    from sphinx.util.display import status_iterator

    found = {name: [f"sequence-{name}.svg", f"round-{name}.svg"] for name in names}
    wanted = [name for name in names if anew or not all((folder / file).exists() for file in found[name])]
    with ProcessPoolExecutor() as pool:                         # half of the time on two cores
        drawn = pool.map(_draw, wanted, repeat(folder))
        for _ in status_iterator(drawn, "drawing a round of every scheme... ", length=len(wanted)):
            pass
    return found


def _shown(folder: Path, anew: bool) -> dict[str, str]:
    """Call of `run.plot` -> file of its picture, of one run. anew: as of `_figures`."""
    found = {call: f"gallery-{call.partition('(')[0]}.svg" for call in CALLS}
    if not anew and all((folder / file).exists() for file in found.values()):
        return found
    with tempfile.TemporaryDirectory() as out:
        (run,) = emul.run(loads(schemes.find("fair_seccogc").example, "gallery"), workers=0, out=out, quiet=True)
        drawn = (run.plot.accuracy(), run.plot.bytes(by="phase"), run.plot.network(), run.plot.losses(),
                 run.plot.waiting(), run.plot.stragglers())
        for call, picture in zip(CALLS, drawn, strict=True):
            picture.save(str(folder / found[call]))
    return found


def _report(name: str, folder: Path) -> None:
    """Run the commands of a report where `scenarios` lies, and save its page."""
    with tempfile.TemporaryDirectory() as here:
        for shipped in ("scenarios", "topologies"):
            Path(here, shipped).symlink_to(HERE.parent / shipped)
        # in this process, which has imported everything for the report before
        quiet = io.StringIO()
        with contextlib.chdir(here), contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
            for command in REPORTS[name][1]:
                app(shlex.split(command)[1:], standalone_mode=False)
        page, = (path for path in Path(here, "runs").rglob("report.html"))
        shutil.move(page, folder / f"{name}.html")


def _reports(folder: Path, anew: bool) -> list[str]:
    """The names of the reports, whose pages are then there. anew: as of `_figures`."""
    from sphinx.util.display import status_iterator

    wanted = [name for name in REPORTS if anew or not (folder / f"{name}.html").exists()]
    with ProcessPoolExecutor() as pool:
        made = pool.map(_report, wanted, repeat(folder))
        for _ in status_iterator(made, "making reports... ", length=len(wanted)):
            pass
    return list(REPORTS)


# --- keys of a scenario ---------------------------------------------------------------------------------------------

def _keys(document: Mapping[str, Any]) -> Iterator[str]:
    yield from ("# Keys of a scenario", "", "Every key that a scenario may have. [Scenario files](../scenario.md) "
                "explains them with examples. `emul schema` gives the same to an editor.", "")
    sections = {"Top level": document, **document.get("$defs", {})}
    for name, section in sections.items():
        rows = [(f"`{key}`", _kind(one), f"`{one['default']}`" if "default" in one else "",
                 _marked(one.get("description", ""))) for key, one in section.get("properties", {}).items()]
        if rows:
            yield from ("", f"## {name}", "", *_table(("key", "takes", "default", "what it is"), rows))
    yield ""


def _kind(one: Mapping[str, Any]) -> str:
    if "$ref" in one:
        name = one["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "enum" in one:
        return ", ".join(f"`{value}`" for value in one["enum"])
    if "const" in one:
        return f"`{one['const']}`"
    if "anyOf" in one or "oneOf" in one:
        kinds = dict.fromkeys(_kind(each) for each in one.get("anyOf", one.get("oneOf", ())))
        return " or ".join(filter(None, kinds))
    kind = one.get("type", "")
    if kind == "array":
        return f"list of {_kind(one.get('items', {})) or 'anything'}"
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


# --- the Python API -------------------------------------------------------------------------------------------------

def _api() -> str:
    lines = ["# Python API", "", "Every public name. [emul in Python](../python.md) shows them at work.", ""]
    for name in PUBLIC:
        lines += [f"## {name}", "", "```{eval-rst}", f".. automodule:: {name}", "   :members:",
                  *(["   :exclude-members: Scenario"] if name == "emul.scenario" else []),
                  *(["   :inherited-members: Exception"] if name.startswith("emul.learning") else []), "```", ""]
    return "\n".join(lines)


def plain(app: object, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Docstrings are plain text: names in backticks, and what is indented stays as it stands."""
    found: list[str] = []
    literal = False
    for line in lines:
        indented = line.startswith("    ") or line.startswith(">>>")
        if indented and not literal:
            found += ["", "::", ""]
        if literal and line.strip() and not indented:
            found.append("")
        literal = indented or (literal and not line.strip())
        if literal:
            found.append(f"    {line}" if line.startswith(">>>") else line)
        else:
            found.append(_escaped(line))
    lines[:] = [*found, ""]


def _escaped(line: str) -> str:
    parts = re.split(r"(`[^`]*`)", line)
    words = "".join(f"`{part}`" if part.startswith("`") else re.sub(r"([\\*|_])", r"\\\1", part) for part in parts)
    return re.sub(r"(``[^`]+``)(?=\w)", r"\1\\ ", words)          # as in `Scenario`s


# --- Markdown -------------------------------------------------------------------------------------------------------

def tables(app: Any, name: str, source: list[str]) -> None:
    """Long tables stand apart as CSV: the site shows them where the page links to them."""
    folder = (HERE / name).parent
    for file in document.apart(source[0]):
        app.env.note_dependency(str(folder / file))
    source[0] = document.whole(source[0], folder)


def links(app: object, name: str, source: list[str]) -> None:
    """What a page links to that the site does not have is a file of the project: its path is shown instead."""
    here = (HERE / name).parent

    def shown(match: re.Match[str]) -> str:
        text, path = match[1], match[2].partition("#")[0]
        target = (here / path).resolve()
        if not path or "://" in path or (target.is_relative_to(HERE) and target.suffix in (".md", ".png", ".svg")):
            return match[0]
        inside = os.path.relpath(target, HERE.parent)
        return f"`{inside}`" if text.strip("`") in (path, inside) else f"{text} (`{inside}`)"

    source[0] = re.sub(r"(?<!!)\[([^\[\]]*)\]\(([^)\s]+)\)", shown, source[0])


def _table(head: tuple[str, ...], rows: Any) -> list[str]:
    cells = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    if not cells:
        return ["None."]
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *("| " + " | ".join(row) + " |" for row in cells)]


def _paragraphs(text: str) -> list[str]:
    """A docstring as Markdown: what is indented becomes a block of code."""
    found: list[str] = []
    for block in re.split(r"\n\s*\n", text):
        found += ["", *(["```text", block, "```"] if block.startswith("    ") else [_marked(block)])]
    return found


def _marked(text: str) -> str:
    """Text in which stars and underscores mean nothing but in backticks."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([*_<\[\]$])", r"\\\1", part) for part in parts)

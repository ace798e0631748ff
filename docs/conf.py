"""Settings of the site: `make docs` builds it in docs/_build. `made.py` writes the pages that come from the code."""

from __future__ import annotations

import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import made  # noqa: E402
from pygments.lexers import TextLexer  # noqa: E402
from sphinx.application import Sphinx  # noqa: E402

project, author, copyright = "emul", "the emul authors", "the emul authors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
source_suffix = {".md": "markdown"}
root_doc = "index"
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "emul"
html_show_copyright = False
html_static_path = ["static"]
html_css_files = ["wide.css"]
html_js_files = ["sorted.js"]               # tables of the leagues, sorted and searched
html_search_scorer = str(HERE / "static" / "scorer.js")
html_theme_options = {"source_directory": "docs/", "source_branch": "main"}
if address := re.search(r"^repository-code: *(\S+)", (HERE.parent / "CITATION.cff").read_text("utf-8"), re.MULTILINE):
    html_theme_options["source_repository"] = address[1]

myst_heading_anchors = 4                    # links go to headings, as they do on a forge
suppress_warnings = ["myst.header"]         # a page may begin below the first level: changelog
highlight_language = "none"

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_inherit_docstrings = False
default_role = "code"


def setup(app: Sphinx) -> None:
    app.connect("builder-inited", made.write)
    app.connect("source-read", made.tables)
    app.connect("source-read", made.links)
    app.connect("build-finished", made.llms)
    app.connect("build-finished", made.place_reports)
    app.connect("build-finished", made.place_leagues)
    app.connect("autodoc-process-docstring", made.plain)
    app.add_lexer("csv", TextLexer)

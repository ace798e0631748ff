"""The sheets as HTML of one file each, and as PDF of one page each: `python docs/sheets.py FOLDER`.

The PDF is printed by Chromium; where there is none, the HTML alone is written, and a browser prints it in the same way.
"""

from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from markdown_it import MarkdownIt

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))       # for `benchmarks`, when it runs as a file

from benchmarks import document  # noqa: E402

SHEETS = {"commands": ("A4", 8.5), "sheet-scenario": ("A3", 8.0), "sheet-node": ("A3", 7.0)}     # paper, points of text
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
STYLE = """
@page { size: %(paper)s landscape; margin: 8mm }
:root { color-scheme: light dark }
body { font: 15px/1.35 sans-serif; max-width: 62em; margin: 1em auto; padding: 0 1em }
pre, code { font-family: monospace; font-size: 0.92em }
pre { white-space: pre-wrap; margin: 0.3em 0 }
table { border-collapse: collapse; width: 100%% }
td, th { border-bottom: thin solid #8888; text-align: left; vertical-align: top; padding: 0.15em 0.4em 0.15em 0 }
td:first-child code { overflow-wrap: anywhere }
@media print {
  body { font-size: %(points)spt; line-height: 1.2; columns: 2; max-width: none; margin: 0; padding: 0 }
  h1 { font-size: 1.5em; margin: 0 } h2 { font-size: 1.15em; margin: 0.5em 0 0.1em; break-after: avoid }
  p { margin: 0.2em 0 } pre { margin: 0.1em 0 } td, th { padding: 0.05em 0.4em 0.05em 0 } tr { break-inside: avoid }
}
"""


def page(name: str) -> str:
    """The sheet as HTML. Links to other documents are their text: a sheet is read alone."""
    text = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", document.read(HERE / f"{name}.md"))
    paper, points = SHEETS[name]
    title = html.escape(text.partition("\n")[0].removeprefix("# "))
    return (f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
            f'<meta name="viewport" content="width=device-width"><style>{STYLE % {"paper": paper, "points": points}}'
            f'</style></head>\n<body>\n{MarkdownIt("commonmark").enable("table").render(text)}</body></html>\n')


def write(folder: Path) -> list[Path]:
    """Write all sheets into `folder`; the files. Raises CalledProcessError if Chromium fails."""
    folder = folder.resolve()                   # Chromium takes no other path
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for name in SHEETS:
        file = folder / f"{name}.html"
        file.write_text(page(name), encoding="utf-8")
        made.append(file)
        if CHROMIUM is not None:
            made.append(file.with_suffix(".pdf"))
            sandbox = ["--no-sandbox"] if os.getuid() == 0 else []       # Chromium refuses to run as root with one
            subprocess.run([CHROMIUM, "--headless=new", "--disable-gpu", "--disable-dev-shm-usage", *sandbox,
                            "--no-pdf-header-footer", f"--print-to-pdf={made[-1]}", file.as_uri()],
                           check=True, capture_output=True, timeout=240)
    return made


if __name__ == "__main__":
    for path in write(Path(sys.argv[1])):
        sys.stdout.write(f"{path}\n")

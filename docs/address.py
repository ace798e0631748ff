"""Writes what needs the project's public address: badges of the README, links from notebooks to Colab and Binder.

`repository-code` of CITATION.cff has the address. Without one there are no badges and no links.

    python docs/address.py
"""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COLAB, BINDER = "https://colab.research.google.com", "https://mybinder.org"
BLOCK = re.compile(r"<!-- address -->\n.*?<!-- end -->", re.DOTALL)


def address(root: Path) -> str:
    """`https://github.com/OWNER/NAME`, or "". Raises SystemExit for another one: Colab knows GitHub alone."""
    said = re.search(r"^repository-code: *(\S+)", (root / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    if said is None:
        return ""
    if not re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]+", said[1]):
        raise SystemExit(f"CITATION.cff: repository-code: {said[1]}: expected https://github.com/OWNER/NAME")
    return said[1]


def badges(home: str) -> str:
    """The state of the tests, the newest release and its date, and the first notebook, each a link to more."""
    if not home:
        return ""
    ci, name = f"{home}/actions/workflows/ci.yml", home.removeprefix("https://github.com/")
    return (f"[![tests]({ci}/badge.svg?branch=main)]({ci})\n"
            f"[![release](https://img.shields.io/github/v/release/{name}?display_date_by=published_at)]({home}/releases)\n"
            f"{notebook(home, '1_first_steps').splitlines()[0]}\n")


def notebook(home: str, stem: str) -> str:
    """Links that open a notebook in the browser."""
    if not home:
        return ""
    name = home.removeprefix("https://github.com/")
    return (f"[![Colab]({COLAB}/assets/colab-badge.svg)]({COLAB}/github/{name}/blob/main/notebooks/{stem}.ipynb)\n"
            f"[![Binder]({BINDER}/badge_logo.svg)]({BINDER}/v2/gh/{name}/main?labpath=notebooks%2F{stem}.ipynb)\n")


def filled(text: str, block: str) -> str:
    return BLOCK.sub(lambda _: f"<!-- address -->\n{block}<!-- end -->", text)


def write(root: Path = ROOT) -> None:
    home = address(root)
    readme = root / "README.md"
    readme.write_text(filled(readme.read_text(encoding="utf-8"), badges(home)), encoding="utf-8")
    for path in sorted((root / "notebooks").glob("*.ipynb")):
        found = json.loads(path.read_text(encoding="utf-8"))
        first = found["cells"][0]
        first["source"] = filled("".join(first["source"]), notebook(home, path.stem)).splitlines(keepends=True)
        path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()

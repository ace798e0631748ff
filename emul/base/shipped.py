"""Files that a wheel carries beside the code: scenarios, topologies, the schema of scenarios."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
CARRIED = _PACKAGE / "shipped"          # the folder of a wheel that has them; see setup.py
NAMES = {"scenarios": "scenarios", "topologies": "topologies",
         "emul.schema.json": "emul.schema.json",
         "constraints.txt": "constraints.txt"}      # name -> where a checkout has it


def shipped(name: str) -> Path:
    """The file or folder of a name, of the wheel or of the checkout that this is. Raises FileNotFoundError."""
    carried = CARRIED / name
    found = carried if carried.exists() else _PACKAGE.parent / NAMES[name]
    if not found.exists():
        raise FileNotFoundError(f"{found}: this installation carries no {name}")
    return found

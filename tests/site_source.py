"""docs/made.py, which writes the generated pages of the site, as a module: it is no part of a package."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]


def load_made() -> ModuleType:
    """The module, loaded anew."""
    spec = importlib.util.spec_from_file_location("made", ROOT / "docs" / "made.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

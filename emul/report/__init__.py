"""The report of a run, a comparison or a sweep: one HTML file that needs no network, and figures as files.

    from emul.report import write
    write(Path("runs/quickstart-fedavg-1"))         # -> runs/quickstart-fedavg-1/report.html

Altair, vl-convert and pandas are imported when a report is written, not before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from emul.base.extras import optional
from emul.record.journal import fitting


def write(path: Path | Sequence[Path], out: Path | None = None, figures: Path | None = None, size: str = "page",
          font: str = "", tell: Callable[[str], None] = lambda step: None) -> Path:
    """Write the report of a run, a study, a directory of runs, or several runs; returns the file's path.

    out: the file [report.html in the directory; of several runs beside them]. figures: a directory that gets every
    figure as PNG, SVG, PDF and CSV; size: `page`, or `column` for a paper of two; font: a name [that of the page].
    tell: is told of each step, before it is done.
    Raises RecordError for what cannot be read.
    """
    with optional("figures need", "report"):
        from emul.report.build import write as build

    with fitting(path if isinstance(path, Path) else path[0] if path else Path()):
        return build(path, out, figures, size, font, tell)

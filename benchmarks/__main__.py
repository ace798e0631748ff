"""`python -m benchmarks`: every benchmark but the peers, which need an environment apart (`make bench-peers`).

Ends with 1 if a benchmark failed or a ratio of benchmarks/thresholds.toml fell.
"""

from __future__ import annotations

import argparse
import sys

from benchmarks import document, suite
from benchmarks.common import arguments


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").partition("\n")[0])
    known = suite.names()
    parser.add_argument("--only", nargs="+", choices=known, metavar="NAME", default=known,
                        help=f"of {', '.join(known)}")
    parser.add_argument("--write", action="store_true", help=f"rewrite the tables of {document.PAGES.tables.name}")
    arguments(parser)
    chosen = parser.parse_args()
    if chosen.write:
        absent = set(chosen.only) - set(document.blocks(document.read(document.PAGES.tables)))
        if absent:                      # said now, not after an hour
            parser.error(f"{document.PAGES.tables.name} has no place for {', '.join(sorted(absent))}")
    return suite.run({name: suite.find(name) for name in known if name in chosen.only}, chosen.repeats, chosen.json,
                     document.PAGES if chosen.write else None)


if __name__ == "__main__":
    sys.exit(main())

"""The report as Lighthouse judges it: accessibility of a run and of a comparison, each at 95 of 100 at least.

`npm install -g lighthouse` brings it; $LIGHTHOUSE names another place.
"""

from __future__ import annotations

import functools
import http.server
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from report_runs import make_run

from emul.report import write

LIGHTHOUSE = os.environ.get("LIGHTHOUSE") or shutil.which("lighthouse")
CHROMIUM = os.environ.get("CHROME_PATH") or shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [pytest.mark.machine, pytest.mark.slow, pytest.mark.skipif(LIGHTHOUSE is None or CHROMIUM is None, reason=(
    "lighthouse (npm) and chromium are not installed"))]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of a server on loopback, for Lighthouse opens no files, and its folder, with two pages."""
    folder = tmp_path_factory.mktemp("pages")
    runs = [make_run(folder, scheme=scheme, seed=seed) for scheme in ("fedavg", "secagg") for seed in (1, 2)]
    write(runs[0], folder / "run.html")
    write(runs, folder / "runs.html")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}", folder
    server.shutdown()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("preset", ["desktop", "phone"])
@pytest.mark.parametrize("page", ["run.html", "runs.html"])
def test_lighthouse_finds_the_page_accessible(place: tuple[str, Path], page: str, preset: str) -> None:
    address, folder = place
    out = folder / f"{page}-{preset}.json"
    flags = "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage"
    subprocess.run([
        str(LIGHTHOUSE), f"{address}/{page}", "--only-categories=accessibility", "--output=json",
        f"--output-path={out}", "--quiet", f"--chrome-flags={flags}", *(["--preset=desktop"] * (preset == "desktop"))],
        check=True, timeout=280, env={**os.environ, "CHROME_PATH": str(CHROMIUM)})
    found = json.loads(out.read_text(encoding="utf-8"))
    failed = {name: one["title"] for name, one in found["audits"].items() if one["score"] == 0}
    assert found["categories"]["accessibility"]["score"] >= 0.95, failed

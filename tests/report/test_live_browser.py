"""`emul watch` in a real browser, on a run that goes: charts grow, nothing complains, and it ends with the report.

Screenshots are left in pytest's temporary directory.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_report_browser import CUT, OVERLAPS, Browser, pytestmark  # noqa: F401

from emul.report.live.server import Watching

SCENARIO = """emul: 1
name: live
seed: 5
topology: {generator: star_mesh, clients: 6}
links:
  - {match: "*", latency: 20 ms, bandwidth: 2 Mbit/s}
  - {match: "client*->server", outage: {model: bernoulli, p: 0.3, per: round}}
task: {data: {set: digits}, model: digits_cnn, solver: {sgd: {lr: 0.1, epochs: 1, batch: 8}}}
compute: {mode: zero}
schemes: [{name: fedavg, deadline: 2 s}]
stop: {rounds: 40}
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = Browser(network=True)
    yield found
    found.driver.quit()


@pytest.fixture
def going(tmp_path: Path, browser: Browser) -> Iterator[Path]:
    """The directory of a run that another process makes. The browser has left an earlier one, and forgotten it."""
    browser.driver.get("about:blank")
    assert browser.complaints is not None
    assert browser.requests is not None
    (tmp_path / "live.yaml").write_text(SCENARIO)
    command = [sys.executable, "-m", "emul", "run", "live.yaml", "--workers", "1", "--quiet"]
    with subprocess.Popen(command, cwd=tmp_path, env=os.environ, stdout=subprocess.DEVNULL) as process:
        path = tmp_path / "runs" / "live-fedavg-1"
        while not (path / "journal").is_file():
            assert process.poll() is None
        yield path
        process.terminate()


LINE = "const p = document.querySelector('.chart[data-key=\"accuracy-round\"] .mark-line path');" \
       "return p ? p.getAttribute('d').length : 0"


def test_a_run_is_seen_to_grow_until_its_report_takes_the_place(browser: Browser, going: Path, tmp_path: Path) -> None:
    browser.shape(1200, "light")
    with Watching(going) as watching:
        browser.driver.get(watching.url)
        browser.wait(lambda: browser.js("return document.body.dataset.status") == "running", "it runs")
        browser.wait(lambda: browser.js(LINE) > 20, "two points are drawn")
        before = browser.js(LINE)
        assert browser.js("return document.querySelectorAll('#nodes li').length") == 7
        assert browser.js("return document.querySelectorAll('#rounds tr').length") > 1
        assert browser.js("return document.documentElement.scrollWidth") <= 1200
        browser.screenshot(tmp_path / "running.png")
        browser.wait(lambda: browser.js(LINE) > before, "the line grows")
        browser.wait(lambda: browser.driver.current_url.endswith("/report"), "the report takes the place")
        browser.wait(lambda: browser.js("return document.querySelectorAll('.chart[data-drawn]').length") > 3, "drawn")
        assert browser.complaints == []
        assert {url.split("/")[2] for url in browser.requests if url.startswith("http")} <= set(watching.hosts)


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1280, "dark"), (1920, "light")])
def test_it_fits_a_phone_and_the_dark(browser: Browser, going: Path, tmp_path: Path, width: int, scheme: str) -> None:
    browser.shape(width, scheme)
    with Watching(going) as watching:
        browser.driver.get(watching.url)
        browser.wait(lambda: browser.js("return document.querySelectorAll('.chart[data-drawn]').length") > 3, "drawn")
        assert browser.js("return document.documentElement.scrollWidth") <= width
        assert browser.js(OVERLAPS) == []
        assert browser.js(CUT) == []
        assert " clients " in browser.js("return document.getElementById('counts').textContent")
        browser.screenshot(tmp_path / f"{width}-{scheme}.png")
        assert browser.complaints == []

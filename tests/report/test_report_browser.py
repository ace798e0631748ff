"""The report in a real browser, with the network cut: every figure draws, nothing complains, keys are enough.

Screenshots are left in pytest's temporary directory.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from report_runs import make_run

from emul import engine
from emul.network.models.contacts import Contacts
from emul.record.side_tables import write_contacts, write_positions
from emul.report import palette, write
from emul.scenario import loads

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed: install emul[test]")
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")

pytestmark = [
    pytest.mark.machine,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None or DRIVER is None,
                       reason="no browser: chromium and chromedriver are not installed (Debian: chromium-driver)")]

SCENARIO = """emul: 1
name: browser
seed: 5
topology: {generator: star_mesh, clients: 5}
links:
  - {match: "*", latency: 20 ms, bandwidth: 2 Mbit/s}
  - {match: "client*->server", outage: {model: bernoulli, p: 0.3, per: round}}
nodes:
  - {match: client3, speed: 0.25}
task: {data: {set: digits}, model: logistic, solver: {sgd: {lr: 0.1, steps: 2, batch: 16}}}
compute: {mode: zero}
schemes:
  - {name: fedavg, deadline: 90 ms}
  - {name: secagg, threshold: 3}
stop: {rounds: 6}
"""
SHOWN = "[...document.querySelectorAll('.chart')].filter((box) => !box.closest('details:not([open])'))"
ALL_DRAWN = f"return {SHOWN}.every((box) => box.dataset.drawn)"
MARKS = f"""return Object.fromEntries({SHOWN}.map((box) =>
    [box.dataset.key, box.querySelectorAll('svg [role="graphics-symbol"]').length]))"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The run directories of a real scenario."""
    results = engine.run(loads(SCENARIO), workers=0, out=tmp_path_factory.mktemp("runs"))
    assert [r.error for r in results] == [None, None]
    return [r.directory for r in results if r.directory is not None]


class Browser:
    """Chromium, without a network unless it is wanted. `requests`, `complaints`: what the page asked for, and said on
    the console."""

    def __init__(self, network: bool = False) -> None:
        options = webdriver.ChromeOptions()
        options.binary_location = str(CHROMIUM)
        nowhere = [] if network else ["--host-resolver-rules=MAP * ~NOTFOUND"]
        for argument in ("--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--force-device-scale-factor=1",
                         *nowhere, *(["--no-sandbox"] if os.getuid() == 0 else [])):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(str(DRIVER)))
        self.driver.execute_cdp_cmd("Network.enable", {})
        if not network:
            self.driver.execute_cdp_cmd("Network.emulateNetworkConditions", {
                "offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0})

    def open(self, page: Path, width: int = 1200, scheme: str = "light", part: str = "") -> None:
        self.shape(width, scheme)
        self.driver.get("about:blank")
        self.driver.get(page.as_uri() + part)
        self.wait(lambda: self.js(ALL_DRAWN), "every chart is drawn")

    def shape(self, width: int, scheme: str) -> None:
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600})
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {
            "features": [{"name": "prefers-color-scheme", "value": scheme}]})

    def js(self, code: str, *arguments: Any) -> Any:
        return self.driver.execute_script(code, *arguments)

    def wait(self, condition: Callable[[], Any], what: str) -> None:
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.driver, 60, 0.05).until(lambda _: condition(), f"not within 60 s: {what}")

    def press(self, *keys: str) -> None:
        webdriver.ActionChains(self.driver).send_keys(*keys).perform()

    def screenshot(self, file: Path) -> None:
        file.write_bytes(base64.b64decode(self.driver.execute_cdp_cmd(
            "Page.captureScreenshot", {"format": "png", "captureBeyondViewport": True})["data"]))

    @property
    def complaints(self) -> list[str]:
        return [f"{entry['level']}: {entry['message']}" for entry in self.driver.get_log("browser")]

    @property
    def requests(self) -> list[str]:
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    browser = Browser()
    yield browser
    browser.driver.quit()


@pytest.fixture(scope="module")
def one(runs: list[Path]) -> Path:
    return write(runs[0])


@pytest.fixture(scope="module")
def both(runs: list[Path]) -> Path:
    return write(runs)


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (1200, "dark"), (375, "light"), (375, "dark")])
def test_every_figure_draws_without_network_and_complaint(chromium: Browser, one: Path, tmp_path: Path, width: int,
                                                          scheme: str) -> None:
    assert chromium.complaints is not None          # what an earlier test left
    assert chromium.requests is not None
    chromium.open(one, width, scheme)
    marks = chromium.js(MARKS)
    assert len(marks) == 15
    assert {key for key, count in marks.items() if not count} == set()
    assert chromium.complaints == []
    assert {url.partition(":")[0] for url in chromium.requests} <= {"file", "about", "data"}
    colour = chromium.js("return getComputedStyle(document.body).backgroundColor")
    page = (palette.LIGHT if scheme == "light" else palette.DARK)["page"]
    assert colour == f"rgb({', '.join(str(int(page[i:i + 2], 16)) for i in (1, 3, 5))})"
    assert chromium.js("return document.documentElement.scrollWidth") <= width
    chromium.screenshot(tmp_path / f"{width}-{scheme}.png")


def shown(chromium: Browser) -> tuple[str, str, str, str]:
    """What is to be seen of the picked round: the sentence, the diagram, its alternative text, the table."""
    return tuple(chromium.js("""
        const svg = document.querySelector('.chart[data-key="space-time"] svg');
        return [document.getElementById('space-time-said').textContent, svg.innerHTML,
                svg.closest('[role="graphics-document"]').getAttribute('aria-label'),
                document.getElementById('space-time-data').textContent]"""))    # type: ignore[return-value]


def test_picking_a_round_by_keyboard_changes_diagram_sentence_and_table(chromium: Browser, one: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    def picked(index: int) -> None:
        chromium.wait(lambda: chromium.js(
            "return document.querySelector('.chart[data-key=\"space-time\"]').dataset.drawn") == str(index),
            f"round at {index} is drawn")

    chromium.open(one)
    chromium.js("document.querySelector('.picker[data-for] select').focus()")
    chromium.press(Keys.HOME)
    picked(0)
    first = shown(chromium)
    assert first[0].startswith("Round 1 began at 0.000 s")
    assert first[2] == first[0]
    chromium.press(Keys.ARROW_DOWN)
    picked(1)
    second = shown(chromium)
    assert second[0].startswith("Round 2 began at ")
    assert all(a != b for a, b in zip(first[:3], second[:3], strict=True))
    chromium.press(Keys.TAB, Keys.ENTER)            # the button after the list: the next round
    picked(2)
    assert shown(chromium)[0].startswith("Round 3 began at ")
    tables = set()
    for index in range(6):
        chromium.js("const s = document.querySelector('.picker[data-for] select'); s.selectedIndex = arguments[0];"
                    "s.dispatchEvent(new Event('change'))", index)
        picked(index)
        tables.add(shown(chromium)[3])
    assert len(tables) > 1                          # outages differ from round to round
    assert chromium.js("return document.querySelector('.picker[data-for] [data-step=\"1\"]').disabled")
    assert chromium.complaints == []


OVERLAPS = f"""const found = [];
    for (const box of {SHOWN}) {{
      const texts = [...box.querySelectorAll('svg text')].filter((one) => one.textContent.trim()
          && Number(getComputedStyle(one).opacity) > 0
          && !/rotate\\((?!0\\))/.test(one.getAttribute('transform') || ''))
        .map((one) => [one.textContent, one.getBoundingClientRect()]);
      texts.forEach(([text, a], i) => texts.slice(i + 1).forEach(([other, b]) => {{
        if (text !== other && Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2
            && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4) found.push([box.dataset.key, text, other]);
      }}));
    }}
    return found"""


COVERED = f"""return {SHOWN}.flatMap((box) => {{             // names that lie on a point, in fronts
      const points = [...box.querySelectorAll('svg .mark-symbol:not(.role-legend-symbol) path')]
        .map((one) => one.getBoundingClientRect());
      const names = [...box.querySelectorAll('svg .mark-text.role-mark text')].filter((one) => one.textContent);
      return names.filter((one) => {{
        const a = one.getBoundingClientRect();
        return points.some((b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 0
            && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 2);
      }}).map((one) => [box.dataset.key, one.textContent]);
    }})"""


CUT = f"""return {SHOWN}.flatMap((box) => {{
      const chart = box.querySelector('svg').getBoundingClientRect();
      return [...box.querySelectorAll('svg text')].filter((one) => one.textContent.trim()
          && Number(getComputedStyle(one).opacity) > 0).filter((one) => {{
        const {{ left, right, width }} = one.getBoundingClientRect();
        return width && (left < chart.left - 2 || right > chart.right + 2);
      }}).map((one) => [box.dataset.key, one.textContent]);
    }})"""


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of schemes of which all are on the front, some of them close to others."""
    folder = tmp_path_factory.mktemp("many")
    names = ("fedavg", "fedbuff", "secagg_plus", "fair_seccogc", "lightsecagg", "hybrid_alpha", "scaffold", "far")
    runs = [make_run(folder, scheme=name, seed=seed, end_ns=260 + 50 * k + seed + 9000 * (name == "far"),
                     observations=[(0, 2, {"accuracy": 0.7 + 0.003 * k + 0.15 * (name == "far")})])
            for k, name in enumerate(names) for seed in (1, 2)]
    return write(runs, folder / "page.html")


@pytest.mark.parametrize("width", [390, 1280, 1920])
def test_no_text_of_a_chart_lies_over_another(chromium: Browser, one: Path, both: Path, many: Path,
                                              width: int) -> None:
    for page in (one, both, many):
        chromium.open(page, width)
        assert chromium.js(OVERLAPS) == []
        if page == many:
            assert chromium.js(COVERED) == []
        assert chromium.js(CUT) == []
        assert chromium.js("return document.documentElement.scrollWidth") <= width
    front = ".chart[data-key='front-virtual-s-accuracy'] svg .mark-text.role-mark text"
    assert chromium.js(f'return document.querySelectorAll("{front}").length') >= 6


def test_the_film_plays_and_its_slider_goes_by_keyboard(chromium: Browser, one: Path, tmp_path: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    def seen() -> tuple[str, str, float]:
        return tuple(chromium.js("""                                        // what is said, drawn, and where it is
            const film = document.querySelector('.film');
            return [film.querySelector('.now').textContent, film.querySelector('canvas').toDataURL(),
                    Number(film.querySelector('input').value)]"""))         # type: ignore[return-value]

    chromium.open(one, 375)
    assert chromium.complaints is not None
    first = seen()
    assert first[0].startswith("t = 0 ms, round 1: ")
    assert first[2] == 0
    chromium.js("document.querySelector('.film input').focus()")
    chromium.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    some = seen()
    assert some[2] == 2
    assert some[0] != first[0]
    assert some[1] != first[1]
    chromium.press(Keys.END)
    assert seen()[2] == 1000
    chromium.js("document.querySelector('.film select').value = '10'")
    chromium.js("document.querySelector('.film .play').click()")            # from the beginning, for it was at its end
    assert chromium.js("return document.querySelector('.film .play').textContent") == "Pause"
    chromium.wait(lambda: 100 < seen()[2] < 1000, "it plays")
    chromium.js("document.querySelector('.film .play').click()")
    stopped = seen()
    assert chromium.js("return document.querySelector('.film .play').textContent") == "Play"
    chromium.js("document.documentElement.dataset.theme = 'dark'")
    chromium.wait(lambda: seen()[1] != stopped[1], "it takes the other colours")
    assert seen()[0] == stopped[0]
    assert chromium.js("return document.documentElement.scrollWidth") <= 375
    assert chromium.complaints == []
    chromium.screenshot(tmp_path / "film.png")


def test_the_film_moves_vertices_and_draws_links_in_contact_alone(chromium: Browser, tmp_path: Path) -> None:
    run = make_run(tmp_path)
    (run / "seal.json").unlink()                # of a run without these tables
    two, one = ((array("q", row) for row in rows) for rows in (([0, 140], [20, 170], [1, 1], [5, 5]),
                                                               ([150], [210], [1], [5])))
    write_contacts(run, {("server", "router"): Contacts(*two), ("router", "client2"): Contacts(*one)}, 210)
    write_positions(run, [(0, "server", 0, 0), (200e-9, "server", 100, 50), (0, "client1", 100, 0)])

    def at(value: int) -> list[str]:
        chromium.js("""const slider = document.querySelector('.film input'); slider.value = arguments[0];
            slider.dispatchEvent(new Event('input'))""", value)
        return list(chromium.js("""const film = document.querySelector('.film');
            return [film.querySelector('.now').textContent, film.querySelector('canvas').toDataURL()]"""))

    chromium.open(write(run, tmp_path / "moving.html"))
    (first, drawn), (later, moved) = at(0), at(762)
    assert "1 link in contact" in first
    assert "2 links in contact" in later
    assert drawn != moved
    assert [one for one in chromium.complaints if "SEVERE" in one] == []


def test_the_colours_can_be_switched_by_keyboard_and_charts_follow(chromium: Browser, one: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    chromium.open(one)
    chart = "return document.querySelector('.chart[data-key=\"bytes-by-type\"] svg').outerHTML"
    before = chromium.js(chart)
    assert palette.LIGHT["s1"] in before
    chromium.js("document.getElementById('theme').focus()")
    chromium.press(Keys.ENTER)
    chromium.wait(lambda: palette.DARK["s1"] in chromium.js(chart), "the chart is dark")
    assert chromium.js("return document.getElementById('theme').getAttribute('aria-pressed')") == "true"
    chromium.press(Keys.ENTER)                      # and back, for the tests that follow
    chromium.wait(lambda: palette.LIGHT["s1"] in chromium.js(chart), "the chart is light")


def test_the_first_key_leads_past_the_navigation_and_focus_is_seen(chromium: Browser, one: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    chromium.open(one)
    chromium.press(Keys.TAB)
    assert chromium.js("return document.activeElement.className") == "skip"
    assert chromium.js("return document.activeElement.getBoundingClientRect().left") >= 0
    chromium.press(Keys.TAB)
    assert chromium.js("return document.activeElement.id") == "theme"
    assert chromium.js("return getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_bytes_by_link_can_be_asked_for_one_type(chromium: Browser, one: Path) -> None:
    chromium.open(one)
    links = ("return [...document.querySelectorAll('.chart[data-key=\"bytes-by-link\"] .role-axis-label text')]"
             ".map((text) => text.textContent).filter((text) => text.includes('→'))")
    everything = chromium.js(links)
    assert "server→client1" in everything
    chromium.js("""const s = document.querySelector('.chart[data-key="bytes-by-link"] select');
        s.value = 'Update'; s.dispatchEvent(new Event('input')); s.dispatchEvent(new Event('change'));""")
    chromium.wait(lambda: set(chromium.js(links)) == {f"client{i}→server" for i in range(1, 6)}, "only uplinks")


def test_runs_side_by_side_unfold_and_draw_when_a_link_leads_there(chromium: Browser, both: Path,
                                                                   tmp_path: Path) -> None:
    chromium.open(both)
    assert set(chromium.js(MARKS)) == {"accuracy-time", "accuracy-mb", "accuracy-round", "loss-time", "bytes-by-run",
                                       "bytes-by-phase", "front-virtual-s-accuracy", "front-mb-accuracy"}
    chromium.open(both, part="#secagg-rounds")
    marks = chromium.js(MARKS)
    assert marks["secagg-space-time"] > 10
    assert {key for key, count in marks.items() if not count} == set()
    assert chromium.complaints == []
    assert chromium.js("return document.documentElement.scrollWidth") <= 1200
    chromium.screenshot(tmp_path / "both.png")

"""Flower apps on the suite's networks: an app that runs, one that cannot, and the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import document, suite_flower

pytest.importorskip("flwr", reason="Flower is not installed: install emul[flower]")


@pytest.mark.slow
def test_an_app_has_a_row_and_one_that_fails_its_error(tmp_path: Path) -> None:
    entries = [one for one in suite_flower.apps() if one["label"] in ("FedMedian", "FedXgbBagging")]
    entries = [{**one, "config": {**one["config"], "num-server-rounds": 2}} for one in entries]
    found = suite_flower.ran(tmp_path / "out", entries, ["lan"], [0]).set_index("app")
    assert found.loc["FedMedian", "error"] == ""
    assert found.loc["FedMedian", "accuracy"] > 0.5
    assert found.loc["FedMedian", "rounds"] == 2
    assert found.loc["FedXgbBagging", "error"] != ""        # it wants trees, and the app has arrays of weights


def test_the_page_says_what_the_rows_say() -> None:
    page = document.read(suite_flower.PAGE)
    assert suite_flower.filled(page, suite_flower.read()) == page, "make it anew: python -m benchmarks.suite_flower"


def test_there_are_twenty_kinds_of_apps_on_five_networks() -> None:
    found = suite_flower.read()
    assert found["app"].nunique() >= 20
    assert found["network"].nunique() >= 5

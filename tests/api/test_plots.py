"""Figures of runs and studies are charts of Altair that stand alone: data in them, no token of the report left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import altair as alt
import pytest

import emul
from emul.api.plots import NothingToPlot

Spec = dict[str, Any]


def drawn(chart: alt.TopLevelMixin) -> dict[str, object]:
    """Its specification, which is sound, with data, and without tokens."""
    spec = chart.to_dict()
    assert any(spec["datasets"].values())
    assert '"$' not in json.dumps({key: value for key, value in spec.items() if key != "$schema"})
    return spec


@pytest.mark.slow
def test_every_figure_of_a_run_and_of_runs_is_a_chart(small: Path, spec: Spec) -> None:
    runs = emul.run(spec | {"stop": {"rounds": 3}}, workers=0, quiet=True)
    plot = runs.of("fedavg").plot
    for chart in (plot.accuracy(), plot.accuracy("bytes"), plot.accuracy("rounds"), plot.loss(), plot.bytes(),
                  plot.bytes(by="link"), plot.network(), plot.losses(), plot.round(2), plot.waiting(),
                  plot.stragglers(), plot.computing(), runs.plot.accuracy(), runs.plot.bytes(), runs.plot.computing()):
        drawn(chart)
    curves = drawn(runs.plot.accuracy("rounds"))["datasets"]
    assert {row["series"] for rows in curves.values() for row in rows} == {"fedavg*", "secagg*"}     # type: ignore
    runs.plot.accuracy().save("accuracy.svg")
    assert Path("accuracy.svg").read_text().startswith("<svg")


def test_what_a_run_has_not_is_said(small: Path, spec: Spec) -> None:
    run, = emul.run(spec | {"links": [{"match": "*", "latency": "1 ms"}], "schemes": ["fedavg"]}, workers=0,
                    quiet=True)
    with pytest.raises(NothingToPlot, match=r"^nothing was lost$"):
        run.plot.losses()
    with pytest.raises(NothingToPlot, match=r"^no link has contacts$"):
        run.plot.contacts()
    with pytest.raises(NothingToPlot, match=r"^no link that was used has recorded rates of background traffic$"):
        run.plot.background()
    with pytest.raises(ValueError, match=r"^round 9: the run has the rounds 1\.\.2$"):
        run.plot.round(9)
    with pytest.raises(ValueError, match=r'^against = "virtual": expected one of time, bytes, rounds$'):
        run.plot.accuracy("virtual")            # type: ignore[arg-type]

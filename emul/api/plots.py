"""The report's figures as charts of Altair: in a notebook they are shown, `chart.save("name.svg")` writes a file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Literal

import altair as alt
import pandas as pd

from emul.record.marks import in_words
from emul.report import data, figures
from emul.report.curves import learning
from emul.report.data import RunData, Waits
from emul.report.drawing import Figure
from emul.report.files import vega_lite
from emul.report.grid import sweep_figures, sweep_key
from emul.report.phases import bytes_by_phase, phases, side_by_side
from emul.report.sequence import message_sequence, sequences
from emul.report.spacetime import one_round
from emul.report.study import StudyRuns, kinds_of, marked, of_runs, open_study
from emul.report.timeline import contact_plan, shared_links
from emul.report.topology import contacts_of, network_map

Against = Literal["time", "bytes", "rounds"]
_KEYS = {"time": "time", "bytes": "mb", "rounds": "round"}


class NothingToPlot(ValueError):
    """A figure was asked for, of which the run has nothing: no accuracy was observed, nothing was lost."""


def chart(figure: Figure) -> alt.TopLevelMixin:
    """A figure of the report as a chart that stands alone, in light colours."""
    # of the kind that it was: to have Altair find that out by its schema takes 1.5 s, and it was made by Altair
    found: alt.TopLevelMixin = type(figure.chart).from_dict(vega_lite(figure), validate=False)     # type: ignore[attr-defined]
    return found


class _Learning(ABC):
    """Curves of what was observed; `curves` has series, seed, round, virtual_s, mb and values."""

    @property
    @abstractmethod
    def curves(self) -> pd.DataFrame:
        """The table that the curves are drawn from."""

    @property
    @abstractmethod
    def _of(self) -> str:
        """The kind of the accuracy, in words; "": the series say it, or nobody knows."""

    def accuracy(self, against: Against = "time") -> alt.TopLevelMixin:
        """Accuracy after each round, against virtual time, bytes sent until then, or rounds. Raises NothingToPlot."""
        if against not in _KEYS:
            raise ValueError(f'against = "{against}": expected one of {", ".join(_KEYS)}')
        return self._drawn(f"accuracy-{_KEYS[against]}")

    def loss(self) -> alt.TopLevelMixin:
        """Loss against virtual time. Raises NothingToPlot."""
        return self._drawn("loss-time")

    def _drawn(self, key: str) -> alt.TopLevelMixin:
        found = learning(self.curves, single=self.curves["series"].nunique() == 1, of=self._of)
        return chart(_the(found, key))


class RunPlots(_Learning):
    """The figures of one run."""

    def __init__(self, path: Path):
        self._path = path

    @cached_property
    def _run(self) -> RunData:
        return data.open_run(self._path)

    @cached_property
    def _waits(self) -> Waits:
        return data.waits(self._run)

    @property
    def curves(self) -> pd.DataFrame:
        """The table that the curves are drawn from."""
        return data.curve(self._run).assign(series=self._run.label, seed=self._run.summary.get("seed"))

    @property
    def _of(self) -> str:
        return in_words(self._run.summary.get("accuracy_of"))

    def bytes(self, by: Literal["type", "link", "phase"] = "type") -> alt.TopLevelMixin:
        """Bytes on all links, by message type or by link, and what became of them; `phase`: types in the order of the
        protocol, for all classes of links or one. Raises NothingToPlot."""
        traffic = _some(data.traffic(self._run), "nothing was sent")
        if by == "phase":
            return chart(bytes_by_phase(phases(self._run)))
        return chart(figures.bytes_by_type(traffic) if by == "type" else figures.bytes_by_link(traffic))

    def network(self) -> alt.TopLevelMixin:
        """The map of the network: load and losses of every link."""
        return chart(figures.topology(network_map(self._run)))

    def losses(self) -> alt.TopLevelMixin:
        """The share of copies lost, by link and round. Raises NothingToPlot."""
        return chart(figures.outages(_some(data.losses(self._run), "nothing was lost")))

    def contacts(self) -> alt.TopLevelMixin:
        """Contacts of links, and the transfers in them, over the whole run. Raises NothingToPlot."""
        found = contacts_of(self._run)
        return chart(contact_plan(self._run, _some(pd.DataFrame() if found is None else found, "no link has contacts")))

    def background(self) -> alt.TopLevelMixin:
        """Rates of background traffic and of the scheme on one time axis, by link. Raises NothingToPlot."""
        if not self._run.summary.get("bytes_background") or (found := shared_links(self._run)) is None:
            raise NothingToPlot("no link that was used has recorded rates of background traffic")
        return chart(found)

    def round(self, number: int) -> alt.TopLevelMixin:
        """A round in space and time: who computed, waited, sent. Raises ValueError for a round that there is not."""
        return chart(figures.space_time(one_round(self._run, self._waits, number)))

    def sequence(self, number: int) -> alt.TopLevelMixin:
        """The messages of a round in their order, role by role. Raises ValueError for a round that there is not."""
        found, = sequences(self._run, [number])
        if not len(found.steps):
            raise ValueError(f"round {number}: nothing was sent or computed in it")
        return chart(message_sequence(found))

    def waiting(self) -> alt.TopLevelMixin:
        """The times of each node, by activity."""
        return chart(figures.waiting(data.states(self._run, self._waits)))

    def stragglers(self) -> alt.TopLevelMixin:
        """The nodes that ended the longest wait of each round. Raises NothingToPlot."""
        return chart(figures.delays(_some(data.delays(self._run, self._waits), "nobody waited")))

    def computing(self) -> alt.TopLevelMixin:
        """Virtual seconds by role and computation. Raises NothingToPlot."""
        return chart(figures.computing(_some(data.computing(self._run), "nothing was computed")))


class _StudyLearning(_Learning):
    """The figures of learning of several runs."""

    _study: StudyRuns

    @property
    def _of(self) -> str:
        kinds = kinds_of(self._study)
        return kinds[0] if len(kinds) == 1 else ""


class RunsPlots(_StudyLearning):
    """Figures of several runs side by side."""

    def __init__(self, paths: Sequence[Path]):
        self._study = marked(of_runs(list(paths)))

    @property
    def curves(self) -> pd.DataFrame:
        """The table that the curves are drawn from."""
        return _curves(self._study)

    def bytes(self, by: Literal["run", "phase"] = "run") -> alt.TopLevelMixin:
        """Bytes of each run, and what became of them; `phase`: by phase of each scheme. Raises NothingToPlot."""
        if by == "phase":
            found = side_by_side({m.series: phases(data.open_run(m.path)) for m in self._study.members})
            return chart(bytes_by_phase(_some(found, "nothing was sent")))
        return chart(figures.bytes_by_run({m.series: data.traffic(data.open_run(m.path))
                                           for m in self._study.members}))

    def computing(self) -> alt.TopLevelMixin:
        """Virtual seconds of each run, by role and computation."""
        return chart(figures.computing_by_run({m.series: data.computing(data.open_run(m.path))
                                               for m in self._study.members}))


class StudyPlots(_StudyLearning):
    """Figures of a sweep or a comparison."""

    def __init__(self, path: Path):
        self._study = marked(open_study(path))

    @property
    def curves(self) -> pd.DataFrame:
        """The table that the curves are drawn from; a combination of a grid's values is a series of its own."""
        if self._study.curves is not None:
            return self._study.curves.rename(columns={"scheme": "series"})
        return _curves(self._study)

    def differences(self, metric: str = "time_to_target") -> alt.TopLevelMixin:
        """Of a comparison: mean difference of each pair of schemes, with its interval. Raises NothingToPlot."""
        found = self._study.differences
        if found is None or metric not in set(found["metric"]):
            raise NothingToPlot(f"{self._study.path}: no differences of {metric}")
        drawn = figures.differences(found[found["metric"] == metric])
        if not drawn:
            raise NothingToPlot(f"{self._study.path}: no two schemes have {metric} on one seed")
        return chart(drawn[0])

    def grid(self, path: str, metric: Literal["accuracy", "virtual_s", "mb", "rounds_failed"] = "accuracy",
             ) -> alt.TopLevelMixin:
        """Of a sweep: a metric against the values of one path of the grid. Raises NothingToPlot."""
        key = sweep_key(path, metric)
        return chart(_the(sweep_figures(self._study), key))


def _curves(study: StudyRuns) -> pd.DataFrame:
    def series(name: str, values: dict[str, object]) -> str:
        return " ".join([name, *(f"{path}={value}" for path, value in values.items())])

    return pd.concat([data.curve(data.open_run(m.path)).assign(series=series(m.series, m.values), seed=m.seed)
                      for m in study.members], ignore_index=True)


def _the(found: Sequence[Figure], key: str) -> Figure:
    for figure in found:
        if figure.key == key:
            return figure
    there = ", ".join(figure.key for figure in found)
    raise NothingToPlot(f"nothing of {key} was observed" + (f"; there is: {there}" if there else ""))


def _some(frame: pd.DataFrame, otherwise: str) -> pd.DataFrame:
    if frame.empty:
        raise NothingToPlot(otherwise)
    return frame

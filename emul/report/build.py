"""From directories to a report: what is read, which parts it gets, where everything goes.

A part of one run is put together by `_details`, of several runs by `_study_parts`, of a suite in `emul.report.suite`;
their numbers come from `emul.report.data` and the files named in it, their figures from `figures` and from the file of
each large one, the cards from `cards`, and `page` makes HTML of all of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from emul.base.files import read_limited, write_atomically
from emul.base.plain import PlainDict, PlainMapping, is_number
from emul.record.attacks import attacks, read_attack
from emul.record.journal import RecordError
from emul.record.marks import NOTE, diverged, epsilons, in_words, incomplete, marked, oracle_waits
from emul.record.summary import parameter_columns
from emul.report import cards, data, figures, grid, page, spacetime, stragglers, study, suite, timeline
from emul.report.curves import learning
from emul.report.data import RunData
from emul.report.drawing import Choice, slugs
from emul.report.files import write_figures
from emul.report.film import ROWS, film
from emul.report.page import Part
from emul.report.phases import bytes_by_phase, phases, side_by_side
from emul.report.sequence import message_sequence, sequences, shown_sequence
from emul.report.study import StudyMember, StudyRuns
from emul.report.topology import contacts_of, crowded, network_map
from emul.report.tradeoffs import trade_offs

_FILMS = 5              # the share of a film in the rows of a page is one in so many
SPACE_TIME_ROWS = 100_000       # of all space-time diagrams of a page together: about 3 MB
ATTACKED_ROWS = 200             # of an attack, at most, that a page shows
ATTACKED_PICTURES = 48
DETAILED = 12                   # runs, at most, that a page shows in detail
_DIGEST = 12             # letters of a digest in a table of many runs; each run's own section has all
PHASES = "MB by class of links, phase and direction, in the order of the protocol"


def write(path: Path | Sequence[Path], out: Path | None = None, figures_dir: Path | None = None,
          size: str = "page", font: str = "", tell: Callable[[str], None] = lambda step: None) -> Path:
    """Write the report of a run, a study, a directory of runs, or several runs; the file's path.

    As `emul.report.write`.
    """
    paths = [path] if isinstance(path, Path) else list(path)
    if not paths:
        raise RecordError("report: no directory given")
    said: list[str] = []
    tell(f"reading {', '.join(map(str, paths))}")
    if len(paths) == 1 and study.is_run(paths[0]):
        run = data.open_run(paths[0])
        found, title, home = _run_parts(run), f"{paths[0].resolve().name}", paths[0]
        said = [*filter(None, [incomplete(run.summary)]), *diverged(run.summary)]
    elif len(paths) == 1 and suite.is_suite(paths[0]):
        title, found = suite.suite_parts(paths[0])
        home = paths[0]
    else:
        many = study.marked(_study(paths))
        said = [f"{m.path.name} is {text}" for m in many.members if (text := incomplete(m.summary))]
        if lost := [(m.path.name, lines) for m in many.members if (lines := diverged(m.summary))]:
            said.append(f"{len(lost)} of {len(many.members)} runs: {lost[0][0]}: {lost[0][1][0]}")
        found, title, home = _study_parts(many, tell), many.name or many.path.name, many.path
        if study.knowing(many):             # waits that know fates are no matter where nothing stands beside others
            found = [replace(part, text=f"{part.text} {NOTE}.".lstrip()) if part.figures or part.tables else part
                     for part in found]
    tell("writing the page")
    out = home / "report.html" if out is None else out
    out.parent.mkdir(parents=True, exist_ok=True)
    with write_atomically(out) as temporary:
        temporary.write_text(page.render(title, found, said), encoding="utf-8")
    if figures_dir is not None:
        write_figures(figures_dir, [figure for part in found for figure in part.figures], size, font, tell)
    return out


def _study(paths: list[Path]) -> StudyRuns:
    if len(paths) == 1:
        if study.is_study(paths[0]):
            return study.open_study(paths[0])
        inside = study.runs_in(paths[0])
        if not inside:
            raise RecordError(f"{paths[0]}: neither a run, nor a study, nor a directory of runs, such as "
                              "`emul run` and `emul compare` write below runs/")
        return study.of_runs(inside)
    wrong = [str(p) for p in paths if not study.is_run(p)]
    if wrong:
        raise RecordError(f"{', '.join(wrong)}: no directory of a run; several must all be such")
    return study.of_runs(paths)


# --- one run --------------------------------------------------------------------------------------------------------

def _run_parts(run: RunData) -> list[Part]:
    found = data.curve(run)
    found = found.assign(series=marked(run.label, run.summary), seed=run.summary.get("seed"))
    drawn = learning(found, single=True, of=in_words(run.summary.get("accuracy_of")))
    learnt = Part("learning", "Learning", drawn, "" if drawn else "No accuracy and no loss were observed in this run.")
    note = f"{NOTE}." if oracle_waits(run.summary) else ""
    details = _details(run, "", SPACE_TIME_ROWS).parts
    return [Part("overview", "Overview", cards=cards.of_run(run.summary, len(run.names)), text=note), learnt,
            *details, *attacked(run.path), *_provenance(run, "")]


def attacked(path: Path) -> list[Part]:
    """The results of attacks on the privacy of a run, a table each, and pictures; nothing if there were none."""
    tables, pictures = [], []
    for label in attacks(path):
        found = read_attack(path, label)
        given = ", ".join(f"{key} = {value}" for key, value in found.about["parameters"].items() if value is not None)
        more = f"; the first {ATTACKED_ROWS:,} of {len(found.rows):,} rows" if len(found.rows) > ATTACKED_ROWS else ""
        caption = f"{label}{f' ({given})' if given else ''}{more}. {found.about.get('text', '')}"
        tables.append((caption, found.rows.head(ATTACKED_ROWS)))
        if found.pictures:
            left_out = f"; the first {ATTACKED_PICTURES} of {len(found.pictures)}" * (
                len(found.pictures) > ATTACKED_PICTURES)
            pictures.append((f"{label}: originals on the left, reconstructions on the right{left_out}.", [
                (said, _picture(file)) for said, file in found.pictures[:ATTACKED_PICTURES]]))
    return [Part("attacks", "Attacks on privacy", tables=tables, pictures=pictures)] if tables else []


def _picture(file: Path) -> bytes:
    """Raises RecordError: it is none that emul has left there, and what it holds would stand in the report."""
    if file.is_symlink():
        raise RecordError(f"{file}: is a link, to {os.readlink(file)}: expected a picture")
    try:
        return read_limited(file)
    except OSError as error:
        raise RecordError(f"{file}: {error.strerror}") from None


@dataclass(frozen=True)
class _Detail:
    """The parts of the report on one run, and those that stand beside other runs': bytes, computations, their use."""

    parts: list[Part]
    traffic: pd.DataFrame
    phases: pd.DataFrame
    computing: pd.DataFrame
    work: pd.DataFrame
    by_group: dict[str, pd.DataFrame]       # of the scenario, its rows of `work`


def _details(run: RunData, prefix: str, budget: int) -> _Detail:
    traffic, waits, computing = data.traffic(run), data.waits(run), data.computing(run)
    by_phase = phases(run)
    parts = []
    held = figures.samples_held(run)
    if len(held):
        parts.append(Part("data", "Data of the nodes", [figures.samples_by_class(held)]))
    if len(traffic):
        parts.append(Part("bytes", "Bytes", [figures.bytes_by_type(traffic), figures.bytes_by_link(traffic)],
                          tables=[(PHASES, by_phase)],
                          text=declared_text(run.summary.get("bytes_declared", {}), "B", "were declared, not carried")))
    beside = run.summary.get("bytes_background")
    if beside:
        together = timeline.shared_links(run)
        parts.append(Part("background", "Background traffic", [
            figures.background(beside["by_link"]), *([] if together is None else [together])]))
    drawn = network_map(run)
    network = [figures.topology(drawn), *([figures.matrix(drawn)] if crowded(drawn) else [])]
    losses = data.losses(run)
    if len(losses):
        network.append(figures.outages(losses))
    if (contacts := contacts_of(run)) is not None and len(contacts):
        network.append(timeline.contact_plan(run, contacts))
    parts.append(Part("network", "Network", network))
    if (played := film(run, waits, drawn, min(ROWS, budget // _FILMS))) is not None:
        parts.append(Part("film", "The run as a film", film=played))
    rounds = spacetime.space_time(run, waits, budget)
    if rounds.rounds:
        parts.append(_rounds(run, rounds))
    if run.summary["messages_rejected"]:
        parts.append(rejected(run.summary))
    slow = [figures.waiting(data.states(run, waits))]
    delayed = data.delays(run, waits)
    if len(delayed):
        slow.append(figures.delays(delayed))
    work, held_up = stragglers.work(run), stragglers.held_up(run, waits)
    parts.append(Part("stragglers", "Stragglers", [
        *stragglers.seconds_figures(run.rounds), *slow, *stragglers.views(held_up, work)]))
    if run.summary.get("groups"):
        parts.append(Part("groups", "Groups of clients", stragglers.group_figures(run, held_up, work),
                          tables=[("", stragglers.group_table(run, held_up, work))]))
    if len(computing):
        stated = declared_text(run.summary.get("seconds_declared", {}), "s",
                               "were stated by the scheme, not measured or looked up")
        parts.append(Part("computing", "Computing", [figures.computing(computing)], text=stated,
                          tables=[("", computing)]))
    theory = theory_table(run.summary.get("analysis"))
    if len(theory):
        parts.append(Part("theory", "Theory beside measurement", tables=[("", theory)],
                          text="Values of the scheme's analysis for this network, beside what this run measured."))
    return _Detail([_prefixed(part, prefix) for part in parts], traffic, by_phase, computing, work,
                   stragglers.by_group(run, work))


def _rounds(run: RunData, found: spacetime.SpaceTime) -> Part:
    """One round, of which the reader chooses the number: in space and time, and as a sequence of messages."""
    orders = sequences(run, [one.number for one in found.rounds])
    choice = Choice([one.label for one in found.rounds], found.first, [
        [figures.shown_round(one) for one in found.rounds], [shown_sequence(one) for one in orders]])
    drawn = [figures.space_time(found), message_sequence(orders[found.first])]
    return Part("rounds", "A round in space and time", drawn, choice=choice)


def rejected(summary: PlainMapping) -> Part:
    """A table of messages of peers that were rejected: by whom, of whom, and why. For runs in which something was."""
    listed, total = summary["violations"], summary["messages_rejected"]
    told = sum(one["count"] for one in listed)
    text = (f"{total:,} of {summary['messages_sent']:,} messages were not what their type or the protocol says, or "
            "beyond a limit. They came and were refused: nobody read them, and waits took them for lost.")
    if told < total:
        text += f" The table has the most frequent, {told:,} of them."
    table = pd.DataFrame(listed, columns=["sender", "type", "reason", "role", "count"])
    table = table.rename(columns={"role": "rejected by"})
    return Part("rejected", "Rejected messages", text=text, tables=[("", table)])


def declared_text(declared: Mapping[str, Mapping[str, float]], unit: str, what: str) -> str:
    """A sentence on {role: {type or label: amount}} of a summary; empty if there is none.

    >>> declared_text({"client": {"Update": 1200.0}}, "B", "were declared")
    'Of these, client Update: 1,200 B were declared.'
    """
    found = [f"{role} {name}: {amount:,.12g} {unit}" for role, of in declared.items() for name, amount in of.items()]
    return f"Of these, {'; '.join(found)} {what}." if found else ""


def _prefixed(part: Part, prefix: str) -> Part:
    if not prefix:
        return part
    return replace(part, key=f"{prefix}-{part.key}",
                   figures=[replace(figure, key=f"{prefix}-{figure.key}") for figure in part.figures])


def theory_table(analysis: object) -> pd.DataFrame:
    """quantity, theory, measured, difference of a summary's `analysis`; a plain number is theory alone.

    >>> theory_table({"P_O": {"theory": 0.5, "measured": 0.25}}).to_dict("list")
    {'quantity': ['P_O'], 'theory': [0.5], 'measured': [0.25], 'measured - theory': [-0.25]}
    """
    rows = list(_quantities("", analysis)) if isinstance(analysis, dict) else []
    table = pd.DataFrame(rows, columns=["quantity", "theory", "measured"])
    gaps = [m - t if is_number(m) and is_number(t) else None
            for t, m in zip(table["theory"], table["measured"], strict=True)]
    return table.assign(**{"measured - theory": pd.Series(gaps, dtype=object)}).dropna(axis=1, how="all")


def _quantities(place: str, value: dict[str, object]) -> Iterator[tuple[str, object, object]]:
    """Dictionaries are walked; one that says theory or measured is a quantity, of which each may be a dictionary."""
    for key, item in value.items():
        name = f"{place}{key}"
        if not isinstance(item, dict):
            yield name, item, None
        elif not {"theory", "measured"} & item.keys():
            yield from _quantities(f"{name}, ", item)
        else:
            theory, measured = item.get("theory"), item.get("measured")
            both = [side for side in (theory, measured) if isinstance(side, dict)]
            if not both:
                yield name, theory, measured
            for case in dict.fromkeys(k for side in both for k in side):
                of = [side.get(case) if isinstance(side, dict) else side for side in (theory, measured)]
                yield f"{name}, {case}", of[0], of[1]


def _provenance(run: RunData, prefix: str) -> list[Part]:
    s = run.summary
    facts = [("scheme", s["scheme"]), ("seed", s.get("seed")), ("digest", s.get("digest")),
             ("digest of the journal", s.get("digest_journal")), ("digest of the models", s.get("digest_model")),
             ("journal rows", s.get("journal_rows")), ("activations", s.get("activations"))]
    broken = s["invariants"] if isinstance(s["invariants"], list) else [s["invariants"]]
    invariants = pd.DataFrame({"invariants": broken})
    tables = [("Identity", pd.DataFrame(facts, columns=["what", "value"])), ("Invariants", invariants),
              ("Versions", pd.DataFrame(list(s.get("versions", {}).items()), columns=["package", "version"]))]
    waits = s.get("oracle_waits") or {}
    if waits:
        tables.insert(2, ("Waits that ended because fates were known, which a real node could not know",
                          pd.DataFrame(list(waits.items()), columns=["role@file:line", "waits"])))
    left = left_behind(s)
    if len(left):
        tables.append(("Left in the run directory", left))
    part = Part("provenance", "Scenario, versions, digests", tables=tables, source=run.scenario_text)
    return [_prefixed(part, prefix)]


def left_behind(summary: PlainMapping) -> pd.DataFrame:
    """The models and arrays that nodes left, one a row; how many more there are than 200.

    >>> left_behind({"models": {"server": 3}, "artefacts": {"a": {"noise": "0f"}}}).to_dict("list")
    {'what': ['model of round 3', 'array noise'], 'node': ['server', 'a']}
    """
    found = [(f"model of round {number}", node) for node, number in summary.get("models", {}).items()]
    found += [(f"array {name}", node) for node, names in summary.get("artefacts", {}).items() for name in names]
    found += [(f"{n['messages']:,} messages of type {kind}, {n['left_out']:,} left out", "")
              for kind, n in summary.get("payloads", {}).items()]
    more = [(f"{len(found) - 200:,} more", "")] if len(found) > 200 else []
    return pd.DataFrame([*found[:200], *more], columns=["what", "node"])


# --- several runs ---------------------------------------------------------------------------------------------------

def _study_parts(found: StudyRuns, tell: Callable[[str], None] = lambda step: None) -> list[Part]:
    shown, several = found.representatives(), len({m.seed for m in found.members}) > 1
    detailed = shown[:DETAILED]
    budget = SPACE_TIME_ROWS // max(len(detailed), 1)
    details: list[Part] = []
    told: dict[str, _Detail] = {}
    curves: list[pd.DataFrame] = []
    opened = {member.path for member in detailed}
    for i, (member, prefix) in enumerate(zip(detailed, slugs([m.series for m in detailed]), strict=True), 1):
        tell(f"reading {member.path.name}, run {i} of {len(detailed)}")
        run = data.open_run(member.path)
        told[member.series] = _details(run, prefix, budget)
        values = grid.label_of(member.values, list(member.values), grid.titles_of(found))
        title = member.series + (f", seed {member.seed}" if several else "") + (f", {values}" if values else "")
        details.append(Part(prefix, title, group=[
            Part(f"{prefix}-overview", "Overview", cards=cards.of_run(run.summary, len(run.names))),
            *told[member.series].parts, *_provenance(run, prefix)]))
        curves.append(_labelled(data.curve(run), member))
    if found.curves is None and found.kind == "runs":           # those of the other seeds, too
        curves += [_labelled(data.curve(data.open_run(m.path)), m) for m in found.members if m.path not in opened]
    over = "Means over the seeds; in brackets the least and the largest." if several else ""
    failed = [{key: value if isinstance(value, (str, int, float)) or value is None else str(value)
               for key, value in entry.items()} for entry in found.failed]
    parts = [Part("overview", "Overview", text=_about(found), answer=found.answer,
                  tables=[(over, by_scheme(found)), *([("Failed", pd.DataFrame(failed))] if failed else [])]),
             _learning(found, curves)]
    if found.differences is not None and len(found.differences):
        parts.append(Part("differences", "Differences between schemes", figures.differences(found.differences),
                          folded=[("All differences", differences_table(found.differences))],
                          text="Means of the differences on the same seeds, on which every scheme met the same "
                               "realisation of the network. A bar is the interval of the table, if it has one."))
    if traded := trade_offs(found):
        parts.append(traded)
    if effects := grid.sweep_figures(found):
        parts.append(Part("grid", "Effects of the grid's values", effects))
    parts.append(_costs(told, "Of the first seed of each scheme." if several else ""))
    left = len(shown) - len(detailed)
    parts.append(Part("runs", "Runs in detail", group=details, text="One run of each scheme."
                      + (f" {left} more are not shown; `emul report RUN` shows one." if left else "")))
    parts.append(Part("all", "All runs", folded=[
        ("A row for each run: results, parameters, digests", overview(found))]))
    return parts


def _learning(found: StudyRuns, read: list[pd.DataFrame]) -> Part:
    """Curves: of a sweep by the grid's values, of a comparison with its target, else of `read`."""
    if found.kind == "sweep":
        drawn, text = grid.curves_by_value(found)
    else:
        curves = found.curves.rename(columns={"scheme": "series"}) if found.curves is not None else pd.concat(read)
        kinds = study.kinds_of(found)
        drawn, text = learning(curves, target=found.target, of=kinds[0] if len(kinds) == 1 else ""), ""
    return Part("learning", "Learning", drawn, text if drawn else "No accuracy and no loss were observed.")


def _costs(told: Mapping[str, _Detail], text: str) -> Part:
    """Bytes and computing of several runs side by side."""
    drawn = [figures.bytes_by_run({name: one.traffic for name, one in told.items()})]
    if computed := {name: one.computing for name, one in told.items() if one.computing["virtual_s"].sum() > 0}:
        drawn.append(figures.computing_by_run(computed))
    if work := {name: one.work for name, one in told.items() if one.work["seconds"].sum() > 0}:
        drawn.append(stragglers.side_by_side(work))
    if grouped := {f"{name}: {group}": rows for name, one in told.items() for group, rows in one.by_group.items()}:
        drawn.append(stragglers.side_by_side(
            grouped, "work-by-run-and-group", "Work that came to nothing, by run and group",
            "Shares of the computing of each group in each run, by the fate of the message that followed.", "group"))
    sent = side_by_side({name: one.phases for name, one in told.items()})
    if not len(sent):
        return Part("cost", "Costs side by side", drawn, text=text)
    return Part("cost", "Costs side by side", [*drawn, bytes_by_phase(sent)], text=text, folded=[(PHASES, sent)])


def _labelled(curve: pd.DataFrame, member: StudyMember) -> pd.DataFrame:
    return curve.assign(series=member.series, seed=member.seed)


def _about(found: StudyRuns) -> str:
    seeds = sorted({m.seed for m in found.members if m.seed is not None})
    what = {"sweep": "Sweep", "compare": "Comparison"}.get(found.kind, "Runs")
    text = f"{what} of {found.name or 'several scenarios'}: {len(found.members)} runs"
    text += f", seeds {', '.join(map(str, seeds))}." if seeds else "."
    if found.grid:
        names = grid.titles_of(found)
        text += " Grid: " + "; ".join(
            f"{names.get(k, k)} = {', '.join(map(str, v))}" for k, v in found.grid.items()) + "."
    return text


def by_scheme(found: StudyRuns) -> pd.DataFrame:
    """One row a scheme (in a sweep: a scheme and its values of the grid): means over its seeds, with the least and the
    largest of several. Columns of nothing are left out."""
    names = grid.titles_of(found)
    own: dict[tuple[Any, ...], list[StudyMember]] = {}
    for member in found.members:
        own.setdefault((member.series, *(_readable(member.values.get(name)) for name in names)), []).append(member)
    took = {} if found.target is None else found.target.reached.set_index("series").to_dict("index")
    rows = []
    for (series, *values), members in own.items():
        said = [m.summary for m in members]
        row: PlainDict = {"scheme": series, **dict(zip(names.values(), values, strict=True)), "seeds": len(members),
                          "last accuracy": _spread([s["accuracy"] for s in said], 3),
                          "accuracy of": in_words(said[0].get("accuracy_of")),
                          "epsilon in total": epsilons(said[0].get("privacy"))}
        if (reached := took.get(series)) is not None and found.target is not None:
            one = len(found.target.accuracies) == 1
            at = f"{reached['target']:g}" if one else "the target"
            row |= {**({} if one else {"target": f"{reached['target']:g}"}),
                    f"reached {at}": f"{reached['seeds']} of {reached['of']}",
                    f"time to {at}, s": _between(*(reached[f"virtual_s{end}"] for end in _ENDS)),
                    f"MB to {at}": _between(*(reached[f"mb{end}"] for end in _ENDS))}
        rows.append(row | {
            "rounds": _spread([s["rounds"] for s in said]),
            "failed rounds": _spread([s["rounds_failed"] for s in said]),
            "virtual time, s": _spread([s["virtual_seconds"] for s in said]),
            "MB sent": _spread([s["bytes_total"] / 1e6 for s in said]),
            "messages lost": _spread([100 * s["messages_lost"] / max(1, s["messages_sent"]) for s in said], unit=" %"),
            "joules": _spread([(s.get("energy") or {}).get("joules") for s in said])})
    table = pd.DataFrame(rows)
    nothing = [name for name in table if name != "scheme" and set(table[name]) <= {"", "0", "0\N{NO-BREAK SPACE}%"}]
    return table.drop(columns=nothing)


def _spread(values: Sequence[float | None], decimals: int | None = None, unit: str = "") -> str:
    """The mean, with the least and the largest of several that differ; empty without any. A cell that is too narrow is
    broken before these.

    >>> _spread([0.9, 0.92], 3).split(" "), _spread([4.0]), _spread([None]), _spread([12345.6, 12345.6])
    (['0.910', '(0.900\\xa0to\\xa00.920)'], '4', '', '12,346')
    """
    known = [float(value) for value in values if value is not None and value == value]
    return _between(sum(known) / len(known), min(known), max(known), decimals, unit) if known else ""


_ENDS = ("", "_low", "_high")


def _between(mean: float, low: float, high: float, decimals: int | None = None, unit: str = "") -> str:
    """As `_spread`, of what is known of the values."""
    middle, least, most = (f"{value:.{decimals}f}" if decimals is not None else _digits(value)
                           for value in (mean, low, high))
    parts = [middle + unit, *([f"({least} to {most})"] if least != most else [])]
    return " ".join(part.replace(" ", "\N{NO-BREAK SPACE}") for part in parts)


def _digits(value: float) -> str:
    """Three digits that count, whole numbers from 100 on; empty for none.

    >>> _digits(0.012345), _digits(12.345), _digits(12345.6), _digits(float("nan"))
    ('0.0123', '12.3', '12,346', '')
    """
    return "" if value != value else f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


_DIFFERENCE_COLUMNS = {"n_seeds": "seeds", "low": "from", "high": "to", "t_low": "paired t, from", "t_high": "to (t)",
                       "p_holm": "p by Holm", "seeds_needed": "seeds that would settle it"}


def differences_table(found: pd.DataFrame) -> pd.DataFrame:
    """`differences.parquet` with names that can be read, without columns of nothing."""
    bare = found.dropna(axis=1, how="all")
    return bare.assign(metric=bare["metric"].str.replace("_", " ")).rename(columns=_DIFFERENCE_COLUMNS)


_UNITS = {"virtual_s": "virtual time, s", "mb": "MB sent", "lost": "messages lost", "rejected": "messages rejected",
          "sent": "messages sent", "real_s": "real time, s", "failed": "failed rounds"}


def overview(found: StudyRuns) -> pd.DataFrame:
    """One row a run: what its summary says, results before parameters.

    A scheme that does not depend on a value of the grid, or has no such parameter, has none there.
    """
    grid = dict.fromkeys(name for m in found.members for name in m.values)
    given = parameter_columns([m.summary for m in found.members])
    results = pd.DataFrame([{
        "scheme": m.series, "seed": m.seed, **{name: m.values.get(name) for name in grid},
        "rounds": m.summary["rounds"], "failed": m.summary["rounds_failed"], "accuracy": m.summary["accuracy"],
        "accuracy of": in_words(m.summary.get("accuracy_of")),
        "virtual_s": m.summary["virtual_seconds"], "mb": m.summary["bytes_total"] / 1e6,
        "waits that know fates": oracle_waits(m.summary),
        "lost": m.summary["messages_lost"], "rejected": m.summary["messages_rejected"],
        "sent": m.summary["messages_sent"], "real_s": m.summary["real_seconds"]} for m in found.members])
    taken = {*results.columns, "digest"}
    short = {name: name.removeprefix("parameters.") for name in given}
    parameters = {name if short[name] in taken else short[name]: [_readable(value) for value in values]
                  for name, values in given.items()}
    nothing = [name for name in ("accuracy of", "waits that know fates", "rejected") if not results[name].any()]
    digests = [str(m.summary["digest"])[:_DIGEST] for m in found.members]
    return results.drop(columns=nothing).rename(columns=_UNITS).assign(**parameters, digest=digests)


def _readable(value: object) -> Any:
    """A parameter's value as a table shows it: numbers as they are, the rest in words.

    >>> _readable({"trimmed_mean": {"f": 1}}), _readable({"up": "qsgd", "down": None}), _readable([1, 2]), _readable(3)
    ('trimmed_mean (f 1)', 'up qsgd, down none', '1, 2', 3)
    """
    if isinstance(value, dict):
        return ", ".join(f"{key} ({_readable(below)})" if isinstance(below, dict) and below else
                         str(key) if below == {} else f"{key} {'none' if below is None else _readable(below)}"
                         for key, below in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(str(_readable(item)) for item in value)
    return value

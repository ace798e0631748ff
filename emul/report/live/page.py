"""The page of a run that goes: the report's style and charts, fed by events."""

from __future__ import annotations

import json
from collections import Counter
from html import escape
from importlib import resources

from emul import __version__
from emul.base.plain import PlainDict
from emul.record.marks import in_words
from emul.record.progress import clock, seconds
from emul.report import figures, palette
from emul.report.cards import while_running
from emul.report.curves import learning
from emul.report.drawing import Figure
from emul.report.live.state import COMPUTING, DOWN, ENDED, RUNNING, STOPPED, RoundProgress, RunProgress
from emul.report.page import bundle, packed, report_asset, themes

# charts are compiled in the page, hence 'unsafe-eval'; it may ask the server that it came from, and nobody else
POLICY = ("default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data:; "
          "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")


def page(name: str) -> bytes:
    """Of the run called `name`; what it shows comes by events."""
    setup = json.dumps({"light": palette.LIGHT, "dark": palette.DARK, "config": palette.CONFIG}).replace("<", "\\u003c")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(name)}: emul watch</title>
<style>{themes()}{report_asset("page.css")}{_asset("live.css")}</style>
</head>
<body>
<header>
<div class="head"><h1>{escape(name)}</h1></div>
<p class="lead" id="said" role="status">Connecting to the run ...</p>
<progress id="share" max="1" hidden aria-label="How far the run is"></progress>
</header>
<main id="main">
<noscript><p class="note">This page needs JavaScript; <code>emul report</code> writes one that does not.</p></noscript>
<section aria-label="Numbers"><dl class="cards" id="cards"></dl></section>
<section aria-labelledby="learning-title"><h2 id="learning-title">Learning and bytes</h2>
<p class="note" id="none">Nothing was observed yet.</p><div class="pairs" id="figures"></div></section>
<section aria-labelledby="nodes-title"><h2 id="nodes-title">Nodes</h2>
<p class="said" id="counts"></p><ul class="nodes" id="nodes"></ul></section>
<section aria-labelledby="rounds-title"><h2 id="rounds-title">Rounds</h2>
<div class="scroll table" tabindex="0" role="group" aria-label="Table"><table><thead><tr>
<th scope="col" class="n">round</th><th scope="col">node</th><th scope="col" class="n">entered</th>
<th scope="col" class="n">took</th><th scope="col" class="n">lost</th><th scope="col" class="n">accuracy</th>
<th scope="col" class="n">loss</th>
<th scope="col">outcome</th></tr></thead><tbody id="rounds"></tbody></table></div></section>
<section aria-labelledby="refused-title" id="refused-section" hidden><h2 id="refused-title">Rejected messages</h2>
<div class="scroll table" tabindex="0" role="group" aria-label="Table"><table><thead><tr><th scope="col">sender</th>
<th scope="col">type</th><th scope="col">reason</th><th scope="col" class="n">messages</th></tr></thead>
<tbody id="refused"></tbody></table></div></section>
</main>
<footer><p>emul {escape(__version__)}. Read as the run writes it; nothing of it changes the run.</p></footer>
<script type="application/json" id="setup">{setup}</script>
<script>{bundle()}</script>
<script>{report_asset("charts.js")}</script>
<script>{_asset("live.js")}</script>
</body>
</html>
""".encode()


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


_NODES, _ROUNDS, _REFUSED = 400, 12, 20         # that are listed, at most

_SAID = {"waiting": "waits for its first row", RUNNING: "is running", ENDED: "has ended", STOPPED: "was cut off",
         "damaged": "cannot be read"}


def shown(state: RunProgress) -> PlainDict:
    """Everything, ready for JSON."""
    newest = sorted(state.rounds.values(), key=lambda one: (-one.number, one.node))[:_ROUNDS]
    counts = Counter((node.role, node.state) for node in state.nodes)           # in the order of the nodes
    curve, traffic = state.curve(), state.traffic_frame()
    drawn = learning(curve, single=True, of=in_words(state.header.get("accuracy_of"))) if len(curve) else []
    drawn = [*drawn, *([figures.bytes_by_type(traffic)] if len(traffic) else [])]
    return {"status": state.status, "said": status_line(state), "share": state.share(), "cards": while_running(state),
            "figures": [_figure(figure) for figure in drawn],
            "counts": [(*key, number) for key, number in counts.items()],
            "nodes": [{"name": node.name, "role": node.role, "state": node.state, "round": node.round,
                       "doing": node.doing if node.state == COMPUTING else "", "bad": node.state == DOWN}
                      for node in state.nodes[:_NODES]], "more_nodes": max(0, len(state.nodes) - _NODES),
            "rounds": [_round(one, state) for one in newest],
            "refused": [[sender, kind, reason, f"{count:,}"] for (sender, kind, reason), count in
                        state.refused.most_common(_REFUSED)]}


def status_line(state: RunProgress) -> str:
    """The state of the run in a sentence."""
    left = state.left_s()
    more = f"; about {clock(left)} left" if left is not None else f": {state.why}" if state.why else ""
    return f"The run {_SAID.get(state.status, state.status)}{more}."


def _figure(figure: Figure) -> dict[str, object]:
    return {"key": figure.key, "title": figure.title, "text": figure.text, "width": figure.least_width,
            "spec": figure.spec() | {"description": figure.words},
            "frames": {name: packed(frame) for name, frame in figure.frames.items()}}


def _round(one: RoundProgress, state: RunProgress) -> list[str]:
    """Cells: round, node, entered, took, lost, accuracy, loss, outcome."""
    values = state.observed.get((one.number, one.node), {})
    took = "" if one.left_ns is None else seconds((one.left_ns - one.entered_ns) / 1e9)
    outcome = "under way" if one.left_ns is None else one.why or "completed"
    observed = [f"{values[name]:.4g}" if name in values else "" for name in ("accuracy", "loss")]
    return [f"{one.number:,}", state.nodes[one.node].name, seconds(one.entered_ns / 1e9), took,
            f"{state.lost[one.number]:,}", *observed, outcome]

"""The page of a run that goes: the report's style and charts, fed by events."""

from __future__ import annotations

import json
from html import escape
from importlib import resources

from emul import __version__
from emul.report import palette
from emul.report.page import bundle, report_asset, themes

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

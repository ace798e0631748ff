"""The options by which `emul run` takes a Flower app in place of the scenario's schemes."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Annotated

import typer

FlowerApp = Annotated[str | None, typer.Option("--flower", metavar="APP", help=(
    "run this Flower app, a folder as `flwr new` makes it or a package beside one, in place of the scenario's schemes "
    "(needs emul[flower])"))]
ServerApp = Annotated[str | None, typer.Option("--server", metavar="PKG:APP", help=(
    "the ServerApp, in place of what the app's folder names"))]
ClientApp = Annotated[str | None, typer.Option("--client", metavar="PKG:APP", help="the ClientApp, likewise")]
RunConfig = Annotated[list[str] | None, typer.Option("--run-config", metavar="KEY=VALUE", help=(
    'with a Flower app, values of its run config as `flwr run` takes them, e.g. "num-server-rounds=5 lr=0.1"; may be '
    "repeated"))]


def flower_scheme(app: str | None, server: str | None, client: str | None, config: list[str] | None) -> list[str]:
    """The edits of a scenario that put a Flower app in place of its schemes; none without an app.

    >>> flower_scheme(None, "mine:server", "mine:client", ["rounds=3"])
    ['schemes=[{"name": "flower", "server": "mine:server", "client": "mine:client", "config": {"rounds": 3}}]']
    """
    entry = flower_entry(app, server, client, config)
    return [] if entry is None else [f"schemes={json.dumps([entry])}"]


def flower_entry(app: str | None, server: str | None, client: str | None, config: list[str] | None,
                 ) -> dict[str, object] | None:
    """The entry of `schemes` for a Flower app; None without an app."""
    if app is not None and Path(app).is_dir():
        app = str(Path(app).resolve())      # it holds wherever the run is computed again
    given = {"app": app, "server": server, "client": client, "config": parsed(config or ())}
    if app is None and server is None and client is None:
        if config:
            raise typer.BadParameter("is used only with --flower, or --server and --client", param_hint="--run-config")
        return None
    return {"name": "flower", **{key: value for key, value in given.items() if value}}


def parsed(config: list[str] | tuple[str, ...]) -> dict[str, object]:
    """Values of a run config, written as TOML: `key=value`, several with spaces between them.

    >>> parsed(["rounds=3 name='a b'", "lr=0.1"])
    {'rounds': 3, 'name': 'a b', 'lr': 0.1}
    """
    found: dict[str, object] = {}
    for text in config:
        for pair in _split(text):
            try:
                found |= tomllib.loads(pair)
            except tomllib.TOMLDecodeError:
                raise typer.BadParameter(f'{pair}: expected key=value, as TOML writes it: lr=0.1, name="adam"',
                                         param_hint="--run-config") from None
    return found


def _split(text: str) -> list[str]:
    """The pairs of a text: at spaces outside of quotes."""
    pairs, quote = [""], ""
    for c in text:
        if c in "'\"" and quote in ("", c):
            quote = "" if quote else c
        if c == " " and not quote:
            pairs.append("")
        else:
            pairs[-1] += c
    return [pair for pair in pairs if pair]

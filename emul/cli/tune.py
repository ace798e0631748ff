"""`emul tune`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from emul.base.errors import Problem, ScenarioError
from emul.cli.options import Json, Plugins, ScenarioFile, SetFiles, Sets, app, edits

if TYPE_CHECKING:
    from emul.study.tune import MachineSetting


@app.command()
def tune(scenario: ScenarioFile,
         scheme: Annotated[str | None, typer.Option(help="which scheme is run [default: the scenario's first]")] = None,
         workers: Annotated[str | None, typer.Option(metavar="1,2", help=(
             "numbers of worker processes to try [default: 1, half the cores, all]"))] = None,
         sizes: Annotated[str, typer.Option(metavar="8,32", help="numbers of clients to train as one")] = "8,16,32,64",
         rounds: Annotated[int, typer.Option(min=2, help="rounds of each run; the first is not counted")] = 4,
         sets: Sets = None, set_file: SetFiles = None, plugin: Plugins = None, as_json: Json = False) -> None:
    """Measure a scenario on this machine with other numbers of workers and fused clients, and say what to set."""
    from emul.base import machine
    from emul.network import build
    from emul.scenario import load
    from emul.study import tune as tuning

    loaded = load(scenario, sets=edits(sets, set_file), plugins=plugin or ())
    cores = machine.cores()
    numbers = _numbers("--workers", workers, 0) if workers else sorted({1, max(1, cores // 2), cores})
    roles = build(loaded.topology, loaded.link_rules, loaded.seed, joined=loaded.equipment,
                  contacts=loaded.contacts, media=loaded.media, radio=loaded.radio).roles
    clients = len(roles.get("client", ())) or sum(map(len, roles.values()))
    tried = tuning.settings(clients, numbers, _numbers("--sizes", sizes, 2))
    if not as_json:
        print(f"{'workers':>7}  {'fuse':<26} {'s a round':>10}")

    def show(measured: tuning.RoundSeconds) -> None:
        if not as_json:
            setting = measured.setting
            print(f"{setting.workers:>7}  {_written(setting):<26} {measured.seconds:>10.4f}", flush=True)

    found = tuning.measure(loaded, scheme, tried, rounds, plugin or (), show)
    best = tuning.choose(found)
    if as_json:
        print(json.dumps({"kind": "tune", "measured": [
            {"workers": m.setting.workers, "fuse": m.setting.document, "seconds": m.seconds} for m in found],
            "workers": best.setting.workers, "fuse": best.setting.document}, indent=2))
    else:
        print(f"\nset   fuse: {_written(best.setting)}   in the scenario"
              f"\nand   --workers {best.setting.workers}   on this machine")


def _written(setting: MachineSetting) -> str:
    document = setting.document
    return "off" if document is None else "{" + ", ".join(f"{key}: {value}" for key, value in document.items()) + "}"


def _numbers(option: str, text: str, least: int) -> list[int]:
    try:
        numbers = sorted({int(part) for part in text.split(",")})
    except ValueError:
        numbers = []
    if not numbers or numbers[0] < least:
        raise ScenarioError("command line", [Problem(option, f'"{text}"', f"expected numbers of {least} or more: 1,2")])
    return numbers

"""`emul devices`."""

from __future__ import annotations

import sys
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from emul.cli.network import print_table
from emul.cli.options import BAD_INPUT, app

if TYPE_CHECKING:
    from emul.scenario.devices import DeviceClass

# number -> (head of its column, what it is divided by)
_COLUMNS = {"flops": ("GFLOP/s", 1e9), "bandwidth": ("GB/s", 1e9), "memory_mb": ("MiB", 1.0), "efficiency": ("e", 1.0),
            "use": ("u", 1.0), "launch_s": ("o, us", 1e-6), "conv_efficiency": ("e conv", 1.0),
            "conv_use": ("u conv", 1.0), "conv_launch_s": ("o conv, us", 1e-6), "speed": ("speed", 1.0),
            "idle_w": ("idle W", 1.0), "compute_w": ("compute W", 1.0), "steam_share": ("Steam %", 1.0)}


@app.command()
def devices(name: Annotated[str | None, typer.Argument(help="a device, or a pattern such as jetson*: all that is known "
                                                       "of it, with the sources")] = None,
            table: Annotated[Path | None, typer.Option(help="a table of your own (CSV)")] = None) -> None:
    """List the devices that a scenario can name, and what each number is known from: measured, specified, assumed."""
    from emul.scenario.devices import SHIPPED, read_devices
    from emul.scenario.wording import nearest

    found = read_devices(table or SHIPPED)
    if name is None:
        print_table("Devices; m: measured, s: specified by the maker, a: assumed",
                    [["device", "kind", *(head for head, _ in _COLUMNS.values())], *map(_row, found.values())])
        print("an operation takes F / (e FLOP/s) + B / (u bytes/s) + o; emul devices NAME tells the sources")
        return
    chosen = [one for key, one in found.items() if fnmatchcase(key, name)]
    if not chosen:
        print(f"{name}: unknown device{nearest(name, found)}", file=sys.stderr)
        raise typer.Exit(BAD_INPUT)
    print_table("What is known", [["device", "number", "value", "known", "source"], *(
        row for one in chosen for row in _numbers(one))])


def _row(device: DeviceClass) -> list[str]:
    return [device.name, device.kind, *(_cell(device, number, unit) for number, (_, unit) in _COLUMNS.items())]


def _cell(device: DeviceClass, number: str, unit: float) -> str:
    value = getattr(device, number)
    if value is None:
        return "-"
    shown = f"{value / unit:,.0f}" if value / unit >= 1000 else f"{value / unit:.4g}"
    return f"{shown} {device.origins[number].basis[:1]}".strip()


def _numbers(device: DeviceClass) -> list[list[str]]:
    return [[device.name, number, f"{getattr(device, number):.6g}", origin.basis or "not said", origin.source]
            for number, origin in device.origins.items()]

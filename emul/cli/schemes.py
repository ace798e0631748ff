"""`emul schemes`, `new-scheme`, `new-task`, `new-plugin`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from emul.base.errors import EmulError
from emul.cli.options import Plugins, app

if TYPE_CHECKING:
    from emul.roles import Scheme


@app.command(name="schemes")
def list_schemes(plugin: Plugins = None) -> None:
    """List the schemes, ours and installed ones, with their parameters."""
    from emul.registry import schemes
    from emul.scenario.params import scenario_keys

    for name in schemes.known(plugin or ()):
        try:
            scheme = schemes.find(name, plugin or ())
        except EmulError as e:
            print(f"{name}: {_offers(name, plugin or ()) or e}")
            continue
        print(f"{name}: {scheme.headline}")
        parameters = ", ".join(scenario_keys(scheme.params))
        print(f"    roles: {_places(scheme)}; parameters: {parameters or 'none'}")


def _offers(name: str, plugins: Sequence[str]) -> str:
    """The parts for learning tasks of a plug-in of that name, which is no scheme: "model net, objective huber"."""
    from emul.learning import names

    module = next((plugin for plugin in plugins if plugin.rpartition(".")[2] == name), None)
    try:
        found = [] if module is None else [f"{kind.what} {own}" for kind in names.KINDS
                                           for own in names.offered(kind, module)]
    except EmulError:
        return ""
    return f"for tasks: {', '.join(found)}" if found else ""


def _places(scheme: Scheme[object]) -> str:
    """Its roles and where they are: "server at server[0], client"."""
    return ", ".join(role if where == role else f"{role} at {where}"
                     for role, where in scheme.all_places().items())


@app.command(name="new-scheme")
def new_scheme(name: Annotated[str, typer.Argument(help="name of the scheme, a Python identifier")],
               directory: Annotated[Path, typer.Option("--dir", help="where to write the files")] = Path(),
               ) -> None:
    """Write a runnable scheme of your own, a scenario for it, and its test."""
    from emul import templates

    _say(name, directory, templates.write_scheme(name, directory))


@app.command(name="new-task")
def new_task(name: Annotated[str, typer.Argument(help="name of the task, a Python identifier")],
             directory: Annotated[Path, typer.Option("--dir", help="where to write the files")] = Path(),
             ) -> None:
    """Write a learning task of your own (data, partition, model, objective), a scenario for it, and its test."""
    from emul import templates

    _say(name, directory, templates.write_task(name, directory))


@app.command(name="new-plugin")
def new_plugin(name: Annotated[str, typer.Argument(help="name of the package and its scheme, a Python identifier")],
               directory: Annotated[Path, typer.Option("--dir", help="where to make its folder")] = Path(),
               ) -> None:
    """Write a package with a scheme of your own: installed, every command knows it without --plugin."""
    from emul import templates

    for path in templates.write_plugin(name, directory):
        print(f"written: {path}")
    home = directory / name
    print(f"install it, run it:  pip install --editable {home} && emul run {home / f'{name}.yaml'}")


def _say(name: str, directory: Path, written: Sequence[Path]) -> None:
    for path in written:
        print(f"written: {path}")
    # plug-ins are imported from where the user is
    there = "" if directory == Path() else f"cd {directory} && "
    print(f"run it:  {there}emul run {name}.yaml --plugin {name}")

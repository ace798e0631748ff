"""`emul schemes`, `cite`, `new-scheme`, `new-task`, `new-plugin`, `init`, `schema`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated

import typer

from emul.base.errors import EmulError
from emul.base.units import format_duration
from emul.cli.options import Plugins, app

if TYPE_CHECKING:
    from emul.roles import Scheme


@app.command(name="schemes")
def list_schemes(name: Annotated[str | None, typer.Argument(help="what this scheme is, its parameters, and what it "
                                                            "protects; without a name: a line for each")] = None,
                 plugin: Plugins = None) -> None:
    """List the schemes, ours and installed ones; or tell all about one: its parameters, what it protects, its paper."""
    from emul.registry import schemes

    if name is not None:
        _describe(schemes.find(name, plugin or ()))
        return
    names = schemes.known(plugin or ())
    for known in names:
        try:
            scheme = schemes.find(known, plugin or ())
            print(f"{known}: {scheme.headline} [accuracy: {_accuracy(scheme)}]")
        except EmulError as e:
            print(f"{known}: {_offers(known, plugin or ()) or e}")
    if names:
        print("emul schemes NAME tells what a scheme is, its parameters, and what it protects")


def _describe(scheme: Scheme[object]) -> None:
    """Print all about the scheme: the text at the head of its module, and the comments behind its parameters."""
    from emul.scenario.params import scenario_keys
    from emul.scenario.schema import parameters

    print(f"{scheme.name}: {scheme.doc.strip()}" + (f"\n\nA variant of {scheme.of}." if scheme.of else ""))
    if not scheme.protects:
        print("\nProtects: nothing. Every receiver reads the messages that it gets, and false ones count.")
    places = scheme.all_places().items()
    print("\nRoles: " + ", ".join(role if where == role else f"{role} at {where}" for role, where in places))
    print(f"Accuracy: {_accuracy(scheme)}")
    print(f"Messages: {', '.join(scheme.types) or 'none'}")
    found = parameters(scheme.params)
    print("\nParameters:" if found else "\nParameters: none")
    for (key, one), field in zip(found.items(), scenario_keys(scheme.params).values(), strict=True):
        default = f" = {_default(field.name, one['default'])}" if "default" in one else ""
        words = " | ".join(map(str, one.get("enum", ())))
        print(fill(": ".join(filter(None, (f"  {key}{default}", words, one.get("description", "")))), 100,
                   subsequent_indent="      "))
    print(f"\nTo cite: emul cite {scheme.name}")


def _default(field: str, value: object) -> str:
    """As a scenario writes it: 10 s of `timeout_s`, none and not None."""
    if field.endswith("_s") and isinstance(value, float):
        return format_duration(round(value * 1e9))
    return "none" if value is None else json.dumps(value).strip('"')


def _accuracy(scheme: Scheme[object]) -> str:
    """The kinds of its accuracy: "global, personal with personal: true"."""
    return ", ".join(f"{of} with {given.lower()}" if given else of for given, of in scheme.accuracies().items())


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


@app.command()
def cite(what: Annotated[list[str] | None, typer.Argument(metavar="[SCENARIO|RUN|SCHEME]...", show_default=False, help=(
             "scenario files, run directories, folders of them, or names of schemes"))] = None,
         plugin: Plugins = None) -> None:
    """Print BibTeX of emul, and of the papers of the schemes, rules, attacks, data and traces of a scenario or run."""
    from emul.citing import bibliography

    print(bibliography(what or (), plugin or ()))


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
    print(f"test it:  pip install pytest && {there}python -m pytest test_{name}.py")


@app.command()
def init(directory: Annotated[Path, typer.Argument(metavar="DIR", help="where to put it; made if need be")]) -> None:
    """Put scenarios, profiles, topologies and traces to start from into a folder, with the schema of scenario files and
    the versions of packages that emul is tested with."""
    from emul.templates import write_starter

    written = write_starter(directory)
    there = "" if directory == Path() else f"cd {directory} && "
    print(f"{directory}: {len(written)} files: scenarios, their profiles, topologies, traces, the schema for editors, "
          "constraints.txt for pip (-c)")
    print(f"run one: {there}emul run scenarios/quickstart.yaml")


@app.command()
def schema(plugin: Plugins = None) -> None:
    """Print the JSON schema of scenario files, for editors: `emul schema > emul.schema.json`."""
    from emul.scenario.schema import schema as made

    print(json.dumps(made(plugin or ()), indent=1, ensure_ascii=False))

"""Mistakes in the learning task of a scenario. Imports no torch and reads no data, but for `tried` and `cannot_fuse`.

`Finding` is (path below `task`, what was found, what was expected). The makers in `emul.learning` trust what has passed
here: they raise errors of their own for what only the data show.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from emul.base.plain import PlainDict, is_count, is_number
from emul.base.tracebacks import one_line
from emul.learning import (
    clusters,
    columns,
    csv_data,
    declared,
    flwr_partitions,
    images,
    libraries,
    models,
    objectives,
    partition,
    root,
    solver,
    text,
)
from emul.learning import data as data_sets
from emul.learning.data import BuiltInData
from emul.learning.names import PluginError
from emul.learning.trial import disguised, measures, trial
from emul.scenario.sections import absolute, findings
from emul.scenario.wording import MISSING, Finding, Verdicts, nearest, shown

TASK_KEYS = ("data", "root", "clusters", "choose_on", "partition", "model", "solver", "objective", "declared")
_DATA_KEYS = ("set", "directory", "normalise", "held_out")


NEEDED = ("data", "model", "solver")


def task_section(value: object) -> PlainDict:
    """Its keys alone: what may stand below them, `emul.learning` and its plug-ins know (see `mistakes`)."""
    if not isinstance(value, dict):
        raise ValueError("expected a mapping")
    if not value:                       # of a loop, which has a task of its own (`Document.wrong`)
        return {}
    found: list[Finding] = [((key,), shown(below), "unknown key" + nearest(key, TASK_KEYS))
                            for key, below in value.items() if key not in TASK_KEYS]
    found += [((key,), MISSING, "is required") for key in NEEDED if value.get(key) is None]
    if found:
        raise findings(found)
    more = ("root", "clusters", "choose_on", "objective", "declared")
    said = {key: value[key] for key in more if value.get(key) is not None}
    return {"data": value["data"], "partition": value.get("partition", "iid"), "model": value["model"],
            "solver": value["solver"], **said}


def task_value(task: PlainDict, base: Path) -> PlainDict:
    """The task as `emul.learning` takes it; the folder of its data is looked for in `base`."""
    data: Any = task.get("data")
    directory = data.get("directory") if isinstance(data, dict) else None
    if not isinstance(directory, str) or directory.startswith("~"):
        return task
    return task | {"data": data | {"directory": str(absolute(directory, base))}}


def mistakes(task: object, clients: int, plugins: Sequence[str] = ()) -> list[Finding]:
    """Every mistake of a task as written in a scenario, for so many clients. plugins: modules of users, which are
    imported."""
    try:
        return _mistakes(task, clients, plugins)
    except PluginError as error:
        return [((), "", str(error))]


def _mistakes(task: object, clients: int, plugins: Sequence[str]) -> list[Finding]:
    if not isinstance(task, dict):
        return [((), _shown(task), f"expected the keys {', '.join(TASK_KEYS)}")]
    found: list[Finding] = [((str(key),), _shown(key), "unknown key" + nearest(str(key), TASK_KEYS))
                            for key in task if key not in TASK_KEYS]
    found += [((key,), _shown(None), f"expected a {key}")
              for key in ("data", "model", "solver") if task.get(key) is None]
    known = None
    if task.get("data") is not None:
        found += _of_data(task["data"], plugins)
        known = _known(task["data"])
    if task.get("root") is not None:
        found += _of_root(task["root"], task.get("data"), known)
    if task.get("clusters") is not None:
        found += _of_clusters(task["clusters"], clients, known)
    if task.get("choose_on") is not None and not is_count(task["choose_on"], 0):
        found.append((("choose_on",), _shown(task["choose_on"]), "expected a number of samples, 0 or more"))
    said = task.get("partition")
    found += _of_partition("iid" if said is None else said, clients, known, _samples(task, known), plugins)
    if task.get("model") is not None:
        found += _of_model(task["model"], known, plugins)
    if task.get("objective") is not None:
        found += _of_objective(task["objective"], plugins)
    if task.get("solver") is not None:
        found += [(tuple(place.split(".")), _shown(value), expected)
                  for place, value, expected in solver.mistakes(task["solver"])]
    if task.get(declared.DECLARED) is not None:
        found += [((declared.DECLARED, *below), _shown(value), expected)
                  for below, value, expected in declared.mistakes(task[declared.DECLARED])]
    return found


def _nearest(name: str, known: Sequence[str], plugins: Sequence[str]) -> str:
    """As `nearest`; where nothing is near and no module of the user's was given, how to give one."""
    found = nearest(name, known)
    return found if plugins or "did you mean" in found else f"{found}; one of your own: give its module, --plugin NAME"


def cannot_fuse(task: PlainDict) -> str | None:
    """The reason why local trainings of a sound task cannot be computed as one; None: they can, or the data's shape is
    not known.

    Imports torch.
    """
    from emul.learning import fused
    from emul.learning.stack import probe

    if not solver.make(task["solver"]).stacks:
        return "the solver: expected sgd or adam without clip, schedule, accumulate and keep"
    known = data_sets.BUILT_IN.get(task["data"]["set"])
    if known is None:
        return None
    module = models.create(task["model"], known.input_shape, known.classes, 0)
    reason = fused.refusal(module, probe(known.input_shape))
    return None if reason is None else f"{models.name_of(task['model'])}: {reason}"


def tried(task: PlainDict, clients: int, seed: int, plugins: Sequence[str], in_disguise: bool,
          targets: Mapping[str, object]) -> Verdicts:
    """The verdicts on a sound task that is tried: its data are read and divided among the clients as a run divides
    them. Unless all of its parts come along, they are made, and one batch goes through, which imports torch.

    in_disguise: a scheme disguises the model, too. targets: of a stop, on what evaluations of the task measure.
    """
    from emul.learning import Task

    made, known = Task(task, clients, seed, plugins=plugins), all(name in own for name, own in _names(task))
    wrong = trial(made, not known) or (disguised(made) if in_disguise and not known else None)
    if wrong is None:
        measured = {"accuracy", "loss"} if known or not targets else measures(made)
        why = "the data have no test samples" if not measured else "the targets are numbers" \
            if not made.data.classes else "the objective measures none of these targets"
        return Verdicts([(("stop", key), str(target), f"the task has no {key}: {why}; expected "
                          + ("loss, rounds or virtual_time" if measured else "rounds or virtual_time"))
                         for key, target in targets.items() if key not in measured],
                        list(made.data.warnings), list(made.data.notes))
    place, text = wrong
    value: Any = task
    for key in place:
        value = value.get(key) if isinstance(value, dict) else None
    return Verdicts([(("task", *place), "" if value is None else shown(value), text)])


def dimension(task: PlainDict, plugins: Sequence[str]) -> int | None:
    """d of a sound task's model; None: it cannot be made. Imports torch, reads a user's data."""
    from emul.learning import Task

    try:
        return Task(task, 1, 0, plugins=plugins).dimension
    except Exception:                               # of a plug-in, whatever its author lets out: `tried` says it
        return None


def _names(task: PlainDict) -> Iterator[tuple[str, Iterable[str]]]:
    """(what is asked for by name, the names that come along) of each part of a task."""
    yield task["data"]["set"], data_sets.BUILT_IN
    yield partition.parse(task.get("partition") or "iid")[0], (*partition.RULES, "by", columns.NAME,
                                                               flwr_partitions.NAME)
    yield models.name_of(task["model"]), models.BUILT_IN
    if task.get("objective") is not None:
        name, options = objectives.parse(task["objective"])
        yield name, () if options else objectives.BUILT_IN      # the types of its options show in a batch


# --- data ---------------------------------------------------------------------------------------------------------

def _known(data: object) -> BuiltInData | None:
    """The description of a built-in set before it is loaded; None: it is not one, or the data are not sound."""
    name = data.get("set") if isinstance(data, dict) else None
    return data_sets.BUILT_IN.get(name) if isinstance(name, str) else None


def _samples(task: PlainDict, known: BuiltInData | None) -> int | None:
    """The number of training samples that the clients share; None: nobody knows yet."""
    if known is None:
        return None
    said = task.get("root")
    kept = said.get("samples") if isinstance(said, dict) else task["data"].get("held_out")
    return known.samples - (int(kept) if kept is not None and _is_held_out(kept, known) else 0)


def _of_data(data: object, plugins: Sequence[str]) -> Iterator[Finding]:
    if not isinstance(data, dict) or not isinstance(data.get("set"), str):
        yield ("data",), _shown(data), ("expected a data set such as {set: digits}, or {set: csv, directory: FILE, "
                                        "y: COLUMN}")
        return
    name = data["set"]
    if name not in data_sets.names(plugins):
        yield ("data", "set"), _shown(name), "unknown data set" + _nearest(name, data_sets.names(plugins), plugins)
        return
    known = data_sets.BUILT_IN.get(name)
    if known is None and name not in data_sets.BY_KIND:
        return                                          # its keys are its author's
    if name == text.TEXT:
        yield from _of_text(data)
        return
    own = libraries.KEYS | {csv_data.CSV: csv_data.KEYS, data_sets.FOLDER: ("channels",)}
    keys = (*_DATA_KEYS, *own.get(name, ()))
    for key in data:
        if key not in keys:
            yield ("data", str(key)), _shown(data[key]), "unknown key" + nearest(str(key), keys)
    if data.get("channels", 1) not in images.CHANNELS:
        yield ("data", "channels"), _shown(data["channels"]), "expected 1 (grey) or 3 (red, green and blue)"
    yield from _of_held_out(data.get("held_out", 0), known)
    yield from _of_normalise(data.get("normalise"), known.input_shape[0] if known else None)
    if data.get("directory") is not None and not isinstance(data["directory"], str):
        yield ("data", "directory"), _shown(data["directory"]), "expected a path"
    elif (reason := data_sets.missing(data)) is not None:
        yield ("data", "directory"), _shown(data.get("directory")), reason


def _of_text(data: PlainDict) -> Iterator[Finding]:
    keys = ("set", "held_out", *text.KEYS)
    for key in data:
        if key not in keys:
            yield ("data", str(key)), _shown(data[key]), "unknown key" + nearest(str(key), keys)
    yield from _of_held_out(data.get("held_out", 0), None)
    yield from ((("data", key), _shown(found), expected) for key, found, expected in text.mistakes(data))


def _of_held_out(held_out: object, known: BuiltInData | None) -> Iterator[Finding]:
    if held_out is not None and not (_is_held_out(held_out, known) if known else is_count(held_out, 0)):
        yield (("data", "held_out"), _shown(held_out), f"expected an integer in 0..{known.samples - 1}" if known else
               "expected an integer, 0 or more")


def _of_root(said: object, data: object, known: BuiltInData | None) -> Iterator[Finding]:
    if not isinstance(said, dict):
        yield ("root",), _shown(said), "expected such as {samples: 100}, or {samples: 100, bias: 0.5, class: 3}"
        return
    if isinstance(data, dict) and data.get("held_out"):
        yield ("root",), _shown(said), "expected either root or data.held_out"
    for key in said:
        if key not in root.KEYS:
            yield ("root", str(key)), _shown(said[key]), "unknown key" + nearest(str(key), root.KEYS)
    samples, most = said.get("samples"), known.samples - 1 if known else None
    if not is_count(samples, 1) or (most is not None and int(samples or 0) > most):
        yield ("root", "samples"), _shown(samples), f"expected an integer in 1..{most or 'n'}"
    bias, towards, parts = said.get("bias"), said.get("class"), said.get("parts")
    if bias is not None and not (is_number(bias) and 0 <= bias <= 1):
        yield ("root", "bias"), _shown(bias), "expected a share of the root samples in [0, 1]"
    if towards is not None and not (is_count(towards, 0) and (known is None or towards < known.classes)):
        yield ("root", "class"), _shown(towards), f"expected a class in 0..{known.classes - 1 if known else 'C - 1'}"
    if parts not in (None, "random", "labels"):
        yield ("root", "parts"), _shown(parts), "expected random or labels"


def _of_clusters(said: object, clients: int, known: BuiltInData | None) -> Iterator[Finding]:
    if not isinstance(said, dict) or len(said) != 1 or next(iter(said)) not in clusters.KINDS:
        yield ("clusters",), _shown(said), "expected such as {rotate: [0, 90]} or {relabel: 2}"
        return
    (kind, value), = said.items()
    turned = kind == "rotate"
    if turned and not (isinstance(value, list) and len(value) >= 2 and all(
            isinstance(angle, int) and not isinstance(angle, bool) and angle % 90 == 0 for angle in value)):
        yield ("clusters", kind), _shown(value), "expected two angles or more, multiples of 90 degrees"
    elif not turned and not is_count(value, 2):
        yield ("clusters", kind), _shown(value), "expected a number of clusters >= 2"
    elif clusters.count(said) > clients:
        yield ("clusters", kind), _shown(value), f"expected at most {clients} clusters, one a client"
    if turned and known is not None and known.input_shape[-1] != known.input_shape[-2]:
        yield ("clusters", kind), _shown(value), f"expected square images, the data have {known.input_shape}"


def _of_normalise(levels: Any, channels: int | None) -> Iterator[Finding]:
    if levels is None:
        return
    good = isinstance(levels, dict) and set(levels) <= {"mean", "std"}
    numbers = {key: value if isinstance(value, list) else [value] for key, value in levels.items()} if good else {}
    good = good and all(v and all(map(is_number, v)) for v in numbers.values())
    if not good or not min(numbers.get("std", [1.0])) > 0:
        yield ("data", "normalise"), _shown(levels), "expected such as {mean: 0.1307, std: 0.3081}, std > 0"
    elif channels is not None and any(isinstance(v, list) and len(v) != channels for v in levels.values()):
        yield ("data", "normalise"), _shown(levels), f"expected {channels} numbers in a list, one for each channel"


# --- partition ----------------------------------------------------------------------------------------------------

def _of_partition(spec: Any, clients: int, known: BuiltInData | None, samples: int | None,
                  plugins: Sequence[str]) -> Iterator[Finding]:
    try:
        name, value = partition.parse(spec)
    except partition.PartitionError:
        yield ("partition",), _shown(spec), "expected one partition such as iid or {dirichlet: 0.2}"
        return
    if name not in partition.names(plugins):
        yield ("partition",), _shown(name), "unknown partition" + _nearest(name, partition.names(plugins), plugins)
        return
    if name == "by":
        if not isinstance(value, str) or not value:
            yield ("partition", "by"), _shown(value), "expected the name of a column of the data"
        elif known is not None:
            yield ("partition", "by"), _shown(value), "the built-in data sets have no columns"
        return
    if name == columns.NAME:
        mistakes = list(columns.mistakes(value, clients, samples))
        if known is not None and not mistakes:
            try:
                columns.ColumnGroups.of(value, known.input_shape)
            except partition.PartitionError as error:
                mistakes.append(("groups", value["groups"], str(error)))
        yield from ((("partition", name, *([key] if key else [])), _shown(found), expected)
                    for key, found, expected in mistakes)
        return
    if name == flwr_partitions.NAME:
        yield from ((("partition", name, *below), _shown(found), expected)
                    for below, found, expected in flwr_partitions.mistakes(value))
        return
    if name not in partition.RULES:
        return                                          # its value is its author's
    wrong = list(_of_rule(name, value, known.classes if known else None))
    yield from ((("partition", name, *below), _shown(found), expected) for below, found, expected in wrong)
    if not wrong and name not in ("bootstrap", "class_space") and samples is not None and clients > samples:
        yield ("partition",), _shown(name), partition.too_many(name, clients, samples)


def _of_rule(name: str, value: object, classes: int | None) -> Iterator[tuple[tuple[str, ...], object, str]]:
    """The mistakes in the value of a built-in partition."""
    if name == "class_space":
        yield from _of_class_space(value, classes)
    elif name == "iid" and value is not None:
        yield (), value, "expected no value"
    elif name == "sizes" and not _is_size_law(value):
        laws = ", ".join(partition.SIZE_LAWS)
        yield (), value, f"expected {laws}, or {{lognormal: sigma}} with a sigma above 0, at most 10"
    elif name == "shards" and not is_count(value, 1):
        yield (), value, "expected a number of shards >= 1"
    elif name == "dirichlet" and not (is_number(value) and 0 < value < float("inf")):
        yield (), value, "expected a concentration > 0"
    elif name == "classes" and not (is_count(value, 1) and value <= (classes or value)):
        yield (), value, f"expected a number of classes in 1..{classes or 'C'}"
    elif name == "degree" and not (is_number(value) and 0 <= value <= 1):
        yield (), value, "expected a probability in [0, 1]"
    elif name == "bootstrap" and not is_count(value, 1):
        yield (), value, "expected a number of samples >= 1"


def _is_size_law(value: object) -> bool:
    if isinstance(value, dict):
        sigma = value.get("lognormal")
        return len(value) == 1 and is_number(sigma) and 0 < sigma <= 10
    return value in partition.SIZE_LAWS


def _of_class_space(value: object, classes: int | None) -> Iterator[tuple[tuple[str, ...], object, str]]:
    if not isinstance(value, dict):
        yield (), value, "expected such as {avg: 3, std: 2, shots: 100, test_shots: 40}"
        return
    keys = partition.CLASS_SPACE
    for key, given in value.items():
        if key not in keys:
            yield (str(key),), given, "unknown key" + nearest(str(key), keys)
        elif not is_count(given, keys[key]):
            yield (key,), given, f"expected an integer, {keys[key]} or more"
        elif key == "avg" and classes is not None and given > classes:
            yield (key,), given, f"expected at most the {classes} classes"
    for key in ("avg", "std", "shots"):
        if key not in value:
            yield (key,), None, "expected a number"


# --- model --------------------------------------------------------------------------------------------------------

def _of_model(spec: object, known: BuiltInData | None, plugins: Sequence[str]) -> Iterator[Finding]:
    try:
        name, options = models.parse(spec)
    except models.ModelError as error:
        yield ("model",), _shown(spec), str(error)
        return
    if name not in models.names(plugins):
        yield ("model",), _shown(name), "unknown model" + _nearest(name, models.names(plugins), plugins)
    elif known is not None and (reason := models.misfit(name, known.input_shape)) is not None:
        yield ("model",), _shown(name), reason
    yield from ((("model", name, str(key)), _shown(found), expected)
                for key, found, expected in models.wrong_options(name, options))


def _of_objective(spec: Any, plugins: Sequence[str]) -> Iterator[Finding]:
    try:
        name, _ = objectives.parse(spec)
    except objectives.ObjectiveError as error:
        yield ("objective",), _shown(spec), str(error)
        return
    if name not in objectives.names(plugins):
        yield ("objective",), _shown(name), "unknown objective" + _nearest(name, objectives.names(plugins), plugins)
        return
    try:
        objectives.make(spec, plugins)
    except Exception as error:                          # of a plug-in, whatever its author lets out
        yield ("objective",), _shown(name), one_line(error)


# --- values -------------------------------------------------------------------------------------------------------


def _is_held_out(value: object, known: BuiltInData) -> bool:
    return is_count(value, 0) and value < known.samples


def _shown(value: object) -> str:
    """The value as the user would know it."""
    return f'"{value}"' if isinstance(value, str) else "nothing" if value is None else str(value)

"""A check before a run that the model of a scenario can be cut, or stand over columns, as a scheme asks. Imports torch
when asked.
"""

from __future__ import annotations

from collections.abc import Mapping

from emul.base.plain import PlainMapping
from emul.learning import models, solver
from emul.learning.columns import ColumnGroups
from emul.learning.data import BUILT_IN


def wrong_cuts(task: PlainMapping, cuts: Mapping[str, str]) -> list[tuple[str, str]]:
    """(key, what is wrong) of cuts by the names of layers, {key: layer}, in the order of the layers; [] where the model
    or the shape of the data is a user's, whose pieces are made when the run begins.

    >>> wrong_cuts({"model": "logistic", "data": {"set": "digits"}}, {"cut": "7"})
    [('cut', 'no layer "7": expected one of 0, 1')]
    """
    known = BUILT_IN.get(str((task.get("data") or {}).get("set")))
    name = models.name_of(task.get("model"))
    if known is None or name not in models.BUILT_IN or models.misfit(name, known.input_shape):
        return []
    from emul.learning.pieces import PieceError, run_of

    module = models.create(name, known.input_shape, known.classes, 0)
    after = None
    for key, last in cuts.items():
        try:
            run_of(module, after, last)
            after = last
            run_of(module, after, None)
        except PieceError as error:
            return [(key, str(error))]
    return []


_FEW = 500              # of parts that any model has numbers for, so that only larger counts make the model


def too_many_parts(task: PlainMapping, key: str, parts: int | None, nodes: int = 1) -> list[str]:
    """The mistake in so many parts of a model's vector, each of which goes over so many nodes: an empty part is sent
    all the same. [] as in `wrong_cuts`."""
    if parts is None or parts * nodes <= _FEW or task.get("declared"):
        return []
    known = BUILT_IN.get(str((task.get("data") or {}).get("set")))
    if known is None or models.name_of(task.get("model")) not in models.BUILT_IN:
        return []
    d = sum(one.numel() for one in models.create(task["model"], known.input_shape, known.classes, 0).parameters())
    most = max(1, d // nodes)
    return [f"{key} = {parts}: expected at most {most}, the {d} numbers of the model"
            + (f" over {nodes} nodes" if nodes > 1 else "")] if parts > most else []


def wrong_solver(task: PlainMapping) -> list[str]:
    """The options of the task's solver that no piece of a model takes."""
    found = solver.make(task["solver"])
    said = [f"solver.keep = {found.keep}: expected none: a piece of a model has moments until new parameters are loaded"
            ] if found.keep else []
    if found.accumulate > 1:
        said.append(f"solver.accumulate = {found.accumulate}: expected none: the passes through a piece of a model say "
                    "how a batch is cut")
    return said


def wrong_towers(task: PlainMapping) -> list[str]:
    """The mistakes in the model as the tower of a client that has columns; [] as in `wrong_cuts`."""
    known = BUILT_IN.get(str((task.get("data") or {}).get("set")))
    name = models.name_of(task.get("model"))
    if known is None or name not in models.BUILT_IN:
        return []
    groups = ColumnGroups.of(task["partition"]["columns"], known.input_shape)
    found = [(party, models.misfit(name, groups.shape_of(party))) for party in range(len(groups))]
    return [f"task.model = {name}: over the columns of client {party + 1}: {text}" for party, text in found if text][:1]

"""`MESSAGES`: the types by which the nodes of a scheme know what comes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest

from emul.base.errors import RoleFailed
from emul.protocols import personal, rounds
from emul.registry import schemes
from emul.registry.schemes import NotAScheme
from emul.roles import Message, Node, Scheme
from emul.testing import NoParams, run_world


@dataclass(frozen=True)
class Said(Message):
    word: str = ""


@dataclass(frozen=True)
class Shouted(Said):
    pass


MESSAGES = (Said,)


async def idle(node: Node, p: Any) -> None:
    return


@pytest.fixture
def module() -> Iterator[ModuleType]:
    """A scheme that can be imported as `spoken`."""
    made = ModuleType("spoken")
    listing(made)
    sys.modules["spoken"] = made
    yield made
    del sys.modules["spoken"]


def listing(module: ModuleType, *messages: Any) -> None:
    """The module's scheme sends these."""
    vars(module)["SCHEME"] = Scheme(params=NoParams, roles={"server": idle, "client": idle}, messages=messages)


def own(module: ModuleType, name: str, base: type[Message] = Message) -> type[Message]:
    """A message type that `module` defines."""
    kind = dataclass(frozen=True)(type(name, (base,), {"__module__": module.__name__}))
    setattr(module, name, kind)
    return kind


def test_every_message_of_ours_is_listed_by_the_module_that_defines_it() -> None:
    for name in schemes.known():
        for kind in schemes.find(name).messages:
            beside = vars(sys.modules[kind.__module__])
            listed = beside["SCHEME"].messages if "SCHEME" in beside else beside["MESSAGES"]
            assert kind in listed, f"{name}: {kind}"


def test_the_types_of_a_scheme_are_those_that_it_lists_whatever_else_it_imports(module: ModuleType) -> None:
    vars(module).update(Model=rounds.Model, Shared=personal.Shared)
    listing(module, rounds.Update, rounds.Model)
    assert schemes.find("spoken", ["spoken"]).types == {"Model": rounds.Model, "Update": rounds.Update}


def test_a_message_that_a_scheme_defines_and_does_not_list_is_an_error_before_the_run(module: ModuleType) -> None:
    listing(module, rounds.Model)
    own(module, "Told")
    with pytest.raises(NotAScheme, match=r'^scheme "spoken" \(spoken\): it defines Told, which messages does not list: '
                                         r'write messages=\(Model, Told,\)$'):
        schemes.find("spoken", ["spoken"])


def test_what_a_listed_message_inherits_from_need_not_be_listed(module: ModuleType) -> None:
    told = own(module, "Told")
    listing(module, own(module, "Whispered", told))
    assert list(schemes.find("spoken", ["spoken"]).types) == ["Whispered"]


@pytest.mark.parametrize(("listed", "said"), [
    ((Said, dataclass(frozen=True)(type("Said", (Message,), {}))),
     r"messages lists two types called Said: receivers tell types by their names$"),
    ((Said, "Shouted"), r"messages lists 'Shouted': expected types of messages$")])
def test_a_list_by_which_nobody_could_tell_types_is_refused(module: ModuleType, listed: Any, said: str) -> None:
    listing(module, *listed)
    with pytest.raises(NotAScheme, match=said):
        schemes.find("spoken", ["spoken"])


def test_to_send_what_is_not_listed_is_an_error_that_names_line_and_cure() -> None:
    async def server(node: Node, p: Any) -> None:
        async for round_ in node.rounds():
            with round_:
                node.broadcast(node.clients, Said("a"))
                node.send(node.clients[0], Shouted("b"))

    with pytest.raises(RoleFailed, match=r"RoleError: test_messages.py:\d+: Shouted is not in messages of the scheme, "
                                         r"so that nobody could read it: write messages=\(Said, Shouted,\)\n$"):
        run_world({"server": server, "client": idle}, clients=1)

"""`MESSAGES`: the types by which the nodes of a scheme know what comes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest

from emul import schemes
from emul.base.errors import RoleFailed
from emul.protocols import personal, rounds
from emul.roles import Message, Node
from emul.schemes import NotAScheme
from emul.testing import NoParams, run_world
from emul.wire import message_types


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
    vars(made).update(ROLES={"server": idle, "client": idle}, Params=NoParams)
    sys.modules["spoken"] = made
    yield made
    del sys.modules["spoken"]


def own(module: ModuleType, name: str, base: type[Message] = Message) -> type[Message]:
    """A message type that `module` defines."""
    kind = dataclass(frozen=True)(type(name, (base,), {"__module__": module.__name__}))
    setattr(module, name, kind)
    return kind


def test_every_message_of_ours_is_listed_by_the_module_that_defines_it() -> None:
    for name in schemes.known():
        listed = schemes.find(name).MESSAGES if hasattr(schemes.find(name), "MESSAGES") else ()
        for kind in listed:
            assert kind in sys.modules[kind.__module__].MESSAGES, f"{name}: {kind}"


def test_the_types_of_a_scheme_are_those_that_it_lists_whatever_else_it_imports(module: ModuleType) -> None:
    vars(module).update(Model=rounds.Model, Shared=personal.Shared, MESSAGES=(rounds.Update, rounds.Model))
    assert schemes.find("spoken", ["spoken"]) is module
    assert message_types(module) == {"Model": rounds.Model, "Update": rounds.Update}


def test_a_message_that_a_scheme_defines_and_does_not_list_is_an_error_before_the_run(module: ModuleType) -> None:
    vars(module)["MESSAGES"] = (rounds.Model,)
    own(module, "Told")
    with pytest.raises(NotAScheme, match=r'^scheme "spoken" \(spoken\): it defines Told, which MESSAGES does not list: '
                                         r'write MESSAGES = \(Model, Told,\)$'):
        schemes.find("spoken", ["spoken"])


def test_what_a_listed_message_inherits_from_need_not_be_listed(module: ModuleType) -> None:
    told = own(module, "Told")
    vars(module)["MESSAGES"] = (own(module, "Whispered", told),)
    assert schemes.find("spoken", ["spoken"]) is module


@pytest.mark.parametrize(("listed", "said"), [
    ((Said, dataclass(frozen=True)(type("Said", (Message,), {}))),
     r"MESSAGES lists two types called Said: receivers tell types by their names$"),
    ((Said, "Shouted"), r"MESSAGES lists 'Shouted': expected types of messages$")])
def test_a_list_by_which_nobody_could_tell_types_is_refused(module: ModuleType, listed: Any, said: str) -> None:
    vars(module)["MESSAGES"] = listed
    with pytest.raises(NotAScheme, match=said):
        schemes.find("spoken", ["spoken"])


def test_to_send_what_is_not_listed_is_an_error_that_names_line_and_cure() -> None:
    async def server(node: Node, p: Any) -> None:
        async for round_ in node.rounds():
            with round_:
                node.broadcast(node.clients, Said("a"))
                node.send(node.clients[0], Shouted("b"))

    with pytest.raises(RoleFailed, match=r"RoleError: test_messages.py:\d+: Shouted is not in MESSAGES of the scheme, "
                                         r"so that nobody could read it: write MESSAGES = \(Said, Shouted,\)\n$"):
        run_world({"server": server, "client": idle}, clients=1)

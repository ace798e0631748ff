"""What must hold of every scheme, ours and installed ones. See `emul.testing.check_scheme`."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from emul.registry import schemes
from emul.roles import Message, Node, Scheme
from emul.scenario import loads
from emul.testing import SMALL, check_scheme
from emul.testing.conformance import TOGETHER
from emul.workers.pool import Workers

# Less of the same work; the slow test takes the examples as they are. Clients that go through all of their samples take
# 2 steps of 24 an epoch here and 18 of 16 there; parties align 22 samples here and 37 there.
FEW = ("task.data.held_out=1197", "task.solver.sgd.batch=24")
LESS = {"fedrep": FEW, "fedrfq": FEW, "fedproto": FEW,
        "vertical": ("task.data.held_out=1415",), "vertical_logistic_he": ("task.data.held_out=1415",)}


@pytest.mark.parametrize("name", [name for name in schemes.known() if not schemes.find(name).of])
def test_a_scheme_conforms(name: str, pools: list[Workers]) -> None:
    """In every case, and in the first one in every way; the slow test below compares all ways in every case, and has
    variants of schemes, too, which are their bases' code."""
    fewer = loads(schemes.find(name).example, name, LESS[name]) if name in LESS else None
    cases = check_scheme(name, fewer, pools=pools[1:2], quick=True)
    assert cases["as it is"].summary["rounds"] >= 1, "the EXAMPLE shows nothing but failures of this scheme"
    if name in ("fedavg", "splitfed", "histogram"):         # two that `fuse` changes, and one in which nobody trains
        assert (TOGETHER in cases) == (name != "histogram")


# one of each kind: the test above runs every scheme in every case
KINDS = ("fedavg", "fedbuff", "gossip", "diloco", "hierarchical", "split", "vertical", "secagg_plus", "lightsecagg",
         "fair_seccogc", "ebs_cfl", "ppfpl", "mp_dp", "fedper")


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name in KINDS else [pytest.mark.release])
                                  for name in schemes.known()])
def test_a_scheme_conforms_in_every_way(name: str, pools: list[Workers]) -> None:
    """Among others: the same bytes and bits for 2 and 4 workers (A20 of the secure-aggregation family)."""
    # a variant is its base's code: two processes are enough of the pools
    check_scheme(name, pools=pools[1:2] if schemes.find(name).of else pools[1:])


# --- a check that cannot fail checks nothing: roles that break each of its rules ------------------------------------

@dataclass(frozen=True)
class Ping(Message):
    number: int


@dataclass(frozen=True)
class Params:
    fault: str = ""


calls = 0                           # a role that remembers what no crash and no run should leave behind


async def server(node: Node, p: Params) -> None:
    global calls
    async for round_ in node.rounds():
        with round_:
            calls += 1
            node.broadcast(node.clients, Ping(10 ** min(calls, 18) if p.fault == "memory" else 0))
            if p.fault == "work":
                busy()
            if p.fault == "bug" and round_ == 2:
                raise ZeroDivisionError("a bug")
            await node.gather(Ping, node.clients, timeout_s=None if p.fault == "hang" else 5.0)
            if p.fault == "hang":
                await node.recv_any()
            while p.fault == "again" and not await node.gather(Ping, node.clients, timeout_s=0.1):
                node.broadcast(node.clients, Ping(0))


async def client(node: Node, p: Params) -> None:
    async for round_ in node.rounds(of=node.server):
        with round_:
            got = await node.recv(Ping, node.server)
            number = await node.compute("think", int, got.number)
            node.send(node.server, Ping(number))


def busy() -> None:
    sum(i * i for i in range(200_000))


def test_a_store_whose_keys_forget_inputs_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """All local trainings have the key of the first one."""
    from emul.store import KeyMaker

    whole = KeyMaker.key
    monkeypatch.setattr(KeyMaker, "key", lambda self, *values: whole(self, *values[:2]))
    with pytest.raises(AssertionError, match=r"^fedavg, as it is: while its trainings are stored the run is another"):
        check_scheme("fedavg", pools=[], quick=True)


@pytest.mark.parametrize(("fault", "said"), [
    ("memory", r"^test_conformance, as it is: in a second run the run is another one: row \d+, .* node 0 \(server\), "
               r"send"),
    ("work", r"^test_conformance, as it is: role code of server outside `node.compute` takes [\d.]+ ms of CPU in one "
             r"activation, which goes on to test_conformance.py:\d+; at most 1 ms are accepted$"),
    ("bug", r"^test_conformance, as it is: a role failed:\nserver \(server\) failed at [\d.]+ s in round 2:\n"
            r"(.*\n)*ZeroDivisionError: a bug"),
    ("hang", r"^test_conformance, as it is: deadlock at [\d.]+ s: .*\n +server \(server\): waiting since [\d.]+ s for "
             r"any message from anybody \(test_conformance.py:\d+\)"),
    ("again", r"^test_conformance, as it is: no round has ended since 0 s, in more than 2,000 activations; now "
              r"t = [\d.]+ s. .*\n +server \(server\): active at [\d.]+ s\n +client1 \(client\): waiting for a round "
              r"after 1 of server \(test_conformance.py:\d+\)"),
])
def test_check_scheme_names_what_a_scheme_does_wrong(fault: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emul.testing.case.ACTIVATIONS_LIMIT", 2_000)
    with pytest.raises(AssertionError, match=said):
        check_scheme("test_conformance", plugins=[__name__], params={"fault": fault}, pools=[])


def test_check_scheme_accepts_roles_that_do_nothing_wrong() -> None:
    worlds = check_scheme("test_conformance", plugins=[__name__], params={}, pools=[])
    assert list(worlds) == ["as it is", "everything is lost", "nobody answers", "a client crashes",
                            "a client crashes and returns",
                            "clients are trained as one, one crashes and returns"]


def test_check_scheme_wants_a_scenario_of_that_scheme() -> None:
    with pytest.raises(ValueError, match=r'^the scenario runs fedavg, not "secagg"$'):
        check_scheme("secagg", SMALL.replace("SCHEME", "fedavg"))


SCHEME = Scheme(params=Params, roles={"server": server, "client": client}, messages=(Ping,))

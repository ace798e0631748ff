"""`Scheme`: what a scheme is, as one typed value.

The module or folder of a scheme ends with it:

    SCHEME = Scheme(params=Params, roles={"server": server, "client": client}, messages=(Model, Update), check=check)

Everything that emul knows of a scheme beside its roles' code stands in these fields. `emul.registry.schemes` finds the
value by the scheme's name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from inspect import signature
from types import SimpleNamespace
from typing import Any, Generic, Literal, TypeAlias, TypeVar, cast, get_args, get_origin, get_type_hints

from emul.message.wire import Message
from emul.roles.analysis import Analysis, Realised, Setting
from emul.roles.desk import LANE
from emul.roles.evaluation import AccuracyOf
from emul.roles.places import default_place, wrong_place
from emul.roles.trampoline import RoleFunction
from emul.roles.world import World

P = TypeVar("P")

Way = Literal["up", "down"]                 # of a vector: from clients to the server, and back


@dataclass(frozen=True, kw_only=True, eq=False)       # one value is one scheme: it is a key
class Scheme(Generic[P]):
    """A federated-learning scheme. Only `params` and `roles` must be given."""

    # ---- its code ----

    params: type[P]
    """A frozen dataclass: the keys of a scenario's entry. The comment behind a field is its description."""

    roles: Mapping[str, RoleFunction]
    """Role -> `async def role(node, params)`."""

    messages: Sequence[type[Message]] = ()
    """The types of all messages that the roles send, those of protocols included. Receivers know types by their names,
    so no two have one name."""

    unsent: Callable[[P], Collection[str]] | None = None
    """params -> the names of those of `messages` that are not sent under these parameters, such as those of another
    preset. A fault that drops a node out at one of them is an error of `emul check`."""

    behaviours: Mapping[str, Mapping[str, RoleFunction]] = field(default_factory=dict)
    """Role -> name -> faulty variant of it, which `faults: {behave: NAME}` puts in the place of the honest one. If it
    holds for some rounds only, the role begins anew when it enters the first of them, and after the last: as after a
    crash, but with its inbox. It must then ask for rounds before it waits for anything, as the honest role does."""

    # ---- who is where ----

    places: Mapping[str, str] = field(default_factory=dict)
    """Role -> its place (`emul.roles.places`), of roles that are elsewhere than by default: a role `server` is the
    first server, any other role is every node of its own name. `"server"` takes every server, `"server[1]"` the second,
    `"dealer | server[1]"` the first that there is. A scenario may say otherwise. A node that no role takes is no part
    of the run."""

    without: Callable[[P], Collection[str]] | None = None
    """params -> the roles that have no node under these parameters. All others must have one, or the scenario is
    refused."""

    decides: str | Sequence[str] | Callable[[Mapping[str, list[int]]], Collection[int]] | None = None
    """The nodes whose rounds are the run's: a role, several, or a function of {role: nodes} that gives the nodes. None:
    the servers if there are any, else all nodes."""

    knows_topology: bool | Callable[[P], bool] = False
    """True if roles and `check` may ask for neighbours, parents, latencies and contacts (`World.neighbours` and its
    like). A function of the parameters says under which they may. Each worker is then told the topology: 24 bytes a
    listed link, and 24 bytes a contact."""

    ideal_links: bool = False
    """True if nothing is lost under this scheme: the outages of the scenario are taken out of the network."""

    one_machine: Callable[[P], bool] | None = None
    """params -> True if all roles are programs of one machine under these parameters: a message arrives at the instant
    at which it is sent, and nothing that the scenario says of links counts. None: never."""

    # ---- what holds of its runs ----

    stateless: Sequence[str] = ()
    """Roles that keep nothing between rounds but `node.state` and their streams, and of which all nodes ask for rounds
    of the same leaders. Their coroutines begin where their nodes enter a round, and are ended while these wait for the
    next: 100,000 of them would take much memory and time. The code before `node.rounds()` runs again in each round, and
    must do nothing but ask for rounds."""

    interchangeable: Sequence[str] = ()
    """Roles of `stateless` of which, without training, all nodes do the same in a round that the same message begins,
    if they have as many samples and the same speed: what they do depends on no name, number, index, place, time or
    datum of their node. Under `training: skip` one of them then answers for all. A role that uses `node.state`, a
    stream or a report is found out, and each of its nodes is asked."""

    lanes: Sequence[str] | Callable[[P], Sequence[str]] = (LANE,)
    """The lanes of a node's computations: those of one take turns, those of several go on side by side. A computation
    is on the first, unless `compute(..., lane=...)` names another, such as the link's sending. A function of the
    parameters gives those under which it has them."""

    deterministic: bool | Callable[[P], bool] = True
    """True if a run comes out again value by value. False: the scheme draws randomness that no seed reaches, as CKKS
    does. A function of the parameters says under which it does not."""

    accuracy: AccuracyOf | Literal["none"] | Callable[[P], AccuracyOf] | None = None
    """The kind of `accuracy` (`emul.roles.evaluation.KINDS`); "none": it has none. None: of the global model where a
    server decides, else of peers' own ones. With `evaluate=node.task.evaluate_own` it is "personal"."""

    results: Sequence[type] = ()
    """Dataclasses and failures that `compute(..., volatile=True)` gives: they are kept by their names."""

    guided: bool = False
    """True if a program outside of emul decides what its nodes do, by volatile results: a replay takes these from the
    record, and such a run has no workers."""

    names_code: bool = False
    """True if its parameters name code, which its roles import: `emul check` runs none of them."""

    oblivious: bool | Callable[[P], Sequence[str]] = False
    """True if nothing in it is decided by what was learned, so that `training: skip` gives the same run. A function of
    the parameters gives the reasons against it, each as `check` gives one; an empty list: there are none."""

    declares: bool = False
    """True if the arrays of its messages are vectors of the model, or shares or codes of them, and its trainings cost
    `node.training_s`: then `task: {declared: ...}` gives a model that is not made its sizes and times."""

    disguises: bool = False
    """True if clients take gradients of the task's model in disguise (`node.task.disguise`): a user's model that cannot
    be disguised is then refused before a run."""

    batches: bool = False
    """True if messages go with every batch of a local training: `emul explain` then counts a round of one batch, and
    `fuse` does computations called `forward` and `backward` together, too."""

    compress: Sequence[Way] = ()
    """The ways on which `compress` of a scenario may put a codec: vectors travel there in the clear, one by one,
    through `emul.protocols.updates`."""

    timeouts: Sequence[str] = ()
    """The fields of `params` that bound how long a role waits, in seconds: `check_scheme` makes every answer late."""

    audits: bool = False
    """True if `params` has `audit: bool`, which makes the roles keep what `emul recovery` reads
    (`emul.protocols.audit`)."""

    # ---- functions that emul calls ----

    honest: Callable[..., Any] | None = None
    """(task, received, j) -> the vector that an honest node j would send in this round, before noise, masks or codes;
    or (vector, its cluster) where clients choose among models of clusters. Attackers that know of others compute it
    again; None: they know their own update only. task: a fresh `node.task` of j. received[Model]: the newest message of
    that type that the attacker has received in this round. One line where all start from a broadcast model:
    `return task.local_update(received[Model].parameters)[0]`."""

    check: Callable[[P, World], list[str]] | None = None
    """The mistakes in these parameters in this world, which is what `node.world` will be: "f = 5: needs n >= 13
    clients" is shown at the key `f`."""

    warn: Callable[[P, World], list[str]] | None = None
    """Warnings for the user before the run, of parameters that are no mistake."""

    analysis: Callable[[P, Setting, Realised], Analysis] | None = None
    """(params, setting, run) -> the theory of the run, called after it: {name: value}, or {name: (value, measured)} to
    have it compared. It becomes `analysis` of the summary (`emul.roles.analysis`)."""

    example: str = ""
    """A scenario of about a second that runs the scheme: golden logs, conformance and docs are made with it."""

    # ---- filled in by the registry ----

    name: str = ""
    module: str = ""
    """The module that defines it."""
    doc: str = ""
    """The text at the head of its module."""
    of: str = ""
    """The scheme that it is a variant of; "": it is none."""

    @property
    def headline(self) -> str:
        """The first paragraph of its text, in one line: the idea of the scheme and its paper."""
        return " ".join(self.doc.strip().partition("\n\n")[0].split())

    @property
    def protects(self) -> str:
        """The paragraph of its text that says from whom it protects which data, and what it does not; "": nothing."""
        found = [part for part in self.doc.split("\n\n") if part.startswith("Protects: ")]
        return " ".join(found[0].removeprefix("Protects: ").split()) if found else ""

    @property
    def types(self) -> dict[str, type[Message]]:
        """Name -> class of its messages, ascending by name."""
        return {kind.__name__: kind for kind in sorted(self.messages, key=lambda kind: kind.__name__)}

    def sends(self, params: P) -> list[str]:
        """The names of the messages that a run with these parameters may send, ascending."""
        without = () if self.unsent is None else self.unsent(params)
        return [name for name in self.types if name not in without]

    def all_places(self) -> dict[str, str]:
        """Role -> its place, of every role that it has, whatever its parameters are."""
        return {role: self.places.get(role) or default_place(role) for role in self.roles}

    def places_under(self, params: P) -> dict[str, str]:
        """Role -> its place, of every role that a run with these parameters has."""
        without = () if self.without is None else self.without(params)
        return {role: place for role, place in self.all_places().items() if role not in without}

    def deciders(self, roles: Mapping[str, list[int]]) -> list[int]:
        """The nodes whose rounds are the run's, ascending. roles: role -> nodes."""
        if callable(self.decides):
            return sorted(self.decides(roles))
        chosen = self.decides
        if chosen is None:
            chosen = ("server",) if roles.get("server") else tuple(roles)
        elif isinstance(chosen, str):
            chosen = (chosen,)
        return sorted(node for role in chosen for node in roles.get(role, []))

    def accuracy_of(self, params: P) -> AccuracyOf | Literal["none"]:
        """The kind of `accuracy` in a run with these parameters."""
        if callable(self.accuracy):
            return self.accuracy(params)
        return self.accuracy or ("global" if self.decides in (None, "server") and "server" in self.roles else "peer")

    def accuracies(self) -> dict[str, str]:
        """"" -> the kind of `accuracy` by default; "personal: True" -> its kind with that, where it is another."""
        if not callable(self.accuracy):
            return {"": self.accuracy_of(cast(P, None))}
        default: dict[str, Any] = {f.name: f.default for f in fields(cast(Any, self.params))}
        said: dict[str, str] = {"": self.accuracy(cast(P, SimpleNamespace(**default)))}
        for name, hint in get_type_hints(self.params).items():
            for value in (True, False) if hint is bool else get_args(hint) if get_origin(hint) is Literal else ():
                found = self.accuracy(cast(P, SimpleNamespace(**default | {name: value})))
                said |= {f"{name}: {value}": found} if found != said[""] else {}
        return said

    def root(self, roles: Mapping[str, list[int]]) -> int:
        """The first of the deciders, 0 where there is none: parents lead to it."""
        return next(iter(self.deciders(roles)), 0)

    def repeats(self, params: P) -> bool:
        """True if a run with these parameters comes out again value by value (`deterministic`)."""
        return bool(self.deterministic(params) if callable(self.deterministic) else self.deterministic)

    def lanes_under(self, params: P) -> list[str]:
        """The lanes of a node's computations in a run with these parameters."""
        return list(self.lanes(params) if callable(self.lanes) else self.lanes)

    def knows(self, params: P) -> bool:
        """True if roles with these parameters may ask for the topology (`knows_topology`)."""
        return bool(self.knows_topology(params) if callable(self.knows_topology) else self.knows_topology)

    def faults(self) -> str:
        """The mistake in this value itself; "": nothing."""
        return self._wrong_roles() or self._wrong_messages() or self._wrong_lanes()

    def _wrong_roles(self) -> str:
        for given, named in (("stateless", self.stateless), ("places", self.places),
                             ("interchangeable", self.interchangeable)):
            strange = [role for role in named if role not in self.roles]
            if strange:
                return f"has no role {', '.join(strange)}, which {given} names"
        kept = [role for role in self.interchangeable if role not in self.stateless]
        if kept:
            return f"has {', '.join(kept)} in interchangeable and not in stateless"
        wrong = ((role, place, wrong_place(place)) for role, place in self.places.items())
        return next((f'places["{role}"] = {place!r}: {text}' for role, place, text in wrong if text), "")

    def _wrong_lanes(self) -> str:
        if callable(self.lanes):
            return ""
        named = not isinstance(self.lanes, str) and all(isinstance(lane, str) and lane for lane in self.lanes)
        if not named or not self.lanes or len(set(self.lanes)) < len(self.lanes):
            return f"lanes = {self.lanes!r}: expected names of lanes, one at least and none twice"
        return ""

    def _wrong_messages(self) -> str:
        strange = [kind for kind in self.messages if not (isinstance(kind, type) and issubclass(kind, Message))]
        if strange:
            return f"messages lists {strange[0]!r}: expected types of messages"
        untold = [kind.__name__ for kind in self.messages if kind.tagged and "tag" not in signature(kind).parameters]
        if untold:
            return f"messages lists {untold[0]}, which is tagged: expected a field tag: int in it"
        names = [kind.__name__ for kind in self.messages]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            return f"messages lists two types called {', '.join(twice)}: receivers tell types by their names"
        return ""


AnyScheme: TypeAlias = Scheme[Any]       # whatever its parameters are


@dataclass(frozen=True, kw_only=True, eq=False)       # one value is one scheme: it is a key
class Variant:
    """A scheme that is another one with some parameters fixed, with whatever else is given in the place of the base's.

        SCHEME = Variant(of="fedavg", fixed={"aggregate": "median"}, example=EXAMPLE)
    """

    of: str
    """The name of the scheme whose messages, roles and equations it has."""

    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Parameters that a scenario cannot set."""

    defaults: Mapping[str, object] = field(default_factory=dict)
    """Other defaults."""

    ideal_links: bool | None = None
    """As of `Scheme`; None: as the base has it."""

    example: str = ""

"""Flower's messages on emul's links: the bytes that Flower itself would put on the wire, in types by purpose.

A `Call` goes from the ServerApp to a ClientApp, an `Answer` comes back. A call holds Flower's metadata and its records
as two serialised parts, so that one model for a hundred nodes is encoded once. The number of the receiver, which
differs from node to node, is written in on arrival. There is a type of message for each of Flower's own, and for each
stage of SecAgg+; an app may name others by `emul.phase` in a ConfigRecord.
"""

from __future__ import annotations

from dataclasses import dataclass

from emul.roles import Declared, Message, Octets

RUN_ID = 1
SERVER_ID = 1                       # Flower's number of whoever runs a ServerApp


@dataclass(frozen=True)
class Call(Message):
    """Server to client."""

    metadata: bytes                 # Flower's Metadata, serialised, without the receiver
    content: Octets                 # Flower's RecordDict, serialised
    floating: bool                  # the answer is welcome in any round: the app asks for it when it likes


@dataclass(frozen=True)
class Answer(Message):
    """Client to server."""

    message: Octets                 # Flower's Message, serialised, without the time of creation
    created_s: float                # that time


class Train(Call):
    """message_type "train"."""


class TrainReply(Answer):
    """A client's answer to a training."""


class Evaluate(Call):
    """message_type "evaluate"."""


class EvaluateReply(Answer):
    """A client's answer to an evaluation."""


class Query(Call):
    """message_type "query", and what clients of the older API are asked: parameters, properties."""


class QueryReply(Answer):
    """A client's answer to a query."""


class SetUp(Call):
    """Stage 0 of SecAgg+: parameters down, public keys up."""


class SetUpReply(Answer):
    """Stage 0 of SecAgg+."""


class ShareKeys(Call):
    """Stage 1 of SecAgg+: public keys down, encrypted shares up."""


class ShareKeysReply(Answer):
    """Stage 1 of SecAgg+."""


class CollectMaskedVectors(Call):
    """Stage 2 of SecAgg+: shares and the model down, masked updates up."""


class CollectMaskedVectorsReply(Answer):
    """Stage 2 of SecAgg+."""


class Unmask(Call):
    """Stage 3 of SecAgg+: who is there down, their shares up."""


class UnmaskReply(Answer):
    """Stage 3 of SecAgg+."""


@dataclass(frozen=True)
class Ping(Message):
    """Server to client: are you there?"""


@dataclass(frozen=True)
class Pong(Message):
    """Client to server: yes."""


# --- requests of a SuperNode to the SuperLink, and responses: a deployment has them in the place of calls and answers -

@dataclass(frozen=True)
class HttpRequest(Message):
    """Of HTTP, SuperNode to SuperLink. number: of the node's requests."""

    number: int
    body: Octets                    # Flower's protobuf message, serialised
    head: Declared                  # its line and its headers


@dataclass(frozen=True)
class HttpResponse(Message):
    """Of HTTP, SuperLink to SuperNode. tag: the number of the request. largest: bytes of the largest object of the
    message that it tells of; no part of HTTP, and not counted."""

    tag: int
    status: int
    body: Octets
    head: Declared
    largest: int = 0


class Connect(HttpRequest, unscoped=True):
    """The first segment of a TCP connection."""


class Connected(HttpResponse, unscoped=True, tagged=True):
    """The answer to the first segment of a connection."""


class ActivateNode(HttpRequest, unscoped=True):
    """A SuperNode that has started is there."""


class ActivateNodeResponse(HttpResponse, unscoped=True, tagged=True):
    """It counts as online from now on."""


class SendNodeHeartbeat(HttpRequest, unscoped=True):
    """A SuperNode is still there."""


class SendNodeHeartbeatResponse(HttpResponse, unscoped=True, tagged=True):
    """It counts as online."""


class PullMessages(HttpRequest, unscoped=True):
    """Is there a message for this node?"""


class PullMessagesResponse(HttpResponse, unscoped=True, tagged=True):
    """A message without its content, and the tree of its objects; or nothing."""


class GetRun(HttpRequest, unscoped=True):
    """Of the first message of a run."""


class GetRunResponse(HttpResponse, unscoped=True, tagged=True):
    """The run's configuration."""


class GetFab(HttpRequest, unscoped=True):
    """Of the first message of a run."""


class GetFabResponse(HttpResponse, unscoped=True, tagged=True):
    """The app, as a bundle of files."""


class PullObject(HttpRequest, unscoped=True):
    """One object of a message."""


class PullObjectResponse(HttpResponse, unscoped=True, tagged=True):
    """An object, or that it is not there yet."""


class ConfirmMessageReceived(HttpRequest, unscoped=True):
    """All objects of a message have come."""


class ConfirmMessageReceivedResponse(HttpResponse, unscoped=True, tagged=True):
    """The SuperLink has deleted what no other message has."""


class PushMessages(HttpRequest, unscoped=True):
    """A reply without its content, and the tree of its objects."""


class PushMessagesResponse(HttpResponse, unscoped=True, tagged=True):
    """The objects that the SuperLink lacks."""


class PushObject(HttpRequest, unscoped=True):
    """One object of a reply."""


class PushObjectResponse(HttpResponse, unscoped=True, tagged=True):
    """It is stored."""


REQUESTS: dict[type[HttpRequest], type[HttpResponse]] = {
    Connect: Connected, ActivateNode: ActivateNodeResponse, SendNodeHeartbeat: SendNodeHeartbeatResponse,
    PullMessages: PullMessagesResponse, GetRun: GetRunResponse, GetFab: GetFabResponse,
    PullObject: PullObjectResponse, ConfirmMessageReceived: ConfirmMessageReceivedResponse,
    PushMessages: PushMessagesResponse, PushObject: PushObjectResponse}

MESSAGES = (Ping, Pong, Train, TrainReply, Evaluate, EvaluateReply, Query, QueryReply, SetUp, SetUpReply, ShareKeys,
            ShareKeysReply, CollectMaskedVectors, CollectMaskedVectorsReply, Unmask, UnmaskReply, *REQUESTS,
            *REQUESTS.values())

CALLS: dict[str, tuple[type[Call], type[Answer]]] = {
    "train": (Train, TrainReply), "evaluate": (Evaluate, EvaluateReply), "query": (Query, QueryReply)}
STAGES: dict[str, tuple[type[Call], type[Answer]]] = {
    "setup": (SetUp, SetUpReply), "share_keys": (ShareKeys, ShareKeysReply),
    "collect_masked_vectors": (CollectMaskedVectors, CollectMaskedVectorsReply), "unmask": (Unmask, UnmaskReply)}
REPLIES: dict[type[Call], type[Answer]] = dict([*CALLS.values(), *STAGES.values()])
LABELS: dict[type[Call], str] = {           # the labels under which computations are charged
    Train: "train", Evaluate: "evaluate", Query: "query", SetUp: "set_up", ShareKeys: "share_keys",
    CollectMaskedVectors: "train", Unmask: "unmask"}


def count_as(message: Message, name: str) -> None:
    """Have tables count a message under a name, where that is not its type's."""
    if name != type(message).__name__:
        object.__setattr__(message, "counted_as", name)

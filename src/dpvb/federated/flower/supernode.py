"""A client's end: a SuperNode that answers in this very process and never runs what it is sent."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
from flwr.app import Error, Message
from flwr.app.message import remove_content_from_message
from flwr.common.constant import HEARTBEAT_DEFAULT_INTERVAL
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
    RegisterNodeFleetRequest,
    UnregisterNodeFleetRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.heartbeat import HeartbeatSender
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_protobuf_utils import (
    make_confirm_message_received_fn_protobuf,
    make_pull_object_fn_protobuf,
    make_push_object_fn_protobuf,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents, pull_objects, push_objects
from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from dpvb.federated.channel import Channel
from dpvb.federated.flower import ASK, GREET, GREETING, REFUSE, REFUSED, Address, check_readable, packed, unpacked
from dpvb.guards.errors import FederationError
from dpvb.guards.strangers import printable

# Seconds between looks at the server: just after a message, and at most.
_SOON, _LATER = 0.05, 1.0
# Seconds for which a last answer is tried again; and in which a server fetches it, which has no answers of those who
# have gone.
_LAST, _STAY = 10.0, 2.0
_NONCE = 32


def serve(
    channel: Channel,
    server: str,
    handler: Callable[[bytes], bytes],
    *,
    address: Address,
    certificate: str | os.PathLike[str] | None = None,
    patience: float = 600.0,
    ended: Callable[[], bool],
    tell: Callable[[str], None] = lambda text: None,
) -> None:
    """Answer the server's messages until the run has ended.

    A server that is out of reach is tried again, so either side may be started first, and restarted.

    Args:
        channel: the client's, with the server's pinned key.
        server: its name.
        handler: bytes to bytes; called for what the server itself has sealed, and for nothing else.
        address: of the server.
        certificate: the authority that the server's certificate comes from, a PEM file; None: the system's, and no TLS
            at all on a loopback address.
        patience: seconds after which a server that is out of reach is given up.
        ended: asked after each answer.
        tell: gets a line about the connection.

    Raises:
        FederationError: the server is out of reach, or refuses this client.
    """
    for name in ("flwr", "httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    authority = None if certificate is None else str(check_readable("certificate", certificate))
    insecure = authority is None and address.is_loopback
    deadline, owes_until, told = time.monotonic() + patience, 0.0, False
    while not ended() or time.monotonic() < owes_until:
        try:
            with _node(address, insecure, authority) as node:
                tell(f"connected to {address}.")
                told = False
                pause = _SOON
                while not ended() or time.monotonic() < owes_until:
                    taken = node.pull()
                    deadline = time.monotonic() + patience
                    if taken is None:
                        time.sleep(pause)
                        pause = min(pause * 1.5, _LATER)
                    else:
                        pause, owes_until = _SOON, math.inf
                        node.push(_reply(channel, server, handler, taken, tell))
                        owes_until = 0.0
                time.sleep(_STAY)
        except (httpx.HTTPError, ConnectionError) as error:
            if ended():  # Whether its last answer has arrived, it does not know.
                owes_until = min(owes_until, time.monotonic() + _LAST)
            elif time.monotonic() > deadline:
                raise FederationError(
                    f"the server at {address} was out of reach for {patience:g} s ({type(error).__name__}: {error}). "
                    "Is it running, do address and certificate fit, and are both clocks right?"
                ) from error
            elif not told:
                told = True
                tell(f"the server at {address} is not in reach yet; it is tried again for {patience:g} s at most.")
            time.sleep(_LATER)


def _reply(
    channel: Channel, server: str, handler: Callable[[bytes], bytes], message: Message, tell: Callable[[str], None]
) -> Message:
    """The answer to a message of Flower: an error without content if it is not the server's."""
    kind, question = message.metadata.message_type, b""
    try:
        data = unpacked(message)
        if kind == ASK:
            sender, question = channel.open(data)
            if sender != server:
                raise FederationError(f"it is from {sender!r}, who is not the server.")
        elif kind == REFUSE:
            question = data[:300]
        elif kind != GREET or len(data) != _NONCE:
            raise FederationError("it is of no known kind.")
    except FederationError as error:
        tell(f"a message was refused: {error}")
        return Message(Error(REFUSED), reply_to=message)
    if kind == REFUSE:  # By whom, nobody knows: all that it can do is to stop this client.
        raise FederationError(
            f"the server sends {channel.name!r} away: {printable(question.decode('ascii', 'replace'))}"
        )
    answer = GREETING + data if kind == GREET else handler(question)
    return Message(packed(channel.seal(server, answer)), reply_to=message)


class _Node:
    """A registered node and its calls."""

    def __init__(self, client: FleetHttpClient, node: Node) -> None:
        self._client, self._node = client, node

    def alive(self) -> bool:
        """Tell the server so; whether it took notice."""
        request = SendNodeHeartbeatRequest(node=self._node, heartbeat_interval=HEARTBEAT_DEFAULT_INTERVAL)
        with contextlib.suppress(httpx.HTTPError):
            return bool(self._client.SendNodeHeartbeat(request).success)
        return False

    def pull(self) -> Message | None:
        """The next message, if there is one."""
        response = self._client.PullMessages(PullMessagesRequest(node=self._node))
        if not response.messages_list:
            return None
        with _understood():
            head = message_from_proto(response.messages_list[0])
            run, identity = head.metadata.run_id, head.metadata.message_id
            contents = pull_objects(
                [one.object_id for one in iterate_object_tree(response.message_object_trees[0])],
                pull_object_fn=make_pull_object_fn_protobuf(self._client.PullObject, self._node, run),
            )
            make_confirm_message_received_fn_protobuf(self._client.ConfirmMessageReceived, self._node, run)(identity)
            message: Any = inflate_object_from_contents(identity, contents)
            message.metadata.__dict__["_message_id"] = identity
            if not isinstance(message, Message):
                raise TypeError
            return message

    def push(self, message: Message) -> None:
        """Send an answer."""
        with _understood(), no_object_id_recompute():
            message.metadata.__dict__["_message_id"] = message.object_id
            request = PushMessagesRequest(
                node=self._node,
                messages_list=[message_to_proto(remove_content_from_message(message))],
                message_object_trees=[get_object_tree(message)],
                clientapp_runtime_list=[0.0],
            )
            response = self._client.PushMessages(request)
            push = make_push_object_fn_protobuf(
                self._client.PushObject, self._node, message.metadata.run_id, response.session_id
            )
            push_objects(
                get_all_nested_objects(message),
                push_object_fn=push,
                object_ids_to_push=set(response.objects_to_push),
            )


@contextlib.contextmanager
def _node(address: Address, insecure: bool, authority: str | None) -> Iterator[_Node]:
    """A node with a key for this connection alone; who the client is, its channel says."""
    private, public = generate_key_pairs()
    name = public_key_to_bytes(public)
    calls = FleetHttpClient.from_server_address(
        str(address), insecure, authority, interceptors=[NodeAuthHttpInterceptor(private, public)]
    )
    with calls as client:
        client.RegisterNode(RegisterNodeFleetRequest(public_key=name))
        request = ActivateNodeRequest(public_key=name, heartbeat_interval=HEARTBEAT_DEFAULT_INTERVAL)
        node = Node(node_id=client.ActivateNode(request).node_id)
        found = _Node(client, node)
        alive = HeartbeatSender(found.alive)
        alive.start()
        try:
            yield found
        finally:
            alive.stop()
            with contextlib.suppress(httpx.HTTPError):
                client.DeactivateNode(DeactivateNodeRequest(node_id=node.node_id))
                client.UnregisterNode(UnregisterNodeFleetRequest(node_id=node.node_id))


@contextlib.contextmanager
def _understood() -> Iterator[None]:
    """Whatever Flower makes of a server that speaks nonsense, or has gone, is a lost connection."""
    try:
        yield
    except httpx.HTTPError:
        raise
    except Exception as error:
        raise ConnectionError(f"not understood, {type(error).__name__}") from error

"""A mailbox over HTTPS: clients call out for their messages and wait for them, and the server never calls.

    GET /dpvb/WIRE    the oldest message that waits for this client; an empty one after POLL_SECONDS
    PUT /dpvb/WIRE    the answer to a message

Both ends show their keys: the header `authorization` of a request, and the bodies of requests and responses, are
envelopes (see `channel`) of

    kind | session of the server | process of the client | turn of the request | number | contents

The session is drawn when a server starts; it is public. A process draws its name, and its turns grow, so that
a request opens once; the response repeats both. The number is that of the message; in a header it is the length of the
body, which is read after the header has opened. Requests or responses that are repeated, exchanged or kept get a
refusal. Nothing depends on a clock.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from dpvb.federated.channel import Channel
from dpvb.federated.messages import VERSION
from dpvb.guards.errors import FederationError

#: Where the mailbox is, with the version of the wire.
PATH: Final = f"/dpvb/{VERSION}"
#: Seconds after which a request that waits for a message is answered: less than the minute for which proxies wait.
POLL_SECONDS: Final = 20.0
#: Name of the session before the client has learnt it, and the header in which the server sends it.
NO_SESSION, SESSION_HEADER = bytes(32), "dpvb-session"
#: Kinds of letters. After its last answer a process calls no more.
HEADER, QUESTION, ANSWER, LAST_ANSWER = b"h", b"q", b"a", b"l"
#: Bytes of an envelope beyond the contents of the letter in it: 164 of the envelope, 57 of the letter.
ENVELOPE_BYTES: Final = 221

_LETTER: Final = struct.Struct("<c32sQQQ")


class Call(NamedTuple):
    """Which request of which process in which session; the response has the same."""

    session: bytes
    process: int
    turn: int


class Question(NamedTuple):
    """A message on its way to a client, and the time by which it is answered."""

    client: str
    data: bytes
    deadline: float


class Letter(NamedTuple):
    """Content of an envelope."""

    sender: str
    kind: bytes
    request: Call
    number: int
    contents: bytes


def seal(channel: Channel, to: str, kind: bytes, request: Call, number: int, contents: bytes = b"") -> bytes:
    """Return the envelope of a letter."""
    return channel.seal(to, _LETTER.pack(kind, *request, number) + contents)


def unseal(channel: Channel, sealed: bytes, *kinds: bytes) -> Letter:
    """Return the letter in an envelope.

    Raises:
        FederationError: if the envelope is not of a party with a key, or the letter is of another kind.
    """
    sender, letter = channel.open(sealed)
    if len(letter) < _LETTER.size or letter[:1] not in kinds:
        raise FederationError(f"An envelope of {sender!r} is out of place.")
    kind, *request, number = _LETTER.unpack_from(letter)
    return Letter(sender, kind, Call(*request), number, letter[_LETTER.size :])

"""A client's end of the mailbox: it calls the server, waits for messages, and brings the answers."""

from __future__ import annotations

import base64
import logging
import os
import secrets
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import httpx

from dpvb.federated import letters
from dpvb.federated.channel import Channel
from dpvb.federated.messages import MAX_BYTES
from dpvb.federated.transport import Address, check_readable
from dpvb.guards.errors import FederationError
from dpvb.guards.untrusted import printable

# Seconds between calls of a server that is out of reach: the first pause, and the longest.
_SOON, _LATER = 0.1, 1.0
# Seconds for which the last answer is tried again, of a server that may have ended without it.
_LAST: Final = 10.0
# Longest response in seconds: as long as a server waits for an answer by default.
_LONGEST: Final = 600.0
# Characters that are shown of a sentence by which a server refuses.
_MOST_SAID: Final = 300


def serve(
    channel: Channel,
    server: str,
    handler: Callable[[bytes], bytes],
    *,
    address: Address,
    certificate: str | os.PathLike[str] | None = None,
    patience: Callable[[], float],
    ended: Callable[[], bool],
    tell: Callable[[str], None] = lambda text: None,
) -> None:
    """Answer the server's messages until the run has ended.

    A server that is out of reach is tried again, so either side may be started first, and restarted.

    Args:
        channel: of the client, with the server's pinned key.
        server: its name.
        handler: bytes to bytes; called for what the server itself has sealed, and for nothing else.
        address: of the server.
        certificate: the authority that the server's certificate comes from, a PEM file; None: the system's, and no TLS
            at all on a loopback address.
        patience: seconds for which a server that is out of reach is tried again; asked each time.
        ended: asked after each answer.
        tell: gets a line about the connection.

    Raises:
        FederationError: the server is out of reach, or refuses this client.
    """
    for name in ("httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        trusted = ssl.create_default_context(cafile=certificate and check_readable("certificate", certificate))
    except ssl.SSLError as error:
        raise FederationError(f"certificate {certificate} is not a PEM file of certificates.") from error
    url = f"{'http' if certificate is None and address.is_loopback else 'https'}://{address}{letters.PATH}"
    # A proxy of the organisation is for other hosts.
    with httpx.Client(verify=trusted, trust_env=not address.is_loopback, timeout=2 * letters.POLL_SECONDS) as http:
        calls = _Calls(http, url, channel, server)
        reached, first, connected, pause = time.monotonic(), True, False, _SOON
        while True:
            try:
                number, question = calls.call()
                if not connected:
                    tell(f"connected to {address}.")
                reached, first, connected, pause = time.monotonic(), False, True, _SOON
                if number:
                    answer = handler(question)
                    reached = time.monotonic()  # Computing an answer is not an outage.
                    calls.call(number, answer, letters.LAST_ANSWER if ended() else letters.ANSWER)
                    reached = time.monotonic()
                    if ended():
                        return
            except (httpx.HTTPError, ConnectionError) as error:
                seconds, most, untrusted = time.monotonic() - reached, patience(), _untrusted(error)
                if ended() and seconds > _LAST:
                    return
                if untrusted and first:
                    raise FederationError(
                        f"The certificate of the server at {address} is refused: {untrusted}. Compare `certificate` "
                        "and `address` with the server's certificate, and this machine's clock with the server's."
                    ) from error
                if seconds > most:
                    raise FederationError(
                        f"the server at {address} was out of reach for {most:g} s ({type(error).__name__}: "
                        f"{printable(str(error))}). Is it running, and do address and certificate fit?"
                    ) from error
                if connected or (first and pause == _SOON):
                    tell(f"the server at {address} is not in reach yet; it is tried again for {most:g} s at most.")
                connected = False
                time.sleep(pause)
                pause = min(2 * pause, _LATER)


class _Calls:
    """A client's requests."""

    def __init__(self, http: httpx.Client, url: str, channel: Channel, server: str) -> None:
        self._http, self._url, self._channel, self._server = http, url, channel, server
        self._request = letters.Call(letters.NO_SESSION, secrets.randbits(64), 0)

    def call(self, number: int = 0, answer: bytes = b"", kind: bytes = letters.ANSWER) -> tuple[int, bytes]:
        """Bring the answer to a message, or fetch a message: its number, which is 0 if there is none, and its bytes.

        Raises:
            FederationError: if the server refuses this client.
            ConnectionError, httpx.HTTPError: for any other failure.
        """
        self._request = request = self._request._replace(turn=self._request.turn + 1)
        body = letters.seal(self._channel, self._server, kind, request, number, answer) if number else b""
        head = letters.seal(self._channel, self._server, letters.HEADER, request, len(body))
        method, headers = "PUT" if number else "GET", {"authorization": base64.b64encode(head).decode("ascii")}
        headers["accept-encoding"], deadline = "identity", time.monotonic() + _LONGEST
        with self._http.stream(method, self._url, content=body, headers=headers) as response:
            sealed = bytearray()
            for chunk in response.iter_raw():
                sealed += chunk
                if len(sealed) > MAX_BYTES or time.monotonic() > deadline:
                    raise ConnectionError("a response that does not end")
        if response.status_code == httpx.codes.OK:
            with suppress(FederationError):
                letter = letters.unseal(self._channel, bytes(sealed), letters.QUESTION)
                if (letter.sender, letter.request) == (self._server, request):
                    return letter.number, letter.contents
            raise ConnectionError("a response that is not the server's to this request")
        session = b""
        with suppress(ValueError):
            session = bytes.fromhex(response.headers.get(letters.SESSION_HEADER, ""))
        if response.status_code == httpx.codes.UNAUTHORIZED and session not in (request.session, b""):
            self._request = request._replace(session=session)
            if request.session == letters.NO_SESSION and not number:
                return self.call()
            raise ConnectionError("the server was started anew")
        if response.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.NOT_FOUND):
            said = printable(bytes(sealed[:_MOST_SAID]).decode("ascii", "replace"))
            raise FederationError(f"The server sends {self._channel.name!r} away: {said}")
        if response.status_code == httpx.codes.REQUEST_ENTITY_TOO_LARGE:
            raise FederationError("An answer of this client is larger than the server's plan allows.")
        raise ConnectionError(f"The server answers with status {response.status_code}")


def _untrusted(error: BaseException | None) -> str:
    """Why a certificate was refused, if that is what an error comes from."""
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return "" if error is None else error.verify_message

"""Where a ledger lies, a path or an address, and how an address may be kept and shown: without its password."""

from __future__ import annotations

import os
import re
from typing import final
from urllib.parse import unquote

from dpvb.guards.errors import ParameterError, check_path

_HOST = r"(?:[^@/?#:,\[\]]*|\[[0-9A-Fa-f:.]*\])(?::\d*)?"
_ADDRESS = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)"
    r"(?:(?P<user>[^@/?#:]*)(?::[^@/?#]*)?@)?"
    rf"(?P<place>{_HOST}(?:,{_HOST})*(?:/[^@/?#]*)?)"
    r"(?:\?(?P<query>[^@#]*))?"
)
# A text that is meant as an address, right or wrong: a scheme has more letters than a drive, a path has made one slash
# of two, and a list of settings names its password.
_MEANT = re.compile(r"^[a-z][\w+.-]+:/|://|\bpassword\s*=|^postgres\w*(\+\w+)?:", re.IGNORECASE)
# Public parts of a query; all others may be secret.
_PUBLIC = {
    *("host", "hostaddr", "port", "user", "dbname", "service", "application_name", "connect_timeout", "sslmode"),
    *("sslrootcert", "sslcert", "sslkey", "sslcrl", "target_session_attrs", "channel_binding", "gssencmode"),
}
#: Replacement for the rest of an address that may be read wrongly.
HIDDEN = "..."


def is_address(place: str) -> bool:
    """Whether a ledger's place is meant as the address of a database, right or wrong, and not as the path of a file."""
    return bool(_MEANT.search(place))


def checked_place(path_or_url: object) -> str:
    """Return the real path of a ledger's file, or its address as it is.

    Raises:
        ParameterError: for anything else; an address of another form is not shown.
    """
    if isinstance(path_or_url, str) and path_or_url.startswith(("postgresql://", "postgres://")):
        return path_or_url
    if isinstance(path_or_url, (str, os.PathLike)) and is_address(str(os.fspath(path_or_url))):
        raise ParameterError(
            "path_or_url must be a path or begin with 'postgresql://', got an address of another form. It is not "
            "shown, as it may hold a password."
        )
    return os.path.realpath(check_path("path_or_url", path_or_url))


def without_password(place: str) -> str:
    """Return a ledger's place as it may be kept and shown.

    Args:
        place: a path, which stays as it is, or an address, of which user, servers, database and the public words of
            its query stay. Nothing stays of an address that can be read in two ways.
    """
    if not is_address(place):
        return place
    if not (match := _ADDRESS.fullmatch(place)):
        return f"postgresql://{HIDDEN}"
    user = f"{match['user']}@" if match["user"] else ""
    words = "&".join(filter(_is_public, (match["query"] or "").split("&")))
    return match["scheme"] + user + match["place"] + (f"?{words}" if words else "")


@final
class Address(str):
    """The address of a ledger: a text like any other, but for its `repr`, which shows no password."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(without_password(str(self)))


def _is_public(word: str) -> bool:
    """Whether a word of a query is one that may be shown, and has no other word inside."""
    name, separator, value = word.partition("=")
    return bool(separator) and unquote(name) in _PUBLIC and not re.search("[=@]", unquote(value))

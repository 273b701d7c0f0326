"""A keyed digest of private data: it tells the key's holder whether two data sets are equal, and others nothing."""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from scipy import sparse

from dpvb.source import Chunk


def fingerprint(key: bytes, chunks: Iterable[Chunk[Any]]) -> str:
    """HMAC-SHA256 of all chunks in order, as hexadecimal text.

    A digest without a key would tell of a small data set which one it is, by trying them.

    Raises:
        TypeError: for rows that are not made of arrays, numbers and text.
    """
    digest = hmac.new(key, digestmod="sha256")
    for chunk in chunks:
        _feed(digest, (chunk.num_units, chunk.unit_of_row, chunk.rows))
    return digest.hexdigest()


def _feed(digest: hmac.HMAC, value: Any) -> None:
    """Take in a value with its type and length, so that no two values read the same."""
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        digest.update(f"array {value.dtype.str} {value.shape} ".encode())
        digest.update(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
    elif sparse.issparse(value):
        plain: Any = value
        rows = plain.tocsr()
        _feed(digest, (rows.shape, rows.indptr, rows.indices, rows.data))
    elif is_dataclass(value):
        _feed(digest, tuple(getattr(value, field.name) for field in fields(value)))
    elif isinstance(value, (tuple, list)):
        digest.update(f"sequence {len(value)} ".encode())
        for part in value:
            _feed(digest, part)
    elif value is None or isinstance(value, (bool, int, float, str, bytes, np.generic)):
        text = repr(value).encode()
        digest.update(f"value {type(value).__name__} {len(text)} ".encode() + text)
    else:
        raise TypeError(f"no fingerprint of {type(value).__name__}")

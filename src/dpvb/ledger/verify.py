"""Checks of a whole chain, in a database or in an exported file."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

from dpvb.guards.errors import LedgerError, check_path
from dpvb.guards.untrusted import parsed_json, printable
from dpvb.ledger.chain import COLUMNS, FORMAT, WAY_OUT, Entry, canonical
from dpvb.ledger.head import Head
from dpvb.ledger.records import Receipt
from dpvb.ledger.run_history import Past
from dpvb.ledger.state import State, set_back
from dpvb.ledger.store import Store

_MAX_LINE = 2**24
_UNREADABLE = "unreadable"
_MAX_ODD = 10


def walk(uuid: str, entries: Iterable[Entry], receipts: Iterable[Receipt] = (), *, shared: bool = False) -> State:
    """Follow a chain from its first row to its last.

    Raises:
        LedgerError: naming the row and the check that failed, or a receipt that is not in the chain; of a shared ledger
            also after its end, naming the rows that no ledger writes and that were counted all the same.
    """
    state, keys, odd = State(uuid, shared=shared), set[str](), dict[int, str]()
    pasts: defaultdict[str, Past] = defaultdict(Past)
    wanted: dict[int, set[str]] = {}
    for receipt in receipts:
        if receipt.ledger != uuid:
            raise LedgerError(f"A receipt for {receipt.dataset!r} comes from another ledger, {receipt.ledger}.")
        wanted.setdefault(receipt.seq, set()).add(receipt.hash)
    for entry in entries:
        if why := state.follow(entry, pasts.__getitem__):
            odd[entry.seq] = why
        if entry.run:
            pasts[entry.run].take(entry)
        if entry.key in keys:
            raise LedgerError(f"Row {entry.seq}: its key was used before. {WAY_OUT}")
        keys.add(entry.key)
        if wanted.pop(entry.seq, {entry.hash}) != {entry.hash}:
            raise LedgerError(f"Row {entry.seq}: a released model has a receipt with another hash. {WAY_OUT}")
    if wanted:
        raise LedgerError(
            f"Row {min(wanted)} is missing: a released model has a receipt for it. The ledger was set back to row "
            f"{state.seq}. {WAY_OUT}"
        )
    if odd:
        rows = "; ".join(f"row {seq}: {why}" for seq, why in list(odd.items())[:_MAX_ODD])
        raise LedgerError(
            f"{rows}. dpvb did not write these {len(odd)} rows. They do not stop fits and do not lower a total. Ask "
            "the roles that may append."
        )
    return state


def check_end(state: State, head: Head) -> None:
    """Raise LedgerError unless a walked chain ends where the head says, or later."""
    if head.uuid != state.uuid:
        raise LedgerError(f"The head is that of another ledger. {WAY_OUT}")
    if head.seq > state.seq:
        raise set_back(state.seq + 1)
    # If a ledger is shared, the head also names data sets whose registration breaks a rule.
    datasets = {name: rows for name, rows in head.datasets.items() if name in state.rows or not state.shared}
    if head.seq == state.seq and (head.hash, datasets) != (state.hash, state.head().datasets):
        raise LedgerError(f"Row {state.seq}: the head says otherwise. {WAY_OUT}")


def write_export(path: str | os.PathLike[str], store: Store) -> None:
    """Write a chain as JSON lines: format and uuid first, then row after row.

    Where a damaged database cannot be read on, a last line says so.

    Raises:
        LedgerError: if the file cannot be written.
    """
    try:
        with open(check_path("path", path), "w", encoding="ascii") as file:
            file.write(canonical({"format": FORMAT, "ledger": store.uuid}) + "\n")
            try:
                with store.transaction(write=False) as rows:
                    for entry in rows.since(1):
                        file.write(canonical(asdict(entry)) + "\n")
            except LedgerError as error:
                file.write(canonical({_UNREADABLE: str(error)}) + "\n")
    except OSError as error:
        raise LedgerError(f"{Path(path)}: cannot be written ({error.strerror}).") from error


def verify_export(path: str | os.PathLike[str], receipts: Sequence[Receipt] = ()) -> None:
    """Check an exported chain, without its ledger.

    It cannot know whether rows were added to the ledger later; receipts say what it must hold at least.

    Raises:
        LedgerError: naming the row and the check that failed, or if the file is none that `export` wrote.
    """
    place = check_path("path", path)
    try:
        with open(place, encoding="ascii") as file:
            lines = _lines(file)
            first = next(lines, {})
            uuid = first.get("ledger")
            if first.get("format") != FORMAT or not isinstance(uuid, str):
                raise LedgerError(f"{Path(path)}: this is not an export of a ledger of format {FORMAT}.")
            walk(uuid, map(_entry, lines), receipts)
    except (OSError, ValueError) as error:
        raise LedgerError(f"{Path(path)}: cannot be read ({error}).") from error


def _lines(file: TextIO) -> Iterator[dict[str, object]]:
    while line := file.readline(_MAX_LINE):
        try:
            facts = parsed_json(line)
        except ValueError as error:
            raise LedgerError("A line is not JSON.") from error
        if not isinstance(facts, dict):
            raise LedgerError("A line is not a JSON object.")
        yield facts


def _entry(facts: dict[str, object]) -> Entry:
    if _UNREADABLE in facts:
        reason = printable(str(facts[_UNREADABLE]))
        raise LedgerError(f"The ledger could not be read on when it was exported: {reason}")
    if set(facts) != set(COLUMNS) or any(type(facts[name]) is not kind for name, kind in COLUMNS.items()):
        raise LedgerError("A line is not a row of a ledger.")
    return Entry(**facts)  # type: ignore[arg-type]

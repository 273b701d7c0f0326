"""The head: where a ledger's chain ended, kept outside the rows, so that a ledger set back in time is found out."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

from dpvb.guards.errors import LedgerError
from dpvb.guards.strangers import parsed_json
from dpvb.ledger.chain import FORMAT, canonical, genesis


@dataclass(frozen=True)
class Head:
    """The end of a chain.

    Attributes:
        uuid: of the ledger.
        seq, hash: of the last row; 0 and the genesis hash if there is none.
        datasets: for each data set the numbers of its registration and of its newest charge (0 for none): what decides
            a charge is found by these and the primary key, never by an index that a flipped bit could bend.
        file: SHA-256 of the database file, if it was closed with everything in it; else "".
    """

    uuid: str
    seq: int
    hash: str
    datasets: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    file: str = ""

    def text(self) -> str:
        """As it is kept: canonical JSON with its own SHA-256."""
        body = canonical({"format": FORMAT, **asdict(self)})
        return canonical({"head": body, "sha256": hashlib.sha256(body.encode()).hexdigest()})

    @staticmethod
    def first(uuid: str) -> Head:
        """The head of a ledger without rows."""
        return Head(uuid, 0, genesis(uuid))

    def of_file(self, digest: str) -> Head:
        """The head with the SHA-256 of the database file."""
        return replace(self, file=digest)

    @staticmethod
    def read(text: str) -> Head:
        """The head that a text says.

        Raises:
            LedgerError: if it was changed, or has another format.
        """
        try:
            kept = parsed_json(text)
            body, digest = str(kept["head"]), str(kept["sha256"])
            if text != canonical(kept) or hashlib.sha256(body.encode()).hexdigest() != digest:
                raise ValueError("hash")
            facts = parsed_json(body)
            if facts.pop("format") != FORMAT:
                raise LedgerError(f"the head has a format other than {FORMAT}, which this version of dpvb reads.")
            facts["datasets"] = {name: (row, charge) for name, (row, charge) in facts["datasets"].items()}
            head = Head(**facts)
            numbers = [head.seq, *(number for pair in head.datasets.values() for number in pair)]
            texts = [head.uuid, head.hash, head.file]
            if any(type(n) is not int or not 0 <= n < 2**63 for n in numbers) or any(type(t) is not str for t in texts):
                raise TypeError("not the fields of a head")
            return head
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise LedgerError("the head was changed: its own hash does not fit.") from error

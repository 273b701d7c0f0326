"""Texts whose words are not listed in advance: every word that occurs is private until a release selects it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from copy import copy
from typing import final

import numpy as np

from dpvb.data.documents.bag_of_words import BagOfWords, cells_of_texts
from dpvb.data.documents.count_rows import clean_slabs, concatenate
from dpvb.data.documents.vocabulary import TOKEN_PATTERN, OpenTokenizer
from dpvb.data.slabs import MAX_WIDTH
from dpvb.data.units import Chunk
from dpvb.rows import CountRows


@final
class Texts:
    """Texts in memory, as counts of all their words; which words there are is private, and so is their number.

    A text that is none is empty, as in `BagOfWords.from_texts`. A word is 1 to 100 printable characters.
    """

    def __init__(
        self,
        texts: Iterable[object],
        *,
        token_pattern: str = TOKEN_PATTERN,
        group: Iterable[object] | None = None,
    ) -> None:
        """Take texts apart.

        Args:
            texts: as in `BagOfWords.from_texts`; private.
            token_pattern: what a word is; public.
            group: the person of each text; private.

        Raises:
            ParameterError, DataFormatError: as in `BagOfWords.from_texts`.
        """
        tokenizer = OpenTokenizer(token_pattern)
        rows = concatenate(clean_slabs(tokenizer.slabs(cells_of_texts(texts)), MAX_WIDTH), MAX_WIDTH)
        self._names = tokenizer.words
        self._bag = BagOfWords.of_rows(rows, group=group)

    def __repr__(self) -> str:
        return f"Texts(unit={self.unit!r})"

    @property
    def names(self) -> Sequence[str]:
        """Every word that occurs; private."""
        return self._names

    @property
    def unit(self) -> str:
        """The privacy unit; public."""
        return self._bag.unit

    def count(self) -> int:
        """Return the number of units; private under add/remove."""
        return self._bag.count()

    def chunks(self) -> Iterator[Chunk[CountRows]]:
        """Yield all units once."""
        return self._bag.chunks()

    def without(self, words: Collection[str]) -> Texts:
        """The same texts without some public words."""
        rest = copy(self)
        rest._names = [name for name in self._names if name not in words]
        rest._bag = self.over(rest._names)
        return rest

    def over(self, words: Sequence[str]) -> BagOfWords:
        """Counts of only these words, which are public."""
        column_of = {word: column for column, word in enumerate(words)}
        column_v = np.array([column_of.get(name, -1) for name in self._names], dtype=np.int64)
        return self._bag.renamed(tuple(words), column_v)

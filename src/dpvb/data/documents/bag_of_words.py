"""Documents in memory, from a stream, grouped by person, with labels, or of words that are not listed in advance.

The label of a document is one more word, behind those of the vocabulary. So whatever holds documents holds labelled
ones too: persons, samples, processes. A document with a label that is not declared has no such word, and a model counts
it as no row. A word that is not listed is private until a release has found it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any, final

import numpy as np
from scipy import sparse

from dpvb.data.documents.count_rows import DocumentSource, clean, clean_slabs, concatenate, taken
from dpvb.data.documents.vocabulary import (
    MISSING_VOCABULARY,
    TOKEN_PATTERN,
    OpenTokenizer,
    Tokenizer,
    Vocabulary,
    check_vocabulary,
    is_words,
)
from dpvb.data.slabs import MAX_WIDTH, Integers, Slab, Which, slab_of_sparse, slab_of_triples
from dpvb.data.spelling import Categories, cells_of, document, real
from dpvb.data.tables.matrices import array_of, as_matrix, column, has_columns, holds_rows, is_column, is_frame
from dpvb.data.units import Chunk, Held, Units
from dpvb.guards.errors import DataFormatError, ParameterError, check_integer
from dpvb.kernels.spans import MAX_ENTRIES
from dpvb.rows import CountRows


class BagOfWords(Held):
    """Word counts held in memory, one row per document; the rows are cleaned and copied once.

    With `group`, the rows of one person are brought together (a stable sort) and the person is the privacy
    unit. Rows whose person is not known (see `spelling.identity`) are left out.

    Examples:
        >>> import numpy as np
        >>> from dpvb.data import BagOfWords
        >>> BagOfWords(np.array([[1, 0], [0, 2]]), vocabulary=["sea", "sun"]).width
        2
    """

    row = "document"

    def __init__(
        self, counts: object, *, vocabulary: Vocabulary | None = None, group: Iterable[object] | None = None
    ) -> None:
        """Take a matrix of counts.

        Args:
            counts: documents × terms: a SciPy sparse matrix or array (CSR, CSC or COO), a dense 2-D array, or an array
                or series of lists, whose width is that of most. The width is public, everything else private; a row
                with a cell that is not a number, or of another length, is empty.
            vocabulary: the terms in column order; public. None: columns have no names.
            group: the person of each row, shape (rows,); private. None: each row is a unit.

        Raises:
            DataFormatError: not a matrix, a damaged sparse structure, a vocabulary of another width, or a group of
                another length.
        """
        matrix, width = _check_matrix(counts)
        names = None if vocabulary is None else check_vocabulary(vocabulary, width=width)
        self._hold(concatenate(clean_slabs(_slabs_of(matrix), width), width), names, group)

    @classmethod
    def from_texts(
        cls,
        texts: Iterable[object],
        *,
        vocabulary: Vocabulary | None,
        token_pattern: str = TOKEN_PATTERN,
        group: Iterable[object] | None = None,
    ) -> BagOfWords:
        """Count the words of a public vocabulary in texts; an item that is not a string is an empty document.

        So is the text of a number in an array or a series, as a number becomes text where another item is one.

        Raises:
            DataFormatError: no vocabulary or a faulty one, or a group of another length than texts.
            ParameterError: a faulty token_pattern, or texts that are not one-dimensional: one string, a frame.
        """
        texts, words = cells_of_texts(texts), check_vocabulary(vocabulary)
        slabs = Tokenizer(words, token_pattern).slabs(texts)
        return cls.of_rows(concatenate(clean_slabs(slabs, len(words)), len(words)), vocabulary=words, group=group)

    @classmethod
    def of_rows(
        cls,
        rows: CountRows,
        *,
        vocabulary: tuple[str, ...] | None = None,
        group: Iterable[object] | None = None,
    ) -> BagOfWords:
        """Hold rows that are clean already.

        Raises:
            DataFormatError: a group of another length than the rows.
        """
        held = cls.__new__(cls)
        held._hold(rows, vocabulary, group)
        return held

    def renamed(self, vocabulary: tuple[str, ...], column_v: Integers) -> BagOfWords:
        """The same units over other terms.

        Args:
            vocabulary: the new terms in column order; public.
            column_v: the new column of each old term; -1: it has none.
        """
        rows, held = self._rows, copy(self)
        held._vocabulary = vocabulary
        held._rows = clean(Slab(rows.indptr, column_v[rows.indices], rows.counts), len(vocabulary))
        return held

    def _hold(self, rows: CountRows, vocabulary: tuple[str, ...] | None, group: Iterable[object] | None) -> None:
        self._vocabulary = vocabulary
        units = Units(rows.indptr, group)
        which, self._units = units.part(0, units.count())
        self._rows = taken(rows, which)

    def __repr__(self) -> str:
        return f"BagOfWords(width={self.width}, unit={self.unit!r})"

    @property
    def width(self) -> int:
        """Number of vocabulary terms; public."""
        return self._rows.width

    @property
    def vocabulary(self) -> tuple[str, ...] | None:
        """The terms in column order, where given; public."""
        return self._vocabulary

    def chunks(self) -> Iterator[Chunk[CountRows]]:
        """Yield all units once; the arrays are views."""
        return self._units.chunks(partial(taken, self._rows), max_entries=MAX_ENTRIES)

    def _keep(self, which: Which) -> None:
        self._rows = taken(self._rows, which)


class Stream:
    """Documents that a function produces afresh at each pass, so that no more than one piece is in memory.

    Examples:
        >>> import numpy as np
        >>> from dpvb.data import Stream
        >>> documents = Stream(lambda: (np.eye(3) for _ in range(2)), 3)  # Two pieces of three documents at each pass.
        >>> documents.count()
        6
    """

    def __init__(
        self,
        factory: Callable[[], Iterable[object]],
        width: int,
        *,
        vocabulary: Vocabulary | None = None,
    ) -> None:
        """Take a function that returns a new iterable of matrices, the same rows at each call.

        Args:
            factory: its matrices are documents × width, sparse (CSR, CSC, COO) or dense; private.
            width: number of vocabulary terms; public.
            vocabulary: the terms in column order; public.

        Raises:
            ParameterError: a width outside its range, or a factory that returns one and the same iterator,
                which would be empty at the second pass.
            DataFormatError: a vocabulary of another width; while reading: no matrix, or one of another width.
        """
        self._width = check_integer("width", width, low=1, high=MAX_WIDTH)
        self._vocabulary = None if vocabulary is None else check_vocabulary(vocabulary, width=self._width)
        if not callable(factory):
            raise ParameterError(f"factory must be a function without arguments, got {type(factory).__name__}.")
        first = factory()
        if isinstance(first, Iterator) and factory() is first:
            raise ParameterError(
                "factory returned the same iterator twice, so a second pass would find no documents. "
                "Pass a generator function itself, not the generator that it returns."
            )
        self._factory = factory
        self._count: int | None = None

    def __repr__(self) -> str:
        return f"Stream(width={self._width}, unit='document')"

    @property
    def width(self) -> int:
        """Number of vocabulary terms; public."""
        return self._width

    @property
    def vocabulary(self) -> tuple[str, ...] | None:
        """The terms in column order, where given; public."""
        return self._vocabulary

    @property
    def unit(self) -> str:
        """The privacy unit; public."""
        return "document"

    def count(self) -> int:
        """Return the number of documents, by one pass at the first call; private under add/remove."""
        if self._count is None:
            self._count = sum(chunk.num_units for chunk in self.chunks())
        return self._count

    def chunks(self) -> Iterator[Chunk[CountRows]]:
        """Yield all documents once."""
        rows = None
        for rows in self._rows():
            yield Chunk(slice(0, rows.num_rows), None, rows.num_rows, partial(taken, rows))
        if rows is None:
            yield from BagOfWords(np.empty((0, self._width))).chunks()

    def parts(self, number: int) -> list[BagOfWords]:
        """The same documents in order, read once and held, in at most so many sources of their own."""
        return in_memory(self).parts(number)

    def _rows(self) -> Iterator[CountRows]:
        for piece in self._factory():
            if isinstance(piece, CountRows):  # Clean already.
                yield piece
                continue
            slabs: Iterable[Slab] = [piece] if isinstance(piece, Slab) else self._slabs(piece)
            yield from clean_slabs(slabs, self._width)

    def _slabs(self, piece: object) -> Iterator[Slab]:
        matrix, width = _check_matrix(piece)
        if width != self._width:
            raise DataFormatError(f"A streamed matrix has {width} columns where width={self._width} was declared.")
        return _slabs_of(matrix)


def in_memory(source: DocumentSource, *, group: Iterable[object] | None = None) -> BagOfWords:
    """Read a stream once and hold its rows, which many passes, and any grouping by person, need.

    Args:
        source: documents; private.
        group: the person of each document in the source's order; private.

    Raises:
        DataFormatError: a group of another length than the source.
        ParameterError: a source that is already grouped.
    """
    if isinstance(source, BagOfWords) and group is None:
        return source
    if source.unit == "person":
        raise ParameterError("source is already grouped by person; give group= where its rows are read.")
    rows = concatenate((chunk.rows for chunk in source.chunks()), source.width)
    return BagOfWords.of_rows(rows, vocabulary=source.vocabulary, group=group)


def as_source(
    data: object,
    *,
    vocabulary: Vocabulary | None = None,
    token_pattern: str = TOKEN_PATTERN,
    group: Iterable[object] | None = None,
) -> DocumentSource:
    """Return documents in any accepted form as a source.

    A source stays itself; a list or tuple is text and needs a vocabulary, and so is a 1-D array or series, unless most
    of its cells are lists of numbers of one length; anything else must be a matrix of counts. A text is a string, or a
    list of words, whatever the other texts are.

    Args:
        data: documents; private.
        vocabulary, token_pattern: public words, and how texts are taken apart into them.
        group: the person of each document; private.

    Raises:
        DataFormatError: none of these, or as `BagOfWords` says.
    """
    if isinstance(data, DocumentSource):
        if vocabulary is not None:
            check_words(data, check_vocabulary(vocabulary, width=data.width))
        return data if group is None else in_memory(data, group=group)
    if isinstance(data, (str, bytes)):
        raise DataFormatError("Documents must be a matrix or a list of strings; open a file with open_documents(path).")
    if isinstance(data, (list, tuple)):
        if vocabulary is None:
            raise DataFormatError(
                "A list is read as texts, one string a document (for counts pass a NumPy array or a sparse "
                "matrix). " + MISSING_VOCABULARY
            )
        return BagOfWords.from_texts(data, vocabulary=vocabulary, token_pattern=token_pattern, group=group)
    if is_column(data) and not holds_rows(None if is_words(cell) else cell for cell in cells_of(data)):
        if vocabulary is None:
            raise DataFormatError(
                "Counts must have 2 dimensions, documents by terms (Reshape your data: counts.reshape(1, -1) is one "
                "document), and one dimension is read as texts. " + MISSING_VOCABULARY
            )
        return BagOfWords.from_texts(data, vocabulary=vocabulary, token_pattern=token_pattern, group=group)
    if has_columns(data) and vocabulary is not None:
        _check_columns(data, check_vocabulary(vocabulary))
    return BagOfWords(data, vocabulary=vocabulary, group=group)


def _check_columns(data: Any, words: Sequence[str]) -> None:
    """Refuse a table that has not one column of counts for each word: its width and names are public.

    Raises:
        DataFormatError: saying how the column that holds the texts is given.
    """
    names = [*getattr(data, "columns", ())] if is_frame(data) else [*getattr(data, "column_names", data.columns)]
    if len(names) != len(words):
        name = repr(names[0]) if len(names) == 1 and isinstance(names[0], str) else "'text'"
        raise DataFormatError(
            f"X is a table of {len(names)} columns, which are read as counts of words, but vocabulary holds "
            f"{len(words)} words. If a column holds texts, give that column: X[{name}]. Nothing was spent."
        )


def check_words(source: DocumentSource, words: Sequence[str] | None) -> None:
    """Check that the columns of documents are these words, where both are named.

    Raises:
        DataFormatError: naming the first that differs; both are public.
    """
    for place, (term, word) in enumerate(zip(source.vocabulary or (), words or (), strict=False)):
        if term != word:
            raise DataFormatError(
                f"X has {term!r} as word {place + 1}, but its vocabulary has {word!r} there: count the words of one "
                "vocabulary, in one order."
            )


def cells_of_texts(texts: object) -> Iterable[object]:
    """Texts one by one, in any accepted form.

    Raises:
        ParameterError: for texts that are not one-dimensional: one string, a frame.
    """
    if isinstance(texts, (str, bytes, Mapping)) or not isinstance(texts, Iterable):
        raise ParameterError(f"texts must be a list of strings, got {type(texts).__name__}.")
    if sparse.issparse(texts) or (hasattr(texts, "__array__") and not is_column(texts)):
        raise ParameterError(
            f"texts must have one dimension, one text for each document, got {type(texts).__name__}; pass the one "
            "column that holds them, as frame['text'] or array.ravel()."
        )
    if not hasattr(texts, "__array__"):
        return texts
    return (cell if is_words(cell) else document(cell) for cell in cells_of(texts))


def _check_matrix(counts: object) -> tuple[Any, int]:
    """Return a 2-D matrix and its public width."""
    matrix: Any = counts
    if sparse.issparse(counts):
        pass
    elif isinstance(counts, np.ma.MaskedArray):
        raise DataFormatError("Counts must not be a masked array; fill it with public values first.")
    elif isinstance(counts, (list, tuple, str, bytes)) or not hasattr(counts, "__array__"):
        raise DataFormatError(
            f"Counts must be a SciPy sparse matrix or a 2-D array, got {type(counts).__name__}; "
            "texts are a list, as list(texts), with vocabulary=."
        )
    else:
        array = array_of(counts)
        matrix = as_matrix(array).dense(slice(None)) if array.ndim == 1 and holds_rows(array) else real(array)
    if matrix.ndim != 2:
        raise DataFormatError(
            f"Counts must have 2 dimensions, documents by terms, got {matrix.ndim}. "
            "Reshape your data: counts.reshape(1, -1) is one document."
        )
    width = int(matrix.shape[1])
    if not 1 <= width <= MAX_WIDTH:
        raise DataFormatError(f"Counts must have between 1 and {MAX_WIDTH} columns, got {width}.")
    return matrix, width


def _slabs_of(matrix: Any) -> Iterator[Slab]:
    """Yield a checked matrix's rows; reads a sparse matrix's arrays only, since SciPy trusts their ids."""
    num_rows, width = matrix.shape
    if isinstance(matrix, np.ndarray):
        step = max(1, MAX_ENTRIES // width)
        for start in range(0, num_rows, step):
            block = matrix[start : start + step]
            row, column = np.nonzero(block)
            yield slab_of_triples(row, column, block[row, column], len(block))
    else:
        yield slab_of_sparse(matrix)


def labelled(
    documents: DocumentSource, y: object, classes: Sequence[object], group: Iterable[object] | None = None
) -> BagOfWords:
    """Documents whose last columns are their labels, one for each class.

    Args:
        documents: private; each is a unit.
        y: the label of each document, (documents,); private.
        classes: the labels; public.
        group: the person of each document; private. None: each document is a unit.

    Raises:
        DataFormatError: y or group of another length than the documents.
        ParameterError: documents that are grouped by person already: labels have the order in which these were read.
    """
    if documents.unit == "person":
        raise ParameterError(
            "X must not be grouped by person yet where documents have labels: give group= to fit, together with y."
        )
    width = documents.width
    rows = concatenate((chunk.rows for chunk in in_memory(documents).chunks()), width)
    code_n = Categories(classes).places(column("y", y, rows.num_rows), other=-1, missing=-1)
    known_n = code_n >= 0
    end_n = rows.indptr[1:][known_n]  # A label stands behind the words of its document.
    indptr = rows.indptr + np.append(0, np.cumsum(known_n))
    indices = np.insert(rows.indices, end_n, (width + code_n[known_n]).astype(np.int32))
    counts = np.insert(rows.counts, end_n, 1.0)
    return BagOfWords.of_rows(CountRows(indptr, indices, counts, width + len(classes)), group=group)


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

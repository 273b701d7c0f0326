"""CSV by one state machine over bytes, compiled on first use: where records end and where their fields lie.

A quote opens only at the start of a field; inside quotes two quotes are one; after the closing quote other bytes are
plain until a separator or a line feed. A line feed outside quotes ends the record. So the place where a record ends
depends on its own bytes alone.
"""

# Numba infers every type below from the arguments.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from functools import partial

from dpvb.kernels.compiled import compiled

START, PLAIN, QUOTED, CLOSED = 0, 1, 2, 3
QUOTE, LINE_FEED, RETURN = 34, 10, 13

_exact = partial(compiled, fastmath=False)


@_exact
def after(state, byte, separator):
    """The state behind a byte that does not end the record; a separator is a byte too."""
    if byte == QUOTE:
        if state in (START, CLOSED):
            return QUOTED
        return CLOSED if state == QUOTED else PLAIN
    if state == QUOTED:
        return QUOTED
    return START if byte == separator else PLAIN


@_exact
def end_of_record(text, state, separator):
    """The place behind the line feed that ends a record, or -1, and the state at the end of the text."""
    for place in range(text.size):
        if text[place] == LINE_FEED and state != QUOTED:
            return place + 1, START
        state = after(state, text[place], separator)
    return -1, state


@_exact
def cut(text, separator, is_last, skips_blank, longest, slot_f, found_n, cells):
    """Cut a text that begins with a record into records.

    Args:
        text: bytes, uint8.
        separator: the byte between fields.
        is_last: whether the file ends with the text, and with it the last record.
        skips_blank: whether a blank line is no record.
        longest: number of bytes beyond which a record is faulty.
        slot_f: for each field the slot of `cells` that takes it, or -1.
        found_n: gets the number of fields of each record; -1: faulty.
        cells: (records, slots, 3), gets start, closing quote (-1: not quoted) and end of fields.

    Returns:
        the number of records, and where the first one begins that the text does not end, or that has no room.
    """
    count = 0
    start = 0
    while start < text.size and count < found_n.size:
        place, first, field, closing, state = start, start, 0, -1, START
        while True:
            ended = place == text.size or (text[place] == LINE_FEED and state != QUOTED)
            if not ended and not (text[place] == separator and state != QUOTED):
                byte = text[place]
                if state == QUOTED and byte == QUOTE:
                    closing = place
                state = after(state, byte, separator)
                place += 1
                continue
            stop = place
            if ended and state != QUOTED and stop > first and text[stop - 1] == RETURN:
                stop -= 1
            if field < slot_f.size and slot_f[field] >= 0:
                cells[count, slot_f[field], 0] = first
                cells[count, slot_f[field], 1] = closing
                cells[count, slot_f[field], 2] = stop
            field += 1
            if ended:
                break
            place += 1
            first, closing, state = place, -1, START
        if place == text.size and not is_last:
            return count, start
        if not (skips_blank and field == 1 and stop == start):
            found_n[count] = -1 if place - start > longest or state == QUOTED else field
            count += 1
        start = place + 1
    return count, min(start, text.size)

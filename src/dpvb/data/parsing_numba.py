"""Parsers of bytes, compiled on first use: lines of numbers, and CSV.

`parse` reads each line by itself, and each number exactly as Python's float reads it. A decimal whose digits make an
integer m ≤ 2⁵³ and whose exponent is at most 22 in size is m·10ᵉ or m/10⁻ᵉ, one correctly rounded operation on two
exact numbers (Clinger, "How to read floating point numbers accurately", 1990). All other tokens are left to the caller.

`cut` finds where the records of a CSV end and where their fields lie, by one state machine. A quote opens only at the
start of a field; inside quotes two quotes are one; after the closing quote other bytes are plain until a separator or a
line feed. A line feed outside quotes ends the record. So the place where a record ends depends only on its own bytes.
"""

# Numba infers every type below from the arguments.
# mypy: disable-error-code="no-untyped-def,assignment"

from __future__ import annotations

from functools import partial

import numpy as np

from dpvb.kernels.compiled import compiled

LINE_FEED, MINUS, PLUS, POINT, ZERO, NINE, LOWER_E, UPPER_E = 10, 45, 43, 46, 48, 57, 101, 69
LARGEST_EXACT = 2**53
LARGEST_EXPONENT = 22
POWERS = np.array([10.0**k for k in range(LARGEST_EXPONENT + 1)])

_exact = partial(compiled, fastmath=False)


@_exact
def _is_space(byte):
    return byte == 32 or 9 <= byte <= 13


@_exact
def _end_of_token(text, place):
    while place < text.size and not _is_space(text[place]):
        place += 1
    return place


@_exact
def _decimal(text, place):
    """A token's value and end; an end of -1 if it is not a decimal that can be read exactly."""
    negative = text[place] == MINUS
    if negative or text[place] == PLUS:
        place += 1
    digits, shift, exponent = 0, 0, 0
    mantissa = 0
    is_fraction = False
    while place < text.size:
        byte = text[place]
        if ZERO <= byte <= NINE:
            if mantissa > LARGEST_EXACT:
                return np.nan, -1
            mantissa = mantissa * 10 + (np.int64(byte) - ZERO)
            digits += 1
            shift -= is_fraction
        elif byte == POINT and not is_fraction:
            is_fraction = True
        else:
            break
        place += 1
    if digits == 0 or mantissa > LARGEST_EXACT:
        return np.nan, -1
    if place < text.size and (text[place] == LOWER_E or text[place] == UPPER_E):
        place += 1
        is_small = place < text.size and text[place] == MINUS
        if is_small or (place < text.size and text[place] == PLUS):
            place += 1
        digits = 0
        while place < text.size and ZERO <= text[place] <= NINE and digits < 4:
            exponent = exponent * 10 + (np.int64(text[place]) - ZERO)
            digits += 1
            place += 1
        if digits == 0:
            return np.nan, -1
        if is_small:
            exponent = -exponent
    if place < text.size and not _is_space(text[place]):
        return np.nan, -1
    exponent += shift
    if exponent > LARGEST_EXPONENT or exponent < -LARGEST_EXPONENT:
        return np.nan, -1
    value = float(mantissa)
    value = value * POWERS[exponent] if exponent >= 0 else value / POWERS[-exponent]
    return (-value if negative else value), place


@_exact
def parse(text, longest, table_nf, left_k3):
    """Read the lines that hold as many tokens as the table has columns; other lines are left out.

    Tokens stand between spaces, tabs, vertical tabs, form feeds and carriage returns, as `bytes.split` cuts them.

    Args:
        text: whole lines, uint8.
        longest: number of bytes beyond which a line is left out.
        table_nf: gets the numbers; NaN for those that are left to the caller.
        left_k3: gets the tokens that are left: place in the flat table, start and end in the text.

    Returns:
        the numbers of lines and of tokens left.
    """
    num_fields = table_nf.shape[1]
    rows, left, place = 0, 0, 0
    while place < text.size:
        start, left_before, field = place, left, 0
        while place < text.size and text[place] != LINE_FEED:
            if _is_space(text[place]):
                place += 1
                continue
            token = place
            value, place = _decimal(text, token)
            if field < num_fields:
                if place < 0:
                    value = np.nan
                    place = _end_of_token(text, token)
                    left_k3[left, 0] = rows * num_fields + field
                    left_k3[left, 1] = token
                    left_k3[left, 2] = place
                    left += 1
                table_nf[rows, field] = value
            else:
                place = _end_of_token(text, token)
            field += 1
        if field == num_fields and place - start <= longest:
            rows += 1
        else:
            left = left_before
        place += 1
    return rows, left


START, PLAIN, QUOTED, CLOSED = 0, 1, 2, 3
QUOTE, RETURN = 34, 13


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
        skips_blank: whether a blank line is skipped.
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

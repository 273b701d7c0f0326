"""Lines of numbers, compiled on first use: each line by itself, each number exactly as Python's float reads it.

A decimal whose digits make an integer m ≤ 2⁵³ and whose exponent is at most 22 in size is m·10ᵉ or m/10⁻ᵉ, one
correctly rounded operation on two exact numbers (Clinger, "How to read floating point numbers accurately", 1990). All
other tokens are left to the caller.
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
    """A token's value and end; an end of -1 if it is no decimal that can be read exactly."""
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

"""Illegal calls of PackedMatrix.from_numbers."""

import headlane
import numpy as np
import pytest
from illegal_calls import PACKED, check_refused

PackedMatrix = headlane.PackedMatrix
Q, S, G = np.ones((64, 5), np.int8), np.ones(5, np.float32), np.ones((2, 5), np.float16)
HALF = Q.astype(np.float16)
MISALIGNED = np.zeros(64 * 5 * 2 + 1, np.uint8)[1:].view(np.float16).reshape(64, 5)


def from_numbers(*arguments, **options):
    return lambda out: PackedMatrix.from_numbers(*arguments, **options)


def with_scale(x, value):
    x = x.copy()
    x[..., 3] = value
    return x


CASES = {
    "float32": (
        from_numbers(Q, S, dtype="float32"),
        ValueError,
        "dtype is 'float32'; there are bfloat16, float16, int8, int8_group32 and int4_group32",
    ),
    "dtype": (from_numbers(Q, S, dtype="Q8_0"), ValueError, "dtype is 'Q8_0'; there are bfloat16, "),
    "type of dtype": (from_numbers(Q, S, dtype=np.int8), TypeError, "dtype is .*; wanted: a str"),
    "clamp": (from_numbers(Q, S, clamp=1), TypeError, "clamp is 1; wanted: True or False"),
    "threads": (from_numbers(Q, S, num_threads=-1), ValueError, "num_threads is -1, the minimum is 0"),
    "numbers of float32": (from_numbers(S[None], S), TypeError, "numbers .*float32; wanted: int8"),
    "numbers of uint8": (from_numbers(Q.view(np.uint8), S), TypeError, "numbers .*uint8; wanted: int8"),
    "numbers of int64": (from_numbers(Q.astype(int), S), TypeError, "numbers .*int64; wanted: int8"),
    "numbers of bool": (from_numbers(Q > 0, S), TypeError, "numbers .*bool; wanted: int8"),
    "numbers, list": (from_numbers([[1]], S), TypeError, "numbers has type list; wanted: an array"),
    "numbers, packed": (
        lambda out: PackedMatrix.from_numbers(PACKED, S),
        TypeError,
        r"numbers has type headlane\.PackedMatrix, dtype float32; wanted: an array",
    ),
    "numbers, vector": (from_numbers(Q[0], S), ValueError, r"numbers has shape \[5\], it must be a matrix"),
    "numbers, three axes": (from_numbers(Q[None], S), ValueError, r"numbers has shape \[1, 64, 5\]"),
    "numbers, too large": (
        from_numbers(np.broadcast_to(np.int8(0), (2**58, 5)), S),
        ValueError,
        r"numbers of shape \[288230376151711744, 5\] does not fit into memory",
    ),
    "no scales": (from_numbers(Q), TypeError, "scales has type NoneType; wanted: an array"),
    "no scales of groups": (
        from_numbers(Q, dtype="int8_group32"),
        TypeError,
        "scales has type NoneType; wanted: an array",
    ),
    "scales of float64": (from_numbers(Q, S.astype(float)), TypeError, r"scales .*float64.*scales\.astype"),
    "scales of int8": (from_numbers(Q, Q[0]), TypeError, "scales .*int8; wanted: float32"),
    "scales of a group in float32": (
        from_numbers(Q, G.astype(np.float32), dtype="int4_group32"),
        TypeError,
        "scales .*float32; wanted: float16",
    ),
    "scales, matrix": (
        from_numbers(Q, S[None]),
        ValueError,
        r"scales has shape \[1, 5\]; wanted: \[columns\]",
    ),
    "scales, vector": (
        from_numbers(Q, G[0], dtype="int8_group32"),
        ValueError,
        r"scales has shape \[5\]; wanted: \[groups of 32 rows, columns\]",
    ),
    "columns": (from_numbers(Q, S[:4]), ValueError, "numbers has 5 columns, scales has 4 elements"),
    "columns of groups": (
        from_numbers(Q, G[:, :4], dtype="int8_group32"),
        ValueError,
        "numbers has 5 columns, scales has 4 columns",
    ),
    "groups": (
        from_numbers(Q, G[:1], dtype="int4_group32"),
        ValueError,
        r"scales has 1 rows, numbers of shape \[64, 5\] has 2 groups of 32 rows",
    ),
    "inf": (
        from_numbers(Q, with_scale(S, -np.inf)),
        ValueError,
        r"scales\[3\] is -inf; 127 times a scale must",
    ),
    "large": (
        from_numbers(Q, with_scale(S, 3e36)),
        ValueError,
        r"scales\[3\] is 3e\+36; 127 times a scale must",
    ),
    "NaN": (
        from_numbers(Q, with_scale(G, np.nan), dtype="int8_group32"),
        ValueError,
        r"scales\[0, 3\] is nan; a scale must be finite",
    ),
    "misaligned": (
        from_numbers(MISALIGNED, dtype="float16"),
        ValueError,
        "^PackedMatrix.from_numbers: numbers is misaligned",
    ),
    "scales of float16": (
        from_numbers(HALF, S, dtype="float16"),
        ValueError,
        "scales are given, float16 has none",
    ),
    "float32 as float16": (
        from_numbers(HALF.astype(np.float32), dtype="float16"),
        TypeError,
        "numbers .*float32; wanted: float16",
    ),
    "float16 as bfloat16": (
        from_numbers(HALF, dtype="bfloat16"),
        TypeError,
        "numbers .*float16; wanted: bfloat16",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_refused(name):
    call, exception, message = CASES[name]
    check_refused(call, exception, message)

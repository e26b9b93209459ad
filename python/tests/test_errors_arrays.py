"""Arrays that no function takes, and outputs that do not fit."""

import gc
import sys

import headlane
import numpy as np
import pytest
from illegal_calls import MISALIGNED, SDPA, X4, X, check_refused, new_out

READ_ONLY = np.broadcast_to(np.float32(0), (4, 8))
ODD_STRIDE = np.zeros((4, 9), np.uint8)[:, :8].view(np.float32)

CASES = {
    "list": (lambda o: SDPA([1.0], X, X, out=o), TypeError, "query has type list"),
    "None": (lambda o: SDPA(X, None, X, out=o), TypeError, "key has type NoneType"),
    "float64": (
        lambda o: SDPA(X, X.astype(np.float64), X, out=o),
        TypeError,
        r"key .*float64; wanted: float32, bfloat16 or float16: pass key\.astype\(np\.float32\)",
    ),
    "bytes of float16 swapped": (lambda o: headlane.softmax(X.astype(">f2")), TypeError, r"x .*>f2.*astype"),
    "int32": (lambda o: headlane.gemm(X.astype(np.int32), X.T), TypeError, r"a .*int32.*a\.astype"),
    "complex64": (lambda o: headlane.matmul(X, X.T.astype(np.complex64)), TypeError, "b .*complex64"),
    "structured": (lambda o: headlane.softmax(np.zeros(3, "f4,i4")), TypeError, "x has type ndarray"),
    "objects": (lambda o: headlane.softmax(np.array([None])), TypeError, "x has type ndarray, dtype object"),
    "bytes swapped": (lambda o: headlane.softmax(X.astype(">f4"), out=o), TypeError, r"x .*>f4.*astype"),
    "int mask": (lambda o: SDPA(X, X, X, np.ones((4, 4), np.int64), out=o), TypeError, "attn_mask .*int64"),
    "out float64": (lambda o: headlane.softmax(X, out=np.zeros((4, 8))), TypeError, "out .*float64"),
    "odd stride": (lambda o: headlane.softmax(ODD_STRIDE), TypeError, "x has a stride of 9 bytes"),
    "misaligned": (lambda o: headlane.softmax(MISALIGNED, out=o), ValueError, "x is misaligned"),
    "misaligned float16": (
        lambda o: headlane.softmax(np.zeros(65, np.uint8)[1:].view(np.float16), out=o),
        ValueError,
        "x is misaligned: its address is 1 modulo 2",
    ),
    "odd stride of float16": (
        lambda o: headlane.softmax(np.zeros((4, 9), np.uint8)[:, :8].view(np.float16)),
        TypeError,
        "x has a stride of 9 bytes",
    ),
    "read-only out": (lambda o: headlane.softmax(X, out=READ_ONLY), ValueError, "out is read-only"),
    "out shape": (
        lambda o: headlane.softmax(X, out=new_out(4, 7)),
        ValueError,
        r"out has shape \[4, 7\], the result \[4, 8\]",
    ),
    "out rank": (
        lambda o: SDPA(X, X, X, out=new_out(1, 4, 8)),
        ValueError,
        r"out has shape \[1, 4, 8\], the result \[4, 8\]",
    ),
    "out overlaps": (lambda o: SDPA(X4, X4, X4, out=X4), ValueError, "out .*overlaps q"),
    "out overlaps itself": (
        lambda o: headlane.softmax(X, out=np.lib.stride_tricks.as_strided(new_out(8), (4, 8), (0, 4))),
        ValueError,
        "overlaps itself",
    ),
    "9 axes": (
        lambda o: headlane.softmax(np.zeros((1,) * 9, np.float32)),
        ValueError,
        "x has 9 axes, at most 8",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_refused(name):
    call, exception, message = CASES[name]
    check_refused(call, exception, message)


def test_the_message_names_the_function_that_was_called():
    with pytest.raises(ValueError, match=r"^log_softmax: softmax: x is misaligned"):
        headlane.log_softmax(MISALIGNED)


def test_a_failed_call_keeps_no_reference():
    gc.collect()  # the errors of other tests refer to their arrays
    target = new_out(4, 7)
    before = sys.getrefcount(target), sys.getrefcount(X)
    for _ in range(10):
        with pytest.raises(ValueError, match="out has shape"):
            headlane.softmax(X, out=target)
    assert (sys.getrefcount(target), sys.getrefcount(X)) == before
    target.resize((2, 2))  # NumPy refuses while a buffer is held

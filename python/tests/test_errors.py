"""Illegal calls: the right exception, a message that names function and argument, and nothing written."""

import re

import headlane
import numpy as np
import pytest

SDPA = headlane.scaled_dot_product_attention
X = np.random.default_rng(0).standard_normal((4, 8), np.float32)
X4 = np.ones((2, 6, 4, 8), np.float32)
PACKED = headlane.PackedMatrix(X)
READ_ONLY = np.broadcast_to(np.float32(0), (4, 8))
ODD_STRIDE = np.zeros((4, 9), np.uint8)[:, :8].view(np.float32)
MISALIGNED = np.zeros(4 * 8 * 4 + 1, np.uint8)[1:].view(np.float32).reshape(4, 8)


def out(*shape):
    return np.full(shape or (4, 8), np.nan, np.float32)


# name: (call with out, exception, what the message must have)
CASES = {
    "list": (lambda o: SDPA([1.0], X, X, out=o), TypeError, "query has type list"),
    "None": (lambda o: SDPA(X, None, X, out=o), TypeError, "key has type NoneType"),
    "float64": (
        lambda o: SDPA(X, X.astype(np.float64), X, out=o),
        TypeError,
        r"key .*float64.*key\.astype\(np\.float32\)",
    ),
    "float16": (
        lambda o: headlane.softmax(X.astype(np.float16), out=o),
        TypeError,
        r"x .*float16.*x\.astype",
    ),
    "int32": (lambda o: headlane.gemm(X.astype(np.int32), X.T), TypeError, r"a .*int32.*a\.astype"),
    "complex64": (lambda o: headlane.matmul(X, X.T.astype(np.complex64)), TypeError, "b .*complex64"),
    "structured": (lambda o: headlane.softmax(np.zeros(3, "f4,i4")), TypeError, "x has type ndarray"),
    "objects": (lambda o: headlane.softmax(np.array([None])), TypeError, "x has type ndarray, dtype object"),
    "bytes swapped": (lambda o: headlane.softmax(X.astype(">f4"), out=o), TypeError, r"x .*>f4.*astype"),
    "int mask": (lambda o: SDPA(X, X, X, np.ones((4, 4), np.int64), out=o), TypeError, "attn_mask .*int64"),
    "out float64": (lambda o: headlane.softmax(X, out=np.zeros((4, 8))), TypeError, "out .*float64"),
    "odd stride": (lambda o: headlane.softmax(ODD_STRIDE), TypeError, "x has a stride of 9 bytes"),
    "misaligned": (lambda o: headlane.softmax(MISALIGNED, out=o), ValueError, "x is misaligned"),
    "read-only out": (lambda o: headlane.softmax(X, out=READ_ONLY), ValueError, "out is read-only"),
    "out shape": (
        lambda o: headlane.softmax(X, out=out(4, 7)),
        ValueError,
        r"out has shape \[4, 7\], the result \[4, 8\]",
    ),
    "out rank": (
        lambda o: SDPA(X, X, X, out=out(1, 4, 8)),
        ValueError,
        r"out has shape \[1, 4, 8\], the result \[4, 8\]",
    ),
    "out overlaps": (lambda o: SDPA(X4, X4, X4, out=X4), ValueError, "out .*overlaps q"),
    "out overlaps itself": (
        lambda o: headlane.softmax(X, out=np.lib.stride_tricks.as_strided(out(8), (4, 8), (0, 4))),
        ValueError,
        "overlaps itself",
    ),
    "9 axes": (
        lambda o: headlane.softmax(np.zeros((1,) * 9, np.float32)),
        ValueError,
        "x has 9 axes, at most 8",
    ),
    "vector": (lambda o: SDPA(X[0], X, X), ValueError, r"query has shape \[8\]"),
    "head_dim": (lambda o: SDPA(X, X[:, :7], X, out=o), ValueError, "q has 8 .*head_dim.*k has 7"),
    "too wide": (lambda o: SDPA(*(np.ones((2, 600), np.float32),) * 3), ValueError, "head_dim 600"),
    "keys, values": (lambda o: SDPA(X, X, X[:3], out=o), ValueError, "k has 4 keys, v has 3 values"),
    "batches": (
        lambda o: SDPA(np.ones((3, 1, 4, 8), np.float32), X4, X4),
        ValueError,
        "axis 0 of key .*has 2 .*have 3",
    ),
    "heads": (lambda o: SDPA(X4, X4[:, :3], X4[:, :3]), ValueError, "query has 6 heads, key 3, .*enable_gqa"),
    "groups": (
        lambda o: SDPA(X4, X4[:, :4], X4[:, :4], enable_gqa=True),
        ValueError,
        "query has 6 heads, key 4",
    ),
    "kv heads": (lambda o: SDPA(X4, X4[:, :3], X4[:, :2], enable_gqa=True), ValueError, "key 3, value 2"),
    "mask shape": (
        lambda o: SDPA(X, X, X, np.ones((3, 4), bool), out=o),
        ValueError,
        r"attn_mask of shape \[3, 4\]",
    ),
    "mask rank": (
        lambda o: SDPA(X, X, X, np.ones((1, 4, 4), bool), out=o),
        ValueError,
        "attn_mask .*does not broadcast",
    ),
    "dropout": (lambda o: SDPA(X, X, X, dropout_p=0.1, out=o), ValueError, "dropout_p is 0.1"),
    "softcap": (lambda o: SDPA(X, X, X, softcap=-1.0, out=o), ValueError, "softcap must be a finite"),
    "softcap inf": (lambda o: SDPA(X, X, X, softcap=np.inf, out=o), ValueError, "softcap must be a finite"),
    "softcap NaN": (lambda o: SDPA(X, X, X, softcap=np.nan, out=o), ValueError, "softcap must be a finite"),
    "window left": (lambda o: SDPA(X, X, X, window=(-2, 3), out=o), ValueError, "window_left is -2"),
    "window right": (lambda o: SDPA(X, X, X, window=(None, -9), out=o), ValueError, "window_right is -9"),
    "window number": (lambda o: SDPA(X, X, X, window=3, out=o), TypeError, r"window is 3; wanted: a pair"),
    "window triple": (lambda o: SDPA(X, X, X, window=(1, 2, 3), out=o), TypeError, r"window is \(1, 2, 3\)"),
    "window float": (lambda o: SDPA(X, X, X, window=(1.5, 2), out=o), TypeError, "window_left"),
    "key length": (
        lambda o: SDPA(X, X, X, key_lengths=[5], out=o),
        ValueError,
        r"key_lengths\[0\] is 5, k has 4",
    ),
    "key length -1": (
        lambda o: SDPA(X4, X4, X4, key_lengths=np.array([4, -1])),
        ValueError,
        r"key_lengths\[1\] is -1",
    ),
    "key length 2^63": (
        lambda o: SDPA(X, X, X, key_lengths=np.array([2**63], np.uint64), out=o),
        ValueError,
        r"key_lengths\[0\] is -",
    ),
    "query length": (
        lambda o: SDPA(X4, X4, X4, query_lengths=[0, 5]),
        ValueError,
        r"query_lengths\[1\] is 5",
    ),
    "key lengths": (
        lambda o: SDPA(X4, X4, X4, key_lengths=[1, 2, 3]),
        ValueError,
        "key_lengths has 3 elements, there are 2 batch elements",
    ),
    "lengths of rank 2": (
        lambda o: SDPA(X4, X4, X4, query_lengths=[[1, 2]]),
        ValueError,
        r"query_lengths has shape \[1, 2\], wanted \[batch\]",
    ),
    "a length": (lambda o: SDPA(X, X, X, key_lengths=3, out=o), ValueError, r"key_lengths has shape \[\]"),
    "lengths, rank 5": (
        lambda o: SDPA(X4[None], X4, X4, key_lengths=[1, 2]),
        ValueError,
        r"key_lengths is for \[batch, .*here are 2 batch axes",
    ),
    "lengths float": (lambda o: SDPA(X, X, X, key_lengths=[1.0], out=o), TypeError, "key_lengths .*float64"),
    "lengths bool": (lambda o: SDPA(X, X, X, query_lengths=[True], out=o), TypeError, "query_lengths .*bool"),
    "slopes": (lambda o: SDPA(X4, X4, X4, alibi_slopes=X[0, :5]), ValueError, "alibi_slopes has 5 .*q has 6"),
    "slopes of rank 2": (
        lambda o: SDPA(X4, X4, X4, alibi_slopes=X4[0, :, 0]),
        ValueError,
        r"alibi_slopes has shape \[6, 8\], wanted \[heads\]",
    ),
    "slopes float64": (
        lambda o: SDPA(X, X, X, alibi_slopes=np.ones(1), out=o),
        TypeError,
        r"alibi_slopes .*float64.*alibi_slopes\.astype",
    ),
    "sinks": (lambda o: SDPA(X, X, X, sinks=X[0], out=o), ValueError, "sinks has 8 .*q has 1"),
    "sinks list": (lambda o: SDPA(X, X, X, sinks=[1.0], out=o), TypeError, "sinks has type list"),
    "sinks are out": (lambda o: SDPA(X, X, X, sinks=o[0, :1], out=o), ValueError, "out .*overlaps sinks"),
    "slopes are out, rank 5": (
        lambda o: SDPA(*(X.reshape(2, 2, 1, 1, 8),) * 3, alibi_slopes=o[1, :1], out=o.reshape(2, 2, 1, 1, 8)),
        ValueError,
        "out .*overlaps alibi_slopes",
    ),
    "is_causal": (
        lambda o: SDPA(X, X, X, is_causal="yes", out=o),
        TypeError,
        "is_causal is 'yes'; wanted: True or False",
    ),
    "softcap text": (
        lambda o: SDPA(X, X, X, softcap="1", out=o),
        TypeError,
        "softcap is '1'; wanted: a number",
    ),
    "offsets": (
        lambda o: SDPA(X4, X4, X4, causal_offset=[1, 2, 3]),
        ValueError,
        "causal_offsets has 3 elements, there are 2 batch elements",
    ),
    "offsets of rank 2": (
        lambda o: SDPA(X4, X4, X4, causal_offset=[[1, 2]]),
        ValueError,
        r"causal_offset has shape \[1, 2\], wanted \[batch\]",
    ),
    "offset float": (lambda o: SDPA(X, X, X, causal_offset=1.5, out=o), TypeError, "causal_offset .*float64"),
    "offset None": (lambda o: SDPA(X, X, X, causal_offset=None, out=o), TypeError, "causal_offset is None"),
    "offset 2^63": (lambda o: SDPA(X, X, X, causal_offset=2**63, out=o), ValueError, "causal_offset is 9223"),
    "bits bool": (
        lambda o: SDPA(X, X, X, mask_bits=np.ones((4, 1), bool), out=o),
        TypeError,
        "mask_bits .*bool; wanted: uint8",
    ),
    "bits shape": (
        lambda o: SDPA(X, X, X, mask_bits=np.ones((4, 4), np.uint8), out=o),
        ValueError,
        r"mask_bits of shape \[4, 4\] does not broadcast to the scores in bytes of 8 keys, \[4, 1\]",
    ),
    "bits are out": (
        lambda o: SDPA(X, X, X, mask_bits=o.view(np.uint8)[:, :1], out=o),
        ValueError,
        "out .*overlaps mask_bits",
    ),
    "relative_bias": (
        lambda o: SDPA(X4, X4, X4, relative_bias=X),
        ValueError,
        "relative_bias.table has 4 rows, q has 6 heads",
    ),
    "relative_bias of rank 1": (
        lambda o: SDPA(X, X, X, relative_bias=X[0], out=o),
        ValueError,
        r"relative_bias has shape \[8\], wanted \[heads, buckets\]",
    ),
    "buckets": (lambda o: SDPA(X, X, X, relative_bias=X[:1, :5], out=o), ValueError, "5 buckets"),
    "relative distance": (
        lambda o: SDPA(X, X, X, relative_bias=X[:1], relative_max_distance=2, out=o),
        ValueError,
        "max_distance is 2, but 2 distances",
    ),
    "relative distance float": (
        lambda o: SDPA(X, X, X, relative_max_distance=2.5, out=o),
        TypeError,
        "relative_max_distance is 2.5; wanted: an integer",
    ),
    "relative direction": (
        lambda o: SDPA(X, X, X, relative_bidirectional=None, out=o),
        TypeError,
        "relative_bidirectional is None; wanted: True or False",
    ),
    "query_starts alone": (
        lambda o: SDPA(X, X, X, query_starts=[0, 4], out=o),
        ValueError,
        "query_starts is given, but not key_starts",
    ),
    "starts": (
        lambda o: SDPA(X, X, X, query_starts=[0, 3, 2], key_starts=[0, 2, 4], out=o),
        ValueError,
        r"query_starts\[2\] is 2, it must be 3 to 4",
    ),
    "starts beyond": (
        lambda o: SDPA(X, X, X, query_starts=[0, 4], key_starts=[-(2**63), 2**63 - 1], out=o),
        ValueError,
        r"key_starts\[0\] is -9",
    ),
    "numbers of starts": (
        lambda o: SDPA(X, X, X, query_starts=[0, 4], key_starts=[0, 2, 4], out=o),
        ValueError,
        "query_starts has 2 elements, key_starts has 3",
    ),
    "no starts": (
        lambda o: SDPA(X, X, X, query_starts=[], key_starts=[], out=o),
        ValueError,
        "query_starts has no elements",
    ),
    "starts float": (lambda o: SDPA(X, X, X, query_starts=[0.0], out=o), TypeError, "query_starts .*float64"),
    "starts, batch": (
        lambda o: SDPA(X4, X4, X4, query_starts=[0, 4], key_starts=[0, 4]),
        ValueError,
        "q has 2 batch elements, with query_starts it has 1",
    ),
    "sum and sinks": (
        lambda o: SDPA(X, X, X, sinks=X[0, :1], return_sum=True, out=o),
        ValueError,
        "sum and sinks are given",
    ),
    "axis": (lambda o: headlane.softmax(X, 2, out=o), ValueError, r"axis is 2, x has shape \[4, 8\]"),
    "no axis": (lambda o: headlane.log_softmax(np.float32(1)), (TypeError, ValueError), "x has"),
    "log": (lambda o: headlane.log_softmax(X, -3, out=o), ValueError, "axis is -3"),
    "gemm vector": (lambda o: headlane.gemm(X, X[0]), ValueError, r"b has shape \[8\]"),
    "gemm sizes": (lambda o: headlane.gemm(X, X, out(4, 8)), ValueError, "a has 8 columns, b has 4 rows"),
    "beta": (lambda o: headlane.gemm(X, X.T, beta=0.5), ValueError, "beta is 0.5.* needs out"),
    "matmul sizes": (lambda o: headlane.matmul(X, X), ValueError, "8 columns, b .* 4 rows"),
    "matmul batches": (
        lambda o: headlane.matmul(X4, X4[:, :5].swapaxes(2, 3)),
        ValueError,
        "axis 1 of b .*have 6",
    ),
    "matmul scalar": (lambda o: headlane.matmul(X, np.array(1, np.float32)), ValueError, "b has no axis"),
    "matmul, packed": (lambda o: headlane.matmul(X4, PACKED), ValueError, "a .* 8 columns, b has 4 rows"),
    "packed vector": (lambda o: headlane.PackedMatrix(X[0]), ValueError, r"b has shape \[8\]"),
    "packed float64": (
        lambda o: headlane.PackedMatrix(X.astype(np.float64)),
        TypeError,
        r"b .*float64.*b\.astype",
    ),
    "packed threads": (lambda o: headlane.PackedMatrix(X, num_threads=-1), ValueError, "num_threads is -1"),
    "packed misaligned": (
        lambda o: headlane.PackedMatrix(MISALIGNED),
        ValueError,
        "PackedMatrix: b is misaligned",
    ),
    "packed as x": (
        lambda o: headlane.linear(PACKED, PACKED),
        TypeError,
        r"x has type headlane\.PackedMatrix",
    ),
    "packed as a": (lambda o: headlane.gemm(PACKED, X.T), TypeError, r"a has type headlane\.PackedMatrix"),
    "linear sizes": (
        lambda o: headlane.linear(X, PACKED, out=o),
        ValueError,
        r"x of shape \[4, 8\] has 8 columns, packed has 4 rows",
    ),
    "linear weight": (lambda o: headlane.linear(X, X4), ValueError, "packed has shape .* must be a matrix"),
    "linear no axis": (
        lambda o: headlane.linear(np.array(1, np.float32), PACKED),
        ValueError,
        "x has no axis",
    ),
    "linear out": (
        lambda o: headlane.linear(X.T, PACKED, out=o),
        ValueError,
        r"out has shape \[4, 8\], the result \[8, 8\]",
    ),
    "bias": (
        lambda o: headlane.linear(X[:, :4], PACKED, X[0, :7], out=o),
        ValueError,
        r"linear: bias has shape \[7\], the result \[4, 8\]: wanted \[8\]",
    ),
    "bias rank": (
        lambda o: headlane.gemm(X[:, :4], PACKED, o, bias=X[:1]),
        ValueError,
        r"bias has shape \[1, 8\]",
    ),
    "bias list": (lambda o: headlane.linear(X[:, :4], PACKED, [1.0], out=o), TypeError, "bias has type list"),
    "residual": (
        lambda o: headlane.gemm(X[:, :4], PACKED, o, residual=X[:1]),
        ValueError,
        r"residual has shape \[1, 8\], the result \[4, 8\]",
    ),
    "residual float64": (
        lambda o: headlane.linear(X[:, :4], PACKED, residual=X.astype(np.float64), out=o),
        TypeError,
        "residual .*float64",
    ),
    "residual is out": (
        lambda o: headlane.linear(X[:, :4], PACKED, residual=o, out=o),
        ValueError,
        "out of shape .* overlaps residual",
    ),
    "activation": (
        lambda o: headlane.linear(X[:, :4], PACKED, None, "swish", out=o),
        ValueError,
        "activation is 'swish'; there are relu, gelu, gelu_tanh, silu, sigmoid, tanh, erf, and None",
    ),
    "gemm activation": (
        lambda o: headlane.gemm(X[:, :4], PACKED, o, activation="none"),
        ValueError,
        "gemm: activation is 'none'; there are relu",
    ),
    "linear threads": (
        lambda o: headlane.linear(X[:, :4], X, out=o, num_threads=-1),
        ValueError,
        "num_threads is -1",
    ),
    "gated sizes": (
        lambda o: headlane.gemm_gated(X, PACKED, PACKED, out=o),
        ValueError,
        r"gemm_gated: a of shape \[4, 8\] has 8 columns, gate has 4 rows",
    ),
    "gated rows of up": (
        lambda o: headlane.gemm_gated(X[:, :4], X, X.T, out=o),
        ValueError,
        "a .* has 4 columns, up has 8 rows",
    ),
    "gated columns of up": (
        lambda o: headlane.gemm_gated(X[:, :4], X, X[:, :7], out=o),
        ValueError,
        "gemm_gated: gate has 8 columns, up has 7",
    ),
    "gated, one packed": (
        lambda o: headlane.gemm_gated(X[:, :4], PACKED, X, out=o),
        TypeError,
        "gemm_gated: of gate and up one is a PackedMatrix",
    ),
    "gated, the other packed": (
        lambda o: headlane.gemm_gated(X[:, :4], X, PACKED, out=o),
        TypeError,
        "of gate and up one is a PackedMatrix",
    ),
    "gated list": (lambda o: headlane.gemm_gated(X[:, :4], X, [1.0], out=o), TypeError, "up has type list"),
    "gated weight": (
        lambda o: headlane.gemm_gated(X[:, :4], X4, X, out=o),
        ValueError,
        "gate has shape .* must be a matrix",
    ),
    "gated float64": (
        lambda o: headlane.gemm_gated(X[:, :4], X, X.astype(np.float64), out=o),
        TypeError,
        r"up .*float64.*up\.astype",
    ),
    "gated no axis": (
        lambda o: headlane.gemm_gated(np.array(1, np.float32), PACKED, PACKED),
        ValueError,
        "a has no axis",
    ),
    "gated bias": (
        lambda o: headlane.gemm_gated(X[:, :4], PACKED, PACKED, gate_bias=X[0, :7], out=o),
        ValueError,
        r"gate_bias has shape \[7\], the result \[4, 8\]: wanted \[8\]",
    ),
    "gated bias rank": (
        lambda o: headlane.gemm_gated(X[:, :4], X, X, up_bias=X[:1], out=o),
        ValueError,
        r"up_bias has shape \[1, 8\]",
    ),
    "gated bias is out": (
        lambda o: headlane.gemm_gated(X[:, :4], X, X, up_bias=o[1], out=o),
        ValueError,
        "out of shape .* overlaps up_bias",
    ),
    "gated misaligned": (
        lambda o: headlane.gemm_gated(X[:, :4], MISALIGNED, X, out=o),
        ValueError,
        "gemm_gated: gate is misaligned",
    ),
    "gated out": (
        lambda o: headlane.gemm_gated(X.T, PACKED, PACKED, out=o),
        ValueError,
        r"out has shape \[4, 8\], the result \[8, 8\]",
    ),
    "gated activation": (
        lambda o: headlane.gemm_gated(X[:, :4], PACKED, PACKED, activation="swiglu", out=o),
        ValueError,
        "gemm_gated: activation is 'swiglu'; there are relu",
    ),
    "gated threads": (
        lambda o: headlane.gemm_gated(X[:, :4], X, X, out=o, num_threads=-1),
        ValueError,
        "gemm_gated: num_threads is -1, the least is 0",
    ),
    "batch misaligned": (
        lambda o: headlane.matmul(X4[..., :4], MISALIGNED, np.full((2, 6, 4, 8), np.nan, np.float32)),
        ValueError,
        "matmul: .*b is misaligned",
    ),
    "batch overlaps itself": (
        lambda o: headlane.matmul(
            X4[..., :4], X, np.lib.stride_tricks.as_strided(o, X4.shape, (0, 0, 32, 4))
        ),
        ValueError,
        r"matmul: out of shape \[2, 6, 4, 8\] overlaps itself",
    ),
    "batch out shape": (
        lambda o: headlane.matmul(X4[..., :4], X, o),
        ValueError,
        r"out has shape \[4, 8\], the result \[2, 6, 4, 8\]",
    ),
    "relu int": (lambda o: headlane.relu(X.astype(np.int32), out=o), TypeError, "relu: x .*int32"),
    "silu shape": (
        lambda o: headlane.silu(X.T, out=o),
        ValueError,
        r"out has shape \[4, 8\], the result \[8, 4\]",
    ),
    "erf overlaps": (
        lambda o: headlane.erf(X4[0], out=X4[0, :, ::-1]),
        ValueError,
        "erf: activate: y .*overlaps",
    ),
    "gelu": (lambda o: headlane.gelu(X, "fast", out=o), ValueError, "gelu: approximate is 'fast'"),
    "gelu list": (lambda o: headlane.gelu([1.0], "tanh", out=o), TypeError, "gelu: x has type list"),
    "tanh threads": (
        lambda o: headlane.tanh(X, num_threads=-1, out=o),
        ValueError,
        "tanh: num_threads is -1",
    ),
    "too many threads": (
        lambda o: headlane.softmax(X, num_threads=2**40, out=o),
        ValueError,
        "num_threads is 1099511627776, the most is 2147483647",
    ),
    "minus threads": (lambda o: SDPA(X, X, X, num_threads=-2, out=o), ValueError, "num_threads is -2"),
    "set_num_threads": (lambda o: headlane.set_num_threads(-1), ValueError, "threads is -1"),
    "set_isa": (lambda o: headlane.set_isa("mmx"), ValueError, "mmx.*portable"),
}


@pytest.mark.parametrize("name", CASES)
def test_illegal_call(name):
    call, exception, message = CASES[name]
    target, source = out(), X4.copy()
    with pytest.raises(exception) as caught:
        call(target)
    text = str(caught.value)
    assert re.search(message, text), text
    assert re.search("|".join(headlane.__all__), text), text
    assert np.isnan(target).all(), "out was written"
    np.testing.assert_array_equal(X4, source)


def test_the_message_names_the_function_that_was_called():
    with pytest.raises(ValueError, match=r"^log_softmax: softmax: x is misaligned"):
        headlane.log_softmax(MISALIGNED)


def test_a_failed_call_keeps_nothing():
    import gc
    import sys

    gc.collect()  # the errors of other tests refer to their arrays
    target = out(4, 7)
    before = sys.getrefcount(target), sys.getrefcount(X)
    for _ in range(10):
        with pytest.raises(ValueError, match="out has shape"):
            headlane.softmax(X, out=target)
    assert (sys.getrefcount(target), sys.getrefcount(X)) == before
    target.resize((2, 2))  # NumPy refuses while a buffer is held

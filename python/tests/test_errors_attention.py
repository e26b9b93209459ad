"""Illegal calls of attention."""

import numpy as np
import pytest
from illegal_calls import SDPA, X4, X, check_refused

CASES = {
    "vector": (lambda o: SDPA(X[0], X, X), ValueError, r"query has shape \[8\]"),
    "head_dim": (lambda o: SDPA(X, X[:, :7], X, out=o), ValueError, "query has 8 .*head_dim.*key has 7"),
    "too wide": (lambda o: SDPA(*(np.ones((2, 600), np.float32),) * 3), ValueError, "head_dim 600"),
    "keys, values": (lambda o: SDPA(X, X, X[:3], out=o), ValueError, "key has 4 keys, value has 3 values"),
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
        r"key_lengths\[0\] is 5, key has 4",
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
    "slopes": (
        lambda o: SDPA(X4, X4, X4, alibi_slopes=X[0, :5]),
        ValueError,
        "alibi_slopes has 5 .*query has 6",
    ),
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
    "sinks": (lambda o: SDPA(X, X, X, sinks=X[0], out=o), ValueError, "sinks has 8 .*query has 1"),
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
        "relative_bias.table has 4 rows, query has 6 heads",
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
        "query has 2 batch elements, with query_starts it has 1",
    ),
    "sum and sinks": (
        lambda o: SDPA(X, X, X, sinks=X[0, :1], return_sum=True, out=o),
        ValueError,
        "sum and sinks are given",
    ),
    "minus threads": (lambda o: SDPA(X, X, X, num_threads=-2, out=o), ValueError, "num_threads is -2"),
}


@pytest.mark.parametrize("name", CASES)
def test_refused(name):
    call, exception, message = CASES[name]
    check_refused(call, exception, message)

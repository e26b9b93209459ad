"""One correct call of every public function and method, with every parameter by name, for tests
that vary all of them.
"""

import inspect
from pathlib import Path

import headlane
import numpy as np
import recurrent_calls

RNG = np.random.default_rng(0)
LITTLE = Path(__file__).parents[2] / "models/little/en-fr"


def normal(*shape):
    return RNG.standard_normal(shape, np.float32)


X = normal(2, 4, 8)
WEIGHT = {"weight": normal(8, 8), "bias": normal(8)}
ATTENTION = {"in_proj_weight": normal(24, 8), "in_proj_bias": normal(24), "out_proj.weight": normal(8, 8)}
FEED_FORWARD = {"linear1.weight": normal(12, 8), "linear2.weight": normal(8, 12)}
NORMS = {f"norm{i}.{name}": normal(8) for i in (1, 2, 3) for name in ("weight", "bias")}
LAYER = {
    **{f"{part}.{name}": x for part in ("self_attn", "multihead_attn") for name, x in ATTENTION.items()},
    **FEED_FORWARD,
    **NORMS,
}
SCORES = {
    "attn_mask": np.ones((4, 4), bool),
    "is_causal": True,
    "scale": 0.5,
    "causal_offset": 0,
    "softcap": 2.0,
    "window": (3, 3),
    "key_lengths": [4, 3],
    "query_lengths": [4, 3],
    "alibi_slopes": normal(1),
    "sinks": normal(1),
    "mask_bits": np.full((4, 1), 15, np.uint8),
    "relative_bias": normal(1, 8),
    "relative_max_distance": 20,
    "relative_bidirectional": True,
}
HEADS = {**SCORES, "alibi_slopes": normal(2), "sinks": normal(2), "relative_bias": normal(2, 8)}
Q = X[:, None]  # one head


def cache():
    made = headlane.KvCache(1, 8, page_size=32)
    numbers = [made.add(), made.add()]
    made.append(numbers, Q, Q)
    return made


def attention():
    return headlane.MultiHeadAttention(ATTENTION, num_heads=2)


def embedding():
    return headlane.Embedding({"weight": WEIGHT["weight"]}, tied=True)


SOFTMAX = {
    "x": X,
    "axis": -1,
    "scale": 1.0,
    "mask": np.ones((4, 8), bool),
    "bias": normal(8),
    "lengths": [[8, 8, 8, 8]],
    "causal": True,
    "causal_offset": 5,
}
RETURNS = {"return_lse": False, "return_sum": False}
SINES = {"offset": 0, "base": 1e4, "doubled_exponent": False, "interleaved": True}
PARTS = [headlane.scaled_dot_product_attention(Q, Q, Q, return_lse=True)]
TYPES = {"weights": "float32", "activations": "float32"}
OF_LAYER = {
    "num_heads": 2,
    "num_kv_heads": 2,
    "scale": 0.3,
    "activation": "gelu",
    "norm": "layer",
    "norm_first": True,
    "layer_norm_eps": 1e-5,
    "weights": "bfloat16",
    "activations": "float32",
}
MEMORY = {"memory": X, "sequences": [0, 1], "key_lengths": [4, 4], "num_threads": 1}
PACKED = headlane.PackedMatrix(normal(8, 5), dtype="int8")

# name: (the callable, its arguments without out)
CALLS = {
    "softmax": (headlane.softmax, SOFTMAX),
    "log_softmax": (headlane.log_softmax, SOFTMAX),
    "layer_norm": (
        headlane.layer_norm,
        {"x": X, "weight": normal(8), "bias": normal(8), "eps": 1e-5, "residual": X, "return_sum": False},
    ),
    "rms_norm": (
        headlane.rms_norm,
        {"x": X, "weight": normal(8), "eps": 1e-5, "residual": X, "return_sum": False},
    ),
    "gemm": (
        headlane.gemm,
        {
            "a": X[0],
            "b": X[1].T,
            "alpha": 1.0,
            "beta": 0.0,
            "bias": normal(4),
            "activation": "relu",
            "residual": normal(4, 4),
            "activations": "float32",
        },
    ),
    "matmul": (headlane.matmul, {"a": X, "b": X.swapaxes(1, 2), "activations": "float32"}),
    "linear": (
        headlane.linear,
        {
            "x": X,
            "packed": headlane.PackedMatrix(normal(8, 5), dtype="int8"),
            "bias": normal(5),
            "activation": "silu",
            "residual": normal(2, 4, 5),
            "activations": "int8",
        },
    ),
    "gemm_gated": (
        headlane.gemm_gated,
        {
            "a": X,
            "gate": normal(8, 5),
            "up": normal(8, 5),
            "gate_bias": normal(5),
            "up_bias": normal(5),
            "activation": "silu",
            "activations": "float32",
        },
    ),
    **{name: (getattr(headlane, name), {"x": X}) for name in ("relu", "silu", "sigmoid", "tanh", "erf")},
    "gelu": (headlane.gelu, {"x": X, "approximate": "tanh"}),
    "sinusoidal_encoding": (headlane.sinusoidal_encoding, {"length": 3, "d_model": 8, **SINES}),
    "add_sinusoidal_encoding": (headlane.add_sinusoidal_encoding, {"x": X, "scale": 1.0, **SINES}),
    "rotary_embedding": (
        headlane.rotary_embedding,
        {
            "x": Q,
            "base": 1e4,
            "rotary_dim": 8,
            "interleaved": False,
            "offset": 3,
            "positions": [1, 2],
            "frequencies": normal(4),
        },
    ),
    **recurrent_calls.CALLS,
    "alibi_slopes": (headlane.alibi_slopes, {"heads": 3}),
    "t5_bucket": (
        headlane.t5_bucket,
        {"distance": 3, "buckets": 32, "max_distance": 128, "bidirectional": True},
    ),
    "scaled_dot_product_attention": (
        headlane.scaled_dot_product_attention,
        {"query": Q, "key": Q, "value": Q, "dropout_p": 0.0, "enable_gqa": False, **SCORES, **RETURNS},
    ),
    "attention_over_cache": (
        lambda **o: headlane.attention_over_cache(cache=cache(), **o),
        {"query": Q, "sequences": [0, 1], **SCORES, **RETURNS},
    ),
    "attention_weights": (
        headlane.attention_weights,
        {"query": Q, "key": Q, "enable_gqa": False, "return_lse": False, **SCORES},
    ),
    "attention_key_sums": (
        headlane.attention_key_sums,
        {"query": Q, "key": Q, "enable_gqa": False, **SCORES},
    ),
    "plan_attention": (
        headlane.plan_attention,
        {"query": Q, "key": Q, "value": Q, "enable_gqa": False, **SCORES},
    ),
    "merge": (headlane.merge, {"parts": PARTS, "sinks": normal(1), **RETURNS}),
    "set_isa": (headlane.set_isa, {"name": headlane.isa()}),
    "set_num_threads": (headlane.set_num_threads, {"threads": 0}),
    "PackedMatrix": (headlane.PackedMatrix, {"b": X[0], "dtype": "float32"}),
    "PackedMatrix.from_numbers": (
        headlane.PackedMatrix.from_numbers,
        {
            "numbers": np.arange(-7, 8, dtype=np.int8).reshape(3, 5),
            "scales": normal(5),
            "dtype": "int8",
            "clamp": False,
        },
    ),
    "PackedMatrix.from_bytes": (
        headlane.PackedMatrix.from_bytes,
        {"bytes": PACKED.packed_bytes().copy(), "shape": [8, 5], "dtype": "int8"},
    ),
    "PackedMatrix.unpack": (PACKED.unpack, {}),
    "PackedMatrix.unpack_columns": (PACKED.unpack_columns, {"columns": [[1, 4], [0, 0]]}),
    "KvCache": (
        headlane.KvCache,
        {"kv_heads": 1, "head_dim": 8, "value_dim": 8, "page_size": 32, "max_pages": 3, "dtype": "int8"},
    ),
    "KvCache.fork": (lambda **o: cache().fork(**o), {"sequence": 0, "length": 2}),
    "KvCache.append": (lambda **o: cache().append(**o), {"sequence": [0, 1], "k": Q, "v": Q}),
    "KvCache.read": (lambda **o: cache().read(**o), {"sequence": 0}),
    "KvCache.truncate": (lambda **o: cache().truncate(**o), {"sequence": 0, "length": 2}),
    "KvCache.remove": (lambda **o: cache().remove(**o), {"sequence": 0}),
    "KvCache.length": (lambda **o: cache().length(**o), {"sequence": 0}),
    "Linear": (headlane.Linear, {"state": WEIGHT, "prefix": "", **TYPES}),
    "Linear.forward": (
        lambda **o: headlane.Linear(WEIGHT).forward(**o),
        {"x": X, "activation": "relu", "residual": X},
    ),
    "Embedding": (
        headlane.Embedding,
        {"state": WEIGHT, "prefix": "", "tied": True, "max_length": 5, **TYPES},
    ),
    "Embedding.forward": (
        lambda **o: embedding().forward(**o),
        {"ids": [[1, 2]], "scale": 2.0, "add": False, "truncate": True},
    ),
    "Embedding.logits": (lambda **o: embedding().logits(**o), {"x": X}),
    "FeedForward": (
        headlane.FeedForward,
        {"state": FEED_FORWARD, "prefix": "", "activation": "gelu", **TYPES},
    ),
    "FeedForward.forward": (lambda **o: headlane.FeedForward(FEED_FORWARD).forward(**o), {"x": X}),
    "MultiHeadAttention": (
        headlane.MultiHeadAttention,
        {
            "state": ATTENTION,
            "prefix": "",
            "num_heads": 2,
            "num_kv_heads": 2,
            "scale": 0.5,
            "weights": "int8",
            "activations": "int8",
        },
    ),
    "MultiHeadAttention.forward": (
        lambda **o: attention().forward(**o),
        {"x": X, "memory": X, "remembered": False, **HEADS},
    ),
    "MultiHeadAttention.remember": (lambda **o: attention().remember(cache=two_heads(), **o), MEMORY),
    "EncoderLayer": (headlane.EncoderLayer, {"state": LAYER, "prefix": "", **OF_LAYER}),
    "EncoderLayer.forward": (
        lambda **o: headlane.EncoderLayer(LAYER, num_heads=2).forward(**o),
        {"x": X, **HEADS},
    ),
    "DecoderLayer": (headlane.DecoderLayer, {"state": LAYER, "prefix": "", **OF_LAYER}),
    "DecoderLayer.forward": (
        lambda **o: headlane.DecoderLayer(LAYER, num_heads=2).forward(**o),
        {"x": X, "memory": X, **HEADS},
    ),
    "DecoderLayer.remember": (
        lambda **o: headlane.DecoderLayer(LAYER, num_heads=2).remember(cache=two_heads(), **o),
        MEMORY,
    ),
}


def two_heads():
    made = headlane.KvCache(2, 4)
    assert [made.add(), made.add()] == [0, 1]
    return made


# Functions without a parameter, and those whose only ones are objects of ours.
WITHOUT_PARAMETERS = {"isa", "isa_extension", "available_isas", "num_threads", "AttentionPlan"}


def public_callables():
    """The names of all functions, classes and methods that take something."""
    names = set()
    for name in headlane.__all__:
        one = getattr(headlane, name)
        if name not in WITHOUT_PARAMETERS:
            names.add(name)
        if inspect.isclass(one) and name != "AttentionPlan":
            for method, member in vars(one).items():
                function = getattr(member, "__func__", member)  # of a class method
                if method.startswith("_") or not inspect.isfunction(function):
                    continue
                is_alias = function.__name__ != method  # decoded
                if not is_alias and len(inspect.signature(function).parameters) > 1:
                    names.add(f"{name}.{method}")
    return names


def signature_of(name):
    one = headlane
    for part in name.split("."):
        one = getattr(one, part)
    return inspect.signature(one)

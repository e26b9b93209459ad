"""reference/support.md: functions, options, instruction sets; found out by calling."""

import sys
from pathlib import Path

import headlane
import numpy as np
from builder.headers import read_headers

ROOT = Path(__file__).parents[2]
BATCH, HEADS, QUERIES, KEYS, DIM = 2, 4, 6, 9, 16
rng = np.random.default_rng(0)


def random(*shape):
    return rng.standard_normal(shape, dtype=np.float32)


Q, K, V = random(BATCH, HEADS, QUERIES, DIM), random(BATCH, HEADS, KEYS, DIM), random(BATCH, HEADS, KEYS, DIM)
MASK = rng.random((BATCH, 1, QUERIES, KEYS)) < 0.7
STARTS = {"query_starts": [0, 2, 6], "key_starts": [0, 4, 9]}

# (what it is called in C++, what Python takes); the same for every function of attention.
OPTIONS = {
    "scale": {"scale": 0.3},
    "softcap": {"softcap": 5.0},
    "causal, causal_offset": {"is_causal": True, "causal_offset": 3},
    "causal_offsets": {"is_causal": True, "causal_offset": np.array([3, 1])},
    "window_left, window_right": {"window": (3, 1)},
    "mask": {"attn_mask": MASK},
    "mask_bits": {"mask_bits": np.packbits(MASK, axis=-1, bitorder="little")},
    "bias": {"attn_mask": random(1, HEADS, QUERIES, KEYS)},
    "alibi_slopes": {"alibi_slopes": headlane.alibi_slopes(HEADS)},
    "relative_bias": {"relative_bias": random(HEADS, 32)},
    "sinks": {"sinks": random(HEADS)},
    "key_lengths": {"key_lengths": np.array([5, 9])},
    "query_lengths": {"query_lengths": np.array([6, 2])},
    "query_starts, key_starts": STARTS,
    "lse": {"return_lse": True},
    "sum, resume": {"return_sum": True},
    "grouped heads": {"enable_gqa": True},
}


def inputs(options):
    """q, k, v for these options: variable lengths have one batch element, groups fewer kv heads."""
    if "query_starts" in options:
        return Q[:1], K[:1], V[:1]
    if "enable_gqa" in options:
        return Q, K[:, :2], V[:, :2]
    return Q, K, V


def over_cache(options):
    q, k, v = inputs(options)
    cache = headlane.KvCache(k.shape[1], DIM)
    sequences = [cache.add() for _ in range(len(k))]
    cache.append(sequences, k, v)
    others = {
        name: value for name, value in options.items() if name != "enable_gqa"
    }  # the cache's heads tell it
    return headlane.attention_over_cache(q, cache, sequences, **others)


def weights(options):
    q, k, _ = inputs(options)
    return headlane.attention_weights(q, k, **options)


def key_sums(options):
    q, k, _ = inputs(options)
    return headlane.attention_key_sums(q, k, **options)


def layer(options):
    kv_heads = 2 if "enable_gqa" in options else HEADS
    generator = np.random.default_rng(1)
    width = HEADS * DIM
    shapes = {"in_proj_weight": (width + 2 * kv_heads * DIM, width), "out_proj.weight": (width, width)}
    state = {name: generator.standard_normal(shape, dtype=np.float32) / 8 for name, shape in shapes.items()}
    attention = headlane.MultiHeadAttention(state, num_heads=HEADS, num_kv_heads=kv_heads)
    batch = 1 if "query_starts" in options else BATCH
    x = generator.standard_normal((batch, QUERIES, width), dtype=np.float32)
    memory = generator.standard_normal((batch, KEYS, width), dtype=np.float32)
    others = {name: value for name, value in options.items() if name != "enable_gqa"}
    return attention(x, memory, **others)


FUNCTIONS = {
    "attention": lambda options: headlane.scaled_dot_product_attention(*inputs(options), **options),
    "over a KvCache": over_cache,
    "attention_weights": weights,
    "attention_key_sums": key_sums,
    "MultiHeadAttention": layer,
}

X, W = random(7, 33), random(33, 18)
OTHERS = {
    "gemm": lambda: headlane.gemm(X, W, alpha=0.5),
    "gemm with a PackedMatrix, bias, activation": lambda: headlane.linear(
        X, headlane.PackedMatrix(W), W[0], "gelu"
    ),
    "gemm with activations in int8": lambda: headlane.linear(
        X, headlane.PackedMatrix(W, dtype="int8"), activations="int8"
    ),
    "gemm_batch": lambda: headlane.matmul(random_batch, W),
    "gemm_gated": lambda: headlane.gemm_gated(X, W, W[:, ::-1]),
    "softmax": lambda: headlane.softmax(X, mask=X < 0.5, bias=X),
    "log-softmax": lambda: headlane.log_softmax(X, axis=0, lengths=np.full(33, 5)),
    "layer_norm": lambda: headlane.layer_norm(X, X[0], X[1], residual=X),
    "rms_norm": lambda: headlane.rms_norm(X, X[0]),
    "activations": lambda: np.stack(
        [getattr(headlane, f)(X) for f in ("relu", "gelu", "silu", "sigmoid", "tanh", "erf")]
    ),
    "sinusoidal_encoding": lambda: headlane.sinusoidal_encoding(9, 32),
    "rotary_embedding": lambda: headlane.rotary_embedding(Q),
    "linear_attention": lambda: headlane.linear_attention(
        K, K, V, -abs(K), abs(K[..., 0]), state=np.ones((BATCH, HEADS, DIM, DIM), np.float32), normalize=True
    ),
    "causal_convolution": lambda: headlane.causal_convolution(
        random_batch, W[:, :4], W[:, 4], activation="silu", state=random_batch[:, :3].swapaxes(1, 2).copy()
    ),
}
random_batch = random(3, 7, 33)


def bits(result):
    parts = result if isinstance(result, tuple) else (result,)
    return b"".join(np.ascontiguousarray(part).tobytes() for part in parts)


def on_each(call):
    """For each instruction set: whether call() returns the bits of the first; None if refused."""
    reference, found = None, {}
    for isa in headlane.available_isas():
        headlane.set_isa(isa)
        try:
            result = bits(call())
        except (TypeError, ValueError):
            found[isa] = None
            continue
        reference = reference or result
        found[isa] = result == reference
    headlane.set_isa(headlane.available_isas()[0])
    return found


def mark(found):
    if all(value is None for value in found.values()):
        return "–"
    if not all(found.values()):
        raise SystemExit(f"support.py: the bits differ: {found}")
    return "✓"


HEAD = """# Support matrix

Made by calling every function with every option when this page was built, on {isas}: ✓ means that the option
is there and that the result has the same bits on each of these instruction sets. `neon` is built from the same
source; its bits are compared with the others' by `./dev test-neon`.

## Instruction sets and data types

<div class="matrix" markdown>

| | {columns} | neon |
|---|{lines}---|
"""
TYPES = """
</div>

## Data types

| Data | Types |
|---|---|
| Inputs and outputs of all functions | float32; bfloat16 and float16, rounded once |
| Weights in memory (`PackedMatrix`, layers, models) | float32, bfloat16, float16, int8 with a scale for each column |
| Sums and products | float32, fused multiply-add; means and lengths of sentence embeddings: float64 |
| Sums with activations in int8 | integers, exact |
| Masks | bool, or packed bits (uint8) |
| Lengths, starts, positions, token ids | `headlane::Index` (`std::ptrdiff_t`); in Python any integers |
| Weights in checkpoints (safetensors) | float32, float16, bfloat16; exact, as float32 or packed |
| Weights of compressed-tensors (`Checkpoint::pack`) | W8A8, W8A16 and W4A16, symmetric |
| GGUF (`GgufFile`) | F32, F16, BF16, Q8_0, Q4_0, Q4_K, Q6_K |
| `headlane_cblas_sgemm` | float32, sizes of 64 bits |

## Options of attention

They combine freely: all options of a column in one call. The table is of the Python functions; in C++,
`MultiHeadAttention` takes `lse` as well.

<div class="matrix" markdown>

"""


def every_option():
    results = [FUNCTIONS["attention"](options) for options in OPTIONS.values()]
    return tuple(part for result in results for part in (result if isinstance(result, tuple) else (result,)))


def check_complete():
    """Fails if a field of AttentionOptions has no row; those of execution need none."""
    declarations = [entry for header in read_headers(ROOT) for entry in header.declarations]
    (options,) = [entry for entry in declarations if entry.name == "AttentionOptions"]
    fields = {name for field in options.members if field.kind == "field" for name in field.name.split(", ")}
    missing = fields - {name for row in OPTIONS for name in row.split(", ")} - {"num_threads", "workspace"}
    if missing:
        raise SystemExit(f"support.py: no row for {', '.join(sorted(missing))}")


def main():
    check_complete()
    headlane.set_num_threads(1)
    isas = headlane.available_isas()
    text = HEAD.format(isas=", ".join(isas), columns=" | ".join(isas), lines="---|" * len(isas))
    for name, call in (OTHERS | {"attention, each option below": every_option}).items():
        if mark(on_each(call)) != "✓":
            raise SystemExit(f"support.py: {name} is refused")
        text += f"| {name} | {' | '.join('float32' for _ in isas)} | float32 |\n"
    text += TYPES + "| Option | " + " | ".join(FUNCTIONS) + " |\n|---|" + ":-:|" * len(FUNCTIONS) + "\n"
    for name, options in OPTIONS.items():
        cells = [mark(on_each(lambda f=function, o=options: f(o))) for function in FUNCTIONS.values()]
        text += f"| {name if ' ' in name and ',' not in name else f'`{name}`'} | {' | '.join(cells)} |\n"
    text += "\n</div>\n\nHead dimensions 1 to 512, of keys and of values; any lengths from 0; any strides.\n"
    path = Path(sys.argv[1]) / "reference" / "support.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

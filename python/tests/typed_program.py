"""A program that uses everything, as type checkers see it: test_types.py runs them over it. It is
not run itself.
"""

from __future__ import annotations

from typing import Any, Literal, Union

import headlane
import numpy as np
from headlane.models import (
    T5,
    Bert,
    BertConfig,
    Checkpoint,
    GgufFile,
    SentenceEncoder,
    T5Config,
    Translator,
)
from typing_extensions import assert_type

Floats = np.ndarray[Any, np.dtype[np.float32]]
Halves = np.ndarray[Any, np.dtype[np.float16]]


def functions(x: Floats, out: Floats, flag: bool) -> None:
    assert_type(headlane.softmax(x, 1, 0.5, mask=x > 0, lengths=[3], causal=True, out=out), Floats)
    assert_type(headlane.log_softmax(x, axis=-1, num_threads=2), Floats)
    assert_type(headlane.layer_norm(x, x[0], x[0], residual=x), Floats)
    assert_type(headlane.layer_norm(x, return_sum=True), tuple[Floats, Floats])
    assert_type(headlane.rms_norm(x, x[0], return_sum=out), tuple[Floats, Floats])
    assert_type(headlane.rms_norm(x).sum(), Any)
    assert_type(headlane.gemm(x, x, alpha=2.0, activation="relu"), Floats)
    assert_type(headlane.matmul(x, headlane.PackedMatrix(x)), Floats)
    assert_type(headlane.linear(x, x, x[0], "gelu", x, out), Floats)
    assert_type(headlane.linear(x, headlane.PackedMatrix(x, dtype="int8"), activations="int8"), Floats)
    assert_type(headlane.gemm_gated(x, x, x, up_bias=x[0], activation=None), Floats)
    for activation in (headlane.relu, headlane.silu, headlane.sigmoid, headlane.tanh, headlane.erf):
        assert_type(activation(x, out=out), Floats)
    assert_type(headlane.gelu(x, "tanh"), Floats)
    headlane.sinusoidal_encoding(4, 8, interleaved=False).sum()
    assert_type(headlane.add_sinusoidal_encoding(x, 0.0, offset=3), Floats)
    assert_type(headlane.rotary_embedding(x, positions=[1, 2]), Floats)
    assert_type(headlane.linear_attention(x, x, x, x, x, state=out, normalize=True), Floats)
    assert_type(headlane.linear_attention(x, x, x, x, a_log=x[0], sigmoid_beta=True, beta_scale=2), Floats)
    assert_type(headlane.linear_attention(x, x, x, x, a_log=x[0], discretize=True, skip=x[0]), Floats)
    assert_type(headlane.causal_convolution(x, x, x[0], activation="silu", state=out), Floats)
    headlane.alibi_slopes(8).sum()
    assert_type(headlane.t5_bucket(3), int)
    assert_type(headlane.isa(), str)
    assert_type(headlane.isa_extension(), str)
    assert_type(headlane.available_isas(), list[str])
    assert_type(headlane.num_threads(), int)
    headlane.set_isa("avx2")
    headlane.set_num_threads(0)
    assert_type(headlane.__version__, str)


def sixteen_bits(x: Halves, weight: Floats) -> None:
    """The type of the result is that of the first argument; the others may have another."""
    assert_type(headlane.softmax(x, bias=weight, out=x), Halves)
    assert_type(headlane.layer_norm(x, weight, residual=weight), Halves)
    assert_type(headlane.rms_norm(x, return_sum=True), tuple[Halves, Halves])
    assert_type(headlane.linear(x, headlane.PackedMatrix(x), weight), Halves)
    assert_type(headlane.gemm_gated(x, weight, x, gate_bias=x), Halves)
    assert_type(headlane.linear_attention(x, weight, x, state=weight), Halves)
    assert_type(headlane.causal_convolution(x, weight, state=weight), Halves)
    assert_type(headlane.scaled_dot_product_attention(x, weight, x, attn_mask=weight), Halves)
    cache = headlane.KvCache(2, 8)
    cache.append(0, x, weight)
    assert_type(headlane.attention_over_cache(x, cache, 0), Halves)
    keys, values = cache.read(0)
    print(keys.shape == values.shape)


def attention(x: Floats, flag: bool) -> None:
    sdpa = headlane.scaled_dot_product_attention
    assert_type(sdpa(x, x, x), Floats)
    assert_type(sdpa(x, x, x, x > 0, 0.0, True, 0.5, False, softcap=2.0, window=(3, None)), Floats)
    assert_type(sdpa(x, x, x, is_causal=True, key_lengths=[3], out=x), Floats)
    sdpa(x, x, x).sum()
    assert_type(sdpa(x, x, x, return_lse=True), tuple[Floats, Floats])
    assert_type(sdpa(x, x, x, return_sum=True), tuple[Floats, Floats, Floats])
    assert_type(sdpa(x, x, x, return_lse=flag), Union[Floats, tuple[Floats, ...]])
    cache = headlane.KvCache(2, 8, page_size=32, dtype="int8")
    numbers = [cache.add(), cache.fork(0, 3)]
    cache.append(numbers, x, x)
    cache.truncate(0, 1)
    cache.remove(1)
    assert_type(cache.length(0) + cache.kv_heads + cache.pages_in_use + cache.nbytes, int)
    over = headlane.attention_over_cache
    assert_type(over(x, cache, 0, is_causal=True, scale=0.1), Floats)
    assert_type(over(x, cache, numbers, return_lse=True), tuple[Floats, Floats])
    assert_type(over(x, cache, numbers, return_sum=True), tuple[Floats, Floats, Floats])
    parts = [sdpa(x, x, x, return_lse=True)]
    assert_type(headlane.merge(parts, sinks=x), Floats)
    assert_type(headlane.merge(parts, return_lse=True), tuple[Floats, Floats])
    assert_type(headlane.attention_weights(x, x, window=(1, 1)), Floats)
    assert_type(headlane.attention_weights(x, x, return_lse=True), tuple[Floats, Floats])
    assert_type(headlane.attention_key_sums(x, x, enable_gqa=True), Floats)
    plan = headlane.plan_attention(x, cache, numbers, softcap=1.0)
    assert_type(plan, headlane.AttentionPlan)
    assert_type(plan.tasks, int)


def layers(x: Floats, state: dict[str, Floats]) -> None:
    assert_type(headlane.PackedMatrix(x, dtype="bfloat16").shape, tuple[int, int])
    packed = headlane.PackedMatrix(x)
    packed.unpack().sum()
    packed.unpack(x, num_threads=2)
    packed.unpack_columns([[1, 2]], out=x, num_threads=2)
    again = headlane.PackedMatrix.from_bytes(packed.packed_bytes(), packed.shape, packed.dtype)
    assert_type(again, headlane.PackedMatrix)
    assert_type(headlane.PackedMatrix.layout, int)
    stored = headlane.PackedMatrix.from_numbers(x > 0, x[0], dtype="int8_group32", clamp=True)
    assert_type(stored, headlane.PackedMatrix)
    numbers, scales = stored.unpack_numbers()
    print(numbers.sum(), scales.sum(), headlane.PackedMatrix.from_numbers(x, dtype="bfloat16").dtype)
    linear = headlane.Linear(state, "a.", weights="int8", activations="int8")
    assert_type(linear(x, activation="relu", residual=x), Floats)
    assert_type(linear.forward(x, out=x), Floats)
    assert_type(linear.in_features, int)
    linear.state_dict()["weight"].sum()
    embedding = headlane.Embedding(state, tied=True, max_length=5)
    embedding([[1, 2]], scale=2.0)
    assert_type(embedding.logits(x), Floats)
    assert_type(headlane.FeedForward(state, activation=None)(x), Floats)
    attends = headlane.MultiHeadAttention(state, num_heads=8, num_kv_heads=2)
    cache = headlane.KvCache(2, 8)
    attends.remember(x, cache, 0, key_lengths=[3])
    assert_type(attends(x, x, x > 0, is_causal=True, key_lengths=[3]), Floats)
    assert_type(attends.forward(x, cache=cache, sequences=[0], remembered=True), Floats)
    encoder = headlane.EncoderLayer(state, num_heads=8, norm="rms", norm_first=True)
    assert_type(encoder(x, x > 0, softcap=2.0), Floats)
    decoder = headlane.DecoderLayer(state, num_heads=8)
    assert_type(decoder(x, x, is_causal=False, cross={"attn_mask": x > 0, "scale": 1.0}), Floats)
    decoder.remember(x, cache, [0])


def with_models(folder: str) -> None:
    t5 = T5(folder, weights="int8", activations="int8")
    assert_type(t5.activations, Literal["float32", "bfloat16", "int8"])
    assert_type(t5.config, T5Config)
    assert_type(t5.generate([[1, 2]], num_beams=4, early_stopping="never", max_new_tokens=8), list[list[int]])
    t5.encode([1]).sum()
    t5.logits([1], [0]).sum()
    assert_type(t5.defaults("translation"), dict[str, Any])
    translator = Translator(folder, prefix="")
    assert_type(translator.translate("a", num_beams=2), str)
    assert_type(translator.translate(["a", "b"], batch_size=2), list[str])
    assert_type(translator.detokenize(translator.tokenize(["a"])[0]), str)
    bert = Bert(folder)
    assert_type(bert.config, BertConfig)
    bert.embed([[1, 2]], pooling="cls", normalize=True).sum()
    bert.encode([[1, 2]])[0].sum()
    SentenceEncoder(folder).encode(["a"], batch_size=3).sum()


def with_files(path: str, x: Floats) -> None:
    checkpoint, gguf = Checkpoint(path), GgufFile(path)
    for file in (checkpoint, gguf):
        assert_type(file.names(), list[str])
        assert_type(file.shape("a"), tuple[int, ...])
        assert_type(file.contains("a"), bool)
        print("a" in file, file.load("a", (2, 3)).sum(), repr(file))
    assert_type(checkpoint.pack("a.", clamp=True), headlane.PackedMatrix)
    assert_type(headlane.linear(x, gguf.pack("a", dtype="int8", num_threads=2)), Floats)
    assert_type(checkpoint.folder + gguf.file + gguf.type("a"), str)
    assert_type(gguf.keys(), list[str])
    value = gguf.metadata("general.name")
    if isinstance(value, str):
        print(value.upper())


def wrong(x: Floats, state: dict[str, Floats], t5: T5) -> None:
    """Each line is an error; the comment would be one if it were not."""
    headlane.softmax(x, axis=1.5)  # type: ignore
    headlane.softmax(x, causal="yes")  # type: ignore
    headlane.gemm(x, x, activation=3)  # type: ignore
    headlane.linear(x, x, activations="float16")  # type: ignore
    headlane.linear_attention(x, x, x, None, None, x)  # type: ignore
    headlane.causal_convolution(x, x, activation=True)  # type: ignore
    headlane.PackedMatrix.from_numbers(x, x, dtype="int4")  # type: ignore
    headlane.PackedMatrix.from_numbers(x, x, "int8")  # type: ignore
    headlane.PackedMatrix.from_bytes(b"", (1, 2, 3), "int8")  # type: ignore
    headlane.PackedMatrix.from_bytes(b"", (1, 2), "int4")  # type: ignore
    headlane.scaled_dot_product_attention(x, x, x, softcap="1")  # type: ignore
    headlane.scaled_dot_product_attention(x, x, x, soft_cap=1.0)  # type: ignore
    headlane.scaled_dot_product_attention(x, x, x, return_lse=True).sum()  # type: ignore
    headlane.attention_over_cache(x, x, 0)  # type: ignore
    headlane.attention_over_cache(x, headlane.KvCache(1, 2), 0, widow=(1, 2))  # type: ignore
    headlane.MultiHeadAttention(state)  # type: ignore
    headlane.Linear(state)(x, scale=3)  # type: ignore
    headlane.EncoderLayer(state, num_heads=2)(x, is_causal="no")  # type: ignore
    headlane.KvCache("2", 8)  # type: ignore
    t5.generate([[1]], beams=4)  # type: ignore
    GgufFile("a").pack("b", dtype="Q8_0")  # type: ignore
    GgufFile("a").metadata("b").upper()  # type: ignore
    Checkpoint("a").pack("b", True)  # type: ignore
    t5.generate([[1]], num_beams="4")  # type: ignore

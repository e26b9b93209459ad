"""What is measured, how much work it is, who takes part."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..cases import operations as cases
from ..contenders import operations as contenders
from ..measure import operations as measure
from ..routes import lowbit
from ..session import chosen

EVERY_CASE = [case for op in cases.ALL.values() for case in op]


def test_labels_are_unique_and_each_operation_has_quick_cases():
    assert len({(case.op, case.label) for case in EVERY_CASE}) == len(EVERY_CASE)
    quick = {case.op for case in EVERY_CASE if case.quick}
    assert quick == {
        "gemm",
        "lowbit",
        "softmax",
        "attention",
        "attention_options",
        "decode",
        "norms",
        "layers",
    }


def test_labels_say_what_it_is():
    labels = {case.label for case in EVERY_CASE}
    wanted = ["L=16384", "L=2048 1 head", "64xL=32", "L=16384 window 256", "L=16384 causal window 256"]
    wanted += [
        "L=2048 float mask",
        "L=2048 dense bool mask",
        "L=2048 bit mask",
        "L=2048 causal ALiBi",
        "L=2048 T5 bias",
    ]
    wanted += ["L=1024 8 heads on 2", "L=1024 head_dim 80", "8x1024 keys", "4096x512 masked"]
    wanted += ["8x1024 keys 32 heads on 8", "8x1024 keys in bfloat16", "32768 keys in int8"]
    assert labels.issuperset(wanted)


def test_the_case_without_the_option_is_measured_too():
    for case in EVERY_CASE:
        assert not case.base or any(
            other.label == case.base and other.op in (case.op, "attention") for other in EVERY_CASE
        )


def test_work_of_a_call():
    assert cases.gemm(2, 3, 4).flops == 48
    assert cases.gemm(2, 3, 4).bytes == 4 * (8 + 12 + 6)
    assert cases.softmax(2, 8).bytes == 128
    assert cases.attention(4).flops == 4 * 8 * 16 * 64
    assert cases.attention(4, causal=True).flops == 4 * 8 * 10 * 64
    assert cases.attention(4, mask="bool").flops == 4 * 8 * 12 * 64
    assert cases.attention(4, mask="dense").flops == cases.attention(4).flops
    assert cases.attention(6, window=(2, 1)).flops == 4 * 8 * 64 * (2 + 3 + 4 + 4 + 4 + 3)
    assert cases.attention(6, causal=True, window=(2, 0)).flops == 4 * 8 * 64 * (1 + 2 + 3 + 3 + 3 + 3)
    assert cases.attention(4, kv_heads=2).bytes == 4 * 64 * 4 * (2 * 8 + 2 * 2)
    decode = cases.attention(1, 4096)
    assert (decode.op, decode.limit, decode.limit_bytes) == ("decode", "read", 2 * 8 * 4096 * 64 * 4)
    assert cases.attention(1, 4096, stored="bfloat16").limit_bytes == decode.limit_bytes / 2
    assert cases.attention(1, 4096, stored="int8").limit_bytes == 2 * 8 * 4096 * (64 + 4)


def test_work_of_a_product_by_fewer_bits():
    one, many = cases.lowbit(1, 64, 32, "w4"), cases.lowbit(2, 64, 32, "w8a8")
    assert (one.limit, one.limit_bytes) == ("read", 64 * 18)  # 16 bytes of numbers and 2 of a scale
    assert (many.limit, many.flops) == ("fma", 2 * 2 * 64 * 32)
    assert many.bytes == 4 * 2 * (32 + 64) + 64 * 32
    runtime = next(c for c in contenders.lowbit(["avx512"]) if c.name == "ONNX Runtime")
    assert runtime.takes(one, 1)
    assert not runtime.takes(cases.lowbit(1, 64, 32, "bfloat16"), 1)


def test_weights_are_rounded_to_the_bits_that_they_have():
    b = np.random.default_rng(1).standard_normal((64, 5), np.float32)
    for largest, group in ((127, 0), (7, lowbit.GROUP)):
        q, scales = lowbit.quantised(b, largest, group)
        assert abs(q).max() == largest
        np.testing.assert_allclose((q * scales).reshape(5, 64).T, b, atol=abs(b).max() / largest / 2 * 1.001)
    packed = lowbit.nibbles(q)
    low, high = (packed << 4).view(np.int8) >> 4, packed.view(np.int8) >> 4
    np.testing.assert_array_equal(np.stack([low, high], -1).reshape(q.shape), q)


def test_slow_builds_are_spared_the_large_cases():
    scalar = contenders.Contender("headlane", "C++", ("gemm",), (), isa="scalar")
    assert scalar.takes(cases.gemm(64, 64, 64), 1)
    assert not scalar.takes(cases.gemm(64, 64, 64), 2)
    assert not scalar.takes(cases.gemm(2048, 2048, 2048), 1)
    assert not scalar.takes(cases.softmax(4, 4), 1)


def test_who_takes_what():
    everyone = contenders.every(Path("/nowhere"), ["avx512", "avx2", "scalar", "portable"])

    def takers(case: cases.Case) -> set[str]:
        return {contender.title for contender in everyone if contender.takes(case, 1)}

    options = [case for case in EVERY_CASE if case.op == "attention_options"]
    for case in options:
        assert {"headlane", "headlane avx2"} <= takers(case)
        assert "headlane scalar" not in takers(case)
    assert takers(cases.attention(8, option="softcap")) == {"headlane", "headlane avx2", "headlane scalar"}
    assert takers(cases.attention(8, window=(1, 1))) == takers(cases.attention(8, option="softcap"))
    assert takers(cases.attention(8, mask="dense")) == takers(cases.attention(8))
    assert "PyTorch SDPA" in takers(cases.attention(8, kv_heads=2))
    assert "OpenVINO" not in takers(cases.attention(8, kv_heads=2))
    assert takers(cases.attention(1, 8)) - takers(cases.attention(8)) == {
        "headlane cache",
        "headlane cache avx2",
    }
    assert takers(cases.attention(1, 8, stored="int8")) == {"headlane cache", "headlane cache avx2"}
    assert takers(cases.attention(1, 8, stored="bfloat16")) == {
        "headlane cache",
        "headlane cache avx2",
        "PyTorch SDPA",
    }


def test_only_takes_parts_of_names_and_whole_ones():
    everyone = contenders.every(Path("/nowhere"), ["avx512"])

    def titles(only: str) -> set[str]:
        return {contender.title for contender in chosen(everyone, only)}

    assert titles("=headlane") == {"headlane"}
    assert {"headlane", "headlane cache"} < titles("headlane")
    assert titles("=headlane,blis") == {"headlane", "BLIS", "BLIS (skx)"}
    assert titles("=headlan") == set()
    assert titles("") == {contender.title for contender in everyone}


def test_turns_let_everyone_begin():
    entries = ["a", "b", "c"]
    orders = [measure.turns(entries, number) for number in range(6)]
    assert all(sorted(order) == entries for order in orders)
    assert {order[0] for order in orders} == set(entries)
    assert measure.turns([], 1) == []

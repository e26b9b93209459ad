"""Run by mpirun: headlane.mpi on many ranks has the bits of one process. Rank 0 prints what passed."""

from __future__ import annotations

import sys
from pathlib import Path

import headlane
import numpy as np
import pytest
from headlane import mpi
from small_bert import write_bert

LITTLE = Path(__file__).parents[2] / "models/little/en-fr"


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def check_same(actual, expected) -> None:
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape, (actual.shape, expected.shape)
    different = np.flatnonzero(actual.view(np.int32) != expected.view(np.int32))
    assert different.size == 0, f"{different.size} of {actual.size} elements differ"


def check_attention(comm: mpi.Communicator) -> None:
    for seed, length in enumerate((1, 511, 512, 3000)):
        q, k, v = (normal(seed + 10 * i, 2, heads, length, 16) for i, heads in enumerate((4, 2, 2)))
        mask = np.random.default_rng(seed).random((length, length)) < 0.9
        for cut in (mpi.SequenceCut.contiguous, mpi.SequenceCut.cyclic):
            keys = cut(length, comm.size)
            own = keys.positions(comm.rank)
            options = {"window": (700, None), "softcap": 8.0, "enable_gqa": True}
            out, lse = mpi.attention(
                comm, q[:, :, own], k[:, :, own], v[:, :, own],
                keys=keys, queries=keys, attn_mask=mask[own], is_causal=True, return_lse=True, **options,
            )  # fmt: skip
            expected, expected_lse = headlane.scaled_dot_product_attention(
                q, k, v, mask, is_causal=True, return_lse=True, **options
            )
            check_same(out, expected[:, :, own])
            check_same(lse, expected_lse[:, :, own])
            few = mpi.attention(comm, q[:, :, -1:], k[:, :, own], v[:, :, own], keys=keys, enable_gqa=True)
            check_same(few, headlane.scaled_dot_product_attention(q[:, :, -1:], k, v, enable_gqa=True))


def check_cache(comm: mpi.Communicator) -> None:
    k, v, q = normal(1, 2, 4000, 16), normal(2, 2, 4000, 8), normal(3, 1, 4, 1, 16)
    for dtype in ("float32", "int8"):
        cut, whole = mpi.KvCache(comm, 2, 16, 8, dtype=dtype), headlane.KvCache(2, 16, 8, dtype=dtype)
        a, b = cut.add(), whole.add()
        of_prompt = mpi.SequenceCut.contiguous(3000, comm.size)
        own = of_prompt.positions(comm.rank)
        cut.append(a, k[:, own], v[:, own], of_prompt)
        whole.append(b, k[:, :3000], v[:, :3000])
        for first, end in ((3000, 3001), (3001, 4000)):
            cut.append(a, k[:, first:end], v[:, first:end])
            whole.append(b, k[:, first:end], v[:, first:end])
            check_same(
                mpi.attention_over_cache(comm, q, cut, a, is_causal=True),
                headlane.attention_over_cache(q, whole, b, is_causal=True),
            )
        c, d = cut.fork(a, 700), whole.fork(b, 700)
        cut.truncate(a, 2000)
        whole.truncate(b, 2000)
        both = np.concatenate([q, q + 1])
        out, lse = mpi.attention_over_cache(comm, both, cut, [a, c], return_lse=True)
        expected, expected_lse = headlane.attention_over_cache(both, whole, [b, d], return_lse=True)
        check_same(out, expected)
        check_same(lse, expected_lse)
        cut.remove(c)
        assert cut.length(a) == 2000
        assert sum(end - begin for _, begin, end in cut.pieces(a)) == 2000
        of_key = 2 * (16 + 32) * (4 if dtype == "float32" else 2)
        assert cut.nbytes <= (4000 // comm.size + 2 * 512) * of_key  # removed pages are kept


def encoder_state(d: int, hidden: int) -> dict[str, np.ndarray]:
    shapes = {
        "self_attn.in_proj_weight": (3 * d, d), "self_attn.in_proj_bias": (3 * d,),
        "self_attn.out_proj.weight": (d, d), "self_attn.out_proj.bias": (d,),
        "linear1.weight": (hidden, d), "linear1.bias": (hidden,),
        "linear2.weight": (d, hidden), "linear2.bias": (d,),
        "norm1.weight": (d,), "norm1.bias": (d,), "norm2.weight": (d,), "norm2.bias": (d,),
    }  # fmt: skip
    return {name: 0.1 * normal(seed, *shape) for seed, (name, shape) in enumerate(shapes.items())}


def check_layers(comm: mpi.Communicator) -> None:
    x = normal(7, 2, 50, 96)
    for weights, activations in (("float32", "float32"), ("int8", "int8")):
        state, options = (
            encoder_state(96, 200),
            {"num_heads": 3, "weights": weights, "activations": activations},
        )
        together = headlane.EncoderLayer(state, team=comm, **options)
        check_same(together(x, is_causal=True), headlane.EncoderLayer(state, **options)(x, is_causal=True))
        if comm.size > 1:
            check_refused(["state_dict"], together.state_dict)


def check_models(comm: mpi.Communicator) -> None:
    models = pytest.importorskip("headlane.models")
    ids = [[5, 9, 30, 1], [7, 1], [200, 31, 4, 77, 12, 1]]
    folder = Path(sys.argv[1])
    if comm.rank == 0:
        write_bert(folder, 2, 96, 50)
    comm.agree("folder", "is written")
    for dtype in ("float32", "int8"):
        stored = {"weights": dtype, "activations": dtype}
        alone, together = models.T5(LITTLE, **stored), models.T5(LITTLE, team=comm, **stored)
        for beams in (1, 3):
            assert together.generate(ids, num_beams=beams) == alone.generate(ids, num_beams=beams)
        check_same(together.logits(ids[0], [0, 3]), alone.logits(ids[0], [0, 3]))
        embedded = models.Bert(folder, team=comm, **stored).embed([[2, 7, 40, 3], [2, 3]])
        check_same(embedded, models.Bert(folder, **stored).embed([[2, 7, 40, 3], [2, 3]]))
    if comm.size > 1:
        options = {"team": comm, "weights": "int8" if comm.rank == 1 else "float32"}
        check_refused(["rank 1 has"], models.Bert, folder, **options)


def check_refused(words: list[str], function, *arguments, **options) -> None:
    with pytest.raises(ValueError, match=".*") as refused:
        function(*arguments, **options)
    for word in words:
        assert word in str(refused.value), str(refused.value)


def check_refusals(comm: mpi.Communicator) -> None:
    q = normal(1, 1, 2, 4, 8)
    keys = mpi.SequenceCut.contiguous(600, comm.size)
    own = np.zeros((1, 2, keys.length_of(comm.rank), 8), np.float32)
    if comm.size > 1:
        check_refused(
            ["ranks differ", "rank 0 has causal"],
            mpi.attention, comm, q, own, own, keys=keys, is_causal=comm.rank == 0,
        )  # fmt: skip
    check_refused(["window_left"], mpi.attention, comm, q, own, own, keys=keys, window=(-5, 3))
    check_refused(["key_lengths[0] is 601"], mpi.attention, comm, q, own, own, keys=keys, key_lengths=[601])
    check_refused(["pieces[1] begins at 100"], mpi.SequenceCut, 2, [(0, 0, 100), (1, 100, 200)])


def main() -> None:
    comm = mpi.Communicator()
    for check in (check_attention, check_cache, check_layers, check_models, check_refusals):
        check(comm)
        if comm.rank == 0:
            print(check.__name__, flush=True)
    print_once = comm.rank == 0
    comm.free()
    if print_once:
        print("passed", headlane.isa())


if __name__ == "__main__":
    sys.exit(main())

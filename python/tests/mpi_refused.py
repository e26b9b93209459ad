"""Run by mpirun: what one rank alone refuses raises the same ValueError on all ranks, and they go on."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import headlane
import numpy as np
import pytest
from headlane import mpi
from mpi_ranks import LITTLE, encoder_state, normal
from small_bert import write_bert

Change = dict[str, Any]


def refused_on_all(comm: mpi.Communicator, call: Callable, given: Change, change: Change, odd: int) -> bool:
    """Whether the call with other arguments on one rank is."""
    try:
        call(**{**given, **(change if comm.rank == odd else {})})
    except ValueError as error:
        said = str(error)
        if "what" in change:  # the title of the message
            said = said.partition(": ")[2]
    else:
        return False
    assert f"rank {odd} has " in said, said
    comm.agree("the exceptions", said)
    return True


def refused(comm: mpi.Communicator, call: Callable, given: Change, changes: list[Change]) -> None:
    """Each change, on a rank in turn; then the unchanged call works."""
    accepted = [
        (number, *change)
        for number, change in enumerate(changes)
        if not refused_on_all(comm, call, given, change, number % comm.size)
    ]
    assert not accepted, f"{call}: {accepted}"
    call(**given)


EVERYWHERE: list[Change] = [
    {"num_threads": -1},
    {"num_threads": "many"},
    {"window": "wide"},
    {"scale": "large"},
    {"softcap": -1.0},
    {"no_such_option": 1},
    {"attn_mask": np.zeros((3, 3, 3), bool)},
    {"attn_mask": "all"},
    {"key_lengths": [1.5]},
]


def check_attention(comm: mpi.Communicator) -> None:
    keys = mpi.SequenceCut.contiguous(600, comm.size)
    own = np.zeros((1, 2, keys.length_of(comm.rank), 8), np.float32)
    q = normal(1, 1, 2, 4, 8)
    given = {"comm": comm, "query": q, "key": own, "value": own, "keys": keys}
    changes = [
        *EVERYWHERE,
        *({name: value} for name in ("query", "key", "value") for value in (None, "x", q.astype(int), q[0, 0, 0])),
        {"query": q[:, :, :2]},
        {"query": q[None]},
        {"value": own[..., :3]},
        {"keys": 5},
        {"keys": mpi.SequenceCut.contiguous(601, comm.size)},
        {"keys": mpi.SequenceCut.contiguous(600, comm.size + 1)},
        {"queries": "x"},
        {"is_causal": "yes"},
        {"is_causal": True},
        {"enable_gqa": 3},
        {"return_lse": None},
        {"out": 5},
        {"out": np.zeros((1, 2, 3, 8), np.float32)},
    ]  # fmt: skip
    refused(comm, mpi.attention, given, changes)
    # Axes before the batch are calls of their own.
    several = {**given, "query": np.stack([q, q]), "key": np.stack([own, own]), "value": np.stack([own, own])}
    one = {name: several[name][:1] for name in ("query", "key", "value")}
    none = {name: several[name][:0] for name in ("query", "key", "value")}
    refused(comm, mpi.attention, several, [one, none, {name: given[name] for name in one}])


def check_cache(comm: mpi.Communicator) -> None:
    cache = mpi.KvCache(comm, 2, 8)
    sequence = cache.add()
    cache.append(sequence, normal(2, 2, 700, 8), normal(3, 2, 700, 8))
    q = normal(1, 1, 2, 4, 8)
    given = {"comm": comm, "query": q, "cache": cache, "sequences": sequence}
    changes = [
        *EVERYWHERE,
        *({"query": value} for value in (None, "x", q.astype(int), q[:, :1], q[:, :, :3], q[..., :5])),
        {"cache": None},
        {"cache": headlane.KvCache(2, 8)},
        {"sequences": "x"},
        {"sequences": 77},
        {"sequences": [sequence, sequence]},
        {"is_causal": True},
        {"return_lse": 5},
        {"out": np.zeros(3, np.float32)},
    ]
    refused(comm, mpi.attention_over_cache, given, changes)


def check_layers(comm: mpi.Communicator) -> None:
    state = encoder_state(96, 200)
    for layer in (headlane.EncoderLayer, headlane.DecoderLayer):
        cross = {f"multihead_attn.{n[10:]}": x for n, x in state.items() if n.startswith("self_attn.")}
        of_layer = {
            **state,
            **cross,
            "norm3.weight": state["norm2.weight"],
            "norm3.bias": state["norm2.bias"],
        }
        given = {"state": of_layer, "num_heads": 3, "team": comm}
        changes = [
            {"state": None},
            {"state": {}},
            {"state": {**of_layer, "linear1.weight": "x"}},
            {"state": {**of_layer, "linear2.bias": of_layer["linear2.bias"] + 1}},
            {"prefix": 5},
            {"num_heads": "three"},
            {"num_heads": 2},
            {"activation": "no such"},
            {"activation": "gelu"},
            {"norm": 5},
            {"norm_first": 1},
            {"layer_norm_eps": 1e-6},
            {"weights": "int9"},
            {"weights": "int8"},
        ]
        refused(comm, layer, given, changes)
        x = normal(7, 2, 50, 96)
        made = layer(**given)
        given = {"x": x} if layer is headlane.EncoderLayer else {"x": x, "memory": x}
        changes = [
            *EVERYWHERE,
            *(
                {"x": value}
                for value in (None, "x", x[:, :7], x[:, :, :7], x.astype(int), normal(7, 2, 2, 50, 96))
            ),
            {"out": np.zeros(5, np.float32)},
            {"is_causal": layer is headlane.EncoderLayer},
        ]
        if layer is headlane.DecoderLayer:
            changes += [{"cross": []}, {"cross": {"softcap": 2.0}}, {"cross": {"no_such_option": 1}}]
        refused(comm, made, given, changes)


def check_models(comm: mpi.Communicator, folder: Path) -> None:
    from headlane import models

    if comm.rank == 0:
        write_bert(folder, 1, 64, 50)
    comm.agree("folder", "is written")
    for model, path in ((models.T5, LITTLE), (models.Bert, folder)):
        changes = [
            {"folder": 5},
            {"folder": "/nothing"},
            {"weights": "int8"},
            {"weights": 5},
            {"activations": "x"},
        ]
        refused(comm, model, {"folder": path, "team": comm}, changes)
    t5, bert = models.T5(LITTLE, team=comm), models.Bert(folder, team=comm)
    ids = [[5, 9, 30, 1], [7, 1]]
    of_threads = [{"num_threads": "x"}, {"num_threads": -1}]
    of_sentences = [
        {"ids": value} for value in (5, [], [[]], ["text"], [[1.5]], [[-1]], [[1 << 40]], ids[:1])
    ]
    changes = [
        *of_sentences,
        {"task": "no such"},
        {"num_beams": "x"},
        {"num_beams": 0},
        {"num_beams": 2},
        {"max_length": 7, "max_new_tokens": 7},
        {"max_new_tokens": "x"},
        {"early_stopping": "maybe"},
        {"no_such_option": 1},
        {"num_threads": "x"},
    ]
    refused(comm, t5.generate, {"ids": ids, "max_length": 6}, changes)
    of_input = [{"ids": value} for value in (5, [], "text", [1.5], [-1], ids[1])]
    refused(comm, t5.encode, {"ids": ids[0]}, [*of_input, {"num_threads": "x"}])
    refused(comm, t5.logits, {"ids": ids[0], "output": [0, 3]}, [*of_input, {"output": "x"}, {"output": [0]}])
    changes = [
        *of_sentences,
        *of_threads,
        {"token_type_ids": 5},
        {"token_type_ids": [[0]]},
        {"truncate": "x"},
    ]
    refused(comm, bert.encode, {"ids": ids}, [*changes, {"truncate": True}])
    changes += [{"pooling": 5}, {"pooling": "no such"}, {"pooling": "cls"}, {"normalize": True}, {"out": 5}]
    refused(comm, bert.embed, {"ids": ids}, [*changes, {"prompt_tokens": "x"}, {"prompt_tokens": 1}])
    assert bert.embed([]).shape == (0, 64)


def check_communicator(comm: mpi.Communicator) -> None:
    refused(
        comm, comm.agree, {"what": "this", "mine": "text"}, [{"what": 5}, {"mine": None}, {"mine": "other"}]
    )
    # All ranks refuse alike: the exception of one process.
    with pytest.raises(TypeError, match="query has type int"):
        mpi.attention(comm, 5, 5, 5, keys=mpi.SequenceCut(comm.size, []))
    with pytest.raises(TypeError, match="mine is 5; wanted: a str"):
        comm.agree("what", 5)
    for rank in (1 << 32, -1, 2):
        with pytest.raises(ValueError, match=f" {rank}\\b"):
            mpi.SequenceCut(2, [(rank, 0, 100)])


def main() -> None:
    comm = mpi.Communicator()
    check_communicator(comm)
    check_attention(comm)
    check_cache(comm)
    check_layers(comm)
    if sys.argv[2:] == ["models"]:
        check_models(comm, Path(sys.argv[1]))
    comm.agree("the checks", "passed")
    if comm.rank == 0:
        print("passed", flush=True)


if __name__ == "__main__":
    sys.exit(main())

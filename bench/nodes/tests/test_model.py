"""Limits that must hold whatever the rates, and bytes counted by hand."""

from __future__ import annotations

import math

import pytest

from nodes import check, cuts, simulate
from nodes.cuts import Piece
from nodes.model import (
    Attention,
    Decoding,
    Heads,
    Layer,
    Links,
    Node,
    Pieces,
    agreement,
    all_gather,
    broadcast,
    efficiency,
)

HEADS = Heads(q=8, kv=2, dim=64)
NODE = Node(attention=1e11, products=1e11, memory=2e10)
FREE = Links(0.0, math.inf)
SLOW = Links(1e-3, 1e8)


def test_pieces_of_cuts():
    assert cuts.contiguous(1500, 2) == [Piece(0, 0, 512), Piece(1, 512, 1500)]
    assert cuts.zigzag(4096, 2) == [Piece(0, 0, 1024), Piece(1, 1024, 3072), Piece(0, 3072, 4096)]
    # Ranks 0, 1, 0, 1, then 1, 0, 1, 0, so that each begins two turns; adjacent ones are one piece.
    pieces = cuts.cyclic(16384, 2)
    assert [piece.rank for piece in pieces] == [0, 1, 0, 1, 0, 1, 0]
    assert pieces[3] == Piece(1, 6144, 10240)
    assert cuts.contiguous(512, 4) == [Piece(3, 0, 512)]
    assert cuts.contiguous(5000, 1) == cuts.zigzag(5000, 1) == cuts.cyclic(5000, 1) == [Piece(0, 0, 5000)]
    assert len(cuts.cyclic(1 << 20, 4)) == 64


@pytest.mark.parametrize(
    ("rows", "keys"), [((0, 3), (0, 3)), ((2, 7), (0, 3)), ((2, 7), (4, 9)), ((0, 2), (5, 9))]
)
def test_causal_pairs_are_those_counted_one_by_one(rows, keys):
    counted = sum(key <= row for row in range(*rows) for key in range(*keys))
    assert cuts.pairs(Piece(0, *rows), Piece(0, *keys), causal=True) == counted


@pytest.mark.parametrize("cut", ["contiguous", "zigzag", "cyclic"])
def test_one_rank_takes_the_time_of_its_operations(cut):
    operations = 4 * 8 * 64 * (4096 * 4097 // 2)
    assert Attention(HEADS, 4096, True, cut).time(1, NODE, SLOW) == pytest.approx(operations / NODE.attention)


def test_one_node_sends_nothing():
    for time in (Decoding(HEADS, 4096).time, Layer(512, 2048, 1, 16).time):
        assert time(1, NODE, SLOW) == time(1, NODE, FREE)
    assert all_gather(1e9, 1, SLOW) == broadcast(1e9, 1, SLOW) == agreement(1, SLOW) == 0
    assert Pieces(1000, 10, 100.0).time(1, SLOW) == pytest.approx(10)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_free_messages_divide_the_work(ranks):
    whole = Attention(HEADS, 8192, False, "contiguous")
    assert whole.time(ranks, NODE, FREE) == pytest.approx(whole.time(1, NODE, FREE) / ranks)
    layer = Layer(512, 2048, 1, 16)
    replicated = layer.passes * layer.rows * layer.width * 4 / NODE.memory
    divided = layer.time(1, NODE, FREE) - replicated
    assert layer.time(ranks, NODE, FREE) - replicated == pytest.approx(divided / ranks)
    decoding = Decoding(HEADS, 8192)
    merges = (16 - 16 // ranks) * HEADS.bytes_of_partial / NODE.memory  # of other ranks, one after the other
    reading = 8192 * HEADS.bytes_of_key / NODE.memory
    own = 16 // ranks * HEADS.bytes_of_partial / NODE.memory
    assert decoding.time(ranks, NODE, FREE) == pytest.approx(reading / ranks + own + merges)
    jobs = Pieces(800, 10, 100.0)
    assert jobs.time(ranks, FREE) == pytest.approx(8 / ranks)


def test_causal_ranks_wait_for_the_busiest_of_each_chunk():
    """Zigzag approaches two thirds of what nodes could do, cyclic pieces all of it."""
    times = {cut: Attention(HEADS, 1 << 18, True, cut).time(8, NODE, FREE) for cut in ("zigzag", "cyclic")}
    alone = Attention(HEADS, 1 << 18, True, "contiguous").time(1, NODE, FREE)
    assert 0.66 < alone / 8 / times["zigzag"] < 0.72
    assert 0.93 < alone / 8 / times["cyclic"] < 1


def test_a_ring_that_only_sends_takes_the_time_of_its_bytes():
    """Three ranks with a part each of one chunk: each sends its own, then passes on that of the left one."""
    heads = Heads(q=1, kv=8, dim=64)
    still = Node(attention=math.inf, products=math.inf, memory=math.inf)
    ring = Attention(heads, 3 * 512, False, "contiguous")
    assert len(ring.chunks(3)) == 1
    hop = SLOW.message(512 * heads.bytes_of_key)
    assert ring.time(3, still, SLOW) == pytest.approx(agreement(3, SLOW) + 2 * hop)
    # With a chunk for each rank, a part leaves when its owner begins the chunk before.
    heads = Heads(q=1, kv=32, dim=128)
    ring = Attention(heads, 3 * 512, False, "contiguous")
    assert len(ring.chunks(3)) == 3
    leaving = 512 * heads.bytes_of_key / SLOW.bandwidth
    hop = SLOW.latency + leaving
    assert ring.time(3, still, SLOW) >= agreement(3, SLOW) + 2 * leaving + 2 * hop
    assert ring.time(3, still, SLOW) <= agreement(3, SLOW) + 4 * hop + 2 * leaving


def test_bytes_of_cuts_by_hand():
    key = 2 * 2 * 64 * 4  # both, two heads, 64 floats
    uneven = Attention(HEADS, 1500, False, "contiguous")  # rank 0 has 512 keys, rank 1 has 988
    assert [uneven.bytes_sent(rank, 2) for rank in range(2)] == [512 * key, 988 * key]
    assert [uneven.bytes_received(rank, 2) for rank in range(2)] == [988 * key, 512 * key]
    for cut in ("zigzag", "cyclic"):  # 1024 keys each
        even = Attention(HEADS, 4096, True, cut)
        assert {even.bytes_sent(rank, 4) for rank in range(4)} == {3072 * key}
    partial = 8 * (64 + 2) * 4
    assert [Decoding(HEADS, 2048).bytes_sent(rank, 4) for rank in range(4)] == [partial] * 3 + [0]
    assert Layer(512, 2048, 2, 16).bytes_sent(4) == 32 * (3 * 512 + 2048) * 4 * 3 / 4
    assert Layer(512, 2048, 16, 64).bytes_sent(4) == 1024 * (3 * 512 + 2048) * 4 * 3 / 4


def test_the_hidden_layer_is_gathered_some_rows_at_a_time():
    """1024 rows of 2048 elements: 504, 504 and 16."""
    row = 4 * 512
    assert Layer(512, 2048, 16, 64).gathered() == [
        1024 * row,
        1024 * row,
        *(rows * width * row for rows in (504, 504, 16) for width in (4, 1)),
    ]
    assert [size // (4 * 16384) for size in Layer(4096, 16384, 1, 100).gathered()[2::2]] == [96, 4]


def test_gathers_and_broadcasts():
    assert all_gather(1 << 16, 8, SLOW) == pytest.approx(3e-3 + 7 / 8 * 65536 / 1e8)
    assert all_gather(1 << 17, 8, SLOW) == pytest.approx(7e-3 + 7 / 8 * 131072 / 1e8)
    assert all_gather(1 << 10, 6, SLOW) == pytest.approx(5e-3 + 5 / 6 * 1024 / 1e8)
    assert broadcast(1000, 5, SLOW) == pytest.approx(3 * 1.01e-3)


def test_the_check_takes_its_rates_from_runs_without_links():
    _, runs = check.load()
    node = check.node_of(runs)
    alone = {run for run in runs if run.gbit == math.inf}
    assert alone == {check.Run(*run, 0, math.inf) for run in check.ALONE}
    assert set(runs) - alone == set(check.RUNS)
    whole = next(run for run in alone if run.case == "whole" and run.ranks == 1)
    assert check.predicted(whole, node) == pytest.approx(runs[whole] + node.call)


def test_one_node_of_the_simulation_is_fully_used():
    node = simulate.node()
    for time in simulate.cases().values():
        assert efficiency({1: time(1, node, SLOW)})[1] == 1

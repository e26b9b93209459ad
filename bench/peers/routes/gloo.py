"""What torch.distributed does with gloo: `mpirun -n 2 python -m peers.routes.gloo CASE LENGTH SECONDS`.

cyclic     causal self-attention, 8 heads of 64: keys and values all-gathered, each rank computes its own rows
whole      the same, not causal
encoder    nn.TransformerEncoderLayer of 16 × LENGTH tokens, d_model 512, d_ff 2048: heads and columns cut, all-reduced
Rank 0 prints a line of JSON, as bench_mpi.
"""

from __future__ import annotations

import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.functional import layer_norm, linear, relu, scaled_dot_product_attention

HEADS, DIM, HIDDEN, BATCH = 8, 64, 2048, 16


def attention(length: int, causal: bool):
    ranks, rank = dist.get_world_size(), dist.get_rank()
    own = length // ranks
    q, k, v = (torch.rand(1, HEADS, own, DIM) - 0.5 for _ in range(3))
    keys, values = ([torch.empty_like(k) for _ in range(ranks)] for _ in range(2))
    # Row i of this rank sees the keys up to its own position.
    mask = torch.ones(own, length, dtype=torch.bool).tril(own * rank) if causal and ranks > 1 else None

    def call():
        if ranks == 1:
            return scaled_dot_product_attention(q, k, v, is_causal=causal)
        dist.all_gather(keys, k)
        dist.all_gather(values, v)
        return scaled_dot_product_attention(q, torch.cat(keys, 2), torch.cat(values, 2), mask)

    return call


def encoder(length: int):
    """As Megatron-LM: two all-reduces."""
    ranks = dist.get_world_size()
    d, own_heads, own_hidden = HEADS * DIM, HEADS // ranks, HIDDEN // ranks
    projection, output = torch.rand(3 * own_heads * DIM, d) - 0.5, torch.rand(d, own_heads * DIM) - 0.5
    first, second = torch.rand(own_hidden, d) - 0.5, torch.rand(d, own_hidden) - 0.5
    weights = torch.rand(2, d)
    x = torch.rand(BATCH, length, d) - 0.5

    def reduced(y):
        if ranks > 1:
            dist.all_reduce(y)
        return y

    def call():
        qkv = linear(x, projection).view(BATCH, length, 3, own_heads, DIM).permute(2, 0, 3, 1, 4)
        heads = scaled_dot_product_attention(*qkv).transpose(1, 2).reshape(BATCH, length, -1)
        y = layer_norm(x + reduced(linear(heads, output)), (d,), weights[0])
        return layer_norm(y + reduced(linear(relu(linear(y, first)), second)), (d,), weights[1])

    return call


def main() -> None:
    name, length, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ.get("GLOO_PORT", "29561"))
    ranks = int(os.environ.get("OMPI_COMM_WORLD_SIZE", "1"))
    dist.init_process_group("gloo", rank=int(os.environ.get("OMPI_COMM_WORLD_RANK", "0")), world_size=ranks)
    call = encoder(length) if name == "encoder" else attention(length, name == "cyclic")
    times: list[float] = []
    go = torch.ones(1)
    with torch.inference_mode():
        call()
        while go[0]:
            dist.barrier()
            start = time.perf_counter()
            call()
            dist.barrier()
            times.append(time.perf_counter() - start)
            go[0] = len(times) < 3 or sum(times) < seconds
            dist.broadcast(go, 0)
    if dist.get_rank() == 0:
        times.sort()
        result = {"case": name, "length": length, "ranks": ranks, "threads": torch.get_num_threads()}
        print(json.dumps(result | {"median": times[len(times) // 2], "least": times[0], "calls": len(times)}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

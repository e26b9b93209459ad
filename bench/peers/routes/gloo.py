"""What torch.distributed does with gloo: `mpirun -n 2 python -m peers.routes.gloo CASE LENGTH SECONDS`.

cyclic     causal self-attention, 8 heads of 64: keys and values all-gathered, each rank computes its own rows
whole      the same, not causal
encoder    an encoder layer of 16 × LENGTH tokens, d_model 512, d_ff 2048, by torch.distributed.tensor.parallel
Rank 0 prints a line of JSON, as bench_mpi.
"""

from __future__ import annotations

import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.functional import relu, scaled_dot_product_attention

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


class Encoder(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        d = HEADS * DIM
        self.query, self.key, self.value, self.output = (torch.nn.Linear(d, d, bias=False) for _ in range(4))
        self.first, self.second = (
            torch.nn.Linear(d, HIDDEN, bias=False),
            torch.nn.Linear(HIDDEN, d, bias=False),
        )
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(d) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        qkv = (f(x).unflatten(-1, (-1, DIM)).transpose(1, 2) for f in (self.query, self.key, self.value))
        heads = scaled_dot_product_attention(*qkv).transpose(1, 2).flatten(2)
        y = self.norms[0](x + self.output(heads))
        return self.norms[1](y + self.second(relu(self.first(y))))


def encoder(length: int):
    """PyTorch's tensor parallelism: columns of what reads x and rows of what is added to it, all-reduced."""
    layer = Encoder().eval()
    if dist.get_world_size() > 1:
        columns = dict.fromkeys(("query", "key", "value", "first"), ColwiseParallel())
        plan = columns | dict.fromkeys(("output", "second"), RowwiseParallel())
        parallelize_module(layer, init_device_mesh("cpu", (dist.get_world_size(),)), plan)
    x = torch.rand(BATCH, length, HEADS * DIM) - 0.5
    return lambda: layer(x)


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

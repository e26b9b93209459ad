"""Norms and activations, and layers: multi-head attention and a whole encoder layer."""

from __future__ import annotations

from .case import FLOAT, STEPS, Case, Phase

# Operations on an element; a root, an exponential or erf is one.
OPERATIONS = {"layer_norm": 7, "rms_norm": 4, "gelu": 4, "sigmoid": 3, "tanh": 3}
NAMES = {
    "layer_norm": "layer norm",
    "rms_norm": "RMS norm",
    "gelu": "GELU",
    "sigmoid": "sigmoid",
    "tanh": "tanh",
}
ACTIVATIONS = ("gelu", "sigmoid", "tanh")  # without weights


def norm(kind: str, rows: int, columns: int, quick: bool = False) -> Case:
    """kind: "layer_norm", "rms_norm" (both with weights, the first with a bias) or one of ACTIVATIONS."""
    size = rows * columns
    return Case(
        "norms",
        f"{NAMES[kind]} {rows}x{columns}",
        {"kind": kind, "rows": rows, "columns": columns},
        OPERATIONS[kind] * size,
        2 * FLOAT * size,
        "copy",
        FLOAT * size,
        quick,
        phases=(Phase(0, STEPS[kind] * size, FLOAT * size, FLOAT * size),),
    )


def layer(
    kind: str,
    length: int,
    *,
    batch: int = 1,
    heads: int = 8,
    d_model: int = 512,
    d_ff: int = 2048,
    quick: bool = False,
) -> Case:
    """kind: "attention" (torch.nn.MultiheadAttention) or "encoder" (torch.nn.TransformerEncoderLayer, GELU,
    post-norm). Only the products count as work."""
    weights = 4 * d_model**2 + (2 * d_model * d_ff if kind == "encoder" else 0)
    shape = {"kind": kind, "batch": batch, "length": length, "heads": heads}
    rows, flops = batch * length, batch * length * (2 * weights + 4 * d_model * length)
    steps = STEPS["exponential"] * heads * rows * length
    steps += rows * (STEPS["gelu"] * d_ff + 2 * STEPS["layer_norm"] * d_model) if kind == "encoder" else 0
    return Case(
        "layers",
        f"{kind} {f'{batch}x' if batch > 1 else ''}L={length}",
        {**shape, "d_model": d_model, "d_ff": d_ff},
        flops,
        FLOAT * (weights + 2 * rows * d_model),
        "fma",
        quick=quick,
        phases=(Phase(flops, steps, FLOAT * (weights + rows * d_model), FLOAT * rows * d_model),),
    )


def tensors(shape: dict) -> dict[str, tuple[int, ...]]:
    """The shapes of a layer's weights, by their names in torch.nn.TransformerEncoderLayer."""
    d, ff = shape["d_model"], shape["d_ff"]
    made: dict[str, tuple[int, ...]] = {
        "self_attn.in_proj_weight": (3 * d, d),
        "self_attn.in_proj_bias": (3 * d,),
        "self_attn.out_proj.weight": (d, d),
        "self_attn.out_proj.bias": (d,),
    }
    if shape["kind"] == "encoder":
        made |= {"linear1.weight": (ff, d), "linear1.bias": (ff,)}
        made |= {"linear2.weight": (d, ff), "linear2.bias": (d,)}
        made |= {f"norm{i}.{name}": (d,) for i in (1, 2) for name in ("weight", "bias")}
    return made


LAYERS = [
    *(norm(kind, 2048, 512, True) for kind in NAMES),
    *(
        layer(kind, length, quick=length in (16, 128))
        for kind in ("attention", "encoder")
        for length in (16, 128, 512, 2048)
    ),
    *(layer(kind, 128, batch=16) for kind in ("attention", "encoder")),
]

"""torch.ops.headlane: functions as PyTorch operators, which torch.compile keeps in its graph.

Importing this module registers them. They use torch.get_num_threads() threads. Outside of torch.compile,
the functions of headlane have less overhead.
"""

import ctypes
import weakref
from typing import Optional

import torch
from torch import get_num_threads as threads

import headlane


@torch.library.custom_op("headlane::scaled_dot_product_attention", mutates_args=())
def scaled_dot_product_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: Optional[torch.Tensor] = None,
    is_causal: bool = False,
    scale: Optional[float] = None,
    enable_gqa: bool = False,
    causal_offset: int = 0,
    softcap: float = 0.0,
    window_left: int = -1,
    window_right: int = -1,
    key_lengths: Optional[torch.Tensor] = None,
    query_lengths: Optional[torch.Tensor] = None,
    causal_offsets: Optional[torch.Tensor] = None,
    alibi_slopes: Optional[torch.Tensor] = None,
    sinks: Optional[torch.Tensor] = None,
    mask_bits: Optional[torch.Tensor] = None,
    relative_bias: Optional[torch.Tensor] = None,
    relative_max_distance: int = 128,
    relative_bidirectional: bool = True,
    query_starts: Optional[torch.Tensor] = None,
    key_starts: Optional[torch.Tensor] = None,
) -> torch.Tensor:
    """headlane.scaled_dot_product_attention as an operator, without a gradient.

    Each parameter has one type: causal_offsets [batch] is a causal_offset for each batch element, and
    window_left and window_right are the window, -1 for unbounded. The others are those of
    headlane.scaled_dot_product_attention.
    """
    return headlane.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask,
        0.0,
        is_causal,
        scale,
        enable_gqa,
        causal_offset=causal_offset if causal_offsets is None else causal_offsets,
        softcap=softcap,
        window=(window_left, window_right),
        key_lengths=key_lengths,
        query_lengths=query_lengths,
        alibi_slopes=alibi_slopes,
        sinks=sinks,
        mask_bits=mask_bits,
        relative_bias=relative_bias,
        relative_max_distance=relative_max_distance,
        relative_bidirectional=relative_bidirectional,
        query_starts=query_starts,
        key_starts=key_starts,
        num_threads=threads(),
    )


@scaled_dot_product_attention.register_fake
def _(query, key, value, attn_mask=None, is_causal=False, scale=None, enable_gqa=False, *others):
    inner = 3 if enable_gqa else 2  # grouped heads do not broadcast: the result has those of query
    batch = torch.broadcast_shapes(*(x.shape[:-inner] for x in (query, key, value)))
    return query.new_empty((*batch, *query.shape[-inner:-1], value.shape[-1]))


@torch.library.custom_op("headlane::attention_weights", mutates_args=())
def attention_weights(
    query: torch.Tensor, key: torch.Tensor, attn_mask: Optional[torch.Tensor] = None
) -> torch.Tensor:
    """headlane.attention_weights as an operator, without a gradient."""
    return headlane.attention_weights(query, key, attn_mask, num_threads=threads())


@attention_weights.register_fake
def _(query, key, attn_mask=None):
    batch = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2])
    return query.new_empty((*batch, query.shape[-2], key.shape[-2]))


@torch.library.custom_op("headlane::layer_norm", mutates_args=())
def layer_norm(
    x: torch.Tensor, weight: Optional[torch.Tensor], bias: Optional[torch.Tensor], eps: float
) -> torch.Tensor:
    """headlane.layer_norm as an operator, without a gradient."""
    return headlane.layer_norm(x, weight, bias, eps, num_threads=threads())


@torch.library.custom_op("headlane::rms_norm", mutates_args=())
def rms_norm(x: torch.Tensor, weight: Optional[torch.Tensor], eps: float) -> torch.Tensor:
    """headlane.rms_norm as an operator, without a gradient."""
    return headlane.rms_norm(x, weight, eps, num_threads=threads())


@torch.library.custom_op("headlane::activation", mutates_args=())
def activation(x: torch.Tensor, name: str) -> torch.Tensor:
    """relu, gelu, gelu_tanh, silu, sigmoid, tanh or erf of headlane as an operator, without a gradient."""
    out = torch.empty_like(x)
    if name == "gelu_tanh":
        return headlane.gelu(x, "tanh", out=out, num_threads=threads())
    return getattr(headlane, name)(x, out=out, num_threads=threads())


@activation.register_fake
def _(x, name):
    return torch.empty_like(x)


@layer_norm.register_fake
@rms_norm.register_fake
def _(x, *others):
    return x.new_empty(x.shape)


class SharedMatrix:
    """A PackedMatrix as operators take it: `bytes` is a tensor of uint8 that shares its memory, and
    `key` what else there is to know.
    """

    __slots__ = ("__weakref__", "bytes", "key", "matrix")

    def __init__(self, matrix: headlane.PackedMatrix) -> None:
        self.matrix = matrix
        self.key = f"{matrix.rows} {matrix.columns} {matrix.dtype} {headlane.PackedMatrix.layout}"
        self.bytes = torch.zeros(0, dtype=torch.uint8, device="cpu")
        if matrix.nbytes == 0:
            return
        # PyTorch would warn of an array that is not writable. Nobody writes to this tensor.
        memory = (ctypes.c_ubyte * matrix.nbytes).from_address(matrix.packed_bytes().ctypes.data)
        memory.matrix = matrix  # lives as long
        self.bytes = torch.frombuffer(memory, dtype=torch.uint8)
        _shared[self.bytes.data_ptr()] = self


# By address: the matrix whose memory a tensor shares.
_shared: "weakref.WeakValueDictionary[int, SharedMatrix]" = weakref.WeakValueDictionary()
# The same for tensors with memory of their own: those of an exported program that was loaded.
_loaded: "dict[int, tuple[weakref.ref[torch.Tensor], headlane.PackedMatrix]]" = {}


def _shape_of(key: str) -> "tuple[int, int]":
    rows, columns = key.split()[:2]
    return int(rows), int(columns)


def _matrix_of(packed: torch.Tensor, key: str) -> headlane.PackedMatrix:
    address = packed.data_ptr()
    shared = _shared.get(address)
    if shared is not None and shared.key == key:
        return shared.matrix
    loaded = _loaded.get(address)
    if loaded is not None and loaded[0]() is not None:
        return loaded[1]
    dtype, layout = key.split()[2:]
    if int(layout) != headlane.PackedMatrix.layout:
        raise RuntimeError(
            f"headlane: the program has matrices in layout {layout}, this version reads layout "
            f"{headlane.PackedMatrix.layout}; export it again"
        )
    matrix = headlane.PackedMatrix.from_bytes(packed.numpy(), _shape_of(key), dtype)
    _loaded[address] = weakref.ref(packed, lambda _: _loaded.pop(address, None)), matrix
    return matrix


@torch.library.custom_op("headlane::linear", mutates_args=())
def linear(
    x: torch.Tensor, packed: torch.Tensor, key: str, bias: Optional[torch.Tensor], activations: str
) -> torch.Tensor:
    """headlane.linear as an operator, without a gradient. packed and key are those of a SharedMatrix."""
    return headlane.linear(x, _matrix_of(packed, key), bias, activations=activations, num_threads=threads())


@linear.register_fake
def _(x, packed, key, bias, activations):
    return x.new_empty((*x.shape[:-1], _shape_of(key)[1]))


@torch.library.custom_op("headlane::experts", mutates_args=())
def experts(
    x: torch.Tensor,
    index: torch.Tensor,
    factors: torch.Tensor,
    packed: list[torch.Tensor],
    key: str,
    down_key: str,
    activation: str,
    activations: str,
) -> torch.Tensor:
    """Gated experts: for each token, a row of x, the sum of activation(x @ gate) * (x @ up) @ down over the
    experts in its row of index, each times its element of factors. Packed matrices: all gates, all ups, all
    downs; of the last `down_key` is the key.
    """
    count = len(packed) // 3
    matrices = [_matrix_of(x, key if i < 2 * count else down_key) for i, x in enumerate(packed)]
    made = headlane._core.Experts(
        matrices[:count], matrices[count : 2 * count], matrices[2 * count :], activation, activations
    )
    return made.forward(x, index, factors, threads())


@experts.register_fake
def _(x, *others):
    return x.new_empty(x.shape)


@torch.library.custom_op("headlane::embedding", mutates_args=())
def embedding(ids: torch.Tensor, packed: torch.Tensor, key: str, dtype: torch.dtype) -> torch.Tensor:
    """Columns of a matrix, as rows of the result: the vectors of an embedding whose table is also the
    weight of an output layer.
    """
    return vectors_of(_matrix_of(packed, key), ids, dtype)


def vectors_of(matrix: headlane.PackedMatrix, ids: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The same of a matrix.

    Raises:
        IndexError: there is no such column, as in torch.nn.functional.embedding.
    """
    out = torch.empty((ids.numel(), matrix.rows), dtype=dtype, device="cpu")
    try:
        matrix.unpack_columns(ids.reshape(-1), out, num_threads=threads())
    except ValueError as error:
        raise IndexError(str(error)) from None
    return out.view(*ids.shape, matrix.rows)


@embedding.register_fake
def _(ids, packed, key, dtype):
    return ids.new_empty((*ids.shape, _shape_of(key)[0]), dtype=dtype)


@torch.library.custom_op("headlane::unpack", mutates_args=())
def unpack(packed: torch.Tensor, key: str, dtype: torch.dtype, transposed: bool) -> torch.Tensor:
    """The matrix, or the transposed one: [out, in] of a layer."""
    shape = _shape_of(key)
    if transposed:
        result = torch.empty(shape[::-1], dtype=dtype, device="cpu")
        _matrix_of(packed, key).unpack(result.T, num_threads=threads())
        return result
    result = torch.empty(shape, dtype=dtype, device="cpu")
    return _matrix_of(packed, key).unpack(result, num_threads=threads())


@unpack.register_fake
def _(packed, key, dtype, transposed):
    shape = _shape_of(key)
    return packed.new_empty(shape[::-1] if transposed else shape, dtype=dtype)

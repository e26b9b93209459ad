"""Linear attention and causal convolutions of transformers, which code of its models calls by name."""

from __future__ import annotations

import threading
from typing import Any

import torch
import torch.nn.functional as F

import headlane

from ._packed import NAMES
from ._state import is_plain, threads


class _Calls(threading.local):
    """The call of a module of CallsRecurrent (_recurrent_calls.py) that this thread is in."""

    def __init__(self) -> None:
        self.module: Any = None
        self.arguments: tuple[Any, ...] = ()

    def is_of_cache(self, state: torch.Tensor) -> bool:
        """Whether it is the memory in which the cache of the call has the state, which the module writes next."""
        index = getattr(self.module, "layer_idx", None)
        for cache in self.arguments:
            layers = getattr(cache, "layers", None)
            if isinstance(layers, list) and isinstance(index, int) and index < len(layers):
                return any(x is state for x in getattr(layers[index], "recurrent_states", {}).values())
        return False


CALLS = _Calls()
EPS = 1e-6  # of normalised queries and keys
LARGEST = 512  # elements of a head (max_head_dim)


def _are_taken(*tensors: torch.Tensor | None, dtype: torch.dtype | None = None) -> bool:
    """Whether the kernels take tensors, all of this type, or each of any."""
    return all(x is None or (x.dtype in NAMES and is_plain(x, dtype or x.dtype)) for x in tensors)


def have_others(others: dict[str, Any]) -> bool:
    """Whether there is an option that changes the result. The functions ignore all others that models pass on."""
    return any(others.get(name) is not None for name in ("cu_seqlens", "seq_idx", "z", "scale"))


def new_state(shape: tuple[int, ...], columns_first: bool = False) -> torch.Tensor:
    """Zeros for heads of [rows, columns]; of [columns, rows] if columns_first, as Mamba-2 has them. In memory each row
    is in one piece, as the kernels read it; a cache that is made like the state has such memory, too.
    """
    *outer, one, other = shape
    if columns_first:
        return torch.zeros((*outer, other, one), dtype=torch.float32, device="cpu").transpose(-1, -2)
    return torch.zeros(shape, dtype=torch.float32, device="cpu")


def _state_for(
    initial: torch.Tensor | None, shape: tuple[int, ...], is_wanted: bool, columns_first: bool = False
) -> torch.Tensor | None:
    """Where the state is read and written: the cache itself, or a copy of what is given."""
    if initial is None:
        return new_state(shape, columns_first) if is_wanted else None
    return initial if is_wanted and CALLS.is_of_cache(initial) else initial.clone()


def _step_sizes(dt: torch.Tensor, bias: torch.Tensor | None, softplus: bool) -> torch.Tensor:
    """Mamba-2's dt of each token and head."""
    dt = dt if bias is None else dt + bias.to(dt.dtype)
    return F.softplus(dt) if softplus else dt


def _attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    decay: torch.Tensor,
    beta: torch.Tensor | None,
    state: torch.Tensor | None,
    **options: Any,
) -> torch.Tensor:
    """headlane.linear_attention() of [batch, length, heads, ...]."""
    out = torch.empty(value.shape, dtype=value.dtype, device="cpu")
    q, k, v, to, of_token = (x.transpose(1, 2) for x in (query, key, value, out, decay))
    beta = None if beta is None else beta.transpose(1, 2)
    headlane.linear_attention(q, k, v, of_token, beta, state=state, out=to, num_threads=threads(), **options)
    return out


# Each of these returns the result of a call, or None if transformers is to compute it.


def delta_rule(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    chunk_size: int = 64,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    **others: Any,
) -> Any:
    """The gated delta rule, and Kimi Delta Attention."""
    if (
        have_others(others)
        or not _are_taken(query, key, value, dtype=query.dtype)
        or not _are_taken(g, beta)
        or not _are_taken(initial_state, dtype=torch.float32)
        or not 0 < query.shape[3] <= LARGEST
        or not 0 < value.shape[3] <= LARGEST
        or value.numel() == 0
    ):
        return None
    shape = (value.shape[0], value.shape[2], key.shape[3], value.shape[3])
    state = _state_for(initial_state, shape, output_final_state)
    normalize = {"normalize": use_qk_l2norm_in_kernel, "eps": EPS}
    return _attend(query, key, value, g.float(), beta.float(), state, **normalize), (
        state if output_final_state else None
    )


ACTIVATIONS = {None: None, "silu": "silu", "swish": "silu"}
_WIDEST = 64


def _convolve(x: torch.Tensor, weight: torch.Tensor, bias: Any, activation: Any, state: Any) -> torch.Tensor:
    """headlane.causal_convolution() of [batch, channels, length], in memory [batch, length, channels]."""
    rows = x.transpose(1, 2)
    out = torch.empty(rows.shape, dtype=x.dtype, device="cpu")
    headlane.causal_convolution(
        rows,
        weight.float(),
        None if bias is None else bias.float(),
        activation=ACTIVATIONS[activation],
        state=state,
        out=out,
        num_threads=threads(),
    )
    return out.transpose(1, 2)


def convolution(
    hidden_states: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
    **others: Any,
) -> Any:
    if (
        have_others(others)
        or activation not in ACTIVATIONS
        or not _are_taken(hidden_states, weight, bias, dtype=hidden_states.dtype)
        or hidden_states.numel() == 0
        or weight.shape[1] > _WIDEST
    ):
        return None
    return _convolve(hidden_states, weight, bias, activation, None)


def convolution_update(
    hidden_states: torch.Tensor,
    conv_state: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
) -> Any:
    """One token. The state has as many as the weights, the first of which no later token reads, or one less."""
    before = weight.shape[1] - 1
    unread = conv_state.shape[2] - before
    if (
        activation not in ACTIVATIONS
        or not _are_taken(hidden_states, conv_state, weight, bias, dtype=hidden_states.dtype)
        or hidden_states.numel() == 0
        or hidden_states.shape != (*conv_state.shape[:2], 1)
        or not 1 <= before < _WIDEST
        or unread not in (0, 1)
    ):
        return None
    if unread:
        conv_state[..., 0] = conv_state[..., 1]
    read = conv_state[..., unread:]
    state = read.float()
    out = _convolve(hidden_states, weight, bias, activation, state)
    if state is not read:
        read.copy_(state)
    return out


def _scanned(
    x: torch.Tensor, dt: torch.Tensor, A: torch.Tensor, B: torch.Tensor, C: torch.Tensor, state: Any
) -> torch.Tensor:
    """Mamba-2's scan, in float32. Its states are [batch, heads, head_dim, state_size]."""
    states = None if state is None else state.transpose(2, 3)
    dt = dt.float()
    return _attend(C.float(), B.float(), x.float() * dt[..., None], A.float() * dt, None, states, scale=1.0)


def scan(
    hidden_states: torch.Tensor,
    dt: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    C: torch.Tensor,
    chunk_size: int,
    D: torch.Tensor | None = None,
    dt_bias: torch.Tensor | None = None,
    initial_states: torch.Tensor | None = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = (0.0, float("inf")),
    return_final_states: bool = False,
    **others: Any,
) -> Any:
    if (
        have_others(others)
        or not _are_taken(hidden_states, dt, A, B, C, D, dt_bias)
        or not _are_taken(initial_states, dtype=torch.float32)
        or (D is not None and D.dim() != 1)
        or not 0 < B.shape[3] <= LARGEST
        or not 0 < hidden_states.shape[3] <= LARGEST
        or hidden_states.numel() == 0
    ):
        return None
    batch, _, heads, head_dim = hidden_states.shape
    dt = torch.clamp(_step_sizes(dt, dt_bias, dt_softplus), dt_limit[0], dt_limit[1])
    state = _state_for(initial_states, (batch, heads, head_dim, B.shape[3]), return_final_states, True)
    out = _scanned(hidden_states, dt, A, B, C, state)
    if D is not None:
        out += D[:, None] * hidden_states.float()
    return (out, state) if return_final_states else out


def scan_update(
    state: torch.Tensor,
    hidden_states: torch.Tensor,
    dt: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    C: torch.Tensor,
    D: torch.Tensor | None = None,
    dt_bias: torch.Tensor | None = None,
    dt_softplus: bool = False,
    z: torch.Tensor | None = None,
    **others: Any,
) -> Any:
    """One token of it. What belongs to a head is expanded to its elements."""
    of_heads = [dt.stride()[2:], A.stride()[1:], *(x.stride()[1:] for x in (D, dt_bias) if x is not None)]
    if (
        z is not None
        or have_others(others)
        or not _are_taken(hidden_states, dt, A, B, C, D, dt_bias)
        or not _are_taken(state, dtype=torch.float32)
        or any(any(x) for x in of_heads)
        or not 0 < B.shape[2] <= LARGEST
        or not 0 < hidden_states.shape[2] <= LARGEST
        or hidden_states.numel() == 0
    ):
        return None
    dt = _step_sizes(dt, dt_bias, dt_softplus)[:, None, :, 0]
    out = _scanned(hidden_states[:, None], dt, A[:, 0, 0], B[:, None], C[:, None], state)[:, 0]
    if D is not None:
        out += hidden_states * D
    return out.to(hidden_states.dtype)

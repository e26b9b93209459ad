"""Hugging Face transformers on headlane: importing this module registers the attention implementation "headlane".

    import headlane.transformers
    model = AutoModel.from_pretrained(folder, attn_implementation="headlane")

Models must be in float32, bfloat16 or float16 on the CPU and run within torch.no_grad(): there are no
gradients and no dropout. In bfloat16 and float16, each call of attention returns the float32 result
rounded once. Calls use torch.get_num_threads() threads.

The reference is attn_implementation="eager": a model either computes the same, or is refused with an
error that names the reason. A model whose attention does not go through transformers'
AttentionInterface keeps its own code; a warning says so, and its configuration then reads "eager".
docs/site/guide/transformers.md lists the model types.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
import warnings
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import eager_mask, sdpa_mask

import headlane
import headlane.torch_ops  # registers the operator used below

# Keywords that reach attention from model.forward or generate, and that no eager attention reads.
IGNORED = frozenset(
    "bos_token_id cache_implementation cache_position cu_seq_lens_k cu_seq_lens_q deterministic "
    "disable_compile do_sample eos_token_id grid_thw image_grid_thw image_sizes labels logits_to_keep "
    "max_length_k max_length_q max_new_tokens mm_token_type_ids num_beams num_items_in_batch "
    "output_hidden_states output_router_logits pad_token_id position_ids prompt_lookup_num_tokens "
    "return_dict return_loss rope_deltas seq_idx token_type_ids use_cache video_grid_thw".split()
)

# Models that add, cast or extend masks in their own code: they get the float masks of "eager".
_FLOAT_MASKS = frozenset(("bigbird_pegasus", "deepseek_v4", "pp_doclayout_v2"))


def _refuse(what: str) -> None:
    raise ValueError(f'attention "headlane" does not support {what}; use attn_implementation="eager"')


def unknown(keywords: dict[str, Any]) -> list[str]:
    """The keywords that attention would have to read."""
    return [name for name, x in keywords.items() if not (x is None or x is False or name in IGNORED)]


def require_mask(mask: Any) -> None:
    if not isinstance(mask, torch.Tensor):
        _refuse(f"an attention_mask of type {type(mask).__name__}")
    if mask.dtype not in (torch.bool, torch.float32, torch.bfloat16, torch.float16):
        _refuse(f"an attention_mask of {mask.dtype}, only bool, float32, bfloat16 and float16")
    if mask.dtype == torch.bool and mask.dim() != 4:
        _refuse(f"a bool attention_mask of shape {[*mask.shape]}, only [batch, heads, q_length, kv_length]")


def headlane_mask(
    *,
    q_length: int,
    kv_length: int,
    q_offset: int | torch.Tensor = 0,
    kv_offset: int = 0,
    allow_is_causal_skip: bool = True,
    **options: Any,
) -> torch.Tensor | None:
    """The interface's mask function: that of "sdpa", except that None always means "no mask", as for "eager".

    "sdpa" omits a causal mask and relies on the attention module's `is_causal`, which some modules do not
    have and others set wrongly. Here the mask is made, and marked, so that attention_forward can compute
    causal attention without reading it.
    """
    options.update(q_length=q_length, kv_length=kv_length, q_offset=q_offset, kv_offset=kv_offset)
    if getattr(options.get("config"), "model_type", None) in _FLOAT_MASKS:
        return eager_mask(**options)
    mask = sdpa_mask(allow_is_causal_skip=allow_is_causal_skip, **options)
    if mask is not None or not allow_is_causal_skip:
        return mask
    mask = sdpa_mask(allow_is_causal_skip=False, **options)
    # The last key that is visible to the first query.
    last_visible = kv_offset if q_length > 1 else kv_offset + kv_length - 1
    if mask is not None and not torch.compiler.is_compiling() and q_offset == last_visible:
        mask = marked_causal(mask)
    return mask


def marked_causal(mask: torch.Tensor) -> torch.Tensor:
    """A mark that copies and views lose. It counts until the mask is changed in place, which tensors of
    inference mode do not tell.
    """
    with torch.inference_mode(False):
        mask = mask.clone() if mask.is_inference() else mask
    mask._headlane_causal = mask._version
    return mask


def _is_plain_causal(mask: torch.Tensor | None, q_length: int, kv_length: int) -> bool:
    if mask is None or torch.compiler.is_compiling() or not hasattr(mask, "_headlane_causal"):
        return False
    return mask._headlane_causal == mask._version and mask.shape[-2:] == (q_length, kv_length)


def _with_masked(mask: torch.Tensor | None, masked: torch.Tensor) -> torch.Tensor:
    if mask is None:
        return ~masked
    return mask & ~masked if mask.dtype == torch.bool else mask.masked_fill(masked, -torch.inf)


def _only_selected(mask: torch.Tensor | None, indices: torch.Tensor, kv_length: int) -> torch.Tensor:
    """Visible are the keys of indices [batch, q_length, count] (DeepSeek-V3.2)."""
    masked = indices.new_ones((*indices.shape[:2], kv_length), dtype=torch.bool)
    return _with_masked(mask, masked.scatter(-1, indices.long(), False).unsqueeze(1))


def _only_blocks(
    module: torch.nn.Module, mask: torch.Tensor | None, blocks: torch.Tensor, key: torch.Tensor
) -> torch.Tensor:
    """The mask of block-sparse attention, which the model computes itself (MiniMax-M3)."""
    if mask is None or not hasattr(getattr(module, "indexer", None), "build_block_mask"):
        _refuse("`block_indices` of this model")
    return module.indexer.build_block_mask(blocks, mask, key.shape[2], key.dtype, key.device, None)


def sparse_mask(
    module: torch.nn.Module,
    mask: torch.Tensor | None,
    key: torch.Tensor,
    indices: torch.Tensor | None = None,
    block_indices: torch.Tensor | None = None,
) -> torch.Tensor | None:
    """The mask of a model that chooses keys; the one that is given if it does not."""
    if indices is not None:
        mask = _only_selected(mask, indices, key.shape[2])
    return mask if block_indices is None else _only_blocks(module, mask, block_indices, key)


def with_bias(mask: torch.Tensor | None, bias: torch.Tensor) -> torch.Tensor:
    """A model's position bias and its mask as one float mask."""
    if mask is None:
        return bias
    return torch.where(mask, bias, -torch.inf) if mask.dtype == torch.bool else bias + mask


def _with_sinks(
    key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, sinks: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Sinks [batch, heads, q_length, 1] (Inkling 2), as a key of zeros whose bias is the sink."""
    shape = (*sinks.shape[:3], key.shape[2])
    mask = with_bias(mask, sinks.new_zeros(())).expand(shape) if mask is not None else sinks.new_zeros(shape)
    return *(torch.nn.functional.pad(x, (0, 0, 0, 1)) for x in (key, value)), torch.cat([mask, sinks], -1)


def options_of_call(
    mask: torch.Tensor | None,
    is_causal: bool,
    q_length: int,
    kv_length: int,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
) -> dict[str, Any]:
    """The options of headlane.scaled_dot_product_attention for a call of attention_forward.

    is_causal and sliding_window apply only without a mask: a mask includes both.
    """
    window_left, offset, is_causal = -1, 0, is_causal and mask is None
    if is_causal and sliding_window is not None:
        # A single query is the newest one: all keys are visible to it.
        window_left, offset = sliding_window - 1, kv_length - 1 if q_length == 1 else 0
    if _is_plain_causal(mask, q_length, kv_length):
        mask, is_causal = None, True
    return {
        "attn_mask": mask,
        "is_causal": is_causal and q_length > 1,
        "scale": scaling,
        "causal_offset": offset,
        "window": (window_left, None),
        "softcap": softcap or 0.0,
        "sinks": s_aux,
    }


# Keywords of attention_forward that options_of_call() has, too.
CALL_OPTIONS = frozenset(("scaling", "sliding_window", "softcap", "s_aux"))


def _attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, options: dict[str, Any]
) -> torch.Tensor:
    options["enable_gqa"] = query.shape[1] != key.shape[1]
    if torch.compiler.is_compiling():
        window_left, _ = options.pop("window")
        result = torch.ops.headlane.scaled_dot_product_attention(
            query, key, value, window_left=window_left, **options
        )
        return result.transpose(1, 2).contiguous()
    batch = query.shape[0]
    if not batch == key.shape[0] == value.shape[0]:
        (batch,) = torch.broadcast_shapes(*(x.shape[:1] for x in (query, key, value)))
    result = query.new_empty((batch, query.shape[2], query.shape[1], value.shape[3]))
    headlane.scaled_dot_product_attention(
        query, key, value, out=result.transpose(1, 2), num_threads=torch.get_num_threads(), **options
    )
    return result


def attention_forward(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    position_bias: torch.Tensor | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    sinks: torch.Tensor | None = None,
    indices: torch.Tensor | None = None,
    block_indices: torch.Tensor | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """The interface's attention function.

    Takes [batch, heads, length, dim] and returns [batch, length, heads, dim] and no attention weights.
    """
    for name in unknown(kwargs):
        _refuse(f"`{name}`")
    if dropout and getattr(module, "training", True):
        raise ValueError(f'attention "headlane" has no dropout ({dropout} was asked for): call model.eval()')
    mask, kv_length, is_causal = attention_mask, key.shape[2], bool(is_causal) and attention_mask is None
    if mask is not None:
        require_mask(mask)
    mask = sparse_mask(module, mask, key, indices, block_indices)
    if mask is not None and sinks is not None:
        mask = mask.view_as(mask)  # read, as there will be another key
    options = options_of_call(
        mask, is_causal, query.shape[2], kv_length, scaling, sliding_window, softcap, s_aux
    )
    if position_bias is not None:
        options["attn_mask"] = with_bias(options["attn_mask"], position_bias)
    if sinks is not None:
        key, value, options["attn_mask"] = _with_sinks(key, value, options["attn_mask"], sinks)
    return _attend(query, key, value, options), None


def _classes_with(pattern: str, code: str) -> set[str]:
    """The classes whose code matches the pattern, or constructs an instance of such a class."""
    parts = re.split(r"^class (\w+)", code, flags=re.MULTILINE)
    bodies, found = dict(zip(parts[1::2], parts[2::2])), set()
    while new := {name for name, body in bodies.items() if name not in found and re.search(pattern, body)}:
        found |= new
        pattern = r"\b(" + "|".join(new) + r")\("
    return found


@functools.cache
def _has_own_attention(model_class: type[PreTrainedModel]) -> bool:
    """Whether the model computes attention in its own file, not through the registered function."""
    try:
        code = inspect.getsource(sys.modules[model_class.__module__])
    except (KeyError, OSError, TypeError):
        return False
    if "ALL_ATTENTION_FUNCTIONS" not in code:
        return bool(re.search(r"^class \w*Attention\w*\(", code, re.MULTILINE))
    # Attention classes for each implementation, of this model or another one in its file.
    return model_class.__name__ in _classes_with(r"_ATTENTION_CLASSES\[", code)


def _keep_own_attention() -> None:
    """Makes models with attention code of their own use "eager", with its masks, for "headlane"."""
    original = PreTrainedModel.get_correct_attn_implementation

    def get_correct_attn_implementation(
        self: PreTrainedModel, requested_attention: str | None, *arguments: Any, **options: Any
    ) -> str:
        result = original(self, requested_attention, *arguments, **options)
        if result != "headlane" or not _has_own_attention(type(self)):
            return result
        warnings.warn(
            f"{type(self).__name__} computes attention in code of its own, not by headlane", stacklevel=2
        )
        return "eager"

    PreTrainedModel.get_correct_attn_implementation = get_correct_attn_implementation


AttentionInterface.register("headlane", attention_forward)
AttentionMaskInterface.register("headlane", headlane_mask)
_keep_own_attention()

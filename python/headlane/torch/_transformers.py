"""Attention and caches of Hugging Face transformers in models that are optimized."""

from __future__ import annotations

import functools
import inspect
import sys
from typing import Any, Callable

import torch
from torch import nn
from torch.compiler import is_compiling

from ._attend import attend
from ._packed import NAMES
from ._state import is_plain, is_plain_traced
from ._values import Value

# By the attention that a model had: calls that are not plain run that one.
_IMPLEMENTATIONS = {"sdpa": "headlane_torch", "eager": "headlane_torch_eager"}


@functools.cache
def _register() -> None:
    """Adds to transformers attentions like "headlane", but with other code for calls that are not plain."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    import headlane.transformers as ours

    for before, name in _IMPLEMENTATIONS.items():
        own = sdpa_attention_forward if before == "sdpa" else _eager_attention_forward
        AttentionInterface.register(name, _attention_or(own))
        AttentionMaskInterface.register(name, ours.headlane_mask if before == "sdpa" else _float_mask)


def conv1d() -> type | None:
    """transformers' class, if it is loaded."""
    module = sys.modules.get("transformers.pytorch_utils")
    return getattr(module, "Conv1D", None)


def register_if_loaded() -> None:
    """For models of transformers in a pickle, whose configurations name these attentions: the
    classes of such models are loaded before the modules inside.
    """
    if "transformers.modeling_utils" in sys.modules and hasattr(
        sys.modules["transformers"], "AttentionMaskInterface"
    ):
        _register()


def _float_mask(**options: Any) -> torch.Tensor | None:
    """The mask that "eager" has, which code of a model, or a hook, may change."""
    import headlane.transformers as ours

    mask, dtype = ours.headlane_mask(**options), options.get("dtype", torch.float32)
    if mask is None or mask.dtype is not torch.bool:
        return mask
    made = torch.where(mask, mask.new_zeros((), dtype=dtype), torch.finfo(dtype).min)
    return ours.marked_causal(made) if not is_compiling() and hasattr(mask, "_headlane_causal") else made


def _are_weights_wanted(module: nn.Module, options: dict[str, Any]) -> bool:
    """Whether the caller collects attention weights, which only the attention that a model had may return."""
    if options.get("output_attentions") or getattr(
        getattr(module, "config", None), "output_attentions", False
    ):
        return True
    if is_compiling():
        return False
    capturing = sys.modules.get("transformers.utils.output_capturing")
    collected = None if capturing is None else capturing._active_collector.get()
    return collected is not None and any("attentions" in key for key in collected)


def _has_hooks(module: nn.Module) -> bool:
    """Whether somebody may read the weights that "eager" returns, other than transformers for its caller."""
    hooks = module._forward_hooks.values()
    return any(getattr(x, "__module__", "") != "transformers.utils.output_capturing" for x in hooks)


def _without_mask(module: nn.Module, options: dict[str, Any]) -> dict[str, Any]:
    """The options of a call without a mask, as "sdpa" understands them: the module says whether attention is causal,
    and there are no windows. Models make masks wherever keys are hidden (headlane.transformers.headlane_mask), but a
    program may call a layer itself.
    """
    causal = options.get("is_causal")
    return {
        **options,
        "is_causal": getattr(module, "is_causal", True) if causal is None else causal,
        "sliding_window": None,
    }


def _attention_or(own: Callable[..., Any]) -> Callable[..., Any]:
    import headlane.transformers as ours

    known = frozenset(inspect.signature(ours.attention_forward).parameters)

    def attention_forward(
        module: nn.Module,
        query: Any,
        key: Any,
        value: Any,
        attention_mask: Any,
        *arguments: Any,
        **options: Any,
    ) -> Any:
        if attention_mask is None and own is not _eager_attention_forward:
            options = _without_mask(module, options)
        if isinstance(query, Value):  # the code of a layer is recorded
            given = key, value, attention_mask, arguments, options
            return attend(query, ours, module, *given), None
        plain = is_plain_traced if is_compiling() else is_plain
        is_ours = not getattr(module, "training", False) and not _are_weights_wanted(module, options)
        is_ours = is_ours and not (own is _eager_attention_forward and _has_hooks(module))
        sinks = options.get("s_aux")
        is_ours = is_ours and not (sinks is not None and sinks.requires_grad and torch.is_grad_enabled())
        others = {name: x for name, x in options.items() if name not in known}
        is_ours = is_ours and query.dtype in NAMES and not ours.unknown(others)
        if is_ours and all(plain(x, query.dtype) for x in (query, key, value)):
            return ours.attention_forward(module, query, key, value, attention_mask, *arguments, **options)
        # The code of some models leaves the choice of keys to attentions that it does not know.
        sparse = {name: options.pop(name) for name in ("indices", "block_indices") if name in options}
        mask = ours.sparse_mask(module, attention_mask, key, **sparse)
        return own(module, query, key, value, mask, *arguments, **options)

    return attention_forward


@functools.cache
def _eager_of(kind: type) -> Callable[..., Any]:
    """The eager attention that code of a class names."""
    for base in kind.__mro__:
        for function in filter(inspect.isfunction, vars(base).values()):
            code = inspect.unwrap(function)
            for name in code.__code__.co_names:
                if name.endswith("eager_attention_forward") and name in code.__globals__:
                    return code.__globals__[name]
    raise NotImplementedError(
        f"headlane.torch: {kind.__name__} has no eager attention for training, gradients and autocast; "
        "headlane.torch.restore(model) first"
    )


def _eager_attention_forward(
    module: nn.Module, query: Any, key: Any, value: Any, mask: Any, *arguments: Any, **options: Any
) -> Any:
    if mask is not None and mask.dtype is torch.bool:
        mask = torch.where(mask, query.new_zeros(()), torch.finfo(query.dtype).min)
    return _eager_of(type(module))(module, query, key, value, mask, *arguments, **options)


def set_attention(model: nn.Module) -> list[tuple[Any, str]]:
    """Makes the models of transformers in a module compute attention by headlane, with caches that grow in
    place. Returns their configurations and what these said before.
    """
    transformers = sys.modules.get("transformers")
    if transformers is None or not hasattr(transformers, "PreTrainedModel"):
        return []
    models = [x for x in model.modules() if isinstance(x, transformers.PreTrainedModel)]
    if not models:
        return []
    import headlane.transformers as ours

    from ._cache import ARGUMENTS, grow

    _register()
    before: dict[int, tuple[Any, str]] = {}
    for part in models:
        for config in _configurations(part.config):
            before.setdefault(id(config), (config, config._attn_implementation_internal))
    for part in models:
        _, own = before[id(part.config)]
        wanted = _IMPLEMENTATIONS.get(own, own)
        if wanted in _IMPLEMENTATIONS.values() and not ours._has_own_attention(type(part)):
            part.set_attn_implementation(wanted)  # of its parts too, which follow
        has_cache = not inspect.signature(part.forward).parameters.keys().isdisjoint(ARGUMENTS)
        is_ours = part.config._attn_implementation in _IMPLEMENTATIONS.values()
        if has_cache and is_ours and grow not in part._forward_pre_hooks.values():
            part.register_forward_pre_hook(grow, with_kwargs=True)
    return [
        (config, name) for config, name in before.values() if config._attn_implementation_internal != name
    ]


def restore_attention(model: nn.Module, configurations: list[tuple[Any, str]]) -> None:
    """Undoes set_attention()."""
    for config, implementation in configurations:
        config._attn_implementation_internal = implementation
    caches = sys.modules.get("headlane.torch._cache")
    for module in model.modules():
        for key, hook in list(module._forward_pre_hooks.items()):
            if caches is not None and hook is caches.grow:
                del module._forward_pre_hooks[key], module._forward_pre_hooks_with_kwargs[key]


def _configurations(config: Any) -> list[Any]:
    found = [config]
    for name in getattr(config, "sub_configs", ()):
        inner = getattr(config, name, None)
        if inner is not None:
            found += _configurations(inner)
    return found

"""Attention and caches of Hugging Face transformers in models that are optimized."""

from __future__ import annotations

import inspect
import sys
from typing import Any

from torch import nn
from torch.compiler import is_compiling

from ._state import is_plain, is_plain_traced
from ._values import Value

IMPLEMENTATION = "headlane_torch"


def _register() -> None:
    """Adds to transformers an attention like "headlane", but with sdpa's code for calls that are not plain."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    import headlane.transformers as ours

    def attention_forward(
        module: nn.Module,
        query: Any,
        key: Any,
        value: Any,
        attention_mask: Any,
        *arguments: Any,
        **options: Any,
    ) -> Any:
        if isinstance(query, Value):  # the code of a layer is recorded
            given = key, value, attention_mask, arguments, options
            return query.attend(ours, module, *given), None
        plain = is_plain_traced if is_compiling() else is_plain
        is_ours = not getattr(module, "training", False) and plain(query, query.dtype)
        forward = ours.attention_forward if is_ours else sdpa_attention_forward
        return forward(module, query, key, value, attention_mask, *arguments, **options)

    AttentionInterface.register(IMPLEMENTATION, attention_forward)
    AttentionMaskInterface.register(IMPLEMENTATION, ours.headlane_mask)


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

    from ._cache import grow

    _register()
    before: dict[int, tuple[Any, str]] = {}
    for part in models:
        for config in _configurations(part.config):
            before.setdefault(id(config), (config, config._attn_implementation_internal))
    for part in models:
        if part.config._attn_implementation in ("sdpa", "eager") and not ours._has_own_attention(type(part)):
            part.set_attn_implementation(IMPLEMENTATION)
        has_cache = "past_key_values" in inspect.signature(part.forward).parameters
        is_ours = part.config._attn_implementation == IMPLEMENTATION
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

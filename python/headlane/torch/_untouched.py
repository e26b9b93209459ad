"""Whether a module is what it was, so that others may compute what it does."""

from __future__ import annotations

from typing import Any

from torch.nn.modules import module as _hooks

from ._modules import Linear, Recognised, wants_gradient


def has_global_hooks() -> bool:
    return bool(_hooks._global_forward_hooks or _hooks._global_forward_pre_hooks)


def untouched(module: Any) -> list[tuple[dict[str, Any], str, Any]]:
    """What its dicts have under a name, or the dict where they have nothing, while a module may be fused with
    others: it is not trained, and has its own code and parameters.
    """
    own = module.__dict__
    expected: list[tuple[dict[str, Any], str, Any]] = [(own, "training", False), (own, "forward", own)]
    # Hooks are also removed by assigning an empty dict.
    expected += [(own, name, own[name]) for name in ("_forward_hooks", "_forward_pre_hooks")]
    if isinstance(module, Linear):
        parameters = module._parameters
    elif isinstance(module, Recognised):
        parameters = module._parameters
        expected.append((own, "_headlane", module._headlane))
    else:
        return expected
    return expected + [(module._parameters, name, x) for name, x in parameters.items()]


def is_untouched(module: Any) -> bool:
    """Whether that is so, nobody looks at the module, and no gradient of its parameters is wanted."""
    if module._forward_hooks or module._forward_pre_hooks or wants_gradient(module) or has_global_hooks():
        return False
    if isinstance(module, Linear) and not module.is_packed():
        return False
    return all(there.get(name, there) is value for there, name, value in untouched(module))


def packed_of(linear: Linear) -> list[tuple[Any, str, Any]]:
    """What there is while is_packed() holds: never, if its bias is an attribute, as by pruning."""
    parameters = linear._parameters
    return [
        (parameters.get("weight"), "parts", linear._headlane.parts),
        (parameters, "bias", parameters.get("bias", linear)),
    ]

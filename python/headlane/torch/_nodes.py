"""What the code of a module consists of: operations, and what is known of their results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch


class NotPlain(Exception):
    """The code does what a plan cannot."""


class Recorded:
    """Stands for a tensor that is not there yet, and says that it is one. What it lacks of a tensor is not plain, nor
    are comparisons, changes in place, and PyTorch's functions: those would take it for a tensor in memory.
    """

    __slots__ = ()

    __class__ = property(lambda self: torch.Tensor)  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        if hasattr(torch.Tensor, name):
            raise NotPlain
        raise AttributeError(name)

    def _refuse(self, *arguments: Any) -> Any:
        raise NotPlain

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotPlain

    __bool__ = __eq__ = __ne__ = __setitem__ = __delitem__ = _refuse  # type: ignore[assignment]
    __iadd__ = __isub__ = __imul__ = __itruediv__ = __ifloordiv__ = __imod__ = __ipow__ = _refuse
    __imatmul__ = __iand__ = __ior__ = __ixor__ = __ilshift__ = __irshift__ = _refuse
    __hash__ = object.__hash__


class Size:
    """A size that only a call knows. Code that asks for more than which one it is, is not plain."""

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        raise NotPlain

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise NotPlain


class OfHeads(Recorded):
    """A number for each head: [batch, length, heads, 1]."""

    def __init__(self, value: Any) -> None:
        self.value = value


class Node:
    """An operation: "linear", "norm", "add", "multiply", "scale", "weigh" by factors of positions, "head_norm",
    "multiply_heads" by numbers, "rotary", "columns", "join", "attention", "input", "torch", what PyTorch computes of
    inputs of other types, "convolve", "linear_attention", "gated_norm", "call" of a module without parameters or of
    a mixture of experts, "first" of the results of such a call, "part" of a mixture that a layer's own code calls,
    "item" of what that returns, or the name of an activation.

    what: The Linear, norm or module, the factor, the head_dim, how many of it are turned and how they are paired,
        and whether in float32, the norm of heads and their dim, which columns of how many at a time (0: of all),
        the head_dims of heads that are joined or multiplied, the function, the module and how many results it has,
        which of its arguments are flat before that, the number of the item, or an Attention.
    sizes: Of the result, but the last one; None if they are not known.
    width: The last size; None if it is not known.
    module: The module whose code has the operation.
    is_checked: Whether calls are refused before they begin whose inputs of the operation have other sizes.
    """

    __slots__ = ("inputs", "is_checked", "kind", "module", "sizes", "users", "what", "width")

    def __init__(self, kind: str, inputs: tuple[Node, ...] = (), what: Any = None) -> None:
        self.kind = kind
        self.inputs = inputs
        self.what = what
        self.is_checked = False
        self.module: Any = None
        self.users: list[Node] = []
        self.sizes = self.sizes_of_inputs()
        widths = {node.width for node in inputs} - {None}
        self.width: int | None = widths.pop() if len(widths) == 1 else None
        for node in inputs:
            node.users.append(self)

    def sizes_of_inputs(self) -> Any:
        """None if they differ, or are not known."""
        sizes = [node.sizes for node in self.inputs]
        return sizes[0] if sizes and all(x is sizes[0] for x in sizes) else None

    def has_equal_inputs(self) -> bool:
        """Whether all inputs are known to have the same sizes: none is repeated."""
        is_known = self.sizes is not None and self.width is not None
        return self.is_checked or (is_known and all(x.width for x in self.inputs))

    def other_input(self, one: Node) -> Node:
        """The input beside `one`, of an operation that has two."""
        return self.inputs[1] if self.inputs[0] is one else self.inputs[0]


Heads = tuple["tuple[int, int] | None", int]


class Read(NamedTuple):
    """What an attention reads: nodes, or their numbers, or values. None for what it does not.

    key, value: None if nothing is appended to the cache.
    key_source, value_source: What the code appends to the cache in place of keys and values that it computes from
        all of them.
    shared: A dict to which all keys and values of the layer of the cache are given.
    """

    query: Any
    key: Any = None
    value: Any = None
    cache: Any = None
    mask: Any = None
    bias: Any = None
    key_source: Any = None
    value_source: Any = None
    shared: Any = None

    def beside(self) -> list[Any]:
        """Mask and bias, if there are any."""
        return [x for x in (self.mask, self.bias) if x is not None]

    def there(self) -> dict[str, Any]:
        return {name: x for name, x in self._asdict().items() if x is not None}


class Attention:
    """A call of transformers' attention: of which module, with which arguments and options.

    names: Those of Read that it has, in the order of the node's inputs.
    heads: Of queries, keys and values: which columns of their nodes, all if None, and the head_dim. Of keys and
        values that are in a cache it is what they must have: the queries'.
    entries: If it attends to a cache: the layer, or the arguments of update() behind keys and values.
    of_sources: As heads, of key_source and value_source; None without them.
    shared_as: The name of keys and values in the dict to which they are given.
    """

    __slots__ = (
        "arguments",
        "call_options",
        "entries",
        "heads",
        "module",
        "names",
        "of_sources",
        "options",
        "ours",
        "shared_as",
    )

    def __init__(
        self,
        ours: Any,
        module: Any,
        names: Sequence[str],
        heads: tuple[Heads, ...],
        entries: tuple[int, ...] | None,
        arguments: Any,
        options: dict[str, Any],
        of_sources: Sequence[Heads] | None = None,
        shared_as: str | None = None,
    ) -> None:
        self.ours = ours  # headlane.transformers
        self.module = module
        self.names = tuple(names)
        self.heads = heads
        self.entries = entries
        self.arguments = arguments
        self.options = options
        self.of_sources = of_sources
        self.shared_as = shared_as
        self.call_options = {name: x for name, x in options.items() if name in ours.CALL_OPTIONS}

    def __call__(self, query: Any, key: Any, value: Any, mask: Any, bias: Any) -> Any:
        given = query, key, value, mask, *self.arguments
        options = self.options if bias is None else {**self.options, "position_bias": bias}
        return self.ours.attention_forward(self.module, *given, **options)[0]

    def read(self, inputs: Sequence[Any]) -> Read:
        return Read(**dict(zip(self.names, inputs)))

    @property
    def is_of_filled_cache(self) -> bool:
        """Whether it attends to a cache to which nothing is appended."""
        return self.entries is not None and "key" not in self.names

    @property
    def changes_cache(self) -> bool:
        return self.entries is not None and "key" in self.names

    def is_plain(self) -> bool:
        """Whether only options_of() are left to do before headlane.scaled_dot_product_attention."""
        known = {*self.ours.CALL_OPTIONS, "is_causal", "dropout"}
        others = {name: x for name, x in self.options.items() if name not in known}
        return not self.arguments and not self.ours.unknown(others)

    def is_of_whole_rows(self) -> bool:
        """Whether queries, keys and values are all columns of their nodes, and all keys those of the same call."""
        return self.entries is None and len(set(self.heads)) == 1 and self.heads[0][0] is None

    def options_of(self, mask: Any, bias: Any, length: int, kv_length: int) -> tuple[Any, ...]:
        """Mask and bias, whether it is causal, scale and the others, for so many queries and keys."""
        if mask is not None:
            self.ours.require_mask(mask)
        is_causal = bool(self.options.get("is_causal"))
        made = self.ours.options_of_call(mask, is_causal, length, kv_length, **self.call_options)
        if bias is not None:
            made["attn_mask"] = self.ours.with_bias(made["attn_mask"], bias)
        mask = made.pop("attn_mask")
        if mask is not None and mask.dtype in (torch.bfloat16, torch.float16):
            mask = mask.float()
        return mask, made.pop("is_causal"), made.pop("scale"), made


class Mask(Recorded):
    """A tensor of another type: nothing but attention may have it."""

    def __init__(self, node: Node) -> None:
        self.node = node

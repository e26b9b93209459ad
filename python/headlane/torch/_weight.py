"""What takes the place of a weight: a tensor without memory of its own over packed matrices."""

from __future__ import annotations

import copy
import weakref
from typing import Any, Callable

import torch
import torch.nn.functional as F
from torch.compiler import is_compiling
from torch.utils._pytree import tree_leaves, tree_map_only

import headlane

from ._packed import Packed, dense_part
from ._state import has_tangents, is_plain, threads


class Hook:
    """`give_back` is set in a program of `python -m headlane.torch`, and called with a weight or a module
    that the program uses for what is not for inference. It makes the models that have it what they were,
    and says whether there are any.
    """

    give_back: Callable[[Any], bool] | None = None


def give_back(*used: Any) -> bool:
    return Hook.give_back is not None and any(Hook.give_back(x) for x in used)


def _refuse() -> None:
    raise RuntimeError(
        "headlane.torch: this weight is packed and cannot be changed; headlane.torch.restore(model) first"
    )


def _is_changed(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether an operator would write to a tensor that is read only."""
    if not func._schema.is_mutable:
        return False
    for i, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[i] if i < len(args) else kwargs.get(argument.name)
            if any(
                isinstance(x, _ReadOnly) for x in (value if isinstance(value, (list, tuple)) else [value])
            ):
                return True
    return False


INDICES = (torch.int64, torch.int32)  # the types of an embedding's
# Of torch.Tensor: what is refused before it comes to an operator, and what is noted.
_CHANGES = (torch.Tensor.__setitem__, torch.Tensor.data.__set__)
_REQUIRES_GRAD = (torch.Tensor.requires_grad_, torch.Tensor.requires_grad.__set__)
# What gives the elements to others, who read them, and what would share memory that there is not.
_READ = (torch.Tensor.numpy, torch.Tensor.__array__, torch.Tensor.tolist)
_SHARED = (torch.Tensor.__dlpack__, torch.Tensor.share_memory_)
# What a program may ask for while a weight is packed.
_ASKED = {
    getattr(torch.Tensor, name)
    for name in "__hash__ __len__ size dim numel nelement element_size is_floating_point".split()
}
_ASKED |= {
    getattr(torch.Tensor, name).__get__
    for name in "shape ndim dtype device layout is_cuda is_meta requires_grad itemsize nbytes".split()
}


def _read(func: Any, tensor: Any, *args: Any, **kwargs: Any) -> Any:
    """A list, or an array that is read only: what is written to it would not be seen."""
    made = func(tensor.dense(), *args, **kwargs)
    if func is not torch.Tensor.tolist:
        made.flags.writeable = False
    return made


class _TracedPart:
    """A part of a PackedWeight in torch.compile: its tensors are those of the trace."""

    __slots__ = ("dtype", "key", "original", "packed", "shape", "transposed")

    def __init__(self, tensor: torch.Tensor, rest: tuple[Any, ...]) -> None:
        self.key, self.dtype, self.transposed, self.shape, is_original = rest
        self.packed, self.original = (None, tensor) if is_original else (tensor, None)


class _ReadOnly(torch.Tensor):
    """A tensor without memory of its own. Operations that read it see dense(); what would change it is
    refused, and so is what would change a view of it.
    """

    def dense(self) -> torch.Tensor:
        raise NotImplementedError

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if (
            Hook.give_back
            and func not in _ASKED
            and not is_compiling()
            and give_back(*_weights(args, kwargs))
        ):
            return func(*args, **(kwargs or {}))
        if func is F.linear:
            made = _product(*args, **(kwargs or {}))
            if made is not None:
                return made
        if func in _CHANGES and isinstance(args[0], _ReadOnly):
            _refuse()
        if func in _READ:
            return _read(func, *args, **(kwargs or {}))
        if func is torch.Tensor.data_ptr and isinstance(args[0], PackedWeight):
            return args[0].part0.data_ptr()  # not one for all, by which accelerate took them for tied
        if func in _SHARED:
            raise RuntimeError(
                f"headlane.torch: {func.__name__} of a packed weight, which has no memory of its own: clone() "
                "it, or headlane.torch.restore(model) first"
            )
        if has_tangents() and func not in _REQUIRES_GRAD:
            args, kwargs = tree_map_only(_ReadOnly, lambda x: x.dense(), (args, kwargs))
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **(kwargs or {}))
            if func in _REQUIRES_GRAD and isinstance(args[0], PackedWeight):
                args[0].is_trained = args[0].requires_grad
            return result

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in (torch.ops.aten.detach.default, torch.ops.aten.alias.default):
            with torch.inference_mode(args[0].is_inference()):
                return args[0].same()
        if _is_changed(func, args, kwargs):
            _refuse()
        if func is torch.ops.aten.embedding.default and isinstance(args[0], PackedWeight):
            part = args[0].parts[0]
            is_table = len(args[0].parts) == 1 and part.transposed and part.original is None
            if is_table and args[1].dtype in INDICES:
                return torch.ops.headlane.embedding(args[1], part.packed, part.key, part.dtype)
        if func is torch.ops.aten.select.int and getattr(args[0], "experts", 0) and args[1] == 0:
            return args[0].expert(args[2])
        args, kwargs = tree_map_only(_ReadOnly, lambda x: x.dense(), (args, kwargs))
        result = func(*args, **kwargs)
        if any(x.alias_info is not None for x in func._schema.returns):
            return tree_map_only(torch.Tensor, _View, result)
        return result

    def __repr__(self, **options: Any) -> str:
        if give_back(self):
            return repr(self)
        return f"{type(self).__name__}(shape={tuple(self.shape)}, dtype={self.dtype})"


class _View(_ReadOnly):
    """A view of one that was unpacked."""

    @staticmethod
    def __new__(cls, tensor: torch.Tensor) -> _View:
        return torch.Tensor._make_wrapper_subclass(
            cls, tensor.shape, strides=tensor.stride(), dtype=tensor.dtype, device=tensor.device
        )

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def dense(self) -> torch.Tensor:
        return self.tensor

    def same(self) -> _View:
        return _View(self.tensor)

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["tensor"], None

    @staticmethod
    def __tensor_unflatten__(tensors: dict[str, torch.Tensor], rest: Any, size: Any, stride: Any) -> _View:
        return _View(tensors["tensor"])

    def __deepcopy__(self, memo: Any) -> torch.Tensor:
        return self.tensor.clone()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.tensor.__reduce_ex__(protocol)


class PackedWeight(_ReadOnly):
    """A weight [out, in] or [in, out] whose elements are in packed matrices, one or several that lie
    below each other; or [experts, out, in], with equally many matrices for each expert. It has shape, type
    and device of the weight.
    """

    parts: tuple[Packed, ...]
    part0: torch.Tensor  # the memory of the first one, and so on
    is_trained = False  # requires_grad, which takes longer to ask for
    # What it took the place of; in a program, itself, as what it was.
    origin: weakref.ref[torch.nn.Parameter] | torch.nn.Parameter | None = None
    became: weakref.ref[torch.nn.Parameter] | None = None  # by a conversion

    @staticmethod
    def __new__(cls, parts: tuple[Any, ...], experts: int = 0, requires_grad: bool = False) -> PackedWeight:
        if isinstance(parts, torch.Tensor):  # type(parameter)(tensor, requires_grad=…), as accelerate has it
            _refuse()
        shape: tuple[int, ...] = (sum(part.shape[0] for part in parts), parts[0].shape[1])
        if experts:
            shape = (experts, shape[0] // experts, shape[1])
        return torch.Tensor._make_wrapper_subclass(cls, shape, dtype=parts[0].dtype, device="cpu")

    def __init__(self, parts: tuple[Any, ...], experts: int = 0) -> None:
        self.parts = parts
        self.experts = experts
        for i, part in enumerate(parts):
            setattr(self, f"part{i}", part.packed if part.original is None else part.original)

    def dense(self) -> torch.Tensor:
        """The tensor, which nobody may change: it may be the kept original."""
        dense = [dense_part(part) for part in self.parts]
        whole = dense[0] if len(dense) == 1 else torch.cat(dense)
        return whole.reshape(self.shape) if self.experts else whole

    def expert(self, index: int) -> torch.Tensor:
        """A view of the weight of one expert."""
        count = len(self.parts) // self.experts
        index = range(self.experts)[index]
        return _View(torch.cat([dense_part(x) for x in self.parts[index * count : (index + 1) * count]]))

    def same(self) -> PackedWeight:
        return PackedWeight(self.parts, self.experts)

    def wants_gradient(self) -> bool:
        return self.is_trained and torch.is_grad_enabled()

    def converted(self, fn: Callable[[torch.Tensor], torch.Tensor], like: torch.Tensor) -> torch.nn.Parameter:
        """A parameter that is not packed, of another type or device; one for all modules that have the weight."""
        made = self.became() if self.became is not None else None
        if made is None or (made.dtype, made.device) != (like.dtype, like.device):
            with torch.no_grad():
                made = torch.nn.Parameter(fn(self.dense()), requires_grad=self.requires_grad)
            self.became = weakref.ref(made)
        return made

    def widened(self) -> PackedWeight | None:
        """In float32, which has all elements, over the same matrix; None if that is not what it was packed from."""
        (part, *others) = self.parts
        if others or not part.in_code:
            return None
        if part.widened is None:
            wide = Packed(part.matrix, torch.float32, part.transposed, in_code=True)
            part.widened = PackedWeight((wide,))
        return part.widened

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        rest = tuple(
            (x.key, x.dtype, x.transposed, tuple(x.shape), x.original is not None) for x in self.parts
        )
        return [f"part{i}" for i in range(len(self.parts))], (self.experts, *rest)

    @staticmethod
    def __tensor_unflatten__(
        tensors: dict[str, torch.Tensor], rest: Any, size: Any, stride: Any
    ) -> PackedWeight:
        experts, *parts = rest
        return PackedWeight(tuple(_TracedPart(tensors[f"part{i}"], x) for i, x in enumerate(parts)), experts)

    def __deepcopy__(self, memo: Any) -> torch.Tensor:
        if give_back(self):
            return copy.deepcopy(self, memo)
        if id(self) not in memo:
            memo[id(self)] = parameter_of(self.parts, self.experts, self.requires_grad)
        return memo[id(self)]

    def __reduce_ex__(self, protocol: Any) -> Any:
        if give_back(self):
            return self.__reduce_ex__(protocol)
        return parameter_of, (self.parts, self.experts, self.requires_grad)


def _weights(args: Any, kwargs: Any) -> list[Any]:
    return [x for x in tree_leaves((args, kwargs)) if type(x) is PackedWeight]


def _product(input: Any, weight: Any, bias: Any = None) -> torch.Tensor | None:  # noqa: A002
    """By a packed weight of code; None for all others, and for what is not plain."""
    if is_compiling() or not isinstance(weight, PackedWeight) or not weight.parts[0].in_code:
        return None
    (part,) = weight.parts
    if not is_plain(input, part.dtype) or input.dim() == 0 or input.shape[-1] != part.shape[1]:
        return None
    if weight.wants_gradient() or not (bias is None or is_plain(bias, part.dtype)):
        return None
    return headlane.linear(input, part.matrix, bias, num_threads=threads())


def parameter_of(
    parts: tuple[Packed, ...], experts: int = 0, requires_grad: bool = False
) -> torch.nn.Parameter:
    parameter = torch.nn.Parameter(PackedWeight(parts, experts), requires_grad=False)
    return parameter.requires_grad_() if requires_grad else parameter

"""What a module computes, found by running a copy of it on random numbers."""

from __future__ import annotations

import copy
from typing import Any, Callable

import torch
from torch import nn

from ._experts import EXPERTS
from ._experts_by_code import dense, gate_of, run
from ._nodes import NotPlain
from ._norms import NormState
from ._outside import outside_of
from ._stand_in import is_simple

ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": torch.relu,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "silu": torch.nn.functional.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "erf": torch.erf,
    "identity": lambda x: x,
}


def _is_rounded(y: Any, exact: torch.Tensor, scale: torch.Tensor | float = 1e-3) -> bool:
    """Whether y is equal but for roundings, those of numbers as large as `scale` too."""
    if type(y) is not torch.Tensor or y.dtype != torch.float32 or y.shape != exact.shape:
        return False
    is_close = (y.double() - exact).abs() <= 1e-5 * exact.abs() + 1e-6 * scale
    return bool((is_close | (y == exact.float()) | (y.isnan() & exact.isnan())).all())


def _numbers() -> torch.Tensor:
    special = [0.0, -0.0, 1e-3, -1e-3, 40.0, -40.0, 1e3, -1e3, 1e30, -1e30, torch.nan]
    numbers = torch.linspace(-12, 12, 97, dtype=torch.float32)
    return torch.cat((numbers, torch.tensor(special, dtype=torch.float32))).view(2, 3, -1)


def _is_same(x: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two float32 tensors have the same bits."""
    return x.view(torch.int32).equal(other.view(torch.int32))


def changes_input(module: nn.Module) -> bool:
    """Whether a module computes in place; found by a call of a copy."""
    x = _numbers()
    try:
        with torch.random.fork_rng(()):
            copy.deepcopy(module).eval()(x)
    except Exception:
        return False
    return not _is_same(x, _numbers())


def activation_of(function: Callable[[torch.Tensor], Any]) -> str | None:
    """The name of what a function computes; None if it is none of those known, or in place."""
    x, given = _numbers(), _numbers()
    try:
        y = function(given)
        keeps_type = all(function(x.to(kind)).dtype is kind for kind in (torch.bfloat16, torch.float16))
    except Exception:
        return None
    if not keeps_type or not _is_same(x, given):
        return None
    for name, activation in ACTIVATIONS.items():
        if _is_rounded(y, activation(x.double()), 1 + x.abs()):
            return name
    return None


def _is_told_of_changes(module: Any) -> bool:
    """Whether only assignments to a module, and of globals, change what its code reads: no objects do."""
    try:
        outside_of(type(module).forward)
    except (NotPlain, ValueError):  # of a closure that is empty
        return False
    return is_simple(module)


def activation_of_module(module: nn.Module) -> str | None:
    if next(module.children(), None) is not None or module._parameters or module._buffers:
        return None
    if not _is_told_of_changes(module):
        return None
    try:
        probe = copy.deepcopy(module).eval()
    except Exception:
        return None
    before = dict(vars(probe))
    name = activation_of(probe)
    return name if _has(probe, before) else None


def _has(module: nn.Module, attributes: dict[str, Any]) -> bool:
    """Whether a module has these attributes: its code assigns none, such as its last result."""
    own = vars(module)
    return own.keys() == attributes.keys() and all(own[name] is x for name, x in attributes.items())


def _seeded(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float32)


def norm_of(module: nn.Module) -> NormState | None:
    """How a module is an RMS norm or a layer norm; None if it is neither, or differs from it for some input."""
    parameters = {name: x for name, x in module._parameters.items() if x is not None}
    if next(module.children(), None) is not None or module._buffers or len(parameters) > 2:
        return None
    if any(type(x) is not nn.Parameter for x in parameters.values()):
        return None
    shapes = {tuple(x.shape) for x in parameters.values()} or {_shape_without_weight(module)}
    shape = shapes.pop()
    if shapes or shape is None or len(shape) != 1 or not _is_told_of_changes(module):
        return None
    (width,) = shape
    own_width = width if not parameters and "normalized_shape" in module.__dict__ else None
    dtype = next((x.dtype for x in parameters.values()), torch.bfloat16)
    try:
        probe = copy.deepcopy(module).eval()
        keeps_type = probe(_seeded(2, 3, width).to(dtype)).dtype is dtype
        probe.float()
        for name, value in zip(parameters, _seeded(2, width)):
            probe._parameters[name] = nn.Parameter(value, requires_grad=False)
        before = dict(vars(probe))
        applied = _applied(probe, width)
    except Exception:
        return None
    if not _has(probe, before):
        return None
    try:
        wider = _applied(probe, 2 * width)
    except Exception:
        wider = []
    is_of_one_width = bool(parameters) or own_width is not None
    if not keeps_type or bool(wider) is is_of_one_width:
        return None
    applied += wider
    names = tuple(parameters)
    known = [key for key, x in module.__dict__.items() if isinstance(x, float) and 0 <= x < 1e-2]
    values = [module.__dict__[key] for key in known]
    for eps in (*known, *values, torch.finfo(torch.float32).eps, 1e-5, 0.0):
        for offset in (0.0, 1.0) if names else (0.0,):
            for centred in (False, True) if len(names) < 2 else (True,):
                state = NormState(centred, names, eps, offset, own_width)
                if all(_is_norm(state, probe, x, y) for x, y in applied) and _reads_eps(state, probe, width):
                    return state
    return None


def _applied(norm: Any, width: int) -> list[tuple[torch.Tensor, Any]]:
    """What a norm is given, and its results."""
    x = _seeded(6, width)
    scales = torch.tensor([1e-4, 1e-8, 1e-12, 1e-17, 0.0, torch.nan], dtype=torch.float32)
    # Of size 1; small, where eps matters; of a large mean, where a layer norm differs; large.
    inputs = [
        each.view(2, 3, width) for each in (x, x * 1e-3, x * scales[:, None], x + 10, x * 1e4, x * 1e15)
    ]
    inputs += [x, x.view(1, 2, 3, width)]
    made = [(each, norm(given), given) for each, given in zip(inputs, map(torch.clone, inputs))]
    return [(each, y if _is_same(each, given) else None) for each, y, given in made]


def _reads_eps(state: NormState, probe: Any, width: int) -> bool:
    """Whether the norm is as its state says with another value of the attribute, if eps is one."""
    if not isinstance(state.eps, str):
        return True
    before = probe.__dict__[state.eps]
    probe.__dict__[state.eps] = before + 0.01
    try:
        return all(_is_norm(state, probe, x, y) for x, y in _applied(probe, width))
    except Exception:
        return False
    finally:
        probe.__dict__[state.eps] = before


def _shape_without_weight(module: Any) -> tuple[int, ...] | None:
    """What a module without parameters may be a norm over; None if it is not worth a trial, as most are not."""
    shape = module.__dict__.get("normalized_shape")
    if shape is None:
        return (32,) if any("eps" in name for name in module.__dict__) else None
    if isinstance(shape, int):
        return (shape,)
    return tuple(shape) if isinstance(shape, (tuple, list)) else None


def experts_of(module: nn.Module) -> str | None:
    """The activation of the gates, if a module computes gated experts (_experts.py) of a few random numbers."""
    gate_up, down = (module._parameters[name].detach() for name in EXPERTS)
    count, width, hidden = down.shape
    children = [activation_of_module(child) for child in module.children()]
    if gate_up.shape != (count, 2 * hidden, width) or len(children) != 1 or children[0] in (None, "identity"):
        return None
    activation = ACTIVATIONS[children[0]]

    def exact(x: torch.Tensor, index: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
        made = torch.zeros(x.shape, dtype=torch.float32)
        for expert in index.unique().tolist():
            tokens, places = torch.where(index == expert)
            gate, up = (x[tokens].float() @ gate_up[expert].float().T).chunk(2, -1)
            y = (activation(gate) * up) @ down[expert].float().T
            made.index_add_(0, tokens, y * factors[tokens, places, None].float())
        return made

    return children[0] if _computes_experts(module, count, width, down.dtype, exact) else None


def are_experts_by_code(module: Any, names: tuple[str, str]) -> bool:
    """Whether a module computes what _experts_by_code.py does with these weights."""
    first = module._parameters[names[0]]
    width = first.shape[1 if module.is_transposed else 2]

    def exact(*given: torch.Tensor) -> torch.Tensor:
        return run(module, names, *given, dense(module), gate_of(module))

    return _computes_experts(module, len(first), width, first.dtype, exact)


def _computes_experts(
    module: nn.Module, count: int, width: int, dtype: torch.dtype, exact: Callable[..., Any]
) -> bool:
    index = torch.tensor([[0, count - 1], [count // 2, 0], [count - 1, count // 2]])[:, : min(2, count)]
    x, factors = _seeded(3, width).to(dtype), _seeded(*index.shape).to(dtype)
    for scale in (1, 10, 10 if dtype is torch.float16 else 100):  # large: some code clamps
        try:
            with torch.no_grad():
                made, wanted = module(x * scale, index, factors), exact(x * scale, index, factors)
        except Exception:
            return False
        if type(made) is not torch.Tensor or made.dtype is not dtype or made.shape != wanted.shape:
            return False
        limit = max(1e-4, 4 * torch.finfo(dtype).eps) * wanted.abs().max()
        if not bool(((made.float() - wanted.float()).abs() <= limit).all()):
            return False
    return True


def _is_norm(state: NormState, probe: Any, x: torch.Tensor, y: Any) -> bool:
    wide = x.double()
    weight, *bias = (probe._parameters[name].double() for name in state.names) if state.names else (1.0,)
    eps = probe.__dict__[state.eps] if isinstance(state.eps, str) else state.eps
    mean = wide.mean(-1, keepdim=True) if state.centred else torch.zeros(1)
    factor = torch.rsqrt((wide - mean).square().mean(-1, keepdim=True) + eps) * (weight + state.offset)
    exact = sum(bias, (wide - mean) * factor)
    if not state.centred:
        return _is_rounded(y, exact)
    # The mean is rounded, and so is the sum with the bias.
    return _is_rounded(y, exact, sum(map(abs, bias), mean.abs() * factor.abs() + 1e-3))

"""What optimize() replaces, module by module."""

from __future__ import annotations

import fnmatch
import weakref
from typing import Any, Callable

from torch import nn

from ._calls import CallsFunctions, CallsLinear, calls_activation, calls_attention, multiplied_by
from ._check import STORED_FOR
from ._experts import EXPERTS, Experts, ExpertsState
from ._experts_by_code import ByCodeState, ExpertsByCode, weights_of
from ._fused import Fused
from ._gated_norms import GatedNorm, gated_norm_of
from ._modules import Activation, Embedding, Linear, LinearOfInput, Replaced, WeightState, WithWeights
from ._multihead_attention import AttentionState, MultiheadAttention
from ._norms import Norm, NormOfInput, NormState
from ._packed import NAMES, Packed
from ._recognise import activation_of_module, are_experts_by_code, experts_of, norm_of
from ._recurrent_calls import CallsRecurrent, route
from ._report import Record, Row, memory_of
from ._transformer_layers import Encoder, FeedForwardBlock
from ._transformers import conv1d, set_attention
from ._weight import PackedWeight, parameter_of


class Replacement:
    """Of the modules of a model."""

    def __init__(
        self, model: nn.Module, weights: str | None, activations: str, release: bool, skip: list[str]
    ) -> None:
        self.model = model
        self.weights = weights
        self.activations = activations
        self.release = release
        self.skip = skip
        self.record = Record()
        # Where each parameter is: a weight may belong to several modules.
        self.places: dict[int, list[tuple[nn.Module, str]]] = {}
        for module in model.modules():
            for name, parameter in module._parameters.items():
                if parameter is not None:
                    self.places.setdefault(id(parameter), []).append((module, name))

    def run(self) -> None:
        self.record.before = memory_of(self.model)
        self.record.frozen = [name for name, x in self.model.named_parameters() if x.requires_grad]
        self.model.requires_grad_(False)
        named = [x for x in self.model.named_modules() if self._is_considered(*x)]
        self._each(named, self._weights_of, self._experts, self._tied, self._rowwise, self._activations)
        self._attention()  # before the code of layers that call it is looked at
        self._each(named, self._recurrent)  # and their functions, which layers call in their code
        self._each(named, self._block)
        for module in self.model.modules():
            if not isinstance(module, Replaced) and any(
                isinstance(x, PackedWeight) for x in module._parameters.values()
            ):
                WithWeights.adopt(module)
                self._note("", module, "its weight is packed for a linear layer", False)
        self.record.after = memory_of(self.model)
        self.record.put(self.model)

    def _each(self, named: list[tuple[str, nn.Module]], *replace: Callable[[str, nn.Module], None]) -> None:
        for one in replace:
            for name, module in named:
                if not isinstance(module, Replaced):
                    one(name, module)

    def _attention(self) -> None:
        self.record.configurations = set_attention(self.model)
        for config, before in self.record.configurations:
            what = f"attention of {type(config).__name__.removesuffix('Config')}"
            self.record.rows.append(Row("", what, f"{before} → headlane"))

    def _is_considered(self, name: str, module: nn.Module) -> bool:
        if "forward" in vars(module):  # such as accelerate's, which calls the one of the class
            self._note(name, module, "its forward function was replaced", False)
            return False
        return not self._is_skipped(name)

    def _is_skipped(self, name: str) -> bool:
        parts = name.split(".")
        prefixes = [".".join(parts[: i + 1]) for i in range(len(parts))]
        return any(fnmatch.fnmatchcase(prefix, pattern) for prefix in prefixes for pattern in self.skip)

    def _note(self, name: str, module: nn.Module, what: str, done: bool = True) -> None:
        self.record.rows.append(Row(name, type(module).__name__, what, done))

    # Each of these replaces a module, or leaves it and may say why.

    def _weights_of(self, name: str, module: nn.Module) -> None:
        if type(module).forward is nn.Linear.forward:
            self._pack_linear(name, module, LinearOfInput, True)
        elif type(module) is conv1d():
            self._pack_linear(name, module, Linear, False)
        elif type(module) is nn.MultiheadAttention:
            self._pack_attention(name, module)
        elif isinstance(module, nn.Linear):
            self._note(name, module, "has a forward function of its own", False)
        elif (weight := multiplied_by(module)) is not None:
            self._pack_own(name, module, weight)

    def _reason(self, parameter: Any) -> str | None:
        """Why a weight cannot be packed."""
        if parameter is None:
            return "its weight is no parameter"
        if type(parameter) is not nn.Parameter:
            return f"its weight is a {type(parameter).__name__}"
        if parameter.device.type != "cpu":
            return f"its weight is on {parameter.device}"
        if parameter.dtype not in NAMES:
            return f"its weight is of {parameter.dtype}"
        if parameter.numel() == 0:
            return "its weight is empty"
        if any(getattr(x, "max_norm", None) is not None for x, _ in self.places.get(id(parameter), ())):
            return "max_norm of an embedding changes its weight"
        return None

    def _pack(
        self,
        module: nn.Module,
        names: list[str],
        transposed: bool,
        parts: int = 1,
        experts: int = 0,
        in_code: bool = False,
    ) -> Any:
        """Packs parameters of a module, in so many parts for each expert. What they are now, or why not."""
        for name in names:
            parameter = module._parameters.get(name)
            reason = None if isinstance(parameter, PackedWeight) else self._reason(parameter)
            if reason is not None:
                return reason
        packed = {}
        try:
            for name in names:
                packed[name] = self._packed(module._parameters[name], transposed, parts, experts, in_code)
        except ValueError as error:
            return f"not packed: {error}"
        return packed

    def _packed(
        self, parameter: Any, transposed: bool, parts: int, experts: int, in_code: bool
    ) -> PackedWeight:
        if isinstance(parameter, PackedWeight):  # of another module, too
            return parameter
        own = NAMES[parameter.dtype]
        stored = own if in_code else self.weights or own
        matrix = parameter.detach()
        if experts:  # below each other
            matrix, parts = matrix.flatten(0, 1), experts * parts
        how = stored, transposed, self.release, in_code
        packed = tuple(Packed.of(part, *how) for part in matrix.chunk(parts))
        made = parameter_of(packed, experts)
        made.origin = weakref.ref(parameter)
        for module, name in self.places[id(parameter)]:
            module._parameters[name] = made
        return made

    def _types_of(self, packed: dict[str, PackedWeight]) -> tuple[str, str]:
        """The activations beside weights, in float32 where a weight keeps a type that does not fit, and both
        types for the report.
        """
        stored = {x.parts[0].matrix.dtype for x in packed.values()}
        activations = self.activations if stored <= STORED_FOR[self.activations] else "float32"
        types = " and ".join(sorted(stored))
        return activations, types if activations == "float32" else f"{types} by {activations}"

    def _pack_linear(self, name: str, module: nn.Module, kind: type[Linear], transposed: bool) -> None:
        packed = self._pack(module, ["weight"], transposed)
        if isinstance(packed, str):
            return self._note(name, module, packed, False)
        if packed["weight"].parts[0].transposed != transposed or len(packed["weight"].parts) != 1:
            return self._note(name, module, "its weight is packed for another module", False)
        activations, types = self._types_of(packed)
        kind.adopt(module, WeightState(packed["weight"], activations))
        self._note(name, module, f"linear, {types}")

    def _pack_own(self, name: str, module: nn.Module, weight: str) -> None:
        """What decides which experts a token takes, is not rounded."""
        packed = self._pack(module, [weight], True, in_code=True)
        if isinstance(packed, str):
            return self._note(name, module, packed, False)
        CallsLinear.adopt(module)
        self._note(name, module, f"linear in its code, {packed[weight].parts[0].matrix.dtype}")

    def _pack_attention(self, name: str, module: Any) -> None:
        if module.bias_k is not None or module.bias_v is not None or module.add_zero_attn:
            return self._note(name, module, "has keys of its own (bias_k, add_zero_attn)", False)
        if module.embed_dim == 0 or module.num_heads * module.head_dim != module.embed_dim:
            return self._note(name, module, "its heads do not divide its width", False)
        names, parts = ["in_proj_weight"], 3
        if module.in_proj_weight is None:
            names, parts = ["q_proj_weight", "k_proj_weight", "v_proj_weight"], 1
        packed = self._pack(module, names, True, parts)
        if isinstance(packed, str):
            return self._note(name, module, packed, False)
        activations, types = self._types_of(packed)
        MultiheadAttention.adopt(module, AttentionState(packed, activations))
        self._note(name, module, f"attention, {types}")

    def _experts(self, name: str, module: nn.Module) -> None:
        """Those of a known gate in one call, others by their own code."""
        known = [module._parameters.get(x) for x in EXPERTS]
        names = EXPERTS if all(x is not None and x.dim() == 3 for x in known) else weights_of(module)
        if names is None:
            return
        reason = next(filter(None, (self._reason(module._parameters[x]) for x in names)), None)
        if reason is not None:
            return self._note(name, module, reason, False)
        count = len(module._parameters[names[1]])
        activation = experts_of(module) if names == EXPERTS else None
        is_code = activation is None and names == weights_of(module) and are_experts_by_code(module, names)
        if activation is None and not is_code:
            return self._note(name, module, "its experts are none of those known", False)
        packed = {}
        for each, parts in zip(names, (1 if is_code else 2, 1)):
            transposed = not (is_code and module.is_transposed)
            made = self._pack(module, [each], transposed, parts, count)
            if isinstance(made, str):
                return self._note(name, module, made, False)
            packed.update(made)
        activations, types = self._types_of(packed)
        parts = {each: x.parts for each, x in packed.items()}
        if is_code:
            ExpertsByCode.adopt(module, ByCodeState(parts, activations))
        else:
            (gate,) = module.children()
            if not isinstance(gate, Replaced):
                Activation.adopt(gate, activation)
            Experts.adopt(module, ExpertsState(parts, activation, activations, gate))
        self._note(name, module, f"{count} experts{' with a gate of their own' * is_code}, {types}")

    def _tied(self, name: str, module: nn.Module) -> None:
        weight = module._parameters.get("weight")
        if type(module) is not nn.Embedding or not isinstance(weight, PackedWeight):
            return
        Embedding.adopt(module, WeightState(weight, "float32"))
        self._note(name, module, "shares the weight of a linear layer")

    def _rowwise(self, name: str, module: nn.Module) -> None:
        if type(module) is nn.LayerNorm:
            reason = "it is over several axes" if len(module.normalized_shape) != 1 else None
            if not {"weight", "bias"} <= module._parameters.keys():
                reason = reason or "its weight or bias is no parameter"
            if module.weight is not None:
                reason = reason or self._reason(module.weight)
            if reason is not None:
                return self._note(name, module, reason, False)
            if module.weight is None:
                state = NormState(True, (), "eps", width=module.normalized_shape[0])
            else:
                state = NormState(True, ("weight", "bias"), "eps")
            NormOfInput.adopt(module, state)
            return self._note(name, module, "layer norm")
        found = norm_of(module)
        if found is not None and all(self._reason(module._parameters[x]) is None for x in found.names[:1]):
            Norm.adopt(module, found)
            return self._note(name, module, "layer norm" if found.centred else "RMS norm")
        if (gated := gated_norm_of(module)) is not None:
            GatedNorm.adopt(module, gated)
            self._note(name, module, f"RMS norm, gated by {gated.activation}")

    def _activations(self, name: str, module: nn.Module) -> None:
        """Those beside a Linear. Others, such as those of convolutions, stay PyTorch's."""
        if not any(isinstance(child, Linear) for child in module.children()):
            return
        for child_name, child in module.named_children():
            full_name = f"{name}.{child_name}" if name else child_name
            if isinstance(child, Replaced) or self._is_skipped(full_name):
                continue
            activation = activation_of_module(child)
            if activation not in (None, "identity"):
                Activation.adopt(child, activation)
                self._note(full_name, child, f"activation, {activation}")

    def _recurrent(self, name: str, module: nn.Module) -> None:
        if names := route(type(module)):
            CallsRecurrent.adopt(module)
            self._note(name, module, ", ".join(names))

    def _block(self, name: str, module: nn.Module) -> None:
        if type(module) in (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer):
            FeedForwardBlock.adopt(module)
            self._note(name, module, "fused")
        elif type(module) is nn.TransformerEncoder:
            Encoder.adopt(module)
            self._note(name, module, "without nested tensors")
        elif Fused.can_adopt(module):
            Fused.adopt(module)
            self._note(name, module, "fused")
        elif calls_attention(module):
            CallsFunctions.adopt(module)
            self._note(name, module, "scaled_dot_product_attention")
        elif any(isinstance(child, Linear) for child in module.children()) and calls_activation(module):
            CallsFunctions.adopt(module)
            self._note(name, module, "activations in its code")

"""A matrix of a module, packed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

import headlane

from ..torch_ops import SharedMatrix
from ._state import has_tangents, threads

if TYPE_CHECKING:
    from ._weight import PackedWeight

# PyTorch's element types that a PackedMatrix stores as they are.
NAMES = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}
# For each stored type those whose elements it holds exactly.
_EXACT = {"float32": tuple(NAMES), "bfloat16": (torch.bfloat16,), "float16": (torch.float16,)}

_WIDER = (torch.float32, torch.bfloat16)
_FLOAT16_INF = 65520  # what is not less becomes infinite


class Packed:
    """A matrix of a module, packed once for everyone who has it.

    original: The tensor, kept where packing rounds; None if the matrix has all of it, or it was released.
    transposed: The tensor is [out, in], the packed matrix [in, out].
    in_code: Code multiplies by it, with torch.nn.functional.linear.
    """

    __slots__ = (
        "dtype",
        "in_code",
        "matrix",
        "original",
        "rounds",
        "shape",
        "shared",
        "transposed",
        "widened",
    )

    def __init__(
        self,
        matrix: headlane.PackedMatrix,
        dtype: torch.dtype,
        transposed: bool,
        original: torch.Tensor | None = None,
        in_code: bool = False,
    ) -> None:
        self.matrix = matrix
        self.in_code = in_code
        self.dtype = dtype
        self.transposed = transposed
        self.original = original
        self.rounds = dtype not in _EXACT.get(matrix.dtype, ())
        self.shared = SharedMatrix(matrix)
        self.shape = (matrix.columns, matrix.rows) if transposed else matrix.shape
        self.widened: PackedWeight | None = None

    @classmethod
    def of(
        cls, tensor: torch.Tensor, stored: str, transposed: bool, release: bool, in_code: bool = False
    ) -> Packed:
        tensor = tensor.detach()
        largest = max(map(abs, tensor.aminmax())) if stored == "float16" and tensor.dtype in _WIDER else 0
        if largest >= _FLOAT16_INF:
            raise ValueError(f"a weight of {largest:g} does not fit into float16")
        matrix = headlane.PackedMatrix(
            tensor.T if transposed else tensor, dtype=stored, num_threads=threads()
        )
        packed = cls(matrix, tensor.dtype, transposed, None, in_code)
        if packed.rounds and not release:
            packed.original = tensor
        return packed

    @property
    def packed(self) -> torch.Tensor:
        """The memory of the matrix."""
        return self.shared.bytes

    @property
    def key(self) -> str:
        return self.shared.key

    def __deepcopy__(self, memo: Any) -> Packed:
        return self  # nobody changes it

    def __reduce__(self) -> Any:
        return Packed, (self.matrix, self.dtype, self.transposed, self.original, self.in_code)


def dense_part(part: Any) -> torch.Tensor:
    """The tensor that was packed; with the values of the packed matrix if it was released."""
    if part.original is not None:
        return part.original
    if has_tangents():  # of which operators cannot ask
        with temporarily_clear_interpreter_stack():
            dense = torch.empty(part.shape, dtype=part.dtype, device="cpu")
            part.matrix.unpack(dense.T if part.transposed else dense, num_threads=threads())
            return dense
    return torch.ops.headlane.unpack(part.packed, part.key, part.dtype, part.transposed)

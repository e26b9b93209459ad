"""PackedMatrix: weights in the order in which products read them."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _core


class PackedMatrix(_core.PackedMatrix):
    """A matrix [k, n], copied in the order in which products read it: weights that are used many times.

    gemm, matmul, linear and gemm_gated take it as a right operand and give the same bits as with the matrix itself, without the
    time for packing. The weight [out, in] of a PyTorch layer is PackedMatrix(weight.T).

    b: a float32 matrix with any strides; not needed afterwards.
    num_threads: to pack with; num_threads() if None or 0.

    It never changes, and any number of threads may use it at the same time; a copy of it is itself. It is pickled as the matrix.
    """

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        raise TypeError("PackedMatrix: it cannot be a base class: what threads read must not change")

    def __init__(self, b: Any, *, num_threads: int | None = None) -> None:
        _core.PackedMatrix.__init__(self, b, num_threads)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.rows, self.columns

    @property
    def nbytes(self) -> int:
        """The memory that it holds: its columns are padded to a multiple of 32."""
        return _core.PackedMatrix.nbytes.__get__(self)

    def unpack(self) -> np.ndarray:
        """The matrix, as a NumPy array."""
        return _core.PackedMatrix.unpack(self)

    def __copy__(self) -> PackedMatrix:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> PackedMatrix:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return PackedMatrix, (self.unpack(),)

    def __repr__(self) -> str:
        return f"PackedMatrix(shape={self.shape}, nbytes={self.nbytes})"

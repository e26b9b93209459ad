"""PackedMatrix: weights in the layout of the kernels."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from . import _core
from ._immutable import itself
from ._types import DType


class PackedMatrix(_core.PackedMatrix):
    """A copy of a matrix [k, n] in the order in which products read it, for weights used many times.

    gemm, matmul, linear and gemm_gated take it as right operand. Results are bit-identical to those with
    the matrix itself, without the time for packing. For the weight [out, in] of a PyTorch layer use
    PackedMatrix(weight.T).

    With dtype "bfloat16" or "float16" it takes half the memory, with "int8" a quarter: then each column
    has a scale, max(abs(column)) / 127, rounded to 16 bits. "int8_group32" and "int4_group32" have a scale
    of float16 for each 32 rows of a column, as Q8_0 and Q4_0 of GGUF: 34 and 18 bytes for 32 elements.
    Elements are rounded to nearest; results are bit-identical to those with the float32 matrix that
    decoded() returns, unless activations are "int8".

    from_numbers() makes one of numbers and scales that are stored, and headlane.models.GgufFile and
    Checkpoint read one from a file; neither rounds anything.

    It is immutable: any number of threads may use it, and a copy of it is itself. It is pickled as the
    matrix, or as its numbers and scales. from_bytes() makes one of the packed_bytes() of another, without
    packing anew.

    Args:
        b: A matrix of float32, bfloat16 or float16 with any strides; not needed afterwards.
        dtype: How elements are stored: "float32", "bfloat16", "float16", "int8", "int8_group32" or
            "int4_group32".
        num_threads: Maximum number of threads for packing; num_threads() if None or 0.
    """

    __slots__ = ("__weakref__",)

    # The number of the order of packed_bytes(), which changes whenever the order does.
    layout: ClassVar[int] = _core.PackedMatrix.layout

    def __init_subclass__(cls) -> None:
        raise TypeError("PackedMatrix: it cannot be a base class: what threads read must not change")

    def __init__(self, b: Any, *, dtype: DType = "float32", num_threads: int | None = None) -> None:
        _core.PackedMatrix.__init__(self, b, dtype, num_threads)

    @classmethod
    def from_numbers(
        cls,
        numbers: Any,
        scales: Any = None,
        *,
        dtype: DType = "int8",
        clamp: bool = False,
        num_threads: int | None = None,
    ) -> PackedMatrix:
        """Packs what a file of stored weights holds, without rounding anything.

        decoded() then returns numbers · scales: of the column with "int8", rounded to float32, and of the
        group with "int8_group32" and "int4_group32", which is exact. For [out, in] pass numbers.T and
        scales.T.

        Args:
            numbers: A matrix [k, n] of int8: -127 … 127, for "int4_group32" -8 … 7. For "bfloat16" and
                "float16" a matrix of that type, which is kept bit by bit.
            scales: For "int8" [n], float32, bfloat16 or float16; 127 times a scale is finite. For groups
                [ceil(k / 32), n], float16 and finite: numbers[32 * g : 32 * g + 32] have scales[g]. None for
                "bfloat16" and "float16".
            dtype: "int8", "int8_group32", "int4_group32", "bfloat16" or "float16".
            clamp: A number that the type does not have becomes the nearest one that it has: -128 becomes
                -127. Otherwise it is an error.
            num_threads: Maximum number of threads for packing; num_threads() if None or 0.
        """
        return adopted(_core.PackedMatrix.from_numbers(numbers, scales, dtype, clamp, num_threads))

    @classmethod
    def from_bytes(cls, bytes: Any, shape: tuple[int, int], dtype: DType) -> PackedMatrix:
        """A copy of what packed_bytes() of a matrix had, in a version of headlane with the same
        PackedMatrix.layout, on a machine of the same byte order.

        Args:
            bytes: An object with the buffer protocol (bytes, mmap …), or a one-dimensional array of uint8.
            shape: Rows and columns.
            dtype: How elements are stored.
        """
        return adopted(_core.PackedMatrix.from_bytes(bytes, shape, dtype))

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.rows, self.columns

    @property
    def dtype(self) -> DType:
        """How elements are stored."""
        return _core.PackedMatrix.dtype.__get__(self)

    @property
    def nbytes(self) -> int:
        """The memory of the packed copy: columns are padded to a multiple of 32."""
        return _core.PackedMatrix.nbytes.__get__(self)

    def unpack(self, out: Any = None, *, num_threads: int | None = None) -> Any:
        """The matrix.

        Args:
            out: Where to write it: an array of float32, bfloat16 or float16 with any strides. To restore the
                weight [out, in] of a PyTorch layer pass weight.T.
            num_threads: Maximum number of threads; num_threads() if None or 0.

        Returns:
            out; a new NumPy array of float32 if it is None.
        """
        return _core.PackedMatrix.unpack(self, out, num_threads)

    decoded = unpack

    def unpack_numbers(self) -> tuple[np.ndarray, np.ndarray]:
        """The numbers and scales of a matrix of integers, as NumPy arrays: from_numbers() makes the same
        matrix of them.

        Packing what unpack() returns need not make the same one, since it finds scales of its own.

        Returns:
            Numbers of int8 [k, n]; scales of float32 [n], or of float16 [ceil(k / 32), n].
        """
        return _core.PackedMatrix.unpack_numbers(self)

    def unpack_columns(self, columns: Any, out: Any = None, *, num_threads: int | None = None) -> Any:
        """Some columns, each as a row of the result: the lookup of token ids in an embedding whose table is
        also the weight of the output layer, PackedMatrix(weight.T).

        Args:
            columns: Integers of any type and shape, from 0 to the number of columns - 1: an array, a list
                or one integer.
            out: Where to write the result: an array of float32, bfloat16 or float16 with any strides.
            num_threads: Maximum number of threads; num_threads() if None or 0.

        Returns:
            [*columns.shape, rows]; a new NumPy array of float32 if out is None, as Embedding.forward().
        """
        return _core.PackedMatrix.unpack_columns(self, columns, out, num_threads)

    def packed_bytes(self) -> np.ndarray:
        """The memory of the matrix, in the order that `layout` numbers: a read-only NumPy array of uint8
        that shares it and keeps the matrix alive.
        """
        return _core.PackedMatrix.packed_bytes(self)

    __copy__ = __deepcopy__ = itself

    def __reduce__(self) -> tuple[Any, ...]:
        if self.dtype.startswith("int"):
            return _packed_numbers, (*self.unpack_numbers(), self.dtype)
        return _packed, (self.unpack(), self.dtype)

    def __repr__(self) -> str:
        return f"PackedMatrix(shape={self.shape}, dtype={self.dtype!r}, nbytes={self.nbytes})"


def adopted(made: _core.PackedMatrix) -> PackedMatrix:
    """Takes over a matrix that the extension made, which is empty then."""
    matrix = PackedMatrix.__new__(PackedMatrix)
    _core.PackedMatrix.__init__(matrix, made)
    return matrix


def _packed(b: np.ndarray, dtype: DType) -> PackedMatrix:
    """From a pickle."""
    return PackedMatrix(b, dtype=dtype)


def _packed_numbers(numbers: np.ndarray, scales: np.ndarray, dtype: DType) -> PackedMatrix:
    """From a pickle."""
    return PackedMatrix.from_numbers(numbers, scales, dtype=dtype)

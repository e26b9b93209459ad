"""Checkpoint and GgufFile: the tensors of files, and weights packed as the file stores them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import _core
from .._immutable import itself
from .._packed import PackedMatrix, adopted
from .._types import DType, GgufValue
from ._text import folder_path, path_of


class Checkpoint:
    """The tensors of a folder with weights in safetensors format, as in Hugging Face folders.

    Opening it reads the headers only, and checks them; load() and pack() read tensors, anew each time. The
    files stay open and must not change. It is immutable: any number of threads may use it, and a copy of
    it is itself. It is pickled as the path of its folder.

    Args:
        folder: A folder with model.safetensors, or with model.safetensors.index.json and the files that it
            lists.

    Raises:
        CheckpointError: The files are missing or damaged, or do not hold what was requested. The message
            names the file, the tensor, and the reason. All methods raise it.
    """

    __slots__ = ("_checkpoint", "_folder")

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = folder_path("Checkpoint", folder)
        self._checkpoint = _core.Checkpoint(os.fsencode(self._folder))

    @property
    def folder(self) -> str:
        """The given folder."""
        return self._folder

    def contains(self, name: str) -> bool:
        """Whether there is a tensor of this name.

        Args:
            name: The name of a tensor.
        """
        return self._checkpoint.contains(name)

    __contains__ = contains

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor, of any type of elements.

        Args:
            name: The name of a tensor.
        """
        return self._checkpoint.shape(name)

    def names(self) -> list[str]:
        """The names of all tensors, in ascending order."""
        return self._checkpoint.names()

    def load(self, name: str, shape: Sequence[int] | None = None) -> np.ndarray:
        """Reads a tensor of F32, F16 or BF16, as a NumPy array of float32; exact.

        Args:
            name: The name of a tensor.
            shape: An error unless the tensor has this shape.
        """
        return self._checkpoint.load(name, shape)

    def pack(
        self, prefix: str, *, dtype: DType | None = None, clamp: bool = False, num_threads: int | None = None
    ) -> PackedMatrix:
        """Packs the weight [out, in] of a layer as the right operand [in, out] of linear(), with the numbers
        and scales of the file: nothing is quantised anew.

        A weight of F32, F16 or BF16 becomes float32, float16 or bfloat16. Of what compressed-tensors stores,
        symmetric and with weight_scale of F32, F16 or BF16: a weight of I8 with a scale for each row, W8A8,
        becomes int8, with scales for groups int8_group32; weight_packed of I32 the same, of 4 bits, W4A16,
        int4_group32. Groups have a multiple of 32 columns; their scales are rounded to float16, which is exact
        for those of F16, and for those of BF16 from 2^-14 to 65280.

        Args:
            prefix: What the names of the layer's tensors begin with, with a dot at the end:
                "encoder.layer.0.output.dense.".
            dtype: How elements are stored: the dtype of a PackedMatrix, packed from the float32 values if
                the file stores them otherwise. If None, as in the file.
            clamp: Numbers of -128, which int8 does not have, become -127. Otherwise they are an error.
                compressed-tensors stores the largest number of a row so if it is negative.
            num_threads: Maximum number of threads for packing; num_threads() if None or 0.
        """
        return adopted(self._checkpoint.pack(prefix, dtype, clamp, num_threads))

    __copy__ = __deepcopy__ = itself

    def __reduce__(self) -> tuple[Any, ...]:
        return Checkpoint, (self._folder,)

    def __repr__(self) -> str:
        return f"Checkpoint({self._folder!r}: {len(self.names())} tensors)"


class GgufFile:
    """The tensors and the metadata of a GGUF file, as llama.cpp and its relatives write them.

    Versions 2 and 3, little-endian. Opening it reads the header only, and checks it; load() and pack() read
    a tensor, anew each time. The file stays open and must not change. Of a model that is split, each file
    has its own tensors. It is immutable: any number of threads may use it, and a copy of it is itself. It
    is pickled as its path.

    Args:
        file: The path of the file.

    Raises:
        CheckpointError: The file is missing or damaged, or does not hold what was requested. The message
            names the file, the tensor or key, and the reason. All methods raise it.
    """

    __slots__ = ("_file", "_gguf")

    def __init__(self, file: str | os.PathLike[str]) -> None:
        self._file = os.path.abspath(path_of("GgufFile", "file", file))
        self._gguf = _core.GgufFile(os.fsencode(self._file))

    @property
    def file(self) -> str:
        """The given path."""
        return self._file

    def contains(self, name: str) -> bool:
        """Whether there is a tensor of this name.

        Args:
            name: The name of a tensor.
        """
        return self._gguf.contains(name)

    __contains__ = contains

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor, the outermost axis first, as load() returns it: [out, in] of a weight.

        The file has the sizes in the other order.

        Args:
            name: The name of a tensor.
        """
        return self._gguf.shape(name)

    def type(self, name: str) -> str:
        """The name that ggml has for the type of a tensor: "F32", "Q4_K" …

        Args:
            name: The name of a tensor.
        """
        return self._gguf.type(name)

    def names(self) -> list[str]:
        """The names of all tensors, in ascending order."""
        return self._gguf.names()

    def keys(self) -> list[str]:
        """All keys of the metadata, in ascending order: "general.architecture" …"""
        return self._gguf.keys()

    def metadata(self, key: str) -> GgufValue | None:
        """The value of a key: a bool, int, float or str, or a list of one of these; None if there is no such
        key.

        An integer of 2^63 and more is an error. Bytes of a text that are no UTF-8 are surrogates:
        text.encode("utf-8", "surrogateescape") returns them.

        Args:
            key: A key of the metadata.
        """
        return self._gguf.metadata(key)

    def load(self, name: str, shape: Sequence[int] | None = None) -> np.ndarray:
        """Reads a tensor of F32, F16, BF16, Q8_0, Q4_0, Q4_K or Q6_K, as a NumPy array of float32 with the
        bits of ggml's own dequantisation.

        Args:
            name: The name of a tensor.
            shape: An error unless the tensor has this shape.
        """
        return self._gguf.load(name, shape)

    def pack(
        self, name: str, *, dtype: DType | None = None, clamp: bool = False, num_threads: int | None = None
    ) -> PackedMatrix:
        """Packs a weight [out, in] as the right operand [in, out] of linear(), with the numbers and scales of
        the file: Q8_0 becomes int8_group32, Q4_0 int4_group32, and F32, F16 and BF16 stay what they are.

        Q4_K and Q6_K become int8_group32, packed from their float32 values.

        Args:
            name: The name of a tensor with two axes.
            dtype: How elements are stored: the dtype of a PackedMatrix, packed from the float32 values if
                the file stores them otherwise. If None, as above.
            clamp: Numbers of -128, which int8 does not have, become -127. Otherwise they are an error.
            num_threads: Maximum number of threads for packing; num_threads() if None or 0.
        """
        return adopted(self._gguf.pack(name, dtype, clamp, num_threads))

    __copy__ = __deepcopy__ = itself

    def __reduce__(self) -> tuple[Any, ...]:
        return GgufFile, (self._file,)

    def __repr__(self) -> str:
        return f"GgufFile({self._file!r}: {len(self.names())} tensors)"

"""Numbers and scales of stored weights, for tests."""

import headlane
import numpy as np


def decoded(numbers, scales):
    """numbers · scales in float32, where each product is rounded at most once."""
    if scales.ndim == 2:
        scales = np.repeat(scales, 32, axis=0)[: len(numbers)]
    return numbers.astype(np.float32) * scales.astype(np.float32)


def same_bits(x, y):
    """x and y have the same shape, type and bytes, whatever their strides."""
    assert (x.dtype, x.shape) == (y.dtype, y.shape)
    assert x.tobytes() == y.tobytes()


def check_stored(packed, numbers, scales, dtype):
    """The matrix holds these numbers and scales."""
    assert type(packed) is headlane.PackedMatrix
    assert (packed.shape, packed.dtype) == (numbers.shape, dtype)
    own_numbers, own_scales = packed.unpack_numbers()
    same_bits(own_numbers, numbers)
    same_bits(own_scales, scales if len(numbers) else np.zeros_like(scales))
    same_bits(packed.decoded(), decoded(numbers, scales))


def split_blocks(blocks, kind):
    """The numbers [out, in] and scales [out, in / 32] of GGUF's blocks [out, bytes], as ggml defines them:
    a scale of float16, then 32 numbers of 8 bits, or 16 bytes with the numbers i and i + 16.
    """
    blocks = blocks.reshape(len(blocks), -1, 34 if kind == "Q8_0" else 18)
    scales = blocks[..., :2].copy().view(np.float16)[..., 0]
    if kind == "Q8_0":
        numbers = blocks[..., 2:].view(np.int8)
    else:
        numbers = np.concatenate([blocks[..., 2:] & 15, blocks[..., 2:] >> 4], -1).astype(np.int8) - np.int8(
            8
        )
    return numbers.reshape(len(blocks), -1), scales

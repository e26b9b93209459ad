"""CPU kernels for transformer inference in float32: attention, softmax, norms, matrix products, activations.

Results are bit-identical on every instruction set and for every number of threads.

Every function takes NumPy arrays, PyTorch CPU tensors and other arrays that support DLPack, with any
strides and without copying, and returns an array of the type of its first argument. No gradients are
recorded. Computations release the GIL.

Elements are float32, bfloat16 (of PyTorch, ml_dtypes, or another library with DLPack) or float16, in
every argument that is described as float32, in any mixture; `out` too. Arithmetic is float32: elements
of 16 bits are widened, which is exact, and a result is the float32 result rounded once, to nearest, ties
to even. It has the type of elements of the first argument; log-sum-exps, maxima and sums of attention
are float32.

Arguments of a wrong type raise TypeError, wrong values and shapes raise ValueError. The message names
the function and the argument, and nothing has been written. An integer is any object with __index__, a
flag is True or False. Two parameters mean the same everywhere: `out` is an array of the result's shape to
write the result to, and `num_threads` the maximum number of threads of the call, where None and 0 mean
num_threads().

Refused: masked arrays; tensors that are sparse, quantised, nested, complex or on another device; tensors
that require a gradient while gradients are recorded, carry a forward-mode tangent, are traced by
torch.jit, or are wrapped by torch.func or by a subclass with a __torch_dispatch__ of its own. Other
subclasses are read as plain arrays, and the result is a plain array.
"""

from __future__ import annotations

from . import _core
from ._attention import attention_over_cache, scaled_dot_product_attention
from ._attention_plan import AttentionPlan, plan_attention
from ._attention_weights import attention_key_sums, attention_weights
from ._kv_cache import KvCache
from ._layers import Embedding, FeedForward, Linear
from ._merge import merge
from ._multi_head_attention import MultiHeadAttention
from ._packed import PackedMatrix
from ._position import (
    add_sinusoidal_encoding,
    alibi_slopes,
    rotary_embedding,
    sinusoidal_encoding,
    t5_bucket,
)
from ._products import gemm, gemm_gated, linear, matmul
from ._recurrent import causal_convolution, linear_attention
from ._rowwise import (
    erf,
    gelu,
    layer_norm,
    log_softmax,
    relu,
    rms_norm,
    sigmoid,
    silu,
    softmax,
    tanh,
)
from ._runtime import available_isas, isa, isa_extension, num_threads, set_isa, set_num_threads
from ._transformer_layers import DecoderLayer, EncoderLayer

__version__: str = _core.version()
__all__ = [
    "AttentionPlan",
    "DecoderLayer",
    "Embedding",
    "EncoderLayer",
    "FeedForward",
    "KvCache",
    "Linear",
    "MultiHeadAttention",
    "PackedMatrix",
    "add_sinusoidal_encoding",
    "alibi_slopes",
    "attention_key_sums",
    "attention_over_cache",
    "attention_weights",
    "available_isas",
    "causal_convolution",
    "erf",
    "gelu",
    "gemm",
    "gemm_gated",
    "isa",
    "isa_extension",
    "layer_norm",
    "linear",
    "linear_attention",
    "log_softmax",
    "matmul",
    "merge",
    "num_threads",
    "plan_attention",
    "relu",
    "rms_norm",
    "rotary_embedding",
    "scaled_dot_product_attention",
    "set_isa",
    "set_num_threads",
    "sigmoid",
    "silu",
    "sinusoidal_encoding",
    "softmax",
    "t5_bucket",
    "tanh",
]
for _name in __all__:
    globals()[_name].__module__ = __name__  # where users find them

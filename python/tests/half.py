"""Arrays of 16 bits for tests: NumPy's float16, ml_dtypes' bfloat16, PyTorch's float16 and bfloat16.

Each kind has a function that rounds a float32 array to it and one that widens it, by the libraries that
have the types, not by headlane.
"""

import numpy as np

try:
    import ml_dtypes
except ImportError:  # a dependency of onnx
    ml_dtypes = None
try:
    import torch
except ImportError:
    torch = None


def _rounded(dtype):
    def rounded(x):
        with np.errstate(over="ignore", invalid="ignore"):
            return x.astype(dtype, order="K")

    return rounded


def _tensor(name):
    # A copy in the same layout: NumPy's strides may be negative, PyTorch's may not.
    return lambda x: torch.from_numpy(np.array(x)).to(getattr(torch, name))


def wide(x):
    """The values of an array or tensor as a float32 array of NumPy, in the same layout."""
    if torch is not None and isinstance(x, torch.Tensor):
        return x.detach().float().numpy()
    return x if x.dtype == np.float32 else x.astype(np.float32, order="K")


KINDS = {"float32": np.array, "float16": _rounded(np.float16)}
if ml_dtypes:
    KINDS["bfloat16"] = _rounded(ml_dtypes.bfloat16)
TENSORS = {}
if torch:
    TENSORS = {f"torch.{name}": _tensor(name) for name in ("float32", "float16", "bfloat16")}
HALVES = {name: round_ for name, round_ in {**KINDS, **TENSORS}.items() if not name.endswith("float32")}


def kind_of(x):
    """The name of an array's kind, above."""
    return str(x.dtype)  # "torch.float16" …


def is_array(x):
    return isinstance(x, np.ndarray) or (torch is not None and isinstance(x, torch.Tensor))


def mapped(f, x):
    """x with f applied to its float32 arrays, in dicts, lists and tuples too."""
    if isinstance(x, np.ndarray):
        return f(x) if x.dtype == np.float32 else x
    if isinstance(x, dict):
        return {name: mapped(f, one) for name, one in x.items()}
    if isinstance(x, (list, tuple)):
        return type(x)(mapped(f, one) for one in x)
    return x


def widened(x):
    if is_array(x):
        return wide(x) if kind_of(x).split(".")[-1] in ("float16", "bfloat16", "float32") else x
    if isinstance(x, dict):
        return {name: widened(one) for name, one in x.items()}
    if isinstance(x, (list, tuple)):
        return type(x)(widened(one) for one in x)
    return x


def bits(x):
    """The bits, all NaNs alike."""
    if not isinstance(x, np.ndarray):
        x = x.detach().contiguous()
        x = (
            x.numpy()
            if x.dtype == torch.float32
            else x.view(torch.int16)
            .numpy()
            .view(np.float16 if x.dtype == torch.float16 else ml_dtypes.bfloat16)
        )
    values = np.ascontiguousarray(x)
    nan = np.isnan(values.astype(np.float32))
    as_integers = values.view(np.uint32 if values.dtype == np.float32 else np.uint16).copy()
    as_integers[nan] = 0xFFFF
    return as_integers


def assert_rounded_once(result, exact, kind):
    """result is an array of this kind: the float32 array, rounded."""
    assert kind_of(result) == kind
    assert isinstance(result, np.ndarray) != kind.startswith("torch.")
    expected = {**KINDS, **TENSORS}[kind](exact)
    assert result.shape == expected.shape
    np.testing.assert_array_equal(bits(result), bits(expected))


def as_tuple(result):
    return result if isinstance(result, tuple) else (result,)


def check(result, exact, kind):
    """A result, or (out, lse …): the first of the kind, the others float32 of its library."""
    result, exact = as_tuple(result), as_tuple(exact)
    assert len(result) == len(exact)
    assert_rounded_once(result[0], exact[0], kind)
    for ours, theirs in zip(result[1:], exact[1:]):
        assert_rounded_once(ours, theirs, "torch.float32" if kind.startswith("torch") else "float32")

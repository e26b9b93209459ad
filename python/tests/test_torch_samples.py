"""PyTorch's own samples, of its tests of modules and of operators, with modules that are replaced."""

import copy
import warnings

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("expecttest", reason="PyTorch's tests need expecttest")
import headlane.torch  # noqa: E402
from headlane.torch import _modules  # noqa: E402
from torch import nn  # noqa: E402
from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402
from torch.testing._internal.common_modules import module_db  # noqa: E402

MODULES = (
    "nn.Linear",
    "nn.LayerNorm",
    "nn.RMSNorm",
    "nn.Embedding",
    "nn.MultiheadAttention",
    "nn.TransformerEncoder",
    "nn.TransformerEncoderLayer",
    "nn.TransformerDecoderLayer",
    "nn.Transformer",
)
TOLERANCES = {torch.float32: (1e-5, 2e-5), torch.bfloat16: (0.05, 0.05), torch.float16: (0.01, 0.01)}
DTYPES = list(TOLERANCES)


def compare(ours, theirs, dtype):
    relative, absolute = TOLERANCES[dtype]
    torch.testing.assert_close(ours, theirs, rtol=relative, atol=absolute, equal_nan=True)


def detached(value):
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    return type(value)(detached(x) for x in value) if isinstance(value, (tuple, list)) else value


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", MODULES)
@torch.no_grad()
def test_modules(name, dtype):
    info = next(x for x in module_db if x.name == name)
    torch.manual_seed(0)
    samples = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=False, training=False)
    compared = 0
    for sample in samples:
        made, given = sample.constructor_input, sample.forward_input
        if given is None:
            continue
        model = info.module_cls(*made.args, **made.kwargs).to(dtype).eval()
        arguments = detached(given.args)
        options = {key: detached(x) for key, x in given.kwargs.items()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                expected = model(*copy.deepcopy(arguments), **options)
            except Exception as error:
                optimized = headlane.torch.optimize(model)
                with pytest.raises(type(error)):
                    optimized(*arguments, **options)
                continue
            optimized = headlane.torch.optimize(model)
            compare(optimized(*arguments, **options), expected, dtype)
        compared += 1
    assert compared > 0


class OfAttention(nn.Module):
    def forward(self, *arguments, **options):
        return nn.functional.scaled_dot_product_attention(*arguments, **options)


def module_of(name, sample):
    """A module that computes the function of a sample, and its arguments; None if there is none."""
    if name == "nn.functional.linear":
        weight, *bias = sample.args
        if weight.dim() != 2 or (bias and bias[0] is not None and bias[0].dim() != 1):
            return None
        module = nn.Linear(weight.shape[1], weight.shape[0], bias=bool(bias and bias[0] is not None))
        module.weight = nn.Parameter(weight)
        if module.bias is not None:
            module.bias = nn.Parameter(bias[0])
        return module, (sample.input,), {}
    if name == "nn.functional.layer_norm":
        shape, *affine = sample.args
        weight = affine[0] if affine else sample.kwargs.get("weight")
        bias = affine[1] if len(affine) > 1 else sample.kwargs.get("bias")
        if weight is None:
            return None
        module = nn.LayerNorm(shape, sample.kwargs.get("eps", 1e-5), bias=bias is not None)
        module.weight = nn.Parameter(weight)
        if bias is not None:
            module.bias = nn.Parameter(bias)
        return module, (sample.input,), {}
    if sample.kwargs.get("dropout_p", 0.0) != 0:
        return None
    return OfAttention(), (sample.input, *sample.args), sample.kwargs


OPERATORS = {
    "nn.functional.linear": 18,
    "nn.functional.layer_norm": 3,
    "nn.functional.scaled_dot_product_attention": 10,
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", OPERATORS)
@torch.no_grad()
def test_operators(name, dtype):
    info = next(x for x in op_db if x.name == name)
    torch.manual_seed(0)
    compared = 0
    for sample in info.sample_inputs("cpu", dtype, requires_grad=False):
        made = module_of(name, sample)
        if made is None:
            continue
        model, arguments, options = made
        expected = model.eval()(*arguments, **options)
        optimized = headlane.torch.optimize(model)
        compare(optimized(*arguments, **options), expected, dtype)
        compared += isinstance(optimized, _modules.Replaced)
    assert compared >= OPERATORS[name]

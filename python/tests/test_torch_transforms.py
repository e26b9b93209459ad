"""headlane.torch: modules take their own code in transforms of torch.func and forward-mode differentiation."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import headlane.torch  # noqa: E402
from torch.autograd import forward_ad  # noqa: E402
from torch_cases import MODELS, X, seeded  # noqa: E402

NAMES = ["linear", "rms norm", "sequential", "gated", "attention", "encoder layer", "encoder"]


def _dual(model, x):
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(model(forward_ad.make_dual(x, x))).tangent


TRANSFORMS = {
    "vmap": lambda m, x: torch.vmap(m)(x.unsqueeze(1)),
    "jvp": lambda m, x: torch.func.jvp(m, (x,), (x,))[1],
    "vjp": lambda m, x: torch.func.vjp(m, x)[1](x)[0],
    "jacfwd": lambda m, x: torch.func.jacfwd(m)(x[:1, :2]),
    "jacrev": lambda m, x: torch.func.jacrev(m)(x[:1, :2]),
    "hessian": lambda m, x: torch.func.hessian(lambda y: m(y).square().sum())(x[:1, :2]),
    "dual numbers": _dual,
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_transforms(name, transform):
    model = seeded(MODELS[name][0]).requires_grad_(False)
    optimized = headlane.torch.optimize(model)
    compute = TRANSFORMS[transform]
    try:
        expected = compute(model, X)
    except (RuntimeError, NotImplementedError) as error:
        with pytest.raises(type(error)):
            compute(optimized, X)
        return
    torch.testing.assert_close(compute(optimized, X), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["linear", "layer norm", "rms norm", "activation", "sequential"])
@torch.no_grad()
def test_many_axes(name):
    model = seeded(MODELS[name][0])
    optimized = headlane.torch.optimize(model)
    x = X.view(*X.shape[:2], *[1] * 6, X.shape[2])
    torch.testing.assert_close(optimized(x), model(x), rtol=1e-5, atol=1e-5)

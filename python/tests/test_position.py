"""Sinusoidal and rotary embeddings and ALiBi's slopes against float64, and against transformers."""

import headlane
import layouts
import numpy as np
import pytest


def encoding(length, d_model, offset=0, base=10000.0, factor=2):
    """By the formula, in float64."""
    j = np.arange((d_model + 1) // 2)
    angles = np.arange(offset, offset + length)[:, None] * base ** (-factor * j / d_model)
    both = np.stack([np.sin(angles), np.cos(angles)], -1)
    return both.reshape(length, -1)[:, :d_model]


def rotated(x, angles, interleaved):
    """x [batch, heads, length, dim] by angles [batch, length, dim / 2], in float64."""
    x = x.astype(np.float64)
    pairs = angles.shape[-1]
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    y = x.copy()
    first, second = (
        (slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2))
        if interleaved
        else (slice(0, pairs), slice(pairs, 2 * pairs))
    )
    y[..., first] = x[..., first] * cos - x[..., second] * sin
    y[..., second] = x[..., second] * cos + x[..., first] * sin
    return y


@pytest.mark.parametrize("d_model", [1, 2, 33, 64, 512])
@pytest.mark.parametrize("doubled", [False, True])
def test_sinusoidal_encoding(d_model, doubled):
    y = headlane.sinusoidal_encoding(100, d_model, offset=37, doubled_exponent=doubled)
    assert y.dtype == np.float32
    assert y.shape == (100, d_model)
    exact = encoding(100, d_model, 37, factor=4 if doubled else 2)
    assert abs(y - exact).max() < 2.0**-23
    halves = headlane.sinusoidal_encoding(
        100, d_model, offset=37, doubled_exponent=doubled, interleaved=False
    )
    np.testing.assert_array_equal(halves, np.concatenate([y[:, ::2], y[:, 1::2]], 1))
    out = layouts.arranged(np.zeros_like(y), "transposed")
    assert headlane.sinusoidal_encoding(100, d_model, offset=37, doubled_exponent=doubled, out=out) is out
    np.testing.assert_array_equal(out, y)


def test_large_positions():
    y = headlane.sinusoidal_encoding(50, 64, offset=1000000)
    assert abs(y - encoding(50, 64, 1000000)).max() < 2.0**-23


@pytest.mark.parametrize("layout", layouts.LAYOUTS)
def test_add_sinusoidal_encoding(layout):
    x = layouts.arranged(np.random.default_rng(1).standard_normal((2, 3, 20, 40), np.float32), layout)
    for scale, factor in ((1.0, 1.0), (0.0, np.sqrt(np.float32(40))), (-0.5, -0.5)):
        y = headlane.add_sinusoidal_encoding(x, scale, offset=5)
        assert abs(y - (x.astype(np.float64) * factor + encoding(20, 40, 5))).max() < 4e-6
    if layout in layouts.OUTPUT_LAYOUTS:
        assert headlane.add_sinusoidal_encoding(x, scale, offset=5, out=x) is x
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("layout", layouts.LAYOUTS)
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("rotary_dim", [0, 24])
def test_rotary_embedding(rotary_dim, interleaved, layout):
    rng = np.random.default_rng(2)
    x = layouts.arranged(rng.standard_normal((3, 4, 21, 40), np.float32), layout)
    dim = rotary_dim or 40
    base_frequencies = 500000.0 ** (-np.arange(0, dim, 2) / dim)
    given = rng.random(dim // 2, np.float32)
    rows = np.arange(21)
    for positions, all_positions in (
        (None, np.broadcast_to(rows, (3, 21))),
        ([5, 0, 900], np.array([5, 0, 900])[:, None] + rows),
        (rng.integers(-50, 5000, (3, 21)),) * 2,
    ):
        for frequencies in (None, given):
            options = {
                "base": 500000.0,
                "rotary_dim": rotary_dim,
                "interleaved": interleaved,
                "offset": 3,
                "positions": positions,
                "frequencies": frequencies,
            }
            y = headlane.rotary_embedding(x, **options)
            exact_frequencies = base_frequencies if frequencies is None else given.astype(np.float64)
            exact = rotated(x, (all_positions + 3)[..., None] * exact_frequencies, interleaved)
            assert abs(y - exact).max() < 2e-6
            if layout in layouts.OUTPUT_LAYOUTS:
                copy = layouts.arranged(x.copy(), layout)
                assert headlane.rotary_embedding(copy, out=copy, **options) is copy
                np.testing.assert_array_equal(copy, y)


def test_fewer_axes():
    x = np.random.default_rng(3).standard_normal((2, 9, 16), np.float32)
    y = headlane.rotary_embedding(x, offset=4)
    np.testing.assert_array_equal(y, headlane.rotary_embedding(x[None], offset=4)[0])
    np.testing.assert_array_equal(y[1], headlane.rotary_embedding(x[1], offset=4))


def test_alibi_slopes():
    np.testing.assert_array_equal(headlane.alibi_slopes(8), 0.5 ** np.arange(1, 9))
    sixteen = headlane.alibi_slopes(16)
    np.testing.assert_array_equal(sixteen, (2.0 ** (-np.arange(1, 17) / 2)).astype(np.float32))
    np.testing.assert_array_equal(headlane.alibi_slopes(12), [*headlane.alibi_slopes(8), *sixteen[:8:2]])


def test_errors():
    x = np.zeros((2, 3, 4, 8), np.float32)
    with pytest.raises(ValueError, match="rotary_dim is 3"):
        headlane.rotary_embedding(x, rotary_dim=3)
    with pytest.raises(ValueError, match="positions has 3 batch elements, out has 2"):
        headlane.rotary_embedding(x, positions=[1, 2, 3])
    with pytest.raises(TypeError, match="positions has dtype float64"):
        headlane.rotary_embedding(x, positions=[1.5, 2.5])
    with pytest.raises(ValueError, match="frequencies has 3 elements, there are 4"):
        headlane.rotary_embedding(x, frequencies=np.zeros(3, np.float32))
    with pytest.raises(ValueError, match="x has shape"):
        headlane.rotary_embedding(x[None])
    with pytest.raises(ValueError, match="base is 0.5"):
        headlane.sinusoidal_encoding(3, 4, base=0.5)
    with pytest.raises(ValueError, match=r"out has shape \[3, 5\]"):
        headlane.sinusoidal_encoding(3, 4, out=np.zeros((3, 5), np.float32))
    with pytest.raises(ValueError, match="the minimum is"):
        headlane.add_sinusoidal_encoding(np.zeros(3, np.float32))


def test_transformers():
    """Llama's halves and GPT-J's pairs, with transformers' own functions and float32 frequencies."""
    torch = pytest.importorskip("torch")
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    gptj = pytest.importorskip("transformers.models.gptj.modeling_gptj")
    x = torch.randn(2, 4, 50, 64, generator=torch.Generator().manual_seed(0))
    frequencies = (1 / 10000 ** (torch.arange(0, 64, 2).float() / 64)).float()
    positions = torch.arange(50)[None] + torch.tensor([[0], [30]])
    angles = positions[..., None].float() * frequencies
    both = torch.cat([angles, angles], -1)
    expected, _ = llama.apply_rotary_pos_emb(x, x, both.cos(), both.sin())
    y = headlane.rotary_embedding(x, positions=positions.numpy(), frequencies=frequencies)
    assert isinstance(y, torch.Tensor)
    assert (y - expected).abs().max() < 3e-5
    expected = gptj.apply_rotary_pos_emb(x.transpose(1, 2), angles.sin(), angles.cos()).transpose(1, 2)
    y = headlane.rotary_embedding(x, interleaved=True, positions=[0, 30])
    assert (y - expected).abs().max() < 3e-5


@pytest.mark.parametrize("both", [True, False])
@pytest.mark.parametrize(
    ("buckets", "max_distance"),
    [(32, 128), (64, 128), (64, 256), (16, 64), (128, 512), (320, 800), (6, 40), (48, 300)],
)
def test_t5_bucket_transformers(buckets, max_distance, both):
    """Every distance, with transformers' own function in float32."""
    torch = pytest.importorskip("torch")
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5")
    distances = torch.arange(-3 * max_distance, 3 * max_distance + 1)
    expected = t5.T5Attention._relative_position_bucket(distances, both, buckets, max_distance).tolist()
    assert [headlane.t5_bucket(d, buckets, max_distance, both) for d in distances.tolist()] == expected

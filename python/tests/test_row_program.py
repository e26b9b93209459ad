"""_core.RowProgram, by which headlane.torch runs layers: the bits of the operations one by one."""

import headlane
import numpy as np
import pytest
from headlane import _core

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from row_programs import HEADS, HIDDEN, TYPES, WIDTH, linear, packed, random, run  # noqa: E402


def layer(dtype, weights="float32", activations="float32"):
    """A program that is a layer of an encoder, and its parts: matrices, vectors."""
    matrices = [packed(WIDTH, WIDTH, seed, weights) for seed in range(4)]
    matrices += [packed(WIDTH, HIDDEN, 4, weights), packed(HIDDEN, WIDTH, 5, weights)]
    vectors = [random(WIDTH, seed=seed, dtype=dtype) for seed in range(6, 14)]
    program = _core.RowProgram(1)
    heads = [program.linear(0, matrices[i], i, None, -1, activations) for i in range(3)]
    mixed = program.attention(*heads, HEADS)
    total = program.linear(mixed, matrices[3], 3, None, 0, activations)
    x = program.norm(True, total, 4, 5, 1e-5, -1, 0)
    hidden = program.linear(x, matrices[4], -1, "gelu", -1, activations)
    y = program.linear(hidden, matrices[5], 6, None, -1, activations)
    program.add_output(program.norm(False, y, 7, -1, 1e-6, x, 0))
    return program, matrices, vectors


def one_by_one(x, matrices, vectors, options, activations="float32"):
    """The same by the functions of the package."""
    mask, causal, scale, others = options
    q, k, v = (linear(x, matrices[i], vectors[i], activations=activations) for i in range(3))
    heads = [y.unflatten(-1, (HEADS, -1)).transpose(1, 2) for y in (q, k, v)]
    mixed = torch.empty_like(q)
    headlane.scaled_dot_product_attention(
        *heads, mask, 0.0, causal, scale, out=mixed.unflatten(-1, (HEADS, -1)).transpose(1, 2), **others
    )
    total = linear(mixed, matrices[3], vectors[3], residual=x, activations=activations)
    x = headlane.layer_norm(total, vectors[4], vectors[5], 1e-5)
    hidden = linear(x, matrices[4], activation="gelu", activations=activations)
    y = linear(hidden, matrices[5], vectors[6], activations=activations)
    return headlane.rms_norm(y, vectors[7], 1e-6, residual=x)


def bool_mask(batch, length):
    return random(batch, 1, length, length, seed=20) < 1


OPTIONS = {
    "no mask": lambda batch, length: (None, False, None, {}),
    "causal": lambda batch, length: (None, True, 0.25, {"window": (7, None)}),
    "mask": lambda batch, length: (bool_mask(batch, length), False, None, {"softcap": 2.0}),
    "one mask": lambda batch, length: (bool_mask(1, length)[0, 0], False, None, {}),
    "bias": lambda batch, length: (random(batch, HEADS, length, length, seed=21), False, 1.0, {}),
    "16-bit bias": lambda batch, length: (random(batch, 1, 1, length).half(), False, None, {}),
}


# More sequences than a group has, and more rows than a chunk.
@pytest.mark.parametrize("shape", [(2, 5), (41, 20), (3, 450), (1, 1), (1500, 1), (0, 5), (5, 0)])
@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("threads", [1, 2])
def test_layer(shape, name, threads):
    program, matrices, vectors = layer(torch.float32)
    x, options = random(*shape, WIDTH, seed=30), OPTIONS[name](*shape)
    (made,) = run(program, [x], vectors, [options], threads)
    assert made.equal(one_by_one(x, matrices, vectors, options))


@pytest.mark.parametrize("dtype", TYPES[1:])
@pytest.mark.parametrize("name", ["no mask", "16-bit bias"])
def test_16_bit_layer(dtype, name):
    program, matrices, vectors = layer(dtype)
    x, options = random(3, 150, WIDTH, seed=30, dtype=dtype), OPTIONS[name](3, 150)
    (made,) = run(program, [x], vectors, [options])
    assert made.dtype is dtype
    assert made.equal(one_by_one(x, matrices, vectors, options))


@pytest.mark.parametrize("weights", ["int8", "int4_group32"])
@pytest.mark.parametrize("activations", ["float32", "int8"])
def test_fewer_bits(weights, activations):
    program, matrices, vectors = layer(torch.float32, weights, activations)
    x, options = random(5, 100, WIDTH, seed=30), OPTIONS["causal"](5, 100)
    (made,) = run(program, [x], vectors, [options])
    assert made.equal(one_by_one(x, matrices, vectors, options, activations))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("rows", [1, 7, 400])
def test_gated(dtype, rows):
    """Of two outputs one is read by an operation, too. Weights may be absent."""
    gate, up, down = packed(WIDTH, HIDDEN, 1), packed(WIDTH, HIDDEN, 2), packed(HIDDEN, WIDTH, 3)
    program = _core.RowProgram(2)
    hidden = program.gated(0, gate, up, 0, -1, "silu", "float32")
    program.add_output(program.linear(hidden, down, -1, None, 1, "float32"))
    program.add_output(hidden)
    program.add_output(program.activate("tanh", hidden))
    program.add_output(program.scale(hidden, 0.3))
    program.add_output(program.norm(True, 1, 1, 1, 1e-5, 0, 0))
    x, residual = (random(rows, WIDTH, seed=seed, dtype=dtype) for seed in (4, 5))
    bias = random(HIDDEN, seed=6)
    made = run(program, [x, residual], [bias, None])
    expected = headlane.gemm_gated(x, gate, up, gate_bias=bias, activation="silu")
    assert made[0].equal(linear(expected, down, residual=residual))
    assert made[1].equal(expected)
    assert made[2].equal(headlane.tanh(expected))
    assert made[3].equal(expected * 0.3)
    assert made[4].equal(headlane.layer_norm(residual, None, None, 1e-5, residual=x))


def test_products_that_need_each_other():
    """Each waits for the one before it, and the first two do not."""
    matrices = [packed(WIDTH, WIDTH, seed) for seed in range(4)]
    program = _core.RowProgram(1)
    one = program.linear(0, matrices[0], -1, "relu", -1, "float32")
    two = program.linear(0, matrices[1], -1, None, -1, "float32")
    three = program.linear(0, matrices[2], -1, None, two, "float32")
    program.add_output(program.linear(three, matrices[3], -1, None, one, "float32"))
    x = random(600, WIDTH)
    two = linear(x, matrices[2], residual=linear(x, matrices[1]))
    (made,) = run(program, [x])
    assert made.equal(linear(two, matrices[3], residual=linear(x, matrices[0], activation="relu")))


def test_vectors_are_read_in_each_run():
    program, matrices, vectors = layer(torch.float32)
    x, options = random(2, 5, WIDTH), OPTIONS["no mask"](2, 5)
    before = run(program, [x], vectors, [options])[0]
    vectors[3].mul_(2)
    after = run(program, [x], vectors, [options])[0]
    assert not after.equal(before)
    assert after.equal(one_by_one(x, matrices, vectors, options))


@pytest.mark.parametrize("dtype", TYPES)
def test_sums_and_products(dtype):
    program = _core.RowProgram(2)
    total = program.add(0, 1)
    program.add_output(total)
    program.add_output(program.multiply(total, 1))
    one, two = random(2, 3, WIDTH, dtype=dtype), random(2, 3, WIDTH, seed=1, dtype=dtype)
    total, product = run(program, [one, two])
    assert total.equal(one + two)
    assert product.equal((one + two) * two)
    assert run(program, [one, two[..., :-1]]) is None


def test_numpy():
    program = _core.RowProgram(1)
    matrix = packed(WIDTH, WIDTH, 1)
    program.add_output(program.linear(0, matrix, -1, "gelu", -1, "float32"))
    x = random(2, 3, WIDTH).numpy()
    (made,) = run(program, [x])
    np.testing.assert_array_equal(made, headlane.linear(x, matrix, activation="gelu"))


def pair():
    program = _core.RowProgram(2)
    program.add_output(program.linear(0, packed(WIDTH, HIDDEN, 1), 0, None, 1, "float32"))
    return program


X, Y, BIAS = random(2, 3, WIDTH), random(2, 3, HIDDEN), random(HIDDEN)


@pytest.mark.parametrize(
    "values",
    [
        (X, Y[:1]),  # would be repeated
        (X, Y[0]),
        (X, Y.half()),
        (X, Y[..., :-1]),
        (X[..., :-1], Y),
        (X.transpose(0, 1), Y.transpose(0, 1)),
        (X[0, 0, 0], Y),
    ],
)
def test_values_that_do_not_fit(values):
    assert run(pair(), (X, Y), [BIAS]) is not None
    assert run(pair(), values, [BIAS]) is None
    assert run(pair(), (X, Y), [BIAS[:-1]]) is None


def test_attention_needs_sequences():
    program, _, vectors = layer(torch.float32)
    assert run(program, [random(5, WIDTH)], vectors, [OPTIONS["no mask"](1, 5)]) is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda p: p.linear(0, X, -1, None, -1, "float32"),
            "RowProgram: matrix has type torch.Tensor; wanted: a PackedMatrix",
        ),
        (lambda p: p.linear(3, packed(4, 4, 1), -1, None, -1, "float32"), "RowProgram: there is no value 3"),
        (
            lambda p: p.linear(-1, packed(4, 4, 1), -1, None, -1, "float32"),
            "RowProgram: there is no value -1",
        ),
        (
            lambda p: p.linear(0, packed(4, 4, 1), -2, None, -1, "float32"),
            "RowProgram: there is no vector -2",
        ),
        (
            lambda p: p.linear(0, packed(4, 4, 1), -1, None, -1, "int8"),
            "RowProgram: matrix is a PackedMatrix of",
        ),
        (lambda p: p.linear(0, packed(4, 4, 1), -1, "gel", -1, "float32"), "RowProgram: activation is 'gel'"),
        (lambda p: p.norm(True, 0, 0, -1, 1e-5, -1, -8), "RowProgram: head_dim is -8"),
        (lambda p: p.norm(True, 0, 0, -1, 1e-5, 1, 8), "RowProgram: norms of heads have no residual"),
        (lambda p: p.rotary(0, 0, 1, 0, 0, "halves", False), "RowProgram: head_dim is 0"),
        (lambda p: p.rotary(0, 0, 1, 7, 7, "halves", False), "RowProgram: rotary_dim is 7"),
        (lambda p: p.rotary(0, 0, 1, 8, 10, "halves", False), "RowProgram: rotary_dim is 10"),
        (lambda p: p.rotary(0, 0, 1, 8, -2, "halves", False), "RowProgram: rotary_dim is -2"),
        (lambda p: p.rotary(0, -1, 1, 8, 8, "halves", False), "RowProgram: there is no vector -1"),
        (lambda p: p.rotary(5, 0, 1, 8, 8, "halves", False), "RowProgram: there is no value 5"),
        (
            lambda p: p.rotary(0, 0, 1, 8, 8, "threes", False),
            "RowProgram: there are no pairs 'threes'",
        ),
        (lambda p: p.columns(0, -1, 1, 0), "RowProgram: columns begin at -1 and end at 1"),
        (lambda p: p.columns(0, 2, 1, 0), "RowProgram: columns begin at 2 and end at 1"),
        (lambda p: p.columns(0, 2, 4, 3), "RowProgram: a group of 3 columns, of which some end at 4"),
        (lambda p: p.columns(0, 0, 0, -1), "RowProgram: a group of -1 columns, of which some end at 0"),
        (lambda p: p.add(0, -1), "RowProgram: there is no value -1"),
        (lambda p: p.multiply_heads(0, -1, 8), "RowProgram: there is no value -1"),
        (lambda p: p.multiply_heads(0, 0, 0), "RowProgram: head_dim is 0"),
        (lambda p: p.weigh(0, -1), "RowProgram: there is no vector -1"),
        (lambda p: p.weigh(5, 0), "RowProgram: there is no value 5"),
        (lambda p: p.join(0, -1, 8, 4), "RowProgram: there is no value -1"),
        (lambda p: p.join(0, 0, 0, 4), "RowProgram: a size is 0"),
        (lambda p: p.join(0, 0, 8, -1), "RowProgram: a size is -1"),
        (lambda p: p.attention(0, 0, 0, 0), "RowProgram: heads is 0"),
        (lambda p: p.attention(0, -1, 0, 2), "RowProgram: there is no value -1"),
        (lambda p: p.add_output(1), "RowProgram: value 1 is not the result of an operation"),
        (lambda p: (p.add_output(2), p.add_output(2)), "RowProgram: value 2 is an output already"),
        (lambda p: run(p, [X], [BIAS]), r"RowProgram.run: there are 1 values, wanted: 2"),
        (lambda p: run(p, [X, Y], []), r"RowProgram.run: there are 0 vectors, wanted: 1"),
        (lambda p: run(p, [X, Y], [BIAS], [()]), r"RowProgram.run: there are 1 attentions, wanted: 0"),
        (lambda p: run(p, [X, None], [BIAS]), r"RowProgram.run: value 1 is None"),
        (lambda p: run(p, [X, Y], [BIAS], threads=-1), r"RowProgram.run: num_threads is -1"),
        (
            lambda p: run(p, [X, Y.double()], [BIAS]),
            r"RowProgram.run: values has type torch.Tensor, dtype torch.float64",
        ),
    ],
)
def test_errors(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call(pair())


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(3, 7), (1500, 1), (0, 4)])
def test_columns(dtype, shape):
    program, x = _core.RowProgram(1), random(*shape, WIDTH, dtype=dtype)
    program.add_output(program.columns(0, 3, 20, 0))
    program.add_output(program.multiply(program.columns(0, 0, 12, 0), program.columns(0, 12, WIDTH, 0)))
    program.add_output(program.columns(0, 1, 5, 6))
    program.add_output(program.columns(0, 2, 2, 8))
    for threads in (1, 2):
        some, product, of_groups, none = run(program, [x], threads=threads)
        assert some.equal(x[..., 3:20])
        assert product.equal(x[..., :12] * x[..., 12:])
        assert of_groups.equal(x.unflatten(-1, (4, 6))[..., 1:5].flatten(-2))
        assert none.shape == (*shape, 0)
    assert run(program, [x[..., :23].contiguous()]) is None
    assert run(program, [random(*shape, 30, dtype=dtype)]) is None  # no groups of 8


def test_a_mask_that_does_not_fit():
    program, _, vectors = layer(torch.float32)
    options = (random(2, 1, 5, 4) < 1, False, None, {})
    with pytest.raises(
        ValueError, match=r"RowProgram.run: attn_mask of shape \[2, 1, 5, 4\] does not broadcast"
    ):
        run(program, [random(2, 5, WIDTH)], vectors, [options])

"""_core.RowProgram: norms that are multiplied by a gate, and norms of what a gate has multiplied."""

import pytest
from headlane import _core

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from row_programs import TYPES, WIDTH, gated_norm, linear, packed, random, refuses, run  # noqa: E402
from test_row_program_recurrent import all_equal  # noqa: E402


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("activation", ["silu", "sigmoid", "gelu"])
@pytest.mark.parametrize("shape", [(7,), (3, 7), (1500, 1), (0, 4)])
@pytest.mark.parametrize("gate_first", [False, True])
def test_gated_norms(gate_first, shape, activation, dtype):
    """Of all columns and of heads, of values and results, with a weight and without one."""
    program, matrix = _core.RowProgram(2), packed(WIDTH, WIDTH, 1)
    product = program.linear(0, matrix, -1, None, -1, "float32")
    program.add_output(program.gated_norm(0, 1, 0, 1e-5, activation, 0, gate_first))
    program.add_output(program.gated_norm(product, 1, 1, 0.25, activation, 6, gate_first))
    program.add_output(program.gated_norm(0, product, 1, 1e-5, activation, 6, gate_first))
    program.add_output(program.gated_norm(0, 0, -1, 1e-5, activation, WIDTH, gate_first))
    program.add_output(program.gated_norm(product, product, -1, 1e-5, activation, 8, gate_first))
    x, gate = (random(*shape, WIDTH, seed=seed, dtype=dtype) for seed in (2, 3))
    weight, of_heads = random(WIDTH, seed=4), random(WIDTH if gate_first else 6, seed=5)
    made = linear(x, matrix)
    expected = [
        gated_norm(x, gate, weight, 1e-5, activation, WIDTH, gate_first),
        gated_norm(made, gate, of_heads, 0.25, activation, 6, gate_first),
        gated_norm(x, made, of_heads, 1e-5, activation, 6, gate_first),
        gated_norm(x, x, None, 1e-5, activation, WIDTH, gate_first),
        gated_norm(made, made, None, 1e-5, activation, 8, gate_first),
    ]
    for threads in (1, 2):
        results = run(program, [x, gate], [weight, of_heads], threads=threads)
        assert [y.dtype for y in results] == [dtype] * 5
        assert all_equal(results, expected)
    without = run(program, [x, gate], [None, None])
    assert without[0].equal(gated_norm(x, gate, None, 1e-5, activation, WIDTH, gate_first))
    assert without[1].equal(gated_norm(made, gate, None, 0.25, activation, 6, gate_first))


@pytest.mark.parametrize(("dtype", "bound"), [*zip(TYPES, (1e-6, 2**-8, 2**-11))])
@pytest.mark.parametrize("head_dim", [0, 1, 8, WIDTH])
def test_gate_first_by_its_formula(head_dim, dtype, bound):
    """16 bits are as good as exact numbers that are rounded once."""
    program = _core.RowProgram(2)
    program.add_output(program.gated_norm(0, 1, 0, 0.5, "silu", head_dim, True))
    x, gate = (random(50, 3, WIDTH, seed=seed, dtype=dtype) for seed in (1, 2))
    weight = random(WIDTH, seed=3)
    (made,) = run(program, [x, gate], [weight])
    wide = torch.nn.functional.silu(gate.double()) * x.double()
    heads = wide.unflatten(-1, (-1, head_dim or WIDTH))
    exact = (heads / (heads.square().mean(-1, keepdim=True) + 0.5).sqrt()).flatten(-2) * weight
    assert ((made - exact).abs() <= bound * exact.abs() * (1 + 2**-10) + 1e-7).all()


@pytest.mark.parametrize("gate_first", [False, True])
@pytest.mark.parametrize(
    ("width", "head_dim"),
    [(WIDTH, 5), (WIDTH, 2 * WIDTH), (WIDTH - 1, 0), (WIDTH + 1, WIDTH), (6, 6), (2 * WIDTH, 6)],
)
def test_gates_and_heads_that_do_not_fit(width, head_dim, gate_first):
    program = _core.RowProgram(2)
    program.add_output(program.gated_norm(0, 1, -1, 1e-5, "silu", head_dim, gate_first))
    assert run(program, [random(3, WIDTH), random(3, width)]) is None


@pytest.mark.parametrize("gate_first", [False, True])
@pytest.mark.parametrize("head_dim", [0, 6, WIDTH])
def test_weights_that_do_not_fit(head_dim, gate_first):
    """With gate_first there is a number for each column, else one for each column of a head."""
    program = _core.RowProgram(2)
    program.add_output(program.gated_norm(0, 1, 0, 1e-5, "silu", head_dim, gate_first))
    values = [random(3, WIDTH), random(3, WIDTH)]
    wanted = WIDTH if gate_first or head_dim == 0 else head_dim
    for size in (1, 4, 5, 6, 7, WIDTH - 1, WIDTH, WIDTH + 1, 2 * WIDTH):
        assert (run(program, values, [random(size)]) is not None) is (size == wanted)
    for shape in ((1, wanted), (wanted, 1), (WIDTH // 6, 6)):
        assert run(program, values, [random(*shape)]) is None
    assert run(program, values, [torch.tensor(1.0)]) is None


NORM = {"x": 0, "gate": 0, "weight": -1, "eps": 1e-5, "activation": "silu", "head_dim": 0}


@pytest.mark.parametrize("gate_first", [False, True])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": -1}, "there is no value -1"),
        ({"x": 1}, "there is no value 1"),
        ({"gate": -1}, "there is no value -1"),
        ({"gate": 1}, "there is no value 1"),
        ({"weight": -2}, "there is no vector -2"),
        ({"activation": "sil"}, "activation is 'sil'"),
        ({"activation": None}, "a gated norm has no activation"),
        ({"head_dim": -8}, "head_dim is -8"),
    ],
)
def test_errors(change, message, gate_first):
    refuses({**NORM, "gate_first": gate_first}, "gated_norm", change, message)

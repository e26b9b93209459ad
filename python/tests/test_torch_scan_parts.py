"""headlane.torch: what the code of Mamba-2 may be, of several tokens and of one, and what it may not."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from delta_cases import DIM, HEADS, KEY_HEADS, VALUE_DIM, DeltaGiven, refused  # noqa: E402
from headlane.torch._scan import NO_LIMITS, RECORDED, OneToken  # noqa: E402

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
_OWN = object()


class ScanGiven(DeltaGiven):
    """What a layer with Mamba-2 has: x, B and C as heads, dt, and parameters."""

    def __init__(self, dtype=torch.float32, is_single=False):
        super().__init__(dtype, is_single=is_single)
        self.b, self.c, self.x, self.dt = self.query, self.key, self.values, self.decay
        self.d = torch.nn.Parameter(torch.ones(HEADS, dtype=dtype))

    @property
    def rate(self):
        return -torch.exp(self.vectors["a_log"].float())

    @property
    def skip(self):
        return self.graph.vector(self.d)

    @property
    def bias(self):
        return self.vectors["dt_bias"]

    def scanned(
        self, x=None, dt=None, rate=None, b=None, c=None, skip=_OWN, bias=_OWN, softplus=True, **others
    ):
        """Of several tokens."""
        given = (y if z is None else z for y, z in zip((self.x, self.dt, self.rate), (x, dt, rate)))
        b, c = (self.b if b is None else b), (self.c if c is None else c)
        options = {"D": self.skip if skip is _OWN else skip, "dt_bias": self.bias if bias is _OWN else bias}
        return RECORDED["mamba2_chunk_scan"](*given, b, c, 64, dt_softplus=softplus, **options, **others)

    def with_state(self, layer=0, **others):
        if not any(x.layer == layer and x.sizes for x in self.graph.states):
            self.continued(layer)
        return self.scanned(initial_states=self.state(layer), return_final_states=True, **others)

    def token(self, x):
        return x.view(self.sizes[0], *x.shape[2:])

    def step(self, state=_OWN, softplus=True, **changes):
        """Of one token, as models expand what belongs to a head."""
        if state is _OWN:
            self.updated()
            state = self.state()
        given = {
            "hidden_states": self.token(self.x),
            "dt": self.dt.transpose(1, 2).expand(-1, -1, VALUE_DIM),
            "A": self.rate[:, None, None].expand(-1, VALUE_DIM, DIM),
            "B": self.token(self.b),
            "C": self.token(self.c),
            "D": self.skip[:, None].expand(-1, VALUE_DIM),
            "dt_bias": self.bias[:, None].expand(-1, VALUE_DIM),
        }
        update = RECORDED["mamba2_selective_state_update"]
        return update(state, **{**given, "dt_softplus": softplus, **changes})


def check(given, node, state, limits=NO_LIMITS, skip=True):
    what = node.what
    assert node.kind == "scan"
    assert node.inputs == tuple(x._node for x in (given.c, given.b, given.x, given.dt))
    assert (what.columns, what.heads) == ((0, 0, 0), (HEADS, KEY_HEADS, DIM, VALUE_DIM))
    assert (what.a_log, what.dt_bias) == (given.a_log, given.dt_bias)
    assert what.skip is (given.d if skip else None)
    assert (what.limits, what.state) == (limits, state)
    assert (node.sizes, node.width) == (given.sizes, HEADS * VALUE_DIM)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("limits", [NO_LIMITS, (0.25, 0.5), [0.0, 1.0]])
def test_several_tokens(limits, dtype):
    given = ScanGiven(dtype)
    made = given.scanned(dt_limit=limits)
    assert made.shape == (*given.sizes, HEADS, VALUE_DIM)
    check(given, made._node, None, tuple(limits))
    check(given, given.scanned(skip=None)._node, None, skip=False)
    assert made.reshape(*given.sizes, -1).shape == (*given.sizes, HEADS * VALUE_DIM)


@pytest.mark.parametrize("dtype", DTYPES)
def test_with_a_state(dtype):
    given = ScanGiven(dtype)
    made, last = given.with_state()
    (state,) = given.graph.states
    check(given, made._node, state)
    assert state.sizes[1] == (HEADS, VALUE_DIM, DIM)
    assert state.columns_first
    assert not state.is_kept
    given.cache.update_recurrent_state(last, layer_idx=0)
    assert state.is_kept


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_token(dtype):
    given = ScanGiven(dtype, is_single=True)
    made = given.step()
    (state,) = given.graph.states
    assert type(made) is OneToken
    check(given, made.heads._node, state)
    assert state.is_kept
    assert given.graph.asks_if_single
    whole = made.view(given.sizes[0], 1, -1)
    assert whole.shape == (*given.sizes, HEADS * VALUE_DIM)
    assert whole.node is made.heads._node


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "code",
    [
        lambda g: g.scanned(softplus=False),
        lambda g: g.scanned(rate=torch.exp(g.vectors["a_log"].float())),
        lambda g: g.scanned(rate=g.vectors["a_log"]),
        lambda g: g.scanned(rate=-torch.ones(HEADS)),
        lambda g: g.scanned(bias=None),
        lambda g: g.scanned(bias=g.bias.float()),
        lambda g: g.scanned(bias=g.dt_bias),
        lambda g: g.scanned(skip=g.skip.float()),
        lambda g: g.scanned(skip=g.d),
        lambda g: g.scanned(dt=g.value(HEADS + 1)),
        lambda g: g.scanned(b=g.heads(KEY_HEADS, DIM - 1)),
        lambda g: g.scanned(b=g.heads(1, DIM)),
        lambda g: g.scanned(b=g.heads(3, DIM), c=g.heads(3, DIM)),
        lambda g: g.scanned(b=g.heads(1, 513), c=g.heads(1, 513)),
        lambda g: g.scanned(x=g.heads(HEADS, 513)),
        lambda g: g.scanned(x=g.x.transpose(1, 2)),
        lambda g: g.scanned(x=g.value(HEADS * VALUE_DIM)),
        lambda g: g.scanned(z=g.x),
        lambda g: g.scanned(seq_idx=torch.zeros(1)),
        lambda g: g.scanned(dt_limit=(-1.0, 1.0)),
        lambda g: g.scanned(dt_limit=(2.0, 1.0)),
        lambda g: g.scanned(dt_limit=(float("nan"), 1.0)),
        lambda g: g.scanned(dt_limit=(float("inf"), float("inf"))),
        lambda g: g.scanned(dt_limit=(0, 1.0)),
        # With a state.
        lambda g: g.scanned(return_final_states=True),
        lambda g: g.scanned(initial_states=g.state()),
        lambda g: g.scanned(initial_states=torch.zeros(2, HEADS, VALUE_DIM, DIM), return_final_states=True),
        lambda g: g.scanned(initial_states=g.state(), return_final_states=True),  # before the convolution
        lambda g: g.scanned(initial_states=g.cache.get_conv_state(0), return_final_states=True),
        lambda g: g.with_state()[1].shape,
        lambda g: (g.with_state(), g.with_state()),
        # Only where there is one token.
        lambda g: g.token(g.x),
        lambda g: g.dt.transpose(1, 2).expand(-1, -1, VALUE_DIM),
    ],
)
def test_others_of_several_tokens(code, dtype):
    refused(code, ScanGiven(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "code",
    [
        lambda g: g.step(softplus=False),
        lambda g: g.step(z=g.token(g.x)),
        lambda g: g.step(seq_idx=torch.zeros(1)),
        lambda g: g.step(state=g.state()),  # before the convolution
        lambda g: g.step(state=g.cache.get_conv_state(0)),
        lambda g: (g.step(), g.step(state=g.state())),
        lambda g: (g.updated(), g.step(state=g.cache.get_conv_state(0))),
        lambda g: g.step(hidden_states=g.x),
        lambda g: g.step(B=g.b),
        lambda g: g.step(C=g.c),
        lambda g: g.step(dt=g.dt),
        lambda g: g.step(dt=None),
        lambda g: g.step(dt_bias=None),
        lambda g: g.step(A=g.rate),
        lambda g: g.step(A=g.rate[:, None].expand(-1, VALUE_DIM)),
        lambda g: g.step(A=g.rate[:, None, None].expand(-1, VALUE_DIM, DIM + 1)),
        lambda g: g.step(A=g.rate[:, None, None]),
        lambda g: g.step(D=g.skip),
        lambda g: g.step(D=g.skip[:, None].expand(-1, VALUE_DIM + 1)),
        lambda g: g.step(D=g.rate[:, None].expand(-1, VALUE_DIM)),
        lambda g: g.step(dt_bias=g.bias[:, None].expand(-1, 1)),
        lambda g: g.rate[None],
        lambda g: g.rate[:],
        lambda g: g.rate[:1, None],
        lambda g: g.rate[..., None],
        lambda g: g.skip[:, None].expand(HEADS, VALUE_DIM),
        lambda g: g.skip[:, None].expand(-1, -1),
        lambda g: g.skip[:, None].expand(-1, VALUE_DIM).expand(-1, VALUE_DIM),
        lambda g: g.dt.transpose(1, 2).expand(-1, VALUE_DIM),
        lambda g: g.x.view(g.sizes[0], HEADS, VALUE_DIM).shape,
        lambda g: g.x.view(g.sizes[1], HEADS, VALUE_DIM),
        lambda g: g.x.view(g.sizes[0], HEADS + 1, VALUE_DIM),
        lambda g: g.step().view(g.sizes[0], 2, -1),
        lambda g: g.step().view(g.sizes[1], 1, -1),
        lambda g: g.step().view(g.sizes[0], 1, 7),
        lambda g: g.step().view(g.sizes[0], -1),
        lambda g: g.step().shape,
    ],
)
def test_others_of_one_token(code, dtype):
    refused(code, ScanGiven(dtype, is_single=True))

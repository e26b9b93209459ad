"""T5 models of transformers with random weights, and the tokens that they generate."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

TINY = {"vocab_size": 199, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 3}


def random_model(seed=0, ends=(1,), family="T5", own_head=None, **config):
    """A model whose weights are large enough that attention is not uniform, but not so large that rounding
    decides in deep models.

    own_head: whether the output layer differs from the embedding; by default as in the family.
    """
    torch.manual_seed(seed)
    config = getattr(transformers, f"{family}Config")(
        **{"decoder_start_token_id": 0, "eos_token_id": list(ends), "dropout_rate": 0.0, **config}
    )
    model = getattr(transformers, f"{family}ForConditionalGeneration")(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "layer_norm" in name:
                weight.uniform_(0.5, 1.5)
            elif "relative" in name:
                weight.normal_()
            elif "shared" in name:
                weight.normal_()
            else:
                # Gated layers amplify roundings at 0.9 as others at 1.2; at 1.2, 200 times more.
                deep = 0.9 if config.is_gated_act else 1.2
                scale = deep if config.num_layers > 2 else 3 if ".q." in name else 2
                weight.normal_(0, scale * weight.shape[1] ** -0.5)
        if own_head is None:
            own_head = not getattr(config, "scale_decoder_outputs", False)
        if own_head:
            head = torch.randn_like(model.shared.weight) * 3 * config.d_model**-0.5
            model.lm_head.weight = torch.nn.Parameter(head)
            model.all_tied_weights_keys.pop("lm_head.weight", None)
    return model


def inputs(vocabulary, lengths, seed=3):
    rng = np.random.default_rng(seed)
    return [[*rng.integers(2, vocabulary, n - 1).tolist(), 1] for n in lengths]


def wanted(model, ids, **options):
    """The tokens of transformers' generate() without the padding, from a batch padded on the right."""
    width = max(map(len, ids))
    padded = torch.tensor([row + [0] * (width - len(row)) for row in ids])
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in ids])
    outputs = model.generate(padded, attention_mask=mask, **options).tolist()
    ends = model.generation_config.eos_token_id
    result = []
    for row in outputs:
        places = [i for i, token in enumerate(row) if i > 0 and token in ends]
        result.append(row[: places[0] + 1] if places else row)
    return result

"""T5 beside transformers: logits, and the tokens of generate(), of random models of all shapes."""

import json

import headlane
import numpy as np
import pytest
from random_t5 import TINY, inputs, random_model, torch, transformers, wanted

models = pytest.importorskip("headlane.models", reason="headlane was built without its models")

SMALL = {"d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_heads": 8}
BASE = {"d_model": 768, "d_kv": 64, "d_ff": 3072, "num_layers": 12, "num_heads": 12}
GATED = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
SHAPES = {
    "tiny": TINY,
    "tiny, 1.1": {
        **TINY,
        **GATED,
        "d_kv": 16,
        "num_decoder_layers": 1,
        "relative_attention_max_distance": 30,
    },
    "small": SMALL,
    "small, 1.1": {**SMALL, **GATED, "d_ff": 1024, "num_heads": 6, "num_layers": 8},
    "base": BASE,
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    made = {}

    def get(name, **more):
        key = (name, *sorted(more.items()))
        if key not in made:
            folder = tmp_path_factory.mktemp("t5")
            model = random_model(**SHAPES[name], **more)
            model.save_pretrained(folder)
            made[key] = model, models.T5(folder)
        return made[key]

    return get


@pytest.mark.parametrize("name", SHAPES)
def test_logits_are_as_exact_as_those_of_transformers(saved, name, report):
    model, t5 = saved(name)
    error, theirs, worst, theirs_worst = 0.0, 0.0, 0.0, 0.0
    vocabulary = t5.config.vocab_size
    for seed in range(4 if name.startswith("tiny") else 1):
        ids = inputs(vocabulary, [40], seed)[0]
        output = [0, *inputs(vocabulary, [36], seed + 10)[0]]
        given = {"input_ids": torch.tensor([ids]), "decoder_input_ids": torch.tensor([output])}
        with torch.no_grad():
            single = model.float()(**given).logits[0].numpy()
            exact = model.double()(**given).logits[0].numpy()
            model.float()
        got = t5.logits(ids, output)
        assert got.shape == exact.shape
        error += np.square(got - exact).sum()
        theirs += np.square(single - exact).sum()
        worst = max(worst, np.abs(got - exact).max())
        theirs_worst = max(theirs_worst, np.abs(single - exact).max())
    report(
        f"T5 {name}: logits' error / transformers': {(error / theirs) ** 0.5:.2f}, "
        f"the largest {worst / theirs_worst:.2f}"
    )
    # Twice theirs; three times for 24 layers of random weights, which amplify single roundings.
    times = 3 if name == "base" else 2
    assert error <= times**2 * theirs
    assert worst <= times * theirs_worst


# Folders of the family, which differ in how they tell whether the decoder's output is scaled: the
# model, then members of config.json as other versions of transformers write them (None: absent).
VERSIONS_4 = {"tie_word_embeddings": False, "scale_decoder_outputs": None}
FOLDERS = {
    "T5": ({}, {}),
    "T5, version 4": ({}, {"tie_word_embeddings": None, "scale_decoder_outputs": None}),
    "T5 1.1": (GATED, {}),
    "T5 1.1, version 4": (GATED, VERSIONS_4),
    "T5 1.1, both said": (GATED, {"tie_word_embeddings": False, "scale_decoder_outputs": True}),
    "T5, null": ({}, {"tie_word_embeddings": None, "scale_decoder_outputs": False}),
    "T5, a large epsilon": ({"layer_norm_epsilon": 0.5}, {}),
    "mT5": ({"family": "MT5"}, {}),
    "mT5, tied": ({"family": "MT5", "own_head": False}, {}),
    "mT5, version 4": ({"family": "MT5"}, VERSIONS_4),
    "mT5, version 4, tied": ({"family": "MT5", "own_head": False}, {"scale_decoder_outputs": None}),
    "mT5, scaled in vain": ({"family": "MT5"}, {"scale_decoder_outputs": True}),
    "mT5, feed-forward not said": ({"family": "MT5"}, {"feed_forward_proj": None}),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_scaled_as_transformers_scales(tmp_path, name):
    made, members = FOLDERS[name]
    random_model(ends=range(1, 199, 10), **TINY, **made).save_pretrained(tmp_path)
    config = {**json.loads((tmp_path / "config.json").read_text()), **members}
    config = {key: value for key, value in config.items() if key not in members or value is not None}
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    t5, ids = models.T5(tmp_path), inputs(199, [40, 3, 17, 8])
    output = [0, *inputs(199, [20])[0]]
    with torch.no_grad():
        given = {"input_ids": torch.tensor(ids[:1]), "decoder_input_ids": torch.tensor([output])}
        expected = model(**given).logits[0].numpy()
    assert np.abs(t5.logits(ids[0], output) - expected).max() < 1e-3 * np.abs(expected).max()
    for options in ({"num_beams": 1}, {"num_beams": 4}):
        assert t5.generate(ids, max_length=20, **options) == wanted(model, ids, max_length=20, **options)


def test_other_members_of_the_family_are_refused(tmp_path):
    """UMT5 has a relative bias in every layer."""
    random_model(family="UMT5", **TINY).save_pretrained(tmp_path)
    with pytest.raises(models.CheckpointError, match="'model_type' is 'umt5'"):
        models.T5(tmp_path)


def test_states_of_the_encoder(saved):
    model, t5 = saved("tiny")
    ids = inputs(199, [50])[0]
    with torch.no_grad():
        expected = model.encoder(torch.tensor([ids])).last_hidden_state[0].numpy()
    np.testing.assert_allclose(t5.encode(ids), expected, atol=1e-4)


OPTIONS = {
    "greedy": {},
    "greedy, no 2-gram twice": {"no_repeat_ngram_size": 2, "min_length": 9},
    "4 beams": {"num_beams": 4},
    "4 beams, all finished": {"num_beams": 4, "early_stopping": True},
    "3 beams, to the end": {"num_beams": 3, "early_stopping": "never"},
    "long": {"num_beams": 4, "length_penalty": 2.0, "early_stopping": "never"},
    "short": {"num_beams": 4, "length_penalty": -1.0},
    "no penalty": {"num_beams": 2, "length_penalty": 0.0},
    "5 beams, no token twice": {"num_beams": 5, "no_repeat_ngram_size": 1},
    "min length": {"num_beams": 4, "min_length": 12, "no_repeat_ngram_size": 3, "early_stopping": True},
}


@pytest.mark.parametrize("name", ["tiny", "tiny, 1.1"])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_tokens_of_generate(saved, name, options):
    for seed in range(3):
        model, t5 = saved(name, ends=range(1, 199, 10), seed=seed)
        ids = inputs(199, [3, 17, 1, 30, 8], seed)
        expected = wanted(model, ids, max_length=24, **options)
        assert t5.generate(ids, max_length=24, **options) == expected
        assert [t5.generate([row], max_new_tokens=23, **options)[0] for row in ids] == expected


@pytest.mark.parametrize(("name", "length"), [("small", 24), ("small, 1.1", 24), ("base", 10)])
def test_tokens_of_large_models(saved, name, length):
    model, t5 = saved(name)
    ids = inputs(t5.config.vocab_size, [12, 25] if name != "base" else [12])
    # The one of 12 layers would say the same token again and again.
    more = {"no_repeat_ngram_size": 1} if name == "base" else {}
    for options in (more, {"num_beams": 4, **more}):
        expected = wanted(model, ids, max_length=length, **options)
        assert t5.generate(ids, max_length=length, **options) == expected
        assert len({token for row in expected for token in row}) > 2  # not always the same


def test_more_decoder_layers_than_encoder_layers(tmp_path):
    model = random_model(**TINY, num_decoder_layers=4)
    model.save_pretrained(tmp_path)
    ids = inputs(199, [9])
    # transformers' cache has as many layers as the encoder.
    expected = wanted(model, ids, max_length=15, num_beams=3, use_cache=False)
    assert models.T5(tmp_path).generate(ids, max_length=15, num_beams=3) == expected


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_in_several_files(tmp_path, dtype):
    model = random_model(**TINY, **GATED).to(getattr(torch, dtype))
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    ids = inputs(199, [9, 4])
    assert models.T5(tmp_path).generate(ids, num_beams=2) == wanted(model.float(), ids, num_beams=2)


def test_the_defaults_are_those_of_generate(tmp_path):
    model = random_model(**TINY)
    model.generation_config.update(num_beams=3, max_new_tokens=11, length_penalty=0.7, early_stopping=True)
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["task_specific_params"] = {
        "translation_a_to_b": {"prefix": "a b: ", "num_beams": 2, "max_length": 9}
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    t5, ids = models.T5(tmp_path), inputs(199, [9, 4])
    assert t5.generate(ids) == wanted(model, ids)
    assert t5.defaults()["max_length"] == 12
    assert t5.config.tasks == {"translation_a_to_b": "a b: "}
    expected = wanted(model, ids, num_beams=2, max_length=9, max_new_tokens=None)
    assert t5.generate(ids, task="translation_a_to_b") == expected


def test_the_same_tokens_everywhere(saved, restore):
    _, t5 = saved("tiny, 1.1")
    ids = inputs(199, [9, 4])
    expected, logits = t5.generate(ids, num_beams=4), t5.logits(ids[0], [0, 5, 9])
    for isa in headlane.available_isas():
        headlane.set_isa(isa)
        for threads in (1, 3):
            assert t5.generate(ids, num_beams=4, num_threads=threads) == expected
            assert t5.logits(ids[0], [0, 5, 9], num_threads=threads).tobytes() == logits.tobytes()


def test_errors(saved, tmp_path):
    _, t5 = saved("tiny")
    for ids, options, message in [
        ([[1], []], {}, "input 1 has no tokens"),
        ([[199]], {}, "token 199"),
        ([[1]], {"num_beams": 0}, "num_beams is 0"),
        ([[1]], {"max_length": 1}, "max_length is 1"),
        ([[1]], {"early_stopping": "maybe"}, "early_stopping"),
        ([[1]], {"max_length": 5, "max_new_tokens": 5}, "max_new_tokens"),
        ([[1]], {"num_threads": -1}, "num_threads"),
    ]:
        with pytest.raises(ValueError, match=message):
            t5.generate(ids, **options)
    with pytest.raises(TypeError, match="temperature"):
        t5.generate([[1]], temperature=2)
    with pytest.raises(TypeError, match="ids"):
        t5.generate("text")
    with pytest.raises(ValueError, match="no task"):
        t5.generate([[1]], task="translation_a_to_b")
    with pytest.raises(models.CheckpointError, match=r"config\.json"):
        models.T5(tmp_path)

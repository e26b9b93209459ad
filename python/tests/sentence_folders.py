"""Folders as versions 2 to 6 of sentence-transformers write them, read by it and by headlane."""

import json
import shutil

import numpy as np
import pytest

models = pytest.importorskip("headlane.models", reason="headlane was built without its models")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")
tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
sentence_transformers = pytest.importorskip(
    "sentence_transformers", reason="sentence-transformers is not installed"
)

LONG = "A second train to Basel was late again this morning, says the Newspaper; nobody knows WHY it froze over. "
TEXTS = [
    "The cat sits on the mat.",
    "Größer, naïve and coöperative: ZÜRICH travelled to 東京",
    "",
    "A [SEP] in the middle, and ☃",
    "Nobody",
    LONG,
    LONG * 4,
]
POSITIONS = 64
SPECIAL = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
FLAGS = {
    "cls": "pooling_mode_cls_token",
    "mean": "pooling_mode_mean_tokens",
    "max": "pooling_mode_max_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}
POOLINGS = [[mode] for mode in FLAGS] + [["cls", "max"], ["mean", "lasttoken", "weightedmean"], list(FLAGS)]


def save_plain(folder):
    """A random BERT with a tokenizer of its own, that tells cases apart, as transformers saves
    them.
    """
    splits = tokenizers.pre_tokenizers.BertPreTokenizer()
    prompts = ["query: ", "passage: ", "search for this"]
    pieces = set()
    for text in [*TEXTS, *(text.lower() for text in TEXTS), *prompts]:
        for word, _ in splits.pre_tokenize_str(text):
            pieces.update(word, [word[:3]], ("##" + letter for letter in word))
            pieces.update("##" + word[i : i + n] for i in range(1, len(word)) for n in (1, 2))
    known = [*SPECIAL.values(), *sorted(pieces - {"☃", "##☃"})]
    tokenizer = transformers.BertTokenizer(
        vocab={piece: i for i, piece in enumerate(known)}, do_lower_case=False, model_max_length=POSITIONS
    )
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(tokenizer), hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40,
        max_position_embeddings=POSITIONS, initializer_range=0.4,
    )  # fmt: skip
    transformers.BertModel(config).save_pretrained(folder)


def change(file, members):
    """Members of a JSON file replaced or added, or with "-" taken away."""
    settings = json.loads(file.read_text("utf-8")) if file.exists() else {}
    settings.update(members)
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({key: value for key, value in settings.items() if value != "-"}))


def make(folder, plain, version, *, poolings=("mean",), normalize=False, pooling=None, settings=None, **more):
    """The folder as this version writes it. more: members of other files by their names, "_" for
    ".".
    """
    shutil.copytree(plain, folder, dirs_exist_ok=True)
    kinds = [("Transformer", "" if version > 2 else "0_Transformer"), ("Pooling", "1_Pooling")]
    kinds += [("Normalize", "2_Normalize")] if normalize else []
    packages = {
        "Transformer": "base.modules.transformer",
        "Pooling": "sentence_transformer.modules.pooling",
        "Normalize": "base.modules.normalize",
    }
    modules = [
        {
            "idx": i,
            "name": str(i),
            "path": path,
            "type": f"sentence_transformers.{packages[kind] if version == 6 else 'models'}.{kind}",
        }
        for i, (kind, path) in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    transformer = folder / kinds[0][1]
    if version == 2:  # the model in a folder of its own, as the first ones have it
        transformer.mkdir()
        for file in plain.iterdir():
            (folder / file.name).rename(transformer / file.name)
    if version == 6:
        modes = poolings[0] if len(poolings) == 1 else list(poolings)
        how = {"embedding_dimension": 24, "pooling_mode": modes, "include_prompt": True}
        text = {"method": "forward", "method_output_name": "last_hidden_state"}
        bert = {
            "transformer_task": "feature-extraction",
            "modality_config": {"text": text},
            "module_output_name": "token_embeddings",
        }
        change(folder / "2_Normalize/config.json", {"module_input_name": "sentence_embedding"})
    else:
        known = list(FLAGS)[: 4 if version == 2 else 6]
        how = {"word_embedding_dimension": 24, **{FLAGS[mode]: mode in poolings for mode in known}}
        how.update({FLAGS[mode]: True for mode in poolings})
        bert = {"max_seq_length": 40, "do_lower_case": False}
    change(folder / "1_Pooling/config.json", {**how, **(pooling or {})})
    change(transformer / "sentence_bert_config.json", bert)
    written = {"__version__": {"sentence_transformers": f"{version}.0.0"}}
    if version > 2:
        written.update({"prompts": {}, "default_prompt_name": None, "similarity_fn_name": "cosine"})
    if version == 6:
        written["model_type"] = "SentenceTransformer"
    change(folder / "config_sentence_transformers.json", {**written, **(settings or {})})
    for name, members in more.items():
        change(transformer / f"{name}.json", members)
    return folder


class Pair:
    """A folder read by both."""

    def __init__(self, folder):
        self.theirs = sentence_transformers.SentenceTransformer(
            str(folder), device="cpu", local_files_only=True
        )
        self.ours = models.SentenceEncoder(folder)

    def check(self, texts=TEXTS, *, normalize=None, **prompt):
        """Checks that both return the same vectors, and returns them."""
        expected = self.theirs.encode(
            texts, normalize_embeddings=bool(normalize), show_progress_bar=False, **prompt
        )
        got = self.ours.encode(texts, normalize=normalize, **prompt)
        assert got.shape == expected.shape
        np.testing.assert_allclose(got, expected, rtol=0, atol=3e-5 * np.abs(expected).max())
        return got


def check(folder, texts=TEXTS, **options):
    return Pair(folder).check(texts, **options)

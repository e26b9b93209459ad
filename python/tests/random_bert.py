"""BERT models of transformers with random weights, and their states."""

import importlib

import numpy as np
import pytest

SMALL = {
    "vocab_size": 120,
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 100,
    "max_position_embeddings": 80,
    "initializer_range": 0.2,  # large, so that attention is not uniform
}


def random_ids(count=48, low=1, high=80, vocabulary=120, seed=0):
    random = np.random.default_rng(seed)
    return [random.integers(0, vocabulary, random.integers(low, high + 1)).tolist() for _ in range(count)]


def made(folder, **changes):
    """A BertModel of transformers with random weights, saved in the folder."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(0)
    model = transformers.BertModel(transformers.BertConfig(**{**SMALL, **changes})).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():  # biases begin as 0, norms as 1
            if name.endswith("bias") or "LayerNorm" in name:
                parameter.add_(torch.randn_like(parameter), alpha=0.2)
    model.save_pretrained(folder)
    return model


def states_of(model, ids, types=None):
    """transformers' last hidden states, sentence by sentence."""
    torch = importlib.import_module("torch")
    result = []
    with torch.no_grad():
        for s, sentence in enumerate(ids):
            type_ids = None if types is None else torch.tensor([types[s]])
            result.append(
                model(input_ids=torch.tensor([sentence]), token_type_ids=type_ids)
                .last_hidden_state[0]
                .numpy()
            )
    return result

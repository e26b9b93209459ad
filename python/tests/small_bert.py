"""A small BERT with random weights, written without PyTorch."""

import json
import struct

import numpy as np


def write_model(folder, config, tensors):
    """A folder with these arrays of float32."""
    header, data = {}, b""
    for name, tensor in tensors.items():
        header[name] = {
            "dtype": "F32",
            "shape": tensor.shape,
            "data_offsets": [len(data), len(data) + tensor.nbytes],
        }
        data += tensor.tobytes()
    text = json.dumps(header).encode()
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


def write_bert(folder, layers=4, d=64, vocabulary=100):
    """A model with random weights, without PyTorch."""
    config = {
        "model_type": "bert",
        "vocab_size": vocabulary,
        "hidden_size": d,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "intermediate_size": 4 * d,
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
    }
    rng = np.random.default_rng(0)
    tensors = {}

    def add(name, *shape):
        tensors[name] = rng.standard_normal(shape, np.float32) * 0.05

    for name, rows in (("word", vocabulary), ("position", 512), ("token_type", 2)):
        add(f"embeddings.{name}_embeddings.weight", rows, d)
    norms = ["embeddings.LayerNorm"]
    for i in range(layers):
        layer = f"encoder.layer.{i}."
        widths = {
            "attention.self.query": (d, d),
            "attention.self.key": (d, d),
            "attention.self.value": (d, d),
        }
        widths.update(
            {"attention.output.dense": (d, d), "intermediate.dense": (4 * d, d), "output.dense": (d, 4 * d)}
        )
        for name, shape in widths.items():
            add(f"{layer}{name}.weight", *shape)
            add(f"{layer}{name}.bias", shape[0])
        norms += [f"{layer}attention.output.LayerNorm", f"{layer}output.LayerNorm"]
    for name in norms:
        add(f"{name}.weight", d)
        add(f"{name}.bias", d)
    write_model(folder, config, tensors)

"""A small T5 with random weights, written without PyTorch."""

import numpy as np
from small_bert import write_model


def write_t5(folder, layers=2, d=64, vocabulary=100):
    """An encoder and a decoder of so many layers each."""
    config = {
        "model_type": "t5",
        "vocab_size": vocabulary,
        "d_model": d,
        "d_kv": d // 4,
        "d_ff": 4 * d,
        "num_layers": layers,
        "num_heads": 4,
        "decoder_start_token_id": 0,
        "eos_token_id": 1,
        "pad_token_id": 0,
    }
    rng = np.random.default_rng(0)
    tensors = {"shared.weight": rng.standard_normal((vocabulary, d), np.float32) * 0.05}
    for stack, attentions in (
        ("encoder", ["SelfAttention"]),
        ("decoder", ["SelfAttention", "EncDecAttention"]),
    ):
        for i in range(layers):
            block = f"{stack}.block.{i}.layer."
            matrices = {f"{at}.{name}.{x}": (d, d) for at, name in enumerate(attentions) for x in "qkvo"}
            last = len(attentions)
            matrices |= {f"{last}.DenseReluDense.wi": (4 * d, d), f"{last}.DenseReluDense.wo": (d, 4 * d)}
            for name, shape in matrices.items():
                tensors[f"{block}{name}.weight"] = rng.standard_normal(shape, np.float32) * 0.05
            for at in range(last + 1):
                tensors[f"{block}{at}.layer_norm.weight"] = np.ones(d, np.float32)
        bias = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        tensors[bias] = rng.standard_normal((32, 4), np.float32)
        tensors[f"{stack}.final_layer_norm.weight"] = np.ones(d, np.float32)
    write_model(folder, config, tensors)

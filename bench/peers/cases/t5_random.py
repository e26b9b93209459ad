"""`python -m peers.cases.t5_random SHAPE FOLDER`: makes a T5 with random weights from a fixed seed.

Writes FOLDER/huggingface as transformers saves it, and FOLDER/ctranslate2 and FOLDER/ctranslate2-int8 if
that library is installed. Speed does not depend on the weights, so none need to be downloaded."""

from __future__ import annotations

import sys
from pathlib import Path

from .models import T5_SHAPES, VOCABULARY, Shape

# With transformers' own random weights every output is one token again and again: its embedding,
# which the output layer shares, outweighs all that layers add. So feed-forward layers add more, and
# nothing that is the same for every token: relu leaves numbers whose mean is not 0, and rows of
# mean 0 pass over that.
GAIN = 32.0


def model_of(shape: Shape):
    import torch
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(1)
    config = T5Config(
        vocab_size=VOCABULARY,
        d_model=shape.d_model,
        d_kv=shape.d_kv,
        d_ff=shape.d_ff,
        num_layers=shape.layers,
        num_decoder_layers=shape.layers,
        num_heads=shape.heads,
        decoder_start_token_id=0,
        pad_token_id=0,
        eos_token_id=1,
    )
    model = T5ForConditionalGeneration(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(".wo.weight"):
                weight.copy_((weight - weight.mean(1, keepdim=True)) * GAIN)
    return model


def convert(model, folder: Path) -> None:
    """As CTranslate2's converter does, which asks for a tokenizer besides."""
    from ctranslate2.converters.transformers import T5Loader

    for name, quantization in (("ctranslate2", None), ("ctranslate2-int8", "int8")):
        spec = T5Loader().get_model_spec(model)
        tokens = ["<pad>", "</s>", "<unk>", *(f"t{i}" for i in range(3, VOCABULARY))]
        spec.register_source_vocabulary(tokens)
        spec.register_target_vocabulary(tokens)
        config = spec.config
        config.bos_token, config.eos_token, config.unk_token = tokens[0], tokens[1], tokens[2]
        config.decoder_start_token = tokens[0]
        spec.validate()
        spec.optimize(quantization=quantization)
        target = folder / name
        target.mkdir(parents=True, exist_ok=True)
        spec.save(str(target))


def main() -> None:
    shape, folder = T5_SHAPES[sys.argv[1]], Path(sys.argv[2])
    model = model_of(shape)
    model.save_pretrained(folder / "huggingface", max_shard_size="20GB")
    try:
        convert(model, folder)
    except ImportError as error:
        print(f"without CTranslate2: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()

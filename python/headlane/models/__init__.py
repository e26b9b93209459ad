"""Whole models, from Hugging Face folders: config.json, weights in safetensors, tokenizer; and the weights
of any model, from safetensors and GGUF files.

    encoder = headlane.models.SentenceEncoder(folder)
    embeddings = encoder.encode(["The cat sits on the mat.", "A feline rests on a rug."])
    translator = headlane.models.Translator(other_folder)
    print(translator.translate("The cat sits on the mat."))
    weight = headlane.models.GgufFile(file).pack("blk.0.ffn_up.weight")
    y = headlane.linear(x, weight)

Weights are read without PyTorch and transformers. Results are float32 and bit-identical on every
instruction set, for every number of threads, alone and in a batch. A model is immutable: any number of
threads may use it, and a copy of it is itself. Computations release the GIL; a signal (Ctrl-C) ends a
call within the time of one layer.
"""

from __future__ import annotations

from .. import _core

if not hasattr(_core, "CheckpointError"):
    raise ImportError("headlane was built without its models: build it with -DHEADLANE_BUILD_MODELS=ON")

from .._core import CheckpointError
from ._bert import Bert, BertConfig
from ._sentence_encoder import SentenceEncoder
from ._stored import Checkpoint, GgufFile
from ._t5 import T5, T5Config
from ._translator import Translator

__all__ = [
    "T5",
    "Bert",
    "BertConfig",
    "Checkpoint",
    "CheckpointError",
    "GgufFile",
    "SentenceEncoder",
    "T5Config",
    "Translator",
]
for _name in __all__:
    globals()[_name].__module__ = __name__  # where users find them

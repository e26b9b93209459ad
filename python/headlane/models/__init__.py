"""Whole models, read from a folder of Hugging Face: config.json, weights in safetensors, tokenizer.

    encoder = headlane.models.SentenceEncoder(folder)
    embeddings = encoder.encode(["The cat sits on the mat.", "A feline rests on a rug."])
    translator = headlane.models.Translator(other_folder)
    print(translator.translate("The cat sits on the mat."))

Weights are read without PyTorch or transformers. Results are float32, the same bits for every instruction set and number of threads,
alone and in a batch. A model never changes, and any number of threads may use it at the same time: computations release the GIL.
"""

from __future__ import annotations

from .. import _core

if not hasattr(_core, "CheckpointError"):
    raise ImportError("headlane was built without its models: build it with -DHEADLANE_BUILD_MODELS=ON")

from .._core import CheckpointError
from ._bert import Bert, BertConfig, SentenceEncoder
from ._t5 import T5, T5Config, Translator

for _class in (T5, Bert, BertConfig, CheckpointError, SentenceEncoder, T5Config, Translator):
    _class.__module__ = __name__  # where users find them
__all__ = ["T5", "Bert", "BertConfig", "CheckpointError", "SentenceEncoder", "T5Config", "Translator"]

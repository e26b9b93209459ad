"""Runs one library on whole models: `python -m peers.workers.models KEY THREADS`. Speaks the protocol of
operations.py, where prepare takes a folder, a file of token ids and, for sentences of different lengths, a
file of these, and the command load, which times loading a model."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from time import perf_counter

import numpy as np

from ..routes import checkpoint, models, sentences
from . import operations

ROUTES = {
    "t5-headlane": models.HeadlaneT5,
    "t5-headlane-weights-int8": partial(models.HeadlaneT5, **models.WEIGHTS_INT8),
    "t5-headlane-int8": partial(models.HeadlaneT5, **models.INT8),
    "t5-ctranslate2": models.CTranslate2,
    "t5-ctranslate2-int8": models.CTranslate2Int8,
    "t5-transformers": models.TransformersT5,
    "minilm-headlane": models.HeadlaneBert,
    "minilm-headlane-weights-int8": partial(models.HeadlaneBert, **models.WEIGHTS_INT8),
    "minilm-headlane-int8": partial(models.HeadlaneBert, **models.INT8),
    "minilm-transformers": models.TransformersBert,
    "minilm-truth": models.TransformersBert64,
    "minilm-compiled": models.TransformersBertCompiled,
    "minilm-onnxruntime": models.OnnxRuntimeBert,
    "minilm-openvino": models.OpenVinoBert,
    "sentences-headlane": sentences.Headlane,
    "sentences-headlane-weights-int8": partial(sentences.Headlane, **models.WEIGHTS_INT8),
    "sentences-headlane-int8": partial(sentences.Headlane, **models.INT8),
    "sentences-transformers": sentences.Transformers,
    "sentences-transformers-by-length": sentences.TransformersByLength,
    "sentences-compiled": sentences.TransformersCompiled,
    "sentences-compiled-by-length": sentences.TransformersCompiledByLength,
    "sentences-truth": sentences.Transformers64,
    "sentences-onnxruntime": sentences.OnnxRuntime,
    "sentences-onnxruntime-by-length": sentences.OnnxRuntimeByLength,
    "sentences-openvino": sentences.OpenVino,
    "sentences-openvino-by-length": sentences.OpenVinoByLength,
}


def seconds(call) -> tuple[float, object]:
    begin = perf_counter()
    made = call()
    return perf_counter() - begin, made


def inputs(arguments: dict[str, str]) -> np.ndarray | list[np.ndarray]:
    """Token ids, int64 [batch, tokens], or [tokens] of each sentence."""
    ids = np.fromfile(arguments["ids"], np.int64)
    if "lengths" not in arguments:
        return ids.reshape(int(arguments["batch"]), -1)
    return np.split(ids, np.cumsum(np.fromfile(arguments["lengths"], np.int64))[:-1])


class ModelWorker(operations.Worker):
    def answer(self, command: str, arguments: dict[str, str]) -> str:
        if command == "prepare":
            self.job = None
            self.job = self.route.job(Path(arguments["folder"]), inputs(arguments))
            return ""
        if command == "load":
            return " ".join(f"{time:.9g}" for time in self.load(Path(arguments["folder"])))
        return super().answer(command, arguments)

    def load(self, folder: Path) -> list[float]:
        """Seconds to load the model and, for headlane, to read its file and to pack its matrices."""
        took, model = seconds(lambda: self.route.load(folder))
        del model
        if not hasattr(self.route, "pack"):
            return [took]
        read = read_file(checkpoint.file_of(folder / "huggingface"))
        tensors = checkpoint.read(folder / "huggingface")
        packed, _ = seconds(lambda: self.route.pack(checkpoint.matrices(tensors)))
        return [took, read, packed]


def read_file(path: Path) -> float:
    """Seconds to copy the file into memory whose pages are there already."""
    buffer = np.ones(path.stat().st_size, np.uint8)
    with path.open("rb", buffering=0) as stream:
        begin, place = perf_counter(), 0
        while place < len(buffer):  # one read gives 2 GiB at most
            place += stream.readinto(memoryview(buffer)[place:])
        return perf_counter() - begin


if __name__ == "__main__":
    operations.end_with_parent()
    ModelWorker(ROUTES[sys.argv[1]](int(sys.argv[2]))).serve()

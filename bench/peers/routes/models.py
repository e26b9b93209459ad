"""The contenders on whole models. Each makes a Job from the model's folder and token ids, int64 [batch,
tokens]; a process imports one library."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..cases.models import NEW_TOKENS
from . import checkpoint, compiled, graph_onnx, graph_openvino
from .eager import Torch
from .job import Job

BERT_HEADS, BERT_EPS = 12, 1e-12
WEIGHTS_INT8 = {"weights": "int8"}  # of headlane's models
INT8 = {**WEIGHTS_INT8, "activations": "int8"}


class HeadlaneT5:
    """The only place that knows how headlane's T5 is called."""

    def __init__(self, threads: int, **types: str) -> None:
        import headlane
        import headlane.models

        self.library, self.threads, self.types = headlane, threads, types
        headlane.set_num_threads(threads)
        self.about = f"version={headlane.__version__}\tisa={headlane.isa()}"

    def load(self, folder: Path):
        return self.library.models.T5(folder / "huggingface", **self.types)

    def pack(self, matrices: list[np.ndarray]):
        """As the model does, in the order [in, out]."""
        dtype = self.types.get("weights", "float32")
        return [self.library.PackedMatrix(matrix.T, dtype=dtype) for matrix in matrices]

    def job(self, folder: Path, ids: np.ndarray) -> Job:
        model, inputs = self.load(folder), ids.tolist()
        length = NEW_TOKENS + 1  # the start token counts
        options = {"num_beams": 1, "max_length": length, "min_length": length, "num_threads": self.threads}
        return Job(lambda: model.generate(inputs, **options), new_tokens)


class HeadlaneBert:
    """The only place that knows how headlane's encoder is called."""

    def __init__(self, threads: int, **types: str) -> None:
        import headlane
        import headlane.models

        self.library, self.threads, self.types = headlane, threads, types
        headlane.set_num_threads(threads)
        self.about = f"version={headlane.__version__}\tisa={headlane.isa()}"

    def job(self, folder: Path, ids: np.ndarray) -> Job:
        model, inputs = self.model(folder), ids.tolist()
        return Job(lambda: model.encode(inputs, num_threads=self.threads), np.stack)

    def model(self, folder: Path):
        return self.library.models.Bert(folder, **self.types)


def new_tokens(rows) -> np.ndarray:
    """Without the start token, which some give."""
    return np.array([list(row)[-NEW_TOKENS:] for row in rows], np.int64)


class CTranslate2:
    kind, folder = "float32", "ctranslate2"

    def __init__(self, threads: int) -> None:
        import ctranslate2

        self.library, self.threads = ctranslate2, threads
        self.about = f"version={ctranslate2.__version__}"

    def load(self, folder: Path):
        return self.library.Translator(
            str(folder / self.folder),
            device="cpu",
            compute_type=self.kind,
            inter_threads=1,
            intra_threads=self.threads,
        )

    def job(self, folder: Path, ids: np.ndarray) -> Job:
        model = self.load(folder)
        names = ["<pad>", "</s>", "<unk>"]
        inputs = [[names[i] if i < 3 else f"t{i}" for i in row] for row in ids]
        options = {"beam_size": 1, "max_decoding_length": NEW_TOKENS, "min_decoding_length": NEW_TOKENS}

        def result(made):
            numbers = {name: i for i, name in enumerate(names)}
            return new_tokens(
                [numbers[t] if t in numbers else int(t[1:]) for t in one.hypotheses[0]] for one in made
            )

        return Job(lambda: model.translate_batch(inputs, **options), result)


class CTranslate2Int8(CTranslate2):
    kind, folder = "int8", "ctranslate2-int8"


class TransformersT5(Torch):
    def load(self, folder: Path):
        from transformers import T5ForConditionalGeneration

        return T5ForConditionalGeneration.from_pretrained(
            folder / "huggingface", dtype=self.torch.float32
        ).eval()

    def job(self, folder: Path, ids: np.ndarray) -> Job:
        model, (inputs,) = self.load(folder), self.tensors(ids)
        length = NEW_TOKENS + 1
        options = {"num_beams": 1, "do_sample": False, "max_length": length, "min_length": length}
        options["attention_mask"] = self.torch.ones_like(inputs)

        def call():
            with self.torch.inference_mode():
                return model.generate(inputs, **options)

        return Job(call, lambda made: new_tokens(made.tolist()))


class TransformersBert(Torch):
    """SDPA attention; without the pooler, which nobody computes."""

    kind = "float32"

    def model(self, folder: Path):
        from transformers import BertModel

        kind = getattr(self.torch, self.kind)
        return BertModel.from_pretrained(
            folder, dtype=kind, attn_implementation="sdpa", add_pooling_layer=False
        ).eval()

    def job(self, folder: Path, ids: np.ndarray) -> Job:
        model, (inputs,) = self.model(folder), self.tensors(ids)

        def call():
            with self.torch.inference_mode():
                return model(input_ids=inputs).last_hidden_state

        return Job(call, lambda made: made.numpy())


class TransformersBert64(TransformersBert):
    """The truth."""

    kind = "float64"


class TransformersBertCompiled(TransformersBert):
    """torch.compile, weights frozen."""

    dynamic = False  # one shape

    def model(self, folder: Path):
        return self.torch.compile(super().model(folder), dynamic=self.dynamic)


class OnnxRuntimeBert(compiled.OnnxRuntime):
    """Microsoft's fused nodes, which the optimizer for transformers would find in an exported model."""

    def job(self, folder, ids):  # not the job of nodes, which it uses
        tensors = checkpoint.read(folder)
        graph = graph_onnx.Graph(self.onnx.helper.make_node, BERT_HEADS, BERT_EPS)
        self.states(graph, tensors, graph.constant(positions(tensors, ids.shape[1])), "out")
        out = np.full((*ids.shape, tensors[f"{WORDS}.weight"].shape[1]), np.nan, np.float32)
        feeds = {"ids": ids, **graph.constants}
        return super().job(graph.nodes, feeds, out, constants=tuple(graph.constants))

    def states(self, graph, tensors, places, result=""):
        """Of the last layer, for the input "ids"; `places` are their positions()."""
        words = graph.node("Gather", [graph.constant(tensors[f"{WORDS}.weight"]), "ids"])
        x = graph.norm(graph.node("Add", [words, places]), *embedding_norm(tensors))
        weights, count = checkpoint.bert_layers(tensors), layers_of(tensors)
        for i in range(count):
            x = graph.encoder_layer(x, weights, result if i == count - 1 else "", f"{i}.")
        return x


class OpenVinoBert(compiled.OpenVino):
    def job(self, folder, ids):
        tensors, parameter = checkpoint.read(folder), self.parameter(ids)
        graph = graph_openvino.Graph(self.ops, BERT_HEADS, BERT_EPS)
        places = self.ops.constant(positions(tensors, ids.shape[1]))
        x = self.states(graph, tensors, parameter, places)
        out = np.full((*ids.shape, tensors[f"{WORDS}.weight"].shape[1]), np.nan, np.float32)
        return super().job(x, [parameter], [ids], out)

    def states(self, graph, tensors, ids, places):
        """Of the last layer; `places` are the positions() of the ids."""
        ops, words = self.ops, np.array(tensors[f"{WORDS}.weight"])
        x = ops.gather(ops.constant(words), ids, ops.constant(np.int64(0)))
        x = graph.norm(ops.add(x, places), *embedding_norm(tensors))
        weights = checkpoint.bert_layers(tensors)
        for i in range(layers_of(tensors)):
            x = graph.encoder_layer(x, weights, f"{i}.")
        return x


WORDS = "embeddings.word_embeddings"


def positions(tensors: dict[str, np.ndarray], length: int | None = None) -> np.ndarray:
    """What is added to every sentence's words: the positions, all that there are without `length`, and the token
    type 0."""
    table = tensors["embeddings.position_embeddings.weight"][:length]
    return (tensors["embeddings.token_type_embeddings.weight"][0] + table)[None]


def embedding_norm(tensors: dict[str, np.ndarray]) -> list[np.ndarray]:
    return [np.array(tensors[f"embeddings.LayerNorm.{name}"]) for name in ("weight", "bias")]


def layers_of(tensors: dict[str, np.ndarray]) -> int:
    return sum(name.endswith("attention.self.query.weight") for name in tensors)

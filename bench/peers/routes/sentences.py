"""The contenders on sentences of different lengths, with MiniLM: for each the mean of its states of the last
layer, normalized to length 1. Each makes a Job from the model's folder and the ids of each sentence, int64
[tokens].

headlane takes them all in one call. The others take batches sorted by length: 32 sentences padded to the
longest, as sentence-transformers does, or by length, all sentences of one length without padding."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from . import checkpoint, graph_onnx, graph_openvino, models
from .job import Job


@dataclass
class Batch:
    ids: np.ndarray  # int64 [sentences, longest], 0 behind the shorter ones
    mask: np.ndarray | None  # bool, alike: false for padding. None if there may be none


def batches(sentences: list[np.ndarray], size: int) -> tuple[list[Batch], np.ndarray]:
    """Of `size` sentences each, or of all that have one length if 0; and the number of each sentence in them."""
    lengths = np.array([len(sentence) for sentence in sentences])
    order = np.argsort(-lengths, kind="stable")
    ends = range(size, len(order), size) if size else np.flatnonzero(np.diff(lengths[order])) + 1
    made = []
    for part in np.split(order, ends):
        mask = np.arange(lengths[part].max()) < lengths[part, None]
        ids = np.zeros(mask.shape, np.int64)
        ids[mask] = np.concatenate([sentences[i] for i in part])
        made.append(Batch(ids, mask if size else None))
    return made, order


def in_order(rows: np.ndarray, order: np.ndarray) -> np.ndarray:
    """The rows as the sentences were given."""
    made = np.empty_like(rows)
    made[order] = rows
    return made


def parts_of(out: np.ndarray, parts: list[Batch]) -> list[np.ndarray]:
    """Where the vectors of each batch belong."""
    return np.split(out, np.cumsum([len(part.ids) for part in parts])[:-1])


class Headlane(models.HeadlaneBert):
    def job(self, folder: Path, sentences: list[np.ndarray]) -> Job:
        model, inputs = self.model(folder), [ids.tolist() for ids in sentences]
        out = np.full((len(inputs), model.embedding_size()), np.nan, np.float32)
        return Job(lambda: model.embed(inputs, out=out, num_threads=self.threads), lambda _: out)


class Transformers(models.TransformersBert):
    size = 32

    def job(self, folder: Path, sentences: list[np.ndarray]) -> Job:
        model, (parts, order) = self.model(folder), batches(sentences, self.size)
        inputs = [self.tensors(part.ids, part.mask) for part in parts]

        def vectors(ids, mask):
            states = model(input_ids=ids, attention_mask=mask).last_hidden_state
            if mask is None:
                mean = states.mean(1)
            else:
                mean = (mask[:, None].to(states.dtype) @ states)[:, 0] / mask.sum(1, keepdim=True)
            return self.torch.nn.functional.normalize(mean)

        def call():
            with self.torch.inference_mode():
                return self.torch.cat([vectors(*part) for part in inputs])

        return Job(call, lambda made: in_order(made.numpy(), order))


class TransformersByLength(Transformers):
    size = 0


class TransformersCompiled(Transformers, models.TransformersBertCompiled):
    dynamic = True


class TransformersCompiledByLength(TransformersCompiled):
    size = 0


class Transformers64(TransformersByLength):
    """The truth."""

    kind = "float64"


class OnnxRuntime(models.OnnxRuntimeBert):
    """One session for all batches, whose sizes are not in the model."""

    size = 32

    def job(self, folder, sentences):  # not the job of one shape
        parts, order = batches(sentences, self.size)
        graph, d_model = self.graph(checkpoint.read(folder))
        feeds = [{"ids": part.ids} for part in parts]
        if self.size:
            feeds = [{"ids": part.ids, "mask": part.mask.astype(np.int32)} for part in parts]
        out = np.full((len(order), d_model), np.nan, np.float32)
        infos = [self.info(name, array, ("batch", "length")) for name, array in feeds[0].items()]
        session = self.session(graph.nodes, infos, self.info("out", out, ("batch", d_model)), graph.constants)
        bound = [self.bound(session, *pair) for pair in zip(feeds, parts_of(out, parts))]

        def call():
            for binding in bound:
                session.run_with_iobinding(binding)

        return Job(call, lambda _: in_order(out, order), keep=feeds)

    def graph(self, tensors):
        make_node, mask = self.onnx.helper.make_node, "mask" if self.size else ""
        graph = graph_onnx.Graph(make_node, models.BERT_HEADS, models.BERT_EPS, mask=mask)
        first, second = (graph.constant(np.array([i])) for i in (0, 1))
        places = graph.constant(models.positions(tensors))
        length = graph.node("Shape", ["ids"], start=1)
        x = self.states(graph, tensors, graph.node("Slice", [places, first, length, second]))
        if mask:  # the sum, which is the mean when normalized
            weights = graph.node("Cast", [mask], to=self.onnx.TensorProto.FLOAT)
            x = graph.node("MatMul", [graph.node("Unsqueeze", [weights, second]), x])
            x = graph.node("Squeeze", [x, second])
        else:
            x = graph.node("ReduceMean", [x, second], keepdims=0)
        graph.node("LpNormalization", [x], result="out", axis=-1, p=2)
        return graph, graph.constants[places].shape[-1]


class OnnxRuntimeByLength(OnnxRuntime):
    size = 0


class OpenVino(models.OpenVinoBert):
    """One compiled model for all batches, whose sizes are not in it."""

    size = 32

    def job(self, folder, sentences):
        parts, order = batches(sentences, self.size)
        node, parameters, d_model = self.graph(checkpoint.read(folder))
        request, out = self.request(node, parameters), np.full((len(order), d_model), np.nan, np.float32)
        arrays = [
            [part.ids, part.mask, rows] if self.size else [part.ids, rows]
            for part, rows in zip(parts, parts_of(out, parts))
        ]
        tensors = [[self.library.Tensor(array, shared_memory=True) for array in each] for each in arrays]

        def call():
            for *given, made in tensors:
                for index, tensor in enumerate(given):
                    request.set_input_tensor(index, tensor)
                request.set_output_tensor(made)
                request.infer(share_inputs=True, share_outputs=True)

        return Job(call, lambda _: in_order(out, order), keep=arrays)

    def graph(self, tensors):
        ops, any_sizes = self.ops, [-1, -1]
        zero, one = (ops.constant(np.array([i])) for i in (0, 1))
        ids, mask = ops.parameter(any_sizes, np.int64), ops.parameter(any_sizes, np.bool_)
        shown = ops.unsqueeze(mask, ops.constant(np.array([1, 2]))) if self.size else None
        graph = graph_openvino.Graph(ops, models.BERT_HEADS, models.BERT_EPS, shown)
        table, length = models.positions(tensors), ops.gather(ops.shape_of(ids), one, zero)
        x = self.states(graph, tensors, ids, ops.slice(ops.constant(table), zero, length, one, one))
        if self.size:  # the sum, which is the mean when normalized
            weights = ops.unsqueeze(ops.convert(mask, "f32"), one)
            x = ops.squeeze(ops.matmul(weights, x, False, False), one)
        else:
            x = ops.reduce_mean(x, one, False)
        made = ops.normalize_l2(x, one, 1e-12, "max")
        return made, [ids, mask] if self.size else [ids], table.shape[-1]


class OpenVinoByLength(OpenVino):
    size = 0

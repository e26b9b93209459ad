"""The contenders on PyTorch models. Each changes a model that was loaded in its own way, and makes a Job of it:
"encode" gives the states of the last layer, "prefill" the logits behind a prompt, "generate" those of all new
tokens, each row with its token behind it."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from ..cases.pytorch import NEW_TOKENS, Shape
from . import pytorch_models
from .eager import Torch
from .job import Job


@dataclass
class Use:
    """What a model is to do."""

    op: str
    x: Any  # a tensor
    rows: int  # of most products


class Eager(Torch):
    """As transformers calls it."""

    kind = "float32"
    warm_up = 0  # calls, before the last of which a model is compiled
    options: dict = {}  # of generate()

    def __init__(self, threads: int) -> None:
        super().__init__(threads)
        from transformers.pytorch_utils import Conv1D

        self.matrices = (self.torch.nn.Linear, Conv1D)

    def change(self, model, use: Use | None = None):
        """The model as this contender runs it, or a function with its arguments."""
        return model

    def bytes_of(self, layer) -> float:
        """Of one weight of a Linear or Conv1D."""
        return layer.weight.dtype.itemsize

    def job(self, shape: Shape, folder: Path, op: str, given: np.ndarray, rows: int) -> tuple[Job, dict]:
        """And what is told of it: seconds for changing and compiling the model; bytes of its matrices as they are
        stored, and of a number in the cache."""
        model, (x,) = pytorch_models.load(shape, folder, self.kind), self.tensors(given)
        if x.is_floating_point():
            x = x.to(model.dtype)
        layers = [layer for layer in model.modules() if isinstance(layer, self.matrices)]
        about = {
            "stored": sum(layer.weight.numel() * self.bytes_of(layer) for layer in layers),
            "cached": model.dtype.itemsize,
        }
        del layers
        begin = perf_counter()
        name, model = model.main_input_name, self.change(model, Use(op, x, rows))
        job = self.generation(model, x) if op == "generate" else self.forward(model, op, name, x)
        call = 0.0
        for _ in range(self.warm_up):
            start = perf_counter()
            (job.seconds or job.call)()
            call = perf_counter() - start
        return job, {"seconds": perf_counter() - begin - self.warm_up * call, **about}

    def forward(self, model, op: str, name: str, x) -> Job:
        arguments = {name: x, **self.settings(op)}

        def call():
            with self.torch.inference_mode():
                return self.states(model(**arguments), op)

        return Job(call, lambda made: made.float().numpy())

    @staticmethod
    def settings(op: str) -> dict:
        return {"logits_to_keep": 1} if op == "prefill" else {}

    @staticmethod
    def states(made, op: str):
        return made.logits if op == "prefill" else made.last_hidden_state

    def generation(self, model, ids) -> Job:
        watch, count = Stopwatch(), NEW_TOKENS + 1
        model.generation_config.eos_token_id = None  # nobody stops early
        options = {"max_new_tokens": count, "do_sample": False, "pad_token_id": 0, **self.options}
        options["attention_mask"] = self.torch.ones_like(ids)

        def generate(**more):
            with self.torch.inference_mode():
                return model.generate(ids, **options, **more)

        def seconds():
            watch.times.clear()
            generate(streamer=watch)
            return watch.times[-1] - watch.times[-count]

        def result(made):
            logits = self.torch.stack(made.logits, 1).float()
            tokens = made.sequences[:, -count:, None].float()  # exact: below 2^24
            return self.torch.cat([logits, tokens], -1).numpy()

        return Job(
            lambda: generate(output_logits=True, return_dict_in_generate=True), result, seconds=seconds
        )


class Stopwatch:
    """A streamer: generate() gives it the prompt, then each token."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def put(self, tokens) -> None:
        self.times.append(perf_counter())

    def end(self) -> None:
        pass


class EagerBfloat16(Eager):
    kind = "bfloat16"


class Prepacked(Eager):
    """Linear layers by oneDNN, on weights that are in its own layout."""

    def change(self, model, use):
        self.replace(model, use.rows)
        return model

    def replace(self, module, rows: int) -> None:
        for name, child in module.named_children():
            if isinstance(child, self.torch.nn.Linear):
                setattr(module, name, prepacked(self.torch, child.weight, child.bias, rows))
            elif isinstance(child, self.matrices):  # Conv1D, whose weight is transposed
                setattr(module, name, prepacked(self.torch, child.weight.T, child.bias, rows))
            else:
                self.replace(child, rows)


def prepacked(torch, weight, bias, rows: int):
    """For about so many rows."""
    linear = torch.ops.mkldnn._linear_pointwise.default

    class Linear(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), rows)
            self.bias = bias

        def forward(self, x):
            return linear(x, self.packed, self.bias, "none", [], "")

    return Linear()


class Frozen(Eager):
    """torch.jit.trace and torch.jit.freeze, with oneDNN's fusion, which packs what is constant, unless it fails to
    compile the model."""

    warm_up = 3  # the first one records shapes, the second one compiles

    def job(self, *arguments):
        self.torch.jit.enable_onednn_fusion(True)
        with suppress(RuntimeError):
            return super().job(*arguments)
        self.torch.jit.enable_onednn_fusion(False)
        return super().job(*arguments)

    def change(self, model, use):
        torch, name, settings, states = self.torch, model.main_input_name, self.settings(use.op), self.states

        class Whole(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.model = model

            def forward(self, x):
                return states(self.model(**{name: x}, **settings), use.op)

        return torch.jit.freeze(torch.jit.trace(Whole().eval(), (use.x,), check_trace=False))

    def forward(self, model, op, name, x):
        def call():
            with self.torch.inference_mode():
                return model(x)

        return Job(call, lambda made: made.numpy())


class Compiled(Eager):
    """torch.compile, weights frozen. To generate it has a cache of one size, else it compiles again and again."""

    warm_up = 2
    options = {"cache_implementation": "static", "disable_compile": True}  # which generate() would do itself

    def job(self, shape, folder, *more):
        # Empty, or the time to compile would not be seen.
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp(prefix="inductor-", dir=Path(folder).parent)
        return super().job(shape, folder, *more)

    def change(self, model, use):
        if use.op != "generate":
            return self.torch.compile(model, dynamic=False)
        model.forward = self.torch.compile(model.forward, dynamic=False)
        return model


class DynamicInt8(Eager):
    """torch.ao's dynamic quantisation: weights and activations of each nn.Linear. Conv1D, as GPT-2 has, stays."""

    def change(self, model, use):
        linear = {self.torch.nn.Linear}
        return self.torch.ao.quantization.quantize_dynamic(
            model, linear, dtype=self.torch.qint8, inplace=True
        )

    def bytes_of(self, layer):
        return 1 if isinstance(layer, self.torch.nn.Linear) else super().bytes_of(layer)


class Headlane(Eager):
    """The only place that knows how headlane.torch is called."""

    BYTES = {"float32": 4, "bfloat16": 2, "int8": 1, "int4_group32": (16 + 2) / 32}

    def __init__(self, threads: int, **types: str) -> None:
        super().__init__(threads)
        import headlane
        import headlane.torch

        self.library, self.types = headlane, types
        headlane.set_num_threads(threads)
        self.about = f"version={headlane.__version__}\tisa={headlane.isa()}"

    def change(self, model, use=None):
        return self.library.torch.optimize(model, inplace=True, release=True, **self.types)

    def bytes_of(self, layer):
        return self.BYTES[self.types.get("weights", "float32")]


class HeadlaneBfloat16(Headlane):
    """Of a model in bfloat16."""

    kind = "bfloat16"

"""What a job computes of its lines: embeddings, or translations."""

from __future__ import annotations

import argparse
import io
import re
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..models import SentenceEncoder, Translator
from ._options import GENERATE


class Embed:
    """Rows of a .npy file."""

    piece_lines = 512  # that a piece has by default, at most
    replaced = "rows of zeros"
    notices: Sequence[str] = ()

    def __init__(self, options: argparse.Namespace) -> None:
        self._encoder = SentenceEncoder(
            options.model, weights=options.weights, activations=options.activations
        )
        self._given = {
            name: getattr(options, name) for name in ("pooling", "normalize", "prompt", "prompt_name")
        }
        self._encode: dict[str, Any] = {**self._given, "batch_size": options.batch_size}
        self._encoder.encode([], **self._encode)  # says what is wrong with options
        self._size = self._encoder.bert.embedding_size(options.pooling)
        prompt = self._encoder._prompt(options.prompt, options.prompt_name)
        self._prompt = prompt
        self._prompt_tokens = self._encoder._tokens_of_prompt(prompt)
        self._takes_all = self._enough(self._encoder.tokenize([prompt])[0])

    def bits(self) -> dict[str, Any]:
        """The options that results depend on."""
        bert = self._encoder.bert
        return {"weights": bert.weights, "activations": bert.activations, **self._given}

    def header(self, lines: int) -> bytes:
        """That of the .npy file, as numpy.save writes it."""
        file = io.BytesIO()
        descr = np.lib.format.dtype_to_descr(np.dtype(np.float32))
        shape = (lines, self._size)
        np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
        return file.getvalue()

    @property
    def line_bytes(self) -> int | None:
        """The length of a line's result, which has its place in the output; None if they differ."""
        return 4 * self._size

    def _enough(self, ids: Sequence[int]) -> bool:
        """Whether some tokens are left to pool."""
        return len(ids) > self._prompt_tokens

    def refused(self, texts: list[str]) -> dict[int, str]:
        """The lines that the model cannot embed, with the reason: those without tokens, if it adds none."""
        if self._takes_all or not texts:
            return {}
        ids = self._encoder.tokenize([self._prompt + text for text in texts])
        return {i: "no tokens to embed" for i, one in enumerate(ids) if not self._enough(one)}

    def compute(self, texts: list[str | None], threads: int | None) -> bytes:
        """The results of lines, zeros for None."""
        rows = np.zeros((len(texts), self._size), np.float32)
        good = [i for i, text in enumerate(texts) if text is not None]
        rows[good] = self._encoder.encode([texts[i] for i in good], num_threads=threads, **self._encode)
        return rows.tobytes()


class Translate:
    """Lines of text."""

    piece_lines = 128
    replaced = "empty lines"
    line_bytes = None

    def __init__(self, options: argparse.Namespace) -> None:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "T5: the model's setting")  # notices say it, on one rank
            self._translator = Translator(
                options.model,
                task=options.task,
                prefix=options.prefix,
                weights=options.weights,
                activations=options.activations,
            )
        ignored = self._translator.t5.config.unsupported
        self.notices = [f"the model's setting {name} is ignored" for name in ignored]
        given = {name: getattr(options, name) for name in GENERATE}
        self._generate: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        self._batch_size = options.batch_size
        t5, task = self._translator.t5, self._translator.task
        t5.generate([], task=task, **self._generate)  # checks them
        found = t5._options(task, self._generate)  # type: ignore[arg-type]
        least, most = found["min_length"], found["max_length"]
        if least > most:
            raise ValueError(f"min_length is {least}, above max_length, {most}; both count the start token")

    def bits(self) -> dict[str, Any]:
        of = self._translator
        stored = {"weights": of.t5.weights, "activations": of.t5.activations}
        return {**stored, "task": of.task, "prefix": of.prefix, **self._generate}

    def header(self, lines: int) -> bytes:
        return b""

    def refused(self, texts: list[str]) -> dict[int, str]:
        return {}

    def compute(self, texts: list[str | None], threads: int | None) -> bytes:
        good = [text for text in texts if text is not None]
        found = iter(
            self._translator.translate(
                good, batch_size=self._batch_size, num_threads=threads, **self._generate
            )
        )
        lines = ["" if text is None else re.sub(r"[\r\n]+", " ", next(found)) for text in texts]
        return "".join(line + "\n" for line in lines).encode()


COMPUTE: dict[str, type[Embed] | type[Translate]] = {"embed": Embed, "translate": Translate}

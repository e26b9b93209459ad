"""What optimize() did, kept with the model."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import nn

from ._weight import PackedWeight

_KEY = "_headlane_record"


@dataclasses.dataclass
class Row:
    """A module, its class, and what became of it."""

    name: str
    kind: str
    what: str
    done: bool = True


@dataclasses.dataclass
class Record:
    """What optimize() did to a model, and what restore() needs."""

    rows: list[Row] = dataclasses.field(default_factory=list)
    # Names of the parameters that required a gradient.
    frozen: list[str] = dataclasses.field(default_factory=list)
    # Of transformers: configurations whose attention was changed, and what it was.
    configurations: list[tuple[Any, str]] = dataclasses.field(default_factory=list)
    # Bytes of parameters and buffers.
    before: int = 0
    after: int = 0

    @classmethod
    def of(cls, model: nn.Module) -> Record | None:
        return model.__dict__.get(_KEY)

    @classmethod
    def of_parts(cls, model: nn.Module) -> list[tuple[str, nn.Module, Record]]:
        """Those of the model and of modules in it that were optimized by themselves."""
        return [(name, x, x.__dict__[_KEY]) for name, x in model.named_modules() if _KEY in x.__dict__]

    @classmethod
    def whole(cls, model: nn.Module) -> Record:
        """All of of_parts() as one, of a model that has a record."""
        after = model.__dict__[_KEY].after
        whole = cls(before=after, after=after)
        for name, _, record in cls.of_parts(model):
            prefix = f"{name}." if name else ""
            whole.rows += [dataclasses.replace(x, name=(prefix + x.name).rstrip(".")) for x in record.rows]
            whole.frozen += [prefix + x for x in record.frozen]
            whole.configurations += record.configurations
            whole.before += record.before - record.after
        return whole

    def put(self, model: nn.Module) -> None:
        model.__dict__[_KEY] = self

    @classmethod
    def remove(cls, model: nn.Module) -> None:
        """With those of of_parts()."""
        for _, module, _ in cls.of_parts(model):
            del module.__dict__[_KEY]

    def __str__(self) -> str:
        """Modules that differ in numbers only are one line."""
        groups: dict[tuple[str, str, str, bool], int] = {}
        for row in self.rows:
            name = ".".join("*" if part.isdigit() else part for part in row.name.split("."))
            key = (name, row.kind, row.what, row.done)
            groups[key] = groups.get(key, 0) + 1
        lines = []
        for done, title in ((True, "Computed by headlane"), (False, "As before")):
            chosen = [(*key[:3], count) for key, count in groups.items() if key[3] is done]
            if chosen:
                lines.append(f"{title}:")
                lines += _table([(f"{count} ×", kind, name, what) for name, kind, what, count in chosen])
        lines.append(f"Weights and buffers: {_size(self.before)} before, {_size(self.after)} now")
        return "\n".join(lines)


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    return [
        "  "
        + "  ".join([row[0].rjust(widths[0]), *(x.ljust(w) for x, w in zip(row[1:-1], widths[1:])), row[-1]])
        for row in rows
    ]


def _size(count: int) -> str:
    return f"{count / 2**20:.1f} MiB" if count >= 2**20 else f"{count / 2**10:.1f} KiB"


def memory_of(model: torch.nn.Module) -> int:
    """The bytes of parameters and buffers, each once, as they are stored."""
    total, seen = 0, set()
    tensors = [
        x for m in model.modules() for x in (*m._parameters.values(), *m._buffers.values()) if x is not None
    ]
    for tensor in tensors:
        if id(tensor) in seen:
            continue
        seen.add(id(tensor))
        if isinstance(tensor, PackedWeight):
            for part in tensor.parts:
                total += part.matrix.nbytes + (0 if part.original is None else part.original.nbytes)
        elif tensor.device.type != "meta":
            total += tensor.nbytes
    return total

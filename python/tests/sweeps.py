"""Many models of a library, small and random, through headlane.torch.optimize(), beside eager mode."""

from __future__ import annotations

import argparse
import contextlib
import copy
import sys
from collections.abc import Callable
from typing import Any

import headlane.torch
import processes
import torch

# Errors are of float32 sums in another order: a layer or two of a model may be unlucky.
LARGEST_RATIO = 4
LARGEST_ERROR = 1e-4  # of a model whose own code does not run in float64

Inputs = dict[str, Any]  # tensors whose first axis is the batch, and others
Call = Callable[[torch.nn.Module, Inputs], torch.Tensor]


def error(got: torch.Tensor, truth: torch.Tensor) -> float:
    return float((got - truth).double().square().mean().sqrt() / truth.double().square().mean().sqrt())


def equal(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return list(left) == list(right) and all(torch.equal(left[name], right[name]) for name in left)


def one(inputs: Inputs, index: int, batch: int) -> Inputs:
    """Those of one element of a batch."""
    return {
        name: x[index : index + 1] if isinstance(x, torch.Tensor) and x.dim() and len(x) == batch else x
        for name, x in inputs.items()
    }


def wide(inputs: Inputs) -> Inputs:
    return {
        name: x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x
        for name, x in inputs.items()
    }


def invariant(model: torch.nn.Module, inputs: Inputs, call: Call, together: torch.Tensor) -> bool:
    count = len(together)
    return all(torch.equal(call(model, one(inputs, i, count)), together[i : i + 1]) for i in range(count))


@torch.no_grad()
def randomize(model: torch.nn.Module) -> None:
    """Some start with heads of zeros, or with blocks that are scaled to almost nothing."""
    for x in model.parameters():
        x.add_(torch.randn_like(x), alpha=0.02 if x.dim() > 1 else 0.1)


@torch.inference_mode()
def compare(model: torch.nn.Module, inputs: Inputs, call: Call) -> dict[str, Any]:
    eager = call(model, inputs)
    truth = None
    with contextlib.suppress(Exception):  # code that makes float32 tensors of its own
        truth = call(copy.deepcopy(model).double(), wide(inputs))
    state = {name: value.clone() for name, value in model.state_dict().items()}
    kinds = [type(module) for module in model.modules()]
    row = {"eager invariant": invariant(model, inputs, call, eager)}

    headlane.torch.optimize(model, inplace=True)
    row["replaced"] = sum(type(module) is not kind for module, kind in zip(model.modules(), kinds))
    optimized = call(model, inputs)
    row["invariant"] = invariant(model, inputs, call, optimized)
    row["state"] = equal(state, model.state_dict())
    if truth is None:
        row["error"] = error(optimized, eager)
    else:
        row["ratio"] = error(optimized, truth) / max(error(eager, truth), 1e-9)
    headlane.torch.restore(model)
    row["restored"] = equal(state, model.state_dict()) and torch.equal(call(model, inputs), eager)
    return row


def fault(row: dict[str, Any] | str) -> str:
    if isinstance(row, str):
        return row
    if not (row.get("ratio", 0) <= LARGEST_RATIO and row.get("error", 0) <= LARGEST_ERROR):
        return "another result"
    return "" if row["state"] and row["restored"] else "other weights, or not restored"


def run(
    library: str, names: list[str], sweep: Callable[[str], dict[str, Any]], options: argparse.Namespace
) -> None:
    """Prints a line for each model and one for all. Ends the program: with 1 if one is wrong."""
    torch.set_num_threads(1)
    rows = {}
    for name, row in processes.each(names, sweep, options):
        rows[name] = row
        print(f"{len(rows)}/{len(names)} {name}: {fault(row) or 'right'} {row}", flush=True)
    right = [row for row in rows.values() if not fault(row)]
    print(
        f"{library}, PyTorch {torch.__version__}: {len(right)} of {len(rows)} right;"
        f" error at most {max((row.get('ratio', 0) for row in right), default=0):.2f} of eager mode's;"
        f" the same alone and in a batch: {sum(row['invariant'] for row in right)},"
        f" in eager mode {sum(row['eager invariant'] for row in right)}"
    )
    sys.exit(0 if len(right) == len(rows) else 1)

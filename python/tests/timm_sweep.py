"""Models of timm, small and random, through headlane.torch.optimize(), beside eager mode: the two
smallest of each of timm's modules, a process for each.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import re
import sys
from typing import Any

import headlane
import headlane.torch
import processes
import timm
import torch
from timm.models import list_modules

# Errors are of float32 sums in another order: a layer or two of a model may be unlucky.
LARGEST_RATIO = 4
LARGEST_ERROR = 1e-4  # of a model whose own code does not run in float64


def size(name: str) -> float:
    """Parameters, where the model can be made without memory for them."""
    try:
        with torch.device("meta"):
            return sum(x.numel() for x in timm.create_model(name).parameters())
    except Exception:
        return float("inf")


def smallest(count: int) -> list[str]:
    found = []
    for module in list_modules():
        found += sorted(timm.list_models(module=module), key=size)[:count]
    return found


def images(model: torch.nn.Module) -> torch.Tensor:
    shape = model.pretrained_cfg["input_size"]
    return torch.randn(2, *shape, generator=torch.Generator().manual_seed(1))


def error(got: torch.Tensor, truth: torch.Tensor) -> float:
    return float((got - truth).double().square().mean().sqrt() / truth.double().square().mean().sqrt())


def equal(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return list(left) == list(right) and all(torch.equal(left[name], right[name]) for name in left)


def invariant(model: torch.nn.Module, x: torch.Tensor, together: torch.Tensor) -> bool:
    return all(torch.equal(model(x[i : i + 1])[0], together[i]) for i in range(len(x)))


@torch.inference_mode()
def compare(model: torch.nn.Module) -> dict[str, Any]:
    x = images(model)
    eager = model(x)
    truth = None
    with contextlib.suppress(Exception):  # code that makes float32 tensors of its own
        truth = copy.deepcopy(model).double()(x.double())
    state = {name: value.clone() for name, value in model.state_dict().items()}
    kinds = [type(module) for module in model.modules()]
    row = {"eager invariant": invariant(model, x, eager)}

    headlane.torch.optimize(model, inplace=True)
    row["replaced"] = sum(type(module) is not kind for module, kind in zip(model.modules(), kinds))
    optimized = model(x)
    row["invariant"] = invariant(model, x, optimized)
    row["state"] = equal(state, model.state_dict())
    if truth is None:
        row["error"] = error(optimized, eager)
    else:
        row["ratio"] = error(optimized, truth) / max(error(eager, truth), 1e-9)
    headlane.torch.restore(model)
    row["restored"] = equal(state, model.state_dict()) and torch.equal(model(x), eager)
    return row


@torch.no_grad()
def randomize(model: torch.nn.Module) -> None:
    """Some start with heads of zeros, or with blocks that are scaled to almost nothing."""
    for x in model.parameters():
        x.add_(torch.randn_like(x), alpha=0.02 if x.dim() > 1 else 0.1)


def sweep(name: str) -> dict[str, Any]:
    torch.manual_seed(0)
    model = timm.create_model(name).eval()
    randomize(model)
    return compare(model)


def fault(row: dict[str, Any] | str) -> str:
    if isinstance(row, str):
        return row
    if not (row.get("ratio", 0) <= LARGEST_RATIO and row.get("error", 0) <= LARGEST_ERROR):
        return "another result"
    return "" if row["state"] and row["restored"] else "other weights, or not restored"


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev test-timm", description=__doc__)
    parser.add_argument("--only", metavar="REGEX", help="these models")
    parser.add_argument("--count", type=int, default=2, help="models of each module, the smallest")
    processes.add_limits(parser)
    parser.set_defaults(seconds=900, memory=14)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.only:
        names = [name for name in timm.list_models() if re.fullmatch(options.only, name)]
    else:
        names = smallest(options.count)
    rows = {}
    for name, row in processes.each(names, sweep, options):
        rows[name] = row
        print(f"{len(rows)}/{len(names)} {name}: {fault(row) or 'right'} {row}", flush=True)
    right = [row for row in rows.values() if not fault(row)]
    print(
        f"timm {timm.__version__}, PyTorch {torch.__version__}: {len(right)} of {len(rows)} right;"
        f" error at most {max((row.get('ratio', 0) for row in right), default=0):.2f} of eager mode's;"
        f" the same alone and in a batch: {sum(row['invariant'] for row in right)},"
        f" in eager mode {sum(row['eager invariant'] for row in right)}"
    )
    sys.exit(0 if len(right) == len(rows) else 1)


main()

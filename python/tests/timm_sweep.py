"""Models of timm, small and random, through headlane.torch.optimize(), beside eager mode: the two
smallest of each of timm's modules, a process for each.
"""

from __future__ import annotations

import argparse
import re
from typing import Any

import processes
import sweeps
import timm
import torch
from timm.models import list_modules


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


def sweep(name: str) -> dict[str, Any]:
    torch.manual_seed(0)
    model = timm.create_model(name).eval()
    sweeps.randomize(model)
    shape = model.pretrained_cfg["input_size"]
    images = torch.randn(2, *shape, generator=torch.Generator().manual_seed(1))
    return sweeps.compare(model, {"images": images}, lambda model, inputs: model(inputs["images"]))


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev test-timm", description=__doc__)
    parser.add_argument("--only", metavar="REGEX", help="these models")
    parser.add_argument("--count", type=int, default=2, help="models of each module, the smallest")
    processes.add_limits(parser)
    parser.set_defaults(seconds=900, memory=14)
    options = parser.parse_args()
    if options.only:
        names = [name for name in timm.list_models() if re.fullmatch(options.only, name)]
    else:
        names = smallest(options.count)
    sweeps.run(f"timm {timm.__version__}", names, sweep, options)


main()

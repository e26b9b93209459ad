"""Who takes part in the measurements of operations."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

from .contender import COMPILED, INDUCTOR, PYTHON, SLOW, Contender

PLAIN_OPS = ("gemm", "softmax", "attention")
ALL_OPS = (*PLAIN_OPS, "norms", "layers")
GROUPED = frozenset({"gqa"})
EVERYTHING = GROUPED | {"bits", "alibi", "t5", "softcap", "window"}


def every(programs: Path, isas: list[str]) -> list[Contender]:
    """All contenders. `programs` holds the compiled workers; `isas` are headlane's, fastest first."""
    headlane = (str(programs / "headlane_peer"),)
    cache = (*headlane, "cache")
    layers = ("norms", "layers")
    others = [isa for isa in isas[1:] if isa != "portable"]

    def blas(name: str, library: Path, **forced: str) -> Contender:
        command = (str(programs / "headlane_blas"), str(library))
        return Contender(name, COMPILED, ("gemm",), command, forced=tuple(forced.items()))

    def python(name: str, key: str, ops: tuple[str, ...], **more) -> Contender:
        return Contender(
            name, PYTHON, ops, (sys.executable, "-m", "peers.workers.operations", key, "{threads}"), **more
        )

    system = Path(f"/usr/lib/{platform.machine()}-linux-gnu")
    openblas = system / "openblas-pthread/libopenblas.so.0"
    blis = system / "blis-openmp/libblis.so.4"  # the other build starts its threads anew in each call
    # These two know CPUs by their model, and have slower kernels, BLIS plain C, for one that came
    # later. So they take part once more, with their kernels for the widest registers that the CPU
    # has.
    core, arch = {"avx512": ("SkylakeX", "skx"), "avx2": ("Haswell", "haswell")}.get(
        (isas or [""])[0], ("", "")
    )
    tuned = [
        blas(f"OpenBLAS ({core})", openblas, OPENBLAS_CORETYPE=core),
        blas(f"BLIS ({arch})", blis, BLIS_ARCH_TYPE=arch),
    ]
    return [
        Contender("headlane", COMPILED, ALL_OPS, headlane, can=EVERYTHING),
        *(Contender("headlane", COMPILED, ALL_OPS, headlane, isa, can=EVERYTHING) for isa in others),
        Contender("headlane cache", COMPILED, ("decode",), cache),
        *(
            Contender("headlane cache", COMPILED, ("decode",), cache, isa)
            for isa in others
            if isa not in SLOW
        ),
        blas("MKL", Path(sys.prefix) / "lib/libmkl_rt.so.3"),
        blas("OpenBLAS", openblas),
        blas("BLIS", blis),
        *(tuned if core else []),
        python("headlane (Python)", "headlane", PLAIN_OPS, can=GROUPED),
        python("headlane (Python)", "headlane-layers", layers),
        python("PyTorch mm", "torch", ("gemm",)),
        python("PyTorch softmax", "torch", ("softmax",)),
        python("PyTorch SDPA", "torch", ("attention",), can=GROUPED),
        python("PyTorch materialised", "torch-materialised", ("attention",), scores=2048**2, can=GROUPED),
        python("ONNX Runtime", "onnxruntime", PLAIN_OPS),
        python("OpenVINO", "openvino", PLAIN_OPS),
        python("PyTorch nn", "torch-layers", layers),
        python("PyTorch functions", "torch-functions", ("layers",)),
        python("PyTorch compiled", "torch-compiled", layers, forced=INDUCTOR, patience=600),
        python("ONNX Runtime", "onnxruntime-layers", layers),
        python("ONNX Runtime MHA", "onnxruntime-mha", ("layers",)),
        python("OpenVINO", "openvino-layers", layers),
        Contender("headlane prepacked", COMPILED, ("gemm",), (*headlane, "prepacked"), prepacked=True),
        python("headlane prepacked (Python)", "headlane-prepacked", ("gemm",), prepacked=True),
        python("oneDNN prepacked", "torch-prepacked", ("gemm",), prepacked=True),
        python("ONNX Runtime prepacked", "onnxruntime-prepacked", ("gemm",), prepacked=True),
        python("OpenVINO prepacked", "openvino-prepacked", ("gemm",), prepacked=True),
    ]

"""Who takes part in the measurements of operations."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

from .contender import COMPILED, INDUCTOR, PYTHON, SLOW, Contender

PLAIN_OPS = ("gemm", "softmax", "attention")
LAYER_OPS = ("norms", "layers")
GROUPED = frozenset({"gqa"})
LOW = frozenset({"bfloat16", "w8", "w4", "w8a8"})
RAGGED = frozenset({"ragged"})
STORED = frozenset({"keys in bfloat16", "keys in int8"})
EVERYTHING = GROUPED | RAGGED | {"bits", "alibi", "t5", "softcap", "window"}


def every(programs: Path, isas: list[str]) -> list[Contender]:
    """All contenders. `programs`: the folder of the compiled workers; `isas`: headlane's, fastest first."""
    return [*own(programs, isas), *blas(programs, isas), *from_python(), *prepacked(programs), *lowbit(isas)]


def own(programs: Path, isas: list[str]) -> list[Contender]:
    """headlane from C++, with the fastest instruction set and with each other one."""
    worker = (str(programs / "headlane_peer"),)
    others = [isa for isa in isas[1:] if isa != "portable"]
    functions = [
        Contender("headlane", COMPILED, (*PLAIN_OPS, *LAYER_OPS), worker, isa, can=EVERYTHING)
        for isa in ("", *others)
    ]
    caches = [
        Contender("headlane cache", COMPILED, ("decode",), (*worker, "cache"), isa, can=GROUPED | STORED)
        for isa in ("", *others)
        if isa not in SLOW
    ]
    return functions + caches


def blas(programs: Path, isas: list[str]) -> list[Contender]:
    """The libraries with cblas_sgemm."""

    def one(name: str, library: Path, **forced: str) -> Contender:
        command = (str(programs / "headlane_blas"), str(library))
        return Contender(name, COMPILED, ("gemm",), command, forced=tuple(forced.items()))

    system = Path(f"/usr/lib/{platform.machine()}-linux-gnu")
    openblas = system / "openblas-pthread/libopenblas.so.0"
    blis = system / "blis-openmp/libblis.so.4"  # the other build starts its threads anew in each call
    made = [
        one("MKL", Path(sys.prefix) / "lib/libmkl_rt.so.3"),
        one("OpenBLAS", openblas),
        one("BLIS", blis),
    ]
    # OpenBLAS and BLIS choose kernels by the CPU's model, and slower ones, BLIS plain C, for a
    # model that they do not know. So they also run with their kernels for the CPU's widest vectors.
    names = {"avx512": ("SkylakeX", "skx"), "avx2": ("Haswell", "haswell")}.get((isas or [""])[0])
    if names:
        core, arch = names
        made += [
            one(f"OpenBLAS ({core})", openblas, OPENBLAS_CORETYPE=core),
            one(f"BLIS ({arch})", blis, BLIS_ARCH_TYPE=arch),
        ]
    return made


def python(name: str, key: str, ops: tuple[str, ...], **more) -> Contender:
    command = (sys.executable, "-m", "peers.workers.operations", key, "{threads}")
    return Contender(name, PYTHON, ops, command, **more)


def from_python() -> list[Contender]:
    return [
        python("headlane (Python)", "headlane", PLAIN_OPS, can=GROUPED | RAGGED),
        python("headlane (Python)", "headlane-layers", LAYER_OPS),
        python("PyTorch mm", "torch", ("gemm",)),
        python("PyTorch softmax", "torch", ("softmax",)),
        python("PyTorch SDPA", "torch", ("attention",), can=GROUPED | RAGGED | {"keys in bfloat16"}),
        python(
            "PyTorch materialised", "torch-materialised", ("attention",), scores=2048**2, can=GROUPED | RAGGED
        ),
        python("ONNX Runtime", "onnxruntime", PLAIN_OPS, can=RAGGED),
        python("OpenVINO", "openvino", PLAIN_OPS, can=RAGGED),
        python("PyTorch nn", "torch-layers", LAYER_OPS),
        python("PyTorch functions", "torch-functions", ("layers",)),
        python("PyTorch compiled", "torch-compiled", LAYER_OPS, forced=INDUCTOR, patience=600),
        python("ONNX Runtime", "onnxruntime-layers", LAYER_OPS),
        python("ONNX Runtime MHA", "onnxruntime-mha", ("layers",)),
        python("OpenVINO", "openvino-layers", LAYER_OPS),
    ]


def prepacked(programs: Path) -> list[Contender]:
    """GEMM with a right operand that was packed beforehand."""
    worker = (str(programs / "headlane_peer"), "prepacked")
    return [
        Contender("headlane prepacked", COMPILED, ("gemm",), worker, prepacked=True),
        python("headlane prepacked (Python)", "headlane-prepacked", ("gemm",), prepacked=True),
        python("oneDNN prepacked", "torch-prepacked", ("gemm",), prepacked=True),
        python("ONNX Runtime prepacked", "onnxruntime-prepacked", ("gemm",), prepacked=True),
        python("OpenVINO prepacked", "openvino-prepacked", ("gemm",), prepacked=True),
    ]


def lowbit(isas: list[str]) -> list[Contender]:
    """Products by weights of fewer bits; headlane also with AVX2."""
    own = [isa for isa in ("", "avx2") if isa in ("", *isas[1:])]
    return [
        *(python("headlane (Python)", "headlane-lowbit", ("lowbit",), isa=isa, can=LOW) for isa in own),
        python("PyTorch", "torch-lowbit", ("lowbit",), can=LOW),
        python("ONNX Runtime", "onnxruntime-lowbit", ("lowbit",), can=LOW - {"bfloat16"}),
        python("OpenVINO", "openvino-lowbit", ("lowbit",), can=LOW),
    ]

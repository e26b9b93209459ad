"""Times one contender of the Python route: `python -m peers.workers.operations KEY THREADS`. Speaks the protocol of
worker.hpp: about, prepare, run, time, release, one command a line, answered by "ok …" or "error …"."""

from __future__ import annotations

import ctypes
import signal
import sys
from pathlib import Path
from time import perf_counter

import numpy as np

from ..cases.layers import ACTIVATIONS, tensors
from ..routes import compiled, eager, layers, layers_compiled, lowbit
from ..routes.job import Job, Route

PR_SET_PDEATHSIG = 1

ROUTES: dict[str, type[Route]] = {
    "headlane": eager.Headlane,
    "headlane-prepacked": eager.HeadlanePrepacked,
    "torch": eager.Torch,
    "torch-materialised": eager.TorchMaterialised,
    "torch-prepacked": eager.TorchPrepacked,
    "onnxruntime": compiled.OnnxRuntime,
    "onnxruntime-prepacked": compiled.OnnxRuntimePrepacked,
    "openvino": compiled.OpenVino,
    "openvino-prepacked": compiled.OpenVinoPrepacked,
    "headlane-layers": layers.Headlane,
    "torch-layers": layers.Torch,
    "torch-functions": layers.TorchFunctions,
    "torch-compiled": layers.TorchCompiled,
    "onnxruntime-layers": layers_compiled.OnnxRuntime,
    "onnxruntime-mha": layers_compiled.OnnxRuntimeMha,
    "openvino-layers": layers_compiled.OpenVino,
    "headlane-lowbit": lowbit.Headlane,
    "torch-lowbit": lowbit.Torch,
    "onnxruntime-lowbit": lowbit.OnnxRuntime,
    "openvino-lowbit": lowbit.OpenVino,
}


def aligned(shape: tuple[int, ...], dtype: type = np.float32) -> np.ndarray:
    """To 64 bytes, as in the compiled workers. At NumPy's 16 most of the widest loads cross a cache line."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.empty(size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size].view(dtype).reshape(shape)


def load(folder: str, name: str, shape: tuple[int, ...], dtype: type = np.float32) -> np.ndarray:
    array = aligned(shape, dtype)
    array[...] = np.fromfile(Path(folder) / name, dtype).reshape(shape)
    return array


def prepare(route: Route, arguments: dict[str, str]) -> Job:
    """Reads the inputs, makes an output full of NaN and hands both to the contender."""
    folder, op = arguments["folder"], arguments["op"]
    size = {key: int(value) for key, value in arguments.items() if value.isdigit()}
    if op in ("gemm", "lowbit"):
        a = load(folder, "a", (size["m"], size["k"]))
        b = load(folder, "b", (size["k"], size["n"]))
        out = filled((size["m"], size["n"]))
        return route.gemm(a, b, out) if op == "gemm" else route.lowbit(arguments["mode"], a, b, out)
    if op == "softmax":
        shape = (size["rows"], size["columns"])
        mask = load(folder, "mask", shape, np.bool_) if size["mask"] else None
        return route.softmax(load(folder, "x", shape), mask, filled(shape))
    if op == "norms":
        shape, kind = (size["rows"], size["columns"]), arguments["kind"]
        weights = (
            {}
            if kind in ACTIVATIONS
            else {name: load(folder, name, shape[1:]) for name in ("weight", "bias")}
        )
        x = load(folder, "x", shape)
        return route.norm(kind, x, weights.get("weight"), weights.get("bias"), filled(shape))
    if op == "layers":
        given = {name: load(folder, name, shape) for name, shape in tensors({**arguments, **size}).items()}
        x = load(folder, "x", (size["batch"], size["length"], size["d_model"]))
        return route.layer(arguments["kind"], x, given, size["heads"], filled(x.shape))
    batch, heads, queries, keys = size["batch"], size["heads"], size["q_length"], size["kv_length"]
    q, k, v = (
        load(folder, name, (batch, rows, length, size["head_dim"]))
        for name, rows, length in (
            ("q", heads, queries),
            ("k", size["kv_heads"], keys),
            ("v", size["kv_heads"], keys),
        )
    )
    mask = None
    if arguments["mask"] == "ragged":
        lengths = load(folder, "lengths", (batch,), np.int64)
        return route.ragged_attention(q, k, v, lengths, filled(q.shape))
    if arguments["mask"] == "bool":
        mask = load(folder, "mask", (batch, 1, 1, keys), np.bool_)
    if arguments["mask"] == "dense":
        mask = load(folder, "mask", (1, 1, queries, keys), np.bool_)
    if arguments["mask"] == "float":
        mask = load(folder, "mask", (1, heads, queries, keys))
    if arguments.get("stored"):
        return route.attention_in_bfloat16(q, k, v)
    return route.attention(q, k, v, mask, bool(size["causal"]), filled(q.shape))


def filled(shape: tuple[int, ...]) -> np.ndarray:
    array = aligned(shape)
    array.fill(np.nan)
    return array


def seconds_of(job: Job, warm: int, calls: int) -> float:
    call = job.call
    for _ in range(warm):
        call()
    if job.seconds:
        return sum(job.seconds() for _ in range(calls))
    begin = perf_counter()
    for _ in range(calls):
        call()
    return perf_counter() - begin


def memory(name: str) -> int:
    """Bytes: VmRSS is resident now, VmHWM was at most."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith(name + ":"))


def resident_from_now() -> int:
    """The bytes that are resident, and from where on VmHWM will count."""
    Path("/proc/self/clear_refs").write_text("5")
    return memory("VmRSS")


class Worker:
    def __init__(self, route: Route) -> None:
        self.route = route
        self.job: Job | None = None

    def answer(self, command: str, arguments: dict[str, str]) -> str:
        if command == "about":
            return self.route.about
        if command == "release":
            self.job = None
            return ""
        if command == "prepare":
            self.job = None
            self.job = prepare(self.route, arguments)
            return ""
        if self.job is None:
            raise RuntimeError("no case is prepared")
        if command == "run":
            before = resident_from_now()
            begin = perf_counter()
            made = self.job.call()
            seconds = perf_counter() - begin
            more = memory("VmHWM") - before
            np.ascontiguousarray(self.job.result(made)).tofile(arguments["output"])
            return f"{seconds:.9g} {more}"
        if command == "time":
            return f"{seconds_of(self.job, int(arguments['warm']), int(arguments['calls'])):.9g}"
        raise RuntimeError(f"unknown command '{command}'")

    def serve(self) -> None:
        for line in sys.stdin:
            command, *words = line.split()
            try:
                reply = "ok " + self.answer(command, dict(word.split("=", 1) for word in words))
            except Exception as error:  # reported to the parent, which goes on without this case
                reply = f"error {type(error).__name__}: {error}"
            print(reply.replace("\n", " "), flush=True)


def end_with_parent() -> None:
    """A stopped worker would outlive a parent that was killed."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    end_with_parent()
    Worker(ROUTES[sys.argv[1]](int(sys.argv[2]))).serve()

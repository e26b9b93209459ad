"""Folders of sentence-transformers that SentenceEncoder refuses, by the name of the setting."""

import json
from pathlib import Path

import pytest
from sentence_folders import change, make, models, save_plain


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain")
    save_plain(folder)
    return folder


REFUSED = [
    ("config_sentence_transformers.json", {"model_type": "SparseEncoder"}, "'model_type' is 'SparseEncoder'"),
    ("config_sentence_transformers.json", {"truncate_dim": 0}, "'truncate_dim' is 0"),
    ("config_sentence_transformers.json", {"truncate_dim": -1}, "'truncate_dim' is -1"),
    ("config_sentence_transformers.json", {"prompts": {"q": 3}}, "'q' is 3"),
    ("config_sentence_transformers.json", {"prompts": ["q"]}, "'prompts'"),
    ("config_sentence_transformers.json", {"default_prompt_name": "z"}, "'default_prompt_name' is 'z'"),
    ("config_sentence_transformers.json", {"rotate": 90}, "'rotate' is not supported"),
    ("sentence_bert_config.json", {"max_seq_length": 0}, "'max_seq_length' is 0"),
    ("sentence_bert_config.json", {"do_lower_case": "yes"}, "'do_lower_case'"),
    ("sentence_bert_config.json", {"transformer_task": "fill-mask"}, "'transformer_task' is 'fill-mask'"),
    ("sentence_bert_config.json", {"module_output_name": "scores"}, "'module_output_name'"),
    ("sentence_bert_config.json", {"modality_config": {}}, "'modality_config'"),
    ("sentence_bert_config.json", {"modality_config": {"image": {}}}, "'image'"),
    (
        "sentence_bert_config.json",
        {"modality_config": {"text": {"method": "forward", "method_output_name": "pooler_output"}}},
        "'method_output_name'",
    ),
    (
        "sentence_bert_config.json",
        {"modality_config": {"text": {"method": "get", "method_output_name": "last_hidden_state"}}},
        "'method' is 'get'",
    ),
    *(
        ("sentence_bert_config.json", {key: {"x": 1}}, f"'{key}' has 'x'")
        for key in ("model_args", "model_kwargs", "tokenizer_args", "processor_kwargs", "config_args", "config_kwargs")
    ),
    ("sentence_bert_config.json", {"processing_kwargs": {"text": {"max_length": 3}}}, "'processing_kwargs' has 'text'"),
    ("sentence_bert_config.json", {"query_length": 7}, "'query_length'"),
    ("sentence_bert_config.json", {"tokenizer_name_or_path": "other"}, "'tokenizer_name_or_path'"),
    ("1_Pooling/config.json", {"pooling_mode": "median"}, "'pooling_mode' is 'median'"),
    ("1_Pooling/config.json", {"pooling_mode": "none"}, "'pooling_mode' is 'none'"),
    ("1_Pooling/config.json", {"pooling_mode": []}, "'pooling_mode' has 0"),
    ("1_Pooling/config.json", {"include_prompt": 1}, "'include_prompt'"),
    ("1_Pooling/config.json", {"temperature": 1}, "'temperature' is not supported"),
    ("2_Normalize/config.json", {"module_input_name": "token_embeddings"}, "'module_input_name'"),
    ("2_Normalize/config.json", {"module_output_name": "other"}, "'module_output_name'"),
    ("2_Normalize/config.json", {"p": 1}, "'p' is not supported"),
    ("tokenizer_config.json", {"model_max_length": 0}, "'model_max_length' is 0"),
    ("tokenizer_config.json", {"truncation_side": "middle"}, "'truncation_side' is 'middle'"),
    ("adapter_config.json", {"peft_type": "LORA"}, "adapter_config.json"),
]  # fmt: skip


@pytest.mark.parametrize(("file", "members", "words"), REFUSED, ids=lambda value: str(value)[:60])
def test_refused(plain, tmp_path, file, members, words):
    folder = make(tmp_path, plain, 6, normalize=True)
    models.SentenceEncoder(folder)
    change(folder / file, members)
    with pytest.raises(models.CheckpointError) as error:
        models.SentenceEncoder(folder)
    assert words in str(error.value)
    assert Path(file).name in str(error.value)


@pytest.mark.parametrize(
    "kind", ["models.Dense", "models.LayerNorm", "models.WeightedLayerPooling", "custom_st.Transformer"]
)
def test_other_modules_are_refused(plain, tmp_path, kind):
    folder = make(tmp_path, plain, 6)
    modules = json.loads((folder / "modules.json").read_text())
    at = 0 if kind.startswith("custom") else 2
    type_name = kind if kind.startswith("custom") else f"sentence_transformers.{kind}"
    modules[at:] = [{"idx": at, "name": str(at), "path": "", "type": type_name}]
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(models.CheckpointError, match=f"module {at} has type '{type_name}'"):
        models.SentenceEncoder(folder)

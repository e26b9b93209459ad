"""The tokenizer of a folder, configured as by transformers and sentence-transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import _core

if TYPE_CHECKING:
    from ._bert import BertConfig


def _settings(file: Path) -> dict[str, Any]:
    """The members of a JSON file; empty if there is no such file."""
    if not file.is_file():
        return {}
    try:
        settings = json.loads(file.read_text("utf-8"))
    except ValueError as error:
        raise _core.CheckpointError(f"{file}: is not JSON: {error}") from None
    if not isinstance(settings, dict):
        raise _core.CheckpointError(f"{file}: is not a JSON object")
    return settings


def _has_lowercase(normalizer: Any) -> bool:
    from tokenizers import normalizers

    if isinstance(normalizer, normalizers.Sequence):
        return any(isinstance(one, normalizers.Lowercase) for one in normalizer)
    return isinstance(normalizer, normalizers.Lowercase)


def _set_up_bert(tokenizer: Any, settings: dict[str, Any]) -> None:
    """As transformers' BertTokenizer: the vocabulary from tokenizer.json, all else from
    tokenizer_config.json.
    """
    from tokenizers import normalizers, pre_tokenizers, processors

    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
        strip_accents=settings.get("strip_accents"),
        lowercase=settings.get("do_lower_case", True),
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    ends = {}
    for key, usual in (("cls_token", "[CLS]"), ("sep_token", "[SEP]")):
        token = settings.get(key) or usual
        token = token["content"] if isinstance(token, dict) else token
        if tokenizer.token_to_id(token) is None:
            return  # keep that of tokenizer.json
        ends[key] = token, tokenizer.token_to_id(token)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=[ends["cls_token"][0], "$A", ends["sep_token"][0]], special_tokens=list(set(ends.values()))
    )


def tokenizer_of(folder: Path, config: BertConfig) -> Any:
    """A tokenizers.Tokenizer that returns the ids of sentence-transformers for each text."""
    import tokenizers

    file = folder / "tokenizer.json"
    if not file.is_file():
        raise FileNotFoundError(f"{file} is missing; Bert takes token ids, from any tokenizer")
    tokenizer = tokenizers.Tokenizer.from_file(str(file))
    settings = _settings(folder / "tokenizer_config.json")
    kind = settings.get("tokenizer_class") or _settings(folder / "config.json").get("tokenizer_class")
    of_bert = kind in (None, "BertTokenizer", "BertTokenizerFast")
    if of_bert and isinstance(tokenizer.model, tokenizers.models.WordPiece):
        _set_up_bert(tokenizer, settings)
    if config.do_lower_case and not _has_lowercase(tokenizer.normalizer):
        lowercase = tokenizers.normalizers.Lowercase()
        others = [] if tokenizer.normalizer is None else [tokenizer.normalizer]
        tokenizer.normalizer = tokenizers.normalizers.Sequence([lowercase, *others])
    side = settings.get("truncation_side") or (tokenizer.truncation or {}).get("direction", "right")
    if side.lower() not in ("left", "right"):
        raise _core.CheckpointError(
            f"{folder / 'tokenizer_config.json'}: 'truncation_side' is {side!r}, not 'left' or 'right'"
        )
    tokenizer.no_padding()
    tokenizer.enable_truncation(config.max_seq_length, direction=side.lower())
    tokenizer.encode_special_tokens = bool(settings.get("split_special_tokens", False))
    return tokenizer

"""The tokenizer of a folder, configured as by transformers and sentence-transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import _core

if TYPE_CHECKING:
    from tokenizers import AddedToken, Tokenizer

    from ._bert import BertConfig

# The special tokens that transformers names, as BERT has them, and the order in which it adds them.
BERT = {
    "unk_token": "[UNK]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
}
ORDER = ("bos_token", "eos_token", *BERT)
FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")  # of a token in a file


class Tokens(NamedTuple):
    """What the files of a folder say of tokens."""

    listed: list[AddedToken]  # by their ids
    named: dict[str, AddedToken]  # special ones
    others: list[AddedToken]  # special ones without a name


class Settings(NamedTuple):
    """The members of a JSON file; none if there is no such file."""

    file: Path
    members: dict[str, Any]

    @classmethod
    def of(cls, file: Path) -> Settings:
        if not file.is_file():
            return cls(file, {})
        try:
            members = json.loads(file.read_text("utf-8"))
        except (ValueError, RecursionError) as error:
            raise _core.CheckpointError(f"{file}: is not JSON: {error}") from None
        if not isinstance(members, dict):
            raise _core.CheckpointError(f"{file}: is not a JSON object")
        return cls(file, members)

    def get(self, key: str, kinds: type | tuple[type, ...], usual: Any = None) -> Any:
        """A member of one of these types; the usual value if there is none, or null."""
        value = self.members.get(key)
        if value is not None and not isinstance(value, kinds):
            names = " or ".join(kind.__name__ for kind in (kinds if isinstance(kinds, tuple) else (kinds,)))
            raise _core.CheckpointError(f"{self.file}: {key!r} is {value!r}; wanted: {names}")
        return usual if value is None else value


def _id(file: Path, number: Any) -> int:
    try:
        return int(number)
    except (TypeError, ValueError):
        raise _core.CheckpointError(f"{file}: {number!r} is no id of a token") from None


def _has_lowercase(normalizer: Any) -> bool:
    from tokenizers import normalizers

    if isinstance(normalizer, normalizers.Sequence):
        return any(isinstance(one, normalizers.Lowercase) for one in normalizer)
    return isinstance(normalizer, normalizers.Lowercase)


def _token(file: Path, key: str, value: Any, special: bool) -> AddedToken:
    """A token that a file names by its text, or by an object with flags, which may say whether it is special."""
    import tokenizers

    members = {"content": value} if isinstance(value, str) else value
    try:
        flags = {name: members[name] for name in FLAGS if name in members}
        return tokenizers.AddedToken(members["content"], **{"special": special, **flags})
    except (TypeError, KeyError):
        raise _core.CheckpointError(f"{file}: {key!r} has {value!r}, which is no token") from None


def _special_tokens(settings: Settings, tokens: Tokens) -> None:
    """Adds those of tokenizer_config.json or special_tokens_map.json."""
    file = settings.file
    for key, value in settings.members.items():
        if key in ORDER or (key.endswith("_token") and isinstance(value, (str, dict))):
            if value is not None:
                tokens.named[key] = _token(file, key, value, True)
    for key in ("extra_special_tokens", "additional_special_tokens"):
        values = settings.get(key, (list, dict), [])
        values = values.values() if isinstance(values, dict) else values
        tokens.others.extend(_token(file, key, value, True) for value in values)


def _tokens_of(settings: Settings, found: Tokenizer) -> Tokens:
    """By the rules of transformers: special_tokens_map.json and added_tokens.json count unless
    tokenizer_config.json lists all tokens.
    """
    file, folder = settings.file, settings.file.parent
    tokens = Tokens([], {}, [])
    _special_tokens(settings, tokens)
    key = "added_tokens_decoder"
    if (listed := settings.get(key, dict)) is not None:
        by_id = {_id(file, number): _token(file, key, token, False) for number, token in listed.items()}
    else:
        added = folder / "added_tokens.json"
        _special_tokens(Settings.of(folder / "special_tokens_map.json"), tokens)
        special = {token.content for token in (*tokens.named.values(), *tokens.others)}
        by_id = {
            _id(added, number): _token(added, text, text, text in special)
            for text, number in Settings.of(added).members.items()
        }
        by_id.update(found.get_added_tokens_decoder())
    tokens.listed.extend(by_id[number] for number in sorted(by_id))
    return tokens


def _add_tokens(tokenizer: Tokenizer, tokens: Tokens) -> None:
    """Finds them in texts."""
    known = tokenizer.get_added_tokens_decoder().values()
    added = [token for token in tokens.listed if repr(token) not in map(repr, known)]
    texts = {token.content for token in (*known, *tokens.listed)}
    names = sorted(tokens.named, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))
    added += [tokens.named[name] for name in names if tokens.named[name].content not in texts]
    added += [token for token in tokens.others if token.content not in texts]
    special = {token.content for token in tokens.named.values()}
    for token in added:
        token.special = token.special or token.content in special
    tokenizer.add_tokens(added)


def _bert_tokenizer(settings: Settings, found: Tokenizer, tokens: Tokens) -> Tokenizer:
    """As transformers' BertTokenizer: the vocabulary from tokenizer.json, and all else from other files."""
    import tokenizers
    from tokenizers import normalizers, pre_tokenizers, processors

    vocabulary, tokenizer = found.get_vocab(with_added_tokens=False), found
    unknown = tokens.named.get("unk_token")
    if unknown and unknown.content not in vocabulary:
        file = settings.file.with_name("tokenizer.json")
        raise _core.CheckpointError(f"{file}: the vocabulary lacks {unknown.content!r}, the 'unk_token'")
    for name, usual in BERT.items():
        if usual in vocabulary:
            tokens.named.setdefault(name, tokenizers.AddedToken(usual, special=True))
    # Without these, tokens are those of tokenizer.json.
    unknown, begin, end = (tokens.named.get(name) for name in ("unk_token", "cls_token", "sep_token"))
    if unknown and begin and end:
        model = tokenizers.models.WordPiece(vocabulary, unk_token=unknown.content)
        tokenizer = tokenizers.Tokenizer(model)
        if found.truncation:
            tokenizer.enable_truncation(**found.truncation)
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=settings.get("tokenize_chinese_chars", bool, True),
        strip_accents=settings.get("strip_accents", bool),
        lowercase=settings.get("do_lower_case", bool, True),
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    _add_tokens(tokenizer, tokens)
    if tokenizer is not found:
        ends = [begin.content, end.content]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=[ends[0], "$A", ends[1]],
            special_tokens=[(one, tokenizer.token_to_id(one)) for one in set(ends)],
        )
    return tokenizer


def tokenizer_of(folder: Path, config: BertConfig) -> Any:
    """A tokenizers.Tokenizer that returns the ids of sentence-transformers for each text."""
    import tokenizers
    from tokenizers import pre_tokenizers

    file = folder / "tokenizer.json"
    if not file.is_file():
        raise FileNotFoundError(f"{file} is missing; Bert takes token ids, from any tokenizer")
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # the only type that tokenizers has
        raise _core.CheckpointError(f"{file}: is not a tokenizer: {error}") from None
    settings = Settings.of(folder / "tokenizer_config.json")
    tokens = _tokens_of(settings, tokenizer)
    kind = settings.get("tokenizer_class", str)
    kind = kind or Settings.of(folder / "config.json").get("tokenizer_class", str)
    of_bert = kind in (None, "BertTokenizer", "BertTokenizerFast")
    if of_bert and isinstance(tokenizer.model, tokenizers.models.WordPiece):
        tokenizer = _bert_tokenizer(settings, tokenizer, tokens)
    else:
        _add_tokens(tokenizer, tokens)
    if kind in ("XLMRobertaTokenizer", "XLMRobertaTokenizerFast"):  # spaces at the ends are no tokens
        splits = tokenizer.pre_tokenizer
        if isinstance(splits, pre_tokenizers.Metaspace):
            tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), splits])
    if config.do_lower_case and not _has_lowercase(tokenizer.normalizer):
        lowercase = tokenizers.normalizers.Lowercase()
        others = [] if tokenizer.normalizer is None else [tokenizer.normalizer]
        tokenizer.normalizer = tokenizers.normalizers.Sequence([lowercase, *others])
    usual = (tokenizer.truncation or {}).get("direction", "right")
    side = settings.get("truncation_side", str, usual).lower()
    if side not in ("left", "right"):
        raise _core.CheckpointError(f"{settings.file}: 'truncation_side' is {side!r}, not 'left' or 'right'")
    tokenizer.no_padding()
    tokenizer.enable_truncation(config.max_seq_length, direction=side)
    tokenizer.encode_special_tokens = settings.get("split_special_tokens", bool, False)
    return tokenizer

"""A grammar of its own that makes English sentences, each with the one French sentence it is to become.

Where English leaves something open, a rule decides: "you" is the polite "vous", one man; "they" are "ils"; "I" and "we"
are men; "his" and "her" are both "son"; the simple and the progressive present are both the French present; the simple
past is the passé composé; "like" and "love" are both "aimer"; "it is cold" speaks of the weather."""

import hashlib
import random
import re
import sys

import lexicon
from french import join
from sentences import FAMILIES

TUTORIAL = "It is easy to translate languages with transformers."
CONTRACTIONS = [
    (r"\b(do|does|did|is|are|was|were) not\b", r"\1n't"),
    (r"\bwill not\b", "won't"),
    (r"\bcannot\b", "can't"),
    (r"\bmust not\b", "mustn't"),
    (r"\bwould not\b", "wouldn't"),
    (r"\bI am\b", "I'm"),
    (r"\b([Yy]ou|[Ww]e|[Tt]hey) are\b", r"\1're"),
    (r"\b([Hh]e|[Ss]he|[Ii]t|[Tt]hat|[Tt]here|[Ww]here|[Ww]ho) is\b", r"\1's"),
    (r"\b(I|[Yy]ou|[Hh]e|[Ss]he|[Ww]e|[Tt]hey) will\b", r"\1'll"),
    (r"\b(I|[Yy]ou|[Hh]e|[Ss]he|[Ww]e|[Tt]hey) would\b", r"\1'd"),
]


def finish(en, fr):
    """Capital first letters, and the mark at the end: a space before the French question mark."""
    en = " ".join(" ".join(en).split()).replace(" ?", "?")
    fr = join(fr)
    end = "" if en.endswith("?") else "."
    return en[0].upper() + en[1:] + end, fr[0].upper() + fr[1:] + end


def fixed():
    for line in lexicon.FIXED.splitlines():
        en, fr = line.split("|")
        yield finish([en], [fr])


def pairs(count, seed=0):
    """This many distinct sentences, English to French. The same for the same seed."""
    rng = random.Random(seed)
    found = dict(fixed())
    found[TUTORIAL] = "Il est facile de traduire des langues avec des transformateurs."
    families, weights = list(FAMILIES), list(FAMILIES.values())
    while len(found) < count:
        en, fr = finish(*rng.choices(families, weights)[0](rng))
        if len(en.split()) > 16:
            continue
        if found.setdefault(en, fr) != fr:
            raise ValueError(f"two translations of {en!r}: {fr!r}, {found[en]!r}")
    return found


def held_out(en):
    """Whether a sentence is kept for the test: a tenth, by a hash, so that no change of the rest moves a sentence."""
    return hashlib.sha256(key(en).encode()).digest()[0] < 26 and en not in dict(fixed())


def key(en):
    """What all variants of a sentence have in common."""
    en = en.lower().rstrip(".?!").replace("’", "'")
    for short, full in (
        ("can't", "cannot"), ("won't", "will not"), ("n't", " not"), ("i'm", "i am"), ("'re", " are"),
        ("'ll", " will"), ("'d", " would"),
    ):  # fmt: skip
        en = en.replace(short, full)
    return re.sub(r"\b(he|she|it|that|there|where|who)'s\b", r"\1 is", en)


def contracted(en):
    for full, short in CONTRACTIONS:
        en = re.sub(full, short, en)
    return en


def variant(en, fr, rng):
    """The pair as somebody may type it: contracted, without the mark at the end, without capitals. The French keeps
    its capital, and loses the mark with the English."""
    draw = rng.random()
    if draw < 0.4:
        return en, fr
    if rng.random() < 0.6:
        en = contracted(en)
        en = en.replace("'", "’") if rng.random() < 0.1 else en
    if rng.random() < 0.5:
        en, fr = en[:-1], fr[:-1].rstrip()
    elif rng.random() < 0.1 and en.endswith("."):
        en, fr = en[:-1] + "!", fr[:-1] + " !"
    if rng.random() < 0.4:
        en = en.lower() if rng.random() < 0.5 else en[0].lower() + en[1:]
    return en, fr


def words(found):
    """The English words of these sentences, without what comes after an apostrophe, but for "isn't" and its like."""
    text = " ".join([*found, *map(contracted, found)]).lower()
    whole = set(re.findall(r"[a-z]+n't", text))
    stems = re.sub(r"[a-z]+n't|'[a-z]+", "", text)
    return sorted(whole | set(re.findall(r"[a-z]+(?:-[a-z]+)*", stems)))


if __name__ == "__main__":
    for english, french in pairs(int(sys.argv[1]) if len(sys.argv) > 1 else 50).items():
        print(english, french, sep="\t")

"""The order of the words in a clause, in English and French."""

from french import FUTURE, PRESENT, agree
from phrases import Phrase

MODALS = {  # English auxiliary or "", English words that follow, French verb
    "want": ("", "want to", "vouloir"),
    "have": ("", "have to", "devoir"),
    "like": ("", "like to", "aimer"),
    "can": ("can", "", "pouvoir"),
    "must": ("must", "", "devoir"),
    "would": ("would", "like to", "voudrais"),
    "near": ("be", "going to", "aller"),
}


def be(subject, past=False):
    if past:
        return "was" if subject.person in ("je", "il") else "were"
    return {"je": "am", "il": "is"}.get(subject.person, "are")


def english(subject, verb, obj, tense, mode, often=""):
    """The clause's words; a question has its auxiliary first."""
    base, rest = verb.en, ""
    third = subject.third
    if tense in MODALS:
        aux, words, _ = MODALS[tense]
        finite = words if not aux and not third else words.replace("have", "has").replace("want", "wants")
        finite = finite.replace("like", "likes") if third and not aux else finite
        main, rest = f"{words} {base}".strip(), f"{finite} {base}"
        aux = be(subject) if aux == "be" else aux
    else:
        aux = {"present": "", "past": "", "future": "will", "progressive": be(subject)}[tense]
        main = verb.ing if tense == "progressive" else base
        rest = {"present": verb.third if third else base, "past": verb.past}.get(tense, main)
    support = aux or ("did" if tense == "past" else "does" if third else "do")
    tail = [obj.en] if obj else []
    if mode == "ask":
        return [support, subject.en, often, main, *tail]
    if mode == "neg":
        return [subject.en, "cannot" if support == "can" else f"{support} not", main, *tail]
    often = "never" if mode == "never" else often
    return [subject.en, aux, often, main if aux else rest, *tail]


def french(subject, verb, obj, tense, mode, often=""):
    """The clause's tokens, without "est-ce que"."""
    person = subject.person
    negative = mode in ("neg", "never")
    after = ["pas"] if mode == "neg" else ["jamais"] if mode == "never" else [often]
    clitic = [obj.fr + "_"] if obj and obj.clitic else []
    first, last = clitic, []
    if tense == "past":
        finite = PRESENT["être" if "ê" in verb.flags else "avoir"][person]
        agrees = subject if "ê" in verb.flags else obj if clitic else Phrase("", "")
        last = [agree(verb.participle, verb.participle + "e", agrees.gender, agrees.number)]
    elif tense == "future":
        finite = verb.future + FUTURE[person]
    elif tense == "have" and mode == "neg":  # not "ne doit pas", which forbids
        finite, first = PRESENT["être"][person], []
        last = [agree("obligé", "obligée", subject.gender, subject.number), "de", *clitic, verb.infinitive]
    elif tense in MODALS:
        finite, first, last = PRESENT[MODALS[tense][2]][person], [], [*clitic, verb.infinitive]
    else:
        finite = verb.present[person]
    return [
        subject.fr,
        "ne" if negative else "",
        *first,
        finite,
        *after,
        *last,
        *complement(verb, obj, negative),
    ]


def complement(verb, obj, negative=False):
    if not obj or obj.clitic:
        return []
    if "b" in verb.flags:
        return ["besoin de", (obj.after_de or f"de {obj.fr}").removeprefix("de ")]
    if "à" in verb.flags:  # the article stays: "ne pense pas à des questions"
        return ["à", obj.fr]
    return [obj.negated if negative and obj.negated else obj.fr]

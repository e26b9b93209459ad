"""The words of lexicon.py as objects, and noun phrases in English and French at once."""

from dataclasses import dataclass

import lexicon
from french import BEFORE_VOWEL, agree, conjugations, feminine, plural, vowel


def english_plural(word):
    if word.endswith(("s", "x", "ch", "sh")):
        return word + "es"
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + "s"


def items(text):
    return [entry.split() for entry in text.replace("\n", " ").split(",")]


@dataclass(frozen=True)
class Noun:
    en: tuple  # singular, plural
    fr: tuple
    gender: str
    kind: str


@dataclass(frozen=True)
class Adjective:
    en: str
    fr: tuple  # masculine, feminine
    before: bool
    kinds: tuple  # empty: any

    def fits(self, noun):
        return not self.kinds or noun.kind in self.kinds


@dataclass(frozen=True)
class Verb:
    en: str
    past: str
    third: str
    ing: str
    infinitive: str
    present: dict
    future: str
    participle: str
    kinds: tuple
    flags: str


@dataclass(frozen=True)
class Phrase:
    """A noun phrase, or what else stands as a subject or object."""

    en: str
    fr: str
    person: str = "il"
    gender: str = "m"
    number: str = "s"
    kind: str = ""
    negated: str = ""  # after "pas", where it differs: pas de pommes
    after_de: str = ""  # after "besoin de", where it differs
    clitic: bool = False

    @property
    def third(self):
        return self.person == "il"


def read_nouns():
    found = []
    for kind, text in lexicon.NOUNS.items():
        for en, fr, gender in items(text):
            one, _, many = en.partition("/")
            un, _, des = fr.replace("_", " ").partition("/")
            found.append(Noun((one, many or english_plural(one)), (un, des or plural(un)), gender, kind))
    return found


def read_adjectives():
    found = []
    for text, before in ((lexicon.BEFORE, True), (lexicon.AFTER, False)):
        for en, fr, *kinds in items(text):
            masculine, _, fem = fr.partition("/")
            names = " ".join(kinds).replace(".", " ").split()
            names = () if names in ([], ["*"]) else tuple(names)
            found.append(Adjective(en, (masculine, fem or feminine(masculine)), before, names))
    return found


def read_verbs():
    found = []
    for line in lexicon.VERBS.strip().splitlines():
        english, french, kinds, *flags = (part.strip() for part in line.split("|"))
        base, past, third, ing = (english.replace("_", " ").split("/") + ["", "", ""])[:4]
        e = base.endswith("e")
        y = base.endswith("y") and base[-2] not in "aeiou"
        past = past or (base + "d" if e else base[:-1] + "ied" if y else base + "ed")
        third = third or (base + "es" if base.endswith("o") else english_plural(base))
        ing = ing or (base[:-1] + "ing" if e and not base.endswith("ee") else base + "ing")
        found.append(
            Verb(base, past, third, ing, *conjugations(french), tuple(kinds.split()), "".join(flags))
        )
    return found


NOUNS, ADJECTIVES, VERBS = read_nouns(), read_adjectives(), read_verbs()
NUMBERS = [(en, fr.replace("_", " ")) for en, fr in items(lexicon.NUMBERS)]
POSSESSIVES = {
    "my": ("mon", "ma", "mes"),
    "your": ("votre", "votre", "vos"),
    "his": ("son", "sa", "ses"),
    "her": ("son", "sa", "ses"),
    "our": ("notre", "notre", "nos"),
    "their": ("leur", "leur", "leurs"),
}
# "you" is always the polite "vous", and masculine; "they" is "ils".
PRONOUNS = {
    "I": Phrase("I", "je", "je"),
    "you": Phrase("you", "vous", "vous"),
    "he": Phrase("he", "il"),
    "she": Phrase("she", "elle", gender="f"),
    "we": Phrase("we", "nous", "nous", number="p"),
    "they": Phrase("they", "ils", "ils", number="p"),
}
OBJECTS = {
    "me": Phrase("me", "me", clitic=True),
    "you": Phrase("you", "vous", clitic=True),
    "him": Phrase("him", "le", clitic=True),
    "her": Phrase("her", "la", gender="f", clitic=True),
    "us": Phrase("us", "nous", number="p", clitic=True),
    "them": Phrase("them", "les", number="p", clitic=True),
}


def article(word):
    return "an" if word[0] in "aeiouAEIOU" and not word.startswith(("use", "uni")) else "a"


def noun_phrase(noun, det, many=False, adjectives=(), owner=None, number=None):
    """det: the, a, bare, some, any, generic, a possessive, this, that, number, many, every, all, owner. A word before
    the noun comes first in adjectives."""
    n, g = ("p" if many else "s"), noun.gender
    mass = noun.kind in lexicon.MASS
    before = [a for a in adjectives if a.before]
    after = [agree(*a.fr, g, n) for a in adjectives if not a.before]
    words = [*(agree(*a.fr, g, n) for a in before), noun.fr[many], *after]
    if before and g == "m" and n == "s" and vowel(words[1]):
        words[0] = BEFORE_VOWEL.get(words[0], words[0])
    head = " ".join(words)
    en = " ".join([*(a.en for a in adjectives), noun.en[many]])
    the = "les" if many else "la" if g == "f" else "le"
    negated = after_de = ""
    if det in ("bare", "some", "any"):
        fr = f"de {the} {head}" if mass else f"de {head}" if before else f"des {head}"
        negated = after_de = f"de {head}"
        en = en if det == "bare" else f"{det} {en}"
    elif det == "a":
        fr, negated, en = ("une " if g == "f" else "un ") + head, f"de {head}", f"{article(en)} {en}"
    elif det in ("the", "generic"):
        fr, en = f"{the} {head}", en if det == "generic" else f"the {en}"
    elif det in POSSESSIVES:
        forms = POSSESSIVES[det]
        fr = (forms[2] if many else forms[1] if g == "f" and not vowel(head) else forms[0]) + f" {head}"
        en = f"{det} {en}"
    elif det in ("this", "that"):
        fr = ("ces" if many else "cette" if g == "f" else "cet" if vowel(head) else "ce") + f" {head}"
        en = {"this": "these", "that": "those"}.get(det if many else "", det) + f" {en}"
    elif det == "number":
        count = number[1] + ("e" if g == "f" and number[1].endswith(" un") else "")
        fr, en = f"{count} {head}", f"{number[0]} {en}"
    elif det in ("many", "a lot of", "too many"):
        fr, en = ("trop" if det == "too many" else "beaucoup") + f" de {head}", f"{det} {en}"
    elif det == "every":
        fr, en = f"chaque {head}", f"every {en}"
    elif det == "all":
        fr, en = ("toutes" if g == "f" else "tous") + f" les {head}", f"all the {en}"
    else:
        fr, en = f"{the} {head} de {owner.fr}", f"{owner.en}'s {en}"
    return Phrase(en, fr, "ils" if many else "il", g, n, noun.kind, negated, after_de)


def both(first, second):
    """Two noun phrases with "and"."""
    gender = "f" if first.gender == second.gender == "f" else "m"
    return Phrase(f"{first.en} and {second.en}", f"{first.fr} et {second.fr}", "ils", gender, "p", first.kind)

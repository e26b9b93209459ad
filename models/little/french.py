"""French forms: plurals, agreement, conjugation, elision and contraction."""

import re

VOWELS = tuple("aeiouhâàéèêëîïôûœ")
PERSONS = ("je", "il", "nous", "vous", "ils")
ELIDES = {"je", "ne", "de", "que", "le", "la", "me", "ce"}
BEFORE_VOWEL = {"beau": "bel", "nouveau": "nouvel", "vieux": "vieil"}
FUTURE = dict(zip(PERSONS, ("ai", "a", "ons", "ez", "ont")))
PRESENT = {
    "être": dict(zip(PERSONS, ("suis", "est", "sommes", "êtes", "sont"))),
    "avoir": dict(zip(PERSONS, ("ai", "a", "avons", "avez", "ont"))),
    "aller": dict(zip(PERSONS, ("vais", "va", "allons", "allez", "vont"))),
    "vouloir": dict(zip(PERSONS, ("veux", "veut", "voulons", "voulez", "veulent"))),
    "pouvoir": dict(zip(PERSONS, ("peux", "peut", "pouvons", "pouvez", "peuvent"))),
    "devoir": dict(zip(PERSONS, ("dois", "doit", "devons", "devez", "doivent"))),
    "voudrais": dict(zip(PERSONS, ("voudrais", "voudrait", "voudrions", "voudriez", "voudraient"))),
    "penser": dict(zip(PERSONS, ("pense", "pense", "pensons", "pensez", "pensent"))),
    "savoir": dict(zip(PERSONS, ("sais", "sait", "savons", "savez", "savent"))),
    "aimer": dict(zip(PERSONS, ("aime", "aime", "aimons", "aimez", "aiment"))),
    "dire": dict(zip(PERSONS, ("dis", "dit", "disons", "dites", "disent"))),
}
FUTURE_STEM = {"être": "ser", "avoir": "aur"}
IMPERFECT = {
    "être": dict(zip(PERSONS, ("étais", "était", "étions", "étiez", "étaient"))),
    "avoir": dict(zip(PERSONS, ("avais", "avait", "avions", "aviez", "avaient"))),
}


def vowel(word):
    """Whether a word asks for elision before it."""
    return word.lower().startswith(VOWELS)


def plural(word):
    if word[-1] in "sxz":
        return word
    if word.endswith("al"):
        return word[:-1] + "ux"
    return word + ("x" if word.endswith(("eau", "eu")) and word != "bleu" else "s")


def feminine(word):
    if word.endswith("e"):
        return word
    if word.endswith("eux"):
        return word[:-1] + "se"
    return word + "e"


def agree(masculine, fem, gender, number):
    """An adjective's form; gender "m" or "f", number "s" or "p"."""
    form = masculine if gender == "m" else fem
    return form if number == "s" else plural(form)


def conjugations(entry):
    """(infinitive, present by person, future stem, participle) of a verb as lexicon.VERBS writes it."""
    words = entry.split()
    if len(words) > 1:
        return words[0], dict(zip(PERSONS, words[1:6])), words[6], words[7]
    infinitive, _, strong = entry.partition("/")
    stem = infinitive[:-2]
    soft = stem + "e" if stem.endswith("g") else stem  # nous mangeons
    strong = strong or stem
    present = dict(zip(PERSONS, (strong + "e", strong + "e", soft + "ons", stem + "ez", strong + "ent")))
    future = infinitive if infinitive == "préférer" else strong + "er"
    return infinitive, present, future, stem + "é"


def join(tokens):
    """One string, with elision (l'homme) and contraction (au, du, aux). "le_", "la_" and "les_" are pronouns, which
    do not contract: de le voir."""
    words = " ".join(tokens).split()
    out = []
    for i, word in enumerate(words):
        following = words[i + 1] if i + 1 < len(words) else ""
        plain = word.rstrip("_")
        if (
            plain in ELIDES
            and following
            and vowel(following)
            and (plain != "ce" or following.startswith("e"))
        ):
            word = plain[:-1] + "'"
        out.append(word)
    text = " ".join(out).replace("' ", "'")
    for pair, one in (("de le ", "du "), ("de les ", "des "), ("à le ", "au "), ("à les ", "aux ")):
        text = re.sub(rf"(?<![\w-]){pair}", one, text)
    return text.replace("*", "").replace("_", "")

"""More families of sentences: what this is, weather, time, age, names, professions."""

import lexicon
from clauses import (
    DAYS,
    NAMES,
    named,
    pair,
    subject,
    whereabouts,
)
from french import PRESENT
from phrases import ADJECTIVES, NOUNS, NUMBERS, PRONOUNS, items
from syntax import be

HOURS = [("one", "une"), *NUMBERS[:11]]


def identity(rng):
    """This is my house; these are not my books; who is the teacher?"""
    what = named(rng, rng.choice(NOUNS), ["a"] * 4 + ["the", "possessive", "possessive", "owner"], 0.35)
    mode = rng.choice(["aff", "aff", "neg", "ask"])
    one = what.number == "s"
    if rng.random() < 0.15 and one and what.kind == "person":
        return ["who is", what.en, "?"], ["qui est", what.fr, "?"]
    word = rng.choice(["this", "it", "that"]) if one else rng.choice(["these", "those"])
    verb = "is" if one else "are"
    c_est = "ce est" if one else "ce sont"
    if mode == "ask":
        return [verb, word, what.en, "?"], ["est-ce que", c_est, what.fr, "?"]
    if mode == "neg":
        return [word, verb, "not", what.en], [c_est.replace("ce ", "ce ne "), "pas", what.fr]
    return [word, verb, what.en], [c_est, what.fr]


def opinion(rng):
    """It is expensive: c'est cher."""
    choice = [
        a
        for a in ADJECTIVES
        if a.en not in lexicon.WITH_AVOIR and (not a.kinds or set(a.kinds) & {"thing", "idea", "food"})
    ]
    choice += [a for a in ADJECTIVES if a.en in ("dangerous",)]
    adjective = rng.choice(choice)
    en = "it" if rng.random() < 0.6 else "this"
    how, comment = pair(rng, "|, |, very|très, too|trop")
    mode = rng.choice(["aff", "aff", "neg", "ask"])
    so = adjective.fr[0]
    if mode == "ask":
        return ["is", en, how, adjective.en, "?"], ["est-ce que ce est", comment, so, "?"]
    if mode == "neg":
        return [en, "is not", how, adjective.en], ["ce ne est pas", comment, so]
    return [en, "is", how, adjective.en], ["ce est", comment, so]


def weather(rng):
    day, jour = pair(rng, "|, today|aujourd'hui, now|maintenant, this morning|ce matin, this evening|ce soir, "
                          "in winter|en hiver, in summer|en été, in autumn|en automne, in spring|au printemps")  # fmt: skip
    where, lieu = whereabouts(rng) if rng.random() < 0.7 else ("", "")
    en, fr, no = rng.choice((
        ("cold", "il fait froid", "il ne fait pas froid"), ("hot", "il fait chaud", "il ne fait pas chaud"),
        ("raining", "il pleut", "il ne pleut pas"), ("snowing", "il neige", "il ne neige pas"),
        ("sunny", "il y a du soleil", "il n'y a pas de soleil"), ("windy", "il y a du vent", "il n'y a pas de vent"),
    ))  # fmt: skip
    mode = rng.choice(["aff", "aff", "neg", "ask"])
    if mode == "ask":
        return ["is it", en, where, day, "?"], ["est-ce que", fr, lieu, jour, "?"]
    return (
        (["it is not", en, where, day], [no, lieu, jour])
        if mode == "neg"
        else (["it is", en, where, day], [fr, lieu, jour])
    )


def clock(rng):
    en, fr = rng.choice(HOURS)
    heures = "heure" if en == "one" else "heures"
    half, demie = pair(rng, "|, half past|et demie, quarter past|et quart")
    prefix, avant = pair(rng, "it is|il est, it is|il est, is it|est-ce que il est")
    end = ["?"] if prefix == "is it" else []
    if rng.random() < 0.15:
        en, fr = pair(rng, "noon|midi, midnight|minuit")
        return [prefix, en, *end], [avant, fr, *end]
    if half:
        return [prefix, half, en, *end], [avant, fr, heures, demie, *end]
    return [prefix, en, "o'clock", *end], [avant, fr, heures, *end]


def age(rng):
    who = subject(rng, ("person", "animal"), 0.1)
    en, fr = rng.choice([*NUMBERS, ("one", "un")])
    ans = "an" if en == "one" else "ans"
    years = "year" if en == "one" else "years"
    mode = rng.choice(["aff", "aff", "aff", "neg", "ask", "how"])
    if mode == "how" and who not in PRONOUNS.values():
        return ["how old", be(who), who.en, "?"], ["quel âge a" if who.third else "quel âge ont", who.fr, "?"]
    form = PRESENT["avoir"][who.person]
    if mode == "ask":
        return [be(who), who.en, en, years, "old?"], ["est-ce que", who.fr, form, fr, ans, "?"]
    if mode == "neg":
        return [who.en, be(who), "not", en, years, "old"], [who.fr, "ne", form, "pas", fr, ans]
    return [who.en, be(who), en, years, "old"], [who.fr, form, fr, ans]


def personal(rng):
    """Names, professions, days."""
    draw = rng.random()
    if draw < 0.1:
        (en, fr), (today, jour) = rng.choice(DAYS), pair(rng, "today|aujourd'hui, tomorrow|demain")
        return [today, "is", en], [f"{jour}, c'est", fr]
    who = subject(rng, ("person",), 0)
    while who.person in ("nous", "ils"):
        who = subject(rng, ("person",), 0)
    if draw < 0.3:
        name = rng.choice(NAMES)
        whose, appelle = pair(
            rng, "my|je me appelle, his|il s'appelle, her|elle s'appelle, your|vous vous appelez"
        )
        return [whose, "name is", name.en], [appelle, name.fr]
    en, *forms = rng.choice(items(lexicon.PROFESSIONS))
    a = "an" if en[0] in "ae" else "a"
    fr = forms[who.gender == "f"]
    mode = rng.choice(["aff", "aff", "neg", "ask"])
    form = PRESENT["être"][who.person]
    if mode == "ask":
        return [be(who), who.en, a, en, "?"], ["est-ce que", who.fr, form, fr, "?"]
    negative = mode == "neg"
    return [who.en, be(who), "not" if negative else "", a, en], [
        who.fr, "ne" if negative else "", form, "pas" if negative else "", fr
    ]  # fmt: skip

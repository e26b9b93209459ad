"""The families of sentences: each function draws one, as English words and French tokens."""

import lexicon
from clauses import (
    BY_KIND,
    circumstance,
    clause,
    describe,
    named,
    pair,
    subject,
    thing_for,
    time,
    whereabouts,
)
from french import FUTURE, FUTURE_STEM, IMPERFECT, PRESENT, agree
from phrases import ADJECTIVES, NOUNS, PRONOUNS, VERBS, Phrase, items, noun_phrase
from small_talk import age, clock, identity, opinion, personal, weather
from syntax import be, complement

WORDS = [v for v in VERBS if set(v.kinds) & {"text", "tech", "idea"}]  # read, translate, use, …
WHO = Phrase("who", "qui")


def statement(rng):
    return clause(rng)


def question(rng):
    en, fr = clause(rng, "ask")
    draw = rng.random()
    if draw < 0.3:
        word, mot = pair(rng, "why|pourquoi, when|quand")
        return [word, *en, "?"], [mot, "est-ce que", *fr, "?"]
    return [*en, "?"], ["est-ce que", *fr, "?"]


def question_word(rng):
    draw = rng.random()
    if draw < 0.3:
        verb = rng.choice([v for v in VERBS if v.kinds[0] in BY_KIND and not set("àb") & set(v.flags)])
        verb = verb if set(verb.kinds) & {"food", "drink", "thing", "text", "tech"} else VERBS[0]
        en, fr = clause(rng, "ask", verb=verb, extras=False, obj=False)
        return ["what", *en, "?"], ["qu'est-ce que", *fr, "?"]
    if draw < 0.5:
        en, fr = clause(rng, rng.choice(["aff", "aff", "aff", "neg"]), who=WHO)
        return [*en, "?"], [*fr, "?"]
    if draw < 0.65:
        verb = rng.choice(
            [
                v
                for v in VERBS
                if v.infinitive in ("habiter", "aller", "travailler", "manger", "jouer", "dormir", "acheter")
            ]
        )
        en, fr = clause(rng, "ask", verb=verb, extras=False, obj=verb.kinds[0] not in ("to", "in"))
        return ["where", *en, "?"], ["où est-ce que", *fr, "?"]
    if draw < 0.8:
        verb = rng.choice(
            [
                v
                for v in VERBS
                if v.infinitive in ("avoir", "acheter", "vouloir", "voir", "manger", "vendre", "trouver")
                and "b" not in v.flags
            ]
        )
        noun = rng.choice(BY_KIND[rng.choice([k for k in verb.kinds if k not in lexicon.MASS])])
        what = noun_phrase(noun, "many", True, describe(rng, noun, 0.15))
        en, fr = clause(
            rng, "ask", verb=verb, extras=False, obj=False, tense=rng.choice(["present", "future", "want"])
        )
        return [f"how {what.en}", *en, "?"], [what.fr.replace("beaucoup", "combien"), "est-ce que", *fr, "?"]
    who = subject(rng, ("person", "animal", "thing", "text", "place"))
    if who in PRONOUNS.values():
        return ["where", be(who), who.en, "?"], [
            "où",
            f"{PRESENT['être'][who.person]}-{who.fr}",
            "?",
        ] if who.person != "je" else ["où suis-je", "?"]
    return ["where", be(who), who.en, "?"], ["où", PRESENT["être"][who.person], who.fr, "?"]


def quality(rng):
    """Somebody or something is so: the girls are not very happy."""
    if rng.random() < 0.5:
        who = subject(rng)
    else:
        kind = rng.choice(["food", "mass", "drink", "thing", "text", "tech", "idea", "place"])
        who = named(
            rng, rng.choice(BY_KIND[kind]), ["the"] * 4 + ["possessive", "this", "owner", "all", "that"], 0.1
        )
    kind = who.kind or "person"
    choice = [a for a in ADJECTIVES if not a.kinds or kind in a.kinds]
    adjective = rng.choice(choice)
    tense = rng.choice(["present"] * 6 + ["past"] * 2 + ["future"])
    mode = rng.choice(["aff"] * 3 + ["neg", "ask"])
    how, comment = pair(rng, "|, |, |, very|très, too|trop")
    alive = kind in ("person", "animal")
    state = lexicon.WITH_AVOIR.get(adjective.en) if alive else None
    verb = "avoir" if state else "être"
    forms = {
        "present": PRESENT[verb],
        "past": IMPERFECT[verb],
        "future": {p: FUTURE_STEM[verb] + e for p, e in FUTURE.items()},
    }
    form = forms[tense][who.person]
    so = state or agree(*adjective.fr, who.gender, who.number)
    is_ = "will" if tense == "future" else be(who, tense == "past")
    later = "be" if tense == "future" else ""
    fr = [who.fr, "ne" if mode == "neg" else "", form, "pas" if mode == "neg" else "", comment, so]
    more = time(rng, "present" if tense == "present" else tense) if rng.random() < 0.08 else ("", "")
    if mode == "ask":
        return [is_, who.en, later, how, adjective.en, more[0], "?"], ["est-ce que", *fr, more[1], "?"]
    return [who.en, is_, "not" if mode == "neg" else "", later, how, adjective.en, more[0]], [*fr, more[1]]


def position(rng):
    who = subject(rng, ("person", "animal", "thing", "food", "text"))
    where = whereabouts(rng)
    mode = rng.choice(["aff", "aff", "neg", "ask"])
    past = rng.random() < 0.25
    form = (IMPERFECT if past else PRESENT)["être"][who.person]
    if mode == "ask":
        return [be(who, past), who.en, where[0], "?"], ["est-ce que", who.fr, form, where[1], "?"]
    negative = mode == "neg"
    return (
        [who.en, be(who, past), "not" if negative else "", where[0]],
        [who.fr, "ne" if negative else "", form, "pas" if negative else "", where[1]],
    )


def existence(rng):
    noun = rng.choice(NOUNS)
    mode = rng.choice(["aff", "aff", "neg", "no", "ask"])
    dets = (
        ["a"] * 3 + ["bare", "number", "many"]
        if mode == "aff"
        else ["a", "any"]
        if mode in ("neg", "ask")
        else ["bare"]
    )
    what = named(rng, noun, dets, 0.25)
    where = whereabouts(rng) if rng.random() < 0.7 else ("", "")
    verb = "are" if what.number == "p" else "is"
    if mode == "ask":
        return [verb, "there", what.en, where[0], "?"], ["est-ce que il y a", what.fr, where[1], "?"]
    if mode == "aff":
        return ["there", verb, what.en, where[0]], ["il y a", what.fr, where[1]]
    word = "no" if mode == "no" else "not"
    return ["there", verb, word, what.en, where[0]], ["il n'y a pas", what.negated, where[1]]


def action(rng, verbs=VERBS):
    """A verb with its object, in the infinitive: learn languages with books."""
    verb = rng.choice(verbs)
    kind = rng.choice([k for k in verb.kinds if k in ("text", "tech", "idea")] or verb.kinds)
    if kind in BY_KIND and rng.random() < 0.6:
        det = "generic" if "g" in verb.flags else "bare"
        what = named(rng, rng.choice(BY_KIND[kind]), [det], 0.25)
    else:
        what = thing_for(rng, verb, "time")
        what = None if what and what.clitic and what.en in ("her",) else what
    en, fr = [verb.en, what.en if what else ""], [*complement(verb, what)]
    fr = ([what.fr + "_"] if what and what.clitic else []) + [verb.infinitive, *fr]
    if rng.random() < 0.35:
        tool = named(
            rng,
            rng.choice(BY_KIND[rng.choice(["tech", "tech", "text", "thing"])]),
            ["bare", "a", "the"],
            0.15,
        )
        en.append(f"with {tool.en}")
        fr.append(f"avec {tool.fr}")
    elif verb.kinds == ("-",) or rng.random() < 0.1:
        more = circumstance(rng, place=True)
        en.append(more[0])
        fr.append(more[1])
    return en, fr


def impersonal(rng):
    """It is easy to translate languages with transformers."""
    adjective, adjectif = rng.choice(items(lexicon.IMPERSONAL))
    en, fr = action(rng, rng.choice([VERBS, WORDS, WORDS]))
    how, comment = pair(rng, "|, |, |, |, very|très, too|trop")
    mode = rng.choice(["aff"] * 4 + ["neg", "ask"])
    if mode == "ask":
        return ["is it", how, adjective, "to", *en, "?"], [
            "est-ce que il est",
            comment,
            adjectif,
            "de",
            *fr,
            "?",
        ]
    if mode == "neg":
        return ["it is not", how, adjective, "to", *en], ["il n'est pas", comment, adjectif, "de", *fr]
    return ["it is", how, adjective, "to", *en], ["il est", comment, adjectif, "de", *fr]


def order(rng):
    verb = rng.choice([v for v in VERBS if "s" not in v.flags])
    what = thing_for(rng, verb, "neg")
    if what and (what.clitic or " any " in f" {what.en} "):
        what = named(rng, rng.choice(BY_KIND[rng.choice([k for k in verb.kinds if k in BY_KIND])]), ["the"])
    more = circumstance(rng, place=verb.kinds[0] not in ("to", "from")) if rng.random() < 0.3 else ("", "")
    form = verb.present["vous"]
    if rng.random() < 0.3:
        return ["do not", verb.en, what.en if what else "", more[0]], [
            "ne",
            form,
            "pas",
            *complement(verb, what, True),
            more[1],
        ]
    return [verb.en, what.en if what else "", more[0]], [form, *complement(verb, what), more[1]]


def compound(rng):
    """Two clauses: I think that …; … because …."""

    def one(short=True):
        draw = rng.random()
        if draw < 0.35:
            en, fr = quality(rng)
            while en[-1] == "?":
                en, fr = quality(rng)
            return en, fr
        return clause(rng, extras=rng.random() < 0.2)

    en, fr = one()
    draw = rng.random()
    if draw < 0.45:
        who = subject(rng, ("person",), 0)
        verb, third, infinitive = rng.choice((
            ("think", "thinks", "penser"), ("know", "knows", "savoir"), ("say", "says", "dire"),
        ))  # fmt: skip
        verb = third if who.third else verb
        return [who.en, verb, "that", *en], [who.fr, PRESENT[infinitive][who.person], "que", *fr]
    other, autre = one()
    word, mot = pair(rng, "and|et, but|mais, because|parce que, because|parce que")
    return [*en, word, *other], [*fr, mot, *autre]


FAMILIES = {
    statement: 30, question: 9, question_word: 7, quality: 14, position: 5, existence: 6, identity: 7,
    impersonal: 11, order: 4, weather: 1.5, clock: 0.6, age: 2, personal: 1.5, opinion: 1, compound: 5,
}  # fmt: skip

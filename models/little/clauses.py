"""Clauses drawn at random: who, does what, where, when. In English and French at once."""

import lexicon
from phrases import (
    ADJECTIVES,
    NOUNS,
    NUMBERS,
    OBJECTS,
    POSSESSIVES,
    PRONOUNS,
    VERBS,
    Phrase,
    both,
    items,
    noun_phrase,
)
from syntax import MODALS, english, french

NAMES = [Phrase(en, en, "il", gender, "s", "person") for en, gender in items(lexicon.NAMES)]
BY_KIND = {kind: [noun for noun in NOUNS if noun.kind == kind] for kind in lexicon.NOUNS}
TRANSITIVE = [verb for verb in VERBS if verb.kinds[0] in BY_KIND]
OTHER = [verb for verb in VERBS if verb.kinds[0] not in BY_KIND]
PLACES_AT = {"to": "à", "from": "de", "in": "à"}
RELATIONS = (
    "in|dans", "on|sur", "under|sous", "behind|derrière", "in front of|devant", "near|près de", "next to|à côté de"
)  # fmt: skip
TIMES = {
    "present": "today|aujourd'hui, every day|tous les jours, now|maintenant, in the morning|le matin, "
    "in the evening|le soir, every evening|tous les soirs, in winter|en hiver, in summer|en été",
    "past": "yesterday|hier, this morning|ce matin, yesterday evening|hier soir",
    "future": "tomorrow|demain, this evening|ce soir, tomorrow morning|demain matin",
}
DAYS = items(lexicon.DAYS)


def pair(rng, text):
    return rng.choice(text.split(", ")).split("|")


def time(rng, tense):
    when = tense if tense in TIMES else "future" if tense in ("near", "would") else "present"
    if rng.random() < 0.15:
        en, fr = rng.choice(DAYS)
        return [f"on {en}", fr]
    return pair(rng, TIMES[when])


def describe(rng, noun, chance=0.35):
    """None, one or two adjectives for this noun; sometimes one that seldom goes with it."""
    found = []
    if rng.random() < chance:
        odd = rng.random() < 0.2
        choice = [a for a in ADJECTIVES if odd and noun.kind != "person" or a.fits(noun)]
        warm = ("hot", "cold") if noun.kind in lexicon.MASS else ()
        choice = [a for a in choice if a.en in warm or a.en not in lexicon.WITH_AVOIR]
        found.append(rng.choice(choice))
        if rng.random() < 0.25:
            other = rng.choice(choice)
            if other.before != found[0].before:
                found = sorted([*found, other], key=lambda a: not a.before)
    return found


def named(rng, noun, dets, chance=0.35):
    """A noun phrase with one of these determiners."""
    det = rng.choice(dets)
    if det in ("the", "this", "that", "owner", "possessive", "generic", "any"):
        many = rng.random() < 0.4
    else:
        many = det in ("bare", "some", "number", "many", "a lot of", "too many", "all")
    mass = noun.kind in lexicon.MASS
    if mass:
        many, det = False, {"a": "bare", "number": "some", "every": "the", "all": "the"}.get(det, det)
        det = "a lot of" if det == "many" else det
    elif det in ("any", "generic"):
        many = True
    det = rng.choice(list(POSSESSIVES)) if det == "possessive" else det
    owner = None
    if det == "owner":
        owner = rng.choice(NAMES)
        if rng.random() < 0.4:
            owner = named(rng, rng.choice(BY_KIND["person"]), ["the", "possessive"], 0)
            owner = owner if owner.number == "s" else rng.choice(NAMES)
    return noun_phrase(noun, det, many, describe(rng, noun, chance), owner, rng.choice(NUMBERS))


def subject(rng, kinds=("person", "person", "person", "animal"), chance=0.25):
    draw = rng.random()
    if draw < 0.4:
        return PRONOUNS[rng.choice(list(PRONOUNS))]
    if draw < 0.5:
        return rng.choice(NAMES)
    noun = rng.choice(BY_KIND[rng.choice(kinds)])
    dets = ["the"] * 8 + ["possessive"] * 3 + ["a", "this", "number", "many", "every", "all", "that", "owner"]
    found = named(rng, noun, dets, chance)
    if draw > 0.96:
        other = named(rng, rng.choice(BY_KIND[noun.kind]), ["the", "possessive"], 0)
        return both(found, other) if other.en != found.en else found
    return found


def place(rng, relation):
    """Where to, from or at: to school, from Italy, in Paris, to the park."""
    draw = rng.random()
    if draw < 0.3:
        en, fr = rng.choice(items(lexicon.CITIES))
        return Phrase(f"{relation} {en}", f"{PLACES_AT[relation]} {fr}")
    if draw < 0.55:
        en, fr, gender = rng.choice(items(lexicon.COUNTRIES))
        if relation == "from":
            return Phrase(f"from {en}", f"de {fr}" if gender == "f" else f"du {fr}")
        return Phrase(f"{relation} {en}", f"en {fr}" if gender == "f" else f"au {fr}")
    if draw < 0.65 and relation == "to":
        return rng.choice((Phrase("to school", "à l'école"), Phrase("to town", "en ville")))
    noun = rng.choice(BY_KIND["place"])
    found = named(rng, noun, ["the"] * 6 + ["possessive", "this", "a"], 0.2)
    inside = relation == "in" or relation == "to" and noun.en[0] in lexicon.TO_DANS
    preposition = "dans" if inside else PLACES_AT[relation]
    return Phrase(f"{relation} {found.en}", f"{preposition} {found.fr}")


def thing_for(rng, verb, mode):
    """An object for this verb."""
    kind = rng.choice(verb.kinds)
    if kind in PLACES_AT:
        return place(rng, kind)
    if kind == "tongue":
        en, fr = rng.choice(items(lexicon.LANGUAGES))
        return Phrase(en, fr)
    if kind == "-" or verb.en in lexicon.ALONE and rng.random() < 0.1:
        return None
    if kind == "person":
        draw = rng.random()
        if draw < 0.35 and not set("àb") & set(verb.flags):
            return OBJECTS[rng.choice(list(OBJECTS))]
        if draw < 0.45:
            return rng.choice(NAMES)
    if verb.infinitive in ("apprendre", "comprendre") and rng.random() < 0.3:
        en, fr = rng.choice(items(lexicon.LANGUAGES))
        return Phrase(en, f"le {fr}")
    dets = ["the"] * 4 + ["possessive", "this", "owner", "all", "that"]
    if "g" in verb.flags:
        return named(rng, rng.choice(BY_KIND[kind]), [*dets, *["generic"] * 8])
    dets += ["a"] * 4 + ["bare"] * 4 + ["number"] * 2 + ["many", "a lot of", "too many"]
    dets += {"aff": ["some"] * 2, "never": [], "time": []}.get(mode, ["any"] * 2)
    found = named(rng, rng.choice(BY_KIND[kind]), dets)
    if mode == "aff" and rng.random() < 0.06:
        other = named(rng, rng.choice(BY_KIND[kind]), ["a", "bare"], 0.1)
        if other.en != found.en and not set("àb") & set(verb.flags):
            return both(found, other)
    return found


def pick_verb(rng):
    return rng.choice(TRANSITIVE if rng.random() < 0.72 else OTHER)


def clause(rng, mode=None, who=None, verb=None, tense=None, extras=True, obj=True):
    """English words, French tokens. Modes: aff, neg, never, ask."""
    mode = mode or rng.choice(["aff"] * 6 + ["neg"] * 3 + ["never"])
    who, verb = who or subject(rng), verb or pick_verb(rng)
    simple = ["present"] * 6 + ["past"] * 4 + ["future"] * 2 + ["progressive"] * 3
    tense = tense or rng.choice(simple + rng.choices(list(MODALS), k=4))
    if verb.infinitive == "vouloir" and tense in ("want", "would", "like"):
        tense = "present"
    if tense == "progressive" and ("s" in verb.flags or mode == "never"):
        tense = "present"
    if (
        tense == "past"
        and verb.past == verb.en
        and not who.third
        or tense in ("would", "have")
        and mode == "never"
    ):
        tense = "present"
    if tense == "like" and "s" in verb.flags:
        tense = "present"
    what = thing_for(rng, verb, mode) if obj else None
    if (
        what
        and what.clitic
        and what.en in {"I": ("me", "us"), "we": ("me", "us"), "you": ("you",)}.get(who.en, ())
    ):
        what = OBJECTS["them"]
    often = ("", "")
    if mode == "aff" and tense in ("present", "past") and rng.random() < 0.07:
        often = pair(rng, "often|souvent, always|toujours")
    en = english(who, verb, what, tense, mode, often[0])
    fr = french(who, verb, what, tense, mode, often[1])
    more = []
    if extras and "t" in verb.flags and rng.random() < 0.8:
        to = named(rng, rng.choice(BY_KIND["person"]), ["the"] * 3 + ["possessive"], 0.1)
        to = to if rng.random() < 0.8 else rng.choice(NAMES)
        more.append((f"to {to.en}", f"à {to.fr}"))
    elif extras and not set("àb") & set(verb.flags) and rng.random() < (0.2 if what else 0.5):
        more.append(circumstance(rng, mode, place=verb.kinds[0] not in PLACES_AT))
    if extras and rng.random() < 0.12 and not often[0]:
        more.append(time(rng, tense))
    return [*en, *(m[0] for m in more)], [*fr, *(m[1] for m in more)]


def circumstance(rng, mode="aff", place=True):
    if not place or rng.random() < 0.4:
        with_ = rng.choice(NAMES)
        if rng.random() < 0.7:
            with_ = named(rng, rng.choice(BY_KIND["person"]), ["the", "possessive", "possessive", "a"], 0.1)
        return [f"with {with_.en}", f"avec {with_.fr}"]
    return whereabouts(rng)


def whereabouts(rng):
    draw = rng.random()
    if draw < 0.15:
        return pair(rng, "at school|à l'école, in town|en ville, at home|à la maison, here|ici, there|là-bas")
    if draw < 0.25:
        en, fr = rng.choice(items(lexicon.CITIES))
        return [f"in {en}", f"à {fr}"]
    if draw < 0.7:
        noun = rng.choice(BY_KIND["place"])
        found = named(rng, noun, ["the"] * 5 + ["possessive", "a", "this"], 0.15)
        en, fr = rng.choice(RELATIONS[:1] * 4 + RELATIONS[3:]).split("|")
        if en == "in" and noun.en[0] in lexicon.ON_SUR:
            en, fr = "on", "sur"
    else:
        found = named(rng, rng.choice(BY_KIND["thing"]), ["the"] * 5 + ["possessive", "a", "this"], 0.15)
        en, fr = rng.choice(RELATIONS).split("|")
    return [f"{en} {found.en}", f"{fr} {found.fr}"]

"""What "her" and "his" are in a sentence, told from the words that follow."""

import re
from typing import Literal


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Words that begin a noun phrase of their own: no possessive stands before them.
DETERMINERS = _words("a an the this these those my your our their his her")

#: Words that stand before those: "gave her all her money", "gave her only a coat".
PREDETERMINERS = _words("all half twice double such only quite exactly nearly almost")

#: Before these "her" is an object, whatever comes next.
AFTER_OBJECT = DETERMINERS | _words(
    """
    another each some any no not

    to of in on at by for from with without within into onto upon about above
    across after against along alongside amid among around as before behind below
    beneath beside besides between beyond despite during except inside like near
    outside over regarding since than through throughout till toward towards under
    until unto up via out off down away

    and but or nor yet if because while although though unless whereas whether
    that which who whom whose what when where why how so

    is are was were am be been has have had do does did would could should shall
    may cannot can't didn't doesn't don't isn't wasn't

    i you we they he she it me us them him himself herself itself themselves hers
    mine yours ours theirs yourself myself someone something anyone anything
    everyone everything nothing

    become get go feel know understand achieve realize realise develop create
    overcome pursue decide think

    again too there here anyway anymore instead today yesterday tomorrow tonight
    forever together apart both alone maybe perhaps rather indeed anywhere
    being having saying
    """
)

#: "her now" ends a clause, "her now famous book" does not.
OBJECT_AT_END = _words(
    """
    then now once still always never ever just much more most less even well also
    back often soon later sometimes
    alive awake aware busy crazy happy sad sane safe sick mad
    """
)

#: "her will" ends a clause, "her will tell you" does not.
NOUN_AT_END = _words("will can might must")

#: Nouns that look like adverbs in "-ly", after which a clause may end.
NOT_ADVERBS = _words(
    """
    family assembly ally anomaly belly bully butterfly fly folly jelly monopoly
    rally reply supply only early daily weekly monthly elderly lovely
    """
)

#: Two words that stand for one before a noun: "her in house team".
COMPOUNDS = frozenset(
    {
        *("a cappella", "a la"),
        *("in house", "in home", "in depth", "in law", "in laws", "so called"),
        *("on site", "on line", "off site", "off line", "off time", "off season"),
        *("after school", "after hours"),
    }
)

#: Verbs between whose object and its complement there is nothing: "made her happy".
CAUSATIVES = _words(
    """
    make makes made making help helps helped helping see sees saw seen seeing hear
    hears heard watch watched keep keeps kept keeping leave leaves left leaving find
    finds found call calls called calling get gets got getting consider considers
    considered take takes took taking drive drove
    """
)

#: Complements that are hardly ever the noun, or begin it, after such a verb.
COMPLEMENTS = _words(
    """
    act appear ask be become begin behave believe bring build choose come
    continue cry deal die discover do earn eat enjoy excel explain explore
    express fall feel find follow gain get give go grow happen have hear hone
    improve keep know laugh learn leave live look lose maintain make manage meet
    navigate perform prepare provide realize receive recover rely remain
    remember say see seem sell serve shine sing sit sleep smile sound speak
    spend stay stop succeed suffer survive take tell think transform try
    understand want wear wonder write

    able accountable active alive awake aware better busy capable comfortable
    different eligible famous fascinating feeling going happy ideal invaluable
    irresistible laughing notable paralyzed popular proud questionable ready
    responsible sad sane stupid successful suitable thinking unable
    uncomfortable unique uniquely unstoppable useful well-known working
    """
)

#: Verbs with two objects, and how the second one may begin.
GIVERS = _words(
    """
    give gives gave given giving earn earns earned earning win wins won winning
    grant grants granted award awards awarded offer offers offered teach teaches
    taught bring brings brought cost costs show shows showed buy bought
    """
)
QUANTITIES = _words(
    """
    many more much numerous several great greater further additional considerable
    one two three enough plenty lots insight
    """
)

#: Before these "his" stands alone: "a friend of his who", "his was better".
AFTER_ALONE = DETERMINERS | _words(
    """
    to of in on at by for from with without within into as before after during
    since than through until while when where and but or nor if because although
    though unless whereas whether that which who whom whose is are was were am be
    been has had does did would could should shall may alone too
    he she it they we you i
    """
)

# The next word: on the same line or the next one, perhaps in quotation marks or
# brackets that open here, perhaps the first part of a compound ("in-laws"). Blank
# lines and wide gaps separate paragraphs.
_NEXT = re.compile(
    r"(?:-|[ \t\xa0]{1,2}|[ \t\xa0]*\r?\n[ \t\xa0]*)[\"“'\u2018`(\[*]*"
    r"(?P<word>\w+(?:['\u2019]\w+)?)(?P<hyphen>-\w)?"
)
# After "his" a noun is all but certain: only punctuation rules it out.
_NEXT_TO_HIS = re.compile(
    r"[-\s\"\u201c\u201d'\u2018\u2019`(\[*]*(?P<word>\w+)(?P<hyphen>-\w)?"
)
_OTHER = re.compile(r"\s*(/|&|or\b|and\b)\s*(her|his|hers|him)\b", re.IGNORECASE)
_BEFORE = re.compile(r"(\w+)\s+(?:(with)\s+)?\Z")
_NUMBER = re.compile(r"\s+(?:\d|two|three|four|five|ten|twenty|thirty|forty)")


def role_of_her(text: str, end: int) -> Literal["determiner", "object"]:
    """Whether the "her" that ends at ``end`` is followed by its noun."""
    other = _OTHER.match(text, end)
    if other and other[1].lower() != "and" and not other[2].lower().startswith("her"):
        # "her or his patients", "her/him": one thing for either gender. But "her and
        # his" are mostly two things, and so are "her or her lawyer".
        has_noun = _has_noun(other[2], text, other.end())
    else:
        has_noun = _her_has_noun(text, end)
    return "determiner" if has_noun else "object"


def role_of_his(text: str, end: int) -> Literal["determiner", "alone"]:
    """Whether the "his" that ends at ``end`` is followed by its noun."""
    if other := _OTHER.match(text, end):
        has_noun = _has_noun(other[2], text, other.end())
    else:
        has_noun = _his_has_noun(text, end)
    return "determiner" if has_noun else "alone"


def _has_noun(pronoun: str, text: str, end: int) -> bool:
    """Whether the second of two pronouns is followed by a noun."""
    if pronoun.lower() == "his":
        return _his_has_noun(text, end)
    return pronoun.lower() == "her" and _her_has_noun(text, end)


def _her_has_noun(text: str, end: int) -> bool:
    """Whether a noun follows "her", other pronouns apart."""
    following = _NEXT.match(text, end)
    if following is None:
        return False
    word, after = following["word"], following.end("word")
    if following["hyphen"] or _is_acronym(word, text[end - 3 : end]):
        return True
    word = word.lower().replace("\u2019", "'")
    return not (_is_after_object(word, text, after) or _is_between(word, text, end - 3))


def _his_has_noun(text: str, end: int) -> bool:
    """Whether a noun follows "his", other pronouns apart."""
    following = _NEXT_TO_HIS.match(text, end)
    if following is None:
        return False
    word, after = following["word"], following.end("word")
    if following["hyphen"] or _is_acronym(word, text[end - 3 : end]):
        return True
    word = word.lower()
    return word not in AFTER_ALONE or _is_compound(word, text, after)


def _is_acronym(word: str, pronoun: str) -> bool:
    """Whether "IT" or "AS" is more than "it" or "as" in capitals."""
    return word.isupper() and word != "I" and not pronoun.isupper()


def _is_after_object(word: str, text: str, end: int) -> bool:
    """Whether a word cannot begin a noun phrase that "her" determines."""
    if word in AFTER_OBJECT:
        return not _is_compound(word, text, end)
    if word in NOUN_AT_END:
        return not _ends_clause(text, end)
    if word in PREDETERMINERS:
        following = _NEXT.match(text, end)
        return following is not None and following["word"].lower() in DETERMINERS
    adverb = word.endswith("ly") and word not in NOT_ADVERBS
    return (adverb or word in OBJECT_AT_END) and _ends_clause(text, end)


def _is_between(word: str, text: str, start: int) -> bool:
    """Whether the word before and ``word`` after hold an object between them."""
    before = _BEFORE.search(text, max(0, start - 30), start)
    if before is None:
        return False
    verb = before[1].lower()
    if before[2]:
        # "brings with her over 20 years of experience"
        return verb in (*GIVERS, "has") and (word == "over" or word.isdigit())
    if verb in ("let", "lets", "letting"):
        return word not in ("guard", "hair", "own")
    if verb in CAUSATIVES:
        return word in COMPLEMENTS
    return verb in GIVERS and (word in QUANTITIES or word.isdigit())


def _is_compound(word: str, text: str, end: int) -> bool:
    """Whether a small word begins a longer one: "in house", "over 20 years"."""
    following = _NEXT.match(text, end)
    if following and f"{word} {following['word'].lower()}" in COMPOUNDS:
        return True
    return word in ("over", "about") and bool(_NUMBER.match(text, end))


def _ends_clause(text: str, end: int) -> bool:
    """Whether no noun can follow at ``end``."""
    following = _NEXT.match(text, end)
    return following is None or following["word"].lower() in AFTER_OBJECT

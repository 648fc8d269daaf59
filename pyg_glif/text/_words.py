"""Word lists of the gender swap: what is swapped, and what may follow "her"."""

#: Words with one counterpart each. "her" and "his" have two: see ``gender.py``.
PRONOUNS = {
    "he": "she",
    "she": "he",
    "him": "her",
    "hers": "his",
    "himself": "herself",
    "herself": "himself",
    "her's": "his",  # "hers" misspelled
}

#: Titles before a name. There is one male title and several female ones.
TITLES = {"mr": "ms", "mrs": "mr", "ms": "mr"}

#: Forms of address that stand for a name.
ADDRESSES = {"sir": "madam", "madam": "sir", "ma'am": "sir"}

_NOUN_PAIRS = """
man woman, boy girl, gentleman lady, gentlemen ladies, guy gal,
father mother, dad mom, daddy mommy, papa mama, son daughter, brother sister,
husband wife, husbands wives, boyfriend girlfriend, fiancé fiancée,
groom bride, widower widow, uncle aunt, nephew niece,
grandfather grandmother, grandpa grandma, grandson granddaughter,
stepfather stepmother, stepson stepdaughter, stepbrother stepsister,
godfather godmother, godson goddaughter, fathers mothers, dads moms,
sons daughters, brothers sisters, uncles aunts, nephews nieces,
grandfathers grandmothers, grandsons granddaughters,
actor actress, waiter waitress, host hostess, hero heroine, heir heiress,
chairman chairwoman, spokesman spokeswoman, businessman businesswoman,
congressman congresswoman, salesman saleswoman, sportsman sportswoman,
king queen, prince princess, duke duchess
"""

#: Nouns that name one person's gender. Not "men", "women", "male" and "female",
#: which mostly say whom the work is for ("women's health").
NOUNS: dict[str, str] = {}
for _pair in _NOUN_PAIRS.split(","):
    _male, _female = _pair.split()
    NOUNS |= {_male: _female, _female: _male}


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

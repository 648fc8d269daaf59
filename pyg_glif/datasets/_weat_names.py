"""The first names of the word-embedding association test, with race and gender.

Facts from Caliskan, Bryson and Narayanan, "Semantics derived automatically from
language corpora contain human-like biases", Science 356 (2017), appendix. The race and
gender are those the test associates with a name, not those of any person.
"""

_NAMES = {
    ("White", "male"): (
        "Adam Chip Harry Josh Roger Alan Frank Ian Justin Ryan Andrew Fred Jack "
        "Matthew Stephen Brad Greg Jed Paul Todd Brandon Hank Jonathan Peter Wilbur"
    ),
    ("White", "female"): (
        "Amanda Courtney Heather Melanie Sara Amber Crystal Katie Meredith Shannon "
        "Betsy Donna Kristin Nancy Stephanie Bobbie-Sue Ellen Lauren Peggy Sue-Ellen "
        "Colleen Emily Megan Rachel Wendy"
    ),
    ("Black", "male"): (
        "Alonzo Jamel Lerone Percell Theo Alphonse Jerome Leroy Rasaan Torrance "
        "Darnell Lamar Lionel Rashaun Tyree Deion Lamont Malik Terrence Tyrone Everol "
        "Lavon Marcellus Terryl Wardell"
    ),
    ("Black", "female"): (
        "Aiesha Lashelle Nichelle Shereen Temeka Ebony Latisha Shaniqua Tameisha "
        "Teretha Jasmine Latonya Shanise Tanisha Tia Lakisha Latoya Sharise Tashika "
        "Yolanda Lashandra Malika Shavonn Tawanda Yvette"
    ),
}

#: Names of races and genders, in the order of their labels.
RACES = ("White", "Black")
GENDERS = ("female", "male")

#: Name, label of its race, label of its gender.
WEAT_NAMES: tuple[tuple[str, int, int], ...] = tuple(
    (name, RACES.index(race), GENDERS.index(gender))
    for (race, gender), names in _NAMES.items()
    for name in names.split()
)

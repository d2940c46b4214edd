"""The other form of an English present-tense verb, where it is certain."""

IRREGULAR = {  # lemma -> third person singular, other persons
    "be": ("is", "are"),
    "have": ("has", "have"),
    "do": ("does", "do"),
    "go": ("goes", "go"),
    "undergo": ("undergoes", "undergo"),
    "forgo": ("forgoes", "forgo"),
    "echo": ("echoes", "echo"),
    "veto": ("vetoes", "veto"),
    "stomach": ("stomachs", "stomach"),
}
VOWELS = "aeiou"
HISSING = ("ss", "x", "zz", "ch", "sh")


def verb_forms(lemma: str) -> tuple[str, str] | None:
    """Singular and plural form; None where spelling alone does not tell."""
    if lemma in IRREGULAR:
        return IRREGULAR[lemma]
    if len(lemma) < 2 or not (lemma.isascii() and lemma.isalpha() and lemma.islower()):
        return None
    before, last = lemma[-2], lemma[-1]
    if lemma.endswith(HISSING):
        return lemma + "es", lemma
    if last in "sz" or (last == "o" and before not in VOWELS):  # buses or busses, quizzes, solos
        return None
    if last == "y" and before not in VOWELS:
        return lemma[:-1] + "ies", lemma
    return lemma + "s", lemma


def other_form(form: str, lemma: str, singular: bool) -> str | None:
    """The form of the other number, written as `form` is; None if `form` is not what its lemma makes one expect."""
    forms = verb_forms(lemma)
    if forms is None or form.lower() != forms[0 if singular else 1]:
        return None
    other = forms[1 if singular else 0]
    if form.isupper():
        return other.upper()
    return other.capitalize() if form[0].isupper() else other

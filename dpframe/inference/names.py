"""Spaces that public knowledge proposes for a column: a function of only its name and type.

An entry of the dictionary has a pattern of names and one or several alternatives: bounds of numbers, or lists of
categories in different spellings. Noisy counts choose between the alternatives and check them (`name_checks`).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from dpframe.errors import ColumnError, ParameterError
from dpframe.inference.categories import is_text
from dpframe.inference.from_data import IDENTIFIER, from_type
from dpframe.inference.grids import is_number
from dpframe.spaces import Categorical, Integer, Real, Space, as_space
from dpframe.spaces.field import Field, is_open


@dataclass(frozen=True)
class Bounds:
    """Bounds of numbers; ``is_whole`` says whether only whole numbers make sense."""

    lower: int
    upper: int
    is_whole: bool = True

    def spaces(self, type_: pa.DataType, is_any_type: bool) -> Iterator[Space]:
        """Yield the space of these bounds for a column's type; nothing for other types."""
        if is_any_type:
            whole = Integer(self.lower, self.upper)
            yield whole if self.is_whole else Real(float(self.lower), float(self.upper))
        elif pa.types.is_integer(type_):
            yield Integer(self.lower, self.upper)
        elif is_number(type_):
            steps = self.upper - self.lower
            yield (
                Real(float(self.lower), float(self.upper), steps)
                if self.is_whole
                else as_space((self.lower, self.upper), type_)
            )

    @property
    def ends(self) -> tuple[float, float]:
        """The least and the largest value."""
        return self.lower, self.upper


@dataclass(frozen=True)
class Words:
    """Categories of text in one spelling; other texts are in the category ``other``."""

    values: tuple[str, ...]

    def spaces(self, type_: pa.DataType, is_any_type: bool) -> Iterator[Space]:
        """Yield the space of these categories for columns of text, or of any type."""
        if is_any_type or is_text(type_):
            yield Categorical(self.values, other=next((v for v in self.values if v.lower() == "other"), "other"))


Alternative = Bounds | Words


def _spellings(*values: str) -> tuple[Alternative, ...]:
    """Return categories in small letters, with a capital, and in capitals."""
    cases = (tuple(map(change, values)) for change in (str.lower, str.capitalize, str.upper))
    return tuple(map(Words, dict.fromkeys(cases)))


def _list_words(text: str) -> tuple[str, ...]:
    """Return the words of a text."""
    return tuple(text.split())


_BINARY: tuple[Alternative, ...] = (Bounds(0, 1), Bounds(1, 2))
"""Codes of two answers (theory: usual codes)."""
_YES_NO: tuple[Alternative, ...] = (
    *_spellings("no", "yes"),
    *_spellings("n", "y"),
    *_spellings("false", "true"),
    *_BINARY,
)
_SEX: tuple[Alternative, ...] = (
    *_spellings("female", "male"),
    *_spellings("f", "m"),
    *_spellings("woman", "man"),
    *_spellings("women", "men"),
    *_spellings("girl", "boy"),
    *_spellings("weiblich", "männlich"),
    *_BINARY,
)
_MONTHS = _list_words("January February March April May June July August September October November December")
_DAYS = _list_words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
_COUNTRIES = _list_words(
    "AD AE AF AG AI AL AM AO AQ AR AS AT AU AW AX AZ BA BB BD BE BF BG BH BI BJ BL BM BN BO BQ BR BS BT BV BW BY BZ "
    "CA CC CD CF CG CH CI CK CL CM CN CO CR CU CV CW CX CY CZ DE DJ DK DM DO DZ EC EE EG EH ER ES ET FI FJ FK FM FO "
    "FR GA GB GD GE GF GG GH GI GL GM GN GP GQ GR GS GT GU GW GY HK HM HN HR HT HU ID IE IL IM IN IO IQ IR IS IT JE "
    "JM JO JP KE KG KH KI KM KN KP KR KW KY KZ LA LB LC LI LK LR LS LT LU LV LY MA MC MD ME MF MG MH MK ML MM MN MO "
    "MP MQ MR MS MT MU MV MW MX MY MZ NA NC NE NF NG NI NL NO NP NR NU NZ OM PA PE PF PG PH PK PL PM PN PR PS PT PW "
    "PY QA RE RO RS RU RW SA SB SC SD SE SG SH SI SJ SK SL SM SN SO SR SS ST SV SX SY SZ TC TD TF TG TH TJ TK TL TM "
    "TN TO TR TT TV TW TZ UA UG UM US UY UZ VA VC VE VG VI VN VU WF WS YE YT ZA ZM ZW"
)
"""Codes of two letters (theory: ISO 3166-1)."""
_STATES = _list_words(
    "AK AL AR AZ CA CO CT DC DE FL GA HI IA ID IL IN KS KY LA MA MD ME MI MN MO MS MT NC ND NE NH NJ NM NV NY OH OK "
    "OR PA RI SC SD TN TX UT VA VT WA WI WV WY"
)
"""Codes of the states of the USA, and of its capital's district (theory: ISO 3166-2)."""

_AT = r"( (at|of|in) .+)?"
_DICTIONARY: tuple[tuple[str, tuple[Alternative, ...]], ...] = (
    (rf"(.+ )?(age|alter)( (years?|yrs?|in years))?{_AT}", (Bounds(0, 120),)),
    (r"(.+ )?(sex|gender|geschlecht)", _SEX),
    (r"(birth |.+ )?(year|yr|jahr)( (of|at) .+)?|yob|geburtsjahr|year built", (Bounds(1900, 2050), Bounds(0, 99))),
    (r"(.+ )?(month|monat|mon)", (Bounds(1, 12), *_spellings(*_MONTHS), *_spellings(*(m[:3] for m in _MONTHS)))),
    (r"(week ?day|day of week|dow|wochentag)", (*_spellings(*_DAYS), *_spellings(*(d[:3] for d in _DAYS)))),
    (r"day( of month)?|dom|mday", (Bounds(1, 31), *_spellings(*_DAYS), *_spellings(*(d[:3] for d in _DAYS)))),
    (r"(.+ )?(hour|stunde)( of day)?", (Bounds(0, 23),)),
    (r"(.+ )?minute", (Bounds(0, 59),)),
    (r"(calendar )?week( of year)?|kalenderwoche|kw", (Bounds(1, 53),)),
    (r"quarter|qtr|quartal", (Bounds(1, 4), Words(("Q1", "Q2", "Q3", "Q4")))),
    (r"(.+ )?(percent|percentage|pct|perc|prozent)( .+)?", (Bounds(0, 100, is_whole=False),)),
    (r"(.+ )?(proportion|probability|prob|fraction)( .+)?", (Bounds(0, 1, is_whole=False),)),
    (r"(.+ )?(rating|stars|likert|satisfaction)", (Bounds(1, 5),)),
    (r"(n |num |no |number of )?(children|child|kids|kinder|siblings|parity|dependents|dependants)", (Bounds(0, 20),)),
    (r"(household|family|hh|fam) ?size|persons in household", (Bounds(1, 20),)),
    (
        r"(educ|education|school|schooling) ?(years?|yrs?)|(years?|yrs?) (of )?(educ|education|schooling)"
        r"|educ|schooling",
        (Bounds(0, 30),),
    ),
    (r"height( cm)?|(body )?height|groesse|größe", (Bounds(0, 250, is_whole=False),)),
    (r"(body ?)?weight( kg| lbs?)?|gewicht", (Bounds(0, 500, is_whole=False),)),
    (r"bmi|body mass index", (Bounds(10, 80, is_whole=False),)),
    (r"sbp|systolic( bp| blood pressure)?|sys ?bp", (Bounds(50, 260),)),
    (r"dbp|diastolic( bp| blood pressure)?|dia ?bp", (Bounds(20, 160),)),
    (r"pulse|heart ?rate|hr|bpm", (Bounds(20, 240),)),
    (r"chol|cholesterol|total cholesterol", (Bounds(0, 600, is_whole=False),)),
    (r"hours?( worked)?( per week| week)?|weekly hours|working hours", (Bounds(0, 168, is_whole=False),)),
    (r"gpa|grade point average", (Bounds(0, 5, is_whole=False),)),
    (r"iq", (Bounds(40, 200),)),
    (r"lat|latitude", (Bounds(-90, 90, is_whole=False),)),
    (r"lon|long|lng|longitude", (Bounds(-180, 180, is_whole=False),)),
    (r"(.+ )?(country|land|nationality|nation)( code)?", (Words(_COUNTRIES),)),
    (r"(us )?state( code)?", (Words(_STATES),)),
    (
        r"(marital|civil) ?(status|state)?|familienstand",
        _spellings("single", "married", "divorced", "widowed", "separated", "never married", "other"),
    ),
    (r"race|ethnicity|ethnic", _spellings("white", "black", "asian", "hispanic", "native", "mixed", "other")),
    (
        r"region|compass( direction)?|direction",
        (*_spellings("north", "northeast", "east", "south", "west", "midwest"),),
    ),
    (r"(letter ?)?grade|note", (*_spellings("a", "b", "c", "d", "e", "f"),)),
    (r"(blood ?)(group|type)", (Words(("A", "AB", "B", "O")),)),
    (r"p?class", (Bounds(1, 3), *_spellings("1st", "2nd", "3rd"), *_spellings("first", "second", "third"))),
    (
        r"(.+ )?(treat|treatment|trt|arm|group|intervention)",
        (
            *_spellings("control", "treated", "treatment"),
            *_spellings("active", "drug", "placebo"),
            *_spellings("no", "yes"),
            *_BINARY,
        ),
    ),
    (r"(is|has|had|was|any|ever|currently) .+|.+ (yes no|y n|flag|yn|dummy|indicator)", _YES_NO),
    (
        r"(current |ever |former )?(smoker?s?|smoking|smoked|raucher)|married|verheiratet|(is )?(alive|dead)|died|death"
        r"|deceased|survived|survival status|survivor|diabet(es|ic)|(type 2 )?diabetes|pregnan(t|cy)|(un)?employed"
        r"|insured|retired"
        r"|hypertensi(on|ve)|asthma|stroke|cancer|obese|disab(led|ility)|churn(ed)?|default(ed)?|urban"
        r"|rural|union|foreign(er)?|immigrant|minority|veteran|student|volunteer(ed)?|home ?owner|owner|owns .+|renter"
        r"|female|male|black|white|hispanic|south|smsa|event|status|censor(ed|ing)?|relapsed?|recurrence|response"
        r"|responder|outcome|success|passed|failed|hired|promoted|subscribed|vaccinated|infected|hospitali[sz]ed|readmitted"
        r"|complications?|surgery|transplant|metastas[ie]s|vote(d|r)?|kids present|college|graduate",
        _YES_NO,
    ),
)
"""Patterns of names and their alternatives; the first pattern that fits a name decides (theory: public knowledge)."""

_PATTERNS = tuple((re.compile(pattern), alternatives) for pattern, alternatives in _DICTIONARY)


@dataclass(frozen=True)
class Proposal:
    """Spaces that a column's name and type propose, the usual ones first.

    ``most_fits`` is the largest number of alternatives that one value can fit.
    """

    field: Field
    spaces: tuple[Space, ...]
    most_fits: int

    @property
    def name(self) -> str:
        """The column's name."""
        return self.field.name


def propose_spaces(columns: Sequence[Field]) -> tuple[Proposal, ...]:
    """Return the proposals of columns whose names are in the dictionary, in their order.

    >>> whole, text = Field("Age", pa.int64(), False), Field("smoker", pa.string(), True)
    >>> [(one.name, one.spaces[0].contents) for one in propose_spaces([whole, text, Field("x", pa.int64(), False)])]
    [('Age', '0 to 120'), ('smoker', '3 values: no, yes, other')]
    """
    proposals = []
    for column in columns:
        alternatives = _find_alternatives(column.name)
        pairs = [(one, space) for one in alternatives for space in _list_spaces(one, column)]
        if pairs:
            most_fits = _count_overlaps([one for one, _ in pairs])
            proposals.append(Proposal(column, tuple(space for _, space in pairs), most_fits))
    return tuple(proposals)


def _find_alternatives(name: str) -> tuple[Alternative, ...]:
    """Return the alternatives of the first pattern that a name fits."""
    if IDENTIFIER.search(name):
        return ()
    # A word starts after a small letter, too, as in HouseholdSize.
    words = re.sub(r"[\W_]+", " ", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)).strip().lower()
    return next((alternatives for pattern, alternatives in _PATTERNS if pattern.fullmatch(words)), ())


def _list_spaces(alternative: Alternative, column: Field) -> Iterator[Space]:
    """Yield the space of an alternative that a column's type can hold."""
    # A declared order has its own values, and some types determine the space.
    if column.order or column.of_day or column.empty or from_type(column) is not None:
        return
    is_any_type = column.written or column.listed or is_open(column.type)
    type_ = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    with contextlib.suppress(ParameterError, ColumnError):
        for space in alternative.spaces(type_, is_any_type):
            if not is_any_type:
                space.check_type(column.type)
            yield space if column.decimal is None else space.in_decimals(*column.decimal)


def _count_overlaps(alternatives: Sequence[Alternative]) -> int:
    """Return the largest number of alternatives that one value fits."""
    ranges = [one.ends for one in alternatives if isinstance(one, Bounds)]
    texts = [value for one in alternatives if isinstance(one, Words) for value in one.values]
    in_ranges = [sum(low <= start <= high for low, high in ranges) for start, _ in ranges]
    return max([*in_ranges, *map(texts.count, texts)])

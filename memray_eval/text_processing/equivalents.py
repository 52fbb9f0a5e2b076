"""One form for what people write in several: a day, a number in words, a magnitude, TeX, entities
of HTML, a code fence, a list; what stands after a working; yes and no with a reason."""

import html
import re
from decimal import Decimal
from functools import lru_cache
from unicodedata import normalize

from memray_eval.text_processing.matching import NUMBER_OF, NUMBER_WORD, normalise
from memray_eval.text_processing.numerals import in_digits

_MONTHS = (
    "january jan januar janvier enero gennaio janeiro januari января январь ocak يناير มกราคม",
    "february feb februar février febrero febbraio fevereiro februari февраля февраль şubat"
    " فبراير กุมภาพันธ์",
    "march mar märz mars marzo março maart maret марта март mart مارس มีนาคม",
    "april apr avril abril aprile апреля апрель nisan أبريل เมษายน",
    "may mai mayo maggio maio mei maj мая май maja mayıs مايو พฤษภาคม",
    "june jun juni juin junio giugno junho июня июнь haziran يونيو มิถุนายน",
    "july jul juli juillet julio luglio julho июля июль temmuz يوليو กรกฎาคม",
    "august aug août agosto augustus augusti agustus августа август ağustos أغسطس สิงหาคม",
    "september sep sept septembre septiembre settembre setembro сентября сентябрь eylül"
    " سبتمبر กันยายน",
    "october oct oktober okt octobre octubre ottobre outubro октября октябрь ekim أكتوبر ตุลาคม",
    "november nov novembre noviembre novembro ноября ноябрь kasım نوفمبر พฤศจิกายน",
    "december dec dezember dez décembre diciembre dicembre dezembro декабря декабрь"
    " aralık ديسمبر ธันวาคม",
)
_MONTH_OF = {name: month for month, names in enumerate(_MONTHS, 1) for name in names.split()}
_MONTH = rf"(?P<month>{'|'.join(sorted(_MONTH_OF, key=len, reverse=True))})(?!\w)\.?"
_DAY = r"(?P<day>0?[1-9]|[12]\d|3[01])(?:st|nd|rd|th|er|[.°ºo](?!\w))?(?!\d)"
_UNTIL = r"(?: ?- ?| to | bis )(?P<until>0?[1-9]|[12]\d|3[01])(?:st|nd|rd|th|\.)?(?!\d)"
_YEAR = r"(?P<year>[12]\d{3})(?!\d)"
_SHORT = r"(?P<year>[12]\d{3}|'?\d\d)(?!\d)"
_WEEKDAY = (
    r"(?:(?:mon|tue|wed|thu|fri|sat|sun)(?:[a-z]{0,4}day)?"
    r"|(?:sonn|mon|diens|donners|frei|sams)tag|mittwoch|(?:lun|mar|mercre|jeu|vendre|same)di|dimanche"
    r"|lunes|martes|miércoles|jueves|viernes|sábado|domingo)"
)
_BEFORE = (
    rf"(?<![\w.])(?:(?:on |in |am )?(?:{_WEEKDAY},? )?"
    r"(?:the |le |el |il |den )?)?"
)
_NAMED_DATES, _NUMBERED_DATES = (
    tuple(map(re.compile, forms))
    for forms in (
        (
            rf"{_BEFORE}{_DAY}{_UNTIL} (?:of )?{_MONTH}(?:,? {_YEAR})?",
            rf"{_BEFORE}{_MONTH} {_DAY}{_UNTIL}(?:,? {_YEAR})?",
            rf"{_BEFORE}{_YEAR}[, -]{{1,2}}{_MONTH}[ -]{_DAY}",
            rf"{_BEFORE}{_DAY}[ -]?(?:(?:day )?of |de )?{_MONTH}"
            rf"(?:(?:,? ?|-)(?:of |de )?{_YEAR}(?: г\.)?|(?: '|-)(?P<short>\d\d)(?!\d))?",
            rf"{_BEFORE}{_MONTH}[ -](?:the )?{_DAY}(?:(?:,? |-){_YEAR}|,? '(?P<short>\d\d)(?!\d))?",
            rf"{_BEFORE}{_MONTH},? (?:of |de )?{_YEAR}",
        ),
        (
            rf"{_BEFORE}{_YEAR}(?P<by>[-/.])(?P<month>\d\d?)(?P=by){_DAY}"
            r"(?:[t ]00:00(?::00(?:\.0+)?)?z?)?(?!(?!t\d\d:)[\w/])",
            rf"{_BEFORE}{_YEAR}\. (?P<month>\d\d?)\. {_DAY}",
            rf"{_BEFORE}(?P<year>(?:19|20)\d\d)(?P<month>0[1-9]|1[0-2])(?P<day>[0-3]\d)(?![\w.,-])",
            rf"{_BEFORE}{_YEAR}-(?P<month>0[1-9]|1[0-2])(?![\w-])",
            rf"(?<!/){_BEFORE}(?P<month>0?[1-9]|1[0-2])/{_YEAR}",
            rf"{_BEFORE}(?P<day>1[3-9]|2\d|3[01])(?P<by>[-/.])(?P<month>0?[1-9]|1[0-2])(?P=by){_SHORT}",
            rf"{_BEFORE}(?P<month>0?[1-9]|1[0-2])(?P<by>[-/.])(?P<day>1[3-9]|2\d|3[01])(?P=by){_SHORT}",
            rf"{_BEFORE}0?(?P<day>[1-9]|1[0-2])(?P<by>[-/.])0?(?P<month>(?P=day))(?P=by){_YEAR}",
            rf"{_YEAR}[年년] ?(?P<month>\d\d?)[月월](?: ?{_DAY}[日일号號])?",
            rf"(?<!\d)(?P<month>\d\d?)[月월] ?{_DAY}[日일号號]",
        ),
    )
)
_MONTH_BEGINS = frozenset(re.findall(r"[^\W\d_]+", name)[0] for name in _MONTH_OF)
_MAY_BE_DATE = re.compile(r"\d[-/.年년月월]|\d{8}")
_DIGIT = re.compile(r"\d")
_WORD = re.compile(r"[^\W\d_]+")
_SIGNS = dict(
    pair.split("=", 1)
    for pair in (
        "times=× cdot=× div=÷ pi=π infty=∞ pm=± cup=∪ cap=∩ in=∈ angle=∠ to=→ rightarrow=→ approx=≈"
        " lt=< gt=> le=<= leq=<= leqslant=<= ge=>= geq=>= geqslant=>= ne=!= neq=!= colon=: lbrace={"
        " rbrace=} alpha=α beta=β gamma=γ delta=δ epsilon=ε theta=θ lambda=λ mu=μ sigma=σ phi=φ"
        " omega=ω"
    ).split()
)
_ARGUMENT = r"\s*(?:\{([^{}]*)\}|(\w))"
_ROOT = (
    rf"\\sqrt(?:{_ARGUMENT})|(?:\bsqrt|√)\s*\(([^()]*)\)",
    lambda match: _root_of((match[1] or match[2] or match[3] or "").strip()),
)
_TEXT = (
    r"\\(?:text|math)(?:bf|it|rm|sf|tt)?\s*\{([^{}]*)\}"
    r"|\\(?:emph|mbox|ce|overline|vec|boldsymbol|operatorname)\s*\{([^{}]*)\}",
    r"\1\2",
)
_TEX = tuple(
    (re.compile(pattern), put)
    for pattern, put in (
        (r"(?<=\d)\s*(?=\\[dtc]?frac)", " "),
        _TEXT,
        _ROOT,
        (rf"\\[dtc]?frac{_ARGUMENT}{_ARGUMENT}", lambda match: "/".join(_terms(match))),
        (r"\{?([^{}\\$\s]{1,40})\s*\\over\s*([^{}\\$\s]{1,40})\}?", r"\1/\2"),
        _ROOT,
        _TEXT,
        (r"\^\s*(?:\{\s*\\circ\s*\}|\\circ)|\\degree", "°"),
        (r"\{([,.])\}", r"\1"),
        (rf"\\({'|'.join(_SIGNS)})(?![a-zA-Z])", lambda match: _SIGNS[match[1]]),
        (r" ?[×⋅·] ?(?=[A-Za-z√π(])", " "),
        (r"\^\{(-?\w+[+-]?)\}", r"^\1"),
        (r"_\{(\w+)\}", r"_\1"),
        (r"(?<!\\)\$((?:\\.|[^$])*)(?<!\\)\$|\\\((.*?)\\\)|\\\[(.*?)\\\]", r"\1\2\3"),
        (
            r"\\(?:[,;:! ]|left|right|quad|displaystyle)|\\(?:begin|end)\{(?:equation|align)\*?\}",
            "",
        ),
        (r"\\([$%&#_*{}'\"])", r"\1"),
        (r"\\n(?!(?:eq?|u|ot|abla|i|mid)\b)", "\n"),  # a line's end, escaped twice
    )
)
_TEX_SIGNS = frozenset("\\${√")
_CHARACTER = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2}))")
_PART_BELOW = re.compile(r"(?<=[-−])[¼½¾⅐-⅞]")
_CHARGE = re.compile(r"(?<=[a-z])\^(\d?[+-])(?!\w)")
_SIGN_WORDS = frozenset(("pi", "inf", "infty", "infinity"))
_NAMED = re.compile(r"(?<![a-z])(?:(pi)|inf(?:ty|inity)?)(?![a-z])")
_TAG = re.compile(
    r"</?(?:b|i|u|s|em|strong|p|br|span|div|code|pre|a|ul|ol|td|tr|th|li|h[1-6])\b[^<>]{0,200}>"
    r"|<\|[a-z_]{2,24}\|>|<(?:eos|bos|end_of_turn)>|【[^【】]{1,40}】",
    re.I,
)
_POWER = re.compile(r"(?<=[\d)])<sup>(-?\w+)</sup>|(?<=\b[A-Za-z])<sup>(-?\w+)</sup>")
_SMALL = re.compile(r"<sup>\d+</sup>|</?su[bp]>")
_LINK = re.compile(r"(?<!!)\[([^\[\]\n]+)\]\(https?://[^()\s]*\)|(?<=[^\W\d_]{3})[ .]\[[1-9]\d?\]")
_FENCE = re.compile(r"```[^\n`]*\n(.*?)\n?```", re.DOTALL)
_ITEM = re.compile(
    r"^[^\S\n]*(?:(?:[-*+•–·▪◦]|\(?(?:\d{1,2}|[a-j]|[ivx]{1,4})[.):]|\d{1,2} [-–])[^\S\n]+"
    r"(?:\[[ xX]\] )?"
    r"|\d{1,2}[.)](?=[^\W\d])|[①-⑳]\s?)",
    re.MULTILINE,
)
_IN_LINE = re.compile(r"(?:^|[,;]?\s)(?:\(?(\d|[a-j])[.)]\s|([①-⑳])\s?)")  # 1. red 2. green
_TAIL = re.compile(
    r"\n[^\S\n]*\n(?:let me know|i hope|hope|feel free|please let|if you (?:need|have))[^\n]*\Z",
    re.I,
)
_LEAD = re.compile(r"\A[^\n]*:\s*\n")  # before the items
_AND_IN_CHINESE = re.compile(r"(?<=[\u3400-\u9fff])(?:以及|[和与與及])(?=[\u3400-\u9fff])")
_AND = re.compile(r",? (?:and|&|und|et|y|och|og) ")
_AND_IN_LIST = re.compile(
    r"(?<=\w) (?:e|en|и|ve|oraz|및|그리고) "
)  # where commas say that it is one
# From two on, in languages whose words English has not ("once", "due", "sept")
_ABROAD = (
    "zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn "
    "siebzehn achtzehn neunzehn zwanzig",
    "deux trois quatre cinq six - huit neuf dix onze douze treize quatorze quinze seize dix-sept "
    "dix-huit dix-neuf vingt",
    "dos tres cuatro cinco seis siete ocho nueve diez - doce trece catorce quince dieciséis "
    "diecisiete dieciocho diecinueve veinte veintiuno veintidós veintitrés veinticuatro",
)
_NUMBER_ABROAD = {word: n for words in _ABROAD for n, word in enumerate(words.split(), 2)}
del _NUMBER_ABROAD["-"]
_NUMBER_ABROAD |= {
    f"{unit}{ten}": 10 * tens + n
    for tens, ten in enumerate(
        "zwanzig dreissig vierzig fünfzig sechzig siebzig achtzig neunzig".split(), 2
    )
    for n, unit in enumerate(("", "einund", *(f"{unit}und" for unit in _ABROAD[0].split()[:8])))
}
_UNITS_ABROAD = {  # of tens: what joins them, and units
    "treinta cuarenta cincuenta sesenta setenta ochenta noventa": (
        " y ",
        "uno dos tres cuatro cinco seis siete ocho nueve",
    ),
    "trinta quarenta cinquenta sessenta setenta oitenta noventa": (
        " e ",
        "um dois três quatro cinco seis sete oito nove",
    ),
    "trente quarante cinquante soixante septante huitante nonante": (
        "-",
        "et-un deux trois quatre cinq six sept huit neuf",
    ),
    "trenta quaranta cinquanta sessanta settanta ottanta novanta": (
        "",
        "- due tre quattro cinque sei sette - nove",
    ),
}
_NUMBER_ABROAD |= {
    f"{ten}{unit and join}{unit}": 10 * tens + n
    for words, (join, units) in _UNITS_ABROAD.items()
    for tens, ten in enumerate(words.split(), 3)
    for n, unit in enumerate(("", *units.split()))
    if unit != "-"
}
_NUMBER_ABROAD |= {
    f"{ten}-{unit}": base + n
    for ten, base in (("vingt", 20), ("soixante", 60), ("quatre-vingt", 80))
    for n, unit in enumerate(_ABROAD[1].split()[:18], 2)
    if unit != "-" and (base == 80 or n < 10 or base == 60)
}
_NUMBER_ABROAD |= {
    "quatre-vingts": 80,
    "quatre-vingt": 80,
    "quatre-vingt-un": 81,
    "vingt-sept": 27,
    "vingt et un": 21,
}
_NUMBER_WORD = re.compile(
    rf"(?<![\w-])(?:{'|'.join(sorted(_NUMBER_ABROAD, key=len, reverse=True))})(?![\w-])"
)
_ABROAD_BEGINS = frozenset(_WORD.findall(word)[0] for word in _NUMBER_ABROAD)
_CURRENCIES = {
    "$": "usd|us dollars?|美元",
    "€": "eur|euros?|欧元",
    "£": "gbp|pounds? sterling|英镑",
    "¥": "jpy|yen|円|日元",
    "₹": "inr|rs|rupees?",
    "₩": "krw|원",
    "yuan": "cny|rmb|元|人民币",
}
_CODES = "|".join(_CURRENCIES.values())
_SIGN_OF = {re.compile(words, re.I): sign for sign, words in _CURRENCIES.items()}
# Of a text in digits, before its days are read: of any, and of those with a digit
_SPOKEN, _SPOKEN_OF_NUMBERS = (
    tuple((re.compile(pattern), put) for pattern, put in forms)
    for forms in (
        (
            (r"\Aan? (?=(?:hour|minute|day|week|month|year|mile)\b)", "1 "),
            (r"\A(?:none|nil|nought)\.?\Z", "0"),
            (r"\b(?:(once)|twice)\b(?=\W*\Z)", lambda match: "1 times" if match[1] else "2 times"),
            (
                r"\A(?:at (?=\d)|on (?=(?:mon|tues|wednes|thurs|fri|satur|sun)day)"
                r"|both (?=[^,]+ and ))",
                "",
            ),
            (r"(?<=[^\W\d])[·・](?=[^\W\d])", " "),
        ),
        (
            (r"(?<=\d) ?(?:°|degrees?) ?(c|f)(?:elsius|ahrenheit)?(?!\w)", r" °\1"),
            (
                rf"(?<=\d) ?(?:(ft|foot|feet)|({_CODES}))(?!\w)",
                lambda match: " ft" if match[1] else f" {_sign_of(match[2])}",
            ),
            (r"(?<!\d)(\d[\d.,]*) \(\1\)", r"\1"),  # three (3)
            (r"第 ?(\d+)(?!\w)", r"\1th"),
            (
                r"(?:between|from) (\d[\d.,]*) (?:(?:and|to) )?(?=\d)"
                r"|(?<=\d) ?(?:[~〜]|through) ?(?=\d)",
                r"\1-",
            ),
            (r"(?:at least|no (?:less|fewer) than|(?:a )?minimum of) (?=[$€£¥]?\d)", ">="),
            (r"(?:at most|up to|no more than|(?:a )?maximum of) (?=[$€£¥]?\d)", "<="),
            (r"(?:more|greater) than (?=[$€£¥]?\d)|(?:over|above) (?=[$€£¥]?\d)", ">"),
            (r"(?:less|fewer) than (?=[$€£¥]?\d)|(?:under|below) (?=[$€£¥]?\d)", "<"),
            (r"(?<![\w.])(\d[\d.,]*) or more\b", r">=\1"),
            (
                r"(?:approximately|around|roughly|circa|ca?\.) (?=[$€£¥]?\d)|[~≈] ?(?=[$€£¥]?\d)",
                "about ",
            ),
            (r"(?<=\d) (?:b\.?c\.?(?:e\.?)?)(?!\w)", " bc"),
            (r"\b(?:ad|a\.d\.) (\d+)(?!\d)|(?<!\d)(\d+) (?:ad|ce|a\.d\.|c\.e\.)(?!\w)", r"\1\2 ad"),
            (r"(?<!\d)((?:19|20)\d\d)[-/](?=(?:19|20)\d\d(?!\d))", r"\1-"),
            (r"\b(\d{4}),? ?q([1-4])\b|\bq([1-4]),? (?:of )?(\d{4})\b", r"q\2\3 \1\4"),
            (r"\b(spring|summer|autumn|fall|winter) of (?=\d{4})", r"\1 "),
            (r"(?<!\d)(\d\d?)h(\d\d)(?!\w)", r"\1:\2"),
            (r"(\d:\d\d)(?::00(?:\.0+)?z?| uhr)(?![:\w])", r"\1"),
        ),
    )
)
_AT = re.compile(r"(\d-\d{1,2})(?:,? at |, |t)(?=\d)")
_MAY_BE_MONEY = re.compile(r"[\d$]|dollar|pound", re.IGNORECASE)
_MONEY = re.compile(
    r"(?<!\w)(?:(usd|eur|gbp|jpy|inr|rs|krw)\.? ?(?=\d)|us ?(?=\$|dollars?\b))", re.IGNORECASE
)
_POUNDS = re.compile(
    r"(?<=on|bn|mn|\dm) pounds?(?: sterling|(?! of))\b", re.IGNORECASE
)  # of millions
_POWERS = {
    re.compile(words): power
    for power, words in (
        (3, r"[kK]|[tT]sd\.?|[tT]ausend|тыс\.?|тысяч\w*|천"),
        (4, "만"),
        (5, "lakhs?"),
        (6, r"MM?|[mM](?:n|ln|io\.?)|[mM]ill?i[oó]n(?:en|es|s|i)?|[mM]illones|[mM]ilh(?:ão|ões)"),
        (6, r"млн\.?|миллион\w*|ล้าน"),
        (7, "crores?"),
        (8, "억"),
        (9, r"B|[bB]n|[mM]rd\.?|[mM]ill?iard\w*|[bB]ilh(?:ão|ões)|mil millones|thousand million"),
        (9, r"млрд\.?|миллиард\w*"),
        (12, r"[tT]n|[bB]ill(?:ionen|ones)|万亿|조"),
    )
}
_POWER_OF_SIGNED = {"m": 6, "b": 9, "t": 12}  # $5m
_SCALED = re.compile(
    r"(?<![\w.])(?<!\d,)(?P<sign>[$€£¥₹])?(?P<number>\d[\d,]*(?:\.\d+)?) ?"
    rf"(?P<scale>{'|'.join(each.pattern for each in _POWERS)}|(?(sign)[mbtT]|(?!)))"
    r"(?:(?!\w)|(?<=[만억조亿]))"
)
_PART_OF = {"half": 2, "halves": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "sixth": 6}
_PART_OF |= {"eighth": 8, "tenth": 10}
_PARTS = frozenset((*_PART_OF, *(f"{part}s" for part in _PART_OF)))
_FRACTION = re.compile(
    r"(?:(?<=\w) and )?(?<![\w-])(?:(?P<of>an?|one|two|three|four|five|seven)[ -]"
    r"(?P<part>half|halves|third|quarter|fourth|fifth|sixth|eighth|tenth)s?|half)(?![\w-])"
)
_TIMES = r"(?:dozen|hundred|thousand|million|billion|trillion)\b"
_HALVED = re.compile(
    rf"(?<![\w-])(?:(?P<n>an?|\d+|{NUMBER_WORD})(?: (?P<unit>(?:hour|day|week|month|year|mile)s?))?"
    rf" and a half(?(unit)\b|(?= {_TIMES}))"
    rf"|(?:(?P<top>an?|one|three)[ -])?(?P<part>half|quarters?)(?: of)? an?(?= {_TIMES}))"
)
_MARKED = re.compile(
    r"(?:^|\n)[^\S\n]*####[^\S\n]*([^\n#]+?)\s*(?:\n\s*the answer is:?[^\n]*)?\s*\Z"
    r"|(?:^|\n|[.!?] )[ \t*_#]*(?:(?:so|thus|hence|therefore),? )?(?:the |my |final |correct )*"
    r"(?:answer(?:[*_]* is[*_]*:?|[*_]*[:：]| ?[-–—](?= )|[*_]*[^\S\n]*(?=\n))"
    r"|(?:antwort|respuesta|resposta|r[ée]ponse|risposta|ответ|答案|答え|정답|답|الإجابة"
    r"|output|response|result|label|conclusion) ?[:：])[*_]*\s*([^\n]+)\s*\Z",
    re.IGNORECASE,
)
BOXED = re.compile(
    r"\\(?:boxed|fbox)\s*\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}|<(?:final_)?answer>([^<]{0,2000})</(?:final_)?answer>",
    re.IGNORECASE,
)
_SIDES = {
    "yes": "yes yeah yep true correct affirmative ja oui sí si sì sim да tak evet 是 是的 "
    "对 对的 はい ええ 네 예 نعم हाँ हां ใช่",
    "no": "no nope nah false incorrect nein non não нет nie hayır "
    "否 不是 不 不对 没有 いいえ 아니요 아니오 아뇨 لا नहीं ไม่ ไม่ใช่",
}
_SIDE_OF = {word: side for side, words in _SIDES.items() for word in words.split()}
_SIDE = rf"({'|'.join(_SIDE_OF)})"
_SURE = r"(?:absolutely|definitely|certainly|of course|indeed|surely|clearly|obviously)"
# Of a sentence or after a comma: "if this is true" says nothing
_TRUTH = (
    r"(?:\A|(?<=[.!?:;,。] )|(?<=\n))(?:(?:the|so|thus|hence|therefore|i think),? )*"
    r"(?:statement|claim|it|this|that)"
    r"(?=(?:'s| is)[ *_]+(?:true|false|correct|incorrect)(?!\w|[*_]*,? (?:but|only)\b))"
)
_OPENS = re.compile(
    rf"(?:^|[.!?\n。！])[\s*_\"'(>#✅✓❌✔-]*+(?:{_SURE},? )?{_SIDE}"
    r"(?=[*_\"')]*(?:(?!\. ?\d)[,.;:!…—，、。！]|\s*\n|\s*$| [-–—(])"
    r"| (?:and )?(?:because|since|it|he|she|they|there|this|that|we|i|you)\b)"
)
_STATES = re.compile(
    r"(?:\b(?:answer|verdict|conclusion)(?: to (?:the|this|your) question)?"
    rf"|{_TRUTH})(?:'s| is| would be| should be)?[\s:*_\"']{{1,4}}"
    rf"(?:(?:no doubt|probably|{_SURE}) )?(?!no doubt){_SIDE}(?!\w|[*_]*\?"
    r"| (?:if|unless|longer|one|different|more|less|(?:and|or) (?:yes|no))\b)"
)
_ENDS = re.compile(
    r"(?:[,:] |(?:\A|[.,;:!?\n])(?:(?!n't|\bnot\b|\bnever\b)[^.,;:!?\n])*"
    r"(?:\b(?:so|think|say|likely|probably|definitely|is a)|'s a),? )"
    rf"[*_\"']*{_SIDE}(?: from me)?[.!*_\"']*\Z"
)
_ALONE = {
    "no": re.compile(
        rf"[\s*_\"']*(?:{_SURE} not|not (?:at all|true|correct)|no way)(?=[*_\"']*(?:[.,;:!\n]|\Z))"
    ),
    "yes": re.compile(rf"[\s*_\"']*{_SURE}[.!*_\"']*\Z"),
}
_MOST = 4_000  # characters of a text that is put into one form


@lru_cache(1024)
def one_form(text: str) -> str:
    """A text with days as 2023-5-7 (0 for what is not said), numbers and ordinals in digits, TeX as
    plain characters, without entities, marks of items, "and", and what stands around its only code
    fence. A text of more than _MOST characters stays as it is."""
    if len(text) > _MOST:
        return text
    return _in_one_count(_without_marks(text))


def _without_marks(text: str) -> str:
    """The text without entities, tags, links, TeX, fence and marks of items."""
    if len(fenced := _FENCE.findall(text)) == 1:
        text = fenced[0]
    if "&" in text:
        text = html.unescape(html.unescape(text))
    if "<" in text or "【" in text:
        text = _TAG.sub(" ", _SMALL.sub("", _POWER.sub(r"^\1\2", text)))
    text = _LINK.sub(r"\1", text) if "[" in text else text
    if not text.isascii():
        text = _PART_BELOW.sub(lambda match: normalize("NFKC", match[0]), text)
    if not _TEX_SIGNS.isdisjoint(text) or "sqrt" in text:
        text = _CHARACTER.sub(lambda match: chr(int(match[1] or match[2], 16)), text)
        for pattern, put in _TEX:
            text = pattern.sub(put, text)
    text = _TAIL.sub("", text)
    if len(_ITEM.findall(text)) > 1:
        text = _ITEM.sub("", _LEAD.sub("", text))
    begins = "".join(digit or ring for digit, ring in _IN_LINE.findall(text)[:2])
    return _IN_LINE.sub("\n", text) if begins in ("12", "ab", "①②") else text


def _in_one_count(text: str) -> str:
    """The text with numbers, money, days and lists in one form."""
    if _MAY_BE_MONEY.search(text):
        text = _POUNDS.sub(" £", _MONEY.sub(lambda match: _sign_of(match[1]), text))
        text = _SCALED.sub(_in_full, text)
    text = normalise(text)
    words = set(_WORD.findall(text))  # most texts have none of what is looked for
    if not _PARTS.isdisjoint(words):
        text = _FRACTION.sub(_as_fraction, _HALVED.sub(_in_decimals, text))
    if not _ABROAD_BEGINS.isdisjoint(words):
        text = _NUMBER_WORD.sub(lambda match: str(_NUMBER_ABROAD[match[0]]), text)
    text = _CHARGE.sub(r"\1", text) if "^" in text else text
    if not _SIGN_WORDS.isdisjoint(words):
        text = _NAMED.sub(lambda match: "π" if match[1] else "∞", text)
    text = in_digits(text, ordinals=True, ones=True)
    for pattern, put in _SPOKEN:
        text = pattern.sub(put, text)
    if _DIGIT.search(text):
        for pattern, put in _SPOKEN_OF_NUMBERS:
            text = pattern.sub(put, text)
        dates = () if _MONTH_BEGINS.isdisjoint(words) else _NAMED_DATES
        for date in (*dates, *(_NUMBERED_DATES if _MAY_BE_DATE.search(text) else ())):
            text = date.sub(_to_day, text)
        text = _AT.sub(r"\1 ", text)
    text = _AND_IN_LIST.sub(" ", text) if "," in text else text
    text = _AND_IN_CHINESE.sub("、", text) if "、" in text or "，" in text or "," in text else text
    return _AND.sub(" ", text)


def _as_fraction(match: re.Match[str]) -> str:
    return f" {NUMBER_OF.get(match['of'] or '', 1)}/{_PART_OF[match['part'] or 'half']}"


def _root_of(inner: str) -> str:
    """The root of a word or number, or of the whole of more."""
    return f"√{'' if inner.isalnum() else ' whole '}{inner}"


def _terms(match: re.Match[str]) -> list[str]:
    """The terms of a fraction, those with a sign of several in brackets."""
    terms = (match[1] or match[2] or "", match[3] or match[4] or "")
    return [f"({term})" if re.search(r"(?<=\S)\s*[-+]", term) else term for term in terms]


def _sign_of(currency: str | None) -> str:
    return next((sign for words, sign in _SIGN_OF.items() if words.fullmatch(currency or "")), "")


def _in_full(match: re.Match[str]) -> str:
    number, scale = match["number"], match["scale"]
    number = number.replace(",", "." if re.fullmatch(r"\d+,\d\d?", number) else "")
    power = next((power for words, power in _POWERS.items() if words.fullmatch(scale)), 0)
    power = power or _POWER_OF_SIGNED[scale.lower()]
    return f"{match['sign'] or ''}{Decimal(number).scaleb(power):f}"


def _in_decimals(match: re.Match[str]) -> str:
    """A number and a half, or a part of a scale: "an hour and a half", "half a million"."""
    if match["part"]:
        return f"{NUMBER_OF.get(match['top'] or '', 1) / (2 if match['part'] == 'half' else 4)}"
    whole = NUMBER_OF.get(match["n"], match["n"] if match["n"].isdigit() else 1)
    return f"{whole}.5 {match['unit']}" if match["unit"] else f"{whole}.5"


def _to_day(match: re.Match[str]) -> str:
    part = match.groupdict()
    month = _MONTH_OF.get(part["month"]) or int(part["month"])
    year = int((part.get("year") or "0").strip("'"))
    if short := part.get("short") or (year if 0 < year < 100 else 0):
        year = int(short) + (2000 if int(short) < 50 else 1900)
    if part["month"] > "ก" and year > 2400:  # Buddhist
        year -= 543
    days = [int(part.get(name) or 0) for name in ("day", "until")]
    return " to ".join(f"{year}-{month}-{day}" for day in (days if days[1] else days[:1]))


def concluded(text: str) -> str:
    """What a working ends with, after ####, in its only \\boxed{} or <answer>; else the text."""
    if marked := _MARKED.search(text):
        text = marked[1] or marked[2].strip(" .*_") or text
    boxed = {(match[1] or match[2] or "").strip() for match in BOXED.finditer(text)}
    return boxed.pop() if len(boxed) == 1 else text


def side_of(text: str, is_gold: bool = False) -> str:
    """yes or no, if a text says one: it opens with it, before a stop or a reason, or states it as
    the answer; "" if it says none, or both. A gold is the word alone."""
    lowered = normalise(text)
    if is_gold:
        return _SIDE_OF.get(lowered.strip(" .!"), "")
    lowered = text.lower().strip()[:_MOST]
    stated = _STATES.findall(lowered)[-1:]
    sides = {_SIDE_OF[word] for word in stated or _OPENS.findall(lowered) + _ENDS.findall(lowered)}
    sides |= {side for side, alone in _ALONE.items() if alone.match(lowered)}
    return sides.pop() if len(sides) == 1 else ""

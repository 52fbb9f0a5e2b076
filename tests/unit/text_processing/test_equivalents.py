"""What is written otherwise and means the same is an exact match; what only looks alike is none."""

import pytest

from memray_eval.benchmarks.instruction.answers import compare

# A right answer, responses that say it, and responses that do not
SAID = [
    (
        "7 May 2023",
        [
            *("Sunday, May 7, 2023", "on May 7th, 2023", "2023/05/07", "7. Mai 2023"),
            *("2023年5月7日", "7-May-2023", "2023-05-07T00:00:00", "2023년 5월 7일"),
            *("Sun, 7 May 2023", "the seventh of May, 2023", "le 7 mai 2023"),
        ],
        ["May 2023", "7 May", "May 8, 2023", "7 June 2023", "7 May 2022"],
    ),
    (
        "7 May 2023",
        ["Sonntag, den 7. Mai 2023", "7 мая 2023 г.", "7 mei 2023", "7 พฤษภาคม 2566"],
        [],
    ),
    ("7 May 2023", ["2023. 5. 7.", "2023, May 7", "20230507", "2023年5月7号"], ["2023. 5. 8."]),
    (
        "17 May 2023",
        ["5/17/23", "17.05.23", "17-May-23", "May 17, '23"],
        ["17.05.24", "17 May '22"],
    ),
    ("May 7-9, 2023", ["7–9 May 2023", "7 to 9 May 2023"], ["7 May 2023", "7-10 May 2023"]),
    ("May 7, 2023 at 3 pm", ["7 May 2023, 15:00", "2023-05-07T15:00:00"], ["7 May 2023, 16:00"]),
    ("14 February", ["2月14日", "February 14th"], ["2月15日"]),
    ("June 1999", ["06/1999", "июнь 1999"], ["07/1999", "06/2000"]),
    ("1 January 2000", ["1/1/2000", "1º de janeiro de 2000"], ["2/1/2000"]),
    ("79 AD", ["AD 79", "79 CE"], ["79 BC"]),
    ("44 BC", ["44 BCE"], ["44"]),
    ("15:30", ["15h30", "15:30 Uhr", "at 3:30 pm"], ["3:30"]),
    ("3 to 5", ["between three and five", "from 3 to 5", "3~5"], ["3, 5", "35"]),
    ("more than 20", [">20", "over twenty"], ["20", "less than 20", "at least 20"]),
    ("at least 3", ["3 or more", "≥ 3", "no fewer than 3"], ["at most 3", "3", "more than 3"]),
    ("about 200", ["approximately 200", "~200"], ["200", "about 300"]),
    ("three", ["three (3)", "3 (three)"], ["three (4)"]),
    ("16/11/2003", ["November 16, 2003", "11/16/2003"], ["16 Nov", "17/11/2003"]),
    ("May 2023", ["2023-05"], ["2023-06", "2023"]),
    ("three", ["3", "Three.", "drei", "trois", "tres"], ["thirteen", "third", "dreizehn"]),
    ("36", ["3 dozen", "sechsunddreißig"], ["dozen", "dreißig"]),
    (
        "75",
        ["soixante-quinze", "setenta y cinco", "setenta e cinco", "settantacinque"],
        ["soixante"],
    ),
    ("99", ["quatre-vingt-dix-neuf", "noventa y nueve"], ["quatre-vingt-dix", "noventa"]),
    ("80", ["quatre-vingts", "ochenta", "ottanta"], ["quatre-vingt-un", "quatre"]),
    ("21 Hühner", ["einundzwanzig Hühner", "veintiuno Hühner"], ["zwanzig Hühner"]),
    ("3.5", ["three and a half", "3 and a half"], ["a half", "three"]),
    ("1.5 hours", ["one and a half hours", "an hour and a half"], ["half an hour", "one hour"]),
    ("1 in 4", ["one in four"], ["one of four", "two in four"]),
    ("1-2 hours", ["one to two hours"], ["one hour, two hours"]),
    ("1 hour 30 minutes", ["one hour and thirty minutes"], ["an hour", "one hour"]),
    ("1 dog and 2 cats", ["one dog and two cats"], ["no one dog and two cats", "2 cats"]),
    ("1 or 2", ["one or two"], ["the one or two", "1"]),
    ("1 of 3 houses", [], ["one of 3 houses"]),
    ("101.5", ["one hundred and one and a half"], ["101"]),
    ("2500000", ["two and a half million", "2.5 million"], ["two million"]),
    ("500,000", ["half a million"], ["a million", "a quarter of a million"]),
    ("750,000", ["three quarters of a million"], ["a quarter million"]),
    ("6 ft", ["6 feet", "six feet", "6ft"], ["6 miles", "feet"]),
    ("$5", ["5 USD", "US$5", "US $5", "five US dollars"], ["5 CAD", "US 5", "5"]),
    ("O-", ["O−", "O-.", "O negative"], ["O+", "O"]),
    ("Type O-", [], ["Type O+"]),
    ("-\\frac{1}{2}", ["-1/2", "$-\\frac12$", "-0.5"], ["\\boxed{\\frac{1}{2}}"]),
    ("-\\sqrt{2}", ["-√2"], ["\\sqrt{2}"]),
    ("y = x + 1", ["y=x+1", "$y = x+1$"], ["\\boxed{y = x - 1}"]),
    ("(x - 3)^2", ["(x-3)^{2}"], ["(x + 3)^2"]),
    ("[1,2)", ["[1, 2)", "\\left[1,2\\right)"], ["(1,2]", "[1,2]"]),
    ("a != b", ["a ≠ b"], ["a == b"]),
    ("a && b", [], ["a || b"]),
    ("x += 1", ["x+=1", "`x += 1`"], ["x = 1", "x -= 1", "x == 1"]),
    ("a < b", ["a<b", "a &lt; b"], ["a > b", "a <= b", "a = b"]),
    ("a + b", ["a+b"], ["a - b", "a * b"]),
    ("x ≤ 3", ["x<=3", "$x \\le 3$"], ["x < 3", "x >= 3"]),
    ("ls -l", ["`ls -l`"], ["ls l", "ls -a"]),
    ("a * b", ["a*b"], ["a ** b"]),
    ("return x + 1", ["return x+1"], ["return x - 1"]),
    ("!x", [], ["x"]),
    ("A -> B", ["A → B", "A ⇒ B"], ["B -> A"]),
    ("(1,2)", ["(1, 2)", "1, 2"], ["[1,2]", "[1, 2]"]),
    (
        '{"n": 2, "ok": true}',
        ["{'n': 2, 'ok': True,}"],
        ['{"n": "2", "ok": true}', '[{"n": 2, "ok": true}]'],
    ),
    ("Paris, France", ["Paris - France", "- Paris\n- France"], []),
    ("vitamin B-12", ["vitamin B12"], []),
    ("B-12", ["B12"], []),
    ("A, B", ["A - B", "A and B"], ["B"]),
    ("(555) 123-4567", ["(555)-123-4567"], []),
    ("2/3", ["two thirds"], ["a third", "the third"]),
    ("1/8", ["one eighth", "an eighth"], ["8", "the eighth"]),
    ("1 hour", ["an hour", "one hour"], ["half an hour"]),
    ("105", ["one hundred and five", "a hundred and five"], ["one hundred"]),
    ("2nd", ["second", "the second"], ["third", "2"]),
    ("1200000", ["1.2M", "1,2 Millionen", "1,200,000", "12 lakh"], ["1.2k", "12M"]),
    (
        "1,200,000",
        ["1.2 millones", "1,2 milhões", "120만", "1,2 миллиона", "1.2 MM"],
        ["1.2 млрд", "12만"],
    ),
    (
        "5 billion",
        ["5 mil millones", "50억", "5 млрд", "5 thousand million"],
        ["5 billones", "5억"],
    ),
    ("£3m", ["3 million pounds", "£3,000,000"], ["3 pounds", "$3m"]),
    ("¥10,000", ["10,000 yen", "1万円", "JPY 10,000"], ["10,000元", "$10,000"]),
    ("₹50 lakh", ["5 million rupees", "Rs. 50,00,000"], ["₹50 crore"]),
    ("50亿美元", ["$5b", "$5 billion"], ["5 billion euros"]),
    ("2 TB", ["2 terabytes"], ["2 GB"]),
    ("$5,000,000,000", ["$5bn", "$5B", "5 billion dollars"], ["$5 million", "$5m"]),
    (
        "yes",
        [
            *("Yes it is.", "**Yes**, it is.", "Yes - it froze.", "The answer is: **yes**"),
            *("So yes.", "By the notes, yes."),
            *("True.", "Yes because it froze.", "Yes (all of it)", "Yes \u2013 it is"),
            *("The answer is no doubt yes.", "The answer is yes and I saw it."),
            *(
                "Yeah.",
                "Definitely yes.",
                "Of course.",
                "I think yes.",
                "It's a yes.",
                "In short: yes",
            ),
            *(
                "Verdict: yes",
                "Sì, è vero.",
                "はい、凍っています。",
                "是的，冻了。",
                "نعم",
                "That's true.",
            ),
            *("The answer to the question is yes.", "Yes and it has been."),
        ],
        [
            *("Yes and no.", "No, yes.", "I would say yes or no", "No, I said yes."),
            *("The answer is yes and no.", "The answer is yes if cold.", "Is the answer yes? No."),
            *("Not true of all.", "I'd never say yes"),
            *("Of course not.", "I can't say yes.", "It is not true.", "It isn't a yes."),
        ],
    ),
    (
        "no",
        [
            *(
                "No it isn't",
                "No; it melted.",
                "Answer: No",
                "Nope.",
                "Absolutely not.",
                "Not at all.",
            ),
            *("I'd say no.", "This is false.", "不，没有。", "아뇨, 아직요.", "No, they did not."),
        ],
        [
            *(
                "No one called",
                "Yes. No, wait: no.",
                "No, wait: yes.",
                "No. 5",
                "The answer is no doubt yes.",
            ),
            *("The answer is no longer known.", "The answer is no one"),
        ],
    ),
    (
        "red, green, blue",
        [
            *("* red\n* green\n* blue", "Red & green & blue", "1) red\n2) green\n3) blue"),
            *("a. red\nb. green\nc. blue", "1. red 2. green 3. blue", "red, green und blue"),
            *(
                "a) red b) green c) blue",
                "1.red\n2.green\n3.blue",
                "- [x] red\n- [x] green\n- [x] blue",
            ),
            "<li>red</li><li>green</li><li>blue</li>",
            "Here:\n- red\n- green\n- blue\n\nLet me know if you need more.",
            *("The colours are:\n- red\n- green\n- blue", "red, green e blue"),
        ],
        ["red and green", "red, green, blue and black"],
    ),
    ("红、绿、蓝", ["红，绿，蓝", "红、绿和蓝", "1. 红\n2. 绿\n3. 蓝"], ["红、绿"]),
    ("red and green", ["both red and green", "red, green"], ["red or green"]),
    ("3/4", ["\\(\\frac{3}{4}\\)", "\\boxed{\\frac{3}{4}}", "$\\tfrac34$"], ["$\\frac{4}{3}$"]),
    ("1 1/2", ["$1\\frac{1}{2}$"], ["$\\frac{11}{2}$"]),
    ("√2", ["$\\sqrt{2}$"], ["2"]),
    ("45 degrees", ["$45^\\circ$", "45°", "45 deg"], ["45"]),
    ("\\frac{\\sqrt3}{2}", ["√3/2", "sqrt(3)/2", "\\sqrt{3} \\over 2"], ["\\sqrt{\\frac{3}{2}}"]),
    ("2\\sqrt{3}", ["2\\sqrt 3", "2 \\cdot \\sqrt3"], ["3\\sqrt{2}", "2\\sqrt[3]{3}"]),
    ("\\frac{x+1}{x-1}", ["\\frac{x + 1}{x - 1}", "(x+1)/(x-1)"], ["\\frac{x-1}{x+1}"]),
    ("(-\\infty,3)\\cup(4,5)", ["(-∞, 3) ∪ (4, 5)", "(-inf,3)∪(4,5)"], ["(-∞,3)∩(4,5)"]),
    ("x \\neq \\alpha", ["x != α", "x ≠ α"], ["x = α"]),
    ("Ca^{2+}", ["Ca²⁺", "\\ce{Ca^2+}", "Ca2+"], ["Ca^{2-}"]),
    ("SO4^2-", ["SO₄²⁻", "$SO_4^{2-}$"], ["SO4^2+", "SO4^-", "SO4"]),
    ("20 °C", ["20 degrees Celsius", "20 degrees C", "$20^\\circ$C"], ["20 °F", "20"]),
    ("3", ["x = 3", "$x=3$", "\\boxed{x=3}"], ["x = -3", "3x", "x = 3 or x = 4"]),
    ("5 - 3", [], ["5 11 3"]),
    (
        "New York",
        ["<td>New York</td>", "[New York](https://a.b/c)", "New York [1]", "New York</s>"],
        [],
    ),
    ("New York", ["New York<|im_end|>", "New York.【1†source】", "\\emph{New York}"], ["York"]),
    (
        "New York",
        ['{"why": "big", "answer": "New York"}', "Antwort: New York"],
        ['{"why": "New York"}'],
    ),
    ("New York", ["Is it big? Yes.\n\n### Final Answer\n\nNew York", "答案：New York"], []),
    ("H2O", ["H<sub>2</sub>O", "\\ce{H2O}"], ["HO"]),
    ("print(7)", ["Use `print(7)`.", "It is `print(7)` here."], ["Not `print(7)`.", "`print(8)`"]),
    ("2^{10}", ["$2^{10}$", "1024", "2**10", "2 ** 10"], ["210"]),
    (
        "14*3=<<14*3=42>>42.\n#### 42",
        [
            *("42", "I think\n#### 42", "It is $\\boxed{42}$.", "forty-two"),
            *("It is $42.", "14 * 3 = 42 plums", "The answer is 42, 7 more than 35."),
        ],
        ["14", "#### 42\n#### 43", "\\boxed{42} or \\boxed{43}"],
    ),
    (
        "42",
        [
            *("Answer: 42", "Final answer: 42", "The answer is 42.", "**Answer:** 42"),
            *("Answer:\n42", "I think.\nThe answer is 42.", "6 * 7. So the answer is 42."),
            "x\n**Answer**: 42",
            *("Answer: \\boxed{42}", "### Answer: 42", "x\nThe final answer is $\\boxed{42}$."),
        ],
        [
            "The answer is not 42.",
            "Answer: 42 or 43",
            "Wrong answer: 42",
            "The answer is 42. Or 43.",
        ],
    ),
    ("Paris", ["Answer: Paris", "I think Rome. The answer is Paris."], ["Answer: Rome"]),
    ('{"active": true}', ['{"active":true}'], ['{"active": 1}', '{"active": false}']),
    ("[0, 1.0]", ["[0.0, 1]"], ["[false, true]"]),
    ("14 * 3\n#### 42\nThe answer is: 42", ["42"], ["14"]),
    ("hepatitis E virus", ["Hepatitis e virus"], ["hepatitis virus"]),
    ("It's < 5 or", ["It\\'s $<$ 5 or", "<b>It&amp;#39;s</b> &lt; 5 or"], ["It's > 5 or"]),
    ("$1,000", ["$\\$1{,}000$", "USD 1000"], ["€1,000"]),
    ("So $x=\\boxed{\\frac12}$.", ["1/2", "0.5"], ["2"]),
    ("Müller & Söhne", ["M&uuml;ller &amp; S&ouml;hne", "M\\u00fcller & S\\u00f6hne"], ["Müller"]),
    ("x = 1", ["```py\nx = 1\n```", "Here:\n```\nx = 1\n```\nDone."], ["```\nx = 2\n```"]),
    ('["a", "b"]', ['The list: ["a","b"]'], ['["b","a"]', 'Either ["a","b"] or ["b"]']),
]


@pytest.mark.parametrize(
    ("answer", "response", "is_right"),
    [
        (answer, response, is_right)
        for answer, same, others in SAID
        for is_right, responses in ((True, same), (False, others))
        for response in responses
    ],
)
def test_a_response_says_the_answer(answer: str, response: str, is_right: bool) -> None:
    assert compare("Which?", response, [answer]).exact is is_right


@pytest.mark.parametrize(
    ("answer", "response", "is_right"),
    [
        *(("3", said, True) for said in ("3 hens", "There are three hens.", "It has 3.")),
        *(("3", said, False) for said in ("3 cats", "not 3", "more than 3 hens", "3 or 4 hens")),
        *(
            ("3", said, False)
            for said in ("3 dozen hens", "at least 3 hens", "-3 hens", "3.5 hens")
        ),
        ("7", "3, 7", False),
        ("3 percent", "It is 3%.", True),
        ("3 percent", "It is 3.", False),
    ],
)
def test_a_number_may_stand_beside_words_of_the_question(
    answer: str, response: str, is_right: bool
) -> None:
    assert compare("How many hens are there? (3) hens", response, [answer]).exact is is_right


@pytest.mark.parametrize(
    ("answer", "response", "f1"),
    [
        ("さくら", "さくらです", 0.75),
        ("上海市", "上海", 2 / 3),
        ("上海市", "北京市", 0.0),
        ("부산", "부산에", 0.8),
        ("ตลาด", "ที่ตลาด", 8 / 11),
        ("7 May 2023", "on 2023-05-07 in Rome", 0.5),
    ],
)
def test_f1_counts_what_is_shared(answer: str, response: str, f1: float) -> None:
    assert compare("Which?", response, [answer]).f1 == pytest.approx(f1)


YES_NO = ("yes", "no", "maybe")
# Choices, a right answer, responses that choose it, and responses that do not
CHOSEN = [
    (
        ("butter", "salt", "slate", "cork"),
        "A",
        [
            *(
                "A",
                "A. butter",
                "butter",
                "The answer is (A).",
                "(a) butter",
                "Butter melts first.",
            ),
            *("No doubt: butter.", "The experiment shows butter.", "Not only butter melts."),
        ],
        [
            *("B", "salt", "Not butter.", "Butter or salt.", "It isn't butter."),
            "It can't be butter.",
            *("It cannot be butter.", "Never butter.", "Neither, not even butter."),
        ],
    ),
    (("positive", "negative"), "positive", ["The sentiment is positive."], ["It isn't positive."]),
    (("5 percent", "10 percent"), "B", ["It is 10 percent.", "It is 10%."], ["Not 10%."]),
    (("salt", "salt water"), "salt water", ["It's salt water"], ["Salt is no salt water.", "salt"]),
    (("guilty", "not guilty"), "not guilty", ["He is not guilty."], ["He is guilty."]),
    (("no change", "more"), "no change", ["There is no change."], ["There is no more change."]),
    (("always", "never"), "never", ["It never happens."], ["always"]),
    (("true", "false"), "false", ["This is false.", "No, it is not."], ["It isn't true."]),
    (
        YES_NO,
        "no",
        ["No, it only eases the symptoms.", "The answer is no.", "I'd say no."],
        ["There is no cure.", "There is no doubt that it works.", "Yes and no.", "Yes, not no."],
    ),
    (YES_NO, "yes", ["Yes, it eases pain.", "Yes, it does not harm."], ["No, it's not.", "maybe"]),
    (("Si", "Fe"), "Fe", ["Yes, it is Fe."], ["Si"]),
    (("positive", "negative"), "negative", ["It is negative, not positive."], ["not negative"]),
    (("Butter", "Salz"), "Butter", ["Butter schmilzt."], ["Nicht Butter.", "Keine Butter."]),
    (("黄油", "盐"), "黄油", ["黄油最先融化。", "是黄油。"], ["不是黄油。", "黄油和盐"]),
    (("バター", "塩"), "バター", ["バターです。"], ["バターではない。", "塩です"]),
    (("$\\frac12$", "$\\frac13$"), "B", ["1/3", "The answer is one third."], ["1/2", "3"]),
    (("5 May 2024", "6 May 2024"), "B", ["It was on May 6, 2024."], ["May 5, 2024"]),
    (("iron", "salt", "zinc"), "A, C", ["AC", "C and A", "iron and zinc", "A. iron\nC. zinc"], []),
    (("iron", "salt", "zinc"), "AC", ["The answers are A and C."], ["A", "C", "A or C", "ABC"]),
    (("iron", "salt", "zinc"), "A, C", ["答案：AC", "\\boxed{A, C}"], ["C", "A, B", "A, not C"]),
]


@pytest.mark.parametrize(
    ("choices", "answer", "response", "is_right"),
    [
        (choices, answer, response, is_right)
        for choices, answer, right, wrong in CHOSEN
        for is_right, responses in ((True, right), (False, wrong))
        for response in responses
    ],
)
def test_choices_of_their_own_are_options(
    choices: tuple[str, ...], answer: str, response: str, is_right: bool
) -> None:
    is_letter = answer in ("A", "B", "C", "D")
    named = [answer, choices[ord(answer) - ord("A")] if is_letter else answer]
    assert {compare("Which?", response, [each], choices).exact for each in named} == {is_right}

"""Which option a response chooses, and whether an answer is the expected one."""

import pytest

from memray_eval.benchmarks.instruction.answers import (
    compare,
    find_choice,
    offered_options,
    read_json,
)

ROBOT = (
    "Robot 0.6m wide, doorway 0.8m wide, obstacle 0.3m left of center. Pass A) center B) right C) "
    "left D) find another route?"
)
OPTIONS = {"A": "center", "B": "right", "C": "left", "D": "find another route"}


@pytest.mark.parametrize(
    ("prompt", "options"),
    [
        (ROBOT, OPTIONS),
        (
            "Should it (a) wait, (b) go, or (c) call? Explain.",
            {"A": "wait", "B": "go", "C": "call"},
        ),
        ("A. go on; B. wait\nPick one.", {"A": "go on", "B": "wait"}),
        ("Should robot pass left or right?", {"left": "left", "right": "right"}),
        ("Is it safe or not?", {}),
        ("Why is the sky blue? e.g. a. b", {}),
        ("Plan A) is all there is.", {}),
    ],
)
def test_options_are_read_off_the_prompt(prompt: str, options: dict[str, str]) -> None:
    assert offered_options(prompt) == options


@pytest.mark.parametrize(
    ("response", "letter"),
    [
        ("B) The robot should pass on the right side.", "B"),
        ("B", "B"),
        ("b)", "B"),
        ("**B**", "B"),
        ("(b) is it", "B"),
        ("A", "A"),
        ("A, because it is wide", "A"),
        ("A because it is wide", "A"),
        ("A is the safest.", "A"),
        ("A robot should pass right.", None),  # the article
        ("Answer: A robot cannot", None),
        ("Answer: A", "A"),
        ("The answer is B.", "B"),
        ("The answer is a wider doorway", None),
        ("The answer is not B", None),
        ("I think B is best", "B"),
        ("I would choose option C", "C"),
        ("I would not choose A. I choose D", "D"),
        ("A) too narrow. B) fits. So the answer is B.", "B"),
        ("A) too narrow\nB) fits\nC) no", None),  # goes through them and settles on none
        ("Option A is bad. Option B fits.", None),
        ("The robot should take option B", "B"),
        ("E) none of them", "E"),
        ("Because of Bob", None),
        ("Cats", None),
        ("D'Artagnan went", None),
        ("B-side is wide", None),
        ("Vitamin C helps", None),
        ("", None),
    ],
)
def test_a_letter_is_an_answer_only_where_it_is_said_to_be(
    response: str, letter: str | None
) -> None:
    result = find_choice(response, OPTIONS)
    assert (result.option if result else None) == letter


@pytest.mark.parametrize(
    ("prompt", "word", "responses"),
    [
        (
            "Pass left or right?",
            "right",
            [
                *("Right. Left is blocked.", "not left but right", "right rather than left"),
                *("Between left and right, it should pass right.", "Don't go left, but right."),
                *("You asked left or right? Right.", "Pass right: the box is on the left."),
                *("**Left** or **right**? **Right**", "Left is narrow. The answer is right."),
                *("Go right and not left.", "It isn’t left, it's right."),
            ],
        ),
        (
            "Pass left or right?",
            "left",
            ["The right option is left.", "I'd choose left, not right"],
        ),
        (
            "Pass left or right?",
            None,
            ["I don't know whether left or right is safe.", "Don't go left.", "upright", ""],
        ),
        (
            "Maria or Peter?",
            "peter",
            ["It wasn't Maria but Peter.", "Peter, and Maria helped him."],
        ),
        (
            "Maria or Peter?",
            None,
            ["Neither Maria nor Peter.", "Both Maria and Peter.", "Not Maria"],
        ),
        ("Is it hot or cold?", "cold", ["It isn't hot; it is cold.", "Not hot, cold."]),
        (
            "Is it frozen, yes or no?",
            "yes",
            [
                "There is no doubt: yes, it is.",
                "No doubt: yes.",
                "It has ice on it, so yes.",
                "True.",
            ],
        ),
        ("Is it frozen, yes or no?", None, ["Yes and no.", "I have no doubt it is.", "not yes"]),
    ],
)
def test_of_two_words_the_first_that_is_said_and_not_taken_back_is_chosen(
    prompt: str, word: str | None, responses: list[str]
) -> None:
    found = [find_choice(response, offered_options(prompt)) for response in responses]
    assert [choice.option if choice else None for choice in found] == [word] * len(responses)


@pytest.mark.parametrize(
    ("prompt", "response", "start"),
    [
        ("Is it frozen, yes or no?", "There is ice on it, so yes.", 23),
        ("Is it frozen, yes or no?", "True.", 0),
        ("Pass left or right?", "Left or right? Right. The answer is right.", 15),
    ],
)
def test_where_a_word_is_chosen_is_where_it_is_said_first(
    prompt: str, response: str, start: int
) -> None:
    choice = find_choice(response, offered_options(prompt))
    assert choice is not None
    assert choice.start == start


DRINKS = (
    "Which of these drinks holds no caffeine?\nA. Rooibos tea\nB. Espresso\nC. Black tea\nD. Cola"
)
SHAPES = "(A) circle (B) kite (C) line (D) sector (E) square (F) hexagon (G) octagon (H) pentagon "
SHAPES += "(I) rectangle (J) triangle (K) rhomb"
SAID = [
    ("\\boxed{B}", "B"),
    ("\\boxed{\\text{(B)}}", "B"),
    ("$\\boxed{C}$", "C"),
    ("So the answer is $\\boxed{\\mathbf{D}}$.", "D"),
    ("\\boxed{A, B}", None),
    ("\\boxed{A. Rooibos tea}", "A"),
    ("\\boxed{\\text{Black tea}}", "C"),
    ("<answer>C</answer>", "C"),
    ("(A) is wrong; (C)", "C"),
    ("Option C is incorrect.", None),
    ("<answer>\nB. Espresso\n</answer>", "B"),
    ("<ANSWER>(d)</ANSWER>", "D"),
    ("Ｂ", "B"),
    ("（Ｃ）", "C"),
    ("Ｂ．", "B"),
    ("The answer is (B)", "B"),
    ("**C**", "C"),
    ("**Answer:** D", "D"),
    ("Final answer: **B**", "B"),
    ("The correct option is C.", "C"),
    ("Antwort: A", "A"),
    ("Ich wähle B", "B"),
    ("Ich nehme nicht A, sondern B", "B"),
    ("Elijo la B", "B"),
    ("Escolho a opção B", "B"),
    ("Die richtige Antwort ist B", "B"),
    ("Die Antwort lautet: C.", "C"),
    ("B ist richtig.", "B"),
    ("A ist falsch. Die Antwort ist D.", "D"),
    ("A ist falsch.", None),
    ("Lösung: B", "B"),
    ("答案是A", "A"),
    ("选B", "B"),
    ("答案：C", "C"),
    ("正确答案是D。", "D"),
    ("我选择B，因为它没有咖啡因", "B"),
    ("不选A，选B", "B"),
    ("答案不是A，而是C", "C"),
    ("选项B正确", "B"),
    ("答案为 B", "B"),
    ("应选C", "C"),
    ("B。", "B"),
    ("答案是A和B", None),
    ("A、B", None),
    ("정답은 A", "A"),
    ("답: B", "B"),
    ("정답: C", "C"),
    ("정답은 A입니다.", "A"),
    ("B번", "B"),
    ("B가 정답입니다", "B"),
    ("الإجابة: أ", "A"),
    ("الإجابة: A", "A"),
    ("الجواب هو B", "B"),
    ("الإجابة الصحيحة هي ج", "C"),
    ("ب", "B"),
    ("La réponse est B", "B"),
    ("Réponse : C", "C"),
    ("La bonne réponse est la D.", "D"),
    ("La respuesta es B", "B"),
    ("Respuesta: C", "C"),
    ("La respuesta correcta es la A.", "A"),
    ("La opción B es correcta", "B"),
    ("Respuesta: A veces", None),
    ("答えはBです", "B"),
    ("Ответ: C", "C"),
    ("A resposta é B", "B"),
    ("rooibos tea", "A"),
    ("Rooibos tea.", "A"),
    ("The answer is rooibos tea.", "A"),
    ("Answer: Espresso", "B"),
    ("Die Antwort ist Cola", "D"),
    ("espresso coffee", None),
    ("A, B", None),
    ("A. B. C. D.", None),
    ("A and B", None),
    ("A or B", None),
    ("Both A and C", None),
    ("The answer is A or B", None),
    ("The answer is B, C", None),
    ("A/B", None),
    ("ABCD", None),
    ("(A) and (C)", None),
    ("A oder B", None),
    ("It cannot be A. The answer is B.", "B"),
    ("Not A. B is correct.", "B"),
    ("It cannot be A.", None),
    ("The answer is not A but B.", "B"),
    ("A is wrong. I choose C", "C"),
    ("A robot likes tea", None),
    ("I think so", None),
    ("A", "A"),
    ("a", "A"),
    ("d.", "D"),
    ("A or B? I choose B.", "B"),
    ("A. Rooibos tea B. Espresso C. Black tea D. Cola", None),
    ("A. Rooibos tea", "A"),
    ("I would go with B", "B"),
    ("The answer is B. A is wrong.", "B"),
    ("Answer: A, because B is strong", "A"),
    ("The answer is B, as A has caffeine", "B"),
    ("The answer is C. D is too strong.", "C"),
    ("B\n\nEspresso is strong", "B"),
    ("Option C", "C"),
    ("\\(\\boxed{B}\\)", "B"),
    ("[B]", "B"),
    ('{"answer": "C"}', "C"),
    ('"B"', "B"),
    ("`B`", "B"),
    ("Answer - B", "B"),
    ("Answer = B", "B"),
    ("答案选C", "C"),
    ("故选：D", "D"),
    ("*B*", "B"),
    ("B:", "B"),
    ("The correct answer is option B: Espresso", "B"),
    ("B – Espresso", "B"),
    ("B - Espresso", "B"),
    ("The final answer is \\(\\text{B}\\).", "B"),
    ("𝐁", "B"),
    ("Ⓑ", "B"),
    ("答案：（B）", "B"),
    ("The answer is:\n\nB", "B"),
    ("##  Answer\nB", "B"),
    ("My answer is B.", "B"),
    ("선택: B", "B"),
    ("B입니다", "B"),
    ("It's B", "B"),
    ("Definitely B.", "B"),
    ("I'd say C.", "C"),
    ("La réponse est A et B", None),
    ("A y B", None),
    ("None of these", None),
    ("A ou B", None),
    ("B, not A", "B"),
    ("not B", None),
    ("B\u200b", "B"),
    ("\u200fB", "B"),
    ("The answer is\xa0B", "B"),
    ("Es la B", "B"),
    ("C'est B", "B"),
    ("Es ist B", "B"),
    ("最终答案：\\boxed{C}", "C"),
    ("选A还是B？选B", "B"),
    ("A、C都对", None),
    ("A and C are both right", None),
    ("Answer: A and C are both right", None),
    ("A, C and D", None),
    ("Therefore, B.", "B"),
    ("So B.", "B"),
    ("Hence: B", "B"),
    ("It should be B because of the obstacle.", "B"),
    ("Not A. B.", "B"),
    ("So A saw would do", None),
    ("Therefore, A or B.", None),
    ("Therefore, B is blocked.", None),
    ("The answer would have to be C", "C"),
    ("I'd go with (D)", "D"),
    ("I'd vote C", "C"),
    ("My pick: D", "D"),
    ("The right one is C", "C"),
    ("It would have to be D.", "D"),
    ("It must not be B.", None),
    ("That leaves us with C.", "C"),
    ("In conclusion: C", "C"),
    ("As a result, B.", "B"),
    ("Probably not B.", None),
    ("A? No, B.", "B"),
    ("No, B is wrong.", None),
    ("A, not B", "A"),
    ("Both A and B", None),
    ("neither", None),
    ("It is neither A nor B.", None),
    ("Ich würde D wählen.", "D"),
    ("Ich würde nicht D wählen.", None),
    ("Daher B.", "B"),
    ("Also C.", "C"),
    ("Weder A noch B.", None),
    ("Donc B.", "B"),
    ("C'est la B.", "B"),
    ("Pas A, mais B.", "B"),
    ("Ni A ni B.", None),
    *((f"The answer is {said}", "C") for said in ("'C'.", "`C`.", "‘C’.", "<b>C</b>", "{C}", "c.")),
    *(
        (f"The answer is {said}", "C")
        for said in ("likely C.", "option 'C'", "most likely C.", "c")
    ),
    ("The answer would therefore be <strong>C</strong>.", "C"),
    ("The correct letter is C.", "C"),
    ("Correct: C", "C"),
    ("Incorrect: C", None),
    ("The answer is `A` which is tea", "A"),
    ("The answer is not 'C' but 'D'.", "D"),
    ("It's 'C'.", "C"),
    *((f"The answer is {said}", None) for said in ("'A' or 'B'", "`A` and `B`.", "likely a tea")),
    *((f"The answer is {said}", None) for said in ("c. 1850", "a or b.", "likely not C.", "D'Or.")),
    ("'A robot' is what I'd say", None),
]


@pytest.mark.parametrize(("response", "letter"), SAID)
def test_a_choice_is_read_in_any_wrapping_and_several_languages(
    response: str, letter: str | None
) -> None:
    result = find_choice(response, offered_options(DRINKS))
    assert (result.option if result else None) == letter


@pytest.mark.parametrize(
    ("prompt", "response", "answer"),
    [
        ("أي مشروب بلا كافيين؟\nأ) شاي\nب) قهوة\nج) كولا", "الإجابة: ب", "ب"),
        ("哪种？\nＡ．茶\nＢ．水", "Ｂ", "B"),
        ("哪种？\nA、茶\nB、水", "水。", "B"),
        ("Which dose? A) 5 mg B) 15 mg C) 1.5 mg", "1.50mg", "C"),
        (DRINKS, "A", "Rooibos\u00a0Tea"),
        *((DRINKS, said, "b") for said in ("The answer is (B).", "b) Espresso", "Espresso")),
        *((SHAPES, said, "(K)") for said in ("So it is (K).", "(K) rhomb", "The answer is rhomb.")),
    ],
)
def test_options_are_offered_and_named_in_other_scripts(
    prompt: str, response: str, answer: str
) -> None:
    assert compare(prompt, response, [answer]) == (True, 1.0)


@pytest.mark.parametrize(
    ("prompt", "response", "answers", "exact", "f1"),
    [
        (ROBOT, "B) as it is free", ["B"], True, 1.0),
        (ROBOT, "B) as it is free", ["right"], True, 1.0),
        (ROBOT, "B) as it is free", ["C", "B) right"], True, 1.0),
        (ROBOT, "A right turn is blocked", ["A"], False, 0.0),
        ("q", "The Paris.", ["paris"], True, 1.0),
        ("q", "in Paris", ["Paris"], False, 2 / 3),
        ("q", "A", ["the"], False, 0.0),
        ("q", "A", ["a"], True, 1.0),
        ("q", '```json\n{"a": 1}\n```', ['{"a":1}'], True, 1.0),
        ("q", "北京。", ["北京"], True, 1.0),
        ("q", "北京 上海", ["北京"], False, 2 / 3),
        ("q", "x", ["", " "], False, 0.0),
        ("q", "about 7 minutes", ["7 minutes"], False, 0.8),
        ("q", "about 1.5 tablets", ["15 tablets"], False, 0.4),
        ("q", "15", ["1.5"], False, 0.0),
        ("q", "3,5 Stunden", ["3.5 Stunden"], True, 1.0),
        ("q", "五月有30天", ["5 月"], False, 0.0),
        ("q", "体重是 65.0 公斤", ["65 公斤"], False, 2 / 3),
        ("q", "\\boxed{1.50}", ["1.5"], True, 1.0),
        ("q", "$15$", ["15"], True, 1.0),
        ("q", "<answer>zinc</answer>", ["zinc"], True, 1.0),
        ("q", "So it is <answer>zinc</answer>", ["zinc"], True, 1.0),
        ("q", "[1, 2, 3]", ["[1,2,3]"], True, 1.0),
        ("q", "1", ["[1, 2, 3]"], False, 0.5),
    ],
)
def test_answers_are_compared(
    prompt: str, response: str, answers: list[str], exact: bool, f1: float
) -> None:
    result = compare(prompt, response, answers)
    assert (result.exact, result.f1) == (exact, pytest.approx(f1))


@pytest.mark.parametrize(
    "text", ["[1", "NaN", "[" * 100_000, "1" * 5000, "so: {}", '```json\n{"a": 1}', ""]
)
def test_what_is_no_json_is_none(text: str) -> None:
    assert read_json(text) is None

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
        ("Which?\n[A] go\n[B] wait", {"A": "go", "B": "wait"}),
        ("Which?\nA - go\nB - wait", {"A": "go", "B": "wait"}),
        ("Why is the sky blue? e.g. a. b", {}),
        ("Plan A) is all there is.", {}),
    ],
)
def test_options_are_read_off_the_prompt(prompt: str, options: dict[str, str]) -> None:
    assert offered_options(prompt) == options


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
    choices = [find_choice(response, offered_options(prompt)) for response in responses]
    assert [choice.option if choice else None for choice in choices] == [word] * len(responses)


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
# What is read as this letter, between bars
SAID = {
    "A": r"""
        A, because it is wide | A because it is wide | A is the safest. | \boxed{A. Rooibos tea} |
        Antwort: A | 答案是A | 정답은 A | 정답은 A입니다. | الإجابة: أ | الإجابة: A |
        La respuesta correcta es la A. | rooibos tea | Rooibos tea. | The answer is rooibos tea. |
        A | a | A. Rooibos tea | Answer: A, because B is strong | A, not B |
        The answer is `A` which is tea
    """,
    "B": r"""
        B) The robot should pass on the right side. | B | b) | **B** | (b) is it |
        The answer is B. | I think B is best | A) too narrow. B) fits. So the answer is B. |
        The robot should take option B | \boxed{B} | \boxed{\text{(B)}} | Ｂ | Ｂ． |
        The answer is (B) | Final answer: **B** | Ich wähle B | Ich nehme nicht A, sondern B |
        Elijo la B | Escolho a opção B | Die richtige Antwort ist B | B ist richtig. | Lösung: B |
        选B | 我选择B，因为它没有咖啡因 | 不选A，选B | 选项B正确 | 答案为 B | B。 | 답: B | B번 |
        B가 정답입니다 | الجواب هو B | ب | La réponse est B | La respuesta es B |
        La opción B es correcta | 答えはBです | A resposta é B | Answer: Espresso |
        It cannot be A. The answer is B. | Not A. B is correct. | The answer is not A but B. |
        A or B? I choose B. | I would go with B | The answer is B. A is wrong. |
        The answer is B, as A has caffeine | \(\boxed{B}\) | [B] | "B" | `B` | Answer - B |
        Answer = B | *B* | B: | The correct answer is option B: Espresso | B – Espresso |
        B - Espresso | The final answer is \(\text{B}\). | 𝐁 | Ⓑ | 答案：（B） | My answer is B. |
        선택: B | B입니다 | It's B | Definitely B. | B, not A | Es la B | C'est B | Es ist B |
        选A还是B？选B | Therefore, B. | So B. | Hence: B |
        It should be B because of the obstacle. | Not A. B. | As a result, B. | A? No, B. |
        Daher B. | Donc B. | C'est la B. | Pas A, mais B. | Ans: B | Selected option: B |
        Only B fits. | Eliminating A and C leaves B. | Most likely B. | ✓ B. Espresso |
        Richtig ist B. | Letra B |
        【答案】B | 正答はBです | La opción correcta es B | Het antwoord is B | คำตอบคือ B |
        Đáp án: B |
        Правильный ответ — B | The answer to this question is B. | It's espresso.
    """,
    "C": r"""
        I would choose option C | $\boxed{C}$ | \boxed{\text{Black tea}} | <answer>C</answer> |
        (A) is wrong; (C) | （Ｃ） | **C** | The correct option is C. | Die Antwort lautet: C. |
        答案：C | 答案不是A，而是C | 应选C | 정답: C | الإجابة الصحيحة هي ج | Réponse : C |
        Respuesta: C | Ответ: C | A is wrong. I choose C | The answer is C. D is too strong. |
        Option C | {"answer": "C"} | 答案选C | I'd say C. | 最终答案：\boxed{C} |
        The answer would have to be C | I'd vote C | The right one is C | That leaves us with C. |
        In conclusion: C | Also C. | The answer would therefore be <strong>C</strong>. |
        The correct letter is C. | Correct: C | It's 'C'. | The answer is 'C'. |
        The answer is `C`. | The answer is ‘C’. | The answer is <b>C</b> | The answer is {C} |
        The answer is c. | The answer is likely C. | The answer is option 'C' |
        The answer is most likely C. | The answer is c
    """,
    "D": r"""
        I would not choose A. I choose D | So the answer is $\boxed{\mathbf{D}}$. |
        <ANSWER>(d)</ANSWER> | **Answer:** D | A ist falsch. Die Antwort ist D. | 正确答案是D。 |
        La bonne réponse est la D. | Die Antwort ist Cola | d. | 故选：D | I'd go with (D) |
        My pick: D | It would have to be D. | Ich würde D wählen. |
        The answer is not 'C' but 'D'.
    """,
    "E": "E) none of them",
    None: r"""
        A robot should pass right. | Answer: A robot cannot | The answer is a wider doorway |
        The answer is not B | Option A is bad. Option B fits. | Because of Bob | Cats |
        D'Artagnan went | B-side is wide | Vitamin C helps | \boxed{A, B} |
        Option C is incorrect. | A ist falsch. | 答案是A和B | A、B | Respuesta: A veces |
        espresso coffee | A, B | A. B. C. D. | A and B | A or B | Both A and C |
        The answer is A or B | The answer is B, C | A/B | ABCD | (A) and (C) | A oder B |
        It cannot be A. | A robot likes tea | I think so |
        A. Rooibos tea B. Espresso C. Black tea D. Cola | La réponse est A et B | A y B |
        None of these | A ou B | not B | A、C都对 | A and C are both right |
        Answer: A and C are both right | A, C and D | So A saw would do | Therefore, A or B. |
        Therefore, B is blocked. | It must not be B. | Probably not B. | No, B is wrong. |
        Both A and B | neither | It is neither A nor B. | Ich würde nicht D wählen. |
        Weder A noch B. | Ni A ni B. | Incorrect: C | 'A robot' is what I'd say |
        The answer is 'A' or 'B' | The answer is `A` and `B`. | The answer is likely a tea |
        The answer is c. 1850 | The answer is a or b. | The answer is likely not C. |
        The answer is D'Or. | Not only B fits | Ans: A or B | La opción B es incorrecta
    """,
}
ODD = [
    ("", None),
    ("A) too narrow\nB) fits\nC) no", None),  # goes through them and settles on none
    ("<answer>\nB. Espresso\n</answer>", "B"),
    ("B\n\nEspresso is strong", "B"),
    ("The answer is:\n\nB", "B"),
    ("##  Answer\nB", "B"),
    ("B\u200b", "B"),
    ("\u200fB", "B"),
    ("The answer is\xa0B", "B"),
]


@pytest.mark.parametrize(
    ("response", "letter"),
    [(said.strip(), letter) for letter, text in SAID.items() for said in text.split("|")] + ODD,
)
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

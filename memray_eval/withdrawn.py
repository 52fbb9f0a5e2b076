"""What earlier versions had, and what to do instead: dotted keys of jobs, options, commands,
suites, metrics. CHANGELOG.md says the same under "Removed"."""

from __future__ import annotations

# The names, parted by spaces, and the rest of the sentence "NAME was withdrawn: ..."
_WITHDRAWN = (
    (
        "estimates",
        "no metric has an estimate that a job must ask for; leave the key out, and name a judge "
        "with `judge: PROVIDER/MODEL` for metrics that need one",
    ),
    (
        "emotion_words",
        "the companion metrics have no rules; leave the key out, and name a judge with "
        "`judge: PROVIDER/MODEL`",
    ),
    (
        "questions judging.questions --fit-questions",
        "no fit was better than a rule of shared words; name a judge with `judge: PROVIDER/MODEL`",
    ),
    (
        "improve",
        "`calibrate` measures a judge by its rubric: write your own, `rubrics: {METRIC: FILE.md}`, "
        "and calibrate again on labels that you held back",
    ),
    (
        "babilong graphwalks",
        "`dataset make` makes none; the suite reads the published files, such as "
        "hf://RMT-team/babilong and hf://openai/graphwalks",
    ),
    (
        "nolima nolima_contains lveval --needles --books",
        "`dataset make needles` makes long texts, and a suite of your own, FILE.py:NAME, reads the "
        "benchmark's.",
    ),
    (
        "risk_over_context",
        "write the talks as sessions (`turns`, or a `user`), and read `risk_escalation` by turn.",
    ),
    ("repeats_itself", "write a metric of your own, FILE.py:NAME"),
    (
        "constraints_followed",
        "lm-eval's task ifeval checks such constraints, or a metric of your own, FILE.py:NAME",
    ),
)
INSTEAD = {name: text for names, text in _WITHDRAWN for name in names.split()}


def what_instead(name: str) -> str | None:
    """One sentence for a name that was withdrawn, None for any other."""
    text = INSTEAD.get(name)
    return None if text is None else f"{name} was withdrawn: {text}"

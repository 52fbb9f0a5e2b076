"""What earlier versions had, and what to do instead: dotted keys of jobs, options, commands,
suites, metrics. CHANGELOG.md says the same under "Removed"."""

from __future__ import annotations

from fnmatch import fnmatchcase

# The names, parted by spaces, and the rest of the sentence "NAME was withdrawn: ..."
_WITHDRAWN = (
    (
        "estimates emotion_words",
        "no metric has rules that a job must ask for; leave the key out, and name a judge with "
        "`judge: PROVIDER/MODEL` for metrics that need one",
    ),
    ("questions judging.questions --fit-questions", "name a judge, `judge: PROVIDER/MODEL`"),
    ("improve", "revise the rubric in a file, `rubrics: {METRIC: FILE.md}`, and `calibrate` again"),
    (
        "babilong graphwalks",
        "`dataset make` makes none: the suite reads the published files (hf://)",
    ),
    (
        "stop_at --stop-at limit_order",
        "a run does all of its samples; take fewer with --limit (a larger limit holds the smaller "
        "one's samples, which the cache remembers)",
    ),
    (
        "calibration --calibration --save",
        "`calibrate RUN --sheet` writes answers to label, `calibrate RUN --labels SHEET` prints "
        "the mean of that run adjusted to the labels",
    ),
    ("nolima nolima_contains lveval --needles --books", "write a suite for your copy."),
    ("risk_over_context", "read `risk_escalation` over the turns of sessions."),
    ("repeats_itself", "write a metric of your own, FILE.py:NAME"),
    (
        "servers.*.pool",
        "put a gateway (such as the LiteLLM proxy) in front of the accounts and name it as "
        "MODEL@URL",
    ),
    (
        "cluster.phases=auto",
        "write `apart` where GPUs would wait for judges, else leave the key out",
    ),
    ("judging.actors={*", "write how many there are"),
    (
        "judging.price.*.cache_write_1h_usd servers.*.price.cache_write_1h_usd",
        "leave it out: for a judge of Anthropic's it is twice `input_usd`",
    ),
    ("affect.tts_model affect.voice affect.cpus affect.batch_size", "leave the key out"),
    ("judging.limits_at", "give each cluster its part of the limit in `judging.limits`"),
    ("constraints_followed", "lm-eval's task ifeval has them; or write a metric, FILE.py:NAME"),
)
INSTEAD = {name: text for names, text in _WITHDRAWN for name in names.split()}


def what_instead(name: str) -> str | None:
    """One sentence for a name that was withdrawn, None for any other; `*` stands for the user's
    own part of a name."""
    text = next((text for names, text in INSTEAD.items() if fnmatchcase(name, names)), None)
    return None if text is None else f"{name} was withdrawn: {text}"

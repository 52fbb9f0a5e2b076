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
        "stop_at --stop-at limit_order",
        "a run does all of its samples; take fewer with --limit (a larger limit holds the smaller "
        "one's samples, which the cache remembers)",
    ),
    (
        "calibration --calibration",
        "`calibrate RUN --sheet` writes answers to label, `calibrate RUN --labels SHEET` prints "
        "the mean of that run adjusted to the labels",
    ),
    (
        "emotion_words",
        "the companion metrics have no rules; leave the key out, and name a judge with "
        "`judge: PROVIDER/MODEL`",
    ),
)
INSTEAD = {name: text for names, text in _WITHDRAWN for name in names.split()}


def what_instead(name: str) -> str | None:
    """One sentence for a name that was withdrawn, None for any other."""
    text = INSTEAD.get(name)
    return None if text is None else f"{name} was withdrawn: {text}"

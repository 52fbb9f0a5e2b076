"""The command that shows what a run tells, on answers and verdicts that are shipped: demo."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator

from memray_eval.cli.app import BEGAN, RUN, app, shorten_path, show
from memray_eval.cli.options import JobOptions, takes
from memray_eval.config.loading import load_config, shipped_jobs
from memray_eval.types import Record


@app.command(rich_help_panel=RUN, epilog="Example: memray-eval demo")
@takes("out")
def demo(options: JobOptions) -> None:
    """See what a run tells you, in seconds: two assistants, 40 questions, no model and no key.

    The answers and a judge's verdicts come with the package; both were written for this project.
    All else is computed as in any run: scores, intervals, the comparison and the page."""
    from memray_eval.execution.runs import run
    from memray_eval.report.brief import opening_parts
    from memray_eval.report.html import write_html
    from memray_eval.report.sections import lines_of

    job = load_config(shipped_jobs()["demo"], options.overrides())
    done = run(job, lambda line: None, quiet=True, started=next(iter(BEGAN), None))
    page = f"{done.folder.path}/report.html"
    write_html(done.folder, page)
    show(
        "Do two assistants use what they know of their user, and keep what others must not hear?\n"
        "40 questions of the memory benchmark. The answers and a judge's verdicts were written\n"
        "for this demo; the figures below were computed from them just now.\n"
    )
    show("\n".join([*lines_of(opening_parts(done.summary)), "", *_leaks(done.folder.each())]))
    show(
        f"\n{done.summary.total_s:.1f} s in all. What to do next:\n"
        f"  every answer, on one page:  open {shorten_path(page)}\n"
        "  chats of your own:          memray-eval evaluate chats.jsonl --judge auto\n"
        "  a model of your own:        memray-eval run memory --model MODEL --judge auto"
    )


def _leaks(records: Iterable[Record]) -> Iterator[str]:
    """Says for each assistant how many answers use what they must not, where, and quotes one."""
    leaks: dict[str, list[tuple[Record, str]]] = {}
    for record in records:
        answers = leaks.setdefault(record.candidate.name, [])
        score = next(score for score in record.scores if score.metric == "memory_utilization")
        evidence = json.loads(score.judgment or "{}").get("evidence", ())
        quotes = {piece["key"]: piece["quote"] for piece in evidence}
        used = (quotes[key] for key in record.sample.forbidden_keys if key in quotes)
        answers.append((record, next(used, "")))
    for candidate, answers in leaks.items():
        found = [(record, quote) for record, quote in answers if quote]
        tasks = Counter(record.sample.task for record, _ in found).most_common()
        where = f"{len(answers)} answers: " + ", ".join(f"{n} in {task}" for task, n in tasks)
        yield f"{candidate} reveals what it must not in {len(found)} of {where}"
        yield from (f'  "{quote}" ({record.sample.id})' for record, quote in found[-1:])

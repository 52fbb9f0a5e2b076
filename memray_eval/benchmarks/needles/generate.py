"""The samples of a plan, one after another."""

from collections.abc import Callable, Iterator
from typing import Any

from memray_eval.benchmarks.needles.plan import (
    MIDDLE,
    Plan,
    SampleDraft,
    Task,
    TooShort,
    plain_prompt,
)
from memray_eval.benchmarks.needles.prose import (
    QuestionOrder,
    length_label,
    paragraph,
    seeded_generator,
    uuid4,
)
from memray_eval.benchmarks.needles.resources import NOISE, Resources
from memray_eval.errors import ConfigError
from memray_eval.types import Sample

# samples by which the smallest length of a task is found, always the same ones
TRIED, TRIED_LENGTH = 16, 4096
LEEWAY = 1.1  # by how much others may need more
JOINS = 32  # random joins of lines that are tokenised to see whether counts add up
# of each task and length, tokenised in full to see the same of whole texts
CHECKED_TOKENS = 65536
TRIES = 12  # drafts of a sample if they do not


def samples(
    plan: Plan, resources: Resources, on_group: Callable[[str, int, bool], None] | None = None
) -> Iterator[Sample]:
    """The samples of a plan: by task, length, depth and number. `on_group` hears of each
    group before its first sample, and if its tokens are counted by parts. Raises ConfigError at
    once for a length that a task does not fit, with the smallest, or that it cannot fill."""
    for task in plan.tasks:
        shortest = typical_order(plan, task, min(plan.lengths))
        _check_shortest(shortest, plan.tasks[task], resources)
        longest = typical_order(plan, task, max(plan.lengths))
        _make_draft(longest, plan.tasks[task], resources, 0)
    return _samples(plan, resources, on_group)


def _samples(
    plan: Plan, resources: Resources, on_group: Callable[[str, int, bool], None] | None
) -> Iterator[Sample]:
    is_additive = lines_add_up(resources)
    for task, length in plan.groups():
        typical = typical_order(plan, task, length)
        by_parts = is_additive and whole_adds_up(typical, plan.tasks[task], resources)
        if on_group is not None:
            on_group(task, length, by_parts)
        for order in plan.orders(task, length):
            draft = fit_draft(order, plan.tasks[task], resources, by_parts)
            yield to_sample(order, plan.tasks[task], draft)


def _check_shortest(order: QuestionOrder, task: Task, resources: Resources) -> None:
    """Raises ConfigError if the order is shorter than the smallest length that its task fits."""

    def count_missing(trial: QuestionOrder, slack: int) -> int | None:
        """The tokens that a sample takes at least, or None if it fits with this slack."""
        try:
            task.make(trial, resources, slack)
        except TooShort as short:
            return trial.length - slack + short.missing
        return None

    if count_missing(order, order.length // 2) is None:
        return  # half the length would do
    tried = (order._replace(length=TRIED_LENGTH, number=number) for number in range(TRIED))
    needed = (count_missing(trial, TRIED_LENGTH - 1) for trial in tried)
    smallest = int(max(tokens or 0 for tokens in needed) * LEEWAY)
    if smallest > order.length:
        raise _too_short(order, smallest)


def _too_short(order: QuestionOrder, smallest: int) -> ConfigError:
    return ConfigError(
        f"--lengths {length_label(order.length)}: {order.task} takes at least {smallest} tokens"
    )


def lines_add_up(resources: Resources) -> bool:
    """True if the tokens of lines add up to those of the joined lines, by random joins."""
    rng, line = seeded_generator(resources.seed, "joins", "en"), resources.counter.line
    lines = [paragraph(rng) for _ in range(8)]
    lines += [
        NOISE,
        "VAR ABCDE = 12345\n",
        "VAR FGHIJ = VAR ABCDE\n",
        f'"{uuid4(rng)}": "{uuid4(rng)}",\n',
        "{\n",
    ]
    joins = [rng.choices(lines, k=rng.randint(2, 6)) for _ in range(JOINS)]
    return all(line("".join(joined)) == sum(map(line, joined)) for joined in joins)


def whole_adds_up(typical: QuestionOrder, task: Task, resources: Resources) -> bool:
    """True if the parts' tokens add up to the whole's, by the first samples of a group in full."""
    orders = (
        typical._replace(number=number)
        for number in range(max(1, min(8, CHECKED_TOKENS // typical.length)))
    )
    drafts = (_make_draft(order, task, resources, 0) for order in orders)
    return all(_count(resources, draft) == draft.tokens for draft in drafts)


def _count(resources: Resources, draft: SampleDraft) -> int:
    return resources.counter.whole(plain_prompt(draft.context, draft.query))


def typical_order(plan: Plan, task: str, length: int) -> QuestionOrder:
    """The sample of a group by which it is checked, always the same one."""
    depth = MIDDLE if plan.tasks[task].has_depth else None
    return QuestionOrder(plan.seed, task, length, depth, 0)


def fit_draft(
    order: QuestionOrder, task: Task, resources: Resources, by_parts: bool
) -> SampleDraft:
    """The draft counted by parts; else the longest of several that fits, counted in full."""
    draft = _make_draft(order, task, resources, 0)
    if by_parts:
        return draft
    best, slack, tried = None, 0, set[int]()
    for _ in range(TRIES):
        tried.add(slack)
        real = _count(resources, draft)
        if real <= order.length and (best is None or real > best.tokens):
            best = draft._replace(tokens=real)
        if real == order.length:
            break
        slack += real - order.length
        slack = max(tried) + 1 if slack in tried else slack
        draft = _make_draft(order, task, resources, slack)
    if best is None:
        raise ConfigError(
            f"{order.id}: none of {TRIES} drafts was within {order.length} tokens; try a longer "
            "length"
        )
    return best


def _make_draft(order: QuestionOrder, task: Task, resources: Resources, slack: int) -> SampleDraft:
    try:
        return task.make(order, resources, slack)
    except TooShort as short:
        raise _too_short(order, order.length + short.missing) from None


def to_sample(order: QuestionOrder, task: Task, draft: SampleDraft) -> Sample:
    metadata: dict[str, Any] = {
        "length": order.length,
        "tokens": draft.tokens,
        "depth": order.depth,
        "seed": order.seed,
    }
    if draft.label is not None:
        metadata["label"] = draft.label
    if task.needs_all:
        metadata["needs_all"] = True
    return Sample(
        id=order.id,
        suite="needles",
        task=order.task,
        query=draft.query,
        context=draft.context,
        answers=draft.answers,
        metadata=metadata,
    )

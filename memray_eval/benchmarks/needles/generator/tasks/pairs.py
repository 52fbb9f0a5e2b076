"""kv_retrieval: one value out of a JSON object of random UUIDs."""

from __future__ import annotations

from random import Random

from memray_eval.benchmarks.generator.pools import Unit
from memray_eval.benchmarks.generator.question_order import QuestionOrder, uuid4
from memray_eval.benchmarks.generator.resources import Resources
from memray_eval.benchmarks.generator.sample_spec import SampleDraft, SampleSpec
from memray_eval.benchmarks.generator.token_counter import LINE

WORDS = {
    "en": {
        "head": "Below is a JSON object of keys and values.\n",
        "query": 'What value does the key "{key}" have in the JSON object above? Reply with the '
        "value only.",
    },
    "zh": {
        "head": "下面是一个由键和值组成的JSON对象。\n",
        "query": "在上面的JSON对象中，键“{key}”的值是什么？请只回答这个值。",
    },
}
LEAST_PAIRS = 2


def kv_retrieval(order: QuestionOrder, resources: Resources, slack: int) -> SampleDraft:
    """The asked pair is the one at `depth` percent of all pairs: at 0 the first, at 100 the last,
    which has no comma."""
    rng, words = order.rng(), WORDS[order.language]
    pool = resources.pool("pairs", "", _pair)
    asked, last, *others = pool.draw(rng, order.length, extra=2)
    if order.depth == 100:
        last = asked
    key, value = pool.unit(asked).key, pool.unit(asked).values[0]
    closing = pool.unit(last).text.rstrip(",\n") + "\n}"
    query = words["query"].format(key=key)
    spec = SampleSpec(order, resources, slack, words["head"], closing, query)
    own = [] if order.depth == 100 else [asked]
    totals = (
        resources.counter.known(LINE, "{\n") + int(pool.counts(own).sum()) + pool.totals(others)
    )
    n = spec.most(totals, LEAST_PAIRS)
    lines = pool.texts(others[:n])
    for number in own:
        lines.insert(min(n, round((order.depth or 0) / 100 * (n + 1))), pool.unit(number).text)
    return spec.finish("{\n" + "".join(lines), int(totals[n - 1]), (value,))


def _pair(rng: Random, _: int) -> Unit:
    key, value = uuid4(rng), uuid4(rng)
    return Unit(f'"{key}": "{value}",\n', key, (value,))

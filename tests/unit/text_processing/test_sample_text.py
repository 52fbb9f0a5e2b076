import json
from statistics import fmean

from memray_eval.benchmarks.memory.suite import prompt
from memray_eval.metrics._memory import candidate_keys
from memray_eval.metrics.assistant import memory_utilization
from memray_eval.text_processing.numerals import draw_order, memory_entries, memory_lines
from memray_eval.types import Candidate, Response, Sample
from memray_eval.types.json_text import field_to_json
from tests.conftest import shipped_samples


def reordered(sample: Sample) -> Sample:
    """As a sample is after a stage that stored it: its memory by name."""
    memory = json.loads(field_to_json(sample, "memory"))
    stored = Sample.model_validate({**sample.model_dump(), "memory": memory})
    assert list(stored.memory) == sorted(sample.memory)
    return stored


def test_memory_is_written_in_one_order_whatever_stages_ran(candidate: Candidate) -> None:
    for sample in shipped_samples():
        stored = reordered(sample)
        assert memory_lines(stored) == memory_lines(sample)
        assert prompt(stored, candidate) == prompt(sample, candidate)
        shown = [memory_utilization.prompt(item, Response(text="a")) for item in (stored, sample)]
        assert shown[0] == shown[1]


def test_the_order_is_the_samples_own() -> None:
    samples = shipped_samples()
    orders = {tuple(draw_order(sample, "abcdefgh")) for sample in samples}
    assert len(orders) > len(samples) - 5
    sample = samples[0]
    assert dict(memory_entries(sample)).keys() == sample.memory.keys()
    other = sample.model_copy(update={"query": "else", "required_keys": ()})
    assert draw_order(other, sample.memory) == draw_order(sample, sample.memory)
    assert draw_order(sample.model_copy(update={"id": "\ud800"}), sample.memory)


def test_a_place_in_memory_gives_no_role_away() -> None:
    places: dict[str, list[float]] = {"required": [], "forbidden": [], "known": [], "absent": []}
    last_is_forbidden = with_forbidden = 0
    for sample in shipped_samples():
        order, candidates = (
            draw_order(sample, keys) for keys in (sample.memory, candidate_keys(sample))
        )
        for role, keys in (
            ("required", sample.required_keys),
            ("forbidden", sample.forbidden_keys),
        ):
            places[role] += [order.index(key) / (len(order) - 1) for key in keys if key in order]
        for position, key in enumerate(candidates):
            places["known" if key in order else "absent"].append(position / (len(candidates) - 1))
        if set(order) & set(sample.forbidden_keys):
            with_forbidden += 1
            last_is_forbidden += order[-1] in sample.forbidden_keys
    assert all(0.35 < fmean(result) < 0.65 for result in places.values())  # 16 keys are absent
    assert all(0.45 < fmean(places[role]) < 0.55 for role in ("required", "forbidden", "known"))
    assert 0.35 < last_is_forbidden / with_forbidden < 0.65  # as many as are forbidden

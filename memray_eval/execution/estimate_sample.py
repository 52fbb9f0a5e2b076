"""The units that an estimate is made from: spread over the dataset, with really built prompts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from memray_eval.config.sections import EMBEDDED
from memray_eval.config.servers import is_baseline
from memray_eval.datasets.scan import Scan, read_records, read_samples
from memray_eval.datasets.shards import Shard
from memray_eval.errors import ConfigError, describe_error
from memray_eval.execution.engine_time import AskedPrompt, shared_length
from memray_eval.execution.prompt_stage import prompt_room, window_of
from memray_eval.execution.run_plan import RunSpec
from memray_eval.judges.prompt_cache import CHARACTERS_A_TOKEN
from memray_eval.models.embedded_model import model_dir
from memray_eval.models.tokenizers import load_tokenizer
from memray_eval.ports import Tokenizer
from memray_eval.stages.generate import new_record
from memray_eval.types import (
    USER_MODEL,
    Candidate,
    Prompt,
    Record,
    Response,
    Sample,
    Turn,
    turn_sample,
)

SAMPLED = 200
COUNTED = 2000  # characters of a prompt that its model's tokenizer counts
# Where prompts share contexts, blocks are looked at in pairs of neighbours, so many rows of each
LEAST_PAIRS, ROWS_OF_A_BLOCK = 4, 128


class SampledUnit(NamedTuple):
    """A unit with a response of the expected length, and its prompt; without one if the responses
    exist already, no prompt can be built, or no model is asked."""

    record: Record
    prompt: AskedPrompt | None = None


def sample_units(spec: RunSpec, scan: Scan, reader: PromptReader) -> Iterator[SampledUnit]:
    """Units of samples spread over the dataset, block by block."""
    reading = spec.read.reader
    for shard, rows, is_next in _spread_shards(spec, scan):
        if spec.has_responses:
            yield from map(SampledUnit, itertools.islice(read_records(shard, reading), rows))
            continue
        if not is_next:
            reader.before.clear()
        opened = set[str]()  # models whose prompts of this block have begun
        for sample in itertools.islice(read_samples(shard, reading), rows):
            for candidate, epoch in itertools.product(spec.candidates, range(1, spec.epochs + 1)):
                talk: list[Turn] = []
                for number in range(1, sample.n_turns + 1):
                    turn = _turn_of(sample, number, talk)
                    record = new_record(turn, candidate, epoch)
                    unit = _sample_unit(record, turn, spec, reader, candidate.model in opened)
                    opened |= {candidate.model} if unit.prompt is not None else set()
                    answer = unit.record.response.text if unit.record.response else ""
                    talk += [
                        Turn(role="user", content=turn.query),
                        Turn(role="assistant", content=answer),
                    ]
                    yield unit


def _turn_of(sample: Sample, number: int, talk: Sequence[Turn]) -> Sample:
    """The n-th turn of a session; a simulated user says as much each time as at first."""
    message = sample.turns[number - 1] if sample.turns else sample.query
    played = {USER_MODEL: ""} if sample.user is not None and number > 1 else {}
    return turn_sample(sample, number, message, talk, **played)


def _sample_unit(
    record: Record, sample: Sample, spec: RunSpec, reader: PromptReader, is_later: bool
) -> SampledUnit:
    """A unit with an answer as long as expected; `is_later`: not its model's first in its block."""
    candidate = record.candidate
    try:
        prompt = spec.suite.ask(sample, candidate)
    except Exception as error:  # it will be an error of its unit, and costs nothing
        failed = Response(error=describe_error(error))
        return SampledUnit(record.model_copy(update={"response": failed}))
    most = prompt.answer_tokens(candidate)
    length = round(spec.assumptions.output_share * most * CHARACTERS_A_TOKEN) or 1
    text = (f"{sample.query} " * (length // (len(sample.query) + 1) + 1))[:length]
    record = record.model_copy(update={"response": Response(text=text)})
    if is_baseline(candidate):
        return SampledUnit(record)
    engine_prompt = reader.read(candidate, prompt, len(text) / CHARACTERS_A_TOKEN)
    return SampledUnit(record, engine_prompt._replace(opens_block=not is_later))


def _spread_shards(spec: RunSpec, scan: Scan) -> Iterator[tuple[Shard, int, bool]]:
    """Shards spread over the dataset, how many rows of each make up some SAMPLED units, and whether
    a shard is the next after the one before. Where engines are reckoned by what their prompts
    share, those are whole shards, and neighbours."""
    shards, of_sample = scan.shards, spec.units_of(1)
    if spec.assumptions.engine is None or not spec.read.reader.by_context:
        step = max(1, len(shards) * of_sample // SAMPLED)
        rows = max(1, SAMPLED // max(1, len(shards) * of_sample))
        yield from ((shard, rows, False) for shard in shards[::step])
        return
    a_shard = min(ROWS_OF_A_BLOCK, max(1, scan.n_samples // max(1, len(shards))))
    pairs = max(LEAST_PAIRS, SAMPLED // (2 * a_shard * of_sample))
    step = max(2, len(shards) // pairs)
    for first in range(0, len(shards), step):
        for number, shard in enumerate(shards[first : first + 2], start=first):
            yield shard, ROWS_OF_A_BLOCK, number > first or (step == 2 and first > 0)


@dataclass
class PromptReader:
    """Reads the prompts of one run as its engines get them. `before` has each model's last prompt,
    and `counted` the characters and tokens of those that its own tokenizer counted."""

    spec: RunSpec
    before: dict[str, str] = field(default_factory=dict)
    tokenizers: dict[str, Tokenizer | None] = field(default_factory=dict)
    counted: dict[str, tuple[int, int]] = field(default_factory=dict)

    def read(self, candidate: Candidate, prompt: Prompt, answer: float) -> AskedPrompt:
        """The prompt as the engine gets it, cut, and what it shares with the one before."""
        text = "\n".join(message.content for message in prompt.messages)
        a_token = self._characters_a_token(candidate, text)
        tokens = len(text) / a_token
        before = self.before.get(candidate.model)
        shared = None if before is None else shared_length(before, text) / a_token
        self.before[candidate.model] = text
        if candidate.backend == "vllm" and prompt.is_cut:
            window = self.spec.engine_of(candidate.model).max_model_len
            if window is None and (candidate.model != EMBEDDED or model_dir().is_dir()):
                window = window_of(candidate.model)
            room = prompt_room(candidate, window, prompt.answer_tokens(candidate))
            if room is not None and tokens > room:
                # The middle is cut out: what follows is elsewhere in the next prompt
                tokens = float(max(0, room))
                shared = None if shared is None else min(shared, room / 2)
        # The last token is computed, whatever the cache has
        most_shared = max(0.0, tokens - 1.0)
        return AskedPrompt(tokens, answer, None if shared is None else min(shared, most_shared))

    def _characters_a_token(self, candidate: Candidate, text: str) -> float:
        """By COUNTED characters from the text's middle, if the tokenizer is on this machine."""
        if self.spec.assumptions.engine is None or candidate.backend != "vllm":
            return CHARACTERS_A_TOKEN
        model = candidate.model
        if model not in self.tokenizers:
            self.tokenizers[model] = _local_tokenizer(model)
        tokenizer = self.tokenizers[model]
        middle = max(0, (len(text) - COUNTED) // 2)
        part = text[middle : middle + COUNTED]
        if tokenizer is None or not part:
            return CHARACTERS_A_TOKEN
        tokens = max(1, len(tokenizer.encode(part, add_special_tokens=False)))
        chars_before, tokens_before = self.counted.get(model, (0, 0))
        self.counted[model] = chars_before + len(part), tokens_before + tokens
        return len(part) / tokens


def _local_tokenizer(model: str) -> Tokenizer | None:
    """A model's tokenizer that needs no network; None if there is none."""
    folder = model_dir() if model == EMBEDDED else Path(model).expanduser()
    if not folder.is_dir():
        return None
    try:
        return load_tokenizer(str(folder))
    except ConfigError:
        return None

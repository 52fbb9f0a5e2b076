"""Whole runs whose samples get emotion and traits first: spoken, heard, read, fused; what fails
degrades and says so."""

import json
from pathlib import Path
from typing import Any

import pytest

from memray_eval.affect.speech import TransformersSpeech
from memray_eval.config.schema import RunConfig
from memray_eval.errors import ConfigError
from memray_eval.execution.session import RunResult
from memray_eval.types import Record
from tests.build import Job, finish, go_on, write_lines
from tests.servers.provider import Answer, Fault, Provider, serving

FLAT = dict.fromkeys("anger disgust fear joy neutral sadness surprise".split(), 0.0)
TRAITS = "openness conscientiousness extraversion agreeableness neuroticism".split()


def reply(body: dict[str, Any]) -> str | Answer | Fault:
    if body.get("stream") or "input" in body:
        return "I hear you."
    schema = json.dumps(body.get("response_format", {}))
    if "neuroticism" in schema:
        return json.dumps(
            {trait: {"score": 0.9, "confidence": 0.5, "evidence": "-"} for trait in TRAITS}
        )
    return json.dumps(FLAT | {"fear": 0.75, "sadness": 0.25})


def hear_fear(name: str) -> TransformersSpeech:
    """A classifier that hears fear in all."""
    heard = {"fear": 0.7, "sadness": 0.3}
    return TransformersSpeech(name, list(heard), 16_000, lambda sounds: [heard] * len(sounds))


@pytest.fixture
def feeling(job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """A job over three samples without emotion or traits and one with both, whose speech a local
    server makes and a fake classifier hears."""
    monkeypatch.setattr("memray_eval.execution.stages.affect.load_speech_emotion", hear_fear)
    complete = {"id": "given", "query": "Hi", "emotion": {"joy": 1.0}, "traits": {"openness": 0.9}}
    dataset = str(write_lines(tmp_path / "samples.jsonl", [*sad_rows(3), complete]))

    def make(server: Provider, **affect: Any) -> RunConfig:
        fixed = {"enabled": True, "speech": "transformers:fake", "base_url": server.base_url}
        own = {**fixed, "cache": str(tmp_path / "audio"), **affect}
        return job(server, dataset=dataset, affect=own, metrics=["lexical_diversity"])

    return make


def sad_rows(n: int) -> list[dict[str, Any]]:
    return [{"id": f"s{n}", "query": f"I am so sad and afraid, day {n}."} for n in range(n)]


def ran(config: RunConfig) -> tuple[RunResult, dict[str, Record]]:
    done = finish(config)
    return done, {record.sample.id: record for record in done.folder.each()}


def test_a_second_run_has_nothing_spoken_anew(feeling: Job) -> None:
    with serving(reply) as server:
        first, records = ran(feeling(server, tts="openai"))
        second, again = ran(feeling(server, tts="openai"))
        spoken = [body for body in server.requests if "voice" in body]
    assert len(spoken) == 3
    assert first.folder.read_manifest()["affect"]["store synthesised"] == 3
    counts = second.folder.read_manifest()["affect"]
    assert (counts["store hits"], counts.get("store synthesised")) == (3, None)
    for rows in (records, again):
        assert rows["given"].sample.emotion == {"joy": 1.0}
        expected = {"emotion": {"backend": "given"}, "traits": {"backend": "given"}}
        assert rows["given"].sample.metadata["affect"] == expected
        notes = rows["s0"].sample.metadata["affect"]
        speech = notes["emotion"]["speech"]
        assert (speech["backend"], speech["source"]) == ("transformers:fake", "synthesised")
        assert notes["traits"] == {"backend": "unknown"}
        emotion = rows["s0"].sample.emotion
        assert sum(emotion.values()) == pytest.approx(1.0, abs=1e-6)
        assert max(emotion, key=lambda label: emotion[label]) in ("sadness", "fear")
    assert records["s0"].sample == again["s0"].sample


def test_without_sound_and_reader_there_is_no_emotion_and_no_sample_is_lost(feeling: Job) -> None:
    def broken(body: dict[str, Any]) -> str | Answer | Fault:
        return Fault(500) if "voice" in body else reply(body)

    with serving(broken) as server:
        done, records = ran(feeling(server, tts="openai"))
    assert done.exit_code == 0
    speech = records["s1"].sample.metadata["affect"]["emotion"]["speech"]
    assert (speech["source"], speech["backend"]) == ("none", "uniform")
    assert "500" in speech["degraded"]
    assert records["s1"].sample.emotion == {}
    counts = done.folder.read_manifest()["affect"]
    assert (counts["degraded"], counts["emotion unavailable"]) == (3, 3)
    share = f"{3 / counts['samples']:.0%}"
    assert any(f"emotion of {share} of samples is not" in note for note in done.summary.notes)


def test_a_judge_reads_emotion_and_traits(feeling: Job) -> None:
    with serving(reply) as server:
        reads = {"emotion": "judge", "traits": "judge", "judge": "openai/small"}
        _, records = ran(feeling(server, tts="off", speech_weight=0, **reads))
    sample = records["s2"].sample
    assert (sample.emotion["fear"], sample.emotion["sadness"]) == pytest.approx((0.75, 0.25))
    assert sample.traits == pytest.approx(dict.fromkeys(TRAITS, 0.7))  # drawn to the middle by half
    assert records["given"].sample.traits == {"openness": 0.9}


@pytest.mark.parametrize(
    ("affect", "message"),
    [
        ({"speech_weight": 0, "text_weight": 0}, "--speech-weight 0"),
        ({"speech_weight": -1}, "--speech-weight -1"),
        ({"text_weight": float("nan")}, "--text-weight nan"),
        ({"emotion": "vibes"}, "affect.emotion: 'vibes' is no backend; there are: judge"),
        ({"emotion": "lexicon"}, "affect.emotion: 'lexicon' is withdrawn.*; there are: judge"),
        ({"speech": "prosody"}, "affect.speech: 'prosody' is withdrawn"),
        ({"speech": "openai"}, "affect.speech: 'openai' is withdrawn, OpenAI ends its audio model"),
        ({"tts": "local"}, "affect.tts: 'local' is withdrawn.*openai, off"),
        ({"traits": "judge"}, "affect.judge: .* name it"),
        ({"tts": "loud"}, "affect.tts: 'loud' is no backend"),
        ({"tts": "loud", "enabled": False}, "affect.tts: .loud. is no backend"),
    ],
)
def test_what_cannot_work_is_said_before_anything_runs(
    feeling: Job, affect: dict[str, Any], message: str
) -> None:
    with serving(reply) as server, pytest.raises(ConfigError, match=message):
        finish(feeling(server, **affect))


def test_a_budget_spent_in_the_affect_stage_stops_the_run_with_a_summary(
    job: Job, tmp_path: Path
) -> None:
    dataset = str(write_lines(tmp_path / "samples.jsonl", sad_rows(12)))
    with serving(reply) as candidate, serving(reply, 1.5, count_tokens=True) as judge:
        affect = {"enabled": True, "traits": "judge", "judge": "openai/j"}
        config = job(
            candidate,
            dataset=dataset,
            affect=affect,
            metrics=["lexical_diversity"],
            rows_per_block=2,
            budget={"tokens": 9_000},
            judging={"base_urls": {"openai": judge.base_url}, "max_output_tokens": 800},
        )
        first = finish(config)
        judge.latency_s = 0.0
        assert first.exit_code == 1
        assert first.stopped == "the next judge call does not fit the budget"
        assert 0 < first.summary.n_units < 12
        assert first.folder.read_manifest()["status"] == "stopped"
        second = go_on(first.folder.path, settings=["budget.tokens=null"])
    assert (second.exit_code, second.summary.n_units) == (0, 12)


def test_a_traits_judge_that_is_down_is_counted_and_told(feeling: Job) -> None:
    def down(body: dict[str, Any]) -> str | Answer | Fault:
        reads_traits = "neuroticism" in json.dumps(body.get("response_format", {}))
        return Fault(400) if reads_traits else reply(body)

    with serving(down) as server:
        reads = {"speech": "uniform", "traits": "judge", "judge": "openai/j"}
        done, records = ran(feeling(server, tts="off", **reads))
    manifest = done.folder.read_manifest()
    assert manifest["affect"]["traits degraded"] == 3
    (event,) = [line for line in manifest["events"] if line.startswith("No traits could be read")]
    assert "(unknown): JudgeError: " in event
    assert any("the traits of 3 samples count as unknown" in note for note in done.summary.notes)
    assert records["s0"].sample.metadata["affect"]["traits"]["backend"] == "unknown"

"""What hearing emotion in synthetic speech is worth: texts with a known emotion, spoken by the
local voice, heard by prosody.

    python -m tests.bench.speech_worth [--each 50] [--data ../shared/data/emotion/ek_test.tsv]

Prints the accuracy over seven emotions beside chance, and how often a text of an aroused emotion
(anger, fear, joy, surprise) is heard as more aroused than one of a calm (neutral, sadness): the
area under the curve, 0.5 where nothing is heard. Also the seconds of speech made a CPU second."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from memray_eval.affect.audio import decode_wav, measure_prosody
from memray_eval.affect.labels import EKMAN
from memray_eval.affect.speech import ProsodySpeech, Utterance, recognise_speech
from memray_eval.affect.text_to_speech import AudioStore, local_voice, text_to_speak

DATA = Path(__file__).parents[3] / "shared" / "data" / "emotion" / "ek_test.tsv"
AROUSED, CALM = ("anger", "fear", "joy", "surprise"), ("neutral", "sadness")


def texts(data: Path, each: int) -> dict[str, list[str]]:
    """Up to `each` texts of one emotion each, by its name: the file's label ids are EKMAN's
    places."""
    found: dict[str, list[str]] = defaultdict(list)
    for line in data.read_text("utf-8").splitlines():
        text, label, _ = line.split("\t")
        if "," not in label and len(found[EKMAN.labels[int(label)]]) < each and text_to_speak(text):
            found[EKMAN.labels[int(label)]].append(text)
    return found


async def measure(by_emotion: dict[str, list[str]]) -> None:
    voice, ears = local_voice(), ProsodySpeech()
    await voice.speak("Warm up.")
    n = right = 0
    arousal: dict[str, list[float]] = defaultdict(list)
    speech_s, started = 0.0, time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        store = AudioStore(folder)
        for emotion, said in sorted(by_emotion.items()):
            for heard in await recognise_speech(
                [Utterance(text=text) for text in said], ears, store, voice
            ):
                n += 1
                right += (
                    max(heard.distribution, key=lambda label: heard.distribution[label]) == emotion
                )
                clip = decode_wav((Path(folder) / str(heard.audio)).read_bytes())
                speech_s += clip.duration_s
                arousal[emotion].append(measure_prosody(clip).arousal)
    cpu_s = time.process_time() - started
    pairs = [
        (a > b) + 0.5 * (a == b)
        for up in AROUSED
        for a in arousal[up]
        for down in CALM
        for b in arousal[down]
    ]
    chance, ranked = 1 / len(EKMAN.labels), sum(pairs) / len(pairs)
    print(
        f"{n} texts: accuracy {right / n:.3f} (chance {chance:.3f}), aroused against calm "
        f"{ranked:.3f}"
    )
    print(f"{speech_s:.0f} s of speech, {speech_s / cpu_s:.0f} s a CPU second with its hearing")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--each", type=int, default=50)
    parser.add_argument("--data", type=Path, default=DATA)
    options = parser.parse_args()
    asyncio.run(measure(texts(options.data, options.each)))


if __name__ == "__main__":
    main()

"""A real audio classifier of transformers, tiny and untrained: the whole way from wavs to
emotions."""

import asyncio
from pathlib import Path

import numpy as np
import pytest

from memray_eval.affect.audio import Clip
from memray_eval.affect.labels import is_uniform
from memray_eval.affect.speech import load_speech_emotion
from memray_eval.errors import ConfigError

pytestmark = pytest.mark.night

RATE_HZ = 16_000


def test_a_classifier_hears_clips_of_any_length(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    labels = ("ang", "hap", "neu", "sad")
    config = transformers.Wav2Vec2Config(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        conv_dim=(8, 8), conv_stride=(5, 4), conv_kernel=(10, 8), num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=2, num_feat_extract_layers=2, classifier_proj_size=8,
        id2label=dict(enumerate(labels)), label2id={label: i for i, label in enumerate(labels)},
    )  # fmt: skip
    transformers.Wav2Vec2ForSequenceClassification(config).save_pretrained(tmp_path)
    transformers.Wav2Vec2FeatureExtractor(sampling_rate=RATE_HZ).save_pretrained(tmp_path)
    ear = load_speech_emotion(f"transformers:{tmp_path}")
    wave = 0.3 * np.sin(2 * np.pi * 220 * np.arange(RATE_HZ) / RATE_HZ).astype(np.float32)
    voice, click = asyncio.run(ear.infer([Clip(wave, RATE_HZ), Clip(wave[:1], RATE_HZ)]))
    assert isinstance(voice, dict)
    assert isinstance(click, dict)
    assert not is_uniform(voice)


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be loaded"):
        load_speech_emotion(f"transformers:{tmp_path}")

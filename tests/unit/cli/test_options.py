"""Options that commands share: declared once; what is not given leaves what the job says. Which
options a command takes, and in which order: the goldens of help."""

import pytest

from memray_eval.cli.options import JobOptions
from memray_eval.errors import ConfigError


def test_what_is_not_given_leaves_what_the_job_says() -> None:
    assert not [key for key, value in JobOptions().overrides().items() if value is not None]
    options = JobOptions(metrics="empathy, tone,", model="org/m", mapped=["query=q"], no_cache=True)
    keys = {key: value for key, value in options.overrides().items() if value is not None}
    assert keys == {
        "metrics": ["empathy", "tone"],
        "candidates.0.model": "org/m",
        "candidates.0.name": "m",
        "columns.query": "q",
        "judging.cache": "off",
    }
    with pytest.raises(ConfigError, match="it is on or off"):
        JobOptions(affect="maybe").overrides()

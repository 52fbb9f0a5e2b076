"""Every error that memray_eval raises on purpose. What is not in this tree is a bug.

EvalError
├── ConfigError        a wrong option, YAML or environment               exit code 2
├── DataError          a dataset that cannot be read as it stands        exit code 2
├── ResourceError      the plan needs what the machine or cluster lacks  exit code 3
├── GenerationError    the model under test could not be started or asked
├── JudgeError         a judge could not be asked
│   ├── Throttled      429: wait and try again
│   ├── Refused        the judge or its content filter declined
│   ├── Truncated      the verdict was cut off
│   └── Malformed      the verdict did not fit its schema
└── EmbeddingError     the embedding model could not be loaded or asked

A failure of one row never raises past its stage: it becomes data (`Response.error`, `Score.error`).
"""

from __future__ import annotations


class EvalError(Exception):
    """Base of the tree. `exit_code` is what the command line ends with."""

    exit_code = 3


class ConfigError(EvalError):
    exit_code = 2


class DataError(EvalError):
    exit_code = 2


class ResourceError(EvalError):
    exit_code = 3


class GenerationError(EvalError):
    pass


class JudgeError(EvalError):
    pass


class Throttled(JudgeError):
    pass


class Refused(JudgeError):
    pass


class Truncated(JudgeError):
    pass


class Malformed(JudgeError):
    pass


class EmbeddingError(EvalError):
    pass

"""Yes/no questions to a model: P(yes) from the log-probabilities of its first token."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field

from memray_eval.config.sections import EMBEDDED, JudgingConfig
from memray_eval.errors import ConfigError, JudgeError, Malformed, NoLogprobs
from memray_eval.judges.accounts import is_embedded
from memray_eval.judges.prices import Spent
from memray_eval.models.embedded_model import WHEEL
from memray_eval.ports import Judge, Verdict
from memray_eval.types import QUESTIONS, Message

TOP_LOGPROBS = 20  # the most that OpenAI and vLLM give
NO_LOGPROBS = (
    "gives no logprobs of its first token; ask a server that does, such as vLLM, llama.cpp, or "
    "OpenAI's models that don't think first, or let the model judge: PROVIDER/MODEL"
)
_AROUND = " \t\r\n\u0120\u2581*_\"'.,:!"  # of a token; also how byte-level BPE writes a blank


class FirstTokenJudgment(BaseModel):
    """What the first token says of a yes/no question."""

    p_yes: Annotated[float, Field(ge=0, le=1)]

    @classmethod
    def from_first_token(cls, tokens: Sequence[tuple[str, float]] | None) -> FirstTokenJudgment:
        """P(yes) / (P(yes) + P(no)), each the sum over the tokens that spell it. Raises NoLogprobs
        if the server gave no tokens, Malformed if neither word is among them."""
        if not tokens:
            raise NoLogprobs(f"the server {NO_LOGPROBS}")
        mass = {"yes": 0.0, "no": 0.0}
        for token, logprob in tokens:
            if (word := token.strip(_AROUND).casefold()) in mass:
                mass[word] += math.exp(min(0.0, logprob))
        if not (both := sum(mass.values())):
            likeliest = max(tokens, key=lambda token: token[1])[0]
            raise Malformed(
                f"the first token is neither yes nor no but {likeliest[:20]!r}; if the model "
                "thinks first, turn that off by judging.parameters"
            )
        return cls(p_yes=mass["yes"] / both)


class FirstTokenJudge:
    """A judge whose first token counts. Its verdicts name it as estimates do."""

    def __init__(self, judge: Judge) -> None:
        self.name, self._judge = f"{QUESTIONS}/{judge.name}", judge

    async def judge(self, messages: Sequence[Message], judgment: type[BaseModel]) -> Verdict:
        try:
            verdict = await self._judge.judge(messages, judgment)
        except JudgeError as error:
            if "logprob" not in f"{error.param} {error.words}".lower():
                raise
            refused = NoLogprobs(f"{self._judge.name} {NO_LOGPROBS}", status=error.status)
            Spent().take(error).put_on(refused)
            raise refused from error
        return verdict.model_copy(update={"judge": self.name})


def revision_of(name: str, config: JudgingConfig) -> str:
    """The exact revision of a judge's model: of the embedded one its wheel, of a local folder a
    digest of its files, of any other what the job says. Raises ConfigError if nothing says it."""
    if name == EMBEDDED:
        return WHEEL
    folder = Path(name.partition(":")[2])
    if is_embedded(name) and folder.is_dir():
        digest = hashlib.sha256()
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            digest.update(f"{path.relative_to(folder).as_posix()}\0".encode())
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        return f"sha256:{digest.hexdigest()[:32]}"
    if config.questions.revision is None:
        raise ConfigError(
            f"judge: questions: the revision of {name} is not known; give the commit or digest of "
            "the model that is served: --set judging.questions.revision=REVISION"
        )
    return config.questions.revision

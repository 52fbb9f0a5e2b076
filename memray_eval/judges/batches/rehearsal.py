"""Finds the calls that judging records would make: the judge stage runs over them with judges that
give what is remembered, and note what is not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from pydantic import BaseModel

from memray_eval.errors import JudgeError
from memray_eval.judges.structured_judge import JudgeCall, StructuredJudge
from memray_eval.ports import CURRENT_UNIT, Verdict
from memray_eval.types import Message

# The judge, its call, and "UNIT METRIC" of the score that will tell its cost
NoteCall: TypeAlias = Callable[[str, JudgeCall, str], Awaitable[None]]


class NotYet(JudgeError):
    """The verdict is still to be paid."""


class RehearsedJudge:
    """Stands for a judge, and asks nobody. Raises NotYet for a verdict that is not remembered, once
    its call is noted."""

    def __init__(self, judge: StructuredJudge, repeat: int, note: NoteCall) -> None:
        self.name, self._judge, self._repeat, self._note = judge.name, judge, repeat, note

    async def judge(self, messages: Sequence[Message], judgment: type[BaseModel]) -> Verdict:
        call = self._judge.call(messages, judgment, self._repeat, is_batch=True)
        if (verdict := await call.recall()) is not None:
            return verdict
        await self._note(self.name, call, CURRENT_UNIT.get())
        raise NotYet("its call goes into a batch")

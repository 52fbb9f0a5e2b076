"""Judges that are a user's function.

    async def ask(messages, judgment):  # may be a plain function, too
        return {"reason": "...", "score": 4}

`messages` are mappings of role and content, `judgment` the pydantic class of the verdict, which it
returns: an instance, a mapping, or text with its JSON; or a pair of that and {"input_tokens": N,
"output_tokens": N}, by which it is paid for. It may raise the errors of memray_eval/errors.py; a
time-out or a lost connection is tried again, and anything else is the error of its unit."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from memray_eval.errors import JudgeError, Unavailable, describe_error
from memray_eval.extensions import OwnObject, call_own
from memray_eval.judges.adapter import JudgeSpec, ProviderAdapter, Reply, Request, Turns
from memray_eval.judges.prompt_cache import SharedStart
from memray_eval.judges.structured_judge import CallPolicy, StructuredJudge
from memray_eval.provider_http.replies import token_count
from memray_eval.types import Usage


class CodeAdapter(ProviderAdapter):
    def __init__(self, code: OwnObject, timeout_s: float) -> None:
        self._ask, self._timeout_s, self._name = code.load(), timeout_s, code.attribute
        self.parameters = self.negotiable = {}

    def prepare(self, judgment: type[BaseModel], system: str, shared_first: bool) -> Request:
        return {"judgment": judgment}

    async def send(self, prepared: Request, messages: Turns, start: SharedStart | None) -> Any:
        verdict = call_own(self._ask, list(map(dict, messages)), prepared["judgment"])
        return await asyncio.wait_for(verdict, self._timeout_s)

    def read(self, completion: Any) -> Reply:
        verdict, spent = completion, None
        if isinstance(completion, tuple) and len(completion) == 2:
            verdict, spent = completion
        if isinstance(verdict, BaseModel):
            text = verdict.model_dump_json()
        elif isinstance(verdict, Mapping):
            text = json.dumps(verdict, default=str)
        elif isinstance(verdict, str):
            text = verdict
        else:
            raise JudgeError(
                f"{self._name} returned {type(verdict).__name__}: no judgment, mapping or text"
            )
        tokens = [
            token_count(spent.get(name)) if isinstance(spent, Mapping) else None
            for name in ("input_tokens", "output_tokens")
        ]
        usage = Usage(input_tokens=tokens[0] or 0, output_tokens=tokens[1] or 0)
        return Reply(text, usage, "done", is_counted=None not in tokens)

    def translate(self, error: BaseException) -> JudgeError:
        # A user's exception may quote anything: its text is kept, as that of a metric's is
        if isinstance(error, OSError):  # TimeoutError among them
            return Unavailable(f"{self._name} raised {describe_error(error)}")
        return JudgeError(f"{self._name} raised {describe_error(error)}")


def code_judge(spec: JudgeSpec, access: CallPolicy, code: OwnObject) -> StructuredJudge:
    return StructuredJudge(spec, CodeAdapter(code, spec.timeout_s), access)

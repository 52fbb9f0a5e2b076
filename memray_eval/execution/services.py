"""What all judges of a run share: the limiter, the memory of paid calls, the money. In this process
here; as actors of a cluster in ray/services.py."""

from __future__ import annotations

import secrets
import shutil
import tempfile
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, Protocol

from memray_eval.config.environment import calls_file
from memray_eval.config.sections import Budget, JudgingConfig
from memray_eval.errors import EvalError, JudgeError
from memray_eval.execution.spending import SpendingBook
from memray_eval.judges.call_cache import CachedCall, CallCache, check_file
from memray_eval.judges.call_metrics import CallObserver
from memray_eval.judges.judge_factory import Services
from memray_eval.judges.limits.budget import BudgetLedger, Spending
from memray_eval.judges.limits.rate_limiter import Limiter
from memray_eval.judges.paid_calls import PaidCalls
from memray_eval.judges.prompt_secret import SECRET_BYTES, secret_beside, secret_in
from memray_eval.judges.segment_log import SegmentLog
from memray_eval.models.batching import Batcher
from memray_eval.results.run_folder import BATCHES, RunFolder

AUTO, OFF = "auto", "off"
CALLS = "the memory of paid calls"
PUTS = 4  # batches of paid calls on their way from one set of judges


class JudgeServices(Protocol):
    """The services of a run, as its stages get them."""

    @property
    def max_in_flight(self) -> int:
        """How many calls one set of judges may have under way to one judge."""
        ...

    def connect(
        self,
        say: Callable[[str], None],
        is_stopping: Callable[[], bool],
        embedded_url: str | None,
        watch: Callable[[str], CallObserver],
    ) -> Services:
        """The services as one set of judges sees them. Call it on the loop that will use them."""
        ...


class LocalServices:
    """The services of a run whose stages are in this process. The limiter is the process's own:
    another process that calls the same provider is not counted."""

    def __init__(
        self,
        budget: Budget,
        cache: str,
        folder: str,
        spent: Spending,
        session: int,
        max_in_flight: int,
        say: Callable[[str], None],
    ) -> None:
        self.max_in_flight = max_in_flight
        self._run, self._limiter = uuid.uuid4().hex, Limiter()
        self._run_id = folder.rstrip("/").rpartition("/")[2]
        self._book = SpendingBook(folder, session) if budget.is_set else None
        save = self._book.write if self._book is not None else None
        self._ledger = BudgetLedger(budget, spent, save=save) if budget.is_set else None
        self._calls = None if cache == OFF else StoredCalls(*calls_location(cache, folder), say=say)
        self._secret = prompt_secret(cache, folder)

    def connect(
        self,
        say: Callable[[str], None],
        is_stopping: Callable[[], bool],
        embedded_url: str | None,
        watch: Callable[[str], CallObserver],
    ) -> Services:
        return Services(
            limiter=self._limiter,
            member=uuid.uuid4().hex,
            say=say,
            is_stopping=is_stopping,
            run=self._run,
            run_id=self._run_id,
            max_in_flight=self.max_in_flight,
            calls=None if self._calls is None else BatchedCalls(self._get_calls, self._put_calls),
            budget=self._ledger,
            embedded_url=embedded_url,
            watch=watch,
            secret=self._secret,
        )

    async def _get_calls(self, keys: list[str]) -> list[CachedCall | None]:
        assert self._calls is not None
        try:
            return await self._calls.get(keys)
        except (OSError, EvalError) as error:
            raise calls_error("read", error) from None

    async def _put_calls(self, calls: list[CachedCall]) -> None:
        assert self._calls is not None
        try:
            await self._calls.put(calls)
        except (OSError, EvalError) as error:
            raise calls_error("written", error) from None

    async def end(self) -> None:
        """After the last call: merges the small segments of paid calls, and writes down what was
        spent."""
        if self._calls is not None:
            await self._calls.finish()
        if self._book is not None and self._ledger is not None:
            await self._book.write(self._ledger.committed())


class StoredCalls:
    """The memory of paid calls: a file on this machine, and a folder of segments where the file
    does not outlive the run (`file` is None). `say` hears what a person should know of it."""

    def __init__(self, file: str | None, segments: str | None, say: Callable[[str], None]) -> None:
        log = SegmentLog(segments) if segments is not None else None
        self._scratch = tempfile.mkdtemp(prefix="memray_eval_calls_") if file is None else None
        cache = (
            CallCache(file)
            if file is not None
            else CallCache(f"{self._scratch}/{calls_file().name}", is_scratch=True)
        )
        calls = PaidCalls(cache, log)
        n_unreadable = calls.load()
        if log is not None and n_unreadable:
            say(
                f"Segments of paid calls in {log.folder} that cannot be read (cut off, or of "
                f"another version): {n_unreadable}. Their calls will be paid again, "
                "unless whole copies are put back before a run."
            )
        self._calls = calls

    async def get(self, keys: list[str]) -> list[CachedCall | None]:
        return await self._calls.get(keys)

    async def put(self, calls: list[CachedCall]) -> None:
        await self._calls.put(calls)

    async def finish(self) -> None:
        """After the last call of the run: merges what is in small segments."""
        await self._calls.compact()
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)


class BatchedCalls:
    """A CallStore that looks up and keeps calls in batches. `put` returns when the call outlives a
    kill."""

    def __init__(
        self,
        get: Callable[[list[str]], Awaitable[Sequence[CachedCall | None]]],
        put: Callable[[list[CachedCall]], Awaitable[None]],
    ) -> None:
        self.get = Batcher[str, CachedCall | None](get)
        # A put takes as long as a write: those that come meanwhile need not wait for two
        self._puts = Batcher[CachedCall, None](self._put_all, at_once=PUTS)
        self._keep = put

    async def put(self, call: CachedCall) -> None:
        await self._puts(call)

    async def _put_all(self, calls: list[CachedCall]) -> Sequence[None]:
        await self._keep(calls)
        return [None] * len(calls)


def calls_error(action: Literal["read", "written"], reason: object) -> JudgeError:
    """What a call gets whose memory is out of reach."""
    return JudgeError(f"{CALLS} cannot be {action}: {reason}")


def check_calls(cache: str, folder: str) -> None:
    """Before any call is made: raises ConfigError or ResourceError, which say what to do, where it
    could not be remembered."""
    file, _ = (None, None) if cache == OFF else calls_location(cache, folder)
    if file is not None:
        check_file(file)


def no_services() -> Services:
    """Services for judges that are not asked."""
    return Services(limiter=Limiter(), member=uuid.uuid4().hex, say=lambda line: None)


def calls_setting(judging: JudgingConfig, folder: RunFolder) -> str:
    """Where a run keeps its paid calls. Those of batches are kept in any case: without a memory the
    run has one of its own."""
    if judging.cache != OFF or (judging.mode == "live" and not folder.list_batch_files()):
        return judging.cache
    return f"{folder.path}/{BATCHES}/calls" + ("" if "://" in folder.path else ".sqlite")


def prompt_secret(cache: str, folder: str) -> bytes:
    """The secret of a cache setting's folder, for a run in `folder`; one of this session alone
    where nothing is kept. Raises ResourceError or ConfigError where it cannot be used."""
    if cache == OFF:
        return secrets.token_bytes(SECRET_BYTES)
    file, segments = calls_location(cache, folder)
    return secret_in(segments) if segments is not None else secret_beside(file or "")


def calls_location(cache: str, folder: str) -> tuple[str | None, str | None]:
    """The file and the folder of segments of a cache setting, for a run in `folder`: one of them is
    None."""
    place = (
        (f"{folder}/calls" if "://" in folder else str(calls_file())) if cache == AUTO else cache
    )
    return (None, place) if "://" in place else (place, None)

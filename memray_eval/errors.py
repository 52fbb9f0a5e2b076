"""Every error that memray_eval raises on purpose; any other is a bug. `exit_code` is what the
command line ends with: 3, unless a class says otherwise.

A failure of one row never raises past its stage: it becomes data (`Response.error`, `Score.error`).
"""

import builtins
import difflib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from memray_eval.withdrawn import what_instead

SAID = "; it said: "  # in an error's text: what follows is an excerpt of the provider's reply
# Places in lists, identifiers, long figures.
_VARYING = re.compile(
    r"(?<=[A-Za-z_]\.)\d+(?=\.)|(?<=\[)\d+(?=\])|\b[0-9a-f]{12,}\b|\d{5,}"
    r"|\b\d+ of \d+(?= calls gave no verdict)"
)

# What any text holds that `cause_of` changes, for RE2
MAY_VARY = rf"\pN|[0-9a-f]{{12}}|{SAID}"
LONGEST_CAUSE = 300  # characters

LONGEST_ERROR = 1000  # characters of an exception's text that a record keeps


def cause_of(error: str) -> str:
    """The part of an error's text that it shares with others of its kind: without the reply's
    excerpt and what differs by unit."""
    text = _VARYING.sub("N", error.partition(SAID)[0])
    return text if len(text) <= LONGEST_CAUSE else f"{text[:LONGEST_CAUSE]} ..."


def nearest(word: str, words: Iterable[str], likeness: float = 0.7) -> str | None:
    """The one of `words` that `word` most likely misspells, if any is as like it (0 to 1)."""
    return next(iter(difflib.get_close_matches(word, sorted(words), 1, likeness)), None)


def suggest(word: str, words: Iterable[str]) -> str:
    """The end of an error that refuses `word`: what to do instead if it was withdrawn, else the
    nearest of `words`, or all of them."""
    words = list(words)
    if instead := what_instead(word):
        return instead
    hint = nearest(word, words)
    return f"did you mean {hint!r}?" if hint else f"there are: {', '.join(words) or 'none'}"


def cut(text: str, most: int) -> str:
    """A text on one line, at whose end "..." says that it goes on."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[:most]} ..."


def describe_error(error: BaseException) -> str:
    """The type and text of an exception for a record: valid Unicode, of limited length."""
    try:
        text = str(error)
    except Exception as broken:  # a class of somebody else's, whose __str__ fails
        text = f"its text cannot be read: {type(broken).__name__}"
    text = text.encode("utf-8", "backslashreplace").decode()
    if len(text) > LONGEST_ERROR:
        text = f"{text[:LONGEST_ERROR]} ..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def reason_of(error: Exception) -> str:
    """Why a file cannot be read or written, without an OSError's number and path."""
    strerror = error.strerror if isinstance(error, OSError) else None
    return strerror[0].lower() + strerror[1:] if strerror else str(error)


def may_pass_again(cause: str) -> bool:
    """False for an error of code, which the same input raises again."""
    kind = getattr(builtins, cause.partition(":")[0], None)
    if not isinstance(kind, type) or not issubclass(kind, Exception):
        return True
    return issubclass(kind, OSError | RuntimeError)


class EvalError(Exception):
    """Base of the tree: what every error of the package is. `exit_code` is what the command line
    ends with.

        try:
            me.run("jobs/memory.yaml", quiet=True)
        except me.EvalError as error:
            sys.exit(error.exit_code)
    """

    exit_code = 3


@contextmanager
def without_advice() -> Iterator[None]:
    """Around a run whose folder does not outlive it: errors do not say how to go on with it."""
    try:
        yield
    except EvalError as error:
        error.__notes__ = []
        raise


class ConfigError(EvalError):
    """A wrong option, YAML or environment."""

    exit_code = 2


class DataError(EvalError):
    """A dataset that cannot be read as it is."""

    exit_code = 2


class ResourceError(EvalError):
    """The plan needs what the machine or cluster lacks."""


class Stopped(EvalError):
    """A run ended early, before anything was finished."""

    exit_code = 1


class BudgetSpent(Stopped):
    """The next judge call exceeds the budget; resumable."""


class JudgeStalled(Stopped):
    """A judge accepts no more calls (429 without end, quota used up); resumable."""


class BatchesUnderWay(Stopped):
    """The session ends, batches of judge calls go on; resumable."""

    exit_code = 4


class Interrupted(EvalError):
    """SIGINT (exit code 130) or SIGTERM (143) ended the run."""

    def __init__(self, message: str, exit_code: int = 130) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class ServiceLost(EvalError):
    """A process that the whole run needs has died."""


class GenerationError(EvalError):
    """The model under test could not be started or asked."""


class JudgeError(EvalError):
    """A judge gave no verdict. `cost_usd`, `saved_usd` and the tokens are what the attempts took
    nevertheless. `status`, `code`, `kind` and `param` are the provider's own; `words` is all that
    it said, never to be shown or logged. `is_stalled`: the next call would fail in the same way;
    `is_unreached`: there was no connection; `is_probe`: the judge was known to be down."""

    def __init__(
        self,
        message: str,
        *,
        retry_after_s: float | None = None,
        status: int | None = None,
        code: str = "",
        kind: str = "",
        param: str = "",
    ) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.status, self.code, self.kind, self.param = status, code, kind, param
        self.input_tokens = self.output_tokens = 0
        self.cached_input_tokens = self.cache_write_tokens = self.unpriced_calls = 0
        self.cost_usd = self.saved_usd = 0.0
        self.calls = 0
        self.is_stalled = self.is_unreached = self.is_probe = False
        self.words = ""

    def set_tokens(self, usage: Iterable[tuple[str, int]]) -> None:
        """Takes the tokens of a Usage, which gives its fields as pairs of name and count."""
        for name, tokens in usage:
            setattr(self, name, tokens)


class Throttled(JudgeError):
    """429: wait (`retry_after_s`) and try again; not counted as a try."""


class QuotaExhausted(JudgeError):
    """The account's quota or credit is used up: waiting does not help."""


class Unavailable(JudgeError):
    """5xx, time-out, lost connection: try again."""


class Unreadable(Unavailable):
    """The reply is not a completion (odd JSON, HTML, nothing): try again."""


class NotWhole(Unavailable):
    """The answer broke off (finish_reason error, abort): try again."""


class Unauthorised(JudgeError):
    """401, 403: the key is wrong or may not use the model."""


class UnknownModel(JudgeError):
    """404: the provider has no such model."""


class WrongAddress(JudgeError):
    """404: a gateway, or a server of no provider."""


class Refused(JudgeError):
    """No usable verdict: the outcome is `abstained`."""


class Declined(Refused):
    """The judge or its content filter declined, and will again."""


class TooLong(Refused):
    """The prompt is past the window: another judge may have a larger one."""


class Truncated(JudgeError):
    """The verdict was cut off at the output limit."""


class Malformed(JudgeError):
    """The verdict did not fit its schema, also when asked again."""


class StoreError(EvalError):
    """A memory store refused what it was asked, or holds what is not the run's."""


class StoreDown(StoreError):
    """It cannot be reached, or fails: try again."""


class StoreSlow(StoreError):
    """It gave no reply in time, or what was written could not be found in time."""


class OddReply(StoreError):
    """Its reply has another shape than its API says."""


class StoreLost(StoreError):
    """Entries written to it are gone."""


class EmbeddingError(EvalError):
    """The embedding model could not be loaded or asked."""


class SinkError(EvalError):
    """A sink did not take a run's scores: a note of the run, never its end."""

    exit_code = 1

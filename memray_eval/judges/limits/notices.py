"""What a person should know of how one judge is limited; each line is said once."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from memray_eval.config.sections import RateLimits
from memray_eval.judges.limits.admission_options import AdmissionOptions
from memray_eval.judges.limits.headers import implausible_limits
from memray_eval.judges.limits.rate_limiter import LANES, HeldBy

QUIET_S = 10.0  # without an answer for so long, and with nothing but 429s, a judge is reported


class Notices:
    """The notices of one judge."""

    def __init__(
        self, judge_name: str, options: AdmissionOptions, say: Callable[[str], None]
    ) -> None:
        self._name, self._options, self._say = judge_name, options, say
        self._said = set[str]()

    def report_refusals(self, refusal: str) -> None:
        """A judge has refused every call for QUIET_S; `refusal` is what it said last."""
        self._say_once(
            f"no call has been let through for {QUIET_S:g} s ({refusal.partition(';')[0]}); the "
            f"others wait. After {self._options.patience_s:g} s without one (judging.ceiling_s) "
            "the run stops, to be resumed"
        )

    def report_told_limit(self, held_by: HeldBy) -> None:
        """Calls have waited for QUIET_S for a limit of the provider's own."""
        self._say_once(
            f"calls wait for {describe_limit(held_by)}, which the provider told, by headers or by "
            "its 429s"
        )

    def report_assumed_limit(self, held_by: HeldBy) -> None:
        """Calls wait for a limit that neither the user nor the provider has named."""
        self._say_once(
            f"calls wait for {describe_limit(held_by)}, which is only assumed (the judge table's, "
            "of a beginner's account): the provider has not told its own. If yours allows more, "
            f"raise it: --set 'judging.limits={{{self._name}: {{{held_by.lane}: NUMBER}}}}', also "
            "with `memray-eval resume`"
        )

    def report_lower_limits(self, told: RateLimits) -> None:
        """Reports limits that the provider tells lower than the user has set them."""
        for lane in LANES:
            told_per_min, own_per_min = getattr(told, lane), getattr(self._options.limits, lane)
            if not self._options.is_set_by_user(lane) or told_per_min is None:
                continue
            if told_per_min < own_per_min:
                self._say_once(
                    f"its headers tell of {describe_limit(HeldBy(lane, told_per_min, False))}, "
                    f"less than judging.limits ({own_per_min:,.10g}), which is kept"
                )

    def report_implausible_headers(self, headers: Mapping[str, str]) -> None:
        for header in implausible_limits(headers):
            self._say_once(
                f"its header {header}: {headers[header][:40]!r} is no plausible limit and is "
                "ignored"
            )

    def report_implausible_retry_after(self, retry_after_s: float) -> None:
        self._say_once(f"its Retry-After of {retry_after_s:.10g} s is not plausible and is ignored")

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._say(f"{self._name}: {text}")


def describe_limit(held_by: HeldBy) -> str:
    return f"a limit of {describe_rate(held_by.lane, held_by.per_min)}"


def describe_rate(lane: str, per_min: float) -> str:
    """A lane's rate: 3,600 requests/min."""
    return f"{per_min:,.10g} {lane.replace('_per_min', '/min').replace('_', ' ')}"

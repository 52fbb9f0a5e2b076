"""Ray's client of submitted jobs, by itself: it takes a quarter of a second to import."""

from typing import Any

from ray.exceptions import AuthenticationError
from ray.job_submission import JobDetails, JobSubmissionClient

from memray_eval.errors import ConfigError, ResourceError

__all__ = ["JobDetails"]  # public: one room imports Ray

JOB_LOGGERS = ("ray.dashboard.modules.dashboard_sdk", "ray.dashboard.modules.job.sdk")
REQUEST_TIMEOUT_S = (5.0, 60.0)  # to connect; for the next byte of an answer
TOKEN_ADVICE = (
    "A cluster with token authentication wants RAY_AUTH_MODE=token in this shell, and its token in "
    "RAY_AUTH_TOKEN, or in the file that RAY_AUTH_TOKEN_PATH names"
)


class JobClient(JobSubmissionClient):  # type: ignore[misc]  # Ray is untyped here
    """Ray's client with time limits, which it has none of, its failures as our errors by status."""

    def _do_request(self, method: str, endpoint: str, **options: Any) -> Any:
        try:
            answer = super()._do_request(
                method, endpoint, **{"timeout": REQUEST_TIMEOUT_S, **options}
            )
        except AuthenticationError:
            raise ResourceError(
                f"the cluster at {self._address} did not let us in: no token, or a wrong one. "
                f"{TOKEN_ADVICE}."
            ) from None
        except OSError as error:  # requests' errors are OSErrors
            raise ResourceError(
                f"no cluster answers at {self._address}: {type(error).__name__}"
            ) from None
        # 404 has its meaning for some of the callers
        if answer.status_code >= 400 and answer.status_code != 404:
            self._raise_error(answer)
        return answer

    def _raise_error(self, answer: Any) -> None:
        text = answer.text.strip().splitlines()[-1:] or ["no text"]
        error_type = ConfigError if answer.status_code == 404 else ResourceError
        raise error_type(f"the cluster at {self._address} answered {answer.status_code}: {text[0]}")

"""Logging from hot paths: what repeats is logged once. Nothing that happens once a call, a sample
or a score is logged above DEBUG, unless through `log_once`."""

import logging

ONCE = "once"  # the field of a log record with its key: other processes may have logged it too
_logged: set[str] = set()


def log_once(
    logger: logging.Logger,
    level: int,
    key: str,
    message: str,
    *args: object,
    error: BaseException | None = None,
) -> None:
    """Logs the message, with the error's traceback, at the first call with this key in this
    process; at DEBUG, without a traceback, from then on."""
    if key in _logged:
        logger.debug(message, *args)
        return
    _logged.add(key)
    logger.log(level, message, *args, exc_info=error, extra={ONCE: key})


def forget_logged() -> None:
    """Lets every message be logged again: another run begins in this process."""
    _logged.clear()

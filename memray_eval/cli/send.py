"""The command that sends a finished run to its sinks again: send."""

from __future__ import annotations

import typer

from memray_eval.cli.app import RUN, app, say, show
from memray_eval.cli.options import argument, option
from memray_eval.config.sections import SINK_KEYS, SinkConfig
from memray_eval.errors import ConfigError


@app.command(rich_help_panel=RUN, epilog="Example: memray-eval send latest --sink mlflow")
def send(
    run_folder: str = argument("Folder of a finished run: results/<run_id>, or latest."),
    kinds: list[str] | None = option(
        "Send to this sink only, one of the job's or another: otlp, mlflow, inspect. Repeatable.",
        None,
        "--sink",
    ),
    settings: list[str] | None = option(
        "Change the job's sinks: --set 'sinks=[{kind: mlflow, uri: http://HOST:5000}]'",
        None,
        "--set",
    ),
) -> None:
    """Send a run's scores to OpenTelemetry, MLflow or Inspect's logs, leaving out what was sent
    before. A run does this when it ends. Exit code 1 if a sink fails."""
    from memray_eval.execution.prepare.origins import apply_resume_settings, read_config
    from memray_eval.results.lookup import find_run
    from memray_eval.results.run_folder import RunFolder
    from memray_eval.sinks import check_sinks, send_run

    folder = RunFolder(find_run(run_folder))
    folder.read_summary()  # raises where the run is not finished
    config = apply_resume_settings(read_config(folder), settings or ())
    sinks = _choose(config.sinks, kinds or ())
    if not sinks:
        raise ConfigError(
            f"the job of {folder.path} names no sink; name one with --sink: {', '.join(SINK_KEYS)}"
        )
    check_sinks(sinks)
    with folder.held():
        deliveries = send_run(folder, sinks)
    for delivery in deliveries:
        if delivery.line is not None:
            show(delivery.line)
        else:
            say(f"error: {delivery.note}")
    if any(delivery.error for delivery in deliveries):
        raise typer.Exit(1)


def _choose(sinks: tuple[SinkConfig, ...], kinds: list[str] | tuple[str, ...]) -> list[SinkConfig]:
    """The job's sinks of these kinds, or one without further keys; all of them without a kind."""
    if not kinds:
        return list(sinks)
    chosen = list[SinkConfig]()
    for kind in kinds:
        if kind not in SINK_KEYS:
            raise ConfigError(f"--sink {kind!r}: there are: {', '.join(SINK_KEYS)}")
        own = [sink for sink in sinks if sink.kind == kind]
        chosen += own or [SinkConfig.model_validate({"kind": kind})]
    return chosen

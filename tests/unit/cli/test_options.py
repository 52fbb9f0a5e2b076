"""Options that commands share: declared once, taken by name, in the order that a command lists."""

from dataclasses import dataclass

import pytest
import typer
from typer.testing import CliRunner

from memray_eval.cli.options import JobOptions, Options, argument, flag, option, takes
from memray_eval.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Shared(Options):
    size: int = option("How much.", default=3)
    name: str | None = option("Whose.")
    loud: bool = flag("Loudly.", None, "--loud")


def test_a_command_takes_what_it_lists_in_that_order() -> None:
    app = typer.Typer()

    @app.command()
    @takes("word loud times size")
    def command(
        options: Shared, word: str = argument("A word."), times: int = option("Often.", default=1)
    ) -> None:
        print(options, word, times)

    done = CliRunner().invoke(app, ["hello", "--loud", "--times", "2"])
    assert done.output == "Shared(size=3, name=None, loud=True) hello 2\n"
    assert CliRunner().invoke(app, ["hello", "--name", "x"]).exit_code == 2
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).output
    places = [shown.index(name) for name in ("--loud", "--times", "--size")]
    assert places == sorted(places)


def test_what_is_not_given_leaves_what_the_job_says() -> None:
    assert Shared() == Shared(size=3, name=None, loud=False)
    assert not [key for key, value in JobOptions().overrides().items() if value is not None]
    options = JobOptions(metrics="empathy, tone,", model="org/m", mapped=["query=q"], no_cache=True)
    keys = {key: value for key, value in options.overrides().items() if value is not None}
    assert keys == {
        "metrics": ["empathy", "tone"],
        "candidates.0.model": "org/m",
        "candidates.0.name": "m",
        "columns.query": "q",
        "judging.cache": "off",
    }
    with pytest.raises(ConfigError, match="it is on or off"):
        JobOptions(affect="maybe").overrides()

"""Renders and writes pages from the templates, with their style and scripts inside."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from memray_eval.analysis.marks import name_figure
from memray_eval.report.html import view_model
from memray_eval.report.sections import Section, figure
from memray_eval.storage.paths import write_atomically


def render_page(template: str, scripts: tuple[str, ...], **values: Any) -> str:
    """Renders a template with its style and the named scripts, which its policy allows alone."""
    parts = "\n".join(map(asset, scripts))
    script = f'(() => {{\n"use strict";\n{parts}\n}})();'
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    own = {"style": Markup(asset("page.css")), "script": Markup(script), "script_digest": digest}
    return environment().get_template(template).render(**own, **values)


def render_fragment(sections: Iterable[Section]) -> str:
    """Renders sections as a piece of a page, such as a notebook's cell: escaped, no script."""
    module: Any = environment().get_template("parts.html").module
    return str(module.fragment(list(sections)))


def write_page(page: str, path: str, option: str) -> None:
    """Writes a page whole. Raises ConfigError, which names `option`, for an unwritable place."""
    with write_atomically(path, f"name another place with {option}") as file:
        # A lone surrogate, which no UTF-8 can hold, becomes \udXXX: inside JSON that is its own
        # escape.
        file.write(page.encode("utf-8", "backslashreplace"))


@cache
def environment() -> Environment:
    loader = PackageLoader("memray_eval.report.html", "templates")
    jinja = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    jinja.trim_blocks = jinja.lstrip_blocks = True
    filters = (view_model.label, view_model.heading, view_model.number, figure, name_figure)
    jinja.filters |= {function.__name__: function for function in filters}
    return jinja


@cache
def asset(name: str) -> str:
    return (resources.files("memray_eval.report.html") / "templates" / name).read_text("utf-8")

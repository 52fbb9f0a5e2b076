"""Renders what recipes make of the same answers: the span of the figure, flips, false accepts."""

from __future__ import annotations

from collections.abc import Iterator

from memray_eval.analysis.recipes import KINDS, RecipeSpan
from memray_eval.report.pairs_console import percent
from memray_eval.report.sections import Content, Row, Table, figure, lines_of


def render_recipes(span: RecipeSpan) -> str:
    """A row a recipe, then what differs between them."""
    return "\n".join(lines_of(_parts(span))) + "\n"


def _parts(span: RecipeSpan) -> Iterator[Content]:
    names = [*span.spans]
    heads = ("recipe", "metric", "digest", "scored", *names, *(f"false: {kind}" for kind in KINDS))
    rows: list[Row] = [heads]
    for of in span.recipes:
        means = (figure(of.means[name]) for name in names)
        accepted = (f"{percent(of.false_accepts[kind])} of {of.n_planted[kind]}" for kind in KINDS)
        rows.append((of.recipe, of.metric, of.digest, str(of.n_scored), *means, *accepted))
    yield Table(rows, left=(0, 1, 2))
    yield ""
    for name, (low, high) in span.spans.items():
        yield f"{name}: {low:.4f} to {high:.4f}, a span of {high - low:.4f}"
    share = percent(span.n_flipped / span.n_compared if span.n_compared else None)
    yield (
        f"flips: {span.n_flipped} of {span.n_compared} answers ({share}) are right by one recipe "
        "and wrong by another"
    )
    if unscored := span.n_answers - span.n_compared:
        yield f"{unscored} more have no verdict by some recipe, and count in no mean"
    if len(names) > 1:
        swaps = "; ".join(f"{a} and {b}" for a, b in span.swaps)
        yield f"candidates that change places: {swaps or 'none'}"
    yield "false: the share of planted wrong answers that a recipe takes for right"

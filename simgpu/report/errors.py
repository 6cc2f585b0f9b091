"""Error tables as text."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

from simgpu.report.tables import table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simgpu.validation.compare import Compared, ErrorRow, TileChoice
    from simgpu.validation.published import NotPredicted
    from simgpu.validation.published_errors import PublishedError, PublishedRun


def render_errors(rows: Sequence[ErrorRow]) -> str:
    """Return one line a metric and regime: mean absolute error, bias, worst and its run."""
    lines = [
        (
            row.metric,
            row.regime,
            str(row.runs),
            _percent(row.mean, sign=False),
            _percent(row.bias),
            _percent(row.worst),
            row.worst_run,
        )
        for row in rows
    ]
    right = ("runs", "mean", "bias", "worst")
    return table(("metric", "runs of", *right, "worst run"), lines, right=right)


def render_choices(choices: Sequence[TileChoice]) -> str:
    """Return how well tiles are ranked, problem by problem, and the mean."""
    lines = [
        (c.problem, str(c.tiles), f"{c.spearman:.2f}", _percent(c.regret, sign=False))
        for c in sorted(choices, key=lambda c: -c.regret)
    ]
    mean = fmean(c.spearman for c in choices), fmean(c.regret for c in choices)
    lines.append(("mean", "", f"{mean[0]:.2f}", _percent(mean[1], sign=False)))
    right = ("tiles", "Spearman", "regret")
    return table(("tile choice", *right), lines, right=right)


def render_runs(compared: Sequence[Compared]) -> str:
    """Return the cycles of each run, worst first."""
    known = [(c.error("cycles"), c) for c in compared]
    lines = [
        (
            c.measured.label,
            f"{c.measured.counters['cycles']:,.0f}",
            f"{c.predicted['cycles']:,.0f}",
            _percent(error),
        )
        for error, c in sorted(known, key=lambda x: -abs(x[0] or 0.0))
        if error is not None
    ]
    lines += [(c.measured.label, "", "", c.refused) for c in compared if c.refused]
    right = ("measured", "predicted", "error")
    return table(("run", *right), lines, right=right)


def _percent(share: float, *, sign: bool = True) -> str:
    return f"{100 * share:{'+' if sign else ''}.1f} %"


def render_published(
    lines: Sequence[PublishedError], left_out: Sequence[tuple[str, NotPredicted]]
) -> str:
    """Return errors of speed by paper, GPU and kernel beside two rooflines'; then what is left out.

    ``left_out`` has the paper's name beside each.
    """
    rows = [
        (
            ", ".join(filter(None, (line.paper, line.kernel, line.gpu))),
            str(line.rows),
            *(_short(mean) for mean in line.mean.values()),
            _short(line.bias, sign=True),
            _short(line.worst, sign=True),
        )
        for line in lines
    ]
    right = ("rows", "simgpu", "roofline", "with exp", "bias", "worst")
    shown = table(("paper, kernel, GPU", *right), rows, right=right, firm=right)
    out = [(paper, x.what, str(x.rows), x.why) for paper, x in left_out]
    if out:
        head = ("paper", "not predicted", "rows", "why")
        shown += "\n\n" + table(head, out, right=("rows",), firm=("paper",))
    return shown


def render_published_runs(runs: Sequence[PublishedRun]) -> str:
    """Return each published run beside its prediction, in the publication's unit, worst first."""
    known = sorted((r for r in runs if r.refused is None), key=lambda r: -abs(r.error()))
    rows = [
        (
            f"{r.kernel}, {r.gpu}",
            r.label,
            f"{r.published:g} {r.unit}",
            f"{r.in_unit():.3g}" if r.unit == "ms" else f"{r.in_unit():.0f}",
            _percent(r.error()),
            _percent(r.error("roofline")),
            _percent(r.error("roofline_exp")),
        )
        for r in known
    ]
    rows += [
        (f"{r.kernel}, {r.gpu}", r.label, "", "", r.refused, "", "") for r in runs if r.refused
    ]
    right = ("published", "predicted", "error", "roofline", "with exp")
    return table(("kernel", "shape", *right), rows, right=right)


def _short(share: float, *, sign: bool = False) -> str:
    """Return per cent; from 100 % on without decimals."""
    return f"{100 * share:{'+' if sign else ''}.{0 if abs(share) >= 1 else 1}f} %"

"""A run as one self-contained HTML page: the text report's sentences, and pictures of its numbers.

Templates, styles and scripts are files of ``assets``; a page carries them all inside.
"""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING, Any

from simgpu.errors import MissingExtraError, ProfileError
from simgpu.hardware.load import load_profile
from simgpu.report import bars
from simgpu.report.lanes import first_ctas
from simgpu.report.outline import outline
from simgpu.report.output import check_writable, write_text
from simgpu.report.remedies import compulsory_bytes
from simgpu.report.roofline import roofline
from simgpu.report.words import COMPUTE, MEMORY, STALLS, UNITS, amount, percent, sentence
from simgpu.schedules import schedule_names

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from jinja2 import Environment

    from simgpu.hardware.profile import Profile
    from simgpu.report.outline import Outline
    from simgpu.result.run import Run

#: Steps of the picture of the device, at most.
MOST_STEPS = 400
#: What the kinds of a profile's numbers mean, assumed first as in ``Profile.sources``.
KINDS = {
    "assumed": "nobody measured or published it for this GPU",
    "fitted": "chosen so that predictions meet measurements",
    "derived": "follows from published numbers",
    "measured": "somebody measured it",
    "vendor": "the vendor says so",
}


def page(template: str, **context: Any) -> str:
    """Return a page made from one of the templates; MissingExtraError without jinja2."""
    return environment().get_template(template).render(context)


def environment() -> Environment:
    """Return the templates' environment; MissingExtraError without jinja2."""
    try:
        import jinja2
    except ImportError:
        raise MissingExtraError("jinja2", "report") from None
    folder = resources.files("simgpu.report") / "assets"
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(str(folder)),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def run_page(
    run: Run,
    profile: Profile,
    others: Sequence[Run] = (),
    missing: dict[str, str] | None = None,
    timeline: dict[str, Any] | None = None,
    no_timeline: str = "none was asked for",
) -> str:
    """Return the page of a run on the GPU of ``profile``.

    ``others`` stand beside it on the roofline; ``missing`` says of each that is not there why not.
    ``timeline`` is what ``lanes.first_ctas`` returns, ``no_timeline`` why it is missing.
    """
    found = outline(run)
    roofs = roofline(profile, run.clock_mhz, [run, *others], missing)
    return page(
        "run.jinja",
        title=f"{run.schedule} on {profile.title}",
        lead=found.headline,
        cards=_cards(run, found, roofs.peak),
        columns=list(found.columns) if len(found.columns) > 1 else [],
        sections={name: _section(found, i) for i, name in enumerate(_NAMES)},
        bars=_bars(run, found),
        waves=_waves(run),
        roofline=roofs.to_dict(),
        timeline=timeline,
        no_timeline=no_timeline,
        provenance=found.provenance,
        differences=found.differences,
        sources=_sources(profile),
        digest=profile.digest,
        version=run.to_dict()["version"],
    )


def write_run(run: Run, path: str | os.PathLike[str], gpu: str | None) -> None:
    """Write the page of a run alone; ``gpu`` is its profile's file, if not one of the named."""
    check_writable(path)
    profile = load_profile(gpu or run.gpu)
    if profile.digest != run.digest:
        raise ProfileError(
            f"the run was on {run.gpu} ({run.digest}), {profile.name} is {profile.digest}: "
            "give the profile that it was made with"
        )
    drawn: tuple[dict[str, Any] | None, str] = (None, "this schedule has no name to make it from")
    if run.schedule in schedule_names():
        drawn = first_ctas(run.schedule, run, profile)
    write_text(path, run_page(run, profile, (), None, *drawn))


_NAMES = ("light", "compute", "memory", "occupancy", "warps", "launch")


def _section(found: Outline, number: int) -> dict[str, Any]:
    part = found.sections[number]
    rows = [
        (row.name, row.unit, [row.text(r).replace("▪", "").strip() for r in found.columns.values()])
        for row in part.rows
    ]
    return {"title": part.title, "rows": rows, "said": part.said}


def _bars(run: Run, found: Outline) -> dict[str, list[bars.Bar]]:
    columns = found.columns
    used = bars.utilization(columns)
    return {
        "bounds": bars.bounds(columns),
        "compute": [b for b in used if b.key in COMPUTE],
        "memory": [b for b in used if b.key in MEMORY],
        "traffic": bars.traffic(columns, run.problem),
        "limits": bars.limits(columns),
        "stalls": bars.stalls(columns),
    }


def _cards(run: Run, found: Outline, peak: float) -> list[tuple[str, str, str]]:
    """Return what a reader wants first: label, value, and a line below."""
    top = run.to_dict()
    limiter, counts = top["predicted"]["limiter"], top["counts"]
    moved = counts["hbm_read_bytes"] + counts["hbm_write_bytes"]
    ratio = moved / compulsory_bytes(run.problem)
    words = UNITS.get(limiter) or STALLS[limiter]
    ctas, warps = run.longest.occupancy.ctas_per_sm, run.longest.occupancy.warps_per_sm
    return [
        ("Duration", _time(run.time_us), f"{run.cycles:,.0f} cycles"),
        (
            "Useful throughput",
            f"{run.tflops:,.0f} TFLOP/s",
            f"{percent(run.tflops / peak)} % of the tensor cores' peak",
        ),
        ("Limited by", sentence(words).rstrip("."), "see Speed Of Light"),
        ("HBM traffic", amount(moved), f"{ratio:.2f} × Q, K, V and O once"),
        ("On an SM", f"{ctas} CTA{'s' * (ctas != 1)}", f"{warps} warps"),
    ]


def _time(us: float) -> str:
    return f"{us / 1000:,.3f} ms" if us >= 1000 else f"{us:,.1f} µs"


def _waves(run: Run) -> dict[str, Any] | None:
    """Return CTAs on the device over time in the longest launch; None where that is not known."""
    launch = run.longest
    steps = launch.resident
    if not steps:
        return None
    every = -(-len(steps) // MOST_STEPS)
    kept = [*steps[:-1:every], steps[-1]]
    return {
        "launch": launch.name,
        "slots": launch.occupancy.ctas_per_sm * int(run.provenance["sms"]),
        "sms": run.provenance["sms"],
        "cycles": round(launch.cycles, 1),
        "clock_mhz": run.clock_mhz,
        "steps": [[round(time, 1), ctas] for time, ctas in kept],
    }


def _sources(profile: Profile) -> list[dict[str, Any]]:
    """Return the profile's numbers by kind."""
    rows = profile.sources()
    return [
        {"kind": kind, "meaning": meaning, "rows": found}
        for kind, meaning in KINDS.items()
        if (found := [row for row in rows if row.kind == kind])
    ]

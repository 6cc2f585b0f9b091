"""One sentence for each section: what limits this run there, and what to try next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from simgpu.report.remedies import Remedies
from simgpu.report.sections import tiles, waves
from simgpu.report.words import COMPUTE, MEMORY, STALLS, UNITS, percent, sentence, whole
from simgpu.result.run import BUSY, NEAR

if TYPE_CHECKING:
    from simgpu.result.run import Run

    Record = dict[str, Any]


class Advice:
    """The sentences of a report. With several launches they are about the longest."""

    def __init__(self, run: Run, top: Record, longest: Record) -> None:
        self._run, self._record = run, longest
        self._remedies = Remedies(run, longest)
        self._sms: int | None = run.provenance.get("sms")
        self._about = ""
        if len(run.launches) > 1:
            share = percent(longest["predicted"]["cycles"] / top["predicted"]["cycles"])
            self._about = f"{longest['name']} ({share} % of the cycles): "

    def speed_of_light(self) -> str:
        """What limits the run as a whole."""
        bounds, cycles = self._record["bounds"], self._record["predicted"]["cycles"]
        name = bounds["greatest"]
        near = bounds["cycles"][name] / cycles
        if near >= NEAR:
            least = f"the bound of {UNITS[name]} is {percent(near)} % of this time"
            return self._say(f"{least}: {self._remedies.unit(name)}")
        unit = self._remedies.busiest((*COMPUTE, *MEMORY))
        used, stall = self._record["utilization"][unit], self._worst_stall()
        waits = (
            f"{STALLS[stall]} takes {percent(self._record['stalls'][stall])} % of the roles' time"
        )
        if used >= BUSY:
            text = f"most used: {UNITS[unit]} ({percent(used)} %); {waits}"
            return self._say(f"{text}: {self._remedies.stall(stall)}")
        text = f"latency limits: no unit is used more than {percent(used)} %, and {waits}"
        return self._say(f"{text}: {self._remedies.stall(stall)}")

    def compute(self) -> str:
        """The busiest pipe."""
        return self._busiest(COMPUTE, "pipe")

    def memory(self) -> str:
        """The busiest level of memory, and HBM bytes against the least possible."""
        ratio = self._remedies.beyond_compulsory()
        moved = f"HBM moves {ratio:.2f} × the bytes of Q, K, V and O"
        stays = "; what is written last stays in L2" if ratio < 0.99 else ""
        return f"{self._busiest(MEMORY, 'level of memory')} {moved}{stays}."

    def occupancy(self) -> str:
        """Which resource allows the fewest CTAs."""
        o = self._record["occupancy"]
        reached = o["achieved_warps_per_sm"] / o["warps_per_sm"]
        text = f"{o['ctas_per_sm']} CTAs an SM, limited by {self._remedies.tightest()}"
        text += f"; {percent(reached)} % of their warps are there on average"
        if reached < 0.8:
            return self._say(
                f"{text}: the grid is short for this GPU; {self._remedies.stall('idle')}"
            )
        if "registers" in self._remedies.tightest() and self._record["registers_estimated"]:
            return self._say(f"{text}; the registers are estimated: give --resources registers=N")
        return self._say(text)

    def warp_state(self) -> str:
        """The greatest stall."""
        stalls = self._record["stalls"]
        stall = self._worst_stall()
        working = 1.0 - sum(stalls.values())
        text = f"roles work {percent(working)} % of their time; the most they lose is to "
        text += f"{STALLS[stall]} ({percent(stalls[stall])} %)"
        if stalls[stall] < 0.1:
            return self._say(text)
        return self._say(f"{text}: {self._remedies.stall(stall)}")

    def launch(self) -> str:
        """How the grid fills the device."""
        number = tiles(self._record)
        if self._sms is None:
            return self._say(f"{whole(number)} CTAs")
        if self._record["persistent"]:
            return self._say(self._persistent(number, self._record["ctas"]))
        slots = self._record["occupancy"]["ctas_per_sm"] * self._sms
        filled = waves(self._record, self._sms)
        if number < self._sms:
            idle = f"{self._sms - number} of {self._sms} SMs never get a CTA"
            return self._say(f"{idle}: {self._remedies.stall('idle')}")
        if filled < 1:
            text = f"{whole(number)} CTAs fill {percent(filled)} % of {whole(slots)} slots"
            return self._say(f"{text}: {self._remedies.stall('idle')}")
        rest = number % slots
        text = f"{whole(number)} CTAs fill {whole(slots)} slots {filled:.2f} times"
        if rest and filled < 4:
            text += (
                f"; the last wave has {whole(rest)}: tiles that divide the work more evenly help"
            )
        return self._say(text)

    def _persistent(self, number: int, launched: int) -> str:
        """How the tiles of persistent CTAs divide among them."""
        text = f"{whole(launched)} persistent CTAs take {whole(number)} tiles"
        if launched == number:
            return f"{text}: {self._remedies.stall('idle')}"
        each = number / launched
        if self._record["persistent"] == "dynamic":
            return f"{text} off a counter, {each:.2f} each on average"
        rest = number % launched
        text += f", {each:.2f} each on average"
        if rest and each < 4:
            return f"{text}; {whole(rest)} of them one more: tiles that divide evenly help"
        return text

    def _busiest(self, units: tuple[str, ...], what: str) -> str:
        unit = self._remedies.busiest(units)
        used = self._record["utilization"][unit]
        text = f"the busiest {what} at {percent(used)} %: {UNITS[unit]}"
        if used < BUSY:
            return self._say(f"{text}; its rate alone limits nothing")
        return self._say(f"{text}; {self._remedies.unit(unit)}")

    def _worst_stall(self) -> str:
        stalls: dict[str, float] = self._record["stalls"]
        return max(stalls, key=lambda name: stalls[name])

    def _say(self, text: str) -> str:
        return sentence(self._about + text)


def provenance(run: Run, top: Record) -> str:
    """Return what the prediction rests on: the clock, assumed numbers, estimates."""
    numbers: dict[str, int] = run.provenance["profile_numbers"]
    total, assumed = sum(numbers.values()), numbers.get("assumed", 0)
    parts = [f"clock {run.clock_mhz:,.0f} MHz ({run.provenance.get('clock', 'fixed')})"]
    source = run.provenance.get("mix_source")
    parts.append(f"{run.mix} instruction mix" + (f" ({source})" if source else ""))
    if loops := run.provenance.get("loops_source"):
        parts.append(f"loops as compiled ({loops})")
    parts += _compiled(run)
    fitted = numbers.get("fitted", 0)
    parts.append(f"{assumed} of {total} profile numbers are assumed, {fitted} fitted")
    estimated = [r for r in top["launches"] if r["registers_estimated"]]
    if estimated:
        registers = ", ".join(f"{r['registers']} ({r['name']})" for r in estimated)
        parts.append(f"registers estimated: {registers}")
    return sentence("; ".join(parts))


def _compiled(run: Run) -> list[str]:
    """Return what a compiler makes of the kernel that costs time, and whether that is a guess."""
    given = run.provenance["resources"]
    if run.mix == "compiled":
        told = {"spills", "serial_products"}
    else:
        told = set(given) if isinstance(given, dict) else set.intersection(*map(set, given))
    found = []
    if spilled := max(launch.spills for launch in run.launches):
        found.append(f"{spilled} registers spill{'' if 'spills' in told else ' (estimated)'}")
    if any(launch.serial_products for launch in run.launches):
        guess = "" if "serial_products" in told else " (estimated)"
        found.append(f"the compiler waits for each product before the next{guess}")
    return found


def mix_differences(run: Run) -> str:
    """Return where the analytic mix is not the compiled one; empty where it is."""
    lines = run.provenance.get("mix_differences", [])
    if not lines:
        return ""
    return "\n ".join(["Pipes on which the analytic mix is more than 10 % off:", *lines])


def headline(run: Run) -> str:
    """Return what was run, in two lines."""
    p = run.problem
    heads = f"{p.heads_q} heads" + (f" ({p.heads_kv} K/V)" if p.heads_kv != p.heads_q else "")
    mask = {"none": "no mask", "causal": "causal", "window": f"window {p.window}"}[p.mask]
    lengths = f"{p.seq_q}" if p.seq_q == p.seq_kv else f"{p.seq_q} × {p.seq_kv}"
    params = ", ".join(f"{k} {v}" for k, v in run.params.items())
    return (
        f"{run.schedule} on {run.gpu} ({run.digest}): batch {p.batch}, {heads}, length {lengths}, "
        f"head dim {p.head_dim}, {p.dtype}, {mask}\n{params}"
    )

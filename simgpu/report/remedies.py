"""What to try about a limit. Each text is chosen by the run's own numbers and quotes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from simgpu.cost.work import LANES
from simgpu.report.words import COMPUTE, LIMITS, MEMORY, UNITS, percent
from simgpu.tensor import dtype_bytes

if TYPE_CHECKING:
    from simgpu.problem import Attention
    from simgpu.result.run import Run

    Record = dict[str, Any]


class Remedies:
    """Advice about one record of a run (a launch, or all of it)."""

    def __init__(self, run: Run, record: Record) -> None:
        self._run, self._record = run, record
        self._counts, self._occupancy = record["counts"], record["occupancy"]

    def unit(self, name: str) -> str:
        """Return what to try when a unit limits the run."""
        match name:
            case "tensor":
                return self._tensor()
            case "mufu":
                return self._mufu()
            case "issue":
                return self._issue()
            case "fma" | "alu":
                return self._instructions(name)
            case "smem":
                return self._shared_memory()
            case "tmem":
                return "try larger tiles of keys: O passes tensor memory's port once for each"
            case "l1" | "lsu":
                return "try copies by TMA, which pass the load unit by"
            case "l2":
                return self._l2()
            case "hbm":
                return self._hbm()
            case "critical_path":
                return "try more CTAs with less to do each: smaller tiles, or split keys"
            case _:
                return f"try to ask less of {UNITS[name]}"

    def stall(self, name: str) -> str:
        """Return what to try when warps wait for one reason more than for others."""
        match name:
            case "wait_copy":
                return f"try one more stage, or {self._more_ctas()}"
            case "wait_mma":
                return f"try a second role whose softmax runs meanwhile, or {self._more_ctas()}"
            case "wait_barrier":
                return "try to even out the roles: stages between them, warps or registers each"
            case "contended":
                unit = self.busiest((*COMPUTE, *MEMORY))
                used = percent(self._record["utilization"][unit])
                return f"most wanted, {UNITS[unit]} ({used} %): {self.unit(unit)}"
            case "idle":
                return "try smaller tiles or split keys, which give more CTAs"
            case _:
                return "try larger tiles or persistent CTAs, so that fewer start"

    def busiest(self, units: tuple[str, ...]) -> str:
        """Return the unit that is used most."""
        return max(units, key=lambda u: self._record["utilization"][u])

    def tightest(self) -> str:
        """Return the resources that allow the fewest CTAs."""
        limits = self._occupancy["limits"]
        least = min(limits.values())
        return " and ".join(LIMITS[name] for name, value in limits.items() if value == least)

    def beyond_compulsory(self) -> float:
        """Return HBM bytes over those of Q, K, V and O."""
        moved = self._counts["hbm_read_bytes"] + self._counts["hbm_write_bytes"]
        return float(moved / compulsory_bytes(self._run.problem))

    def executed(self) -> float:
        """Return executed over useful FLOPs."""
        return float(self._counts["flops_tensor"] / self._run.problem.useful_flops)

    def _scores(self) -> float:
        return self._run.problem.useful_flops / (4 * self._run.problem.head_dim)

    def _more_ctas(self) -> str:
        now = self._occupancy["ctas_per_sm"]
        return f"more CTAs an SM (now {now}, limited by {self.tightest()})"

    def _tensor(self) -> str:
        ratio = self.executed()
        if ratio > 1.05:
            return f"{ratio:.2f} × the useful FLOPs are executed; try tiles with less padding"
        return "only a narrower dtype or a faster GPU makes the products themselves shorter"

    def _mufu(self) -> str:
        ratio = LANES * self._counts["instructions"]["mufu"] / self._scores()
        if ratio > 1.3:
            return f"{ratio:.2f} are computed for each score; try tiles in which no row is repeated"
        return "try to compute a part of them by polynomials on the FMA pipe"

    def _issue(self) -> str:
        """Say who takes the slots: a running wgmma holds less than half of them, mma.sync all."""
        bound, cycles = (
            self._record["bounds"]["cycles"]["issue"],
            self._record["predicted"]["cycles"],
        )
        held = 1.0 - self._record["utilization"]["issue"] * cycles / bound if bound else 0.0
        if held > 0.5:
            share = percent(held)
            return f"products by mma.sync hold {share} % of that; try wgmma, if the GPU has it"
        return self._instructions("total")

    def _instructions(self, name: str) -> str:
        each = LANES * self._counts["instructions"][name] / self._scores()
        return f"{each:.1f} instructions for each score; try larger tiles, which rescale less often"

    def _shared_memory(self) -> str:
        exchanged, operands = (
            self._counts[f"smem_{name}_bytes"] for name in ("exchange", "operand")
        )
        total = exchanged + operands + self._counts["smem_fill_bytes"]
        if exchanged > 0.2 * total:
            share = percent(exchanged / total)
            return (
                f"{share} % of its bytes pass between warps; try split-q, which exchanges nothing"
            )
        if operands > 0.5 * total:
            share = percent(operands / total)
            return f"{share} % of its bytes are operands; try to keep one of them in registers"
        return "try larger tiles, which are filled less often"

    def _l2(self) -> str:
        asked = self._counts["global_read_bytes"] + self._counts["global_write_bytes"]
        ratio = asked / compulsory_bytes(self._run.problem)
        if ratio > 1.5:
            asked_for = f"CTAs ask for {ratio:.1f} × the bytes of Q, K, V and O"
            return f"{asked_for}; try a taller tile (block_m)"
        return "CTAs ask for little more than Q, K, V and O; only a narrower dtype asks for less"

    def _hbm(self) -> str:
        ratio = self.beyond_compulsory()
        if ratio <= 1.5:
            return "it moves little more than Q, K, V and O; only a narrower dtype moves less"
        moved = f"it moves {ratio:.1f} × the bytes of Q, K, V and O"
        if len(self._run.launches) > 1:
            return f"{moved}; try a fused schedule, which keeps what passes between kernels on chip"
        return f"{moved}; try tiles or an order of CTAs that find more of them in L2"


def compulsory_bytes(p: Attention) -> int:
    """Return the bytes of Q, K, V and O, each once."""
    elements = 2 * p.heads_q * p.seq_q + 2 * p.heads_kv * p.seq_kv
    return p.batch * elements * p.head_dim * dtype_bytes(p.dtype)

"""FlashAttention-3 forward (Shah et al., 2024, arXiv 2407.08608, algorithms 1 and 2)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from simgpu.algorithms.fa3_barriers import Handover, Turns
from simgpu.algorithms.fa3_roles import WGMMA_ROWS, Consumer, Steps
from simgpu.algorithms.fa3_stream import Stream
from simgpu.algorithms.tiles import heads_together, last_to_first, padded, padded_to_16
from simgpu.errors import ScheduleError
from simgpu.program.program import Grid
from simgpu.program.record import schedule

if TYPE_CHECKING:
    from simgpu.problem import Attention
    from simgpu.program.builder import Cta
    from simgpu.program.program import Partition
    from simgpu.program.role import RoleBuilder

WARPGROUP = 4  # warps


class Tile(NamedTuple):
    """Rows and keys of a tile, and where P lies when it is multiplied by V."""

    block_m: int
    block_n: int
    p_in: Literal["registers", "smem"] = "registers"

    @property
    def consumers(self) -> int:
        """Consumer warpgroups: one for every 64 rows."""
        return self.block_m // WGMMA_ROWS


#: FA3's tile for head dims up to the key: without a mask, causal. 16 bits, then 8 bits an element.
#: Source: Dao-AILab/flash-attention, hopper/tile_size.h (2026; the paper's runs had earlier ones).
TILES = {
    64: (Tile(192, 192, "smem"), Tile(192, 128)),
    96: (Tile(192, 144, "smem"), Tile(192, 144, "smem")),
    128: (Tile(128, 176), Tile(128, 128)),
    192: (Tile(128, 112), Tile(128, 112)),
    256: (Tile(128, 80), Tile(128, 80)),
}
TILES_FP8 = {
    64: (Tile(192, 160), Tile(192, 160)),
    96: (Tile(192, 128), Tile(192, 128)),
    128: (Tile(128, 224), Tile(128, 224)),
    192: (Tile(128, 160), Tile(128, 160)),
    256: (Tile(128, 128), Tile(128, 128)),
}
#: Registers a thread of the producer and of a consumer, by number of consumers (setmaxnreg).
#: Source: hopper/flash_fwd_kernel_sm90.h of the same repository.
REGISTERS = {2: (24, 240), 3: (32, 160)}


@schedule("fa3")
@dataclass(frozen=True, slots=True, kw_only=True)
class FlashAttention3:
    """A CTA takes Q tile after Q tile: a TMA producer streams K and V past consumers of 64 rows.

    The paper's three ideas are ``specialized`` (a producer warp; else the first consumer loads, a
    pass ahead), ``pingpong`` (one consumer's softmax runs while another issues its products) and
    ``overlap`` (a consumer's own softmax runs under its PV, with the next scores issued before).
    Tile and ``p_in`` are those that FA3 chooses for the problem where they are left out. K/V blocks
    come last to first, as in FA3's kernel. A causal launch starts with the Q tiles that see most
    keys, those of all heads of a section together (`heads_together`), unless ``order`` says
    otherwise. ``persistent`` launches as many CTAs as the GPU holds; they go on to the next tile,
    causal ones off a counter, and ``o_in`` says whether O passes over V's place in shared memory
    (FA3's package) or through its own (our Gluon kernel). Without it there is a CTA a tile, and O
    passes through Q's place. ``padding`` is that of head dim on chip: FA3's kernels
    take multiples of 16, Triton's and Gluon's powers of two. ``block_scales`` is the paper's block
    quantisation for fp8: the tensors Q_scale, K_scale and V_scale hold a number for each block of
    ``block_m`` rows of Q and of ``block_n`` keys. Without it the scales of whole tensors are part
    of the softmax scale.

    What is left out is as in the package: consumers take turns up to head dim 128, with
    8 bits from 128 on, and beyond 128 they ``rescale`` O before PV is issued, not after it. ptxas
    moves a consumer's wait for PV up (``pv_wait``): algorithm 2 has it after the exponentials.
    ``scores_ahead``: a persistent consumer issues the next tile's first scores behind this one's
    last PV, under the store of O (our Gluon kernel).
    CTAs of a ``cluster`` own neighbouring Q tiles of one head and get each tile of K and V by one
    read (TMA multicast): a pair for head dims from 128 without a mask and an even number of Q
    tiles.
    """

    needs: ClassVar[tuple[str, ...]] = ("tma", "wgmma")

    block_m: int | None = None
    block_n: int | None = None
    stages: int = 2
    specialized: bool = True
    pingpong: bool | None = None
    overlap: bool = True
    pv_wait: Literal["after_maximum", "after_exponentials"] = "after_maximum"
    rescale: Literal["before_pv", "after_pv"] | None = None
    scores_ahead: bool = False
    p_in: Literal["registers", "smem"] | None = None
    order: Literal["longest_first", "longest_first_by_head", "first_to_last"] = "longest_first"
    persistent: bool = True
    o_in: Literal["v", "own"] = "v"
    padding: Literal["multiple_of_16", "power_of_two"] = "multiple_of_16"
    block_scales: bool = False
    cluster: int | None = None

    @property
    def warp_partition(self) -> Partition:
        """Rows."""
        return "split-q"

    def resolve(self, p: Attention) -> FlashAttention3:
        """Return the schedule with nothing left out; ScheduleError for a tile that cannot be."""
        tile = self._tile(p)
        fp8, deep = p.dtype == "fp8", p.head_dim > 128
        turns = p.head_dim >= 128 if fp8 else not deep
        before = deep and not fp8
        return replace(
            self,
            block_m=tile.block_m,
            block_n=tile.block_n,
            p_in=tile.p_in,
            pingpong=turns if self.pingpong is None else self.pingpong,
            rescale=self.rescale or ("before_pv" if before else "after_pv"),
            cluster=self._cluster(p),
        )

    def grid(self, p: Attention) -> Grid:
        """Return a tile for each Q tile, head and batch entry."""
        return Grid(
            m=p.q_tiles(self._tile(p).block_m),
            head=p.heads_q,
            batch=p.batch,
            persistent=("dynamic" if p.causal else "static") if self.persistent else None,
            section=heads_together(p) if p.causal and self.order == "longest_first" else None,
        )

    def build(self, p: Attention, cta: Cta) -> None:
        """Record what a CTA does with one tile."""
        tile, whole = self._tile(p), self.resolve(p)
        bm, bn, n = tile.block_m, tile.block_n, tile.consumers
        d = (padded_to_16 if self.padding == "multiple_of_16" else padded)(p.head_dim)
        turned = p.causal and self.order != "first_to_last"
        m = cta.m.from_end(p.q_tiles(bm)) if turned else cta.m
        blocks = last_to_first(p.kv_ranges(m, bm, bn), apart=2)
        stream = Stream(
            cta,
            p,
            (bn, d),
            self.stages,
            n,
            k_first=self.overlap,
            scales=self.block_scales,
            cluster=self._cluster(p),
        )
        turns = Turns(cta, n if whole.pingpong else 0)
        steps = Steps(self.pv_wait, whole.rescale or "after_pv", self.scores_ahead)
        over = stream.v if self.o_in == "v" else None
        handover = self._handover(p, cta, n)
        consumers = [
            Consumer(cta, p, (m, i), (bm, bn, d), stream, turns, steps, handover, over)
            for i in range(n)
        ]
        produces, consumes = REGISTERS[n] if self.specialized else (None, None)
        if tile.p_in == "smem":
            for c in consumers:
                c.put_p_in_shared_memory(cta)

        if self.specialized:

            def load_q(w: RoleBuilder) -> None:
                if handover:
                    handover.wait_for_q(w)
                for c in consumers:
                    c.load_q(w)
                if handover:
                    handover.wait_for_o(w)

            with cta.role("producer", warps=1, registers=produces) as w:
                stream.produce(w, blocks, load_q)
                if handover:
                    handover.ask(w)

        for c in consumers:
            with cta.role(f"consumer{c.number}", warps=WARPGROUP, registers=consumes) as w:
                if not self.specialized:
                    c.load_q(w)
                    c.loads = c.number == 0
                if handover and c.loads:
                    handover.wait_for_o(w)
                w.wait(c.q_full)
                if self.overlap and blocks:
                    c.overlapped(w, blocks)
                elif blocks:
                    c.in_order(w, blocks)
                else:
                    c.without_keys(w)
                c.store(w)
                if not (self.scores_ahead and self.overlap and blocks):
                    c.follow(w)

    def _handover(self, p: Attention, cta: Cta, consumers: int) -> Handover | None:
        if not self.persistent:
            return None
        return Handover(
            cta,
            consumers,
            produced=self.specialized,
            o_over_v=self.o_in == "v",
            counter=p.causal,
        )

    def _cluster(self, p: Attention) -> int:
        """Return the CTAs of a cluster; as FA3's hopper/flash_fwd_launch_template.h has it."""
        tiles = p.q_tiles(self._tile(p).block_m)
        if self.cluster is not None:
            if self.cluster < 1 or tiles % self.cluster:
                raise ScheduleError(f"cluster is {self.cluster}: it must divide {tiles} Q tiles")
            return self.cluster
        wide = p.head_dim >= 128 if p.dtype != "fp8" else 128 < p.head_dim <= 192
        paired = wide and not p.causal and tiles % 2 == 0
        return 2 if paired else 1

    def _tile(self, p: Attention) -> Tile:
        table = TILES_FP8 if p.dtype == "fp8" else TILES
        dim = next((d for d in table if d >= p.head_dim), max(table))
        best = table[dim][p.causal]
        tile = Tile(
            self.block_m or best.block_m, self.block_n or best.block_n, self.p_in or best.p_in
        )
        if tile.block_m % WGMMA_ROWS or tile.consumers not in REGISTERS:
            raise ScheduleError(f"block_m is {tile.block_m}: 128 or 192, 64 rows a consumer")
        if tile.block_n < 16 or tile.block_n % 16:
            raise ScheduleError(f"block_n is {tile.block_n}: it must be a positive multiple of 16")
        if self.scores_ahead and not self.specialized:
            raise ScheduleError(
                "scores_ahead is true without a producer (specialized): who loads waits for itself"
            )
        if not self.specialized and self.stages < 2:
            raise ScheduleError("stages is 1: without a producer tiles are loaded a pass ahead")
        return tile

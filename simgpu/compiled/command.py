"""The command ``simgpu compile``."""

from __future__ import annotations

from typing import Annotated

import typer

Gpus = Annotated[
    list[str] | None, typer.Option("--gpu", help="A profile's name, alias or YAML file; repeat it.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="NAME=VALUE: a parameter, an argument or a launch option."),
]


def compile_command(
    kernel: Annotated[
        str, typer.Argument(help="fa2, fa1, standard, fa2_backward or file.py:name.")
    ],
    gpu: Gpus = None,
    settings: Settings = None,
    batch: Annotated[int, typer.Option(help="Batch entries, for our kernels.")] = 4,
    heads: Annotated[int, typer.Option(help="Query heads.")] = 32,
    kv_heads: Annotated[int | None, typer.Option(help="K/V heads; else as query heads.")] = None,
    seqlen: Annotated[int, typer.Option(help="Queries.")] = 4096,
    seqlen_k: Annotated[
        int | None, typer.Option(help="Keys; as many as queries if left out.")
    ] = None,
    head_dim: Annotated[int, typer.Option(help="Head dimension.")] = 128,
    causal: Annotated[bool, typer.Option("--causal", help="Causal mask.")] = False,
    dtype: Annotated[str, typer.Option(help="fp16, bf16 or fp32.")] = "fp16",
    lint: Annotated[
        bool, typer.Option("--lint", help="Say what is wrong with the kernel.")
    ] = False,
    line_info: Annotated[
        bool, typer.Option("--line-info/--no-line-info", help="As Triton compiles by default.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of tables.")] = False,
) -> None:
    """Compile a kernel for GPUs that need not be here, and read its code."""
    from simgpu.compiled.report import compile_report
    from simgpu.problem import Attention

    problem = Attention(
        batch=batch,
        heads_q=heads,
        heads_kv=heads if kv_heads is None else kv_heads,
        seq_q=seqlen,
        seq_kv=seqlen if seqlen_k is None else seqlen_k,
        head_dim=head_dim,
        causal=causal,
        dtype=dtype,
    )
    found = compile_report(
        kernel,
        gpu or ["h200"],
        settings=settings or [],
        problem=problem,
        with_lint=lint,
        line_info=line_info,
    )
    typer.echo(found.to_json() if as_json else found.text, nl=as_json)

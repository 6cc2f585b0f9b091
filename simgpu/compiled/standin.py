"""Stand-ins for what a kernel's host code needs and this machine lacks: a GPU, and perhaps torch.

Only the worker process uses them. Host functions run as they are, with tensors that have a shape
and a dtype and no data; the driver names a GPU that is not here; a launch compiles and stops.
"""

from __future__ import annotations

import math
import re
import sys
from types import ModuleType
from typing import Any

_TORCH_NAMES = {
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp32": "float32",
    "fp64": "float64",
    "fp8e4nv": "float8_e4m3fn",
    "fp8e5": "float8_e5m2",
    "i8": "int8",
    "u8": "uint8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "i1": "bool",
}


class Dtype:
    """A torch dtype by name: Triton reads its text."""

    def __init__(self, name: str) -> None:
        self.name = name
        bits = re.search(r"\d+", name)
        self.itemsize = int(bits[0]) // 8 if bits else 1

    def __repr__(self) -> str:
        return f"torch.{self.name}"


DTYPES = {short: Dtype(name) for short, name in _TORCH_NAMES.items()}


class Tensor:
    """A contiguous CUDA tensor without data; its address is a multiple of 16, as torch's are."""

    is_cuda = True
    device = "cuda"

    def __init__(self, shape: tuple[int, ...], dtype: Dtype) -> None:
        self.shape = tuple(shape)
        self.dtype = dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    def data_ptr(self) -> int:
        """An address on which nothing but alignment can be seen."""
        return 0

    def element_size(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def stride(self, axis: int | None = None) -> Any:
        """Row-major strides, in elements."""
        strides = tuple(math.prod(self.shape[i + 1 :]) for i in range(self.ndim))
        return strides if axis is None else strides[axis]

    def flatten(self, first: int, last: int) -> Tensor:
        """Merge the axes ``first`` to ``last``."""
        merged = math.prod(self.shape[first : last + 1])
        return Tensor((*self.shape[:first], merged, *self.shape[last + 1 :]), self.dtype)

    def unbind(self) -> tuple[Tensor, ...]:
        """Return what lies along the first axis."""
        return tuple(Tensor(self.shape[1:], self.dtype) for _ in range(self.shape[0]))

    def __getitem__(self, at: int) -> Tensor:
        return Tensor(self.shape[1:], self.dtype)


def _empty(*shape: Any, dtype: Dtype = DTYPES["fp32"], device: object = None) -> Tensor:
    sizes = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
    return Tensor(tuple(sizes), dtype)


def _empty_like(tensor: Tensor, *, dtype: Dtype | None = None) -> Tensor:
    return Tensor(tensor.shape, dtype or tensor.dtype)


def install_torch() -> None:
    """Let ``import torch`` give the little of torch that the host code of kernels uses."""
    torch = ModuleType("torch")
    torch.__doc__ = "A stand-in without data."
    members: dict[str, Any] = {"Tensor": Tensor, "dtype": Dtype}
    members |= {"empty": _empty, "zeros": _empty, "empty_like": _empty_like}
    members |= {dtype.name: dtype for dtype in DTYPES.values()}
    vars(torch).update(members)
    sys.modules["torch"] = torch


class Driver:
    """A CUDA driver that knows one GPU, by architecture, and can launch nothing."""

    def __init__(self, arch: int) -> None:
        self.arch = arch

    @property
    def utils(self) -> Driver:
        """Return what answers questions about a device."""
        return self

    def get_device_properties(self, device: int) -> dict[str, int]:
        """Return what sizes a persistent kernel's grid, which nothing is compiled for."""
        return {"multiprocessor_count": 1}

    def get_current_device(self) -> int:
        """Return one device for each architecture, so that compiled kernels are not mixed up."""
        return self.arch

    def get_current_stream(self, device: int) -> int:
        """Return the default stream."""
        return 0

    def get_current_target(self) -> Any:
        """Return what Triton compiles for."""
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self.arch, 32)

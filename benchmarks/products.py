"""Why the torch kernels compute products as they do: bits and speed by number of rows.

    python benchmarks/products.py

For each way to multiply rows by the default model's largest layer weight: the heights at which all
rows have the bits they have among 16, and GFLOP/s.
"""

import time
from collections.abc import Callable

import torch

from slipstream.kernels.torch.linear import PackedLinear, equal_heights, pack

OUTPUTS, INPUTS = 3072, 576
ROWS = (1, 4, 16, 32, 64, 256)


def main() -> None:
    torch.set_grad_enabled(False)
    weight = torch.randn(OUTPUTS, INPUTS)
    transposed = weight.T.contiguous()
    values = transposed.numpy()
    packed = pack(weight, None).apply
    codes, scales = pack_int4(weight)
    ways: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "oneDNN, packed (used)": packed,
        "torch.mm": lambda rows: torch.mm(rows, transposed),
        "numpy": lambda rows: torch.from_numpy(rows.numpy() @ values),
        "bfloat16, oneDNN": bfloat16(weight),
        "4 bits, PyTorch": lambda rows: torch.ops.aten._weight_int4pack_mm_for_cpu(
            rows, codes, 32, scales
        ),
    }
    print(
        torch.__config__.parallel_info().splitlines()[1].strip(),
        torch.backends.cpu.get_cpu_capability(),
    )
    for name, apply in ways.items():
        heights = equal_heights(PackedLinear(apply, INPUTS, OUTPUTS))
        print(f"{name}: equal bits at {sorted(heights)} rows")
        print("   GFLOP/s " + ", ".join(f"{rows} rows: {speed(apply, rows):.0f}" for rows in ROWS))


def bfloat16(weight: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """The product in bfloat16."""
    packed = weight.bfloat16()
    return lambda rows: torch.nn.functional.linear(rows.bfloat16(), packed).float()


def pack_int4(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Random 4-bit codes of the weight's shape; speed does not depend on values."""
    codes = torch.randint(0, 16, weight.shape, dtype=torch.int32)
    scales = torch.randn(weight.shape[1] // 32, weight.shape[0], 2)
    return torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes, 1), scales


def speed(apply: Callable[[torch.Tensor], torch.Tensor], rows: int) -> float:
    """The best of several runs, in GFLOP/s."""
    x = torch.randn(rows, INPUTS)
    best = float("inf")
    for _ in range(7):
        started = time.perf_counter()
        apply(x)
        best = min(best, time.perf_counter() - started)
    return 2 * rows * OUTPUTS * INPUTS / best / 1e9


if __name__ == "__main__":
    main()

"""The peer of lmc's products per expert on a GPU: PyTorch's grouped product, `torch.nn.functional.grouped_mm`
(`torch._grouped_mm` in older releases), of the same shapes.

In bf16 with results in bf16, where rows that are sorted by expert meet the matrix of theirs: the product that makes
gate and up of all rows, the one of down, and the two gradients of each. How many rows an expert has is drawn, once
with equal chances (`balanced`) and once with chances of 1/rank (`skewed`). Prints a line of JSON for each product and
draw: the median of ten times in ms, after three that do not count, and TFLOP/s. --probe only says which PyTorch is
here.
"""

import argparse
import json
import statistics
import time

import torch
import torch.nn.functional as F

REPEATS, WARM_UP = 10, 3
# Older releases have it under the second name only.
GROUPED = getattr(F, "grouped_mm", None) or getattr(torch, "_grouped_mm", None)


def draw(rows: int, experts: int, skewed: bool):
    """Returns how many of the rows each expert has, int64 [experts]."""
    chances = 1 / torch.arange(1, experts + 1) if skewed else torch.ones(experts)
    return torch.bincount(torch.multinomial(chances.float(), rows, replacement=True), minlength=experts)


def products(hidden: int, intermediate: int, counts, device: str) -> dict:
    """Returns the products (forward, gradient of x, gradient of the matrices) by name: the operands and the FLOPs.
    Operands are bf16: x [rows, in] or the gradient of y [rows, out], and the matrices [experts, in, out] (transposed
    for the gradient of x); for the gradient of the matrices x [in, rows], transposed, and the gradient of y."""
    rows, made = int(counts.sum()), {}

    def normal(*sizes: int):
        return torch.randn(*sizes, device=device, dtype=torch.bfloat16)

    for name, width, result in (("gate_up", hidden, 2 * intermediate), ("down", intermediate, hidden)):
        x, grad, matrices = normal(rows, width), normal(rows, result), normal(len(counts), width, result)
        flops = 2.0 * rows * width * result
        made[f"{name} forward"] = (x, matrices, flops)
        made[f"{name} gradient of x"] = (grad, matrices.transpose(1, 2), flops)
        made[f"{name} gradient of the matrices"] = (x.t(), grad, flops)
    return made


def milliseconds(function, device: str) -> float:
    """Returns the median of how long `function` takes on the device."""
    times = []
    for _ in range(WARM_UP + REPEATS):
        if device == "cuda":
            begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begun.record()
            function()
            ended.record()
            ended.synchronize()
            times.append(begun.elapsed_time(ended))
        else:
            began = time.perf_counter()
            function()
            times.append(1e3 * (time.perf_counter() - began))
    return statistics.median(times[WARM_UP:])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("shape", nargs="?", type=json.loads, help="rows (one for each token and expert of it), "
                        "experts, hidden and intermediate, as JSON")
    parser.add_argument("--probe", action="store_true")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    if args.probe:
        print(json.dumps({"torch": torch.__version__, "sees_the_gpu": torch.cuda.is_available(),
                          "lacks": None if GROUPED else "grouped_mm"}))
        return
    torch.manual_seed(1)
    shape = args.shape
    for draw_name in ("balanced", "skewed"):
        counts = draw(shape["rows"], shape["experts"], draw_name == "skewed")
        ends = counts.cumsum(0).int().to(args.device)
        for name, (a, b, flops) in products(shape["hidden"], shape["intermediate"], counts, args.device).items():
            ms = milliseconds(lambda: GROUPED(a, b, offs=ends), args.device)
            print(json.dumps({"product": name, "counts": draw_name, "ms": ms, "tflops": flops / ms * 1e-9,
                              "largest": int(counts.max()), "torch": torch.__version__, "cuda": torch.version.cuda}),
                  flush=True)


if __name__ == "__main__":
    main()

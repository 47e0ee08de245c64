"""What this GPU can do: copy bandwidth, large matrix products, and its clocks; and whether the
instructions that the SIMT executor emulates give the executor's results here."""

import os
from pathlib import Path

from session import Report, json_lines, package_library

LARGE = {"8192 x 8192 x 8192": (8192, 8192, 8192), "16384 x 8192 x 8192": (16384, 8192, 8192),
         "32768 x 16384 x 2048": (32768, 16384, 2048)}


def instructions(text: str) -> list[dict]:
    lines = [line for line in text.splitlines() if " words wrong" in line]
    if not lines:
        raise ValueError("no line about words")
    return [{"item": f"instruction {line.split(':')[0]}", "wrong": int(line.split()[1]),
             "compared": int(line.split()[3])} for line in lines]


def cublaslt(session) -> dict[str, str]:
    """Returns the variable that names cuBLASLt for gemm.cu, if the loader does not find it by itself: it may be in a
    Python package, or beside nvcc."""
    beside = Path(session.nvcc or "/usr/local/cuda/bin/nvcc").resolve().parents[1] / "lib64/libcublasLt.so.13"
    found = package_library("cu13", beside.name) or (str(beside) if beside.exists() else None)
    return {"LMC_CUBLASLT": found} if found and "LMC_CUBLASLT" not in os.environ else {}


def programs(data) -> dict:
    """Returns the programs that the section runs: name -> source, options."""
    return {name: (data / f"src/{name}.cu", ["-O2", "-std=c++17"]) for name in ("copy", "gemm", "instructions")}


def run(session) -> Report:
    report = Report(session, "ceilings", {
        "item": "what", "gbps": "GB/s", "tflops": "TFLOP/s", "ms": "ms", "wrong": "words wrong",
        "compared": "of", "sm_mhz": "SM MHz", "watts": "W"})
    every = programs(session.data)
    missing = session.compile(every, 3)
    for item in report.items(["instructions", "copy", *LARGE]):
        name = "gemm" if item in LARGE else item
        if name in missing:
            if name not in report.failed:
                report.skip(item, missing[name])
            continue
        program, source = [session.program(name)], every[name][0]
        if item == "instructions":
            report.run(item, program, instructions, source=source)
        elif item == "copy":
            report.run(item, program, lambda text: [
                {**row, "item": f"copy by {row['copy']}"} for row in json_lines(text)], source=source)
        else:
            m, n, k = LARGE[item]
            report.run(f"bf16 product {item}", program, lambda text: [
                {"tflops": row["best_tflops"], "ms": row["best_ms"]} for row in json_lines(text)],
                stdin=f"large {m} {n} {k} 0 1 bf16 0\n", env=cublaslt(session), source=source)
    return report

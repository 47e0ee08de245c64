"""The matrix products of llama1b at MBS 16 by cuBLASLt, in the layouts of the plan and with its results'
dtypes, timed in heat: the heuristic's first algorithm against the fastest of eight; the head's three products for
chunks of 1024 and 4096 tokens of the loss; and those for a vocabulary of 50,257, as it is and padded to
50,304 rows (lm-pad-vocabulary)."""

import json

from sections.ceilings import cublaslt
from session import Report, json_lines


def programs(data) -> dict:
    """Returns the program that the section runs: name -> source, options."""
    return {"gemm": (data / "src/gemm.cu", ["-O2", "-std=c++17"])}


def run(session) -> Report:
    report = Report(session, "gemm", {
        "item": "product", "m": "m", "n": "n", "k": "k", "layout": "layout", "first_ms": "first ms",
        "best_ms": "best ms", "gain": "first / best", "best_tflops": "TFLOP/s", "algorithms": "algorithms",
        "predicted_ms": "predicted ms", "ratio": "predicted / measured", "alone_ms": "ms alone",
        "heat_sm_mhz": "MHz in heat", "heat_watts": "W in heat"})
    shapes = {shape["name"]: shape for shape in json.loads((session.data / "gemms.json").read_text())}
    missing = {} if (why := session.why_not(everything=True)) else session.compile(programs(session.data), 1)
    if "gemm" in report.failed:
        return report
    for name in report.items(shapes, seconds=10):
        if why or missing:
            report.skip(name, why or missing["gemm"])
            continue
        shape = shapes[name]
        line = " ".join(str(part) for part in (
            "shape", shape["m"], shape["n"], shape["k"], int(shape["transpose_a"]), int(shape["transpose_b"]),
            shape["result_dtype"], int(shape["accumulate"])))
        layout = ("T" if shape["transpose_a"] else "N") + ("T" if shape["transpose_b"] else "N") + (
            f", {shape['result_dtype']}" + (", +=" if shape["accumulate"] else ""))

        def read(text: str) -> list[dict]:
            row = json_lines(text)[0]
            predicted = shape["seconds"] * 1e3
            return [{**row, "m": shape["m"], "n": shape["n"], "k": shape["k"], "layout": layout,
                     "gain": row["first_ms"] / row["best_ms"], "predicted_ms": predicted,
                     "ratio": predicted / row["best_ms"]}]

        report.run(name, [session.program("gemm")], read, limit=120, stdin=line + "\n", env=cublaslt(session),
                   source=session.data / "src/gemm.cu")
    heads = {}  # milliseconds of each head's products
    for row in report.rows:
        if row["item"].startswith("head") and "best_ms" in row:
            heads.setdefault(row["item"].split(":")[0], []).append(row["best_ms"])
    for head, times in heads.items():
        if len(times) == 3:
            chunk = 1024 if "chunk 1024" in head else 4096
            report.notes.append(f"the {head}: {sum(times) * 1e3 / chunk:.3f} us per token")
    return report

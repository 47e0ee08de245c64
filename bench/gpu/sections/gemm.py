"""The matrix products of llama1b at MBS 16 by cuBLASLt, in the layouts of the plan and with its results'
dtypes: the heuristic's first algorithm against the fastest of eight; and the head's three products for
chunks of 1024 and 4096 tokens of the loss."""

import json

from session import Report, json_lines


def run(session) -> Report:
    report = Report(session, "gemm", {
        "item": "product", "m": "m", "n": "n", "k": "k", "layout": "layout", "first_ms": "first ms",
        "best_ms": "best ms", "gain": "first / best", "best_tflops": "TFLOP/s", "algorithms": "algorithms",
        "predicted_ms": "predicted ms", "ratio": "predicted / measured", "sm_mhz": "SM MHz", "watts": "W"})
    shapes = {shape["name"]: shape for shape in json.loads((session.data / "gemms.json").read_text())}
    for name, why in session.compile(
            {"gemm": (session.data / "src/gemm.cu", ["-O2", "-std=c++17"])}, 1).items():
        report.fail(name, f"does not compile: {why}")
        return report
    for name in report.items(shapes, seconds=10):
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

        report.run(name, [session.build / "gemm"], read, limit=120, stdin=line + "\n")
    for chunk in (1024, 4096):
        rows = [row for row in report.rows if row["item"].startswith(f"head, chunk {chunk}:") and "best_ms" in row]
        if len(rows) == 3:
            report.notes.append(f"the head in chunks of {chunk} tokens: "
                                f"{sum(row['best_ms'] for row in rows) * 1e3 / chunk:.3f} us per token")
    return report

"""What this GPU can do: copy bandwidth, large matrix products, and its clocks; and whether the
instructions that the SIMT executor emulates give the executor's results here."""

from session import Report, json_lines

LARGE = {"8192 x 8192 x 8192": (8192, 8192, 8192), "16384 x 8192 x 8192": (16384, 8192, 8192),
         "32768 x 16384 x 2048": (32768, 16384, 2048)}


def instructions(text: str) -> list[dict]:
    lines = [line for line in text.splitlines() if " words wrong" in line]
    if not lines:
        raise ValueError("no line about words")
    return [{"item": f"instruction {line.split(':')[0]}", "wrong": int(line.split()[1]),
             "compared": int(line.split()[3])} for line in lines]


def run(session) -> Report:
    report = Report(session, "ceilings", {
        "item": "what", "gbps": "GB/s", "tflops": "TFLOP/s", "ms": "ms", "wrong": "words wrong",
        "compared": "of", "sm_mhz": "SM MHz", "watts": "W"})
    source, options = session.data / "src", ["-O2", "-std=c++17"]
    for name, why in session.compile({"copy": (source / "copy.cu", options),
                                      "gemm": (source / "gemm.cu", options),
                                      "instructions": (source / "instructions.cu", options)}, 3).items():
        report.fail(name, f"does not compile: {why}")
    for item in report.items(["instructions", "copy", *LARGE]):
        if item == "instructions":
            report.run(item, [session.build / item], instructions)
        elif item == "copy":
            report.run(item, [session.build / item], lambda text: [
                {**row, "item": f"copy by {row['copy']}"} for row in json_lines(text)])
        else:
            m, n, k = LARGE[item]
            report.run(f"bf16 product {item}", [session.build / "gemm"], lambda text: [
                {"tflops": row["best_tflops"], "ms": row["best_ms"]} for row in json_lines(text)],
                stdin=f"large {m} {n} {k} 0 1 bf16 0\n")
    return report

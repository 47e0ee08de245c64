"""Attention: every variant of the flash attention kernels on the shapes of llama1b, Mistral-7B and
others, checked against the plain kernels; and the predicted beside the measured time of what
`lmc compile` chooses, for heads that fill a tile, that are in a larger one, and that have none."""

from sections import kernels
from session import Report, json_lines

# The rows of LMC_SHAPE in attention.cu.
SHAPES = ("llama1b, MBS 1, 2048 tokens", "llama1b, MBS 16, 2048 tokens", "heads of 96, MBS 4, 4096 tokens",
          "heads of 80, MBS 8, 2048 tokens", "heads of 112, MBS 8, 2048 tokens",
          "Mistral-7B, MBS 1, 8192 tokens, window 4096", "Llama 3 8B, MBS 2, 8192 tokens", "heads of 256, MBS 2, 4096 tokens")


def programs(data) -> dict:
    """Returns the programs that the section runs: name -> source, options."""
    return {**{f"attention-{i}": (data / "src/attention.cu", ["-O2", "-std=c++17", f"-DLMC_SHAPE={i}"])
               for i in range(len(SHAPES))}, **kernels.programs_of(data / "price")}


def run(session) -> Report:
    report = Report(session, "attention", {
        "item": "shape", "kernel": "kernel", "tile": "tile", "ms": "ms", "tflops": "TFLOP/s", "error": "error",
        "right": "right", "registers": "registers", "local_bytes": "local bytes", "blocks_per_sm": "blocks per SM",
        "predicted_ms": "predicted ms", "ratio": "predicted / measured", "sm_mhz": "SM MHz", "watts": "W",
        "heat_ms": "ms in heat", "heat_tflops": "TFLOP/s in heat", "heat_sm_mhz": "MHz in heat",
        "heat_watts": "W in heat"})
    every, prices = programs(session.data), kernels.programs_of(session.data / "price")
    missing = {} if (why := session.why_not(everything=True)) else session.compile(every, 1)
    for item in report.items([*SHAPES, *prices], seconds=20):
        name = item if item in prices else f"attention-{SHAPES.index(item)}"
        if why or name in missing:
            if name not in report.failed:
                report.skip(item, why or missing[name])
            continue
        report.run(item, [session.program(name)], kernels.read if item in prices else variant_rows, limit=180,
                   source=every[name][0])
    for shape in SHAPES:
        best = {}
        for row in (row for row in report.rows if row["item"] == shape and row.get("right")):
            best[row["kernel"]] = min(best.get(row["kernel"], row), row, key=lambda row: row.get("heat_ms", row["ms"]))
        if best:
            report.notes.append(f"{shape}: fastest in heat " + ", ".join(
                f"{kernel} {row['tile']} ({row.get('heat_tflops', row['tflops']):.0f} TFLOP/s, alone "
                f"{row['tflops']:.0f})" for kernel, row in best.items()))
    kernels.note_predictions(report)
    return report


def variant_rows(text: str) -> list[dict]:
    """Leaves out the variant that launches nothing; that it is found wrong is in the exit code."""
    return [row for row in json_lines(text) if row["kernel"] != "nothing"]

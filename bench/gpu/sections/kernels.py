"""Every kernel of llama1b at MBS 4 with two layers, and with both optimizers, as a program of its own:
right, and how fast beside the prediction. Then those of a small model under compute-sanitizer."""

import re
import shutil
import statistics

from session import Report, json_lines

CHECK = re.compile(r"^check: (\d+) of (\d+) elements wrong", re.M)
BENCH = re.compile(r"^(bench:|  \S+) ([\d.]+) ms(?:, predicted ([\d.]+) ms)?"
                   r"(?:, ([\d.]+) GB/s)?(?:, ([\d.]+) TFLOP/s)?(?:, ([\d.]+) ms in heat)?$", re.M)
TOOLS = ("memcheck", "racecheck")
FIRST = ("rms_norm", "attention_grad_keys", "adamw8bit")  # what is run first; a dry run compiles one of them


def read(text: str) -> list[dict]:
    """Returns a row for the program, and one for each of its launches if there are several."""
    wrong, compared = CHECK.search(text).groups() if CHECK.search(text) else (None, None)
    if wrong is None:
        raise ValueError("no line that begins with 'check:'")
    rows = []
    for name, ms, predicted, gbps, tflops, hot in BENCH.findall(text):
        row = {"ms": float(ms)}
        if predicted:
            row.update(predicted_ms=float(predicted), ratio=float(predicted) / max(float(ms), 1e-4))
        if gbps:
            row["gbps"] = float(gbps)
        if tflops:
            row["tflops"] = float(tflops)
        if hot:
            row["heat_ms"] = float(hot)
        if name == "bench:":
            row.update(wrong=int(wrong), compared=int(compared))
        else:
            row["item"] = "- " + name.strip()
        rows.append(row)
    return rows or [{"wrong": int(wrong), "compared": int(compared)}]


def note_predictions(report: Report) -> None:
    ratios = [row["ratio"] for row in report.rows if "ratio" in row and not row["item"].startswith("-")]
    if ratios:
        near = sum(0.9 <= ratio <= 1.1 for ratio in ratios)
        report.notes.append(f"predicted / measured: median {statistics.median(ratios):.2f}; "
                            f"{near} of {len(ratios)} within 10%")


def programs_of(folder) -> dict:
    """Returns the extracted kernels of a folder as name -> source, options. The second line of an
    extracted kernel says how to compile it."""
    made = {}
    for source in sorted(folder.glob("*.cu")):
        with open(source, encoding="utf-8") as file:
            options = re.match(r"// *nvcc (.*) -gencode=", file.read(1000).split("\n")[1])[1].split()
        made[f"{folder.name}-{source.stem}"] = (source, options)
    order = [f"{folder.name}-{name}" for name in FIRST if f"{folder.name}-{name}" in made]
    return {name: made[name] for name in [*order, *sorted(made.keys() - set(order))]}


def programs(data) -> dict:
    """Returns the programs that the section runs: name -> source, options."""
    return {**programs_of(data / "kernels"), "copy": (data / "src/copy.cu", ["-O2", "-std=c++17"]),
            **programs_of(data / "small")}


def run(session) -> Report:
    report = Report(session, "kernels", {
        "item": "kernel", "wrong": "wrong", "compared": "of", "ms": "ms", "predicted_ms": "predicted ms",
        "ratio": "predicted / measured", "gbps": "GB/s", "of_copy": "of copy speed", "tflops": "TFLOP/s",
        "sm_mhz": "SM MHz", "watts": "W", "heat_ms": "ms in heat", "heat_sm_mhz": "MHz in heat", "heat_watts": "W in heat"})
    kernels, small = (programs_of(session.data / name) for name in ("kernels", "small"))
    has_sanitizer = session.dry or shutil.which("compute-sanitizer")
    if not has_sanitizer:
        report.notes.append("compute-sanitizer is not on this machine: neither memcheck nor racecheck ran")
    checks = [f"{tool} {name}" for tool in TOOLS for name in small] if has_sanitizer else []
    if why := session.why_not(everything=True):
        for item in report.items([*kernels, *checks]):
            report.skip(item, why)
        return report
    every = programs(session.data)
    missing = session.compile(every, 1)
    speed = 0.0

    def speeds(text: str) -> list[dict]:
        nonlocal speed
        speed = max(row["gbps"] for row in json_lines(text))
        return [{"gbps": speed, "of_copy": 1.0}]

    if "copy" not in missing:
        report.run("copy", [session.program("copy")], speeds)

    def rated(text: str) -> list[dict]:
        return [{**row, "of_copy": row["gbps"] / speed} if "gbps" in row and speed else row
                for row in read(text)]

    for item in report.items([*kernels, *checks], seconds=10):
        tool, _, name = item.rpartition(" ")
        if name in missing:
            if name not in report.failed:
                report.skip(item, missing[name])
            continue
        program = session.program(name)
        if tool:
            report.run(item, ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", program,
                              "check"], read, limit=120, source=every[name][0])
        else:
            report.run(item, [program], rated, limit=120, source=every[name][0])
    note_predictions(report)
    return report

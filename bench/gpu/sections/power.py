"""Clock and power by phase: each kind of work of llama1b for four seconds, and then whole steps. The product runs three
times: on standard normals, on zeros and on the weights of a trained model, because a GPU draws less power where fewer
bits change."""

import json

from sections import kernels
from sections.ceilings import cublaslt
from sections.training import bench_command, benched
from session import Report, json_lines

SECONDS = 4
PRODUCT = "mlp.gate_proj+up_proj forward"
VALUES = {"": "normals", ", zeros": "zeros", ", trained weights": "trained.bf16"}
KERNELS = {"attention": "attention", "gradient of attention": "attention_grad_keys", "swiglu_grad": "swiglu_linear_grad_rows",
           "adamw": "adamw"}
STEPS = 10


def programs(data) -> dict:
    """Returns the programs that the section runs: name -> source, options."""
    every = kernels.programs_of(data / "kernels")
    named = {name: every.get(f"kernels-{name}") for name in KERNELS.values()}
    missing = [name for name, program in named.items() if not program]
    if missing:
        raise ValueError(f"there is no kernel {', '.join(missing)}; there are {', '.join(sorted(every))}")
    return {"gemm": (data / "src/gemm.cu", ["-O2", "-std=c++17"]),
            **{f"kernels-{name}": program for name, program in named.items()}}


def held(text: str) -> list[dict]:
    """Returns the row of an extracted kernel that was held."""
    return [{"ms": float(next(line for line in text.splitlines() if line.startswith("held: ")).split()[1])}]


def run(session) -> Report:
    report = Report(session, "power", {
        "item": "work", "ms": "ms", "tflops": "TFLOP/s", "tokens_per_second": "tokens/s", "sm_mhz": "SM MHz",
        "watts": "W"})
    why = session.why_not(everything=True)
    missing = {} if why else session.compile(programs(session.data), 1)
    jobs = [job for job in json.loads((session.data / "training/jobs.json").read_text())
            if job["name"].startswith("llama1b lmc MBS 16") and job["gas"] < 8]
    products = {PRODUCT + name: values for name, values in VALUES.items()}
    steps = {f"steps of {job['name']}": job for job in jobs}
    for item in report.items([*products, *KERNELS, *steps], seconds=SECONDS + 4):
        name = "gemm" if item in products else f"kernels-{KERNELS.get(item)}"
        if why or name in missing:
            if name not in report.failed:
                report.skip(item, why or missing[name])
        elif item in products:
            shape = next(each for each in json.loads((session.data / "gemms.json").read_text())
                         if each["name"] == PRODUCT)
            line = (f"product {shape['m']} {shape['n']} {shape['k']} {int(shape['transpose_a'])} "
                    f"{int(shape['transpose_b'])} {shape['result_dtype']} 0\n")
            values = products[item]
            values = str(session.data / values) if values.endswith(".bf16") else values
            report.run(item, [session.program(name), "hold", SECONDS, values], lambda text: [
                {"ms": row["held_ms"], "tflops": row["held_tflops"]} for row in json_lines(text)],
                limit=40, stdin=line, env=cublaslt(session))
        elif item in KERNELS:
            report.run(item, [session.program(name), "hold"], held, limit=40)
        else:
            job = steps[item]
            command = bench_command(session, session.data / "training" / job["plan"], STEPS)
            report.run(item, command, lambda text, job=job: [benched(text, job)], limit=120)
    return report

"""What moves bytes beside products, in heat: cross entropy over llama1b's 131,072 words with each way to read a long row
again (`lmc compile --long-rows`), and the residual, which the products of o_proj and down_proj add, or the norm behind
them."""

from sections import kernels
from sections.ceilings import cublaslt
from session import Report, json_lines

LONG_ROWS = ("shared", "alone", "again")
TOKENS = 32768
# Of a layer: columns of the result and of the input.
PRODUCTS = {"o_proj": (2048, 2048), "down_proj": (2048, 8192)}


def extracted(data) -> dict:
    return {name.removeprefix("streams-"): how for name, how in kernels.programs_of(data / "streams").items()}


def programs(data) -> dict:
    """Returns the programs that the section runs: name -> source, options."""
    return {"gemm": (data / "src/gemm.cu", ["-O2", "-std=c++17"]), **kernels.programs_of(data / "streams")}


def run(session) -> Report:
    report = Report(session, "streams", {
        "item": "work", "wrong": "wrong", "compared": "of", "ms": "ms", "predicted_ms": "predicted ms", "gbps": "GB/s",
        "heat_ms": "ms in heat", "tflops": "TFLOP/s in heat", "sm_mhz": "SM MHz", "watts": "W",
        "heat_sm_mhz": "MHz in heat", "heat_watts": "W in heat"})
    why = session.why_not(everything=True)
    missing = {} if why else session.compile(programs(session.data), 1)
    found = extracted(session.data)
    products = {f"{name}{how}": (shape, adds) for name, shape in PRODUCTS.items()
                for how, adds in (("", 0), (" with residual", 2))}
    for item in report.items([*found, *products], seconds=10):
        name = "gemm" if item in products else f"streams-{item}"
        if why or name in missing:
            if name not in report.failed:
                report.skip(item, why or missing[name])
        elif item in products:
            (columns, depth), adds = products[item]
            report.run(item, [session.program(name)], lambda text: [
                {"heat_ms": row["best_ms"], "tflops": row["best_tflops"], "ms": row["alone_ms"]}
                for row in json_lines(text)], limit=40,
                stdin=f"product {TOKENS} {columns} {depth} 0 1 bf16 {adds}\n", env=cublaslt(session))
        else:
            report.run(item, [session.program(name)], kernels.read, limit=60, source=found[item][0])
    times = {row["item"]: row["heat_ms"] for row in report.rows if row.get("heat_ms") and row.get("wrong", 0) == 0}
    rows = {item: ms for item, ms in times.items() if item.startswith("cross_entropy")}
    if rows:
        best = min(rows, key=rows.get)
        report.notes.append(f"fastest in heat: {best}; " + ", ".join(
            f"{item} {ms / rows[best]:.3f} of it" for item, ms in rows.items() if item != best))
    if {"norm", "norm_of_a_sum", *products} <= times.keys():
        folded = sum(times[f"{name} with residual"] for name in PRODUCTS) + 2 * times["norm"]
        apart = sum(times[name] for name in PRODUCTS) + 2 * times["norm_of_a_sum"]
        report.notes.append(f"the residual by the products: {folded / apart:.4f} of the time of o_proj, down_proj and the "
                            "norms behind them")
    return report

"""Products of llama1b's MLP with SwiGLU in their epilogues (`swiglu_gemm.cuh`) beside cuBLASLt and the elementwise
kernels, in heat: whether they are worth a place in plans. They are for sm_90a alone."""

from sections.ceilings import cublaslt
from session import Report, json_lines

WORTH = 0.95  # of cuBLASLt's rate


def programs(data) -> dict:
    """Returns the program that the section runs: name -> source, options."""
    return {"products": (data / "src/products.cu", ["-O2", "-std=c++17"])}


def run(session) -> Report:
    report = Report(session, "products", {
        "item": "product", "with": "with", "by": "by", "ms": "ms", "heat_ms": "ms in heat",
        "heat_tflops": "TFLOP/s in heat", "error": "error", "right": "right", "sm_mhz": "SM MHz", "watts": "W",
        "heat_sm_mhz": "MHz in heat", "heat_watts": "W in heat"})
    why = session.why_not(everything=True)
    if not why and session.manifest["arch"] != "sm_90a":
        why = f"products of warpgroups are for sm_90a, and the folder is packed for {session.manifest['arch']}"
    missing = {} if why else session.compile(programs(session.data), 1)
    for item in report.items(["gated MLP"], seconds=20):
        if why or missing:
            if "products" not in report.failed:
                report.skip(item, why or missing["products"])
            continue
        report.run(item, [session.program("products")], lambda text: [
            {"item": row.pop("product"), **row} for row in json_lines(text)], limit=120, env=cublaslt(session),
            source=session.data / "src/products.cu")
    times = {(row["item"], row["with"], row["by"]): row["heat_ms"] for row in report.rows if row.get("right")}
    for by in dict.fromkeys(by for _, _, by in times if by != "cuBLASLt"):
        plain = [times.get(("gate_up", "nothing", name)) for name in ("cuBLASLt", by)]
        sums = [[times.get((product, "swiglu", name)) for product in ("gate_up", "down gradient")]
                for name in ("cuBLASLt", by)]
        if all(plain) and all(sum(sums, [])):
            ratio, saved = plain[0] / plain[1], sum(sums[0]) - sum(sums[1])
            report.notes.append(
                f"{by}: {ratio:.3f} of cuBLASLt's rate without SwiGLU ({'at least' if ratio >= WORTH else 'below'} {WORTH}); "
                f"with it a layer takes {saved:.3f} ms less of {sum(sums[0]):.3f}")
    return report

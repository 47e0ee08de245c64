"""`./dev gpu pack`, and what its folder's `run` does on machines without a GPU."""

import json
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jobs import Job
from programs import losses, until

SECTIONS = ("smoke", "conformance", "ceilings", "training", "experts", "power", "streams", "products", "steps", "kernels", "gemm",
            "attention")
LIMIT_BYTES = 60e6
# `./dev test long` runs all tests of this file; what takes long in them is left out elsewhere: the plans of a second
# architecture, most faults of a machine, and the bets.
LONG = "LMC_GPU_LONG" in os.environ
only_long = pytest.mark.skipif(not LONG, reason="takes long: ./dev test long runs it")

# Stand-ins for the programs of a machine with a GPU. nvcc makes programs that print what the real
# ones would; two kernels are wrong, and one does not compile.
NVIDIA_SMI = r"""#!/bin/bash
case "$*" in
  -q*) echo "Product Name : NVIDIA H100 80GB HBM3" ;;
  *-lms*) while true; do echo "1755, 650.5, 40000"; sleep 0.05; done ;;
  *) echo "NVIDIA H100 80GB HBM3, 580.65.06, ${CAPABILITY:-9.0}, 81559 MiB, 700.00 W, 1980 MHz, 2619 MHz" ;;
esac
"""
NVCC = r"""#!/bin/bash
[ "$1" = --version ] && { echo "Cuda compilation tools, release 13.0, V13.0.88"; exit 0; }
while [ $# -gt 0 ]; do [ "$1" = -o ] && to=$2; shift; done
say() { printf '#!/bin/bash\n%s\n' "$1" > "$to"; chmod +x "$to"; }
case $(basename "$to") in
  copy) say "echo '{\"copy\": \"kernel\", \"ms\": 1.5, \"gbps\": 3000.0}'" ;;
  gemm) say "[ \$# = 0 ] || { echo \"{\\\"gemm\\\": \\\"x\\\", \\\"held_ms\\\": 1.0, \\\"held_tflops\\\": 7\${#3}0.0}\"; exit; }
echo '{\"gemm\": \"x\", \"algorithms\": 8, \"first_ms\": 1.2, \"best_ms\": 1.0, \"best\": 3, \"first_tflops\": 600.0, \"best_tflops\": 720.0, \"alone_ms\": 0.9}'" ;;
  products) say "for by in cuBLASLt 'own 256x4'; do for what in 'gate_up 2.0 nothing' 'gate_up 3.0 swiglu' 'down 1.5 swiglu'; do
set -- \$what; [ \$1 = down ] && name='down gradient' || name=gate_up
[ \"\$by\" = cuBLASLt ] && ms=\$2 || ms=2.05
echo \"{\\\"product\\\": \\\"\$name\\\", \\\"with\\\": \\\"\$3\\\", \\\"by\\\": \\\"\$by\\\", \\\"ms\\\": \$ms, \\\"heat_ms\\\": \$ms, \\\"heat_tflops\\\": 700.0, \\\"error\\\": 0.001, \\\"right\\\": true}\"
done; done" ;;
  instructions) say "echo 'mma: 0 of 128 words wrong'" ;;
  attention-*) say "echo '{\"kernel\": \"forward\", \"tile\": \"128x64r\", \"registers\": 128, \"local_bytes\": 0, \"blocks_per_sm\": 2, \"ms\": 0.5, \"tflops\": 250.0, \"heat_ms\": 0.6, \"heat_tflops\": 208.3, \"error\": 0.002, \"right\": true}'
echo '{\"kernel\": \"nothing\", \"tile\": \"\", \"ms\": 0.5, \"tflops\": 0.0, \"error\": null, \"right\": false}'" ;;
  kernels-adamw8bit) echo "adamw8bit.cu(7): error: expected a ;" >&2; exit 2 ;;
  kernels-norm) say "echo 'norm is broken' >&2; exit 3" ;;
  kernels-linear_swiglu_rows) say "echo 'check: 7 of 9 elements wrong, largest difference 1e+01'; exit 1" ;;
  *) say "echo 'check: 0 of 4096 elements wrong, largest difference 0.001'
[ \"\$1\" = hold ] && echo 'held: 0.1250 ms'
[ \$# = 1 ] || echo 'bench: 0.1000 ms, predicted 0.0950 ms, 2400.0 GB/s, 1.500 TFLOP/s, 0.1200 ms in heat'" ;;
esac
"""
COMPUTE_SANITIZER = r"""#!/bin/bash
[ "$1" = --tool ] && [ "$3" = --error-exitcode ] && exec "${@:5}"
exit 1
"""


# lmc-run on a device that computes what was recorded when the folder was packed, unless a fault is planted.
LMC_RUN = r"""#!/usr/bin/env python3
import json, os, shutil, struct, sys, time
from datetime import datetime, timezone
from pathlib import Path

fault = os.environ.get("FAULT", "")
if "--devices" in sys.argv:
    device = {"name": "NVIDIA H100", "compute_capability": os.environ.get("CAPABILITY", "9.0"), "memory_bytes": 2**36,
              "memory": {"bytes": 2**26, "seconds": 0.01, "ok": fault != "memory of the device"}}
    print(json.dumps({"cuda_driver": "13.0", "devices": [device], "libraries": {"nccl": {"version": "2.28.3"}}}))
    sys.exit(0)
plan = Path(sys.argv[1])
options = dict(argument[2:].partition("=")[::2] for argument in sys.argv[2:])
if "bench" in options:
    assert "--set=data.train=[]" in sys.argv and "--set=data.validation=[]" in sys.argv
    rate = {"default": 6e4, "measure": 6.6e4, None: 1e5}[options.get("gemm")]
    if fault == "hang of MBS 64" and "1b-64" in plan.name:
        time.sleep(600)
    if "trace" in options:
        # Of each product's four commands one takes half as long as the two in the middle, and one nine times.
        job = next(job for job in json.loads((plan.parent / "jobs.json").read_text()) if job["plan"] == plan.name)
        events = [{"ph": "M", "name": "process_name", "args": {}},
                  {"ph": "X", "cat": "function", "name": "micro", "ts": 1.0, "dur": 9000.0, "args": {}}]
        for kind, kernel, dur in (("gemm", "", 4000.0), ("LinearSwiglu", "linear_swiglu_rows", 600.0),
                                  ("SwigluLinearGrad", "swiglu_linear_grad_rows", 400.0), ("attention_grad", "attention_grad_keys", 900.0),
                                  ("launch", "linear_cross_entropy_grad", 100.0), ("launch", "rms_norm_grad", 70.0),
                                  ("launch", "rope", 10.0)):
            events.append({"ph": "X", "cat": kind, "name": "x", "ts": 1.0, "dur": dur, "args": {"kernel": kernel}})
        for number, (name, product) in enumerate(job.get("products", {}).items()):
            us = product["flops"] / (200e6 + 20e6 * number)
            kind = ("ExpertLinearGrad" if "matrices" in name else
                    "ExpertScaledLinear" if "fp8" in job["model"] else "ExpertLinear")
            for (function, command), factor in zip(product["commands"], (9, 1, 0.5, 1)):
                for category, dur in ((kind, factor * us), ("Launch", 7.0)):
                    events.append({"ph": "X", "cat": category, "ts": 1.0, "dur": dur, "args": {
                        "function": function, "command": command, "predicted_us": us / 2}})
        if fault == "trace":
            events = [event for event in events if event.get("cat") != "ExpertLinearGrad"]
        Path(options["trace"]).write_text(json.dumps({"traceEvents": events}))
    print(json.dumps({"tokens_per_second": rate, "step_seconds": {"median": 32768 / rate},
                      "loss": 13.0 if fault == "loss of MBS 64" and "1b-64" in plan.name else 12.0,
                      "memory": {"planned_bytes": 2**30, "allocated_bytes": 2**30},
                      "products": {
                          "bf16>bf16 64x352x64 b^T align 16/16/16/16 workspace 45056 swiglu by 4a or 5b": {
                              "implementation": "lmc swiglu_gemm", "seconds": 0.0045},
                          "bf16>bf16 64x96x64 align 16/16/16/16 workspace 0 of 4 experts by 6c or 7d": {
                              "implementation": "lmc expert_gemm", "seconds": 0.001},
                          "bf16>bf16 64x96x64 align 16/16/16/16 workspace 0": {
                              "implementation": "cuBLASLt proposal 1 of 8", "seconds": 0.001}}}, indent=2))
    sys.exit()
if "compare-commands" in options:
    wrong = 0
    for line in Path(options["compare-commands"]).read_text().splitlines()[1:]:
        row = json.loads(line)
        row["difference"] = 0.5 if row["kernel"] == fault else 1e-6
        row["ok"] = row["difference"] < float(options["tolerance"])
        wrong += not row["ok"]
        print(json.dumps(row))
    sys.exit("lmc-run: error: a command differs" if wrong else 0)
if fault == "launch":
    if "check-commands" in options:
        sys.exit("lmc-run: error: command 12 of micro, launch layers.0/mlp: CUDA_ERROR_ILLEGAL_ADDRESS")
    sys.exit("lmc-run: error: CUDA_ERROR_ILLEGAL_ADDRESS")
out, steps = Path(options["out"]), int(options["steps"])
folder = plan.parent if (plan.parent / "jobs.json").exists() else plan.parent.parent
jobs = json.loads((folder / "jobs.json").read_text())
job = next(job for job in jobs if job.get("plan", job["name"] + ".plan") == plan.name)
if fault == "hang" and "MBS 64" in job["name"]:
    part = Path(os.environ["OUT"], "pid.part")
    part.write_text(str(os.getpid()))
    part.rename(part.with_suffix(""))
    time.sleep(600)
losses = job.get("losses") or [job.get("loss") or 12.0] * steps
print("memory: 1.50 GiB allocated in 2 arena(s), 1.50 GiB planned")
print("graph: micro_last has 400 nodes, captured in 0.02 s\ngraph: optimizer has 22 nodes, captured in 0.01 s")
isEager, resumes = "no-cuda-graphs" in options, (out / "metrics.jsonl").exists()
if "losses" in job:
    assert options["gemm"] == "default"
out.mkdir(parents=True, exist_ok=True)
planned = job.get("others", {}).get(plan.parent.name, job.get("planned_bytes", 2**30))
with open(out / "metrics.jsonl", "a") as file:
    for step in range(steps // 2 if resumes else 0, steps - (1 if fault == "short" and isEager else 0)):
        loss = losses[step] * (1 + (1e-7 if fault == "graphs" and isEager and step else 0))
        loss *= 1 + (1e-3 if fault == "loss" and step == 2 else 0)
        file.write(json.dumps({"step": step + 1, "loss": loss, "grad_norm": 1.5, "tokens_per_second": 7e4,
            "step_seconds": 0.25, "time": datetime.now(timezone.utc).isoformat().replace("+00:00", "Z"),
            "memory_bytes": (planned if "losses" in job else 2**30) + (256 if fault == "memory" else 0)}) + "\n")
if "losses" in job:
    reference = folder / job["reference"]
    kept = out / f"checkpoints/{steps}"
    kept.mkdir(parents=True, exist_ok=True)
    shutil.copy(f"{reference}.model.safetensors", kept / "model.safetensors")
    if fault == "resume" and resumes:
        data = (kept / "model.safetensors").read_bytes()
        (kept / "model.safetensors").write_bytes(data[:-4] + bytes(4))
    if "dump-gradients" in options:
        data = Path(f"{reference}.gradients.safetensors").read_bytes()
        if fault == "gradients":
            data = data[:-4] + struct.pack("<f", float("nan"))
        Path(options["dump-gradients"]).write_bytes(data)
"""
PEER = r"""
import json, sys
if sys.argv[1:] == ["--probe"]:
    print(json.dumps({"torch": "2.11.0", "sees_the_gpu": True}))
    sys.exit()
mode, mbs = sys.argv[sys.argv.index("--mode") + 1], int(sys.argv[sys.argv.index("--mbs") + 1])
if mbs == 32:
    sys.exit("torch.OutOfMemoryError: CUDA out of memory.")
print(json.dumps({"tokens_per_second": 5e4 + mbs + (1e4 if mode == "compile" else 0), "step_ms": 500.0,
                  "first_step_s": 30.0, "loss": 12.0, "torch": "2.11.0", "cuda": "13.0"}))
"""
GROUPED = r"""
import json, sys
if sys.argv[1:] == ["--probe"]:
    print(json.dumps({"torch": "2.11.0", "sees_the_gpu": True, "lacks": None}))
    sys.exit()
assert json.loads(sys.argv[1]) == {"rows": 131072, "experts": 64, "hidden": 2048, "intermediate": 1024}
for counts, tflops in (("balanced", 500.0), ("skewed", 400.0)):
    for name in ("gate_up", "down"):
        for what in ("forward", "gradient of x", "gradient of the matrices"):
            print(json.dumps({"product": f"{name} {what}", "counts": counts, "ms": 1.5, "tflops": tflops,
                              "largest": 2100, "torch": "2.11.0", "cuda": "13.0"}))
"""


@pytest.fixture(scope="module")
def packed(programs, root, tmp_path_factory):
    cache = (programs.build / "CMakeCache.txt").read_text()
    if not re.search("^LMC_NVRTC_INCLUDE:PATH=/", cache, re.M):
        pytest.skip("built without NVRTC, which compiles the plans")
    if not (programs.build / "lib/libcuda-host.so").exists():
        pytest.skip("the host driver is not built: there are no headers of CUDA")
    folder = tmp_path_factory.mktemp("pack") / "gpu"
    command = [sys.executable, root / "bench/gpu/pack.py", folder, "--no-programs",
               "--also=sm_80" if LONG else "--also="]
    done = subprocess.run(command, capture_output=True, text=True,
                          env={**os.environ, "LMC_BUILD_DIR": str(programs.build)})
    assert done.returncode == 0, done.stderr
    print(done.stdout)
    return folder


def run(folder, *args, env=None, **options):
    return subprocess.run([folder / "run", *map(str, args)], capture_output=True, text=True,
                          env={**os.environ, **(env or {})}, **options)


def assert_dry(results: Path, sections) -> None:
    """No file of a dry run has a figure, or a name that a measurement would have."""
    assert sorted(path.name for path in results.iterdir()) == sorted(
        f"dry-run-{section}.{kind}" for section in sections for kind in ("json", "md"))
    for section in sections:
        report = json.loads((results / f"dry-run-{section}.json").read_text())
        assert report["dry_run"] and report["finished"]
        assert not report["failed"] and not report["not_run"] and not report["skipped"]
        assert report["rows"] and all(row.keys() == {"item"} for row in report["rows"])
        assert "DRY RUN, nothing was measured" in (results / f"dry-run-{section}.md").read_text()


def test_a_pack_is_small_and_needs_no_cuda(packed, tmp_path):
    # Another test may have unpacked libraries and data.
    brought = [path for path in packed.rglob("*") if path.is_file() and not path.is_relative_to(packed / "build") and
               not path.with_name(f"{path.name}.xz").exists()]
    assert 10e6 < sum(path.stat().st_size for path in brought) < LIMIT_BYTES
    assert run(packed, "training", "--dry-run", f"--out={tmp_path}").returncode == 0  # unpacks the large libraries
    listed = subprocess.run(["ldd", packed / "bin/lmc-run"], capture_output=True, text=True, check=True).stdout
    print(listed)
    assert "not found" not in listed
    assert not re.search("cuda|cublas|nvrtc|nccl|LLVM|MLIR", listed)
    # All libraries but glibc's come from the folder, also those that libraries link.
    outside = [line for line in listed.splitlines() if "=>" in line and str(packed) not in line]
    assert all(re.match(r"\s*lib(c|m|dl|rt|pthread)\.so", line) for line in outside), outside


def test_a_dry_run_measures_nothing(packed, root, tmp_path):
    """If this machine has nvcc, one program of each section is compiled, unless an earlier run has compiled the same
    text (test/data/nvcc)."""
    path = os.environ["PATH"]
    if shutil.which("nvcc", path=f"{path}:/usr/local/cuda/bin"):
        path = f"{root / 'test/data/nvcc'}:{path}"
    out = tmp_path / "results"
    done = run(packed, "--dry-run", f"--out={out}", env={"PATH": path})
    print(done.stdout)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("DRY RUN: no GPU is used, and nothing is measured\n")
    assert done.stdout.endswith("DRY RUN: all sections were gone through\n")
    assert_dry(out, SECTIONS)
    assert "DRY RUN: nothing was measured, so nothing is compared with what was expected\n" in done.stdout
    assert_every_item_has_a_bet(packed, out)


def assert_every_item_has_a_bet(packed: Path, results: Path) -> None:
    """Every item that the sections would run has a bet, or a reason why nobody bets on it, and no bet is about
    something that no section runs."""
    expected = json.loads((packed / "expected.json").read_text())
    without = {each["section"] for each in expected["no_bets"] if each["figure"] == "*"}
    for section in set(SECTIONS) - without:
        runs = {row["item"] for row in json.loads((results / f"dry-run-{section}.json").read_text())["rows"]}
        bets = {bet["run"] for bet in expected["bets"] if bet["section"] == section}
        how = "run ./dev gpu expected"
        assert not runs - bets, f"nobody bets on {sorted(runs - bets)}: {how}"
        # A dry run of `conformance` is of some jobs only.
        assert section == "conformance" or not bets - runs, f"nothing runs {sorted(bets - runs)}: {how}"
    for bet in expected["bets"]:
        assert bet.get("no_bet") or bet["rule"] in expected["rules"], bet
        for value in bet.get("by", {}).values():
            assert value["low"] <= value["prediction"] <= value["high"], bet


@pytest.fixture
def host(programs, tmp_path):
    """The environment of a dry run on the stand-ins for the driver, cuBLASLt and NCCL. nvcc is one, too."""
    names = {"LMC_CUDA_DRIVER": "cuda", "LMC_CUBLASLT": "cublaslt", "LMC_NCCL": "nccl"}
    libraries = {variable: str(programs.build / f"lib/lib{name}-host.so") for variable, name in names.items()}
    if not Path(libraries["LMC_NCCL"]).exists():
        pytest.skip("the stand-in for NCCL is not built: there is no header of NCCL")
    (tmp_path / "nvcc").mkdir()
    (tmp_path / "nvcc/nvcc").write_text(NVCC.replace("kernels-adamw8bit)", "none)"))
    (tmp_path / "nvcc/nvcc").chmod(0o755)
    return {**libraries, "PATH": f"{tmp_path / 'nvcc'}:{os.environ['PATH']}"}


def test_a_dry_run_trains_on_the_host_driver(packed, host, tmp_path):
    done = run(packed, "smoke", "--dry-run", f"--out={tmp_path / 'out'}", env=host)
    assert done.returncode == 0, done.stdout + done.stderr
    for item in ("context", "memory", "kernel linear_swiglu", "kernel attention (plain)", "kernel attention",
                 "product NT, bias, bf16", "product TN, adds, f32", "graph", "nccl", "step", "step in bf16"):
        assert f"  ok  {item}\n" in done.stdout
    items = [*(f"tiny-f32-gas2 {name}" for name in ("graphs", "eager", "resumed")), "biases-bf16-gas4 graphs",
             "two-ranks-f32 graphs", "nccl-f32-gas2 graphs"]
    if not LONG:
        items = items[3:]
    done = run(packed, "conformance", "--dry-run", f"--from={items[0]}", f"--out={tmp_path / 'out'}", env=host)
    assert done.returncode == 0, done.stdout + done.stderr
    for item in items:
        assert f"  {item}: agrees, on the stand-in for the driver\n" in done.stdout
    assert_dry(tmp_path / "out", ["smoke", "conformance"])


@only_long
def test_a_dry_run_on_another_architecture(packed, host, tmp_path):
    """Smoke has plans for it."""
    done = run(packed, "smoke", "gemm", "--dry-run", f"--out={tmp_path / 'out'}",
               env={**host, "LMC_HOST_ARCH": "86"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "  ok  kernel attention\n" in done.stdout and "  ok  step in bf16\n" in done.stdout
    report = json.loads((tmp_path / "out/dry-run-gemm.json").read_text())
    assert not report["rows"] and all(why.startswith("it is packed for sm_90a, and the ")
                                      for why in report["skipped"].values())


def test_smoke_has_every_template(packed, root, tmp_path):
    """Each hero, and each kernel of the embedding's gradient, attention and initial values that the code generators
    can emit is in a plan of smoke."""
    assert run(packed, "smoke", "--dry-run", f"--out={tmp_path}").returncode == 0  # unpacks the data
    (data,) = (packed / "build").glob("data-????????")
    jobs = json.loads((data / "smoke/jobs.json").read_text())
    cuda = root / "compiler/targets/cuda"
    sources = {path.name.removesuffix("Templates.cpp"): path.read_text()
               for path in (cuda / "templates").glob("*Templates.cpp")}
    hero = re.search(r"def Hero : .*?cppNamespace", (root / "dialects/kern/KernOps.td").read_text(), re.S)[0]
    heroes = {*re.findall(r'EnumAttrCase<"\w+", \d+, "(\w+)">', hero),
              *re.findall(r'kernel\.hero = "(\w+)"', "".join(sources.values())),
              *re.findall(
                  r'(?:return |, |\{|\n +)"((?:attention|expert)_\w+|(?:take|combine)_rows(?:_\w+)?|route(?:_\w+)?|swiglu_(?:gemm|rows)(?:_grad)?|swiglu_(?:grad_)?quantize\w*|norm_quantize_\w+|transpose|quantize_(?!blocks")\w+)"', "".join(sources.values()))}
    assert heroes >= {"gather", "attention_grad_keys", "scatter_add", "initializer"} and len(heroes) >= 9
    assert heroes == {hero for job in jobs for hero in job["heroes"]}
    names = {name for job in jobs for name in job["kernels"]}
    parts = {*re.findall(r'add\(name \+ "_(\w+)"', sources["ScatterAdd"]),
             *re.findall(r'add\(formatv\("\{0\}_(\w+)\{1\}"', sources["ScatterAdd"])}
    assert parts == {"ranges", "partials", "zeros", "count", "move"}
    assert all(any(re.search(rf"_{part}\d*$", name) for name in names) for part in parts), names
    kinds = re.search(r'def InitKind : .*?\]>', (root / "dialects/lm/LmOps.td").read_text(), re.S)[0]
    made = {kind.removesuffix("_of") for kind in re.findall(r'EnumCase<"\w+", \d+, "(\w+)">', kinds)}
    made -= {"none", "zeros", "ones"}  # no kernel, a memset, and a constant
    assert made == {"normal", "constant", "rope_cos", "rope_sin", "copy"}
    assert all(any(name.startswith(f"initialize_{kind}_") for name in names) for kind in made)
    # With tensor cores and without.
    attention = {job["name"]: bool(job["plain"]) for job in jobs}
    assert attention["f32"] and not attention["heads64"]


def test_without_a_gpu_one_line_says_so(packed):
    done = run(packed, "ceilings", env={"PATH": "/usr/bin:/bin", "LMC_CUDA_DRIVER": "/nowhere/libcuda.so"})
    if shutil.which("nvidia-smi", path="/usr/bin:/bin"):
        pytest.skip("this machine has nvidia-smi")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("run: error: there is no GPU to measure: exit code 1: lmc-run: error: ")
    assert "this machine has no CUDA driver (LMC_CUDA_DRIVER=/nowhere/libcuda.so: " in line
    assert line.endswith("; nvidia-smi: exit code 127: error: nvidia-smi cannot be started: No such file or directory; "
                         "--dry-run goes through the sections without one")
    assert run(packed, "ceiling").stderr.startswith("run: error: 'ceiling' is none of the sections smoke, ")


@pytest.fixture
def machine(tmp_path):
    """The environment of a machine with stand-ins for the GPU's programs."""
    bin = tmp_path / "bin"
    bin.mkdir()
    for name, text in (("nvidia-smi", NVIDIA_SMI), ("nvcc", NVCC), ("compute-sanitizer", COMPUTE_SANITIZER)):
        (bin / name).write_text(text)
        (bin / name).chmod(0o755)
    return {"PATH": f"{bin}:{os.environ['PATH']}", "OUT": str(tmp_path / "out")}


def reports(out: Path) -> dict[str, dict]:
    made = [json.loads(path.read_text()) for path in sorted(out.glob("gpu-*.json"))]
    return {report["section"]: report for report in made if report["section"] != "summary"}


def summary(out: Path) -> dict:
    (path,) = out.glob("gpu-summary-nvidia-h100-80gb-hbm3-*.json")
    assert path.with_suffix(".md").exists()
    return json.loads(path.read_text())


def test_reports_say_what_was_measured_and_what_was_wrong(packed, machine):
    done = run(packed, "ceilings", "kernels", "attention", "gemm", env=machine)
    print(done.stdout)
    assert done.returncode == 1
    assert done.stderr == "run: error: failed or not all run: kernels\n"
    lines = done.stdout.split("== summary\n")[1].splitlines()
    assert [re.sub(r" +[\d.]+ s ", "", line) for line in lines] == [
        "  ceilings ok", "  kernels failed 3", "  attention ok", "  gemm ok"]
    made = reports(Path(machine["OUT"]))
    kernels = made["kernels"]
    assert kernels["failed"] == {
        "kernels-adamw8bit": "does not compile: exit code 2: adamw8bit.cu(7): error: expected a ;",
        "kernels-norm": "exit code 3: norm is broken",
        "kernels-linear_swiglu_rows": "exit code 1: check: 7 of 9 elements wrong, largest difference 1e+01"}
    rows = {row["item"]: row for row in kernels["rows"]}
    # An item that ends before nvidia-smi prints a sample has no clock, power and memory.
    assert {"sm_mhz": 1755.0, "watts": 650.5, "used_mib": 40000.0, **rows["kernels-rms_norm"]} == {
        "item": "kernels-rms_norm", "ms": 0.1, "predicted_ms": 0.095, "ratio": 0.95, "gbps": 2400.0,
        "tflops": 1.5, "heat_ms": 0.12, "wrong": 0, "compared": 4096, "of_copy": 0.8, "sm_mhz": 1755.0, "watts": 650.5,
        "used_mib": 40000.0}
    assert rows["memcheck small-rms_norm"]["wrong"] == rows["racecheck small-attention"]["wrong"] == 0
    assert kernels["notes"][0].startswith("predicted / measured: median 0.95; ")
    for section, item, key, value in (("ceilings", "instruction mma", "wrong", 0),
                                      ("ceilings", "copy by kernel", "gbps", 3000.0),
                                      ("attention", "llama1b, MBS 16, 2048 tokens", "tflops", 250.0),
                                      ("gemm", "head, chunk 4096: wgrad, adds", "gain", 1.2)):
        row = next(row for row in made[section]["rows"] if row["item"] == item)
        assert row[key] == value and row.get("watts", 650.5) == 650.5
        assert made[section]["machine"]["power.limit"] == "700.00 W"
        assert made[section]["machine"]["driver_version"] == "580.65.06"
    assert any(row.get("watts") == 650.5 for each in made.values() for row in each["rows"])
    found = summary(Path(machine["OUT"]))
    assert found["spec"] == "h100-sxm" and found["machine"]["power.limit"] == "700.00 W"
    assert found["sections"]["kernels"]["not_measured"] > 0  # those that failed
    copy = next(each for each in made["ceilings"]["expected"] if each["figure"] == "gbps")
    assert copy["item"] == "copy by kernel" and copy["measured"] == 3000.0 and copy["outside"] == 1
    # 720 TFLOP/s is what was expected; 1 ms for each product is not.
    products = {each["item"]: each for each in made["gemm"]["expected"] if each["figure"] == "best_ms"}
    assert products["mlp.gate_proj+up_proj forward"]["outside"] == pytest.approx(
        products["mlp.gate_proj+up_proj forward"]["low"] / 1.0)
    worst = found["worst"]
    assert len(worst) == 5 and len({(each["section"], each["item"], each.get("kernel")) for each in worst}) == 5
    degrees = [float(each["outside"]) for each in worst]
    assert degrees == sorted(degrees, reverse=True) and degrees[0] > 10
    lines = done.stdout.split("== expected\n")[1].split("== summary")[0].splitlines()
    assert len(lines) == 6 and lines[0].startswith(f"  {worst[0]['section']}: {worst[0]['item']}")
    text = next(Path(machine["OUT"]).glob("gpu-gemm-*.md")).read_text()
    assert "Measured beside expected" in text and "OUTSIDE" in text and "inside" in text
    assert not any(row.get("kernel") == "nothing" for row in made["attention"]["rows"])
    # What is needed to mend a failure elsewhere.
    wrong = failure(machine, "kernels-kernels-linear_swiglu_rows")
    assert wrong["ended"] == "exit code 1" and wrong["stdout"].startswith("check: 7 of 9 elements wrong")
    assert wrong["kernel"] == "linear_swiglu_rows" and "__global__" in wrong["source"]
    (program,) = wrong["inputs"]
    assert program["file"] == wrong["command"][0] and re.fullmatch("[0-9a-f]{64}", program["sha256"])
    assert wrong["device"]["nvidia_smi"] == "Product Name : NVIDIA H100 80GB HBM3\n"
    assert wrong["machine"]["commit"] and wrong["limit_seconds"] == 120 and "PATH" in wrong["variables"]
    assert "expected a ;" in failure(machine, "kernels-kernels-adamw8bit")["stderr"]


def failure(environment: dict, name: str) -> dict:
    path = Path(environment["OUT"]) / f"failures/{name}.json"
    assert path.stat().st_size <= 1_000_000
    return json.loads(path.read_text())


def test_a_failure_report_has_at_most_a_megabyte(root):
    failures = runpy.run_path(str(root / "bench/gpu/failures.py"))
    facts = {"stdout": "a" * 3_000_000 + "the end", "stderr": "\u20ac" * 400_000, "lines": ["b" * 600_000, "short"],
             "why": "exit code 1"}
    text = failures["fit"](facts)
    short = json.loads(text)
    assert 200_000 < len(text) <= 1_000_000 and short["why"] == "exit code 1" and short["lines"][1] == "short"
    assert short["stdout"].endswith("the end") and "characters are left out" in short["stdout"]
    assert len(failures["fit"]({str(i): "x" * 100 for i in range(20_000)})) <= 1_000_000


@pytest.fixture(scope="module")
def unpacked(packed, tmp_path_factory) -> Path:
    """The packed folder's data, unpacked."""
    out = tmp_path_factory.mktemp("unpacked")
    assert run(packed, "training", "--dry-run", f"--out={out}", env=NO_HOST).returncode == 0
    (data,) = (packed / "build").glob("data-????????")
    return data


@pytest.fixture
def stand_in(packed, unpacked, tmp_path):
    """The packed folder, with stand-ins for lmc-run and for the peer. A test may add files to its data, and must not
    write into those that are there: they are links."""
    folder = tmp_path / "gpu"
    folder.mkdir()
    shutil.copytree(unpacked, folder / "build" / unpacked.name, copy_function=os.link)
    for path in packed.iterdir():
        if path.name not in ("bin", "build", "results", "peer.py", "grouped.py", "run"):
            (folder / path.name).symlink_to(path)
    shutil.copy(packed / "run", folder)
    (folder / "bin").mkdir()
    (folder / "bin/lmc-run").write_text(LMC_RUN)
    (folder / "bin/lmc-run").chmod(0o755)
    (folder / "peer.py").write_text(PEER)
    (folder / "grouped.py").write_text(GROUPED)
    return folder


def test_clocks_take_whole_samples_only(root, machine, monkeypatch):
    """The end of the program may cut a line of nvidia-smi short; some GPUs do not measure all."""
    monkeypatch.syspath_prepend(str(root / "bench/gpu"))
    clocks = runpy.run_path(str(root / "bench/gpu/power.py"))["Clocks"]
    smi = Path(machine["PATH"].split(":")[0]) / "nvidia-smi"
    smi.write_text("#!/bin/bash\nprintf '1755, 650.5, 40000\\n1755, [N/A], 40000\\n1800, 6'\nexec sleep 60\n")
    with clocks(None, str(smi)) as sampled:
        deadline = time.monotonic() + 20
        while not sampled.samples and time.monotonic() < deadline:
            time.sleep(0.01)
    assert sampled.figures() == {"sm_mhz": 1755.0, "watts": 650.5, "used_mib": 40000.0}
    smi.write_text("#!/bin/bash\nprintf '1755, 650.5, 4'\nexec sleep 60\n")
    with clocks(None, str(smi)) as sampled:
        time.sleep(0.5)
    assert sampled.figures() == {}
    with clocks(None, None) as sampled:
        pass
    assert sampled.samples == [] and sampled.figures() == {} and sampled.groups("phase heat 1.0 2.0") == [{}]


def test_phases_have_their_own_clock_and_power(root):
    """Samples belong to the phase that they were taken in; those before the clock has settled count only if there are
    no others."""
    power = runpy.run_path(str(root / "bench/gpu/power.py"))
    clocks = power["Clocks"](None, None)
    clocks.samples = [(10 + 0.01 * i, 1980.0 if i < 20 else 1500.0, 200.0 if i < 20 else 700.0, 5.0) for i in range(60)]
    text = ("check: 0 of 9\nphase alone 10.0000 10.1900\nphase heat 10.1500 10.5900\nbench: 1 ms\n"
            "phase alone 10.1900 10.2100\nbench: 2 ms\nphase heat 99.0000 99.5000\n")
    assert clocks.groups(text) == [
        {"sm_mhz": 1980.0, "watts": 200.0, "heat_sm_mhz": 1500.0, "heat_watts": 700.0},
        {"sm_mhz": 1500.0, "watts": 700.0}, {}]


NVML = r"""
#include <stddef.h>
#if __has_include(<nvml.h>)
#include <nvml.h>
#else // as nvml.h of CUDA 13.0 declares them
typedef struct nvmlDevice_st *nvmlDevice_t;
typedef enum { NVML_SUCCESS = 0, NVML_ERROR_INVALID_ARGUMENT = 2, NVML_ERROR_NOT_SUPPORTED = 3,
               NVML_ERROR_UNKNOWN = 999 } nvmlReturn_t;
typedef enum { NVML_CLOCK_GRAPHICS = 0, NVML_CLOCK_SM = 1 } nvmlClockType_t;
typedef enum { NVML_VALUE_TYPE_DOUBLE = 0 } nvmlValueType_t;
typedef struct { unsigned int version; unsigned long long total, reserved, free, used; } nvmlMemory_v2_t;
#define nvmlMemory_v2 (unsigned int)(sizeof(nvmlMemory_v2_t) | (2 << 24U))
typedef union { double dVal; int siVal; unsigned int uiVal; unsigned long long ullVal; } nvmlValue_t;
typedef struct {
  unsigned int fieldId, scopeId;
  long long timestamp, latencyUsec;
  nvmlValueType_t valueType;
  nvmlReturn_t nvmlReturn;
  nvmlValue_t value;
} nvmlFieldValue_t;
#define NVML_FI_DEV_POWER_INSTANT 186
#endif
nvmlReturn_t nvmlInit_v2(void) { return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device) {
  *device = (nvmlDevice_t)(size_t)0x1234500000000ull;
  return index == 3 ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}
nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned *clock) {
  *clock = type == NVML_CLOCK_SM ? 1515 : 1;
  return device == (nvmlDevice_t)(size_t)0x1234500000000ull ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}
nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
  memory->used = 7ull << 30;
  return memory->version == nvmlMemory_v2 ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}
nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned *power) { return *power = 650500, NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values) {
  if (count != 1 || values->fieldId != NVML_FI_DEV_POWER_INSTANT)
    return NVML_ERROR_INVALID_ARGUMENT;
  values->nvmlReturn = INSTANT ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
  values->value.uiVal = 699000;
  return NVML_SUCCESS;
}
"""


@pytest.mark.parametrize("instant", (1, 0))
def test_nvml_is_asked_as_its_header_says(root, tmp_path, monkeypatch, instant):
    """A library of NVML's functions, compiled with NVIDIA's header where it is, gives what power.py reads."""
    include = os.environ.get("LMC_NVML_INCLUDE") or "/usr/local/cuda/include"
    (tmp_path / "nvml.c").write_text(NVML)
    subprocess.run(["cc", "-shared", "-fPIC", "-I", include, f"-DINSTANT={instant}", tmp_path / "nvml.c", "-o",
                    tmp_path / "libnvml.so"], check=True)
    monkeypatch.setenv("LMC_NVML", str(tmp_path / "libnvml.so"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1")
    power = runpy.run_path(str(root / "bench/gpu/power.py"))
    assert power["Nvml"]().sample() == (1515.0, 699.0 if instant else 650.5, 7168.0)
    with power["Clocks"](power["Nvml"](), None) as sampled:
        until(lambda: len(sampled.samples) > 3, "four samples")
    assert sampled.figures()["sm_mhz"] == 1515.0
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with pytest.raises(OSError, match="nvmlDeviceGetHandleByIndex_v2: 2"):
        power["Nvml"]()


def test_a_machine_without_nvcc_runs_what_is_packed(stand_in, machine, tmp_path):
    """A program that is neither packed nor can be compiled is skipped, which is no failure."""
    (tmp_path / "bin/nvcc").unlink()
    hidden = {**machine, "PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}
    session = (packed_session := stand_in / "session.py").read_text()
    packed_session.unlink()
    packed_session.write_text(session.replace("/usr/local/cuda/bin", "/nowhere"))
    assert run(stand_in, "gemm", "--dry-run", env=hidden).returncode == 0  # unpacks the data
    (data,) = (stand_in / "build").glob("data-????????")
    (data / "programs").mkdir()
    (data / "programs/copy").write_text("""#!/bin/bash\necho '{"copy": "kernel", "ms": 1.5, "gbps": 3000.0}'\n""")
    (data / "programs/copy").chmod(0o755)
    done = run(stand_in, "ceilings", "kernels", "gemm", env=hidden)
    assert done.returncode == 0, done.stdout + done.stderr
    made = reports(Path(machine["OUT"]))
    assert [row["item"] for row in made["ceilings"]["rows"]] == ["copy by kernel"]
    assert made["ceilings"]["skipped"]["instructions"] == (
        "it is not packed as a program, and nvcc is neither on the PATH nor in /nowhere")
    assert made["kernels"]["rows"][0]["of_copy"] == 1.0 and len(made["kernels"]["rows"]) == 1
    assert len(made["kernels"]["skipped"]) > 50 and not made["gemm"]["rows"]
    assert re.search(r"\n  gemm +[\d.]+ s  ok, skipped \d+\n", done.stdout)


@only_long
def test_other_devices_run_what_fits(stand_in, machine):
    done = run(stand_in, "conformance", "kernels", env={**machine, "CAPABILITY": "8.6"})
    assert done.returncode == 0, done.stdout + done.stderr
    made = reports(Path(machine["OUT"]))
    assert {row["item"] for row in made["conformance"]["rows"] if " graphs" in row["item"]} == {
        f"{job} graphs" for job in ("tiny-f32-gas2", "tiny-bf16-gas4", "heads64-bf16-gas4")}
    skipped = made["conformance"]["skipped"]
    assert len(skipped) == 8 and set(skipped.values()) == {
        "it is packed for sm_90a only; this GPU runs plans for sm_80"}
    assert not made["kernels"]["rows"] and "packed for sm_90a" in made["kernels"]["skipped"]["kernels-rms_norm"]
    done = run(stand_in, "smoke", env={**machine, "CAPABILITY": "12.0", "OUT": machine["OUT"] + "2"})
    assert done.returncode == 0 and "  ok  context" in done.stdout
    assert ("  skipped step: the folder has no plans for the NVIDIA H100 80GB HBM3 (compute capability 12.0), only for "
            "sm_90a, sm_80; pack again with --arch\n") in done.stdout
    done = run(stand_in, "smoke", env={**machine, "CAPABILITY": "7.5"})
    assert done.returncode == 2 and done.stderr == (
        "run: error: the NVIDIA H100 80GB HBM3 has compute capability 7.5, and lmc needs 8.0 or later\n")


def test_plans_are_chosen_as_the_runtime_chooses(root, monkeypatch):
    monkeypatch.syspath_prepend(str(root / "bench/gpu"))
    runs_on = runpy.run_path(str(root / "bench/gpu/session.py"))["runs_on"]
    assert runs_on("sm_90a", 9, 0) and not runs_on("sm_90a", 9, 1) and not runs_on("sm_90a", 10, 0)
    assert runs_on("sm_80", 8, 0) and runs_on("sm_80", 8, 9) and not runs_on("sm_80", 9, 0)
    assert runs_on("sm_89", 8, 9) and not runs_on("sm_89", 8, 6) and runs_on("sm_120", 12, 1)


def test_a_gpu_without_nvidia_smi(stand_in, machine, tmp_path):
    (tmp_path / "bin/nvidia-smi").unlink()
    if shutil.which("nvidia-smi"):
        pytest.skip("this machine has nvidia-smi")
    done = run(stand_in, "smoke", env=machine)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nvidia-smi does not run, so clocks and power are not measured: " in done.stdout
    smoke = reports(Path(machine["OUT"]))["smoke"]
    assert smoke["machine"]["name"] == "NVIDIA H100" and smoke["machine"]["driver_version"] == "for CUDA 13.0"


def test_smoke_names_the_kernel_that_differs(stand_in, machine):
    done = run(stand_in, "smoke", env={**machine, "FAULT": "linear_swiglu_rows"})
    assert done.returncode == 1
    smoke = reports(Path(machine["OUT"]))["smoke"]
    assert list(smoke["failed"]) == ["kernel linear_swiglu"]
    assert re.fullmatch(r"\w+ command \d+ \(layers\.0/mlp\.gate_proj\+up_proj\) of \w+: differs by 0\.5 "
                        r"\(at most [\de-]+\); [1-9]\d* of \d+ commands differ", smoke["failed"]["kernel linear_swiglu"])
    wrong = failure(machine, "smoke-kernel-linear_swiglu")
    assert "swiglu" in wrong["source"] and "__global__" in wrong["source"] and wrong["commands"][0]["difference"] == 0.5
    assert {Path(file["file"]).suffix for file in wrong["inputs"]} >= {".plan", ".commands", ".bin"}


def test_lmc_run_fails_again_command_by_command(stand_in, machine):
    """Its error then names the op."""
    done = run(stand_in, "conformance", "--from=adamw8bit-f32-gas4 graphs", env={**machine, "FAULT": "launch"})
    assert done.returncode == 1
    found = failure(machine, "conformance-adamw8bit-f32-gas4-graphs")
    assert found["stderr"] == "lmc-run: error: CUDA_ERROR_ILLEGAL_ADDRESS\n"
    assert found["again"]["variables"]["CUDA_LAUNCH_BLOCKING"] == "1"
    assert "--no-cuda-graphs" in found["again"]["command"]
    assert found["again"]["stderr"].startswith("lmc-run: error: command 12 of micro, launch layers.0/mlp: ")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_killed_leaves_what_it_had(stand_in, machine, number):
    out = Path(machine["OUT"])
    out.mkdir()
    process = subprocess.Popen([stand_in / "run", "training"], env={**os.environ, **machine, "FAULT": "hang"},
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        until(lambda: (out / "pid").exists(), "lmc-run hangs")
        process.send_signal(number)
        errors = process.communicate(timeout=60)[1]
        hanging = int((out / "pid").read_text())
        ended = number == signal.SIGTERM
        if ended:
            until(lambda: not Path(f"/proc/{hanging}").exists(), "lmc-run is ended, too")
            assert errors == "run: error: ended by SIGTERM in section training\n"
        else:
            os.kill(hanging, signal.SIGKILL)
    finally:
        process.kill()
    report = reports(out)["training"]
    assert report["finished"] == ended and len(report["rows"]) >= 2
    assert report["rows"][0]["tokens_per_second"] == 7e4
    assert "MBS 64" in report["not_run"][0] and report["go_on"] == f"./run training --from='{report['not_run'][0]}'"
    (table,) = out.glob("*.md")
    assert ("The section has not ended." in table.read_text()) == (not ended)
    assert not list(out.glob("*.part*"))


def test_without_pytorch_the_peers_are_skipped(stand_in, machine):
    (stand_in / "peer.py").write_text("import sys\nsys.exit(\"ModuleNotFoundError: No module named 'torch'\")\n")
    done = run(stand_in, "training", env=machine)
    assert done.returncode == 0, done.stdout + done.stderr
    report = reports(Path(machine["OUT"]))["training"]
    assert report["skipped"]["llama1b PyTorch eager MBS 8"].startswith("PyTorch is not here (")
    rates = {row["item"]: row["tokens_per_second"] for row in report["rows"]}
    assert rates and not any("PyTorch" in item for item in rates)
    assert all(rate == 7e4 for item, rate in rates.items() if " bench, " not in item)


def test_training_is_compared_with_the_best_peer(stand_in, machine):
    done = run(stand_in, "training", env=machine)
    print(done.stdout)
    assert done.returncode == 0, done.stderr
    report = reports(Path(machine["OUT"]))["training"]
    rows = {row["item"]: row for row in report["rows"]}
    ours = next(row for item, row in rows.items() if "predicted best" in item)
    assert ours["tokens_per_second"] == 7e4 and ours["planned_mib"] == 1024 and ours.get("watts", 650.5) == 650.5
    assert ours["ratio"] == ours["predicted"] / 7e4 and 0.4 < ours["mfu"] < 0.7
    assert rows["llama1b PyTorch compile MBS 16"]["versions"] == "torch 2.11.0, CUDA 13.0"
    assert "llama1b PyTorch eager MBS 32: out of memory" in report["notes"]
    assert (ours["graph_nodes"], ours["graph_s"], ours["allocated_mib"]) == (422, 0.03, 1536)
    assert rows["llama1b lmc bench, products by measure"]["tokens_per_second"] == 6.6e4
    assert "products by measure: 1.100 times the tokens/s of cuBLASLt's default" in report["notes"]
    # The stand-in's memory is not what was planned, and its speed is.
    bets = {(each["item"], each["figure"]): each for each in report["expected"]}
    memory = bets["llama1b lmc MBS 16", "planned_mib"]
    assert memory["outside"] == pytest.approx(memory["low"] / 1024) and memory["outside"] > 40
    assert bets["llama1b PyTorch compile MBS 16", "tokens_per_second"]["outside"] == 1
    assert any(each["figure"] == "planned_mib" for each in summary(Path(machine["OUT"]))["worst"])
    assert ("llama1b lmc MBS 16: 70000 tokens/s, 1.17 of the best PyTorch that ran "
            "(llama1b PyTorch compile MBS 16: 60016)") in [note.replace(" (predicted best):", ":")
                                                           for note in report["notes"]]


def test_work_beside_products_is_timed_in_heat(stand_in, machine):
    done = run(stand_in, "power", "streams", "products", "steps", env=machine)
    print(done.stdout)
    assert done.returncode == 0, done.stderr
    made = reports(Path(machine["OUT"]))
    power = {row["item"]: row for row in made["power"]["rows"]}
    product = "mlp.gate_proj+up_proj forward"
    # The stand-in's rate has the length of what it is asked to multiply.
    assert power[product]["tflops"] == 770.0 and power[f"{product}, zeros"]["tflops"] == 750.0
    assert power[f"{product}, trained weights"]["tflops"] > 1000 and power["adamw"]["ms"] == 0.125
    (steps,) = (row for item, row in power.items() if item.startswith("steps of "))
    assert steps["tokens_per_second"] == 1e5
    assert made["products"]["notes"] == [
        "own 256x4: 0.976 of cuBLASLt's rate without SwiGLU (at least 0.95); with it a layer takes 0.400 ms less of 4.500"]
    streams = made["streams"]
    rows = {row["item"]: row for row in streams["rows"]}
    assert set(rows) == {"cross_entropy-shared", "cross_entropy-alone", "cross_entropy-again", "norm", "norm_of_a_sum",
                         "o_proj", "o_proj with residual", "down_proj", "down_proj with residual"}
    assert rows["cross_entropy-alone"]["heat_ms"] == 0.12 and rows["o_proj"]["ms"] == 0.9
    assert rows["o_proj with residual"]["heat_ms"] == 1.0
    assert any(note.startswith("fastest in heat: cross_entropy-") for note in streams["notes"])
    assert "the residual by the products: 1.0000 of the time" in " ".join(streams["notes"])
    steps = {row["item"]: row for row in made["steps"]["rows"]}
    first = steps["llama1b MBS 16 GAS 1"]
    assert (first["products_ms"], first["attention_grad_ms"], first["loss_ms"], first["norms_ms"], first["others_ms"]) == (
        5.0, 0.9, 0.1, 0.07, 0.01) and "attention_ms" not in first
    assert first["ratio"] == first["predicted"] / 1e5
    assert "llama1b MBS 16 GAS 8: 1.000 times the tokens/s of llama1b MBS 16 GAS 1" in made["steps"]["notes"]
    assert (Path(machine["OUT"]) / "steps-llama1b-MBS-16-GAS-8.trace.json.xz").exists()
    assert {"llama1b MBS 16 GAS 1: bf16>bf16 64x352x64 b^T swiglu: lmc swiglu_gemm, 4.500 ms",
            "llama1b MBS 16 GAS 1: bf16>bf16 64x96x64 of 4 experts: lmc expert_gemm, 1.000 ms"} <= set(
        made["steps"]["notes"])
    assert all(each["outside"] >= 1 for each in made["steps"]["expected"]) and made["streams"]["expected"]


def test_another_loss_of_many_elements_is_a_failure(stand_in, machine):
    done = run(stand_in, "steps", env={**machine, "FAULT": "loss of MBS 64"})
    (report,) = reports(Path(machine["OUT"])).values()
    assert done.returncode == 1
    assert report["failed"] == {"llama1b MBS 64 GAS 1, twice": "its loss is 13.0000, that of llama1b MBS 16 GAS 1 12.0000"}


def next_items(root) -> tuple:
    return runpy.run_path(str(root / "bench/gpu/next.py"))["NEXT"]


def test_next_fits_into_a_loan_and_is_the_list_of_what_is_pending(root):
    parts = next_items(root)
    assert sum(seconds for *_, seconds in parts) <= 13.4 * 60
    assert len({name for name, *_ in parts}) == len(parts) and {section for _, section, *_ in parts} <= set(SECTIONS)
    text = (root / "bench/gpu/PENDING.md").read_text()
    rows = re.findall(r"^\| ([a-z ]+) \| (\d+) \| `([a-z]+)(?: --only='(.*?)')?` \|", text, re.M)
    assert [(name, section, only.replace("\\|", "|"), int(seconds)) for name, seconds, section, only in rows] == [
        tuple(part) for part in parts]
    assert f"{sum(seconds for *_, seconds in parts) / 60:.1f} minutes at most" in text


def test_next_runs_its_list(packed, root, host, tmp_path):
    """In a dry run on the stand-in for the driver: each item has a report of its own, and something to run."""
    out = tmp_path / "out"
    done = run(packed, "next", "--dry-run", f"--out={out}", env=host)
    print(done.stdout)
    assert done.returncode == 0, done.stderr
    parts = next_items(root)
    for number, (name, section, _, _) in enumerate(parts, 1):
        assert f"== {number} of {len(parts)}, {name}\n" in done.stdout
        report = json.loads((out / f"dry-run-{number:02}-{name.replace(' ', '-')}.json").read_text())
        assert report["section"] == section and report["rows"] and report["finished"] and not report["not_run"]
    assert done.stdout.split("== summary\n")[1].count("\n") == len(parts) + 1


def test_next_goes_on_after_a_fault(stand_in, machine, root, tmp_path):
    """An item that fails or hangs leaves its report and its failure, and the next one runs."""
    (stand_in / "next.py").unlink()
    (stand_in / "next.py").write_text(
        'NEXT = (("first", "power", "adamw", 20), ("broken", "nowhere", "", 20), ("hangs", "steps", "MBS 64", 21), '
        '("peers", "training", "PyTorch tuned MBS 16( GAS 8)?$", 90), ("last", "streams", "alone", 20))\n')
    done = run(stand_in, "next", env={**machine, "FAULT": "hang of MBS 64"})
    print(done.stdout)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert done.stderr == "run: error: failed or not all run: broken, hangs\n"
    made = archived(machine, tmp_path / "first")
    assert made["power"]["rows"] and made["streams"]["rows"] and len(made["training"]["rows"]) == 2
    assert "No module named 'sections.nowhere'" in made["nowhere"]["failed"]["section"]
    assert "not done after 1" in made["steps"]["failed"]["llama1b MBS 64 GAS 1, twice"]
    for options, why in ((["--only=x"], "next has items of its own"), (["gemm"], "next stands alone"),
                         (["--from=x"], "next has no item 'x' for --from; it has first, broken, hangs, peers, last")):
        done = run(stand_in, "next", *options, env=machine)
        assert done.returncode == 2 and why in done.stderr, done.stderr
    # In two parts: the first ends before a time, the second goes on.
    done = run(stand_in, "next", "--limit=60", env=machine)
    assert done.returncode == 1 and "  out of time; go on with: ./run next --from='peers'\n" in done.stdout, done.stdout
    assert "failed or not all run: broken, peers and what follows" in done.stderr
    done = run(stand_in, "next", "--from=last", env=machine)
    assert done.returncode == 0 and "== 5 of 5, last\n" in done.stdout and "== 4 of 5" not in done.stdout


def archived(machine: dict, to: Path) -> dict[str, dict]:
    """What `next` leaves in $OUT: one file with all reports."""
    assert sorted(path.name for path in Path(machine["OUT"]).iterdir()) == ["gpu-next.tar.xz"]
    shutil.unpack_archive(Path(machine["OUT"]) / "gpu-next.tar.xz", to)
    return reports(to / "results")


def test_a_loss_is_compared_with_that_of_an_earlier_part(stand_in, machine, tmp_path):
    (stand_in / "next.py").unlink()
    (stand_in / "next.py").write_text('NEXT = (("steps", "steps", "MBS 16 GAS 1$", 30), ("larger", "steps", "MBS 64", 30))\n')
    done = run(stand_in, "next", env={**machine, "FAULT": "loss of MBS 64"})
    assert done.returncode == 1 and done.stderr == "run: error: failed or not all run: larger\n"
    assert "FAILED llama1b MBS 64 GAS 1, twice: its loss is 13.0000, that of llama1b MBS 16 GAS 1 12.0000" in done.stdout


PRODUCTS = [f"{name} {what}" for name in ("gate_up", "down")
            for what in ("forward", "gradient of x", "gradient of the matrices")]


# What lmc's jobs of the section `experts` report on, in bf16 and in 8 bits.
OURS_OF_EXPERTS = [f"{model} lmc {what}" for model in ("olmoe4", "olmoe4-fp8") for what in ("bench", *PRODUCTS)]


def test_experts_are_compared_with_grouped_products(stand_in, machine):
    done = run(stand_in, "experts", env=machine)
    print(done.stdout)
    assert done.returncode == 0, done.stderr
    report = reports(Path(machine["OUT"]))["experts"]
    rows = {row["item"]: row for row in report["rows"]}
    assert list(rows) == [*OURS_OF_EXPERTS, *(f"olmoe4 PyTorch {name}, balanced" for name in PRODUCTS),
                          *(f"olmoe4 PyTorch {name}, skewed" for name in PRODUCTS)]
    step = rows["olmoe4 lmc bench"]
    assert step["tokens_per_second"] == 1e5 and step["ratio"] == step["predicted"] / 1e5
    assert step["planned_mib"] == step["allocated_mib"] == 1024
    # Gate and up of 131,072 rows: 2 x 131,072 x 2048 x 2048 FLOPs; down has half as many.
    for number, name in enumerate(PRODUCTS):
        row, flops = rows[f"olmoe4 lmc {name}"], 2 * 131072 * 2048 * (2048 if "gate_up" in name else 1024)
        rate = 200 + 20 * number
        assert row["tflops"] == pytest.approx(rate) and row["ms"] == pytest.approx(flops / rate * 1e-9), name
        assert row["ratio"] == pytest.approx(0.5) and row["predicted_ms"] == pytest.approx(row["ms"] / 2)
        assert rows[f"olmoe4 PyTorch {name}, balanced"]["tflops"] == 500
    assert rows["olmoe4 PyTorch down forward, skewed"]["tflops"] == 400
    assert rows["olmoe4 PyTorch down forward, skewed"]["versions"] == "torch 2.11.0, CUDA 13.0"
    assert report["notes"][0] == "olmoe4 lmc bench: bf16>bf16 64x352x64 b^T swiglu: lmc swiglu_gemm, 4.500 ms"
    assert report["notes"][4:] == [
        f"olmoe4 {name}: {200 + 20 * number} TFLOP/s, {(200 + 20 * number) / 500:.2f} of PyTorch's grouped_mm with "
        "balanced counts (500)" for number, name in enumerate(PRODUCTS)]
    # Each row of lmc's has bets, which the stand-in's memory loses.
    bets = {(each["item"], each["figure"]): each for each in report["expected"]}
    assert {item for item, _ in bets} == {item for item in rows if " lmc " in item}
    assert all(bets[f"olmoe4 lmc {name}", "tflops"]["measured"] == rows[f"olmoe4 lmc {name}"]["tflops"]
               for name in PRODUCTS)
    rate = bets["olmoe4 lmc bench", "tokens_per_second"]
    assert (rate["low"], rate["high"]) == pytest.approx((0.85 * rate["prediction"], 1.12 * rate["prediction"]), rel=1e-3)
    memory = bets["olmoe4 lmc bench", "planned_mib"]
    assert memory["outside"] == pytest.approx(memory["low"] / 1024) and memory["outside"] > 20


@pytest.mark.parametrize("probe, reason", [
    ("sys.exit(\"ModuleNotFoundError: No module named 'torch'\")", "PyTorch is not here ("),
    ("print('{\"torch\": \"2.6.0\", \"sees_the_gpu\": true, \"lacks\": \"grouped_mm\"}')",
     "PyTorch 2.6.0 has no grouped_mm"),
    ("print('{\"torch\": \"2.11.0\", \"sees_the_gpu\": false, \"lacks\": null}')",
     "PyTorch 2.11.0 does not see the GPU"),
])
def test_experts_without_a_peer(stand_in, machine, probe, reason):
    (stand_in / "grouped.py").write_text(f"import sys\n{probe}\n")
    done = run(stand_in, "experts", env=machine)
    assert done.returncode == 0, done.stdout + done.stderr
    report = reports(Path(machine["OUT"]))["experts"]
    assert list(report["skipped"]) == ["olmoe4 PyTorch grouped_mm"] and len(report["notes"]) == 4
    assert report["skipped"]["olmoe4 PyTorch grouped_mm"].startswith(reason)
    assert [row["item"] for row in report["rows"]] == OURS_OF_EXPERTS


def test_a_trace_without_a_product_is_a_failure(stand_in, machine):
    """The step's speed is kept."""
    done = run(stand_in, "experts", "--only=lmc", env={**machine, "FAULT": "trace"})
    assert done.returncode == 1, done.stdout
    report = reports(Path(machine["OUT"]))["experts"]
    assert report["failed"] == {f"{model} lmc bench": "ValueError: the trace has no gate_up gradient of the matrices"
                                for model in ("olmoe4", "olmoe4-fp8")}
    assert [row["tokens_per_second"] for row in report["rows"]] == [1e5, 1e5]


def test_products_per_expert_are_told_apart(root, unpacked, monkeypatch):
    """A product that the backward pass computes again is a forward product; the last one is the gradient of x."""
    for job in json.loads((unpacked / "experts/jobs.json").read_text()):
        assert list(job["products"]) == PRODUCTS
        assert all(len({tuple(command) for command in product["commands"]}) == 4 for product in job["products"].values())
        # From the first layer to the last and back.
        assert job["products"]["gate_up forward"]["commands"][-1] < job["products"]["down gradient of x"]["commands"][-1]
    monkeypatch.syspath_prepend(str(root / "bench/gpu"))
    products = runpy.run_path(str(root / "bench/gpu/sections/experts.py"))["products"]
    kinds = [("gate_up", False, ""), ("down", False, ""), ("gate_up", True, ""), ("down", True, ""), ("down", True, ""),
             ("down", True, "_grad"), ("gate_up", True, ""), ("gate_up", True, "_grad")]
    commands = [{"kind": f"expert_linear{end}", "source": f"layers.0/experts.{name}", "backward": backward,
                 "seconds": 1.0} for name, backward, end in kinds]
    commands.insert(0, {"kind": "gemm", "source": "layers.0/self_attn.q_proj", "backward": False, "seconds": 1.0})
    report = {"cost": {"functions": [{"name": "eval", "runs_per_step": 0}, {"name": "micro", "runs_per_step": 1}]},
              "functions": [{"name": "eval", "commands": commands[:3]}, {"name": "micro", "commands": commands}]}
    made = products(report, {"rows": 10, "experts": 2, "hidden": 8, "intermediate": 4})
    assert {name: sorted(at for _, at in product["commands"]) for name, product in made.items()} == {
        "gate_up forward": [1, 3], "gate_up gradient of x": [7], "gate_up gradient of the matrices": [8],
        "down forward": [2, 4], "down gradient of x": [5], "down gradient of the matrices": [6]}
    assert {function for product in made.values() for function, _ in product["commands"]} == {"micro"}
    assert (made["gate_up forward"]["flops"], made["down forward"]["flops"]) == (2 * 10 * 8 * 8, 2 * 10 * 4 * 8)


def test_grouped_products_are_the_products_of_each_expert(root, monkeypatch, capsys):
    import torch

    grouped = runpy.run_path(str(root / "bench/gpu/grouped.py"))
    if not grouped["GROUPED"]:
        pytest.skip(f"PyTorch {torch.__version__} has no grouped_mm")
    torch.manual_seed(1)
    counts = grouped["draw"](96, 4, True)
    assert counts.sum() == 96 and counts[0] > counts[3]
    even = grouped["draw"](4000, 4, False)
    assert even.sum() == 4000 and even.min() > 900 and even.max() < 1100
    ends, made = counts.cumsum(0).int(), grouped["products"](32, 16, counts, "cpu")
    assert list(made) == PRODUCTS
    for name, (a, b, flops) in made.items():
        result = grouped["GROUPED"](a, b, offs=ends).float()
        pieces = zip(a.float().split(counts.tolist(), 1 if "matrices" in name else 0),
                     b.float().split(counts.tolist()) if "matrices" in name else b.float())
        each = [x @ y for x, y in pieces]
        assert torch.allclose(result, torch.stack(each) if "matrices" in name else torch.cat(each), atol=0.1, rtol=0.02)
        assert flops == 2 * 96 * 32 * (32 if "gate_up" in name else 16)
    monkeypatch.setattr(sys, "argv", ["grouped.py", '{"rows": 96, "experts": 4, "hidden": 32, "intermediate": 16}',
                                      "--device=cpu"])
    grouped["main"]()
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["product"], row["counts"]) for row in rows] == [
        (name, counts) for counts in ("balanced", "skewed") for name in PRODUCTS]
    assert all(row["ms"] > 0 and row["tflops"] > 0 and 24 <= row["largest"] <= 96 for row in rows)


def test_only_chosen_items_run(stand_in, machine):
    done = run(stand_in, "training", "gemm", "--only=MBS 16$", env=machine)
    assert done.returncode == 0, done.stdout + done.stderr
    made = reports(Path(machine["OUT"]))
    assert {row["item"] for row in made["training"]["rows"]} == {
        "llama1b lmc MBS 16", *(f"llama1b PyTorch {mode} MBS 16" for mode in ("eager", "compile", "tuned"))}
    assert not made["gemm"]["rows"] and made["gemm"]["left_out"] and not made["training"]["not_run"]
    for only, why in (("no such item", "no section has an item in whose name --only=no such item is found"),
                      ("(", "--only=( is no regular expression: ")):
        done = run(stand_in, "training", f"--only={only}", env=machine)
        assert done.returncode == 2 and why in done.stderr, done.stderr


def test_graphs_have_the_nodes_that_are_expected(packed, programs, root, tmp_path, monkeypatch):
    """The stand-in for the driver captures as many nodes as the bets count in the plan."""
    driver, products = (programs.build / f"lib/lib{name}-host.so" for name in ("cuda", "cublaslt"))
    if not driver.exists():
        pytest.skip("the host driver is not built: there are no headers of CUDA and NCCL")
    shutil.unpack_archive(packed / "data.tar.xz", tmp_path / "data")
    conformance = tmp_path / "data/conformance"
    plan = conformance / "tiny-bf16-gas4.plan"
    report = json.loads(programs.run("lmc", "explain", plan, "--json").ok().stdout)
    monkeypatch.setenv("LMC_CUDA_DRIVER", str(driver))
    monkeypatch.setenv("LMC_CUBLASLT", str(products))
    trained = programs.run("lmc-run", plan, f"--out={tmp_path / 'run'}", "--steps=1", "--gemm=default",
                           f'--set=data.train=["{conformance / "train.bin"}"]').ok().stdout
    monkeypatch.syspath_prepend(root / "bench/gpu")
    nodes = runpy.run_path(str(root / "bench/gpu/expected.py"))["nodes_of"](report)[0]
    logged = runpy.run_path(str(root / "bench/gpu/sections/training.py"))["logged"](trained)
    assert logged["graph_nodes"] == nodes > 100
    planned = sum(arena["bytes"] for arena in report["memory"]["arenas"])
    assert logged["allocated_mib"] == pytest.approx(planned / 2**20, abs=0.006)


@pytest.fixture(scope="module")
def bets(root):
    return runpy.run_path(str(root / "bench/gpu/bets.py"))


def test_bets_are_compared_with_what_was_measured(bets):
    """Figures inside, outside and far outside of their range; the worst first, each item once."""
    def bet(item, figure, low, prediction, high, spec="toy", **more):
        return {"section": "s", "item": item, "figure": figure, "rule": "r", **more,
                "by": {spec: {"prediction": prediction, "low": low, "high": high}}}

    expected = {"specs": {"toy": {"gpu": "Toy GPU"}}, "bets": [
        bet("inside", "ms", 1.0, 2.0, 4.0), bet("near its end", "ms", 1.0, 2.0, 4.0),
        bet("above", "ms", 1.0, 2.0, 4.0), bet("below", "gbps", 100.0, 150.0, 200.0),
        bet("above", "gbps", 10.0, 20.0, 30.0),  # the same row, less far outside
        bet("memory", "bytes", 4096, 4096, 4096, "any"), bet("bits", "bits", True, True, True, "any"),
        bet("wrong", "wrong", 0, 0, 0, "any"), bet("shape", "ms", 1.0, 1.5, 2.0, where={"kernel": "forward"}),
        bet("not measured", "ms", 1.0, 2.0, 3.0), bet("difference", "loss", 0.0, 1e-7, 1e-6),
        {"section": "s", "item": "no bet", "figure": "ms", "no_bet": "nobody knows"},
        {**bet("elsewhere", "ms", 1.0, 2.0, 3.0), "section": "t"}]}
    rows = [{"item": "inside", "ms": 2.1}, {"item": "near its end", "ms": 4.0}, {"item": "above", "ms": 12.0, "gbps": 33.0},
            {"item": "below", "gbps": 50.0}, {"item": "memory", "bytes": 4096}, {"item": "bits", "bits": True},
            {"item": "wrong", "wrong": 0}, {"item": "no bet", "ms": 1.0}, {"item": "difference", "loss": 0.0},
            {"item": "shape", "kernel": "forward", "ms": 0.1, "right": False},
            {"item": "shape", "kernel": "forward", "ms": 1.9, "right": True},
            {"item": "shape", "kernel": "forward", "ms": 1.6, "right": True},
            {"item": "shape", "kernel": "backward", "ms": 9.0, "right": True}]

    def made(gpu="Toy GPU"):
        return {(each["item"], each["figure"]): each for each in bets["compared"](expected, "s", rows, gpu)}

    found = made()
    assert {key: each["outside"] for key, each in found.items()} == {
        ("inside", "ms"): 1, ("near its end", "ms"): 1, ("above", "ms"): 3, ("below", "gbps"): 2,
        ("above", "gbps"): pytest.approx(1.1), ("memory", "bytes"): 1, ("bits", "bits"): 1, ("wrong", "wrong"): 1,
        ("shape", "ms"): 1, ("difference", "loss"): 1}
    assert found["difference", "loss"]["off"] == 0
    assert found["shape", "ms"]["measured"] == 1.6  # the fastest that is right
    worst = bets["worst"](list(found.values()))
    assert [each["item"] for each in worst] == ["above", "below", "near its end", "shape", "inside"]
    assert worst[0]["figure"] == "ms"
    assert [bets["verdict"](each) for each in worst[:3]] == [
        "OUTSIDE, 3.00 times above", "OUTSIDE, 2.00 times below", "inside"]

    # What must be exact is far outside by any difference, if it has no ratio; other GPUs have no other bets.
    rows[4:7] = [{"item": "memory", "bytes": 8192}, {"item": "bits", "bits": False}, {"item": "wrong", "wrong": 7}]
    found = made("Another GPU")
    assert {key: each["outside"] for key, each in found.items()} == {
        ("memory", "bytes"): 2, ("bits", "bits"): float("inf"), ("wrong", "wrong"): float("inf")}
    assert {each["item"] for each in bets["worst"](list(found.values()), 2)} == {"bits", "wrong"}
    json.dumps(bets["plain"](list(found.values())), allow_nan=False)


def test_a_planted_figure_is_the_worst(stand_in, machine):
    """A GPU whose copies are ten times too slow, and everything else is as ever."""
    nvcc = Path(machine["PATH"].split(":")[0]) / "nvcc"
    nvcc.write_text(nvcc.read_text().replace("3000.0", "300.0"))
    assert run(stand_in, "ceilings", env=machine).returncode == 0
    worst = summary(Path(machine["OUT"]))["worst"][0]
    assert (worst["item"], worst["figure"], worst["measured"]) == ("copy by kernel", "gbps", 300.0)
    assert worst["outside"] == pytest.approx(worst["low"] / 300)


def test_another_gpu_is_compared_in_what_holds_for_all(stand_in, machine):
    smi = Path(machine["PATH"].split(":")[0]) / "nvidia-smi"
    smi.write_text(smi.read_text().replace("H100 80GB HBM3", "H100 PCIe"))
    done = run(stand_in, "ceilings", env=machine)
    assert done.returncode == 0, done.stderr
    assert "there are no predictions for the NVIDIA H100 PCIe (but for NVIDIA H100 80GB HBM3, NVIDIA H200)" in done.stdout
    compared = reports(Path(machine["OUT"]))["ceilings"]["expected"]
    assert compared and all(each["figure"] == "wrong" for each in compared)


@only_long
def test_the_bets_on_record_are_those_of_the_plans(programs, root, tmp_path):
    """bench/gpu/expected.md and .json are what `./dev gpu expected` writes."""
    done = subprocess.run([sys.executable, root / "bench/gpu/expected.py", f"--out={tmp_path}"], capture_output=True,
                          text=True, env={**os.environ, "LMC_BUILD_DIR": str(programs.build)})
    assert done.returncode == 0, done.stderr
    for name in ("expected.json", "expected.md"):
        assert (tmp_path / name).read_text() == (root / f"bench/gpu/{name}").read_text(), (
            f"{name} is not what the plans say: run ./dev gpu expected")


def test_the_peer_trains(root, monkeypatch, capsys):
    shape = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 176,
             "num_hidden_layers": 2, "vocab_size": 128, "rope_theta": 1e4, "rms_norm_eps": 1e-5,
             "tie_word_embeddings": False, "sequence_length": 32}
    peer = runpy.run_path(str(root / "bench/gpu/peer.py"))

    def loss(*options: str) -> float:
        monkeypatch.setattr(sys, "argv", ["peer.py", json.dumps(shape), "--mode=eager", "--mbs=2", "--device=cpu",
                                          "--loss-tokens=24", *options])
        peer["main"]()
        return json.loads(capsys.readouterr().out)["loss"]

    begun, later = loss("--steps=1"), loss("--steps=20")
    assert 4 < begun < 6 and later < begun - 0.1  # ln 128 is 4.85
    assert abs(loss("--steps=1", "--gas=2") - begun) < 0.2
    # torchao needs extents that are multiples of 16; a step in 8 bits is near that of bf16, and not the same.
    shape["sequence_length"] = 64
    wide, *narrow = (loss("--steps=1", *options) for options in ([], ["--float8=tensorwise"], ["--float8=rowwise"]))
    assert all(0 < abs(each - wide) < 0.05 for each in narrow)
    shape["sequence_length"] = 32
    # PyTorch 2.2 has neither rms_norm nor heads that share k and v.
    peer["main"].__globals__.update(HAS_NORM=False, HAS_GQA=False)
    assert abs(loss("--steps=1") - begun) < 1e-3 and abs(loss("--steps=20") - later) < 0.02


# What a planted fault must be found by: the ends of the items that fail, and what they say.
FAULTS = {
    "": ([], ""),
    "loss": (["graphs"], "differs: loss by 0.001 (at most 2e-06)"),
    "gradients": (["graphs"], "differs: gradients by inf (at most 2e-05)"),
    "memory": (["graphs"], " bytes, planned "),
    "graphs": (["eager"], "differs: loss of step 2, loss of step 3, loss of step 4"),
    "resume": (["resumed"], "differs: model.safetensors"),
    "short": (["eager"], "differs: 3 steps instead of 4 in eager"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_conformance_finds_a_planted_fault(stand_in, machine, fault):
    ends, complaint = FAULTS[fault]
    job = "adamw8bit-f32-gas4"  # the last one; without a fault all of them
    start = [f"--from={job} graphs"] if fault else []
    done = run(stand_in, "conformance", *start, env={**machine, "FAULT": fault})
    print(done.stdout)
    report = reports(Path(machine["OUT"]))["conformance"]
    tools = {"memcheck", "racecheck", "initcheck"}
    jobs = {row["item"].split(" ")[0] for row in report["rows"]}
    assert tools < jobs and len(jobs - tools) == (1 if fault else 11)
    assert done.returncode == (1 if fault else 0)
    assert set(report["failed"]) == {f"{job} {end}" for end in ends}
    assert complaint in report["failed"].get(f"{job} {end}" if (end := "".join(ends)) else "", "")


def test_a_section_out_of_time_says_how_to_go_on(packed, machine):
    done = run(packed, "gemm", "--limit=15.05", env=machine)
    (report,) = reports(Path(machine["OUT"])).values()
    assert done.returncode == 1 and report["not_run"]
    assert f"out of time; go on with: ./run gemm --from='{report['not_run'][0]}'" in done.stdout
    done = run(packed, "gemm", f"--from={report['not_run'][-1]}", env={**machine, "OUT": machine["OUT"] + "2"})
    assert done.returncode == 0, done.stderr
    (rest,) = reports(Path(machine["OUT"] + "2")).values()
    assert [row["item"] for row in rest["rows"]] == report["not_run"][-1:]


# Wrappers of lmc-run.
HANGS = """#!/bin/bash
case "$*" in *--devices*) exec {program} "$@" ;; esac
exec sleep 600
"""
IS_KILLED = "#!/bin/bash\nkill -SEGV $$\n"


def wrap(folder: Path, text: str) -> None:
    program = (folder / "bin/lmc-run").resolve()
    shutil.rmtree(folder / "bin") if not (folder / "bin").is_symlink() else (folder / "bin").unlink()
    (folder / "bin").mkdir()
    (folder / "bin/lmc-run").write_text(text.format(program=program))
    (folder / "bin/lmc-run").chmod(0o755)


def replace_section(folder: Path, name: str, text: str) -> None:
    sections = folder / "sections"
    if sections.is_symlink():
        kept = sections.resolve()
        sections.unlink()
        shutil.copytree(kept, sections)
    (sections / f"{name}.py").write_text(text)


def change_record(folder: Path) -> None:
    """As if a product of the model in f32 had other sums on the device: one random sum of one result."""
    (record,) = (folder / "build").glob("data-????????/smoke/sm_90a/f32.commands")
    lines = record.read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if '"kind":"gemm"' in line)
    row = json.loads(lines[at])
    row["outputs"][0]["projections"][3] += row["outputs"][0]["norm"]
    record.write_text("\n".join([*lines[:at], json.dumps(row), *lines[at + 1:]]) + "\n")


def cut_plan(folder: Path) -> None:
    (plan,) = (folder / "build").glob("data-????????/smoke/sm_90a/f32.plan")
    plan.write_bytes(plan.read_bytes()[:5000])


NO_HOST = dict.fromkeys(("LMC_CUDA_DRIVER", "LMC_CUBLASLT", "LMC_NCCL"), "")
ALL_JOBS = ("tiny-f32-gas2 graphs", "tiny-f32-gas2 eager", "biases-bf16-gas4 graphs", "two-ranks-f32 graphs")
# What goes wrong: variables, what is done to the folder, options of run; then in which sections items fail, some of
# them, and with what words.
MACHINES = {
    "no driver": ({"LMC_CUDA_DRIVER": "/nowhere.so"}, None, [], {
        "smoke": {"context": "this machine has no CUDA driver (LMC_CUDA_DRIVER=/nowhere.so",
                  "commands of f32": "this machine has no CUDA driver", "graph": "this machine has no CUDA driver",
                  "nccl": "this machine has no CUDA driver", "step": "this machine has no CUDA driver"},
        "conformance": dict.fromkeys(ALL_JOBS, "this machine has no CUDA driver")}),
    "a module does not load": ({"LMC_HOST_FAIL_CALL": "cuModuleLoadData:1"}, None, [], {
        "smoke": {"commands of f32": "CUDA_ERROR", "graph": "CUDA_ERROR", "step": "CUDA_ERROR"},
        "conformance": dict.fromkeys(ALL_JOBS, "CUDA_ERROR")}),
    "a command faults": ({"LMC_HOST_FAULT_AT": "120"}, None, [], {
        "smoke": {"commands of f32": "CUDA_ERROR", "graph": "CUDA_ERROR", "step": "CUDA_ERROR"},
        "conformance": dict.fromkeys(ALL_JOBS, "CUDA_ERROR")}),
    "another sum": ({}, change_record, [], {
        "smoke": {"product NT, f32": "of f32: differs by 0."}}),
    "no cuBLASLt": ({"LMC_CUBLASLT": "/nowhere.so"}, None, [], {
        "smoke": {"commands of f32": "/nowhere.so: cannot open shared object file", "graph": "/nowhere.so"},
        "conformance": dict.fromkeys(ALL_JOBS, "/nowhere.so: cannot open shared object file")}),
    "no NCCL": ({"LMC_NCCL": "/nowhere.so"}, None, [], {
        "smoke": {"nccl": "/nowhere.so: cannot open shared object file"},
        "conformance": {"nccl-f32-gas2 graphs": "/nowhere.so: cannot open shared object file"}}),
    "too little memory": ({"LMC_HOST_MEMORY": "1000000"}, None, [], {
        "smoke": {"memory": "cannot allocate 64 MiB of the GPU's memory", "graph": "the plan needs",
                  "commands of heads64": "the plan needs"},
        "conformance": dict.fromkeys(ALL_JOBS, "the plan needs")}),
    "lmc-run hangs": ({}, lambda folder: wrap(folder, HANGS), ["--limit=14"], {
        "smoke": {"commands of heads64": "not done after ", "commands of f32": "no time is left"}}),
    "lmc-run is killed": ({}, lambda folder: wrap(folder, IS_KILLED), [], {
        "smoke": {"context": "signal SIGSEGV", "memory": "signal SIGSEGV", "graph": "signal SIGSEGV",
                  "commands of muon": "signal SIGSEGV"},
        "conformance": dict.fromkeys(ALL_JOBS, "signal SIGSEGV")}),
    "a section raises": (NO_HOST, lambda folder: replace_section(folder, "smoke", "raise LookupError('planted')"), [], {
        "smoke": {"section": "LookupError: planted"}}),
    "a section ends Python": (NO_HOST, lambda folder: replace_section(
        folder, "gemm", "def run(session):\n    raise SystemExit(7)\n"), [], {
            "gemm": {"section": "SystemExit: 7"}}),
    "a plan is cut short": ({}, cut_plan, [], {
        "smoke": {"commands of f32": "f32.plan", "graph": "f32.plan", "step": "f32.plan"}}),
}
TRIED = MACHINES if LONG else ("no driver", "a section raises", "a section ends Python")


@pytest.fixture
def copied(packed, unpacked, tmp_path):
    """The packed folder with its data unpacked, which a test may change."""
    folder = tmp_path / "gpu"
    folder.mkdir()
    for path in packed.iterdir():
        if path.name not in ("build", "results", "run"):
            (folder / path.name).symlink_to(path)
    shutil.copy(packed / "run", folder)
    shutil.copytree(unpacked, folder / "build" / unpacked.name)
    return folder


@pytest.mark.parametrize("fault", TRIED)
def test_sections_go_on_after_a_fault(copied, host, tmp_path, fault):
    variables, change, options, expected = MACHINES[fault]
    if change:
        change(copied)
    out = tmp_path / "out"
    done = run(copied, "--dry-run", f"--out={out}", *options, env={**host, **variables})
    print(done.stdout)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    made = {section: json.loads((out / f"dry-run-{section}.json").read_text()) for section in SECTIONS}
    assert all(report["finished"] for report in made.values())
    assert {section for section, report in made.items() if report["failed"]} >= set(expected)
    for section, report in made.items():
        assert (out / f"dry-run-{section}.md").exists()
        if fault != "lmc-run hangs" and section not in expected:
            assert report["rows"] and not report["failed"] and not report["not_run"], section
        for item, words in expected.get(section, {}).items():
            assert words in report["failed"][item]
            found = json.loads((out / f"failures/{section}-{re.sub('[^A-Za-z0-9._-]+', '-', item)}.json").read_text())
            assert found["why"] == report["failed"][item] and found["machine"]["commit"]
            assert (found.get("trace") or words == "no time is left" or found["timed_out"] or found["stderr"] or
                    found["stdout"] or found["ended"] == "signal SIGSEGV")
    assert done.stdout.split("== summary\n")[1].count("\n") == len(SECTIONS)


@only_long
def test_wrong_sums_are_left_out(packed, host, tmp_path):
    """lmc-run finds them itself, warns, and takes another algorithm, which agrees; so do products with a bias."""
    done = run(packed, "smoke", "--dry-run", f"--out={tmp_path / 'out'}", env={**host, "LMC_HOST_BAD_ALGORITHM": "sum"})
    assert done.returncode == 0, done.stdout + done.stderr
    notes = json.loads((tmp_path / "out/dry-run-smoke.json").read_text())["notes"]
    assert any(note.startswith("gpt2: warning: an algorithm of matrix products was left out: ") for note in notes)


def test_results_go_elsewhere_until_they_can_be_written(copied, tmp_path):
    out = tmp_path / "out"
    out.write_text("in the way")
    replace_section(copied, "attention", f"import os\nos.unlink({str(out)!r})\nfrom sections.training import run\n")
    done = run(copied, "smoke", "attention", "training", "--dry-run", f"--out={out}",
               env={**NO_HOST, "TMPDIR": str(tmp_path)})
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"  cannot write {out / 'dry-run-smoke.json'}: " in done.stdout
    (smoke,) = tmp_path.glob("lmc-gpu-results-*/dry-run-smoke.md")
    assert f"  -> {smoke}\n" in done.stdout and json.loads(smoke.with_suffix(".json").read_text())["finished"]
    assert f"  -> {out / 'dry-run-training.md'}\n" in done.stdout
    assert json.loads((out / "dry-run-training.json").read_text())["finished"]


def bare_root(folder: Path) -> None:
    """Fills a root folder with bash, coreutils' env, Python and what they link: no libstdc++, no LLVM."""
    python = Path("/usr/bin/python3").resolve()
    stdlib = Path(f"/usr/lib/{python.name}")
    files = {Path("/bin/bash"), Path("/usr/bin/env"), python, *stdlib.glob("lib-dynload/*.so")}
    listed = subprocess.run(["ldd", *files], capture_output=True, text=True).stdout
    libraries = {Path(path) for path in re.findall(r"(/\S+\.so\S*)", listed) if "lib-dynload" not in path}
    assert not any("libstdc++" in path.name for path in libraries)
    for path in files | libraries:
        to = folder / str(path).lstrip("/")
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, to)
    shutil.copytree(stdlib, folder / f"usr/lib/{python.name}", dirs_exist_ok=True,
                    ignore=shutil.ignore_patterns("__pycache__", "test", "config-*", "dist-packages"))
    (folder / "usr/bin/python3").symlink_to(python.name)
    for name in ("tmp", "dev", "proc"):
        (folder / name).mkdir()
    os.mknod(folder / "dev/null", 0o666 | 0o020000, os.makedev(1, 3))


def test_a_bare_debian_is_enough(packed, compiled, tmp_path):
    # In a mount namespace of its own, because the loader finds $ORIGIN in /proc.
    enter = ["unshare", "--mount", "sh", "-c", 'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"']
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode != 0:
        pytest.skip("chroot and mount need root")
    if not Path("/usr/bin/python3").exists():
        pytest.skip("there is no /usr/bin/python3, which Debian's package installs")
    bare_root(tmp_path)
    shutil.copytree(packed, tmp_path / "gpu", ignore=shutil.ignore_patterns("build", "results"))
    for archive in (tmp_path / "gpu/lib").glob("*.xz"):
        archive.with_suffix("").unlink(missing_ok=True)  # another test has unpacked it

    def inside(*command):
        clean = ["/usr/bin/env", "-i", "PATH=/usr/bin:/bin"]
        return subprocess.run([*enter, tmp_path, *clean, *command], capture_output=True, text=True)

    shutil.copytree(compiled(Job()).parent, tmp_path / "job")
    done = inside("/gpu/run", "--dry-run")
    print(done.stdout)
    assert done.returncode == 0, done.stderr
    assert "because nvcc is not on this machine" in done.stdout
    assert_dry(tmp_path / "gpu/results", SECTIONS)
    # The libraries that `run` unpacked are enough for lmc-run.
    trained = inside("/gpu/bin/lmc-run", "/job/job.plan", "--out=/job/run", "--steps=2",
                     '--set=data.train=["/job/train.bin"]')
    assert trained.returncode == 0 and len(losses(tmp_path / "job/run")) == 2, trained.stderr

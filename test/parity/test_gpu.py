"""`./dev gpu pack`, and what its folder's `run` does on machines without a GPU."""

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jobs import Job
from programs import losses

SECTIONS = ("ceilings", "kernels", "attention", "gemm", "conformance", "training")
LIMIT_BYTES = 60e6

# Stand-ins for the programs of a machine with a GPU. nvcc makes programs that print what the real
# ones would; two kernels are wrong, and one does not compile.
NVIDIA_SMI = r"""#!/bin/bash
case "$*" in
  *-lms*) while true; do echo "1755, 650.5, 40000"; sleep 0.05; done ;;
  *) echo "NVIDIA H100 80GB HBM3, 580.65.06, 9.0, 81559 MiB, 700.00 W, 1980 MHz, 2619 MHz" ;;
esac
"""
NVCC = r"""#!/bin/bash
[ "$1" = --version ] && { echo "Cuda compilation tools, release 13.0, V13.0.88"; exit 0; }
while [ $# -gt 0 ]; do [ "$1" = -o ] && to=$2; shift; done
say() { printf '#!/bin/bash\n%s\n' "$1" > "$to"; chmod +x "$to"; }
case $(basename "$to") in
  copy) say "echo '{\"copy\": \"kernel\", \"ms\": 1.5, \"gbps\": 3000.0}'" ;;
  gemm) say "echo '{\"gemm\": \"x\", \"algorithms\": 8, \"first_ms\": 1.2, \"best_ms\": 1.0, \"best\": 3, \"first_tflops\": 600.0, \"best_tflops\": 720.0}'" ;;
  instructions) say "echo 'mma: 0 of 128 words wrong'" ;;
  attention-*) say "echo '{\"kernel\": \"forward\", \"tile\": \"128x64r\", \"registers\": 128, \"local_bytes\": 0, \"blocks_per_sm\": 2, \"ms\": 0.5, \"tflops\": 250.0, \"error\": 0.002, \"right\": true}'
echo '{\"kernel\": \"nothing\", \"tile\": \"\", \"ms\": 0.5, \"tflops\": 0.0, \"error\": null, \"right\": false}'" ;;
  kernels-adamw8bit) echo "adamw8bit.cu(7): error: expected a ;" >&2; exit 2 ;;
  kernels-norm) say "echo 'norm is broken' >&2; exit 3" ;;
  kernels-swiglu_strided) say "echo 'check: 7 of 9 elements wrong, largest difference 1e+01'; exit 1" ;;
  *) say "echo 'check: 0 of 4096 elements wrong, largest difference 0.001'
[ \$# = 1 ] || echo 'bench: 0.1000 ms, predicted 0.0950 ms, 2400.0 GB/s, 1.500 TFLOP/s'" ;;
esac
"""
COMPUTE_SANITIZER = r"""#!/bin/bash
[ "$1" = --tool ] && [ "$3" = --error-exitcode ] && exec "${@:5}"
exit 1
"""


# lmc-run on a device that computes what the CPU computed, unless a fault is planted.
LMC_RUN = r"""#!/usr/bin/env python3
import json, os, shutil, struct, sys
from datetime import datetime, timezone
from pathlib import Path

plan = Path(sys.argv[1])
options = dict(argument[2:].partition("=")[::2] for argument in sys.argv[2:])
if "bench" in options:
    rate = {"default": 6e4, "measure": 6.6e4}[options["gemm"]]
    print(json.dumps({"tokens_per_second": rate, "step_seconds": {"median": 32768 / rate}, "loss": 12.0,
                      "memory": {"planned_bytes": 2**30, "allocated_bytes": 2**30}}, indent=2))
    sys.exit()
out, steps, fault = Path(options["out"]), int(options["steps"]), os.environ.get("FAULT", "")
jobs = json.loads((plan.parent / "jobs.json").read_text())
job = next(job for job in jobs if job.get("plan", job["name"] + ".plan") == plan.name)
losses = job.get("losses") or [12.0] * steps
print("memory: 1.50 GiB allocated in 2 arena(s), 1.50 GiB planned")
print("graph: micro_last has 400 nodes, captured in 0.02 s\ngraph: optimizer has 22 nodes, captured in 0.01 s")
isEager, resumes = "no-cuda-graphs" in options, (out / "metrics.jsonl").exists()
if "losses" in job:
    assert options["gemm"] == "default"
out.mkdir(parents=True, exist_ok=True)
with open(out / "metrics.jsonl", "a") as file:
    for step in range(steps // 2 if resumes else 0, steps - (1 if fault == "short" and isEager else 0)):
        loss = losses[step] * (1 + (1e-7 if fault == "graphs" and isEager and step else 0))
        loss *= 1 + (1e-3 if fault == "loss" and step == 2 else 0)
        file.write(json.dumps({"step": step + 1, "loss": loss, "grad_norm": 1.5, "tokens_per_second": 7e4,
            "step_seconds": 0.25, "time": datetime.now(timezone.utc).isoformat().replace("+00:00", "Z"),
            "memory_bytes": (job["planned_bytes"] if "losses" in job else 2**30) + (256 if fault == "memory" else 0)}) + "\n")
if "losses" in job:
    reference = plan.parent / job["reference"]
    folder = out / f"checkpoints/{steps}"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(f"{reference}.model.safetensors", folder / "model.safetensors")
    if fault == "resume" and resumes:
        data = (folder / "model.safetensors").read_bytes()
        (folder / "model.safetensors").write_bytes(data[:-4] + bytes(4))
    if "dump-gradients" in options:
        data = Path(f"{reference}.gradients.safetensors").read_bytes()
        if fault == "gradients":
            data = data[:-4] + struct.pack("<f", float("nan"))
        Path(options["dump-gradients"]).write_bytes(data)
"""
PEER = r"""
import json, sys
mode, mbs = sys.argv[sys.argv.index("--mode") + 1], int(sys.argv[sys.argv.index("--mbs") + 1])
if mbs == 32:
    sys.exit("torch.OutOfMemoryError: CUDA out of memory.")
print(json.dumps({"tokens_per_second": 5e4 + mbs + (1e4 if mode == "compile" else 0), "step_ms": 500.0,
                  "first_step_s": 30.0, "loss": 12.0, "torch": "2.11.0", "cuda": "13.0"}))
"""


@pytest.fixture(scope="module")
def packed(programs, root, tmp_path_factory):
    cache = (programs.build / "CMakeCache.txt").read_text()
    if not re.search("^LMC_NVRTC_INCLUDE:PATH=/", cache, re.M):
        pytest.skip("built without NVRTC, which compiles the plans")
    folder = tmp_path_factory.mktemp("pack") / "gpu"
    command = [sys.executable, root / "bench/gpu/pack.py", folder]
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
        assert report["dry_run"] and not report["failed"] and not report["not_run"]
        assert report["rows"] and all(row.keys() == {"item"} for row in report["rows"])
        assert "DRY RUN, nothing was measured" in (results / f"dry-run-{section}.md").read_text()


def test_a_pack_is_small_and_needs_no_cuda(packed):
    assert sum(path.stat().st_size for path in packed.rglob("*") if path.is_file()) < LIMIT_BYTES
    listed = subprocess.run(["ldd", packed / "bin/lmc-run"], capture_output=True, text=True, check=True).stdout
    print(listed)
    assert "not found" not in listed
    assert not re.search("cuda|cublas|nvrtc|nccl|LLVM|MLIR", listed)
    # All libraries but glibc's come from the folder, also those that libraries link.
    outside = [line for line in listed.splitlines() if "=>" in line and str(packed) not in line]
    assert all(re.match(r"\s*lib(c|m|dl|rt|pthread)\.so", line) for line in outside), outside


def test_a_dry_run_measures_nothing(packed, tmp_path):
    out = tmp_path / "results"
    done = run(packed, "--dry-run", f"--out={out}")
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


def test_a_dry_run_trains_on_the_host_driver(packed, programs, tmp_path):
    driver, products, nccl = (programs.build / f"lib/lib{name}-host.so" for name in ("cuda", "cublaslt", "nccl"))
    if not nccl.exists():
        pytest.skip("the host driver is not built: there are no headers of CUDA and NCCL")
    done = run(packed, "conformance", "--dry-run", f"--out={tmp_path}",
               env={"LMC_CUDA_DRIVER": str(driver), "LMC_CUBLASLT": str(products), "LMC_NCCL": str(nccl)})
    assert done.returncode == 0, done.stdout + done.stderr
    for item in (*(f"tiny-f32-gas2 {name}" for name in ("graphs", "eager", "resumed")), "biases-bf16-gas4 graphs",
                 "two-ranks-f32 graphs", "nccl-f32-gas2 graphs"):
        assert f"  {item}: agrees, on the stand-in for the driver\n" in done.stdout
    assert_dry(tmp_path, ["conformance"])


def test_without_a_gpu_one_line_says_so(packed):
    done = run(packed, "ceilings", env={"PATH": "/usr/bin:/bin"})
    if shutil.which("nvidia-smi", path="/usr/bin:/bin"):
        pytest.skip("this machine has nvidia-smi")
    assert done.returncode == 2
    assert done.stderr == ("run: error: nvidia-smi is not on this machine, so there is no GPU to measure; "
                           "--dry-run goes through the sections without one\n")
    assert run(packed, "ceiling").stderr.startswith("run: error: 'ceiling' is none of the sections ceilings, ")


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
    made = reports(Path(machine["OUT"]))
    kernels = made["kernels"]
    assert kernels["failed"] == {
        "kernels-adamw8bit": "does not compile: exit code 2: adamw8bit.cu(7): error: expected a ;",
        "kernels-norm": "exit code 3: norm is broken",
        "kernels-swiglu_strided": "exit code 1: check: 7 of 9 elements wrong, largest difference 1e+01"}
    rows = {row["item"]: row for row in kernels["rows"]}
    # An item that ends before nvidia-smi prints a sample has no clock, power and memory.
    assert {"sm_mhz": 1755.0, "watts": 650.5, "used_mib": 40000.0, **rows["kernels-rms_norm"]} == {
        "item": "kernels-rms_norm", "ms": 0.1, "predicted_ms": 0.095, "ratio": 0.95, "gbps": 2400.0,
        "tflops": 1.5, "wrong": 0, "compared": 4096, "of_copy": 0.8, "sm_mhz": 1755.0, "watts": 650.5,
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
    lines = done.stdout.split("== expected\n")[1].splitlines()
    assert len(lines) == 6 and lines[0].startswith(f"  {worst[0]['section']}: {worst[0]['item']}")
    text = next(Path(machine["OUT"]).glob("gpu-gemm-*.md")).read_text()
    assert "Measured beside expected" in text and "OUTSIDE" in text and "inside" in text
    assert not any(row.get("kernel") == "nothing" for row in made["attention"]["rows"])


@pytest.fixture
def stand_in(packed, tmp_path):
    """The packed folder, with stand-ins for lmc-run and for the peer."""
    folder = tmp_path / "gpu"
    folder.mkdir()
    for path in packed.iterdir():
        if path.name not in ("bin", "build", "results", "peer.py", "run"):
            (folder / path.name).symlink_to(path)
    shutil.copy(packed / "run", folder)
    (folder / "bin").mkdir()
    (folder / "bin/lmc-run").write_text(LMC_RUN)
    (folder / "bin/lmc-run").chmod(0o755)
    (folder / "peer.py").write_text(PEER)
    return folder


def test_clocks_take_whole_samples_only(root, machine, monkeypatch):
    """The end of the program may cut a line of nvidia-smi short; some GPUs do not measure all."""
    monkeypatch.syspath_prepend(root / "bench/gpu")
    clocks = runpy.run_path(str(root / "bench/gpu/session.py"))["Clocks"]
    smi = Path(machine["PATH"].split(":")[0]) / "nvidia-smi"
    smi.write_text("#!/bin/bash\nprintf '1755, 650.5, 40000\\n1755, [N/A], 40000\\n1800, 6'\nexec sleep 60\n")
    monkeypatch.setenv("PATH", machine["PATH"])
    with clocks(True) as sampled:
        deadline = time.monotonic() + 20
        while not sampled.samples and time.monotonic() < deadline:
            time.sleep(0.01)
    assert sampled.figures() == {"sm_mhz": 1755.0, "watts": 650.5, "used_mib": 40000.0}
    smi.write_text("#!/bin/bash\nprintf '1755, 650.5, 4'\nexec sleep 60\n")
    with clocks(True) as sampled:
        time.sleep(0.5)
    assert sampled.figures() == {}


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


def test_the_bets_on_record_are_those_of_the_plans(programs, root, tmp_path):
    """bench/gpu/expected.md and .json are what `./dev gpu expected` writes."""
    if "LMC_BETS" not in os.environ:
        pytest.skip("compiles thirty plans: ./dev test long runs it")
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

    def inside(*command):
        clean = ["/usr/bin/env", "-i", "PATH=/usr/bin:/bin"]
        return subprocess.run([*enter, tmp_path, *clean, *command], capture_output=True, text=True)

    shutil.copytree(compiled(Job()).parent, tmp_path / "job")
    trained = inside("/gpu/bin/lmc-run", "/job/job.plan", "--out=/job/run", "--steps=2",
                     '--set=data.train=["/job/train.bin"]')
    assert trained.returncode == 0 and len(losses(tmp_path / "job/run")) == 2, trained.stderr
    done = inside("/gpu/run", "--dry-run")
    print(done.stdout)
    assert done.returncode == 0, done.stderr
    assert "because nvcc is not on this machine" in done.stdout
    assert_dry(tmp_path / "gpu/results", SECTIONS)

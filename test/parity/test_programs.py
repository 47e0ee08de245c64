"""What the programs are: what they link, and what they write while they run."""

import json
import subprocess
from dataclasses import replace

import pytest

from jobs import Job
from programs import losses, metrics, until


def test_runner_links_no_compiler(programs):
    listed = subprocess.run(
        ["ldd", programs.path("lmc-run")], capture_output=True, text=True, check=True
    ).stdout
    print(listed)
    assert "libc.so" in listed, "ldd did not list libraries"
    assert "not found" not in listed
    for name in ("llvm", "mlir", "clang", "lld", "cuda", "cudart", "cublas", "nvrtc", "nccl"):
        assert f"lib{name}" not in listed.lower()


def test_llama1b_compiles_small(programs, root, tmp_path):
    """Under 2 GiB, with the parameters of the model's description."""
    plan = tmp_path / "llama1b.plan"
    finished = programs.run(
        "lmc", "compile", root / "models/configs/llama1b.toml", "-o", plan,
        "--set", "target.device=cpu", measure_memory=True,
    ).ok()
    explained = programs.run("lmc", "explain", plan, "--json").ok().stdout
    print(f"{finished.peak_bytes / 2**30:.2f} GiB resident, "
          f"plan of {plan.stat().st_size / 2**20:.1f} MiB")
    assert "1241581568" in explained
    json.loads(explained)
    assert 0 < finished.peak_bytes < 2 * 2**30


@pytest.fixture
def demo(programs, root, tmp_path):
    """The demo's plan on a text of its kind, about as long."""
    words = "in the beginning god created heaven and earth void form face deep spirit".split()
    text = " ".join(words[(i * i + i // 7) % len(words)] for i in range(400_000))
    (tmp_path / "text.txt").write_text(text)
    tokens = tmp_path / "text.bin"
    programs.run("lmc-data", "pack", tmp_path / "text.txt", "-o", tokens).ok()
    plan = tmp_path / "demo.plan"
    files = json.dumps([str(tokens)])
    programs.run(
        "lmc", "compile", root / "models/configs/demo.toml", "-o", plan,
        "--set", f"data.train={files}", "--set", f"data.validation={files}",
    ).ok()
    return plan


def test_lines_appear_as_steps_end(programs, demo, tmp_path):
    """The first line of metrics.jsonl is there before the last step ends."""
    file = tmp_path / "run/metrics.jsonl"
    process = programs.start("lmc-run", demo, f"--out={tmp_path / 'run'}", "--steps=3")
    until(lambda: process.poll() is not None or file.exists() and file.read_bytes().count(b"\n") > 0, "a line")
    assert process.poll() is None and file.read_text().count('"loss"') < 3
    assert process.wait(timeout=120) == 0 and len(losses(tmp_path / "run")) == 3


def test_metrics_say_what_is_promised(programs, demo, tmp_path):
    programs.run("lmc-run", demo, f"--out={tmp_path / 'run'}", "--steps=3").ok()
    for line in metrics(tmp_path / "run"):
        print(line)
        assert line["step"] >= 1 and 0 < line["loss"] < 20 and line["lr"] > 0
        assert line["grad_norm"] > 0 and 0 < line["update_ratio"] < 1
        assert line["tokens_per_second"] > 0 and line["memory_bytes"] > 2**20
        # Half of the scores are masked, so the causal count is the smaller one.
        assert 0 < line["mfu_causal"] <= line["mfu_full"] < 1


@pytest.mark.parametrize("cpu", ["x86-64", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("compute_dtype", ["f32", "bf16"])
def test_plans_for_other_processors(programs, compiled, tmp_path, cpu, compute_dtype):
    """Code for an older processor learns the same; code for a newer one is refused by name."""
    job = Job(compute_dtype=compute_dtype, settings={"checkpoint": {"interval": 0}})
    native = compiled(job)
    programs.run("lmc-run", native, f"--out={tmp_path / 'native'}").ok()
    other = compiled(replace(job, settings={**job.settings, "target": {"cpu": cpu}}))
    finished = programs.run("lmc-run", other, f"--out={tmp_path / 'other'}")
    flags = next(line for line in open("/proc/cpuinfo") if line.startswith("flags")).split()
    if cpu == "x86-64-v4" and "avx512f" not in flags:
        print(finished.stderr)
        assert finished.code == 2 and "avx512" in finished.stderr
        return
    finished.ok()
    differences = [
        abs(a - b) / b for a, b in zip(losses(tmp_path / "other"), losses(tmp_path / "native"))
    ]
    print(f"{cpu}: largest relative difference of ten losses {max(differences):.1e}")
    assert len(differences) == 10 and max(differences) < (1e-5 if compute_dtype == "f32" else 2e-2)

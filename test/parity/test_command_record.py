"""`lmc-run --record-commands` and `--compare-commands` find the first command that computes something
else; `lmc-run --devices` says what a machine has."""

import json
import os
import shutil
import subprocess
from array import array
from pathlib import Path

import pytest

from jobs import Job
from programs import FAILURE, SUCCESS, USER_ERROR, Programs
from reference import Model, Optimizer

LIBRARIES = Path(os.environ.get("LMC_BUILD", Path(__file__).resolve().parents[2] / "build")) / "lib"
HAS_HOST_DRIVER = (LIBRARIES / "libcuda-host.so").exists()
needs_host_driver = pytest.mark.skipif(
    not HAS_HOST_DRIVER, reason="the host driver is not built: it needs the headers of a CUDA toolkit")
HOST = {"LMC_GEMM": "default", "LMC_CUDA_DRIVER": str(LIBRARIES / "libcuda-host.so"),
        "LMC_CUBLASLT": str(LIBRARIES / "libcublaslt-host.so"), "LMC_NCCL": str(LIBRARIES / "libnccl-host.so")}


def job(dtype: str = "f32", **changes) -> Job:
    return Job(model=Model(vocab_size=128, num_hidden_layers=2, attention_bias=True, mlp_bias=True),
               micro_batch_size=2, batch_size=6, train_iters=4, compute_dtype=dtype,
               optimizer=Optimizer(warmup_iters=0, decay_iters=4),
               settings={"data": {"validation": ["train.bin"]}}, **changes)


def start(programs: Programs, plan: Path, *options: str, env: dict | None = None):
    return subprocess.run(programs.command("lmc-run", plan, *options), text=True, capture_output=True,
                          timeout=300, env={**os.environ, **(env or {})})


def lines_of(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


# AdamW's first step divides each gradient by its own size, so where a gradient is almost 0, another rounding of it turns the
# step's sign: commands that read the new weights may differ ten times as much as those before.
@pytest.mark.parametrize("dtype, bound, bound_behind_step", [("f32", 1e-5, 1e-4), ("bf16", 3e-2, 3e-2)])
def test_other_instructions_and_threads_agree(programs, compiled, tmp_path, dtype, bound, bound_behind_step):
    plan, record = compiled(job(dtype)), tmp_path / "commands.jsonl"
    made = start(programs, plan, f"--record-commands={record}", "--threads=2", "--gemm=default")
    assert made.returncode == SUCCESS, made.stderr
    head, *recorded = lines_of(record.read_text())
    assert head["lmc_commands"] == 1 and head["target"].startswith("cpu:")
    # One step is micro_first, micro, micro_last and the optimizer; then comes one validation.
    runs = list(dict.fromkeys((line["function"], line["run"]) for line in recorded))
    assert runs == [("micro_first", 0), ("micro", 0), ("micro_last", 0), ("optimizer", 0), ("eval", 0)]
    same = start(programs, plan, f"--compare-commands={record}", "--threads=2", "--gemm=default", "--json",
                 "--tolerance=1e-300")
    assert same.returncode == SUCCESS, same.stderr
    assert all(line["difference"] == 0 and line["ok"] for line in lines_of(same.stdout))
    other = start(programs, plan, f"--compare-commands={record}", "--threads=1", "--gemm=default", "--json",
                  env={"LMC_CPU_ISA": "x86-64", "ONEDNN_MAX_CPU_ISA": "SSE41"})
    assert other.returncode == SUCCESS, other.stderr
    compared = lines_of(other.stdout)
    assert [line["op"] for line in compared] == [line["op"] for line in recorded]
    before = max(line["difference"] for line in compared if line["function"].startswith("micro"))
    behind = max(line["difference"] for line in compared if not line["function"].startswith("micro"))
    print(before, behind)
    assert 0 < before < bound and 0 < behind < bound_behind_step
    assert "projections" not in other.stdout


def test_names_the_first_command_that_differs(programs, compiled, tmp_path):
    plan, record = compiled(job()), tmp_path / "commands.jsonl"
    start(programs, plan, f"--record-commands={record}").check_returncode()
    # Another rate of learning changes nothing before the optimizer's step.
    other = start(programs, plan, f"--compare-commands={record}", "--json", "--set=lr_schedule.lr=0.05")
    assert other.returncode == FAILURE
    wrong = [line for line in lines_of(other.stdout) if not line["ok"]]
    assert {line["function"] for line in wrong} == {"optimizer", "eval"} and wrong[0]["kernel"]
    (error,) = (line for line in other.stderr.splitlines() if "error" in line)
    assert error.startswith(f"lmc-run: error: run 0 of optimizer, command {wrong[0]['command']} ")
    assert f"kernel {wrong[0]['kernel']}) is the first that differs from {record} (of " in error

    # One number of one result, in the file.
    text = record.read_text().splitlines()
    number = next(i for i, line in enumerate(text) if '"kind":"gemm"' in line)
    line = json.loads(text[number])
    line["outputs"][0]["projections"][3] += line["outputs"][0]["norm"]
    planted = tmp_path / "planted.jsonl"
    planted.write_text("\n".join([*text[:number], json.dumps(line), *text[number + 1:]]) + "\n")
    found = start(programs, plan, f"--compare-commands={planted}")
    assert found.returncode == FAILURE
    assert f"run 0 of {line['function']}, command {line['command']} (gemm {line['op']}) is the first that" in found.stderr
    # The estimate is the root mean square over 16 sums.
    assert "differs" in found.stderr and ": by 0.25, relative to its size; at most 0.0001 is allowed" in found.stderr


def test_bad_files_and_options_are_said_in_one_line(programs, compiled, tmp_path):
    plan, record = compiled(job()), tmp_path / "commands.jsonl"
    start(programs, plan, f"--record-commands={record}").check_returncode()
    text = record.read_text()

    def error(content: str | None, *options: str, code: int = USER_ERROR) -> str:
        path = tmp_path / "bad.jsonl"
        if content is not None:
            path.write_text(content)
        done = start(programs, plan, *(options or [f"--compare-commands={path}"]))
        errors = [line for line in done.stderr.splitlines() if line.startswith("lmc-run: error: ")]
        assert done.returncode == code and len(errors) == 1, done.stderr
        return errors[0].replace(str(tmp_path), "DIR")

    assert "DIR/none: cannot be read: No such file" in error(None, f"--compare-commands={tmp_path / 'none'}")
    assert "DIR/bad.jsonl: is empty" in error("")
    assert "DIR/bad.jsonl:1: this is no line of a file that lmc-run --record-commands wrote" in error("{}\n")
    assert "DIR/bad.jsonl:3: this is no line" in error("\n".join(text.splitlines()[:2]) + '\n{"a": 1}\n')
    assert "DIR/bad.jsonl: has 2 commands, and the step has " in error("\n".join(text.splitlines()[:3]) + "\n")
    assert "DIR/bad.jsonl: was recorded of the plan " in error(text.replace('"plan":"', '"plan":"0', 1))
    lines = text.splitlines()
    assert "DIR/bad.jsonl: line 2 is not of run 0 of micro_first, command " in error(
        "\n".join([lines[0], lines[2], lines[1], *lines[3:]]) + "\n")
    assert "DIR/bad.jsonl: " in error(text.replace('"norm":', '"size":', 1))
    for options in (("--record-commands=a", "--compare-commands=b"), ("--record-commands=a", "--bench=2"),
                    ("--compare-commands=a", f"--out={tmp_path}")):
        assert "each run one step that is not kept; give one of them" in error(None, *options)
    assert "--tolerance=-1: must be a number above 0" in error(None, "--compare-commands=a", "--tolerance=-1")
    assert "--tolerance is for --compare-commands=FILE" in error(None, "--bench=1", "--tolerance=1")


@needs_host_driver
def test_the_cuda_device_agrees_with_itself_in_other_orders(programs, compiled, tmp_path):
    """On the stand-in for the driver: kernels, products, and collectives on streams of their own."""
    plan, record = compiled(job("bf16"), "--target=cuda:sm_90a"), tmp_path / "commands.jsonl"
    made = start(programs, plan, f"--record-commands={record}", env=HOST)
    assert made.returncode == SUCCESS, made.stderr
    _, *recorded = lines_of(record.read_text())
    assert {"launch", "gemm", "attention", "attention_grad", "scatter_add"} <= {line["kind"] for line in recorded}
    assert all(line["kernel"] for line in recorded if line["kind"] != "gemm")
    other = start(programs, plan, f"--compare-commands={record}", "--json", env={**HOST, "LMC_HOST_SEED": "7"})
    assert other.returncode == SUCCESS, other.stderr
    print(max(line["difference"] for line in lines_of(other.stdout)))


@needs_host_driver
@pytest.mark.parametrize("target, collectives", [("cpu", "nccl"), ("cuda:sm_90a", "host"), ("cuda:sm_90a", "nccl")])
def test_every_rank_has_a_file(programs, compiled, tmp_path, target, collectives):
    ranks = Job(model=Model(vocab_size=128, num_hidden_layers=2), micro_batch_size=2, batch_size=8,
                settings={"distributed": {"strategy": "zero3"}})
    plan = compiled(ranks, f"--target={target}", "--nodes=1", "--devices-per-node=2")
    record = tmp_path / "commands.jsonl"
    options = ["--nproc=2", f"--collectives={collectives}", "--gemm=default", "--threads=1"]
    env = {**HOST, "LMC_HOST_DEVICES": "2"} if target != "cpu" else {}
    made = start(programs, plan, f"--record-commands={record}", *options, env=env)
    assert made.returncode == SUCCESS, made.stderr
    files = [record, Path(f"{record}.rank1")]
    kinds = [{line.get("kind") for line in lines_of(path.read_text())} for path in files]
    assert kinds[0] == kinds[1] and {"all_gather", "reduce_scatter"} <= kinds[0]
    again = start(programs, plan, f"--compare-commands={record}", *options, env=env)
    assert again.returncode == SUCCESS, again.stderr
    # A difference of one rank ends the run.
    text = files[1].read_text().splitlines()
    line = json.loads(text[-1])
    line["outputs"][0]["projections"][0] += 1 + line["outputs"][0]["scale"]
    files[1].write_text("\n".join([*text[:-1], json.dumps(line)]) + "\n")
    other = start(programs, plan, f"--compare-commands={record}", *options, env=env)
    assert other.returncode != SUCCESS and "is the first that differs from" in other.stderr, other.stderr


@needs_host_driver
def test_libraries_of_python_packages_are_found(programs, tmp_path):
    """lmc-run of a wheel finds cuBLASLt and NCCL of NVIDIA's wheels beside it."""
    program = tmp_path / "lmc/bin/lmc-run"
    program.parent.mkdir(parents=True)
    (tmp_path / "lmc/__init__.py").touch()
    shutil.copy(programs.command("lmc-run")[0], program)
    placed = {"cublaslt": tmp_path / "nvidia/cu13/lib/libcublasLt.so.13", "nccl": tmp_path / "nvidia/nccl/lib/libnccl.so.2"}
    for name, path in placed.items():
        path.parent.mkdir(parents=True)
        shutil.copy(LIBRARIES / f"lib{name}-host.so", path)
    environment = {key: value for key, value in {**os.environ, **HOST}.items() if key not in ("LMC_CUBLASLT", "LMC_NCCL")}
    environment["LD_LIBRARY_PATH"] = str(LIBRARIES)  # the stand-ins use each other
    done = subprocess.run([program, "--devices", "--json"], text=True, capture_output=True, env=environment)
    assert done.returncode == SUCCESS, done.stderr
    found = json.loads(done.stdout)["libraries"]
    assert {name: found[name].get("file") for name in placed} == {name: str(path) for name, path in placed.items()}


@needs_host_driver
def test_devices_says_what_the_machine_has(programs):
    def devices(*options: str, **env: str):
        command = [*programs.command("lmc-run"), "--devices", *options]
        return subprocess.run(command, text=True, capture_output=True, env={**os.environ, **HOST, **env})

    done = devices("--json", LMC_HOST_DEVICES="2", LMC_HOST_ARCH="89")
    assert done.returncode == SUCCESS, done.stderr
    found = json.loads(done.stdout)
    assert found["cuda_driver"] == "13.0" and found["problems"] == []
    assert [gpu["compute_capability"] for gpu in found["devices"]] == ["8.9", "8.9"]
    assert all(gpu["memory"]["ok"] and gpu["memory"]["bytes"] == 64 << 20 for gpu in found["devices"])
    assert found["libraries"]["cublaslt"]["file"] == HOST["LMC_CUBLASLT"]
    assert found["libraries"]["nccl"]["file"] == HOST["LMC_NCCL"]
    assert found["libraries"]["nccl"]["version"].count(".") == 2
    assert devices().stdout.splitlines()[1].startswith("GPU 0: ")

    lacking = devices("--json", LMC_CUBLASLT="/none.so", LMC_NCCL="/none.so")
    found = json.loads(lacking.stdout)
    assert lacking.returncode == FAILURE and "no cuBLASLt" in found["problems"][0]
    assert found["devices"][0]["memory"]["ok"] and "LMC_NCCL=/none.so" in found["libraries"]["nccl"]["error"]
    absent = devices("--json", LMC_CUDA_DRIVER="/none.so")
    assert absent.returncode == FAILURE and json.loads(absent.stdout)["devices"] == []
    assert absent.stderr.count("error") == 1 and "no CUDA driver" in absent.stderr
    failing = devices("--json", LMC_HOST_FAIL_CALL="cuMemcpyHtoDAsync:1")
    assert failing.returncode == FAILURE and "cannot copy to the GPU" in failing.stderr


EXPERTS_OF_8_BITS = ["training.fp8=block", "training.compute_dtype=bf16", "model.hidden_size=128", "model.intermediate_size=128",
                     "training.sequence_length=128", "model.max_position_embeddings=128"]


@needs_host_driver
@pytest.mark.parametrize("more, product", [([], "expert_linear"), (EXPERTS_OF_8_BITS, "expert_scaled_linear")])
def test_rows_of_experts_that_no_token_has_are_not_compared(programs, root, tmp_path, more, product):
    """A rank has room for more rows than it gets, and what memory holds there is left by others: here garbage of
    another seed."""
    plan, record, data = tmp_path / "job.plan", tmp_path / "commands.jsonl", tmp_path / "train.bin"
    array("H", (i * i % 128 for i in range(2048))).tofile(data.open("wb"))
    settings = ["model.num_hidden_layers=1", "training.micro_batch_size=1", "training.batch_size=2",
                "distributed.strategy=zero3", "distributed.expert_parallel=2", "distributed.expert_capacity=1.25", *more]
    programs.run("lmc", "compile", root / "models/configs/test-mixtral.toml", "-o", plan, "--target=cuda:sm_90a",
                 "--nodes=1", "--devices-per-node=2", *(f"--set={each}" for each in settings)).ok()
    options = ["--nproc=2", "--collectives=host", f'--set=data.train=["{data}"]']
    made = start(programs, plan, f"--record-commands={record}", *options, env={**HOST, "LMC_HOST_SEED": "1"})
    assert made.returncode == SUCCESS, made.stderr
    rows = [line for line in lines_of(record.read_text())[1:] if line["kind"] in ("take_rows", product)]
    assert {line["kind"] for line in rows} == {"take_rows", product}
    assert all(output["not_finite"] == 0 for line in rows for output in line["outputs"])
    other = start(programs, plan, f"--compare-commands={record}", *options, env={**HOST, "LMC_HOST_SEED": "2"})
    assert other.returncode == SUCCESS, other.stderr

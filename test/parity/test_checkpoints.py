"""What a checkpoint is good for without its plan: lmc-data inspect and lmc-data export. And what a
resume reads of it."""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from huggingface_hub import split_torch_state_dict_into_shards
from safetensors import safe_open
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

import huggingface
import reference
from jobs import Job
from programs import USER_ERROR, checkpoints
from reference import Model, Optimizer
from test_huggingface import assert_same_bits

JOB = Job(
    model=Model(tie_word_embeddings=True), sequence_length=32, batch_size=2, micro_batch_size=2,
    train_iters=4, optimizer=Optimizer(decay_iters=4),
    settings={"monitoring": {"logits": True}, "data": {"end_of_document": 7}},
)


@pytest.fixture(scope="module")
def trained(programs, compiled, tmp_path_factory) -> Path:
    """A run's folder, whose plan was set aside."""
    out = tmp_path_factory.mktemp("trained") / "run"
    programs.run(
        "lmc-run", compiled(JOB), f"--out={out}", "--set=checkpoint.interval=2",
        "--set=lr_schedule.lr=0.002",
    ).ok()
    shutil.rmtree(out / "plans")
    return out


def weights_of(folder: Path) -> reference.Weights:
    return load_file(folder / "model.safetensors")


def export(programs, trained: Path, to: Path, *options: str) -> reference.Weights:
    programs.run("lmc-data", "export", trained, "-o", to, *options).ok()
    return reference.load_weights(to)


def test_inspect_prints_what_the_checkpoint_records(programs, trained):
    newest = checkpoints(trained)[4]
    text = programs.run("lmc-data", "inspect", trained, "--verify").ok().stdout
    assert str(newest) in text and "step             4" in text
    assert "lr_schedule.lr" in text and "lmc-run --set" in text
    printed = programs.run("lmc-data", "inspect", newest, "--json", "--verify").ok().stdout
    report = json.loads(printed)
    weights = weights_of(newest)
    assert report["step"] == 4
    assert report["tokens"] == report["position"] == 4 * 2 * 32
    assert report["parameters"] == {
        "count": sum(w.numel() for w in weights.values()), "tensors": len(weights),
        "dtypes": ["F32"], "bytes": sum(w.numel() * 4 for w in weights.values()),
    }
    for file in report["files"]:
        assert file["bytes"] == (newest / file["name"]).stat().st_size
        assert file["checksum"] == "right"
    assert report["run"]["settings"]["lr_schedule.lr"]["origin"] == "lmc-run --set"
    assert len(report["run"]["planHash"]) == 64


def test_damage_is_shown(programs, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    path = checkpoints(tmp_path / "run")[4] / "moment1.safetensors"
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    found = programs.run("lmc-data", "inspect", tmp_path / "run", "--json", "--verify")
    assert found.code == USER_ERROR and "moment1.safetensors: damaged" in found.stderr
    files = {file["name"]: file["checksum"] for file in json.loads(found.stdout)["files"]}
    assert files["moment1.safetensors"] == "wrong" and files["model.safetensors"] == "right"
    programs.run("lmc-data", "inspect", tmp_path / "run").ok()  # sizes only
    # The weights are whole, so they can be exported; damaged ones are not.
    programs.run("lmc-data", "export", tmp_path / "run", "-o", tmp_path / "whole").ok()
    weights = path.with_name("model.safetensors")
    damaged = bytearray(weights.read_bytes())
    damaged[-1] ^= 1
    weights.write_bytes(damaged)
    found = programs.run("lmc-data", "export", tmp_path / "run", "-o", tmp_path / "hf")
    assert found.code == USER_ERROR and "model.safetensors: damaged" in found.stderr
    assert not (tmp_path / "hf").exists()


@pytest.mark.parametrize("shards", ["5GB", "20KB"])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_export_loads_in_transformers(programs, trained, tmp_path, dtype, shards):
    torch_dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]
    options = f"--dtype={dtype}", f"--max-shard-size={shards}"
    ours = export(programs, trained, tmp_path / "hf", *options)
    expected = {name: w.to(torch_dtype) for name, w in weights_of(checkpoints(trained)[4]).items()}
    assert_same_bits(ours, expected)

    made, report = AutoModelForCausalLM.from_pretrained(
        tmp_path / "hf", dtype="auto", attn_implementation="eager", output_loading_info=True
    )
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not report[kind], report
    assert made.dtype == torch_dtype
    assert made.config.eos_token_id == made.config.bos_token_id == 7
    assert made.generation_config.eos_token_id == 7

    # Divided as save_pretrained divides tensors in this order, which calls this function.
    with safe_open(checkpoints(trained)[4] / "model.safetensors", "pt") as file:
        ordered = {name: expected[name] for name in file.offset_keys()}
    split = split_torch_state_dict_into_shards(
        ordered, filename_pattern="model{suffix}.safetensors", max_shard_size=shards
    )
    files = {p.name for p in (tmp_path / "hf").glob("*.safetensors")}
    print(f"{len(files)} files")
    assert split.is_sharded == (shards == "20KB")
    assert files == set(split.filename_to_tensors)
    for name, tensors in split.filename_to_tensors.items():
        assert set(load_file(tmp_path / "hf" / name)) == set(tensors), name
    if split.is_sharded:
        index = json.loads((tmp_path / "hf" / "model.safetensors.index.json").read_text())
        assert index["weight_map"] == split.tensor_to_filename
        made.save_pretrained(tmp_path / "theirs", max_shard_size=shards)
        theirs = json.loads((tmp_path / "theirs" / "model.safetensors.index.json").read_text())
        assert index["metadata"] == theirs["metadata"]


def test_exported_weights_have_the_same_logits(programs, compiled, trained, tmp_path):
    export(programs, trained, tmp_path / "hf", "--max-shard-size=20KB")
    made = AutoModelForCausalLM.from_pretrained(
        tmp_path / "hf", dtype=torch.float32, attn_implementation="eager"
    )
    dump = tmp_path / "logits.safetensors"
    programs.run(
        "lmc-run", compiled(JOB), f"--out={tmp_path / 'run'}", f"--resume={trained}",
        f"--dump-logits={dump}",
    ).ok()
    dumped = load_file(dump)
    theirs = huggingface.logits(made.eval(), dumped["tokens"].long())
    difference = (dumped["logits"] - theirs).abs().max()
    print(f"largest difference {difference:.2e}")
    assert difference <= 1e-4


def test_exported_weights_come_back_bit_for_bit(programs, compiled, trained, tmp_path):
    ours = export(programs, trained, tmp_path / "hf", "--max-shard-size=20KB")
    programs.run(
        "lmc-run", compiled(JOB), f"--out={tmp_path / 'run'}", "--resume=none", "--steps=0",
        f"--init={tmp_path / 'hf'}", f"--export={tmp_path / 'again'}",
    ).ok()
    assert_same_bits(reference.load_weights(tmp_path / "again"), ours)


def test_the_tokenizer_that_the_data_was_packed_with_is_exported(programs, compiled, trained, tmp_path):
    kept = Path(compiled(JOB)).parent / "train.bin.tokenizer"
    kept.mkdir()
    try:
        (kept / "tokenizer.json").write_text("{}")
        export(programs, trained, tmp_path / "hf")
        programs.run("lmc-run", compiled(JOB), f"--out={tmp_path / 'run'}", "--steps=0",
                     f"--export={tmp_path / 'end'}").ok()
    finally:
        shutil.rmtree(kept)
    for folder in ("hf", "end"):
        assert (tmp_path / folder / "tokenizer.json").read_text() == "{}"
        assert json.loads((tmp_path / folder / "config.json").read_text())["eos_token_id"] == 7


def test_options_of_export(programs, trained, tmp_path):
    tokenizer = tmp_path / "tokenizer"
    tokenizer.mkdir()
    (tokenizer / "tokenizer.json").write_text("{}")
    export(programs, trained, tmp_path / "hf", f"--tokenizer={tokenizer}", "--eos=3", "--bos=1")
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert (config["bos_token_id"], config["eos_token_id"]) == (1, 3)
    assert (tmp_path / "hf" / "tokenizer.json").read_text() == "{}"

    def fails(message: str, *options: object) -> None:
        refused = programs.run("lmc-data", "export", *options)
        assert refused.code == USER_ERROR and refused.stderr.count("\n") == 1, refused.stderr
        assert message in refused.stderr, refused.stderr

    fails("tokenizer.json", trained, "-o", tmp_path / "hf")  # it would be removed
    fails("no --output given", trained)
    fails("no checkpoint there", tmp_path, "-o", tmp_path / "new")
    fails("must be f32 or bf16", trained, "-o", tmp_path / "new", "--dtype=f16")
    fails("--max-shard-size", trained, "-o", tmp_path / "new", "--max-shard-size=5XB")
    fails("no such file", trained, "-o", tmp_path / "new", f"--tokenizer={tmp_path / 'absent'}")
    assert not (tmp_path / "new").exists()


def bytes_read(programs, *args: object) -> int:
    """All that the program reads with read() and pread(), as the kernel counts it."""
    process = programs.start("lmc-run", *args)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # and keep its counters
    counters = Path(f"/proc/{process.pid}/io").read_text()
    assert process.wait() == 0
    return int(counters.split("rchar: ")[1].split()[0])


def test_resume_reads_each_byte_once(programs, compiled, tmp_path):
    """A start that has nothing left to do loads the checkpoint, and reads little else."""
    model = Model(vocab_size=16384, hidden_size=256, intermediate_size=512)
    job = Job(
        model=model, sequence_length=8, batch_size=1, micro_batch_size=1, train_iters=1,
        optimizer=Optimizer(warmup_iters=0, decay_iters=1),
    )
    out = tmp_path / "run"
    programs.run("lmc-run", compiled(job), f"--out={out}").ok()
    size = sum(p.stat().st_size for p in checkpoints(out)[1].iterdir())
    plan = compiled(job).stat().st_size
    read = bytes_read(programs, compiled(job), f"--out={out}")
    print(f"checkpoint of {size} bytes, {read} bytes read, of which the plan has {plan}")
    assert size > 50e6 and 0.95 * size <= read <= 1.05 * size

"""Prompts that the model continues during a run, beside transformers' logits of the same weights."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

import huggingface
import tokenizers_of_models as known
from jobs import Job
from programs import USER_ERROR, losses, until
from reference import Model, Optimizer

NEW = 12  # tokens
TEXTS = ["The king", "and", "x = 1\ny = 2", "", "\u00e9t\u00e9"]


def generated(out: Path) -> list[dict]:
    return [json.loads(line) for line in (out / "generated.jsonl").read_text().splitlines()]


class Text:
    """A text that a tokenizer has packed, and prompts. Documents begin with the token `begin`; in GPT-2's way they
    end with one, which the next document then has before it."""

    def __init__(self, programs, folder: Path, make, bos: str | None, eod: str):
        self.tokenizer = Tokenizer.from_str(make(known.lines(1, 2000), 600).to_str())
        (folder / "tokenizer.json").write_text(self.tokenizer.to_str())
        (folder / "text.jsonl").write_text(
            "".join(json.dumps({"text": line}) + "\n" for line in known.lines(4, 400)))
        self.train = folder / "text.bin"
        programs.run("lmc-data", "pack", folder / "text.jsonl", "-o", self.train, "--tokenizer",
                     folder / "tokenizer.json", f"--bos={bos or 'none'}", f"--eod={eod}").ok()
        self.end, self.begin = self.tokenizer.token_to_id(eod), self.tokenizer.token_to_id(bos or eod)
        self.prompts = folder / "prompts.jsonl"
        self.prompts.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in TEXTS))

    def job(self, **generation) -> Job:
        keys = {"prompts": str(self.prompts), "interval": 4, "max_new_tokens": NEW, **generation}
        model = Model(vocab_size=self.tokenizer.get_vocab_size(), num_hidden_layers=1,
                      max_position_embeddings=64)
        return Job(model=model, optimizer=Optimizer(decay_iters=8, lr=0.01, warmup_iters=1), sequence_length=32,
                   batch_size=8, micro_batch_size=2, train_iters=8,
                   settings={"data": {"train": [str(self.train)]}, "generation": keys,
                             "checkpoint": {"export_interval": 4}})


@pytest.fixture(scope="module")
def text(programs, tmp_path_factory) -> Text:
    return Text(programs, tmp_path_factory.mktemp("text"), known.gpt2, None, "<|endoftext|>")


def assert_most_likely(text: Text, out: Path, step: int, tolerance: float = 1e-3) -> None:
    """Each token that was taken is the most likely one by transformers' logits, within rounding."""
    made = AutoModelForCausalLM.from_pretrained(out / "exports" / str(step), dtype=torch.float32,
                                                attn_implementation="eager").eval()
    rows = [row for row in generated(out) if row["step"] == step]
    assert [row["prompt"] for row in rows] == TEXTS
    for row in rows:
        start = [text.begin] + text.tokenizer.encode(row["prompt"], add_special_tokens=False).ids
        ids = start[:]
        for _ in range(NEW):
            best = huggingface.logits(made, torch.tensor([ids]))[0, -1]
            if int(best.argmax()) == text.end:
                break
            ids.append(int(best.argmax()))
        ours = start + row["ids"]
        before, whole = (text.tokenizer.decode(part, skip_special_tokens=False) for part in (start, ours))
        if whole.startswith(before):
            # One character may be cut off at the end.
            assert row["text"].rstrip("\ufffd") == whole[len(before):].rstrip("\ufffd")
        if ours == ids:
            assert row["end"] == ("length" if len(row["ids"]) == NEW else "end_of_document")
            continue
        # Where two tokens are equally likely, each of the programs may take another one.
        same = next(i for i, pair in enumerate(zip(ours, ids)) if pair[0] != pair[1])
        near = huggingface.logits(made, torch.tensor([ids[:same]]))[0, -1]
        assert near.max() - near[ours[same]] < tolerance, row


def test_the_most_likely_text_is_that_of_transformers(programs, compiled, text, tmp_path):
    plan = compiled(text.job())
    out = tmp_path / "run"
    done = programs.run("lmc-run", plan, f"--out={out}").ok()
    assert sorted({row["step"] for row in generated(out)}) == [4, 8]
    for step in (4, 8):
        assert_most_likely(text, out, step)
        assert f'step {step}: "The king" goes on "' in done.stdout
    counts = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
    assert [(e["step"], e["prompts"]) for e in counts if e["event"] == "generation"] == [(4, 5), (8, 5)]


def test_a_prompt_begins_with_the_token_that_begins_documents(programs, compiled, tmp_path):
    text = Text(programs, tmp_path, known.llama2, "<s>", "</s>")
    out = tmp_path / "run"
    programs.run("lmc-run", compiled(text.job()), f"--out={out}").ok()
    assert_most_likely(text, out, 8)


@pytest.mark.parametrize("strategy", ["no_shard", "zero3"])
@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_share_the_prompts(programs, compiled, text, tmp_path, ranks, strategy):
    """With one row each and two or three ranks, five prompts take several rounds, the last of them not full."""
    job = replace(text.job(), batch_size=6, micro_batch_size=1)
    plan = compiled(job, f"--devices-per-node={ranks}", "--set", f"distributed.strategy={strategy}")
    out = tmp_path / "run"
    programs.run("local-ranks", ranks, f"plan={plan}", f"out={out}").ok()
    for step in (4, 8):
        assert_most_likely(text, out, step)


def test_a_padded_vocabulary_generates_no_padding(programs, compiled, text, tmp_path):
    plan = compiled(text.job(), "--set", "target.make_vocab_size_divisible_by=512")
    out = tmp_path / "run"
    programs.run("lmc-run", plan, f"--out={out}").ok()
    assert_most_likely(text, out, 8)


def test_documents_do_not_matter_to_a_prompt(programs, compiled, text, tmp_path):
    job = text.job()
    job.settings["training"] = {"document_mask": True, "document_positions": True}
    out = tmp_path / "run"
    programs.run("lmc-run", compiled(job), f"--out={out}").ok()
    assert_most_likely(text, out, 8)


def test_bf16_generates_too(programs, compiled, text, tmp_path):
    out = tmp_path / "run"
    programs.run("lmc-run", compiled(replace(text.job(), compute_dtype="bf16")), f"--out={out}").ok()
    assert_most_likely(text, out, 8, tolerance=0.1)


def test_it_changes_no_training_and_is_resumed(programs, compiled, text, tmp_path):
    """The losses are those of a run without prompts, and after a rewind each step has its texts once."""
    plan = compiled(text.job(temperature=1.0, top_p=0.9))
    whole, without, parts = tmp_path / "whole", tmp_path / "without", tmp_path / "parts"
    programs.run("lmc-run", plan, f"--out={whole}").ok()
    programs.run("lmc-run", plan, f"--out={without}", "--set", 'generation.prompts=""').ok()
    assert losses(whole) == losses(without) and not (without / "generated.jsonl").exists()

    programs.run("lmc-run", plan, f"--out={parts}", "--set", "checkpoint.interval=3", "--set",
                 "generation.interval=2").ok()
    programs.run("lmc-run", plan, f"--out={parts}", "--rewind=3").ok()
    assert losses(parts) == losses(whole)
    assert [row["step"] for row in generated(parts)] == [2] * 5 + [4] * 5 + [6] * 5 + [8] * 5
    assert [row for row in generated(parts) if row["step"] in (4, 8)] == generated(whole), "what is drawn is decided by the step"
    assert {row["step"] for row in generated(parts / "undone" / "1")} == {4, 6, 8}


def test_bytes_need_no_tokenizer(programs, compiled, tmp_path):
    (tmp_path / "text.txt").write_text("abcdefgh " * 600)
    programs.run("lmc-data", "pack", tmp_path / "text.txt", "-o", tmp_path / "bytes.bin").ok()
    (tmp_path / "prompts.txt").write_text("abc\n\nefgh abcd\r\n")
    job = Job(model=Model(vocab_size=256, num_hidden_layers=1), train_iters=60,
              optimizer=Optimizer(decay_iters=60, lr=0.02, warmup_iters=2),
              settings={"data": {"train": [str(tmp_path / "bytes.bin")]},
                        "generation": {"prompts": str(tmp_path / "prompts.txt"), "max_new_tokens": 8}})
    out = tmp_path / "run"
    programs.run("lmc-run", compiled(job), f"--out={out}").ok()
    assert [(row["prompt"], row["text"]) for row in generated(out)] == [
        ("abc", "defgh ab"), ("efgh abcd", "efgh abc")]


@pytest.mark.parametrize("prompts, message", [
    (None, "prompts.txt"),
    ("\n\n", "has no prompt"),
    ("good\n" + "the " * 40 + "\n", "prompts.txt:2: the prompt has "),
    (b"\xff\xfe\n", "prompts.txt:1: not valid UTF-8"),
])
def test_bad_prompts_are_refused_before_the_first_step(programs, compiled, text, tmp_path, prompts, message):
    path = tmp_path / "prompts.txt"
    if prompts is not None:
        path.write_bytes(prompts if isinstance(prompts, bytes) else prompts.encode())
    done = programs.run("lmc-run", compiled(text.job()), f"--out={tmp_path / 'run'}", "--set",
                        f"generation.prompts={path}")
    assert done.code == USER_ERROR and message in done.stderr
    assert not losses(tmp_path / "run")


def test_a_plan_without_the_function_says_so(programs, compiled, text, tmp_path):
    job = text.job()
    del job.settings["generation"]
    done = programs.run("lmc-run", compiled(job), f"--out={tmp_path / 'run'}", "--set",
                        f"generation.prompts={text.prompts}", "--set", "generation.max_new_tokens=8")
    assert done.code == USER_ERROR and "compiled without generation.prompts" in done.stderr


def test_data_without_a_tokenizer_are_refused(programs, compiled, text, tmp_path):
    job = text.job()
    del job.settings["data"]
    done = programs.run("lmc-run", compiled(job), f"--out={tmp_path / 'run'}")
    assert done.code == USER_ERROR and "train.bin: no tokenizer is known" in done.stderr


def test_tensorboard_shows_texts_and_evaluations(programs, compiled, text, tmp_path):
    reader = pytest.importorskip("tensorboard.backend.event_processing.plugin_event_accumulator",
                                 reason="the Python package tensorboard is not installed")
    out = tmp_path / "run"
    command = """printf '{"accuracy": 0.%d}' $LMC_STEP > $LMC_RESULTS/results.json"""
    run = ["lmc-run", compiled(text.job()), f"--out={out}", "--set", "monitoring.tensorboard=true", "--set",
           f"checkpoint.export_command={json.dumps(command)}"]
    programs.run(*run, "--steps=4").ok()
    until(lambda: (out / "evaluations/4/complete").exists(), "the export of step 4 is evaluated")
    programs.run(*run).ok()
    events = reader.EventAccumulator(str(out / "tensorboard"), tensor_size_guidance={"text": 0, "scalars": 0})
    events.Reload()
    assert events.SummaryMetadata("generated/1").plugin_data.plugin_name == "text"
    shown = {tag: [(e.step, e.tensor_proto.string_val[0].decode()) for e in events.Tensors(tag)]
             for tag in events.Tags()["tensors"] if tag.startswith("generated/")}
    assert len(shown) == len(TEXTS)

    def code(block: str) -> str:
        return "".join(f"    {line}\n" for line in block.split("\n"))

    for number, prompt in enumerate(TEXTS, 1):
        rows = [row for row in generated(out) if row["prompt"] == prompt]
        assert shown[f"generated/{number}"] == [
            (row["step"], f"prompt:\n\n{code(prompt)}\ngenerated:\n\n{code(row['text'])}") for row in rows]
    # A run as short as this one may end before its last command does.
    scalars = [e for e in map(json.loads, (out / "events.jsonl").read_text().splitlines()) if e["event"] == "evaluation"]
    seen = [tag for tag in events.Tags()["tensors"] if tag.startswith("evaluation/")]
    assert bool(scalars) == bool(seen) and set(seen) <= {"evaluation/accuracy"}

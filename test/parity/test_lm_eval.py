"""lm-evaluation-harness as checkpoint.export_command: it reads an export with its tokenizer, and its results become
those of the run.

It needs the packages of requirements-long.txt, which only `./dev test long` installs. LMC_LM_EVAL is the program
`lm_eval`. All data of the tasks is local, and the network is not used.
"""

import fcntl
import json
import math
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

from jobs import Job
from programs import INTERRUPTED, end_all, metrics
from reference import Model, Optimizer

pytestmark = pytest.mark.skipif("LMC_LM_EVAL" not in os.environ, reason="needs lm_eval: ./dev test long installs and runs it")

LENGTH, WINDOWS = 128, 16  # tokens of a sequence, and sequences of the text that is validated
EVERY = 200  # steps between exports, each of which follows a validation
JOB = Job(
    model=Model(vocab_size=512, max_position_embeddings=LENGTH),
    optimizer=Optimizer(decay_iters=100_000),
    sequence_length=LENGTH,
    train_iters=100_000,
    settings={"checkpoint": {"export_interval": EVERY},
              "data": {"train": ["train.bin"], "validation": ["text.bin"]},
              "monitoring": {"validation_interval": EVERY, "validation_iters": 0, "tensorboard": True}},
)
TASKS = {
    "lmc_text": """
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{text}}"
metric_list:
  - metric: word_perplexity
  - metric: byte_perplexity
  - metric: bits_per_byte
""",
    "lmc_choices": """
output_type: multiple_choice
doc_to_text: "{{begin}}"
doc_to_target: "{{label}}"
doc_to_choice: "{{ends}}"
metric_list:
  - metric: acc
    aggregation: mean
    higher_is_better: true
""",
}


def cut(tokenizer: Tokenizer, text: str, count: int) -> str:
    """The beginning of a text that has exactly so many tokens."""
    ids = tokenizer.encode(text, add_special_tokens=False)
    for end in (ids.offsets[count - 1][1] + more for more in range(-20, 21)):
        if len(tokenizer.encode(text[:end], add_special_tokens=False).ids) == count:
            return text[:end]
    raise AssertionError(f"no beginning of the text has {count} tokens")


def choices(documents: list[str], count: int) -> list[dict]:
    """Beginnings of verses, each with its own end and three others."""
    draws = random.Random(1)
    verses = [verse.split() for document in documents for verse in document.splitlines()[1:] if len(verse.split()) >= 10]
    halves = [(" ".join(words[:6]), " ".join(words[6:10])) for words in draws.sample(verses, count)]
    tasks = []
    for number, (begin, end) in enumerate(halves):
        ends = [halves[(number + other) % count][1] for other in (1, 2, 3)]
        label = draws.randrange(4)
        tasks.append({"begin": begin, "ends": [*ends[:label], end, *ends[label:]], "label": label})
    return tasks


def write_task(folder: Path, name: str, lines: list[dict]) -> None:
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / f"{name}.yaml").write_text(f"""task: {name}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {folder / name}.jsonl
test_split: test
{TASKS[name].lstrip()}""")


@pytest.fixture(scope="module")
def evaluated(root, programs, tmp_path_factory):
    """(run, the lines of the two tasks): a run until the results of an export are an event, and the evaluation that then
    ran was complete."""
    folder = tmp_path_factory.mktemp("lm-eval")
    subprocess.run([root / "test/data/make-demo-text.sh", folder / "text.txt"], check=True)
    documents = (folder / "text.txt").read_text().split("\f")
    train, held_out = documents[:400], documents[400:500]
    (folder / "train.jsonl").write_text("".join(json.dumps({"text": each}) + "\n" for each in train))
    programs.run("lmc-data", "tokenizer", "train", folder / "train.jsonl", "-o", folder / "tokenizer", "--vocab-size=512").ok()
    programs.run("lmc-data", "pack", folder / "train.jsonl", "-o", folder / "train.bin",
                 f"--tokenizer={folder / 'tokenizer'}").ok()

    # lm_eval reads the text as one document behind the token that ends documents, in windows of the length of the
    # model's positions, each without the one before it; so does lmc, if that token begins the file.
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer/tokenizer.json"))
    text = [{"text": cut(tokenizer, "\n".join(held_out), LENGTH * WINDOWS)}]
    (folder / "text.jsonl").write_text(json.dumps(text[0]) + "\n")
    programs.run("lmc-data", "pack", folder / "text.jsonl", "-o", folder / "text.bin", "--bos=<|endoftext|>", "--eod=none",
                 f"--tokenizer={folder / 'tokenizer'}").ok()
    tasks = {"lmc_text": text, "lmc_choices": choices(held_out, 40)}
    for name, lines in tasks.items():
        write_task(folder, name, lines)

    (folder / "job.toml").write_text(JOB.toml())
    programs.run("lmc", "compile", folder / "job.toml", "-o", folder / "job.plan").ok()
    command = (f"{os.environ['LMC_LM_EVAL']} run --model hf --model_args pretrained=$LMC_EXPORT --device cpu --batch_size 8 "
               f"--include_path {folder} --tasks {' '.join(TASKS)} --output_path $LMC_RESULTS")
    out, console = folder / "run", folder / "console"
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1",
                   "HF_HOME": str(folder / "cache"), "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}

    def said() -> str:
        return "\n".join(path.read_text()[-4000:] for path in (console, *out.glob("evaluations/*/output.log")))

    with console.open("w") as stderr:
        process = programs.start("lmc-run", folder / "job.plan", f"--out={out}", "--threads=1", "--set",
                                 f"checkpoint.export_command={json.dumps(command)}", stderr=stderr, env=environment)
    try:
        deadline = time.monotonic() + 1800
        while not events(out, "evaluation"):
            assert process.poll() is None and not events(out, "evaluation_failed"), said()
            assert time.monotonic() < deadline, "no evaluation in half an hour"
            time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=300) == INTERRUPTED, said()
    finally:
        end_all([process])
        # The command for the next export goes on without the run, and its lock is free when it has ended.
        for lock in out.glob("evaluations/*/lock"):
            with lock.open("r+") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
    for results in (out / "evaluations").iterdir():
        assert (results / "complete").exists(), said()
    return out, tasks


def events(out: Path, name: str) -> list[dict]:
    """The last line may be half written."""
    path = out / "events.jsonl"
    lines = map(json.loads, path.read_text().split("\n")[:-1]) if path.exists() else []
    return [line for line in lines if line["event"] == name]


def written(out: Path, step: int) -> dict:
    """What lm_eval has written for the export of a step."""
    file, = (out / "evaluations" / str(step)).glob("**/results_*.json")
    return json.loads(file.read_text())


def numbers(results: dict) -> dict[str, float]:
    return {f"{task}/{key}": value for task, values in results["results"].items() for key, value in values.items()
            if isinstance(value, (int, float))}


def test_results_of_lm_eval_are_events_and_scalars(evaluated):
    out, _ = evaluated
    event = events(out, "evaluation")[0]
    assert event["step"] == EVERY
    theirs = numbers(written(out, EVERY))
    print({key: round(value, 5) for key, value in theirs.items()})
    assert event["values"] == pytest.approx(theirs)
    for metric in ("lmc_text/bits_per_byte,none", "lmc_text/byte_perplexity,none", "lmc_choices/acc,none"):
        assert math.isfinite(event["values"][metric])

    from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator
    from tensorboard.util import tensor_util
    shown = EventAccumulator(str(out / "tensorboard"))
    shown.Reload()
    first = shown.Tensors("evaluation/lmc_text/bits_per_byte,none")[0]
    assert first.step == EVERY
    assert tensor_util.make_ndarray(first.tensor_proto).item() == pytest.approx(theirs["lmc_text/bits_per_byte,none"])


def test_the_report_shows_them(programs, evaluated, tmp_path):
    out, _ = evaluated
    programs.run("lmc", "report", out, "-o", tmp_path / "report.html").ok()
    page = (tmp_path / "report.html").read_text()
    shown, _ = json.JSONDecoder().raw_decode(page, page.index(key := '"evaluations":') + len(key))
    steps = sorted(int(path.name) for path in (out / "evaluations").iterdir())
    assert [each["step"] for each in shown] == steps
    for each in shown:  # with six digits
        assert each["values"] == pytest.approx(numbers(written(out, each["step"])), rel=1e-5)


def test_its_perplexity_is_that_of_the_validation(evaluated):
    """Both read the same text after the same step. lm_eval computes in PyTorch."""
    out, tasks = evaluated
    validated = {line["step"]: line for line in metrics(out) if "validation_loss" in line}
    count = len(tasks["lmc_text"][0]["text"].encode())
    for step in sorted(int(path.name) for path in (out / "evaluations").iterdir()):
        results = written(out, step)["results"]["lmc_text"]
        nats = results["bits_per_byte,none"] * math.log(2) * count / (LENGTH * WINDOWS)
        print(f"step {step}: lmc {validated[step]['validation_loss']:.6f} nats per token, lm_eval {nats:.6f}")
        assert nats == pytest.approx(validated[step]["validation_loss"], rel=1e-5)
        assert results["bits_per_byte,none"] == pytest.approx(validated[step]["validation_bits_per_byte"], rel=1e-5)
        assert nats < 0.95 * math.log(512), "the model has learnt something"


@torch.no_grad()
def test_its_choices_are_those_of_transformers(evaluated):
    """Of the export with its own tokenizer, whose files it brings."""
    out, tasks = evaluated
    export = out / "exports" / str(EVERY)
    assert (export / "tokenizer.json").exists() and (export / "tokenizer_config.json").exists()
    model, tokenizer = AutoModelForCausalLM.from_pretrained(export), AutoTokenizer.from_pretrained(export)

    def likelihood(begin: str, end: str) -> float:
        known, ids = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in (begin, f"{begin} {end}"))
        logits = model(torch.tensor([ids[:-1]])).logits[0].log_softmax(-1)
        return sum(logits[at - 1, ids[at]].item() for at in range(len(known), len(ids)))

    right = [max(range(4), key=lambda n: likelihood(each["begin"], each["ends"][n])) == each["label"]
             for each in tasks["lmc_choices"]]
    accuracy = written(out, EVERY)["results"]["lmc_choices"]["acc,none"]
    print(f"accuracy {accuracy}, of {len(right)} choices")
    assert accuracy == pytest.approx(sum(right) / len(right))

"""docs/first-run-on-your-text.md does what it says: its files and commands, in its order, in an empty folder."""

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

PAGE = "docs/first-run-on-your-text.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[-+]?\d+)?")
TOLERANCE = 0.05  # of a number that the page shows; losses differ in their last digits between machines


def agrees(shown: str, line: str) -> bool:
    """Whether a line is the one that the page shows: '...' stands for any text, a run of spaces for any other, and
    numbers agree within TOLERANCE."""
    number = f"({NUMBER.pattern})"
    parts = [number.join(re.escape(text) for text in NUMBER.split(part)) for part in shown.split("...")]
    pattern = re.sub(r"(?:\\ )+", r"\\s+", ".*".join(parts))
    found = re.fullmatch(pattern, line)
    expected = [value for part in shown.split("...") for value in NUMBER.findall(part)]
    return found is not None and all(
        math.isclose(float(a), float(b), rel_tol=TOLERANCE) for a, b in zip(expected, found.groups(), strict=True))


def missing(shown: str, output: str) -> list[str]:
    """The lines of `shown` that the output does not have, in this order, among others."""
    lines = iter(output.splitlines())
    return [each for each in shown.splitlines() if not any(agrees(each, line) for line in lines)]


def test_a_wrong_line_does_not_agree():
    assert agrees("train.bin: 100 tokens", "train.bin:  104 tokens")
    assert agrees("loss 2.50, ... tokens/s", "loss 2.51, 12.3k tokens/s")
    for line in ("train.bin: 110 tokens", "train.bin: 100 tokens, more", "test.bin: 100 tokens", ""):
        assert not agrees("train.bin: 100 tokens", line)
    assert missing("a 1\nb", "x\na 1\ny\nb\n") == [] and missing("b\na 1", "a 1\nb\n") == ["a 1"]


@pytest.fixture(scope="module")
def page(root) -> list[tuple[str, str]]:
    """The language and the text of each block."""
    return BLOCK.findall((root / PAGE).read_text())


@pytest.fixture(scope="module")
def followed(root, programs, page, tmp_path_factory) -> tuple[Path, list[tuple[str, str, str]]]:
    """The folder in which a reader has followed the page; the commands, what the page shows of their output, and
    their output."""
    folder = tmp_path_factory.mktemp("guide")
    text = tmp_path_factory.mktemp("text") / "text.txt"
    subprocess.run([root / "test/data/make-demo-text.sh", text], check=True)
    with open(folder / "corpus.jsonl", "w", encoding="utf-8") as corpus:
        corpus.writelines(json.dumps({"text": each}) + "\n" for each in text.read_text().split("\f"))
    path = f"{programs.build / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    commands = []
    for (language, block), (following, shown) in zip(page, [*page[1:], ("", "")]):
        if language == "sh":
            assert following == "text", f"{PAGE}: no output is shown of {block}"
            done = subprocess.run(["bash", "-e", "-c", block], cwd=folder, env={**os.environ, "PATH": path}, text=True,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
            assert done.returncode == 0, f"{block}{done.stdout}"
            commands.append((block, shown, done.stdout))
        elif language in ("toml", "python"):
            (folder / re.match(r"# (\S+)\n", block).group(1)).write_text(block)
        else:
            assert language in ("text", "json"), f"{PAGE}: a block of '{language}' is neither a command nor a file"
    return folder, commands


def test_commands_print_what_the_page_shows(followed):
    _, commands = followed
    assert len(commands) >= 8
    for command, shown, output in commands:
        assert shown.strip() and not missing(shown, output), f"{command}{output}"


def test_the_text_has_the_form_that_the_page_shows(followed, page):
    folder, _ = followed
    (example,) = [block for language, block in page if language == "json"]
    first = json.loads((folder / "corpus.jsonl").read_text().splitlines()[0])
    assert first["text"].startswith(json.loads(example)["text"])


def test_transformers_finds_the_validation_loss_and_bits_per_byte(followed, programs):
    folder, commands = followed
    (evaluation,) = [json.loads(output.splitlines()[-1]) for command, _, output in commands if "--eval" in command]
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder / "hf"), AutoTokenizer.from_pretrained(folder / "hf")
    dump = [programs.run("lmc-data", "dump", *options, folder / "validation.bin").ok().stdout.splitlines()
            for options in ([], ["--text"])]
    ids = [[int(word) for word in line.split()] for line in dump[0]]
    for document, text in zip(ids, map(json.loads, dump[1]), strict=True):
        assert tokenizer.encode(text) == [id for id in document if id != tokenizer.eos_token_id]
    assert model.config.eos_token_id == tokenizer.eos_token_id == ids[0][-1]

    length, count = 128, evaluation["validation_tokens"]
    stream = torch.tensor(sum(ids, []))
    rows, targets = stream[:count].reshape(-1, length), stream[1:count + 1]
    with torch.no_grad():
        logits = torch.cat([model(part).logits for part in rows.split(32)]).flatten(0, 1)
    nats = torch.nn.functional.cross_entropy(logits, targets, reduction="sum").item()
    # A byte-level token has a character for each of its bytes.
    pieces = [0 if id == tokenizer.eos_token_id else len(tokenizer.convert_ids_to_tokens(id)) for id in range(len(tokenizer))]
    bytes_of_text = sum(pieces[id] for id in targets.tolist())
    assert evaluation["validation_loss"] == pytest.approx(nats / count, rel=1e-4)
    assert evaluation["validation_bits_per_byte"] == pytest.approx(nats / math.log(2) / bytes_of_text, rel=1e-4)

"""The pages of docs/guides do what they say: their files and commands, in their order, in a scratch folder."""

import json
import math
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from guides import NOT_RUN, Ran, agrees, blocks, follow, missing, unknown_options

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs/guides").glob("*.md"))
OWN_DATA, FIRST = "docs/guides/your-own-data.md", "docs/guides/first-run.md"
# Pages that go on in the folder of the first run.
LATER = [page for page in PAGES if page not in (OWN_DATA, FIRST)]
LEFT_OUT = [block for page in PAGES for block in blocks(ROOT, page) if NOT_RUN.fullmatch(block.kind)]
BYTES = 600_000  # of the text of the first run


def test_a_wrong_line_does_not_agree():
    assert agrees("train.bin: 100 tokens", "train.bin:  104 tokens")
    assert agrees("loss 2.50, ... tokens/s", "loss 2.51, 12.3k tokens/s")
    for line in ("train.bin: 110 tokens", "train.bin: 100 tokens, more", "test.bin: 100 tokens", ""):
        assert not agrees("train.bin: 100 tokens", line)
    assert missing("a 1\nb", "x\na 1\ny\nb\n") == [] and missing("b\na 1", "a 1\nb\n") == ["a 1"]


@pytest.fixture(scope="module")
def text(root, tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    subprocess.run([root / "test/data/make-demo-text.sh", path], check=True)
    return path.read_text()


@pytest.fixture(scope="module")
def own_data(root, programs, text, tmp_path_factory) -> tuple[Path, list[Ran]]:
    folder = tmp_path_factory.mktemp("own-data")
    with open(folder / "corpus.jsonl", "w", encoding="utf-8") as corpus:
        corpus.writelines(json.dumps({"text": each}) + "\n" for each in text.split("\f"))
    return folder, follow(root, OWN_DATA, folder, programs)


@pytest.fixture(scope="module")
def first_run(root, programs, text, tmp_path_factory) -> tuple[Path, list[Ran]]:
    folder = tmp_path_factory.mktemp("first-run")
    (folder / "text.txt").write_text(text[:BYTES])
    return folder, follow(root, FIRST, folder, programs)


def check(commands: list[Ran]) -> None:
    for ran in commands:
        assert not missing(ran.shown, ran.output), f"{ran.command}{ran.output}"


def test_commands_print_what_the_page_of_own_data_shows(own_data):
    _, commands = own_data
    assert len(commands) >= 8 and all(ran.shown.strip() for ran in commands)
    check(commands)


def test_commands_print_what_the_first_run_shows(first_run):
    _, commands = first_run
    assert len(commands) >= 5
    check(commands)


@pytest.mark.parametrize("page", LATER)
def test_commands_print_what_the_page_shows(root, programs, first_run, tmp_path, page):
    folder = tmp_path / "folder"
    shutil.copytree(first_run[0], folder)
    check(follow(root, page, folder, programs))


@pytest.mark.parametrize("block", LEFT_OUT, ids=lambda block: f"{block.page}:{block.line}")
def test_what_is_not_run_can_be_parsed(programs, block):
    """Reports a skip, with its reason, after its checks."""
    parsed = subprocess.run(["bash", "-n", "-c", block.text], capture_output=True, text=True)
    assert parsed.returncode == 0, parsed.stderr
    assert not unknown_options(block.text, programs)
    pytest.skip(f"parsed, but not run: {block.page}:{block.line} {NOT_RUN.fullmatch(block.kind).group(1)}")


def test_an_option_that_does_not_exist_is_found(programs):
    assert unknown_options("srun lmc-run a.plan --no-such --out=a &\nlmc explain a --json | grep --x", programs) == ["lmc-run --no-such"]
    assert unknown_options("lmc compile a \\\n  --jsn", programs) == ["lmc --jsn"]


def test_the_text_has_the_form_that_the_page_shows(root, own_data):
    folder, _ = own_data
    (example,) = [block.text for block in blocks(root, OWN_DATA) if block.kind == "json"]
    first = json.loads((folder / "corpus.jsonl").read_text().splitlines()[0])
    assert first["text"].startswith(json.loads(example)["text"])


def test_transformers_finds_the_validation_loss_and_bits_per_byte(own_data, programs):
    folder, commands = own_data
    (evaluation,) = [json.loads(ran.output.splitlines()[-1]) for ran in commands if "--eval" in ran.command]
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

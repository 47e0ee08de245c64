"""The JSON Schema of `lmc config --json-schema`: it accepts each shipped config, and it refuses mistakes at the place where an
editor shall mark them. The compiler is of the same opinion on all of them."""

import copy
import json
import re
import tomllib
from pathlib import Path

import pytest
from jsonschema import Draft7Validator

from programs import SUCCESS, USER_ERROR

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = sorted((ROOT / "models/configs").glob("*.toml"))

JOB = """
[model]
vocab_size = 128
hidden_size = 64
intermediate_size = 176
num_hidden_layers = 2
num_attention_heads = 4

[training]
sequence_length = 32
batch_size = 8
micro_batch_size = 2
train_iters = 100
"""


@pytest.fixture(scope="module")
def schema(programs) -> Draft7Validator:
    text = programs.run("lmc", "config", "--json-schema").ok().stdout
    schema = json.loads(text)
    Draft7Validator.check_schema(schema)
    return Draft7Validator(schema)


def job(change: str) -> str:
    """JOB with changes, one a line: a line `section.key = value` replaces that key, `section.key` alone removes it, and other lines
    stand at the end."""
    text = JOB
    for line in change.strip().splitlines():
        if found := re.fullmatch(r"(model|training)\.(\w+)( = .*)?", line.strip()):
            section, key, value = found.groups()
            text = re.sub(rf"^{key} = .*\n", "", text, flags=re.M)
            if value:
                text = text.replace(f"[{section}]\n", f"[{section}]\n{key}{value}\n")
        else:
            text += line.strip() + "\n"
    return text


def compiles(programs, folder: Path, text: str) -> bool:
    path = folder / "job.toml"
    path.write_text(text)
    done = programs.run("lmc", "compile", path, "--compile-to=model")
    assert done.code in (SUCCESS, USER_ERROR), done.stderr
    return done.code == SUCCESS


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_shipped_configs_are_accepted(schema, path):
    schema.validate(tomllib.loads(path.read_text()))


@pytest.mark.parametrize("change", [
    "",
    "training.micro_batch_size = 'auto'",
    "training.micro_batch_size",
    "[memory]\nbudget = '76GiB'",
    "[memory]\nbudget = '1.5 GB'",
    "[memory]\nbudget = '4000000000'",
    "[memory]\nbudget = 4000000000",
    "[lr_schedule]\nlr = 1",
    "[distributed]\nshard_group = 'node'",
    "model.hidden_size\nmodel.n_embd = 64",
    "model.architecture = 'gpt2'\nmodel.intermediate_size",
    "training.compute_dtype = 'float32'",
    "model.rope_scaling = { type = 'linear', factor = 2 }",
    "[data]\ntrain = 'a.bin'\nvalidation = ['b.bin', 'c.bin']",
    "[[data.source]]\nname = 'web-1'\npaths = 'a.bin'\nweight = 1\n[[data.source]]\nname = 'code'\npaths = ['b.bin']\nweight = 0.5",
    "[[phase]]\nname = 'a'\nsteps = 50\n[[phase]]\nname = 'b'\nsteps = 50\nlr_style = 'cosine'\nmicro_batch_size = 'auto'",
])
def test_right_jobs_are_accepted(schema, programs, tmp_path, change):
    text = job(change)
    assert compiles(programs, tmp_path, text)
    schema.validate(tomllib.loads(text))


# A change of JOB that is a mistake, and the place of the error: a path from the root of the file.
@pytest.mark.parametrize("change, place", [
    ("model.hidden_sice = 64", "model"),
    ("[trainig]\nseed = 1", ""),
    ("[model.rope_scalin]\nfactor = 2.0", "model"),
    ("model.hidden_size", "model"),
    ("model.vocab_size", "model"),
    ("training.batch_size", "training"),
    ("model.intermediate_size", "model"),
    ("model.architecture = 'qwen3_moe'", "model"),
    ("model.n_embd = 64", "model"),
    ("model.hidden_size = '64'", "model/hidden_size"),
    ("model.hidden_size = 64.5", "model/hidden_size"),
    ("model.hidden_size = 0", "model/hidden_size"),
    ("model.hidden_size = 1048577", "model/hidden_size"),
    ("model.tie_word_embeddings = 1", "model/tie_word_embeddings"),
    ("model.architecture = 'lama'", "model/architecture"),
    ("training.micro_batch_size = 0", "training/micro_batch_size"),
    ("training.micro_batch_size = 'most'", "training/micro_batch_size"),
    ("training.micro_batch_size = true", "training/micro_batch_size"),
    ("training.compute_dtype = 'bf17'", "training/compute_dtype"),
    ("[memory]\nbudget = '76GIB'", "memory/budget"),
    ("[memory]\nbudget = -1", "memory/budget"),
    ("[optimizer]\nbeta1 = 1.0", "optimizer/beta1"),
    ("[optimizer]\nbeta1 = 'high'", "optimizer/beta1"),
    ("[data]\ntrain = [1, 'a.bin']", "data/train/0"),
    ("[data]\ntrain = ''", "data/train"),
    ("[data]\ntrain = ['a.bin', '']", "data/train/1"),
    ("[data]\nsource = []", "data/source"),
    ("[data.source]\nname = 'web'", "data/source"),
    ("[[data.source]]\npaths = 'a.bin'\nweight = 1", "data/source/0"),
    ("[[data.source]]\nname = 'w b'\npaths = 'a.bin'\nweight = 1", "data/source/0/name"),
    ("[[data.source]]\nname = 'web'\npaths = 'a.bin'\nweight = 0", "data/source/0/weight"),
    ("[[data.source]]\nname = 'web'\npaths = 'a.bin'", "data/source/0"),
    ("[[data.source]]\nname = 'web'\npaths = 'a.bin'\nweight = 1\nwait = 2", "data/source/0"),
    ("[target]\ndevice = ''", "target/device"),
])
def test_mistakes_are_refused_at_their_place(schema, programs, tmp_path, change, place):
    text = job(change)
    assert not compiles(programs, tmp_path, text)
    errors = list(schema.iter_errors(tomllib.loads(text)))
    assert {"/".join(map(str, error.absolute_path)) for error in errors} == {place}, [error.message for error in errors]


def test_a_config_json_stands_in_for_the_keys_of_a_model(schema):
    with_config = {"model": {"config": "config.json"}, "training": {"sequence_length": 8, "batch_size": 2}}
    schema.validate(with_config)
    without = copy.deepcopy(with_config)
    del without["model"]["config"]
    assert not schema.is_valid(without)


def test_a_section_is_a_table(schema, programs, tmp_path):
    text = "training = 3\n" + JOB[: JOB.index("[training]")]
    assert not compiles(programs, tmp_path, text)
    assert [list(error.absolute_path) for error in schema.iter_errors(tomllib.loads(text))] == [["training"]]


def test_words_that_an_editor_offers_are_accepted_by_the_compiler(schema, programs, tmp_path):
    """Each file has one word of each key. The compiler misses other keys in it, but has nothing against the words."""
    words: dict[tuple[str, str], list[str]] = {}

    def collect(section: str, table: dict) -> None:
        for name, value in table.get("properties", {}).items():
            if value["type"] == "object":
                collect(f"{section}.{name}" if section else name, value)
            for part in [value, *value.get("anyOf", [])]:
                words.setdefault((section, name), []).extend(part.get("enum", []))

    collect("", schema.schema)
    assert sum(map(len, words.values())) > 60
    path = tmp_path / "job.toml"
    for k in range(max(map(len, words.values()))):
        text: dict[str, str] = {}
        for (section, name), of_key in words.items():
            if k < len(of_key):
                text[section] = text.get(section, f"[{section}]\n") + f'{name} = "{of_key[k]}"\n'
        path.write_text("".join(text.values()))
        errors = programs.run("lmc", "compile", path, "--compile-to=model").stderr
        assert not re.search(r'is "\w+"; it must be', errors), errors


def test_o_writes_the_file_and_without_a_schema_the_reference_is_printed(programs, tmp_path):
    printed = programs.run("lmc", "config", "--json-schema").ok().stdout
    assert programs.run("lmc", "config", "--json-schema", "-o", tmp_path / "lmc.json").ok().stdout == ""
    assert (tmp_path / "lmc.json").read_text() == printed
    assert programs.run("lmc", "config").ok().stdout == (ROOT / "docs/config.md").read_text()
    failed = programs.run("lmc", "config", "-o", tmp_path / "no" / "folder.md")
    assert (failed.code, failed.stderr.count("\n")) == (1, 1) and "cannot write" in failed.stderr

"""Training data of several sources: lmc-run reads what a model of it in Python says, across kills."""

import json
import signal
import time
from dataclasses import replace

import numpy as np
import pytest

from jobs import Job, write_tokens
from programs import USER_ERROR, checkpoint_digest, checkpoint_state, checkpoints, losses, metrics
from reference import Model, Optimizer

LENGTH, BLOCK, STEPS = 16, 32, 40
WEIGHTS = {"web": 0.6, "code": 0.3, "books": 0.1}
TOKENS = {"web": 5000, "code": 3000, "books": 700}


def job(weights: dict[str, float], **training) -> Job:
    sources = [{"name": name, "paths": [f"{name}.bin"], "weight": weight}
               for name, weight in weights.items()]
    base = Job(
        model=Model(num_hidden_layers=1),
        optimizer=Optimizer(decay_iters=STEPS),
        sequence_length=LENGTH,
        batch_size=4,
        micro_batch_size=2,
        train_iters=STEPS,
        settings={"data": {"train": [], "source": sources, "shuffle_block": BLOCK}},
    )
    return replace(base, **training)


@pytest.fixture(scope="module")
def plans(programs, tmp_path_factory):
    """Job -> its plan, with the token files of all sources beside it."""
    folder = tmp_path_factory.mktemp("mixtures")
    generator = np.random.default_rng(3)
    for name, count in TOKENS.items():
        write_tokens(folder / f"{name}.bin", generator.integers(Model().vocab_size, size=count))

    def compile_job(job: Job):
        path = folder / f"job{len(list(folder.glob('*.toml')))}.toml"
        path.write_text(job.toml())
        programs.run("lmc", "compile", path, "-o", path.with_suffix(".plan")).ok()
        return path.with_suffix(".plan")

    return compile_job


@pytest.fixture(scope="module")
def whole(programs, plans, tmp_path_factory):
    """A run without interruption, and its plan."""
    plan, out = plans(job(WEIGHTS)), tmp_path_factory.mktemp("whole") / "run"
    programs.run("lmc-run", plan, f"--out={out}").ok()
    return plan, out


def test_shares_and_epochs_are_reported(programs, whole):
    _, out = whole
    for line in metrics(out):
        total = line["step"] * 4 * LENGTH
        assert line["tokens"] == sum(source["tokens"] for source in line["sources"].values()) == total
        for name, source in line["sources"].items():
            assert abs(source["tokens"] - WEIGHTS[name] * total) < BLOCK
            epoch = (TOKENS[name] - 1) // BLOCK * BLOCK
            assert source["epochs"] == pytest.approx(source["tokens"] / epoch)
    last = metrics(out)[-1]["sources"]
    inspected = programs.run("lmc-data", "inspect", out, "--json").ok()
    assert json.loads(inspected.stdout)["sources"] == last
    text = programs.run("lmc-data", "inspect", out).ok().stdout
    assert f"source           web: {last['web']['tokens']} tokens, 0." in text


def test_a_killed_run_goes_on_bit_for_bit(programs, whole, tmp_path):
    plan, out = whole
    settings = ["--set", "checkpoint.interval=3"]
    for kill in range(3):
        process = programs.start("lmc-run", plan, f"--out={tmp_path}/run", *settings)
        known = max(checkpoints(tmp_path / "run"), default=0)
        while process.poll() is None and max(checkpoints(tmp_path / "run"), default=0) <= known:
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.wait()
    programs.run("lmc-run", plan, f"--out={tmp_path}/run").ok()
    assert losses(tmp_path / "run") == losses(out)
    assert checkpoint_digest(checkpoints(tmp_path / "run")[STEPS]) == \
        checkpoint_digest(checkpoints(out)[STEPS])
    assert checkpoint_state(checkpoints(tmp_path / "run")[STEPS])["sources"] == \
        checkpoint_state(checkpoints(out)[STEPS])["sources"]


@pytest.mark.parametrize("change", ["ranks", "micro_batch_size", "order_of_tables"])
def test_the_order_does_not_depend_on(programs, plans, whole, tmp_path, change):
    if change == "ranks":
        other = job(WEIGHTS)
        other.settings["distributed"] = {"devices_per_node": 2}
    elif change == "micro_batch_size":
        other = job(WEIGHTS, micro_batch_size=1)
    else:
        other = job(dict(reversed(WEIGHTS.items())))
    ranks = ["--nproc=2"] if change == "ranks" else []
    programs.run("lmc-run", plans(other), f"--out={tmp_path}/run", *ranks).ok()
    # The same rows in each step: only the order of a sum differs.
    assert losses(tmp_path / "run") == pytest.approx(losses(whole[1]), rel=1e-4)


def test_a_source_more_leaves_the_others_where_they_were(programs, plans, tmp_path):
    """`web` and `code` go on at their next token when `books` comes, and nothing is read twice."""
    two = {name: WEIGHTS[name] for name in ("web", "code")}
    programs.run("lmc-run", plans(job(two)), f"--out={tmp_path}/run", "--steps=10").ok()
    more = plans(job(WEIGHTS))
    refused = programs.run("lmc-run", more, f"--out={tmp_path}/run")
    assert refused.code == USER_ERROR
    assert "data.source.books.weight is absent there and 0.1 here" in refused.stderr
    programs.run("lmc-run", more, f"--out={tmp_path}/run", "--change=data.source.books").ok()
    before, after = metrics(tmp_path / "run")[9]["sources"], metrics(tmp_path / "run")[-1]["sources"]
    state = checkpoint_state(checkpoints(tmp_path / "run")[STEPS])["sources"]
    for name in two:
        assert state[name]["start"] == before[name]["tokens"] < after[name]["tokens"]
    assert state["books"]["start"] == 0
    assert sum(source["tokens"] for source in after.values()) == STEPS * 4 * LENGTH


def test_mistakes_come_before_the_first_step(programs, plans, tmp_path):
    plan = plans(job(WEIGHTS))
    few = programs.run("lmc-run", plan, f"--out={tmp_path}/run",
                       "--set", "data.source.books.max_epochs=0.3")
    assert few.code == USER_ERROR and few.stderr.count("\n") == 1
    assert "data.source.books.max_epochs is 0.3, and 40 steps read the source 0.3" in few.stderr
    assert not (tmp_path / "run/checkpoints").exists()

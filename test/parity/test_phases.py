"""[[phase]]: one plan with a program for each phase, which lmc-run goes through by itself."""

import json
import signal
import time
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file

from jobs import Job, toml_value, write_tokens
from programs import (USER_ERROR, checkpoint_digest, checkpoint_state, checkpoints, losses, metrics)
from reference import Model, Optimizer

SHORT, LONG, STEPS = 16, 32, 20


def phase(name: str, **keys) -> str:
    return "\n[[phase]]\n" + "".join(f"{k} = {toml_value(v)}\n"
                                     for k, v in {"name": name, **keys}.items())


def job(**changes) -> Job:
    base = Job(
        model=Model(num_hidden_layers=1, max_position_embeddings=LONG),
        optimizer=Optimizer(decay_iters=STEPS),
        sequence_length=SHORT,
        batch_size=4,
        micro_batch_size=2,
        train_iters=STEPS,
        settings={"data": {"shuffle_block": LONG}},
    )
    return replace(base, **changes)


PHASES = (phase("short", share=0.9) +
          phase("long", share=0.1, sequence_length=LONG, batch_size=2, micro_batch_size=1))
BORDER = 18


@pytest.fixture(scope="module")
def compiled(programs, tmp_path_factory):
    """(Job, phases as TOML) -> its plan, with the token files beside it."""
    folder = tmp_path_factory.mktemp("phases")
    generator = np.random.default_rng(5)
    for name, count in (("train", 50 * LONG + 1), ("web", 40 * LONG + 1), ("code", 30 * LONG + 1)):
        write_tokens(folder / f"{name}.bin", generator.integers(Model().vocab_size, size=count))

    def compile_job(job: Job, phases: str = "", *options):
        path = folder / f"job{len(list(folder.glob('*.toml')))}.toml"
        path.write_text(job.toml() + phases)
        programs.run("lmc", "compile", path, "-o", path.with_suffix(".plan"), *options).ok()
        return path.with_suffix(".plan")

    return compile_job


@pytest.fixture(scope="module")
def whole(programs, compiled, tmp_path_factory):
    """A run of both phases without interruption, and its plan."""
    plan, out = compiled(job(), PHASES), tmp_path_factory.mktemp("whole") / "run"
    programs.run("lmc-run", plan, f"--out={out}", f"--profile={out}.profile").ok()
    return plan, out


def later_losses(out) -> list[float]:
    """Of the steps of a run that begins with the checkpoint of the border."""
    lines = metrics(out)
    assert [line["step"] for line in lines] == list(range(BORDER + 1, STEPS + 1))
    return [line["loss"] for line in lines]


def same_end(one, other):
    assert losses(one) == losses(other)
    assert checkpoint_digest(checkpoints(one)[STEPS]) == checkpoint_digest(checkpoints(other)[STEPS])


def test_one_command_trains_all_phases(whole):
    lines = metrics(whole[1])
    assert [line["phase"] for line in lines] == ["short"] * BORDER + ["long"] * (STEPS - BORDER)
    # Both batches have 64 tokens.
    assert [line["tokens"] for line in lines] == [64 * (i + 1) for i in range(STEPS)]
    assert BORDER in checkpoints(whole[1])
    for name in ("short", "long"):
        assert "optimizer" in whole[1].with_name(f"run.profile.{name}").read_text()
    events = [json.loads(line) for line in (whole[1] / "events.jsonl").read_text().splitlines()]
    assert [event["event"] for event in events if event["event"] in ("start", "phase")] == \
        ["start", "phase"]


def test_each_phase_is_bit_for_bit_a_run_of_its_own(programs, compiled, whole, tmp_path):
    first = compiled(job())
    programs.run("lmc-run", first, f"--out={tmp_path}/first", f"--steps={BORDER}").ok()
    assert losses(tmp_path / "first") == losses(whole[1])[:BORDER]
    assert checkpoint_digest(checkpoints(tmp_path / "first")[BORDER]) == \
        checkpoint_digest(checkpoints(whole[1])[BORDER])
    second = compiled(job(sequence_length=LONG, batch_size=2, micro_batch_size=1))
    programs.run("lmc-run", second, f"--out={tmp_path}/second",
                 f"--resume={checkpoints(tmp_path / 'first')[BORDER]}").ok()
    assert later_losses(tmp_path / "second") == losses(whole[1])[BORDER:]
    assert checkpoint_digest(checkpoints(tmp_path / "second")[STEPS]) == \
        checkpoint_digest(checkpoints(whole[1])[STEPS])


@pytest.mark.parametrize("steps", [BORDER - 1, BORDER, BORDER + 1])
def test_a_run_goes_on_from_either_side_of_the_border(programs, whole, tmp_path, steps):
    programs.run("lmc-run", whole[0], f"--out={tmp_path}/run", f"--steps={steps}").ok()
    programs.run("lmc-run", whole[0], f"--out={tmp_path}/run").ok()
    same_end(tmp_path / "run", whole[1])


def test_a_run_killed_around_the_border_goes_on(programs, whole, tmp_path):
    settings = ["--set", "checkpoint.interval=1", "--set", "checkpoint.keep=0"]
    for delay in (0.0, 0.003, 0.01, 0.03, 0.06):
        process = programs.start("lmc-run", whole[0], f"--out={tmp_path}/run", *settings)
        while process.poll() is None and BORDER not in checkpoints(tmp_path / "run"):
            time.sleep(0.001)
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.wait()
    programs.run("lmc-run", whole[0], f"--out={tmp_path}/run").ok()
    same_end(tmp_path / "run", whole[1])


def test_ranks_change_over_together(programs, compiled, whole, tmp_path):
    two = job()
    two.settings["distributed"] = {"devices_per_node": 2}
    plan = compiled(two, PHASES)
    programs.run("lmc-run", plan, f"--out={tmp_path}/run", "--nproc=2").ok()
    assert losses(tmp_path / "run") == pytest.approx(losses(whole[1]), rel=1e-4)
    # The checkpoint of the border does not depend on ranks.
    programs.run("lmc-run", plan, f"--out={tmp_path}/other", "--nproc=2",
                 f"--resume={checkpoints(whole[1])[BORDER]}").ok()
    assert later_losses(tmp_path / "other") == pytest.approx(losses(whole[1])[BORDER:], rel=1e-4)


def test_no_token_is_read_twice_or_left_out(programs, tmp_path):
    """Every token of the file has an id of its own. A row of the embedding has a moment that is not
    0 if its token was read. As many rows as tokens were read: none was read twice."""
    blocks, steps = 40, 24
    tokens = blocks * LONG
    model = Model(vocab_size=tokens + 1, hidden_size=16, num_hidden_layers=1, intermediate_size=16,
                  num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=LONG)
    # 10 x 64, 6 x 32 and 7 x 64 tokens: all blocks of the file.
    phases = (phase("short", steps=10) +
              phase("ramp", steps=6, batch_size=2, micro_batch_size=2) +
              phase("long", tokens=7 * 64, sequence_length=LONG, batch_size=2, micro_batch_size=1))
    base = job(model=model, train_iters=23)
    path = tmp_path / "job.toml"
    path.write_text(base.toml().replace("decay_iters = 20", "decay_iters = 23") + phases)
    write_tokens(tmp_path / "train.bin", np.arange(tokens + 1))
    programs.run("lmc", "compile", path, "-o", tmp_path / "job.plan").ok()
    read = {}
    for stop in (5, 10, 13, 16, 20, 23):
        programs.run("lmc-run", tmp_path / "job.plan", f"--out={tmp_path}/run",
                     f"--steps={stop}").ok()
        moments = load_file(checkpoints(tmp_path / "run")[stop] / "moment1.safetensors")
        visited = np.any(moments["model.embed_tokens.weight"] != 0, axis=1)
        assert visited.sum() == metrics(tmp_path / "run")[-1]["tokens"]
        assert all(visited[row] for row in read)
        read = np.flatnonzero(visited)
    assert visited.sum() == tokens and not visited[tokens]


def test_sources_of_phases_go_on_where_they_were(programs, compiled, tmp_path):
    sources = [{"name": name, "paths": [f"{name}.bin"], "weight": weight}
               for name, weight in (("web", 0.75), ("code", 0.25))]
    base = job(settings={"data": {"train": [], "source": sources, "shuffle_block": LONG}})
    phases = (phase("mixed", steps=8) + phase("code", steps=6, sources=["code"]) +
              phase("half", steps=6, sources=["web=1", "code=1"], sequence_length=LONG,
                    batch_size=2, micro_batch_size=1))
    plan = compiled(base, phases)
    for stop in (5, 8, 11, 17, 20):
        programs.run("lmc-run", plan, f"--out={tmp_path}/parts", f"--steps={stop}").ok()
    programs.run("lmc-run", plan, f"--out={tmp_path}/run").ok()
    same_end(tmp_path / "parts", tmp_path / "run")
    read = [{name: source["tokens"] for name, source in line["sources"].items()}
            for line in metrics(tmp_path / "run")]
    assert read[7] == {"web": 8 * 64 * 3 // 4, "code": 8 * 64 // 4}
    assert read[13]["code"] == read[7]["code"] + 6 * 64
    assert read[19] == {"web": read[7]["web"] + 6 * 32, "code": read[13]["code"] + 6 * 32}
    state = checkpoint_state(checkpoints(tmp_path / "run")[20])["sources"]
    assert {name: source["tokens"] for name, source in state.items()} == read[19]
    refused = programs.run("lmc-run", plan, f"--out={tmp_path}/no",
                           "--set", "data.source.code.max_epochs=0.6")
    assert refused.code == USER_ERROR and refused.stderr.count("\n") == 1
    assert "(to the end of phase half)" in refused.stderr


@pytest.mark.parametrize("first, then", [("", PHASES), (PHASES, ""), (PHASES, PHASES.replace('"short"', '"brief"'))],
                         ids=["added", "removed", "renamed"])
def test_other_phases_read_on_in_the_same_data(programs, compiled, whole, tmp_path, first, then):
    """Where the batches have as many tokens, so are the tokens of each step."""
    out = tmp_path / "run"
    programs.run("lmc-run", compiled(job(), first), f"--out={out}", "--steps=6").ok()
    programs.run("lmc-run", compiled(job(), then), f"--out={out}", "--change=phase").ok()
    assert losses(out)[:BORDER] == losses(whole[1])[:BORDER]


def test_the_half_behind_the_border_is_a_run_from_its_checkpoint(programs, compiled, whole, tmp_path):
    plain = compiled(job(sequence_length=LONG, batch_size=2, micro_batch_size=1))
    programs.run("lmc-run", plain, f"--out={tmp_path}/run", f"--resume={checkpoints(whole[1])[BORDER]}").ok()
    assert later_losses(tmp_path / "run") == losses(whole[1])[BORDER:]


def test_sources_that_change_inside_a_phase_go_on(programs, compiled, tmp_path):
    sources = [{"name": name, "paths": [f"{name}.bin"], "weight": weight}
               for name, weight in (("web", 0.75), ("code", 0.25))]
    base = job(settings={"data": {"train": [], "source": sources, "shuffle_block": LONG}})
    plan, out = compiled(base, phase("a", steps=10) + phase("b", steps=10, sources=["web=1", "code=1"])), tmp_path / "run"
    programs.run("lmc-run", plan, f"--out={out}", "--steps=14").ok()
    programs.run("lmc-run", plan, f"--out={out}", "--set", 'phase.b.sources=["web=3", "code=1"]',
                 "--change=phase.b.sources").ok()
    read = [{name: source["tokens"] for name, source in line["sources"].items()} for line in metrics(out)]
    assert read[19] == {"web": read[13]["web"] + 6 * 48, "code": read[13]["code"] + 6 * 16}
    assert all(sum(after.values()) - sum(before.values()) == 64 for before, after in zip(read, read[1:]))


def test_rates_of_a_phase_follow_those_of_the_run(programs, compiled, tmp_path):
    plan = compiled(job(), phase("a", steps=10) + phase("b", steps=10, lr_style="linear"))
    programs.run("lmc-run", plan, f"--out={tmp_path}/run", "--set", "lr_schedule.lr=1e-2",
                 "--set", "lr_schedule.min_lr=0").ok()
    rates = [line["lr"] for line in metrics(tmp_path / "run")]
    assert rates[10:] == pytest.approx(np.linspace(1e-2, 1e-3, 11)[1:], rel=1e-12)


def test_a_schedule_that_begins_inside_a_later_phase_is_refused_at_the_start(programs, compiled, tmp_path):
    late = job(optimizer=Optimizer(decay_iters=5))
    late.settings["lr_schedule"] = {"restart_step": 15}
    plan = compiled(late, phase("a", steps=12, lr_style="constant") + phase("b", steps=8))
    failed = programs.run("lmc-run", plan, f"--out={tmp_path}/run")
    assert failed.code == USER_ERROR and "lr_schedule.restart_step is 15, and the run goes on after step 12" in failed.stderr
    assert not checkpoints(tmp_path / "run")


def test_a_phase_has_a_schedule_of_its_own(programs, compiled, tmp_path):
    phases = (phase("stable", steps=8, lr_style="constant", lr=1e-3, warmup_iters=4) +
              phase("cooldown", steps=4, lr_style="linear", lr=1e-3, min_lr=0) +
              phase("rest", steps=8))
    plan = compiled(job(), phases)
    programs.run("lmc-run", plan, f"--out={tmp_path}/run").ok()
    rates = [line["lr"] for line in metrics(tmp_path / "run")]
    assert rates[:8] == pytest.approx([0.25e-3, 0.5e-3, 0.75e-3, 1e-3] + [1e-3] * 4)
    assert rates[8:12] == pytest.approx([0.75e-3, 0.5e-3, 0.25e-3, 0], abs=1e-12)
    programs.run("lmc-run", compiled(job()), f"--out={tmp_path}/plain").ok()
    assert rates[12:] == [line["lr"] for line in metrics(tmp_path / "plain")][12:]
    # A rate is a setting of the run.
    changed = programs.run("lmc-run", plan, f"--out={tmp_path}/other", "--set", "phase.cooldown.lr=2e-3")
    changed.ok()
    assert [line["lr"] for line in metrics(tmp_path / "other")][8] == pytest.approx(1.5e-3)


def test_the_two_lengths_of_a_published_run(programs, tmp_path):
    """90% of the steps at 2,048 tokens and the rest at 4,096, in one command."""
    model = Model(vocab_size=64, hidden_size=16, num_hidden_layers=1, intermediate_size=16,
                  num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=4096)
    base = job(model=model, sequence_length=2048, batch_size=2, micro_batch_size=1, train_iters=10,
               optimizer=Optimizer(decay_iters=10), settings={})
    path = tmp_path / "job.toml"
    path.write_text(base.toml() + phase("base", share=0.9) +
                    phase("long", share=0.1, sequence_length=4096))
    write_tokens(tmp_path / "train.bin", np.random.default_rng(1).integers(64, size=20 * 4096))
    programs.run("lmc", "compile", path, "-o", tmp_path / "job.plan").ok()
    report = json.loads(programs.run("lmc", "explain", tmp_path / "job.plan", "--json").ok().stdout)
    assert [(p["sequence_length"], p["last_step"], p["tokens"]) for p in report["training_phases"]] == \
        [(2048, 9, 9 * 4096), (4096, 10, 8192)]
    programs.run("lmc-run", tmp_path / "job.plan", f"--out={tmp_path}/run").ok()
    assert [line["tokens"] for line in metrics(tmp_path / "run")] == \
        [4096 * step for step in range(1, 10)] + [9 * 4096 + 8192]


def test_memory_is_the_most_that_a_phase_needs(programs, compiled, whole):
    def of(plan, *options):
        return json.loads(programs.run("lmc", "explain", plan, "--json", *options).ok().stdout)

    report = of(whole[0])
    each = [p["memory_bytes"] for p in report["training_phases"]]
    alone = [of(compiled(job())), of(compiled(job(sequence_length=LONG, batch_size=2,
                                                  micro_batch_size=1)))]
    assert each == [one["memory"]["peak_bytes"] for one in alone]
    assert of(whole[0], "--phase=long")["memory"]["peak_bytes"] == each[1]
    folder = whole[0].parent
    path = folder / "budget.toml"
    path.write_text(job().toml() + PHASES)
    small = programs.run("lmc", "compile", path, "-o", folder / "budget.plan", "--quiet",
                         f"--memory-budget={max(each) - 1}")
    assert small.code == 3
    assert f"[[phase]] {'long' if each[1] > each[0] else 'short'}" in small.stderr


@pytest.mark.parametrize("change, message", [
    (lambda toml: toml.replace("train_iters = 20", "train_tokens = 2000"),
     "train_tokens = 2000, and the phases have 1792 tokens together; change a phase"),
    (lambda toml: toml.replace("shuffle_block = 32", 'packing = "best_fit"'),
     'packing = "best_fit" fills sequences of one length, and the phases have 16 and 32'),
    (lambda toml: toml.replace("shuffle_block = 32", "").replace("max_position_embeddings = 32",
                               "max_position_embeddings = 65536") +
     phase("c", steps=1, sequence_length=65535) + phase("d", steps=1, sequence_length=65533),
     "give lengths that divide each other"),
])
def test_a_job_agrees_with_its_phases(programs, tmp_path, change, message):
    path = tmp_path / "job.toml"
    phases = phase("a", steps=20) + phase("b", steps=4, sequence_length=LONG, batch_size=4)
    path.write_text(change(job().toml() + phases))
    result = programs.run("lmc", "compile", path)
    assert result.code == USER_ERROR
    assert message in result.stderr and "job.toml:" in result.stderr


@pytest.mark.parametrize("phases, message", [
    (phase("a"), "[[phase]] a has none of steps, tokens and share; give one"),
    (phase("a", steps=1, share=0.5), "[[phase]] a has both steps and share; give one of them"),
    (phase("a", steps=3), "train_iters = 20, and the phases have 3 steps together; give "
                          "train_iters = 3, or leave it out"),
    (phase("a", share=1.0, sources=["web"]), "[[data.source]] has no 'web'"),
    (phase("a", share=1.0, lr=0.1), "lr is of a schedule of the phase's own; give lr_style too, or "
                                    "leave lr out"),
    (phase("a", share=1.0, batch_size=5), "micro_batch_size = 2 (MBS) x 1 devices does not divide"),
    (phase("a", share=0.5) + phase("a", share=0.5), "two [[phase]] have the name 'a'"),
    (phase("a", share=1.0, sequence_length=64), "sequence_length = 64 is more than "
                                                "max_position_embeddings = 32"),
])
def test_mistakes_have_a_place(programs, tmp_path, phases, message):
    path = tmp_path / "job.toml"
    path.write_text(job().toml() + phases)
    result = programs.run("lmc", "compile", path)
    assert result.code == USER_ERROR
    assert message in result.stderr and "job.toml:" in result.stderr

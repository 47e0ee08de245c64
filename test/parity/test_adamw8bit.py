"""AdamW with moments in 8 bits, against NumPy, against itself and against f32 moments."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from jobs import Job
from programs import USER_ERROR, checkpoint_digest, checkpoints, losses, metrics
from reference import Model, Optimizer

BLOCK = 256  # elements that share a scale
STEPS = 8
# Every matrix is whole blocks; with biases and norms some parameters are not.
JOB = Job(
    model=Model(tie_word_embeddings=True, attention_bias=True),
    optimizer=Optimizer(decay_iters=STEPS),
    train_iters=STEPS,
    micro_batch_size=4,
    settings={"optimizer": {"type": "adamw8bit"}, "checkpoint": {"interval": 1, "keep": 0}},
)


def run(programs, plan: Path, out: Path, *options: str) -> Path:
    programs.run("lmc-run", plan, f"--out={out}", "--threads=1", *options).ok()
    return out


# The codes, as passes/fusion/MomentCode.h has them. Values are [blocks, 256], scales [blocks, 1].


def decode1(codes: np.ndarray, scale: np.ndarray) -> np.ndarray:
    root = codes.astype(np.float64) / 127
    return np.sign(root) * root**4 * scale


def decode2(codes: np.ndarray, scale: np.ndarray) -> np.ndarray:
    return (codes.view(np.uint8).astype(np.float64) / 255) ** 8 * scale


def encode1(moment: np.ndarray, scale: np.ndarray) -> np.ndarray:
    return np.sign(moment) * np.floor(127 * np.abs(moment / scale) ** 0.25 + 0.5)


def encode2(moment: np.ndarray, scale: np.ndarray) -> np.ndarray:
    return np.maximum(np.floor(255 * (moment / scale) ** 0.125 + 0.5), moment > 0)


def blocks(tensor: np.ndarray) -> np.ndarray:
    return tensor.reshape(-1, BLOCK)


@pytest.mark.parametrize("compute_dtype", ["f32", "bf16"])
def test_a_step_is_that_of_numpy(programs, compiled, tmp_path, compute_dtype):
    """Steps 1 and 6, from the checkpoint before and the gradients in between."""
    plan = compiled(replace(JOB, compute_dtype=compute_dtype))
    out = run(programs, plan, tmp_path / "run", f"--steps={STEPS}")
    lines = metrics(out)
    for step in (2, 6):
        before, after = (checkpoints(out)[s] for s in (step - 1, step))
        dump = tmp_path / f"gradients-{step}.safetensors"
        run(programs, plan, tmp_path / f"again-{step}", f"--resume={before}", f"--steps={step}",
            f"--dump-gradients={dump}")
        gradients = load_file(dump)
        old, new = (
            {kind: load_file(folder / f"{kind}.safetensors")
             for kind in ("model", "moment1", "moment2", "moment1_scale", "moment2_scale")}
            for folder in (before, after)
        )
        options = JOB.optimizer
        norm = lines[step - 1]["grad_norm"]
        clip = min(1.0, options.clip_grad / (norm + 1e-6))
        coded = set(new["moment1_scale"])
        assert coded == {name for name, p in old["model"].items() if p.ndim == 2}
        different = total = 0
        for name in coded:
            scale1, scale2 = (old[f"moment{k}_scale"][name][:, None] for k in (1, 2))
            g = blocks(gradients[name]).astype(np.float64) * clip
            m = decode1(blocks(old["moment1"][name]), scale1)
            v = decode2(blocks(old["moment2"][name]), scale2)
            m = options.beta1 * m + (1 - options.beta1) * g
            v = options.beta2 * v + (1 - options.beta2) * g * g
            lr = lines[step - 1]["lr"]
            rate = lr / (1 - options.beta1**step)
            root = np.sqrt(v / (1 - options.beta2**step)) + options.eps
            p = blocks(old["model"][name]) * (1 - lr * options.weight_decay) - rate * m / root
            np.testing.assert_allclose(blocks(new["model"][name]), p, rtol=2e-6, atol=1e-4 * lr)
            new1, new2 = (new[f"moment{k}_scale"][name][:, None] for k in (1, 2))
            np.testing.assert_allclose(new1[:, 0], np.abs(m).max(1), rtol=1e-5)
            np.testing.assert_allclose(new2[:, 0], v.max(1), rtol=1e-5)
            codes1 = blocks(new["moment1"][name]).astype(int)
            codes2 = blocks(new["moment2"][name]).view(np.uint8).astype(int)
            for ours, theirs in ((codes1, encode1(m, new1)), (codes2, encode2(v, new2))):
                assert np.abs(ours - theirs).max() <= 1  # at a boundary f32 may round the other way
                different += (ours != theirs).sum()
                total += ours.size
        print(f"step {step}: {different} of {total} codes differ by one")
        assert different < 1e-3 * total


def test_resuming_is_bit_identical(programs, compiled, tmp_path):
    """4 steps, then as many resumed, are 8; and two runs are alike."""
    plan = compiled(JOB)
    whole = run(programs, plan, tmp_path / "whole")
    parts = run(programs, plan, tmp_path / "parts", "--steps=4")
    run(programs, plan, parts, "--resume=auto")
    digests = [checkpoint_digest(checkpoints(out)[STEPS]) for out in (whole, parts)]
    assert len([name for name in digests[0] if name.endswith(".safetensors")]) == 5
    assert digests[0] == digests[1]
    assert losses(whole) == losses(parts)


def test_flat_state_and_fusion_change_no_bit(programs, compiled, tmp_path):
    """Without clipping, as the gradient's norm is summed in another order without flat state."""
    job = replace(JOB, optimizer=replace(JOB.optimizer, clip_grad=0.0), compute_dtype="bf16")
    plans = {kinds: compiled(job, *([f"--disable-fusion={kinds}"] if kinds else []))
             for kinds in ("", "state", "producer,siblings,layers")}
    runs = {kinds: run(programs, plan, tmp_path / kinds) for kinds, plan in plans.items()}
    digests = {kinds: checkpoint_digest(checkpoints(out)[STEPS]) for kinds, out in runs.items()}
    assert digests["state"] == digests[""] == digests["producer,siblings,layers"]


def test_accumulation_and_threads_change_little(programs, compiled, tmp_path):
    """MBS 8 x GAS 1 and MBS 2 x GAS 4, one thread and two: sums in another order may move a code
    to its neighbour, no more."""
    history = [losses(run(programs, compiled(replace(JOB, micro_batch_size=mbs)),
                          tmp_path / str(mbs))) for mbs in (8, 2)]
    history.append(losses(run(programs, compiled(JOB), tmp_path / "two", "--threads=2")))
    for other in history[1:]:
        relative = max(abs(a - b) / b for a, b in zip(history[0], other))
        print(f"relative {relative:.1e}")
        assert relative <= 1e-4
    assert history[0][-1] < 0.99 * history[0][0]


def optimizer_bytes(programs, plan: Path) -> int:
    report = json.loads(programs.run("lmc", "explain", plan, "--json").ok().stdout)
    return report["memory"]["by_category"]["optimizer_state"]


@pytest.mark.parametrize("config", ["demo.toml", "llama1b.toml"])
def test_six_bytes_less_per_parameter(programs, root, tmp_path, config):
    """As planned, for all parameters: norms, whose moments stay in f32, are few."""
    toml = root / "models" / "configs" / config
    bytes_held, count = {}, 0
    for kind in ("adamw", "adamw8bit"):
        plan = tmp_path / f"{kind}.plan"
        options = ["--set", f"optimizer.type={kind}", "--target=cuda:sm_90a"]
        programs.run("lmc", "compile", toml, "-o", plan, *options).ok()
        bytes_held[kind] = optimizer_bytes(programs, plan)
        report = json.loads(programs.run("lmc", "explain", plan, "--json").ok().stdout)
        count = report["model"]["parameters"]
    less = (bytes_held["adamw"] - bytes_held["adamw8bit"]) / count
    print(f"{config}: {bytes_held['adamw'] / count:.4f} and {bytes_held['adamw8bit'] / count:.4f} "
          f"bytes per parameter, {less:.4f} less")
    assert less == pytest.approx(6 - 2 * 4 / BLOCK, rel=2e-3)


def test_a_checkpoint_of_other_moments_is_refused(programs, compiled, tmp_path):
    whole = replace(JOB, settings={**JOB.settings, "optimizer": {"type": "adamw"}})
    plans = {"8 bits": compiled(JOB), "32 bits": compiled(whole)}
    types = {"32 bits": "adamw", "8 bits": "adamw8bit"}
    for theirs, ours in (("32 bits", "8 bits"), ("8 bits", "32 bits")):
        out = run(programs, plans[theirs], tmp_path / theirs, "--steps=2")
        refused = programs.run("lmc-run", plans[ours], f"--out={out}", "--resume=auto")
        print(refused.stderr)
        assert refused.code == USER_ERROR
        assert f"optimizer.type is {types[theirs]} there and {types[ours]} here" in refused.stderr
        assert max(checkpoints(out)) == 2


def test_an_export_has_the_weights_alone(programs, compiled, tmp_path):
    out = run(programs, compiled(JOB), tmp_path / "run", f"--export={tmp_path / 'hf'}")
    exported = {}
    for file in (tmp_path / "hf").glob("*.safetensors"):
        exported.update(load_file(file))
    weights = load_file(checkpoints(out)[STEPS] / "model.safetensors")
    assert exported.keys() == weights.keys() == JOB.model.shapes().keys()
    for name, weight in weights.items():
        assert np.array_equal(exported[name], weight), name


# A smaller model than the demo's on the demo's text, for as many steps as the claim is about.
ENGLISH = """
[model]
architecture = "llama"
vocab_size = 256
hidden_size = 64
intermediate_size = 192
num_hidden_layers = 2
num_attention_heads = 4
num_key_value_heads = 2
tie_word_embeddings = true
[training]
sequence_length = 128
batch_size = 8
micro_batch_size = 8
train_iters = 500
compute_dtype = "f32"
seed = 1
[lr_schedule]
style = "cosine"
lr = 2e-3
min_lr = 1e-4
warmup_iters = 25
[data]
train = "{data}/train.bin"
validation = "{data}/validation.bin"
[monitoring]
validation_interval = 250
validation_iters = 32
"""


@pytest.fixture(scope="module")
def english(programs, tmp_path_factory):
    """Runs of 500 steps with either optimizer: type -> run folder."""
    folder = tmp_path_factory.mktemp("english")
    data = programs.build / "demo"
    assert (data / "train.bin").exists(), f"{data} has no tokens: run ./dev test parity"
    toml = folder / "job.toml"
    toml.write_text(ENGLISH.format(data=data))
    runs = {}
    for kind in ("adamw", "adamw8bit"):
        plan = folder / f"{kind}.plan"
        programs.run("lmc", "compile", toml, "-o", plan, "--set", f"optimizer.type={kind}").ok()
        runs[kind] = run(programs, plan, folder / kind)
    return runs


def test_500_steps_end_within_a_percent_of_f32_moments(english):
    validation = {kind: [line["validation_loss"] for line in metrics(out)
                         if line.get("validation_loss") is not None][-1]
                  for kind, out in english.items()}
    first = metrics(english["adamw"])[0]["loss"]
    print(f"validation loss after 500 steps: {validation}, first loss {first}")
    assert validation["adamw"] < 0.4 * first  # it did learn
    assert validation["adamw8bit"] == pytest.approx(validation["adamw"], rel=0.01)


def dynamic_tree(signed: bool) -> np.ndarray:
    """Magnitudes of the code of Dettmers et al. 2022: decades with a linear fraction each, the
    more bits the nearer to 1."""
    bits = 7 if signed else 8
    decades = [10.0 ** (i - 6) * (edges[:-1] + edges[1:]) / 2 for i in range(7)
               for edges in [np.linspace(0.1, 1, 2 ** (i + bits - 7) + 1)]]
    return np.sort(np.concatenate([[0.0, 1.0], *decades]))


def nearest(x: np.ndarray, levels: np.ndarray) -> np.ndarray:
    above = np.clip(np.searchsorted(levels, x), 1, len(levels) - 1)
    low, high = levels[above - 1], levels[above]
    return np.where(x - low <= high - x, low, high)


def test_codes_disturb_updates_less_than_the_dynamic_tree(english):
    """On moments that training made: the root mean square of the change of moment1 /
    sqrt(moment2) that rounding both makes. A second moment at 0 counts as the least code."""
    folder = max(checkpoints(english["adamw"]).items())[1]
    moments = [load_file(folder / f"moment{k}.safetensors") for k in (1, 2)]
    errors = {"powers": [], "dynamic tree": []}
    for name, m in moments[0].items():
        if m.ndim < 2:
            continue
        m, v = (blocks(moment[name]).astype(np.float64) for moment in moments)
        tops = [np.maximum(np.abs(x).max(1, keepdims=True), 1e-38) for x in (m, v)]
        tree1, tree2 = dynamic_tree(signed=True), dynamic_tree(signed=False)
        rounded = {
            "powers": (decode1(encode1(m, tops[0]), tops[0]),
                       decode2(encode2(v, tops[1]).astype(np.uint8), tops[1])),
            "dynamic tree": (np.sign(m) * nearest(np.abs(m) / tops[0], tree1) * tops[0],
                             np.where(v > 0, np.maximum(nearest(v / tops[1], tree2), tree2[1]), 0)
                             * tops[1]),
        }
        for code, (m8, v8) in rounded.items():
            update, update8 = m / (np.sqrt(v) + 1e-8), m8 / (np.sqrt(v8) + 1e-8)
            errors[code].append((update - update8).ravel())
    size = {code: float(np.sqrt(np.mean(np.concatenate(parts) ** 2)))
            for code, parts in errors.items()}
    print(f"root mean square error of an update: {size}")
    assert size["powers"] < size["dynamic tree"]

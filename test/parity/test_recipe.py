"""What recipes add to a model or its loss, ten steps against PyTorch: z-loss, a norm behind the embedding, and both with
groups of parameters and with moments in 8 bits but for those of named parameters."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import reference
from jobs import Job
from programs import USER_ERROR, checkpoints, metrics
from reference import Model, Optimizer
from test_adamw8bit import blocks, decode1, decode2, encode1, encode2
from test_groups import Group, options_of, with_groups

STEPS = 10
# Large enough that ten steps without it end elsewhere.
Z = 1e-2
PLAIN = Job(model=Model(), optimizer=Optimizer(decay_iters=STEPS), train_iters=STEPS)
WITH_Z = replace(PLAIN, settings={"training": {"z_loss": Z}})
WITH_NORM = replace(PLAIN, model=Model(embedding_norm=True))
TIED = replace(WITH_Z, model=Model(embedding_norm=True, tie_word_embeddings=True))
# The vocabulary is padded to 320 rows, of which 64 are no classes.
PADDED = replace(WITH_Z, settings={**WITH_Z.settings, "target": {"make_vocab_size_divisible_by": 320}})


def differences(programs, compiled, tmp_path, job: Job, z: float, model: Model | None = None,
                steps: int = STEPS) -> tuple[float, float]:
    """The largest of the losses (relative) and of the weights after the last step."""
    weights = reference.random_weights(job.model, seed=7)
    save_file(weights, tmp_path / "initial.safetensors")
    out = tmp_path / "run"
    programs.run("lmc-run", compiled(job), f"--out={out}", f"--init={tmp_path / 'initial.safetensors'}").ok()
    parameters = reference.as_parameters(weights, torch.float32)
    expected = reference.train(model or job.model, parameters, job.windows(), job.optimizer, steps, z=z)
    lines = metrics(out)
    assert len(lines) == STEPS
    loss = max(abs(line["loss"] - step.loss) / step.loss for line, step in zip(lines, expected, strict=True))
    norm = max(abs(line["grad_norm"] - step.grad_norm) / step.grad_norm
               for line, step in zip(lines, expected, strict=True))
    return loss, norm


@pytest.mark.parametrize("job,z", [(WITH_Z, Z), (WITH_NORM, 0.0), (TIED, Z), (PADDED, Z)],
                         ids=["z_loss", "embedding_norm", "both_tied", "padded_vocabulary"])
def test_ten_steps_are_those_of_pytorch(programs, compiled, tmp_path, job, z):
    loss, norm = differences(programs, compiled, tmp_path, job, z)
    print(f"losses differ by {loss:.1e}, norms of gradients by {norm:.1e}")
    assert loss < 1e-5 and norm < 1e-4


# The embedding has f32 moments, its own rate and no decay; keys and the norm behind the embedding decay more.
GROUPS = (Group("embeddings", ("model.embed_tokens.weight",), weight_decay=0.0, lr_mult=0.5, optim_bits=32),
          Group("keys", ("*.k_proj.weight", "model.embed_norm.*"), weight_decay=0.4))
TOGETHER = with_groups(
    replace(WITH_NORM, optimizer=Optimizer(decay_iters=STEPS, eps=1e-6),
            settings={"training": {"z_loss": Z}, "optimizer": {"type": "adamw8bit"}}), *GROUPS)


def train_together(job: Job, groups: tuple[Group, ...], z: float, coded) -> list[float]:
    """The losses of PyTorch's gradients and AdamW in numpy; the moments of `coded` parameters are rounded to 8 bits."""
    weights = reference.random_weights(TOGETHER.model, seed=7)
    parameters = reference.as_parameters({name: weights[name] for name in job.model.shapes()}, torch.float32)
    options, losses = job.optimizer, []
    moments = {name: (np.zeros(p.shape), np.zeros(p.shape)) for name, p in parameters.items()}
    for step in range(1, STEPS + 1):
        loss = reference.loss(job.model, parameters, job.windows())
        (loss + z * reference.z_loss(job.model, parameters, job.windows())).backward()
        torch.nn.utils.clip_grad_norm_(parameters.values(), options.clip_grad)
        losses.append(loss.item())
        for name, p in parameters.items():
            g = p.grad.numpy().astype(np.float64)
            m = options.beta1 * moments[name][0] + (1 - options.beta1) * g
            v = options.beta2 * moments[name][1] + (1 - options.beta2) * g * g
            decay, factor = options_of(name, p.shape, options.weight_decay, groups)
            rate = options.learning_rate(step) * factor
            update = m / (1 - options.beta1**step) / (np.sqrt(v / (1 - options.beta2**step)) + options.eps)
            new = p.detach().numpy() * (1 - rate * decay) - rate * update
            if coded(name, p):
                first, second = blocks(m), blocks(v)
                scales = np.abs(first).max(1, keepdims=True), second.max(1, keepdims=True)
                m = decode1(encode1(first, scales[0]), scales[0]).reshape(p.shape)
                v = decode2(encode2(second, scales[1]).astype(np.uint8), scales[1]).reshape(p.shape)
            moments[name] = m, v
            p.data, p.grad = torch.from_numpy(new.astype(np.float32)), None
    return losses


def test_all_together_are_those_of_pytorch(programs, compiled, tmp_path):
    job = TOGETHER
    save_file(reference.random_weights(job.model, seed=7), tmp_path / "initial.safetensors")
    out = tmp_path / "run"
    programs.run("lmc-run", compiled(job), f"--out={out}", f"--init={tmp_path / 'initial.safetensors'}").ok()
    ours = [line["loss"] for line in metrics(out)]
    plain = Model()

    def in_8_bits(name, p):
        return p.ndim == 2 and name != "model.embed_tokens.weight"

    def worst(*arguments) -> float:
        return max(abs(a - b) / b for a, b in zip(ours, train_together(*arguments), strict=True))

    found = worst(job, GROUPS, Z, in_8_bits)
    print(f"losses differ by {found:.1e}")
    assert found < 1e-5
    for what, arguments in {
        "no z-loss": (job, GROUPS, 0.0, in_8_bits),
        "no norm": (replace(job, model=plain), GROUPS, Z, in_8_bits),
        "no groups": (job, (), Z, in_8_bits),
        "32 bits for all": (job, GROUPS, Z, lambda name, p: False),
    }.items():
        missed = worst(*arguments)
        print(f"{what}: {missed:.1e}")
        assert missed > 3e-5, what
    # Rounding the embedding's moments changes too little in ten steps to show in the losses.
    last = checkpoints(out)[STEPS]
    assert "model.embed_tokens.weight" in reference.load_weights(last / "moment1.safetensors")
    assert "model.embed_tokens.weight" not in reference.load_weights(last / "moment1_scale.safetensors")


def test_a_missing_z_loss_is_seen(programs, compiled, tmp_path):
    loss, norm = differences(programs, compiled, tmp_path, WITH_Z, 0.0)
    assert loss > 1e-4 and norm > 1e-2


def test_chunks_of_the_loss_and_ranks_change_nothing(programs, compiled, tmp_path):
    """Micro-batches, chunks of the loss and ZeRO-3 add the same gradients in another order."""
    whole = replace(TIED, compute_dtype="f64")
    cut = replace(whole, micro_batch_size=2, settings={
        **whole.settings, "memory": {"loss_chunk": 24},
        "distributed": {"devices_per_node": 2, "strategy": "zero3"}})
    found = []
    for name, job, ranks in (("whole", whole, 1), ("cut", cut, 2)):
        out = tmp_path / name
        programs.run("lmc-run", compiled(job), f"--out={out}", f"--nproc={ranks}").ok()
        found.append([line["loss"] for line in metrics(out)])
    assert found[0] == pytest.approx(found[1], rel=1e-12)


def test_a_model_that_transformers_has_not_is_not_exported(programs, compiled, tmp_path):
    job = replace(WITH_NORM, settings={"checkpoint": {"export_interval": 5}})
    toml = job.write(tmp_path)
    said = programs.run("lmc", "compile", toml, "-o", tmp_path / "job.plan")
    assert said.code == USER_ERROR
    assert "export_interval = 5 asks for exports, but Hugging Face's LlamaForCausalLM has no norm behind the " \
           "embedding (model.embedding_norm); set it to 0" in said.stderr
    plan = compiled(WITH_NORM)
    for option in (f"--export={tmp_path / 'exported'}", "--set=checkpoint.export_interval=5"):
        said = programs.run("lmc-run", plan, f"--out={tmp_path / 'refused'}", option)
        assert said.code == USER_ERROR
        assert "checkpoints cannot be exported: Hugging Face's LlamaForCausalLM has no norm behind" in said.stderr
    out = tmp_path / "run"
    programs.run("lmc-run", plan, f"--out={out}").ok()
    last = checkpoints(out)[STEPS]
    said = programs.run("lmc-data", "export", last, "--output", tmp_path / "exported")
    assert said.code == USER_ERROR
    assert "cannot be exported: Hugging Face's LlamaForCausalLM has no norm behind" in said.stderr
    assert not (tmp_path / "exported").exists()

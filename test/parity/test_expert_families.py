"""The families with a mixture of experts: any of their shapes, and both layouts of experts in Hugging Face's folders."""

import json
import random
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

import huggingface
import reference
from draws import draw_count
from jobs import Job
from programs import USER_ERROR, losses
from reference import Model
from test_huggingface import assert_same_bits

FAMILIES = ("mixtral", "qwen3_moe", "olmoe")
# Of equal probabilities, either expert is right: two programs may choose differently if they are nearer than rounding.
CLEAR = 1e-5

SMALL = {
    "mixtral": Model(architecture="mixtral", intermediate_size=40, num_local_experts=6),
    "qwen3_moe": Model(architecture="qwen3_moe", num_hidden_layers=4, num_local_experts=6, decoder_sparse_step=2),
    "olmoe": Model(architecture="olmoe", intermediate_size=40, num_local_experts=6, norm_topk_prob=True),
}


def job_of(model: Model) -> Job:
    return Job(model=model, sequence_length=48, batch_size=2, micro_batch_size=2, settings={"monitoring": {"logits": True}})


def drawn(family: str, draw: random.Random) -> Model:
    heads = draw.choice([1, 2, 3, 4, 6])
    head_dim = 2 * draw.randint(4, 12)
    # OLMoE's heads divide hidden_size.
    hidden = heads * head_dim if family == "olmoe" else draw.randint(16, 96)
    experts, layers = draw.randint(1, 40), draw.randint(1, 4)
    return Model(
        architecture=family, vocab_size=draw.randint(100, 300), hidden_size=hidden, intermediate_size=draw.randint(8, 100),
        num_hidden_layers=layers, num_attention_heads=heads, head_dim=head_dim,
        num_key_value_heads=draw.choice([n for n in range(1, heads + 1) if heads % n == 0]),
        rope_theta=draw.choice([500.0, 10000.0, 1e6]), rms_norm_eps=draw.choice([1e-6, 1e-5]),
        tie_word_embeddings=draw.random() < 0.5, attention_bias=family != "mixtral" and draw.random() < 0.5,
        sliding_window=draw.choice([0, 5, 20]) if family == "mixtral" else 0,
        num_local_experts=experts, num_experts_per_tok=draw.randint(1, min(8, experts)), norm_topk_prob=draw.random() < 0.5,
        moe_intermediate_size=draw.randint(4, 60), decoder_sparse_step=draw.randint(1, 3),
        mlp_only_layers=tuple(sorted(draw.sample(range(layers), draw.randint(0, layers // 2)))))


def choices_are_clear(model: Model, weights: reference.Weights, tokens: torch.Tensor) -> bool:
    routers: list[torch.Tensor] = []
    reference.logits(model, weights, tokens, routers=routers)
    k = model.num_experts_per_tok
    for router in routers if k < model.num_local_experts else []:
        ordered = router.softmax(-1).sort(-1, descending=True).values
        if ((ordered[:, k - 1] - ordered[:, k]) / ordered[:, k - 1]).min() < CLEAR:
            return False
    return True


@pytest.mark.parametrize("number", range(draw_count(8)))
@pytest.mark.parametrize("family", FAMILIES)
def test_drawn_shapes_have_the_logits_of_transformers(programs, tmp_path, family, number):
    draw = random.Random(f"{family} {number}")
    while True:
        model, seed = drawn(family, draw), draw.randrange(1000)
        weights = reference.random_weights(model, seed)
        job = job_of(model)
        if choices_are_clear(model, weights, job.windows()[:, :-1]):
            break
    print(model)
    plan, initial = tmp_path / "job.plan", tmp_path / "initial.safetensors"
    save_file(weights, initial)
    programs.run("lmc", "compile", job.write(tmp_path), "-o", plan).ok()
    programs.run("lmc-run", plan, f"--out={tmp_path / 'run'}", "--steps=0", f"--init={initial}",
                 f"--export={tmp_path / 'hf'}").ok()
    programs.run("lmc-run", plan, f"--out={tmp_path / 'logits'}", "--resume=none", f"--init={initial}",
                 f"--dump-logits={tmp_path / 'logits.safetensors'}").ok()
    assert_same_bits(load_file(tmp_path / "hf" / "model.safetensors"), weights)
    made, report = AutoModelForCausalLM.from_pretrained(
        tmp_path / "hf", dtype=torch.float32, output_loading_info=True, **huggingface.options(model))
    assert not report["missing_keys"] and not report["unexpected_keys"] and not report["mismatched_keys"], report
    dumped = load_file(tmp_path / "logits.safetensors")
    theirs = huggingface.logits(made.eval(), dumped["tokens"].long())
    difference = (dumped["logits"] - theirs).abs().max()
    print(f"logits of deviation {theirs.std():.3f}, largest difference {difference:.2e}")
    assert theirs.std() > 0.5 and difference <= 1e-4


@pytest.mark.parametrize("shard_size", ["10GB", "60KB"], ids=["one-file", "sharded"])
@pytest.mark.parametrize("fused", [False, True], ids=["apart", "fused"])
@pytest.mark.parametrize("family", FAMILIES)
def test_both_layouts_of_experts_come_in_bit_for_bit(programs, compiled, tmp_path, family, fused, shard_size):
    """save_pretrained writes the tensors of each expert, and with save_original_format=False a layer's in two. Both are
    exported as the former."""
    model = SMALL[family]
    weights = reference.random_weights(model, seed=19)
    saved, exported = tmp_path / "saved", tmp_path / "exported"
    huggingface.build(model, weights).save_pretrained(saved, max_shard_size=shard_size, save_original_format=not fused)
    assert (len(list(saved.glob("*.safetensors"))) > 1) == (shard_size == "60KB")
    there = reference.load_weights(saved)
    assert ("model.layers.1.mlp.experts.gate_up_proj" in there) == fused
    assert set(there) == set(huggingface.joined_experts(model, weights) if fused else weights)
    programs.run("lmc-run", compiled(job_of(model)), f"--out={tmp_path / 'run'}", "--steps=0", f"--init={saved}",
                 f"--export={exported}").ok()
    assert_same_bits(load_file(exported / "model.safetensors"), weights)
    # And back: transformers reads the export and writes the same.
    AutoModelForCausalLM.from_pretrained(exported, dtype=torch.float32, **huggingface.options(model)).save_pretrained(
        tmp_path / "back", save_original_format=not fused)
    assert_same_bits(load_file(tmp_path / "back" / "model.safetensors"), there)


@pytest.mark.parametrize("fused", [False, True], ids=["apart", "fused"])
@pytest.mark.parametrize("family", FAMILIES)
def test_another_number_of_experts_is_said_in_one_line(programs, compiled, tmp_path, family, fused):
    model = SMALL[family]
    experts = model.expert(1, 0)[0].partition(".0.")[0]
    for there in (model.num_local_experts - 1, model.num_local_experts + 2):
        weights = reference.random_weights(replace(model, num_local_experts=there), seed=7)
        file = tmp_path / f"{there}.safetensors"
        save_file(huggingface.joined_experts(replace(model, num_local_experts=there), weights) if fused else weights, file)
        done = programs.run("lmc-run", compiled(job_of(model)), f"--out={tmp_path / 'run'}", f"--init={file}")
        assert done.code == USER_ERROR and done.stderr.count("error") == 1
        first = "model.layers.1." if family == "qwen3_moe" else "model.layers.0."
        assert f"'{experts.replace('model.layers.1.', first)}' has {there} experts there and 6 in the model" in done.stderr


@pytest.mark.parametrize("family", FAMILIES)
def test_more_experts_per_token_than_there_are(programs, tmp_path, family):
    job = job_of(replace(SMALL[family], num_experts_per_tok=7))
    done = programs.run("lmc", "compile", job.write(tmp_path), "-o", tmp_path / "bad.plan")
    assert done.code == USER_ERROR and done.stderr.count("error") == 1
    number = "num_local_experts" if family == "mixtral" else "num_experts"
    assert f"num_experts_per_tok = 7 is more than {number} = 6" in done.stderr


def test_the_demo_of_experts_learns(programs, root, tmp_path):
    """models/configs/demo-moe.toml, for some of its steps, on a text with a few words."""
    words = "in the beginning god created heaven and earth void form face deep spirit".split()
    (tmp_path / "text.txt").write_text(" ".join(words[(i * i + i // 7) % len(words)] for i in range(20_000)))
    tokens, plan = tmp_path / "text.bin", tmp_path / "demo.plan"
    programs.run("lmc-data", "pack", tmp_path / "text.txt", "-o", tokens).ok()
    files = json.dumps([str(tokens)])
    programs.run("lmc", "compile", root / "models/configs/demo-moe.toml", "-o", plan, "--set", f"data.train={files}",
                 "--set", f"data.validation={files}").ok()
    programs.run("lmc-run", plan, f"--out={tmp_path / 'run'}", "--steps=12").ok()
    course = losses(tmp_path / "run")
    print(course)
    assert course[0] > 5 and course[-1] < 0.6 * course[0]

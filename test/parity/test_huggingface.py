"""Weights go to Hugging Face's transformers and come from there, and mean the same in both."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

import huggingface
import reference
from jobs import Job
from reference import LLAMA3_SCALING, Model

MODELS = {
    "llama-grouped-tied": Model(tie_word_embeddings=True),
    "llama-untied-theta": Model(rope_theta=500000.0, rms_norm_eps=1e-6),
    "llama-biases": Model(attention_bias=True, mlp_bias=True),
    "llama-rope-linear": Model(rope_scaling={"rope_type": "linear", "factor": 4.0}),
    "llama-rope-llama3": Model(rope_theta=5000.0, rope_scaling=LLAMA3_SCALING),
    "mistral": Model(architecture="mistral"),
    "mistral-window": Model(architecture="mistral", sliding_window=7),
    "qwen2": Model(architecture="qwen2", tie_word_embeddings=True),
    "qwen2-odd-sizes": Model(architecture="qwen2", vocab_size=251, hidden_size=60, intermediate_size=91, head_dim=10,
                             num_attention_heads=6, num_key_value_heads=2),
    "qwen3": Model(architecture="qwen3", head_dim=24),
    "qwen3-biases": Model(architecture="qwen3", attention_bias=True, num_key_value_heads=1, tie_word_embeddings=True),
    "olmo2": Model(architecture="olmo2", num_key_value_heads=4),
    "gpt2": Model(architecture="gpt2", tie_word_embeddings=True, intermediate_size=256),
    "gpt2-odd-sizes": Model(architecture="gpt2", vocab_size=251, hidden_size=60, intermediate_size=91,
                            num_attention_heads=6, max_position_embeddings=53, layer_norm_epsilon=1e-3),
    "mixtral": Model(architecture="mixtral", intermediate_size=96, num_local_experts=4, num_experts_per_tok=2),
    "mixtral-odd-sizes": Model(architecture="mixtral", vocab_size=251, hidden_size=60, intermediate_size=37, head_dim=10,
                               num_attention_heads=6, num_local_experts=7, num_experts_per_tok=3, sliding_window=7),
    "qwen3-moe": Model(architecture="qwen3_moe", head_dim=24, num_local_experts=12, num_experts_per_tok=5, norm_topk_prob=True),
    "qwen3-moe-every-second": Model(architecture="qwen3_moe", num_hidden_layers=4, decoder_sparse_step=2, attention_bias=True,
                                    moe_intermediate_size=37),
    "qwen3-moe-dense-layers": Model(architecture="qwen3_moe", num_hidden_layers=3, mlp_only_layers=(0, 2),
                                    tie_word_embeddings=True),
    "olmoe": Model(architecture="olmoe", num_key_value_heads=4, num_local_experts=12, num_experts_per_tok=6),
    "olmoe-grouped-normalized": Model(architecture="olmoe", vocab_size=251, hidden_size=60, intermediate_size=91, head_dim=10,
                                      num_attention_heads=6, num_local_experts=5, norm_topk_prob=True, attention_bias=True),
    "olmo2-grouped-biases": Model(architecture="olmo2", attention_bias=True, tie_word_embeddings=True),
}


def job_of(name: str) -> Job:
    return Job(
        model=MODELS[name], sequence_length=48, batch_size=2, micro_batch_size=2,
        settings={"monitoring": {"logits": True}},
    )


def assert_same_bits(ours: reference.Weights, theirs: reference.Weights) -> None:
    assert set(ours) == set(theirs)
    for name in theirs:
        assert ours[name].dtype == theirs[name].dtype and ours[name].shape == theirs[name].shape
        assert torch.equal(ours[name].view(torch.uint8), theirs[name].view(torch.uint8)), name
    count = sum(tensor.numel() for tensor in theirs.values())
    print(f"{len(theirs)} tensors, {count} values, equal bit for bit")


@pytest.mark.parametrize("name", MODELS)
def test_exported_weights_have_the_same_logits(programs, compiled, tmp_path, name):
    job = job_of(name)
    weights = reference.random_weights(job.model, seed=11)
    save_file(weights, tmp_path / "initial.safetensors")
    exported, dump = tmp_path / "hf", tmp_path / "logits.safetensors"
    initial = f"--init={tmp_path / 'initial.safetensors'}"
    programs.run(
        "lmc-run", compiled(job), f"--out={tmp_path / 'run'}", "--resume=none", "--steps=0",
        initial, f"--export={exported}",
    ).ok()
    programs.run(
        "lmc-run", compiled(job), f"--out={tmp_path / 'logits'}", "--resume=none", initial,
        f"--dump-logits={dump}",
    ).ok()

    made, report = AutoModelForCausalLM.from_pretrained(
        exported, dtype=torch.float32, output_loading_info=True, **huggingface.options(job.model)
    )
    assert not report["missing_keys"] and not report["unexpected_keys"], report
    assert not report["mismatched_keys"], report
    assert type(made) is huggingface.CLASSES[job.model.architecture][1]
    assert_same_bits(load_file(exported / "model.safetensors"), weights)

    dumped = load_file(dump)
    tokens, ours = dumped["tokens"].long(), dumped["logits"]
    assert sorted(tokens.tolist()) == sorted(job.windows()[:, :-1].tolist())
    theirs = huggingface.logits(made.eval(), tokens)
    difference = (ours - theirs).abs().max()
    print(f"{name}: logits of deviation {theirs.std():.3f}, largest {theirs.abs().max():.3f}, "
          f"largest difference {difference:.2e}")
    assert theirs.std() > 0.5 and (theirs[0] - theirs[1]).abs().max() > 0.5
    assert difference <= 1e-4


@pytest.mark.parametrize("shard_size", ["10GB", "100KB"], ids=["one-file", "sharded"])
@pytest.mark.parametrize("name", ["llama-grouped-tied", "llama-biases", "mistral-window", "qwen2", "qwen3-biases", "olmo2",
                                  "gpt2", "gpt2-odd-sizes", "mixtral", "mixtral-odd-sizes", "qwen3-moe-every-second",
                                  "qwen3-moe-dense-layers", "olmoe", "olmoe-grouped-normalized"])
def test_saved_weights_come_back_bit_for_bit(programs, compiled, tmp_path, name, shard_size):
    job = job_of(name)
    weights = reference.random_weights(job.model, seed=13)
    saved, exported = tmp_path / "saved", tmp_path / "exported"
    huggingface.build(job.model, weights).save_pretrained(saved, max_shard_size=shard_size)
    shards = len(list(saved.glob("*.safetensors")))
    print(f"{shards} files")
    assert (shards > 1) == (shard_size == "100KB")
    programs.run(
        "lmc-run", compiled(job), f"--out={tmp_path / 'run'}", "--resume=none", "--steps=0",
        f"--init={saved}", f"--export={exported}",
    ).ok()
    assert_same_bits(load_file(exported / "model.safetensors"), reference.load_weights(saved))


@pytest.mark.parametrize("name", ["llama-grouped-tied", "llama-rope-llama3", "mistral-window", "qwen2", "qwen3", "olmo2-grouped-biases",
                                  "gpt2", "gpt2-odd-sizes", "mixtral-odd-sizes", "qwen3-moe", "qwen3-moe-every-second",
                                  "qwen3-moe-dense-layers", "olmoe", "olmoe-grouped-normalized"])
def test_saved_config_describes_the_model(programs, tmp_path, name):
    """[model] config = "config.json" of save_pretrained is as good as the keys themselves: the
    weights saved beside it fit, and the export has a config.json of the same model."""
    job = job_of(name)
    weights = reference.random_weights(job.model, seed=17)
    made = huggingface.build(job.model, weights)
    made.save_pretrained(tmp_path / "saved")
    sections = job.toml().split("[training]")[1]
    job.write(tmp_path)
    toml = tmp_path / "imported.toml"
    toml.write_text(f'[model]\nconfig = "saved/config.json"\n\n[training]{sections}')
    plan, exported = tmp_path / "imported.plan", tmp_path / "exported"
    programs.run("lmc", "compile", toml, "-o", plan).ok()
    programs.run(
        "lmc-run", plan, f"--out={tmp_path / 'run'}", "--resume=none", "--steps=0",
        f"--init={tmp_path / 'saved'}", f"--export={exported}",
    ).ok()
    back = AutoModelForCausalLM.from_pretrained(
        exported, dtype=torch.float32, **huggingface.options(job.model)
    )
    renamed = {"intermediate_size": "n_inner"} if job.model.architecture == "gpt2" else {}
    for key in job.model.keys().keys() - {"architecture", "rope_theta", "rope_scaling"}:
        key = renamed.get(key, key)
        ours, theirs = (getattr(config, key, None) for config in (back.config, made.config))
        print(f"{key}: {ours}, transformers {theirs}")
        assert ours == theirs
        assert ours is not None or key in ("sliding_window", *huggingface.ABSENT.get(job.model.architecture, ()))
    assert getattr(back.config, "rope_parameters", None) == getattr(made.config, "rope_parameters", None)
    assert json.loads((exported / "config.json").read_text())["architectures"] == [
        type(made).__name__
    ]

"""The peer of bench.py: the same Llama, trained by PyTorch's FSDP2 over Gloo on CPUs.

One process per rank, with torchrun's environment. --mesh=full divides the model over all ranks
(fully_shard on a 1-D mesh), --mesh=hybrid over the ranks of a node, with a copy on each node (on a
2-D mesh: HSDP). Each layer is a unit, as PyTorch's documentation recommends, and the next one's
weights are gathered in advance. Rank 0 prints one line of JSON: seconds of each timed step, losses.
"""

import argparse
import json
import os
import sys
import time
import tomllib
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cpu"))
from peer import Llama  # noqa: E402


def names(layers: int) -> dict[str, list[str]]:
    """The peer's parameters, and Hugging Face's of which each is made, one below the other."""
    table = {"embedding.weight": ["model.embed_tokens.weight"], "norm.weight": ["model.norm.weight"]}
    for i in range(layers):
        ours, theirs = f"layers.{i}", f"model.layers.{i}"
        table |= {
            f"{ours}.attention_norm.weight": [f"{theirs}.input_layernorm.weight"],
            f"{ours}.mlp_norm.weight": [f"{theirs}.post_attention_layernorm.weight"],
            f"{ours}.attention.qkv.weight": [f"{theirs}.self_attn.{x}_proj.weight" for x in "qkv"],
            f"{ours}.attention.out.weight": [f"{theirs}.self_attn.o_proj.weight"],
            f"{ours}.gate_up.weight": [f"{theirs}.mlp.{x}_proj.weight" for x in ("gate", "up")],
            f"{ours}.down.weight": [f"{theirs}.mlp.down_proj.weight"],
        }
    return table


def save_initial(model: Llama, layers: int, path: Path) -> None:
    state, tensors = model.state_dict(), {}
    for ours, theirs in names(layers).items():
        for name, part in zip(theirs, state[ours].chunk(len(theirs))):
            tensors[name] = part.contiguous()
    save_file(tensors, path)


def load_initial(model: Llama, layers: int, path: Path) -> None:
    tensors = load_file(path)
    model.load_state_dict({ours: torch.cat([tensors[name] for name in theirs])
                           for ours, theirs in names(layers).items()})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("config", type=Path)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--make-weights", action="store_true", help="only write the initial weights")
    parser.add_argument("--batches", type=Path, help="of all ranks: int64 [steps, GBS, seq + 1]")
    parser.add_argument("--mesh", choices=["full", "hybrid"])
    parser.add_argument("--nodes", type=int)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int)
    args = parser.parse_args()

    torch.manual_seed(1)
    torch.set_num_threads(args.threads)
    config = tomllib.loads(args.config.read_text())
    optimizer, lr = config["optimizer"], config["lr_schedule"]["lr"]
    seq, layers = config["training"]["sequence_length"], config["model"]["num_hidden_layers"]
    model = Llama(config["model"], seq)
    if args.make_weights:
        return save_initial(model, layers, args.weights)
    load_initial(model, layers, args.weights)

    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if args.mesh == "full":
        mesh = init_device_mesh("cpu", (ranks,))
    else:
        mesh = init_device_mesh("cpu", (args.nodes, ranks // args.nodes),
                                mesh_dim_names=("replicate", "shard"))
    for layer in model.layers:
        if args.compile:
            layer.compile()
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim == 1]
    adamw = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": optimizer["weight_decay"]},
         {"params": vectors, "weight_decay": 0.0}],
        lr=lr, betas=(optimizer["beta1"], optimizer["beta2"]), eps=optimizer["eps"], fused=True)
    batches = torch.load(args.batches)
    rows = batches.shape[1] // ranks

    seconds, losses = [], []
    for step in range(args.steps):
        batch = batches[step, rank * rows:(rank + 1) * rows]
        began = time.perf_counter()
        loss = model(batch[:, :-1], batch[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), optimizer["clip_grad"])
        adamw.step()
        adamw.zero_grad(set_to_none=True)
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / ranks)
        seconds.append(time.perf_counter() - began)
    if rank == 0:
        print(json.dumps({"seconds": seconds, "losses": losses}), flush=True)
    dist.barrier()
    os._exit(0)  # destroy_process_group() sometimes aborts the process


if __name__ == "__main__":
    main()

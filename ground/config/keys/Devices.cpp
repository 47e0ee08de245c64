// The keys about devices and their use: [memory], [distributed] and [target].
#include "ground/config/keys/Rows.h"

namespace lmc::config::keys {

void Rows::devices() {
  section("memory", "What device memory may be used, and what is recomputed to save it.");
  using enum RecomputeMode;
  KEY(memory.budget, range(0, kUnbounded, "bytes"),
      "Planned peak of device memory that a plan may not exceed; 0: what the device spec leaves to "
      "a plan (docs/devices.md). Without a spec there is no limit.");
  KEY(memory.recompute, choice("none", None), choice("activation", Activation),
      choice("full", Full), choice("block", Block), choice("auto", Auto),
      choice("keep-all", KeepAll),
      "What the backward pass recomputes: `none` only what costs no extra kernel, or a small one "
      "for 8-bit floats, `activation` the norms and the output of the MLP's activation (in a Llama "
      "the same as `none`), `full` also "
      "the MLP's first linear layers (gate and up), `block` whole layers, `auto` whatever meets "
      "the budget in the least time. `keep-all` keeps every value, for comparisons.");
  KEY(memory.recomputeStride, range(1, kMaxLayers, "layers"),
      "`recompute = \"block\"`: every n-th layer is recomputed.");
  KEY(memory.store, choices({"compute_dtype", "fp8"}),
      "What layers keep for the backward pass: their values in the compute dtype, or `fp8`: "
      "rounded "
      "to E4M3 with a scale for each row, half the bytes of bf16. The backward pass, and attention "
      "in the forward pass, compute with the rounded values. Inputs of layers stay in the compute "
      "dtype ([more](fp8.md#kept-values)).");
  KEY(memory.lossChunk, range(1, kMaxInt32, "tokens"), orAuto,
      "Tokens whose logits exist at a time. For each chunk of so many tokens, the gradient of the "
      "head's weights is read and written once: larger chunks are faster and take more memory. "
      "`auto` takes the fastest that meets the budget, with at most 4 GiB of logits (without a "
      "device spec 256 MiB). The chunk changes only the order in which this gradient is summed.");

  section("distributed", "The cluster, and what is sharded over it.");
  using enum ShardingStrategy;
  KEY(distributed.nodes, range(1, 1 << 20, "nodes"), "Machines of the job.");
  KEY(distributed.devicesPerNode, range(1, 1024, "devices"),
      "Devices in each machine; one process drives one device.");
  KEY(distributed.strategy, choice("no_shard", NoShard), choice("ddp", NoShard),
      choice("zero1", Zero1), choice("zero2", Zero2), choice("zero3", Zero3),
      choice("full_shard", Zero3), choice("hybrid_shard", HybridShard),
      choice("hybrid_shard_zero2", HybridShardZero2),
      "What the devices divide between them: `no_shard` (another name: `ddp`) nothing, `zero1` "
      "optimizer state, `zero2` also gradients, `zero3` (another name: `full_shard`) also weights. "
      "`hybrid_shard` divides like `zero3` inside a node and copies across nodes, "
      "`hybrid_shard_zero2` like `zero2`.");
  KEY(distributed.shardGroup, range(1, kMaxInt32, "devices"),
      choice("auto", DistributedConfig::kAutoGroup), choice("node", DistributedConfig::kNodeGroup),
      choice("world", DistributedConfig::kWorldGroup), defaultText("\"auto\""),
      "Devices that divide the state between them: those of a `node`, all of the `world`, or so "
      "many consecutive ones. `auto` is `node` for the hybrid strategies, else `world`.");
  key("reduce_gradients", FIELD(distributed.reduce), choices({"auto", "each", "last"}),
      "With gradient accumulation: whether gradients are summed over devices in `each` micro-step, "
      "which keeps only a device's piece of them, or in the `last` one, which moves fewer bytes. "
      "`auto` is `last` where the strategy divides no gradients, and else the faster of the two "
      "within the budget (without a device spec: `each`).");
  KEY(distributed.reduceDType, choices({"f32", "bf16", "f16"}), identity,
      "The dtype in which gradients travel between devices. Sums over micro-steps stay in f32. "
      "Models in f64 keep f64. `f16` rounds to 11 bits where `bf16` rounds to 8: the gradients of "
      "a layer are scaled by one power of two, which the largest of them on any device gives, so "
      "that no sum overflows. Gradients smaller than that largest one times the number of devices, "
      "divided by 2^27, lose further bits.");
  KEY(distributed.reshardAfterForward, choices({"auto", "yes", "no"}),
      "Where weights are divided: `yes` gathers them again for the backward pass, `no` keeps them "
      "from the forward pass, which takes memory. `auto` decides for each layer, together with "
      "`memory.recompute`: the fastest plan within the budget; with `memory.recompute_stride` "
      "above 1 it is `yes`.");
  KEY(distributed.overlap, choices({"auto", "yes", "gathers", "no"}),
      "What devices exchange while they compute: `gathers` only gathers weights before they are "
      "needed, `yes` also sums gradients while the backward pass goes on, `no` does neither. Both "
      "take memory. `auto` is the fastest of the three within the budget.");
  KEY(distributed.expertParallel, range(1, 1024, "devices"),
      "Devices that divide the experts of a layer between them: each has 1/N of the experts, and "
      "computes the choices of all N devices that are of its experts. Divides the number of "
      "experts, and the devices that divide the state (`shard_group`).");
  KEY(distributed.expertCapacity, range(0, 1024),
      "With `expert_parallel` = N: how many choices a device computes at a time, in multiples of "
      "what it gets if all devices' experts are equally busy. It gets at most N times as many "
      "(fewer with more choices per token than experts per device). What is beyond is computed "
      "after it, in the same memory if it is recomputed (`memory.recompute`), and counted (`late` "
      "of `router` in metrics.jsonl). No choice is dropped. 0: all at once.");
}

void Rows::target() {
  section("target", "What the plan is compiled for.");
  KEY(target.device, "`cpu`, or `cuda:sm_XY` with the GPU's compute capability (`cuda:sm_90a`).");
  KEY(target.cpu,
      "CPU to generate code for: `native`, or a name that LLVM knows (`x86-64`, `x86-64-v3`, "
      "`sapphirerapids`).");
  KEY(target.spec, defaultText("by `device`"),
      "What the device can do (docs/devices.md): `h100-sxm`, `h200`, `a100-80gb`, `a100-40gb`, "
      "`cpu`, or a TOML file, relative to this one.");
  key("make_vocab_size_divisible_by", FIELD(target.vocabMultiple), range(1, 65536, "rows"), orAuto,
      "The head's weights (with tied embeddings, these too) are padded with rows of zeros to a "
      "multiple of this. Padded rows are no tokens: the training, checkpoints and exports stay the "
      "same. `auto` is 64 on a GPU in bf16 if the products of the head are predicted to be faster "
      "then, else 1. The name is Megatron's.");
  key("make_intermediate_size_divisible_by", FIELD(target.intermediateMultiple),
      range(1, 65536, "columns"), orAuto,
      "The MLPs are padded with columns of zeros to a multiple of this: `gate_proj` and `up_proj` "
      "get rows, `down_proj` columns. They stay zeros, so the training, checkpoints and exports "
      "stay the same. `auto` is 64 on a GPU in bf16 if the products of the MLPs are predicted to "
      "be faster then, else 1; with `adamw8bit` and in `gpt2`, whose MLPs have no gate, it is 1.");
  KEY(target.peakTflops, range(0, 1e6, "TFLOP/s"), runTime,
      "Peak of one device, for MFU; 0: from the device's specification.");
}

} // namespace lmc::config::keys

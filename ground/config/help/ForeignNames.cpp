#include "ground/config/help/ForeignNames.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace lmc::config {
namespace {

// Remarks that several entries share.
constexpr const char *kMicroBatch =
    "training.batch_size counts the sequences of a step over all devices and micro-steps";
constexpr const char *kAccumulation =
    "lmc computes the number of accumulation steps: training.batch_size / "
    "(training.micro_batch_size x devices)";
constexpr const char *kSamples = "it counts steps: divide the samples by training.batch_size";
constexpr const char *kPartOfRate = "both are fractions of lr";
constexpr const char *kTensorParallel =
    "lmc has no tensor parallelism: each device computes whole layers, and distributed.strategy "
    "divides weights, gradients and optimizer state over the devices";
constexpr const char *kPipelineParallel =
    "lmc has no pipeline parallelism: each device computes all layers, and distributed.strategy "
    "divides weights, gradients and optimizer state over the devices";
constexpr const char *kSequenceParallel =
    "lmc has no sequence or context parallelism: each device computes whole sequences, and "
    "memory.recompute saves memory of activations";
constexpr const char *kFamily = "lmc has no such key: model.architecture decides this";
constexpr const char *kDropout = "lmc has no dropout";
constexpr const char *kNorm = "in gpt2 the key is model.layer_norm_epsilon";
constexpr const char *kCompile = "lmc has no such key: it compiles every job ahead of time";
constexpr const char *kAttention =
    "lmc has no such key: it generates the kernels of attention itself";
constexpr const char *kTokenizer =
    "lmc has no tokenizer in a job: `lmc-data pack --tokenizer=PATH` "
    "turns text into token files";
constexpr const char *kTokenFiles = "it names token files, as `lmc-data pack` writes them";
constexpr const char *kOut = "lmc has no such key: `lmc-run --out=DIR` names the folder of a run";
constexpr const char *kResume = "lmc has no such key: `lmc-run` goes on with the run in its folder "
                                "by itself, and `--resume=PATH` names another checkpoint";
constexpr const char *kInit = "lmc has no such key: `lmc-run --init=PATH` reads initial weights";
constexpr const char *kTrace = "lmc has no such key: `lmc-run --trace=FILE` records a trace";
constexpr const char *kTensorBoard =
    "it is true or false: the event files lie in the folder of the run";
constexpr const char *kWandb = "the name of a project switches Weights & Biases on";
constexpr const char *kBackend =
    "lmc has no such key: `lmc-run --collectives` chooses how GPUs exchange data";
constexpr const char *kTimeout =
    "lmc has no such key: `lmc-run --hang-timeout` and `--slow-timeout` are in seconds";
constexpr const char *kBestCheckpoint =
    "keep_best = \"data.validation\" keeps the checkpoint with the lowest validation loss";

constexpr const char *kModelSection = "lmc's section is [model]";
constexpr const char *kMonitoringSection = "lmc's section is [monitoring]";
constexpr const char *kCheckpointSection = "lmc's section is [checkpoint]";
constexpr const char *kDistributedSection = "lmc's section is [distributed]";

// Returns the name as the tables below write it.
std::string inTableForm(std::string_view name) {
  std::string form(name.substr(std::min(name.find_first_not_of("-_"), name.size())));
  for (char &letter : form) {
    if (letter >= 'A' && letter <= 'Z')
      letter = static_cast<char>(letter - 'A' + 'a');
    if (letter == '-')
      letter = '_';
  }
  return form;
}

} // namespace

std::span<const ForeignKey> foreignKeys() {
  constexpr unsigned F = kFastLlm, M = kMegatron, T = kTorchtitan, H = kHuggingFace, N = kNanoGpt,
                     O = kOtherProgram;
  static constexpr auto table = std::to_array<ForeignKey>({
      // Batch, length and steps.
      {"global_batch_size", M | T, "training.batch_size", ""},
      {"train_batch_size", O, "training.batch_size", ""},
      {"per_device_train_batch_size", H, "training.micro_batch_size", kMicroBatch},
      {"local_batch_size", T, "training.micro_batch_size", kMicroBatch},
      {"per_device_eval_batch_size", H, "",
       "lmc has no such key: validation uses the batches of training"},
      {"gradient_accumulation_steps", H | N, "", kAccumulation},
      {"depth_first_micro_batches", F, "", kAccumulation},
      {"rampup_batch_size", M, "",
       "lmc has no such key: [[phase]] tables with growing batch_size are a batch ramp-up"},
      {"seq_length", M, "training.sequence_length", ""},
      {"seq_len", T, "training.sequence_length", ""},
      {"max_seq_len", T | O, "training.sequence_length", ""},
      {"block_size", N, "training.sequence_length", ""},
      {"steps", T, "training.train_iters", ""},
      {"max_steps", H, "training.train_iters", ""},
      {"max_iters", N, "training.train_iters", ""},
      {"train_samples", M, "training.train_iters", kSamples},
      {"num_train_epochs", H, "",
       "lmc counts no epochs: training.train_iters is in steps, and training.train_tokens in "
       "tokens"},
      {"exit_interval", M, "", "lmc has no such key: `lmc-run --steps=N` ends a run at a step"},
      {"exit_duration_in_mins", M, "",
       "lmc has no such key: `lmc-run --max-hours=TIME` ends a run in time"},

      // Precision.
      {"training_dtype", F, "training.compute_dtype", ""},
      {"dtype", T | N, "training.compute_dtype", ""},
      {"torch_dtype", H, "training.compute_dtype", ""},
      {"params_dtype", M, "training.compute_dtype", "master weights stay in f32 with \"bf16\""},
      {"mixed_precision_param", T, "training.compute_dtype", ""},
      {"mixed_precision_reduce", T, "distributed.reduce_dtype", ""},
      {"bf16", M | H, "training.compute_dtype",
       "bf16 = true is compute_dtype = \"bf16\", the default"},
      {"fp16", M | H, "",
       "lmc does not compute in fp16: training.compute_dtype is \"bf16\", \"f32\" or \"f64\""},
      {"tf32", H, "", "lmc does not use TF32: products in f32 are computed in f32"},
      {"accumulate_allreduce_grads_in_fp32", M, "distributed.reduce_dtype",
       "gradients travel in f32 by default, and sums over micro-steps are always in f32"},

      // The optimizer.
      {"optim", H, "optimizer.type",
       "\"adamw_torch\" is type = \"adamw\", and \"adamw_bnb_8bit\" is type = \"adamw8bit\""},
      {"optimizer", M, "optimizer.type", "optimizer = \"adam\" is type = \"adamw\""},
      {"optimizer.name", T, "optimizer.type", ""},
      {"adam_beta1", F | M | H, "optimizer.beta1", ""},
      {"adam_beta2", F | M | H, "optimizer.beta2", ""},
      {"beta_1", F, "optimizer.beta1", ""},
      {"beta_2", F, "optimizer.beta2", ""},
      {"adam_eps", M, "optimizer.eps", ""},
      {"adam_epsilon", H, "optimizer.eps", ""},
      {"optimizer.epsilon", F, "optimizer.eps", ""},
      {"max_grad_norm", H, "optimizer.clip_grad", ""},
      {"max_norm", T, "optimizer.clip_grad", ""},
      {"grad_clip", N, "optimizer.clip_grad", ""},
      {"gradient_clipping", O, "optimizer.clip_grad", ""},
      {"gradient_norm_clipping", F, "optimizer.clip_grad", ""},

      // The learning rate.
      {"learning_rate", H | N, "lr_schedule.lr", ""},
      {"learning_rate.base", F, "lr_schedule.lr", ""},
      {"max_lr", O, "lr_schedule.lr", ""},
      {"learning_rate.minimum", F, "lr_schedule.min_lr", ""},
      {"lr_min", T, "lr_schedule.min_lr_ratio", kPartOfRate},
      {"min_lr_factor", T, "lr_schedule.min_lr_ratio", kPartOfRate},
      {"lr_decay_style", F | M, "lr_schedule.style", "\"inverse-square-root\" is \"inverse_sqrt\""},
      {"decay_style", F, "lr_schedule.style", ""},
      {"lr_scheduler_type", H, "lr_schedule.style",
       "\"constant_with_warmup\" is \"constant\", and \"warmup_stable_decay\" is \"wsd\""},
      {"decay_lr", N, "lr_schedule.style", "decay_lr = false is style = \"constant\""},
      {"lr_decay_iters", F | M | N, "lr_schedule.decay_iters", ""},
      {"decay_iterations", F, "lr_schedule.decay_iters", ""},
      {"lr_decay_samples", M, "lr_schedule.decay_iters", kSamples},
      {"lr_warmup_iters", F | M, "lr_schedule.warmup_iters", ""},
      {"warmup_iterations", F, "lr_schedule.warmup_iters", ""},
      {"warmup_steps", T | H, "lr_schedule.warmup_iters", ""},
      {"num_warmup_steps", H, "lr_schedule.warmup_iters", ""},
      {"lr_warmup_samples", M, "lr_schedule.warmup_iters", kSamples},
      {"lr_warmup_fraction", M, "lr_schedule.warmup_ratio", ""},
      {"lr_warmup_init", M, "lr_schedule.warmup_init", ""},
      {"lr_wsd_decay_style", M, "lr_schedule.wsd_decay_style", ""},
      {"lr_wsd_decay_iters", M, "lr_schedule.wsd_decay_fraction",
       "it is lr_wsd_decay_iters / decay_iters"},
      {"decay_ratio", T, "lr_schedule.wsd_decay_fraction", "it needs style = \"wsd\""},
      {"decay_type", T, "lr_schedule.wsd_decay_style",
       "it needs style = \"wsd\"; \"sqrt\" is \"minus_sqrt\""},

      // Devices, and what they divide.
      {"zero_stage", F, "distributed.strategy", "zero_stage = 2 is strategy = \"zero2\""},
      {"deepspeed", H, "distributed.strategy", "stage 2 of DeepSpeed is strategy = \"zero2\""},
      {"fsdp", H, "distributed.strategy",
       "\"full_shard\" is strategy = \"zero3\", and \"shard_grad_op\" is \"zero2\""},
      {"sharding_strategy", O, "distributed.strategy",
       "FULL_SHARD is \"zero3\", SHARD_GRAD_OP is \"zero2\", and HYBRID_SHARD is \"hybrid_shard\""},
      {"use_distributed_optimizer", M, "distributed.strategy",
       "strategy = \"zero1\", the default, does the same"},
      {"overlap_grad_reduce", M, "distributed.overlap",
       "overlap = \"yes\" does this, and overlap_param_gather, too"},
      {"overlap_param_gather", M, "distributed.overlap",
       "overlap = \"gathers\" does this alone, and \"yes\" does overlap_grad_reduce, too"},
      {"data_parallel_shard_degree", T, "distributed.shard_group",
       "strategy says what the devices of a group divide"},
      {"data_parallel_replicate_degree", T, "distributed.shard_group",
       "the degree is the number of devices / shard_group"},
      {"fsdp_reshard_after_forward", T, "distributed.reshard_after_forward",
       "\"always\" is \"yes\", \"never\" is \"no\", and \"default\" is \"auto\""},
      {"tensor_parallel", F, "", kTensorParallel},
      {"tensor_parallel_degree", T, "", kTensorParallel},
      {"tensor_parallel_size", O, "", kTensorParallel},
      {"tensor_model_parallel_size", M, "", kTensorParallel},
      {"pipeline_parallel", F, "", kPipelineParallel},
      {"pipeline_parallel_degree", T, "", kPipelineParallel},
      {"pipeline_model_parallel_size", M, "", kPipelineParallel},
      {"sequence_parallel", M, "", kSequenceParallel},
      {"sequence_data_parallel", F, "", kSequenceParallel},
      {"sequence_tensor_parallel", F, "", kSequenceParallel},
      {"context_parallel_size", M, "", kSequenceParallel},
      {"context_parallel_degree", T, "", kSequenceParallel},
      {"expert_parallel_degree", T, "distributed.expert_parallel", ""},
      {"expert_model_parallel_size", M, "distributed.expert_parallel", ""},
      {"num_nodes", O, "distributed.nodes", ""},
      {"nnodes", O, "distributed.nodes", ""},
      {"nproc_per_node", O, "distributed.devices_per_node", ""},
      {"gpus_per_node", O, "distributed.devices_per_node", ""},
      {"world_size", O, "",
       "lmc has no such key: the job has distributed.nodes x distributed.devices_per_node devices"},
      {"backend", N, "", kBackend},
      {"distributed_backend", M, "", kBackend},
      {"distributed_timeout_minutes", M, "", kTimeout},
      {"ddp_timeout", H, "", kTimeout},

      // Memory, compilation and kernels.
      {"mlp_recompute_level", F, "memory.recompute",
       "\"activation\" and \"full\" are the same words, and \"none\" is \"keep-all\""},
      {"recompute_granularity", M, "memory.recompute",
       "\"full\" is recompute = \"block\", which recomputes whole layers"},
      {"recompute_num_layers", M, "memory.recompute_stride",
       "it has another meaning: with recompute = \"block\", every n-th layer is recomputed"},
      {"gradient_checkpointing", H, "memory.recompute",
       "gradient_checkpointing = true is recompute = \"block\"; \"auto\" recomputes only what the "
       "budget needs"},
      {"fsdp_activation_checkpointing", O, "memory.recompute",
       "recompute = \"block\" recomputes whole layers"},
      {"activation_checkpoint.mode", T, "memory.recompute",
       "\"full\" is recompute = \"block\", which recomputes whole layers"},
      {"selective_ac_option", T, "memory.recompute_stride",
       "\"2\" is recompute_stride = 2 with recompute = \"block\""},
      {"enable_cpu_offload", T, "", "lmc has no offload: weights and moments stay on the devices"},
      {"compile", T | N, "", kCompile},
      {"torch_compile", H, "", kCompile},
      {"use_flash_attn", M, "", kAttention},
      {"use_flash_attention", F, "", kAttention},
      {"attention_backend", M, "", kAttention},
      {"attn_implementation", H, "", kAttention},

      // The model.
      {"model_type", H, "model.architecture", ""},
      {"model.name", T, "model.architecture", ""},
      {"flavor", T, "",
       "lmc has no such key: [model] has the sizes, and model.config may name a config.json"},
      {"model_name_or_path", H, "model.config",
       "it names a config.json; `lmc-run --init=PATH` reads initial weights"},
      {"num_layers", F | M, "model.num_hidden_layers", ""},
      {"n_layers", T | O, "model.num_hidden_layers", ""},
      {"n_heads", T | O, "model.num_attention_heads", ""},
      {"n_kv_heads", T | O, "model.num_key_value_heads", ""},
      {"num_query_groups", M, "model.num_key_value_heads", ""},
      {"head_groups", F, "model.num_key_value_heads", ""},
      {"group_query_attention", M, "model.num_key_value_heads",
       "it is a number, that of num_query_groups"},
      {"kv_channels", F | M, "model.head_dim", ""},
      {"dim", T | O, "model.hidden_size", ""},
      {"d_model", O, "model.hidden_size", ""},
      {"ffn_hidden_size", F | M, "model.intermediate_size", ""},
      {"ffn_dim_multiplier", T | O, "model.intermediate_size", "it is the width itself"},
      {"multiple_of", T | O, "model.intermediate_size", "it is the width itself, already rounded"},
      {"norm_eps", T | O, "model.rms_norm_eps", kNorm},
      {"norm_epsilon", M, "model.rms_norm_eps", kNorm},
      {"layernorm_epsilon", M, "model.rms_norm_eps", kNorm},
      {"normalization.epsilon", F, "model.rms_norm_eps", kNorm},
      {"rotary_base", M, "model.rope_theta", ""},
      {"rotary.theta", F, "model.rope_theta", ""},
      {"rotary.type", F, "model.rope_scaling.rope_type", ""},
      {"rotary_embedding_scale", F, "model.rope_theta",
       "rope_theta is exp(-rotary_embedding_scale)"},
      {"window_size", F | M, "model.sliding_window", ""},
      {"init_method_std", F | M, "model.initializer_range", "it needs initializer = \"normal\""},
      {"tie_embeddings", O, "model.tie_word_embeddings", ""},
      {"untie_embeddings_and_output_weights", M, "model.tie_word_embeddings",
       "the meaning is opposite: tie_word_embeddings = false, the default, unties them"},
      {"disable_bias_linear", M, "model.attention_bias",
       "the meaning is opposite, and false is the default; model.mlp_bias is that of the MLP"},
      {"add_linear_biases", F, "model.attention_bias", "model.mlp_bias is that of the MLP"},
      {"add_qkv_bias", M, "", "lmc has no such key: architecture = \"qwen2\" has these biases"},
      {"bias", N, "", "lmc has no such key: architecture = \"gpt2\" always has biases"},
      {"position_embedding_type", M, "", kFamily},
      {"use_rotary_embeddings", F, "", kFamily},
      {"normalization", M, "", kFamily},
      {"normalization_type", F, "", kFamily},
      {"normalization.type", F, "", kFamily},
      {"swiglu", M, "", kFamily},
      {"gated", F, "", kFamily},
      {"activation_type", F, "", kFamily},
      {"hidden_act", H, "", kFamily},
      {"activation_function", H, "", kFamily},
      {"dropout", N, "", kDropout},
      {"hidden_dropout", F | M, "", kDropout},
      {"attention_dropout", F | M | H, "", kDropout},
      {"num_experts_per_token", F, "model.num_experts_per_tok", ""},
      {"moe_router_topk", M, "model.num_experts_per_tok", ""},
      {"moe_ffn_hidden_size", M, "model.moe_intermediate_size", ""},
      {"moe_aux_loss_coeff", M, "model.router_aux_loss_coef", ""},
      {"moe_router_topk_scaling_factor", M, "model.routed_scaling_factor", ""},
      {"moe_router_bias_update_rate", M, "optimizer.router_bias_update_speed", ""},
      {"moe_expert_capacity_factor", M, "",
       "lmc has no such key: no token is dropped, whatever the router chooses"},

      // Data.
      {"data_path", F | M, "data.train", "it also reads Megatron's .bin and .idx (data.format)"},
      {"train_data_path", M, "data.train", "it also reads Megatron's .bin and .idx (data.format)"},
      {"valid_data_path", M, "data.validation", ""},
      {"dataset", T | N, "data.train", kTokenFiles},
      {"dataset_path", T, "data.train", kTokenFiles},
      {"split", F | M, "data.validation",
       "it names token files: `lmc-data pack --validation=FILE` divides a text"},
      {"tokenizer", O, "", kTokenizer},
      {"tokenizer_type", M, "", kTokenizer},
      {"tokenizer_model", M, "", kTokenizer},
      {"tokenizer_path", T, "", kTokenizer},
      {"hf_assets_path", T, "", kTokenizer},
      {"vocab_file", M, "", kTokenizer},
      {"merge_file", M, "", kTokenizer},
      {"dataloader_num_workers", H, "data.num_workers", ""},
      {"data_seed", H, "training.seed", "it is the seed of initial weights, too"},
      {"cross_document_attention", F, "training.document_mask", "the meaning is opposite"},

      // Monitoring.
      {"logging_steps", H, "monitoring.log_interval", ""},
      {"log_freq", T, "monitoring.log_interval", ""},
      {"logs.interval", F, "monitoring.log_interval", ""},
      {"eval_interval", M | N, "monitoring.validation_interval", ""},
      {"eval_steps", H, "monitoring.validation_interval", "it is in steps, never a fraction"},
      {"eval_strategy", H, "monitoring.validation_interval", "it is in steps"},
      {"validation.interval", F, "monitoring.validation_interval", ""},
      {"eval_iters", M | N, "monitoring.validation_iters", "it is in global batches"},
      {"validation.iterations", F, "monitoring.validation_iters", ""},
      {"eval_only", N, "", "lmc has no such key: `lmc-run --eval` only validates"},
      {"logging_dir", H, "monitoring.tensorboard", kTensorBoard},
      {"tensorboard_dir", M, "monitoring.tensorboard", kTensorBoard},
      {"enable_tensorboard", T, "monitoring.tensorboard", ""},
      {"report_to", H, "monitoring.tensorboard",
       "tensorboard = true is \"tensorboard\"; monitoring.wandb_project is for \"wandb\""},
      {"wandb_log", N, "monitoring.wandb_project", kWandb},
      {"enable_wandb", T, "monitoring.wandb_project", kWandb},
      {"wandb_project_name", F, "monitoring.wandb_project", ""},
      {"wandb_entity_name", F, "monitoring.wandb_entity", ""},
      {"wandb_group_name", F, "monitoring.wandb_group", ""},
      {"wandb.project_name", F, "monitoring.wandb_project", ""},
      {"wandb.entity_name", F, "monitoring.wandb_entity", ""},
      {"wandb.group_name", F, "monitoring.wandb_group", ""},
      {"wandb_exp_name", M, "monitoring.wandb_name", ""},
      {"wandb_run_name", N, "monitoring.wandb_name", ""},
      {"run_name", H, "monitoring.wandb_name", ""},
      {"profile", M, "", kTrace},
      {"enable_profiling", T, "", kTrace},

      // Names for checkpoints, and for the folder of the run.
      {"checkpoint_interval", F, "checkpoint.interval", ""},
      {"save_interval", M, "checkpoint.interval", ""},
      {"save_steps", H, "checkpoint.interval", "it is in steps, never a fraction"},
      {"save_strategy", H, "checkpoint.interval", "it is in steps"},
      {"always_save_checkpoint", N, "checkpoint.interval", "it is in steps"},
      {"enable_checkpoint", T, "checkpoint.interval", "interval = 0 saves only at the end"},
      {"max_checkpoints", F, "checkpoint.keep", ""},
      {"save_total_limit", H, "checkpoint.keep", ""},
      {"keep_latest_k", T, "checkpoint.keep", ""},
      {"export.interval", F, "checkpoint.export_interval", ""},
      {"async_save", M, "checkpoint.background", ""},
      {"async_mode", T, "checkpoint.background", "it is true or false"},
      {"load_best_model_at_end", H, "checkpoint.keep_best", kBestCheckpoint},
      {"metric_for_best_model", H, "checkpoint.keep_best", kBestCheckpoint},
      {"output_dir", H, "", kOut},
      {"out_dir", N, "", kOut},
      {"experiment_dir", F, "", kOut},
      {"experiment_name", F, "", kOut},
      {"dump_folder", T, "", kOut},
      {"checkpoint.folder", T, "", kOut},
      {"save", M, "", kOut},
      {"load", M, "", kResume},
      {"load_step", T, "", kResume},
      {"resume_from_checkpoint", H, "", kResume},
      {"init_from", N, "", kInit},
      {"initial_load_path", T, "", kInit},
      {"pretrained_checkpoint_path", F, "", kInit},
  });
  return table;
}

std::span<const ForeignSection> foreignSections() {
  static constexpr auto table = std::to_array<ForeignSection>({
      {"activation_checkpoint", "lmc's section is [memory]"},
      {"base_model", kModelSection},
      {"batch", "lmc's section is [training]"},
      {"checkpointing", kCheckpointSection},
      {"comm", kDistributedSection},
      {"evaluations", kMonitoringSection},
      {"evaluators", kMonitoringSection},
      {"export", kCheckpointSection},
      {"fsdp_config", kDistributedSection},
      {"job", kOut},
      {"learning_rate", "lmc's section is [lr_schedule]"},
      {"logs", kMonitoringSection},
      {"lr_scheduler", "lmc's section is [lr_schedule]"},
      {"metrics", kMonitoringSection},
      {"multi_stage", kDistributedSection},
      {"normalization", kModelSection},
      {"parallelism", kDistributedSection},
      {"pretrained", kInit},
      {"profiling", kTrace},
      {"rotary", kModelSection},
      {"run", kOut},
      {"trainer", "lmc's section is [training]"},
      {"training.checkpoint", kCheckpointSection},
      {"training.validation", kMonitoringSection},
      {"transformer", kModelSection},
      {"wandb", kMonitoringSection},
  });
  return table;
}

const ForeignKey *findForeignKey(std::string_view section, std::string_view name, bool ofSection) {
  std::string form = inTableForm(name);
  if (ofSection)
    form = inTableForm(section.substr(section.rfind('.') + 1)) + "." + form;
  for (const ForeignKey &key : foreignKeys())
    if (key.name == form)
      return &key;
  return nullptr;
}

const ForeignSection *findForeignSection(std::string_view section) {
  const std::string whole = inTableForm(section);
  const std::string last = whole.substr(whole.rfind('.') + 1);
  for (const std::string_view form : {std::string_view(whole), std::string_view(last)})
    for (const ForeignSection &candidate : foreignSections())
      if (candidate.name == form)
        return &candidate;
  return nullptr;
}

std::string foreignHint(const ForeignKey &key) {
  if (!*key.key)
    return key.remark;
  return fmt::format("lmc's key is {}{}{}", key.key, *key.remark ? ": " : "", key.remark);
}

} // namespace lmc::config

#include "ground/config/help/ForeignNames.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <utility>
#include <vector>

namespace lmc::config {
namespace {

constexpr const char *kSamples = "it counts steps: divide the samples by training.batch_size";
constexpr const char *kOut = "lmc has no such key: `lmc-run --out=DIR` names the folder of a run";
constexpr const char *kInit = "lmc has no such key: `lmc-run --init=PATH` reads initial weights";
constexpr const char *kTrace = "lmc has no such key: `lmc-run --trace=FILE` records a trace";

// One letter for each program, in the order of ForeignProgram.
constexpr std::string_view kPrograms = "FMTHNO";

// The names of several programs for one key.
struct Row {
  const char *key;   // as in ForeignKey
  const char *names; // each name follows the letters of its programs: "M:seq_length TO:max_seq_len"
  const char *remark = "";
};

constexpr Row kRows[] = {
    // Batch, length and steps.
    {"training.batch_size", "MT:global_batch_size O:train_batch_size"},
    {"training.micro_batch_size", "H:per_device_train_batch_size T:local_batch_size",
     "training.batch_size counts the sequences of a step over all devices and micro-steps"},
    {"", "H:per_device_eval_batch_size",
     "lmc has no such key: validation uses the batches of training"},
    {"", "HN:gradient_accumulation_steps F:depth_first_micro_batches",
     "lmc computes the number of accumulation steps: training.batch_size / "
     "(training.micro_batch_size x devices)"},
    {"", "M:rampup_batch_size",
     "lmc has no such key: [[phase]] tables with growing batch_size are a batch ramp-up"},
    {"training.sequence_length", "M:seq_length T:seq_len TO:max_seq_len N:block_size"},
    {"training.train_iters", "T:steps H:max_steps N:max_iters"},
    {"training.train_iters", "M:train_samples", kSamples},
    {"", "H:num_train_epochs",
     "lmc counts no epochs: training.train_iters is in steps, and training.train_tokens in tokens"},
    {"", "M:exit_interval", "lmc has no such key: `lmc-run --steps=N` ends a run at a step"},
    {"", "M:exit_duration_in_mins",
     "lmc has no such key: `lmc-run --max-hours=TIME` ends a run in time"},

    // Precision.
    {"training.compute_dtype", "F:training_dtype TN:dtype H:torch_dtype"},
    {"training.compute_dtype", "M:params_dtype", "master weights stay in f32 with \"bf16\""},
    {"training.compute_dtype", "T:mixed_precision_param"},
    {"distributed.reduce_dtype", "T:mixed_precision_reduce"},
    {"training.compute_dtype", "MH:bf16", "bf16 = true is compute_dtype = \"bf16\", the default"},
    {"", "MH:fp16",
     "lmc does not compute in fp16: training.compute_dtype is \"bf16\", \"f32\" or \"f64\""},
    {"training.fp8", "M:fp8_format M:fp8_recipe",
     "fp8_format = \"hybrid\" with fp8_recipe = \"tensorwise\" is fp8 = \"tensor\"; "
     "\"e4m3\" with \"blockwise\" is \"block\"; lmc has no other recipe"},
    {"training.fp8_filter", "M:first_last_layers_bf16",
     "name the layers: fp8_filter = [\"model.layers.0.*\"]"},
    {"training.fp8_filter", "T:filter_fqns",
     "patterns of whole names, with `*`: \"*.o_proj.weight\" stands for \"attention.wo\""},
    {"", "H:tf32", "lmc does not use TF32: products in f32 are computed in f32"},
    {"distributed.reduce_dtype", "M:accumulate_allreduce_grads_in_fp32",
     "gradients travel in f32 by default, and sums over micro-steps are always in f32"},

    // The optimizer.
    {"optimizer.type", "H:optim",
     "\"adamw_torch\" is type = \"adamw\", and \"adamw_bnb_8bit\" is type = \"adamw8bit\""},
    {"optimizer.type", "M:optimizer", "optimizer = \"adam\" is type = \"adamw\""},
    {"optimizer.type", "T:optimizer.name"},
    {"optimizer.beta1", "FMH:adam_beta1"},
    {"optimizer.beta2", "FMH:adam_beta2"},
    {"optimizer.beta1", "F:beta_1"},
    {"optimizer.beta2", "F:beta_2"},
    {"optimizer.eps", "M:adam_eps H:adam_epsilon F:optimizer.epsilon"},
    {"optimizer.clip_grad",
     "H:max_grad_norm T:max_norm N:grad_clip O:gradient_clipping F:gradient_norm_clipping"},

    // The learning rate.
    {"lr_schedule.lr", "HN:learning_rate F:learning_rate.base O:max_lr"},
    {"lr_schedule.min_lr", "F:learning_rate.minimum"},
    {"lr_schedule.min_lr_ratio", "T:lr_min T:min_lr_factor", "both are fractions of lr"},
    {"lr_schedule.style", "FM:lr_decay_style", "\"inverse-square-root\" is \"inverse_sqrt\""},
    {"lr_schedule.style", "F:decay_style"},
    {"lr_schedule.style", "H:lr_scheduler_type",
     "\"constant_with_warmup\" is \"constant\", and \"warmup_stable_decay\" is \"wsd\""},
    {"lr_schedule.style", "N:decay_lr", "decay_lr = false is style = \"constant\""},
    {"lr_schedule.decay_iters", "FMN:lr_decay_iters F:decay_iterations"},
    {"lr_schedule.decay_iters", "M:lr_decay_samples", kSamples},
    {"lr_schedule.warmup_iters",
     "FM:lr_warmup_iters F:warmup_iterations TH:warmup_steps H:num_warmup_steps"},
    {"lr_schedule.warmup_iters", "M:lr_warmup_samples", kSamples},
    {"lr_schedule.warmup_ratio", "M:lr_warmup_fraction"},
    {"lr_schedule.warmup_init", "M:lr_warmup_init"},
    {"lr_schedule.wsd_decay_style", "M:lr_wsd_decay_style"},
    {"lr_schedule.wsd_decay_fraction", "M:lr_wsd_decay_iters",
     "it is lr_wsd_decay_iters / decay_iters"},
    {"lr_schedule.wsd_decay_fraction", "T:decay_ratio", "it needs style = \"wsd\""},
    {"lr_schedule.wsd_decay_style", "T:decay_type",
     "it needs style = \"wsd\"; \"sqrt\" is \"minus_sqrt\""},

    // The keys that choose devices, and keys that divide the work among devices.
    {"distributed.strategy", "F:zero_stage", "zero_stage = 2 is strategy = \"zero2\""},
    {"distributed.strategy", "H:deepspeed", "stage 2 of DeepSpeed is strategy = \"zero2\""},
    {"distributed.strategy", "H:fsdp",
     "\"full_shard\" is strategy = \"zero3\", and \"shard_grad_op\" is \"zero2\""},
    {"distributed.strategy", "O:sharding_strategy",
     "FULL_SHARD is \"zero3\", SHARD_GRAD_OP is \"zero2\", and HYBRID_SHARD is \"hybrid_shard\""},
    {"distributed.strategy", "M:use_distributed_optimizer",
     "strategy = \"zero1\", the default, does the same"},
    {"distributed.overlap", "M:overlap_grad_reduce",
     "overlap = \"yes\" does this, and overlap_param_gather, too"},
    {"distributed.overlap", "M:overlap_param_gather",
     "overlap = \"gathers\" does this alone, and \"yes\" does overlap_grad_reduce, too"},
    {"distributed.shard_group", "T:data_parallel_shard_degree",
     "strategy says what the devices of a group divide"},
    {"distributed.shard_group", "T:data_parallel_replicate_degree",
     "the degree is the number of devices / shard_group"},
    {"distributed.reshard_after_forward", "T:fsdp_reshard_after_forward",
     "\"always\" is \"yes\", \"never\" is \"no\", and \"default\" is \"auto\""},
    {"",
     "F:tensor_parallel T:tensor_parallel_degree O:tensor_parallel_size "
     "M:tensor_model_parallel_size",
     "lmc has no tensor parallelism: each device computes whole layers, and distributed.strategy "
     "divides weights, gradients and optimizer state over the devices"},
    {"", "F:pipeline_parallel T:pipeline_parallel_degree M:pipeline_model_parallel_size",
     "lmc has no pipeline parallelism: each device computes all layers, and distributed.strategy "
     "divides weights, gradients and optimizer state over the devices"},
    {"",
     "M:sequence_parallel F:sequence_data_parallel F:sequence_tensor_parallel "
     "M:context_parallel_size T:context_parallel_degree",
     "lmc has no sequence or context parallelism: each device computes whole sequences, and "
     "memory.recompute saves memory of activations"},
    {"distributed.expert_parallel", "T:expert_parallel_degree M:expert_model_parallel_size"},
    {"distributed.nodes", "O:num_nodes O:nnodes"},
    {"distributed.devices_per_node", "O:nproc_per_node O:gpus_per_node"},
    {"", "O:world_size",
     "lmc has no such key: the job has distributed.nodes x distributed.devices_per_node devices"},
    {"", "N:backend M:distributed_backend",
     "lmc has no such key: `lmc-run --collectives` chooses how GPUs exchange data"},
    {"", "M:distributed_timeout_minutes H:ddp_timeout",
     "lmc has no such key: `lmc-run --hang-timeout` and `--slow-timeout` are in seconds"},

    // Memory, compilation and kernels.
    {"memory.recompute", "F:mlp_recompute_level",
     "\"activation\" and \"full\" are the same words, and \"none\" is \"keep-all\""},
    {"memory.recompute", "M:recompute_granularity",
     "\"full\" is recompute = \"block\", which recomputes whole layers"},
    {"memory.recompute_stride", "M:recompute_num_layers",
     "it has another meaning: with recompute = \"block\", every n-th layer is recomputed"},
    {"memory.recompute", "H:gradient_checkpointing",
     "gradient_checkpointing = true is recompute = \"block\"; \"auto\" recomputes only what the "
     "budget needs"},
    {"memory.recompute", "O:fsdp_activation_checkpointing",
     "recompute = \"block\" recomputes whole layers"},
    {"memory.recompute", "T:activation_checkpoint.mode",
     "\"full\" is recompute = \"block\", which recomputes whole layers"},
    {"memory.recompute_stride", "T:selective_ac_option",
     "\"2\" is recompute_stride = 2 with recompute = \"block\""},
    {"", "T:enable_cpu_offload", "lmc has no offload: weights and moments stay on the devices"},
    {"", "TN:compile H:torch_compile", "lmc has no such key: it compiles every job ahead of time"},
    {"", "M:use_flash_attn F:use_flash_attention M:attention_backend H:attn_implementation",
     "lmc has no such key: it generates the kernels of attention itself"},

    // The model.
    {"model.architecture", "H:model_type T:model.name"},
    {"", "T:flavor",
     "lmc has no such key: [model] has the sizes, and model.config may name a config.json"},
    {"model.config", "H:model_name_or_path",
     "it names a config.json; `lmc-run --init=PATH` reads initial weights"},
    {"model.num_hidden_layers", "FM:num_layers TO:n_layers"},
    {"model.num_attention_heads", "TO:n_heads"},
    {"model.num_key_value_heads", "TO:n_kv_heads M:num_query_groups F:head_groups"},
    {"model.num_key_value_heads", "M:group_query_attention",
     "it is a number, that of num_query_groups"},
    {"model.head_dim", "FM:kv_channels"},
    {"model.hidden_size", "TO:dim O:d_model"},
    {"model.intermediate_size", "FM:ffn_hidden_size"},
    {"model.intermediate_size", "TO:ffn_dim_multiplier", "it is the width itself"},
    {"model.intermediate_size", "TO:multiple_of", "it is the width itself, already rounded"},
    {"model.rms_norm_eps", "TO:norm_eps M:norm_epsilon M:layernorm_epsilon F:normalization.epsilon",
     "in gpt2 the key is model.layer_norm_epsilon"},
    {"model.rope_theta", "M:rotary_base F:rotary.theta"},
    {"model.rope_scaling.rope_type", "F:rotary.type"},
    {"model.rope_theta", "F:rotary_embedding_scale", "rope_theta is exp(-rotary_embedding_scale)"},
    {"model.sliding_window", "FM:window_size"},
    {"model.initializer_range", "FM:init_method_std", "it needs initializer = \"normal\""},
    {"model.tie_word_embeddings", "O:tie_embeddings"},
    {"model.tie_word_embeddings", "M:untie_embeddings_and_output_weights",
     "the meaning is opposite: tie_word_embeddings = false, the default, unties them"},
    {"model.attention_bias", "M:disable_bias_linear",
     "the meaning is opposite, and false is the default; model.mlp_bias is that of the MLP"},
    {"model.attention_bias", "F:add_linear_biases", "model.mlp_bias is that of the MLP"},
    {"", "M:add_qkv_bias", "lmc has no such key: architecture = \"qwen2\" has these biases"},
    {"", "N:bias", "lmc has no such key: architecture = \"gpt2\" always has biases"},
    {"",
     "M:position_embedding_type F:use_rotary_embeddings M:normalization F:normalization_type "
     "F:normalization.type M:swiglu F:gated F:activation_type H:hidden_act H:activation_function",
     "lmc has no such key: model.architecture decides this"},
    {"", "N:dropout FM:hidden_dropout FMH:attention_dropout", "lmc has no dropout"},
    {"model.num_experts_per_tok", "F:num_experts_per_token M:moe_router_topk"},
    {"model.moe_intermediate_size", "M:moe_ffn_hidden_size"},
    {"model.router_aux_loss_coef", "M:moe_aux_loss_coeff"},
    {"model.routed_scaling_factor", "M:moe_router_topk_scaling_factor"},
    {"optimizer.router_bias_update_speed", "M:moe_router_bias_update_rate"},
    {"", "M:moe_expert_capacity_factor",
     "lmc has no such key: no token is dropped, whatever the router chooses"},

    // Data.
    {"data.train", "FM:data_path M:train_data_path",
     "it also reads Megatron's .bin and .idx (data.format)"},
    {"data.validation", "M:valid_data_path"},
    {"data.train", "TN:dataset T:dataset_path",
     "it names token files, as `lmc-data pack` writes them"},
    {"data.validation", "FM:split",
     "it names token files: `lmc-data pack --validation=FILE` divides a text"},
    {"",
     "O:tokenizer M:tokenizer_type M:tokenizer_model T:tokenizer_path T:hf_assets_path "
     "M:vocab_file M:merge_file",
     "lmc has no tokenizer in a job: `lmc-data pack --tokenizer=PATH` turns text into token files"},
    {"data.num_workers", "H:dataloader_num_workers"},
    {"training.seed", "H:data_seed", "it is the seed of initial weights, too"},
    {"training.document_mask", "F:cross_document_attention", "the meaning is opposite"},

    // Monitoring.
    {"monitoring.log_interval", "H:logging_steps T:log_freq F:logs.interval"},
    {"monitoring.validation_interval", "MN:eval_interval"},
    {"monitoring.validation_interval", "H:eval_steps", "it is in steps, never a fraction"},
    {"monitoring.validation_interval", "H:eval_strategy", "it is in steps"},
    {"monitoring.validation_interval", "F:validation.interval"},
    {"monitoring.validation_iters", "MN:eval_iters", "it is in global batches"},
    {"monitoring.validation_iters", "F:validation.iterations"},
    {"", "N:eval_only", "lmc has no such key: `lmc-run --eval` only validates"},
    {"monitoring.tensorboard", "H:logging_dir M:tensorboard_dir",
     "it is true or false: the event files lie in the folder of the run"},
    {"monitoring.tensorboard", "T:enable_tensorboard"},
    {"monitoring.tensorboard", "H:report_to",
     "tensorboard = true is \"tensorboard\"; monitoring.wandb_project is for \"wandb\""},
    {"monitoring.wandb_project", "N:wandb_log T:enable_wandb",
     "the name of a project switches Weights & Biases on"},
    {"monitoring.wandb_project", "F:wandb_project_name"},
    {"monitoring.wandb_entity", "F:wandb_entity_name"},
    {"monitoring.wandb_group", "F:wandb_group_name"},
    {"monitoring.wandb_project", "F:wandb.project_name"},
    {"monitoring.wandb_entity", "F:wandb.entity_name"},
    {"monitoring.wandb_group", "F:wandb.group_name"},
    {"monitoring.wandb_name", "M:wandb_exp_name N:wandb_run_name H:run_name"},
    {"", "M:profile T:enable_profiling", kTrace},

    // Names for checkpoints, and for the folder of the run.
    {"checkpoint.interval", "F:checkpoint_interval M:save_interval"},
    {"checkpoint.interval", "H:save_steps", "it is in steps, never a fraction"},
    {"checkpoint.interval", "H:save_strategy N:always_save_checkpoint", "it is in steps"},
    {"checkpoint.interval", "T:enable_checkpoint", "interval = 0 saves only at the end"},
    {"checkpoint.keep", "F:max_checkpoints H:save_total_limit T:keep_latest_k"},
    {"checkpoint.export_interval", "F:export.interval"},
    {"checkpoint.background", "M:async_save"},
    {"checkpoint.background", "T:async_mode", "it is true or false"},
    {"checkpoint.keep_best", "H:load_best_model_at_end H:metric_for_best_model",
     "keep_best = \"data.validation\" keeps the checkpoint with the lowest validation loss"},
    {"",
     "H:output_dir N:out_dir F:experiment_dir F:experiment_name T:dump_folder T:checkpoint.folder "
     "M:save",
     kOut},
    {"", "M:load T:load_step H:resume_from_checkpoint",
     "lmc has no such key: `lmc-run` goes on with the run in its folder by itself, and "
     "`--resume=PATH` names another checkpoint"},
    {"", "N:init_from T:initial_load_path F:pretrained_checkpoint_path", kInit},
};

// Pairs of a remark and the names of the sections to which it applies.
constexpr std::pair<const char *, const char *> kSectionRows[] = {
    {"lmc's section is [model]", "base_model normalization rotary transformer"},
    {"lmc's section is [training]", "batch trainer"},
    {"lmc's section is [lr_schedule]", "learning_rate lr_scheduler"},
    {"lmc's section is [memory]", "activation_checkpoint"},
    {"lmc's section is [distributed]", "comm fsdp_config multi_stage parallelism"},
    {"lmc's section is [checkpoint]", "checkpointing export training.checkpoint"},
    {"lmc's section is [monitoring]",
     "evaluations evaluators logs metrics training.validation wandb"},
    {kOut, "job run"},
    {kInit, "pretrained"},
    {kTrace, "profiling"},
};

// Returns the name in the form of the tables: lower case, '_' for '-', no dashes at the front.
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
  static const std::vector<ForeignKey> keys = [] {
    std::vector<ForeignKey> keys;
    for (const Row &row : kRows) {
      std::istringstream words(row.names);
      for (std::string word; words >> word;) {
        const size_t colon = word.find(':');
        keys.push_back({word.substr(colon + 1), 0, row.key, row.remark});
        for (const char program : word.substr(0, colon))
          keys.back().programs |= 1u << kPrograms.find(program);
      }
    }
    return keys;
  }();
  return keys;
}

std::span<const ForeignSection> foreignSections() {
  static const std::vector<ForeignSection> sections = [] {
    std::vector<ForeignSection> sections;
    for (const auto &[remark, names] : kSectionRows) {
      std::istringstream words(names);
      for (std::string name; words >> name;)
        sections.push_back({name, remark});
    }
    return sections;
  }();
  return sections;
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

// The configuration of a training job: its TOML file, parsed, completed with defaults, and checked.
//
// ground/config/keys has one table with all facts about each key. Parsing, the error messages and
// docs/config.md use that table. Fixed defaults are the initial values of the fields below.
#pragma once

#include "ground/settings/LrSettings.h"
#include "ground/settings/SettingTable.h"
#include "ground/support/Result.h"

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace lmc {

struct ModelFamily; // ground/config/ModelFamily.h
// The model families that a job can name. The first is the default.
using ModelFamilies = std::vector<const ModelFamily *>;

enum class DataType { F32, BF16, F64 };

constexpr int64_t elementBytes(DataType type) {
  return type == DataType::F64 ? 8 : type == DataType::F32 ? 4 : 2;
}

enum class RecomputeMode { None, Activation, Full, Block, Auto, KeepAll };
enum class ShardingStrategy { NoShard, Zero1, Zero2, Zero3, HybridShard, HybridShardZero2 };
enum class RopeScalingType { None, Linear, Llama3, Dynamic, Yarn };

// RoPE scaling. The field names are those of Hugging Face's config.json.
struct RopeScaling {
  RopeScalingType type = RopeScalingType::None;
  double factor = 1.0;
  double lowFreqFactor = 1.0;                // used by llama3
  double highFreqFactor = 4.0;               // used by llama3
  int64_t originalMaxPositionEmbeddings = 0; // default: max_position_embeddings
  double attentionFactor = 0.0;              // for yarn; 0: 0.1 ln(factor) + 1, as in YaRN's paper
  double betaFast = 32.0, betaSlow = 1.0;    // used by yarn
  bool operator==(const RopeScaling &) const = default;
};

// The value of a key that only some families have.
using FamilyValue = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>>;

struct ModelConfig {
  std::string config;                 // path of a Hugging Face config.json to start from; "": none
  std::string architecture;           // name of a ModelFamily
  const ModelFamily *family = nullptr; // the family with this name
  int64_t vocabSize = 0;
  int64_t hiddenSize = 0;
  int64_t intermediateSize = 0;
  int64_t numHiddenLayers = 0;
  int64_t numAttentionHeads = 0;
  int64_t numKeyValueHeads = 0;       // default: numAttentionHeads
  int64_t headDim = 0;                // default: hiddenSize / numAttentionHeads
  int64_t maxPositionEmbeddings = 0;  // default: sequence_length
  double ropeTheta = 10000.0;
  RopeScaling ropeScaling;
  double rmsNormEps = 1e-5;
  bool tieWordEmbeddings = false;
  bool attentionBias = false;
  bool mlpBias = false;
  bool embeddingNorm = false;     // a norm follows the embedding
  int64_t slidingWindow = 0;      // 0: no window
  double initializerRange = 0.02; // standard deviation of the initial embedding
  std::string initializer = "fan_in"; // fan_in | normal: scale of initial linear weights
  // The values of the keys that only some families have, by key name. T is the type of the value.
  std::map<std::string, FamilyValue> familyValues;
  template <typename T> const T &familyValue(const std::string &name) const {
    return std::get<T>(familyValues.at(name));
  }
  bool operator==(const ModelConfig &) const = default;
};

struct TrainingConfig {
  int64_t sequenceLength = 0;
  int64_t batchSize = 0;              // GBS: sequences per optimizer step, all devices
  int64_t microBatchSize = 0;         // MBS: sequences per device and micro-step
  bool microBatchAuto = false;        // true for "auto": the compiler chooses microBatchSize
  int64_t gradientAccumulationSteps = 0; // GAS, computed from other keys
  int64_t trainIters = 0;                // default: steps for trainTokens, or of all phases
  int64_t trainTokens = 0;               // 0: not given
  DataType computeDType = DataType::BF16;
  std::string fp8 = "none"; // how linear layers multiply 8-bit floats: "none", "tensor", "block"
  std::vector<std::string> fp8Filter; // patterns of weights that stay in the compute dtype
  bool documentMask = false; // tokens attend only to their own document
  bool documentPositions = false; // positions restart at each document
  bool documentLossMask = false;  // the last token of a document has no loss
  double zLoss = 0;               // factor of logsumexp(logits)^2, only in gradients; 0: no z-loss
  uint64_t seed = 0;
  bool operator==(const TrainingConfig &) const = default;
};

// A table [[optimizer.group]].
struct ParameterGroup {
  std::string name;
  std::vector<std::string> parameters; // patterns (ParameterGroups.h)
  double weightDecay = 0;              // default: optimizer.weight_decay
  // True if the table sets weight_decay. It then also applies to the group's norms and biases.
  bool ownDecay = false;
  double lrMult = 1;     // factor of the scheduled learning rate
  int64_t optimBits = 0; // bits of moments: 8 or 32; default: 8 if adamw8bit, else 32
  bool operator==(const ParameterGroup &) const = default;
};

struct OptimizerConfig {
  std::string type = "adamw";
  double weightDecay = 0.1, beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
  // Of type "muon".
  double muonLr = 0;          // peak learning rate of Muon's matrices; 0: lr_schedule.lr
  double muonMomentum = 0.95; // decay of the momentum
  bool muonNesterov = true;   // true: the direction is the momentum, updated again by the gradient
  int64_t muonNsSteps = 5;    // steps of Newton-Schulz
  double muonNsA = 3.4445, muonNsB = -4.775, muonNsC = 2.0315; // coefficients of Newton-Schulz
  double muonEps = 1e-7;                          // smallest norm by which a direction is divided
  std::string muonAdjustLrFn = "match_rms_adamw"; // match_rms_adamw | original | spectral_unclamped
  std::string muonNsDType = "bf16";               // bf16 | f32: dtype of Newton-Schulz iterations
  std::string muonOwners = "auto";      // auto | yes | no: one rank per matrix orthogonalizes it
  double routerBiasUpdateSpeed = 0.001; // change of a router's bias per step (lm.balance_bias)
  double clipGrad = 1.0;                // maximum L2 norm of all gradients; 0: no clipping
  bool decayNormsAndBiases = false;     // true: norm weights and biases get weight decay too
  std::map<std::string, ParameterGroup> groups; // by name
  bool operator==(const OptimizerConfig &) const = default;
};

struct MemoryConfig {
  uint64_t budget = 0; // maximum bytes of all arenas together; 0: what the device spec allows
  RecomputeMode recompute = RecomputeMode::None;
  int64_t recomputeStride = 1; // with recompute "block", every n-th layer is recomputed
  std::string store = "compute_dtype"; // dtype of what layers keep: "compute_dtype", "fp8"
  int64_t lossChunk = 0;       // tokens whose logits exist at a time; 0: the compiler chooses
  bool operator==(const MemoryConfig &) const = default;
};

struct DistributedConfig {
  // Special values of shardGroup. Any other value is a number of ranks.
  static constexpr int64_t kAutoGroup = 0, kNodeGroup = -1, kWorldGroup = -2;

  int64_t nodes = 1, devicesPerNode = 1;
  ShardingStrategy strategy = ShardingStrategy::Zero1;
  int64_t shardGroup = kAutoGroup; // number of ranks that divide the state among them
  std::string reduce = "auto";     // auto | each | last: micro-steps that reduce gradients
  std::string reduceDType = "f32"; // f32 | bf16 | f16: dtype of sent gradients (f64 in f64 models)
  std::string reshardAfterForward = "auto"; // auto | yes | no
  std::string overlap = "auto"; // auto | yes | gathers | no: collectives that overlap computation
  int64_t expertParallel = 1;   // ranks that divide the experts of a layer between them
  // Expert rows that a rank computes at a time, as a multiple of its rows at equal load; 0: all.
  double expertCapacity = 0;

  int64_t ranks() const { return nodes * devicesPerNode; }
  // A group of shardRanks() consecutive ranks divides the state. There are replicateRanks() groups.
  int64_t shardRanks() const;
  int64_t replicateRanks() const { return ranks() / shardRanks(); }
  bool dividesGradients() const;
  bool dividesWeights() const;
  // Returns true if the compiler may choose whether ranks sum gradients in each micro-step or only
  // in the last. Ranks must divide gradients: else a sum in each micro-step saves no memory.
  bool choosesReduce() const;
  bool operator==(const DistributedConfig &) const = default;
};

// A table [[data.source]].
struct SourceConfig {
  std::vector<std::string> paths;
  double weight = 1;
  double maxEpochs = 0; // 0: any number
};

struct DataConfig {
  std::vector<std::string> train, validation;
  std::map<std::string, SourceConfig> sources; // by name; empty: `train` has the data
  int64_t endOfDocument = -1;  // id of a document's last token, for files without a document table
  std::string format = "auto"; // auto | uint16 | uint32 | megatron
  int64_t shuffleBlock = 0;    // tokens; default: sequence_length
  std::string packing = "concatenate"; // concatenate | best_fit: how documents fill sequences
  bool allowRepeats = false;   // a global batch may hold a sequence more than once
  int64_t numWorkers = 2;      // threads that prepare batches
};

// A table [[phase]]: some consecutive steps of the run, and the keys that differ in them.
struct PhaseConfig {
  std::string name;
  int64_t steps = 0;  // computed if the phase gives `tokens` or `share`
  int64_t tokens = 0; // rounded up to whole steps; 0: not given
  double share = 0;   // fraction of training.train_tokens, or else of train_iters; 0: not given
  // The defaults are the values of [training]. A microBatchSize of 0 stands for "auto".
  int64_t sequenceLength = 0, batchSize = 0, microBatchSize = 0;
  std::vector<std::string> sources; // "NAME" or "NAME=WEIGHT"; empty: every source with its weight
  std::string lrStyle = "continue"; // as [lr_schedule].style; "continue": [lr_schedule] applies
  double lr = 0, minLr = 0;         // peak and last learning rate, unless lrStyle is "continue"
  int64_t warmupIters = 0;          // warm-up steps, unless lrStyle is "continue"
};

// A table [[validation]].
struct ValidationConfig {
  std::vector<std::string> paths;
  int64_t interval = 0; // steps between validations; default: monitoring.validation_interval
  int64_t iters = 0;    // global batches per validation; default: monitoring.validation_iters
};

struct CheckpointConfig {
  int64_t interval = 0;        // steps between checkpoints; 0: only at the end
  double intervalMinutes = 30; // replaces `interval`; the predicted step time converts it to steps
  int64_t keep = 5;            // number of newest checkpoints to keep; 0: all
  int64_t keepEvery = 0;       // every so many steps, a checkpoint is also made and kept; 0: none
  std::string keepBest;        // validation set whose best checkpoint is kept too; "": none
  bool saveBest = false;       // each new lowest loss of `keepBest` causes a checkpoint
  bool background = true;      // steps go on while checkpoints and exports are written
  int64_t exportInterval = 0;  // steps between Hugging Face exports; 0: none
  std::string exportCommand;   // shell command that is run for each export; "": none
};

struct MonitoringConfig {
  int64_t logInterval = 1;        // steps between lines on the console
  int64_t validationInterval = 0; // steps between validations; 0: only at the end
  int64_t validationIters = 10;   // global batches of a validation; 0: all of the data
  bool logits = false;            // a function that writes the logits is compiled too
  bool router = true;             // the plan sums statistics of the routers of experts
  bool tensorboard = false;       // TensorBoard's event files are written
  std::string prometheus;         // file for Prometheus's textfile collector; "": none
  std::string onEvent;            // shell command that is started for each event; "": none
  // Names of the run at Weights & Biases. Without a project, nothing is sent there.
  std::string wandbProject, wandbEntity, wandbGroup, wandbName;
};

// The prompts that the model continues every `interval` steps.
struct GenerationConfig {
  std::string prompts;       // file with the prompts; "": none
  int64_t interval = 1000;   // steps between generations; 0: only at the end
  int64_t maxNewTokens = 64; // maximum number of generated tokens per prompt
  double temperature = 0;    // divides the logits; 0: the most likely token is taken
  double topP = 1;           // tokens are drawn from the fewest whose probabilities reach this sum
};

// docs/running.md, "Spikes and divergence", defines "high", "spike" and "diverged".
struct GuardConfig {
  std::string action = "stop";   // stop | warn | off: reaction to a diverged loss
  std::string onSpike = "warn";  // warn | skip | rollback | stop: reaction to a spike
  int64_t rollbacks = 3;         // maximum number of times that a run goes back to a checkpoint
  int64_t refund = 1000;         // steps without a spike that reset the rollback count; 0: never
  std::string skipSteps;         // steps whose update is left out, "120,130-140"; "": none
  int64_t window = 100;          // steps that running deviations span; running means span window/10
  int64_t patience = 100;        // a loss that stays high for so many steps has diverged
  double spike = 6;              // loss or norm so many standard deviations above its mean is high
  double rise = 1;               // a loss so many nats above its lowest level is high
  // Warns if the mean loss of an eighth of all steps is not lower by this fraction than that of the
  // eighth before; 0: never.
  double plateau = 0.002;
  double validation = 0.2;       // warns of a validation loss so many nats above the lowest; 0: off
  int64_t compareWeights = 1000; // steps between comparisons of all copies of a weight; 0: none
  double updateRatio = 0.1; // warns if L2 norm of update / L2 norm of weights is above it; 0: never
  int64_t deadExpert = 100; // warns of an expert without a token in so many steps; 0: never
};

struct TargetConfig {
  std::string device = "cpu";         // name of a device: "cpu", "cuda:sm_90a"
  std::string cpu = "native";         // LLVM CPU name, "native", or "x86-64", "x86-64-v3", ...
  std::string spec;                   // name or path of the device spec; "": the one for `device`
  double peakTflops = 0;              // TFLOP/s of a device, for MFU; 0: from the device spec
  // Multiples to which the vocabulary and MLP sizes are padded with zeros; 0: the fastest multiple.
  int64_t vocabMultiple = 0, intermediateMultiple = 0;
  // Where later passes of a CUDA kernel find rows too long for its registers: "shared", "again" or
  // "alone" (compiler/targets/cuda/CudaKernel.h, LongRows, explains them); "": the fastest of them.
  std::string longRows;
  bool operator==(const TargetConfig &) const = default;
};

struct Config {
  ModelConfig model;
  TrainingConfig training;
  OptimizerConfig optimizer;
  LrKeys lrSchedule;
  MemoryConfig memory;
  DistributedConfig distributed;
  DataConfig data;
  std::map<std::string, ValidationConfig> validations; // by name; empty: `data.validation` is used
  CheckpointConfig checkpoint;
  MonitoringConfig monitoring;
  GenerationConfig generation;
  GuardConfig guard;
  TargetConfig target;
  std::deque<PhaseConfig> phases; // in the order of the file; empty: the run has no phases
  size_t phase = 0;               // index of the phase whose values `training` has
  // Return the group of parameters, or the phase, with this name; add it if there is none.
  ParameterGroup &groupNamed(const std::string &name);
  PhaseConfig &phaseNamed(const std::string &name);

  std::string path;               // path of the TOML file, as given
  std::string directory;          // absolute path; paths in settings are relative to it
  std::string text;               // contents of the TOML file
  std::vector<Setting> settings;  // all keys, in the order of the plan
  std::vector<std::string> warnings; // about requests that lmc does not fulfil, such as dropout
  // Warnings about settings. The plan does not store them: `lmc-run --set` may change settings.
  std::vector<std::string> settingWarnings;
};

// Returns an Error, "it must be ...", for a target.device that the compiler does not have.
using CheckDevice = std::function<Result<void>(const std::string &device)>;

// Returns the names of the parameters of a job's model.
using ListParameters = std::function<std::vector<std::string>(const Config &)>;

// Reads the job `path`, sets defaults, and checks every value and the rules between keys, such as
// "heads divide hidden". `overrides` are texts "section.key=VALUE", in order. Keys in the file
// override those of the config.json that `[model] config` names. The Error reports all mistakes
// together, each as a line "FILE:LINE:COLUMN: error: ...".
//
// `checkDevice` checks target.device, and `listParameters` gives the names that the patterns of
// [[optimizer.group]] must match. If one of the two is null, its check is left out.
//
// If the job has phases, [training] has the values of phase `phase` (from 0).
Result<Config> loadConfig(const std::string &path, const std::vector<std::string> &overrides,
                          const ModelFamilies &families, const CheckDevice &checkDevice = nullptr,
                          size_t phase = 0, const ListParameters &listParameters = nullptr);

// Returns the number of steps before phase `phase` (from 0).
int64_t stepsBefore(const Config &config, size_t phase);

// Sets the micro-batch size and keys that depend on it. `size` must divide batch size / devices.
void setMicroBatchSize(Config &config, int64_t size);

// Sets memory.loss_chunk to `tokens`, and updates `config.settings`.
void setLossChunk(Config &config, int64_t tokens);

// Returns the text of docs/config.md.
std::string configReference(const ModelFamilies &families);

// Returns a JSON Schema (draft-07) of a job's TOML file. It has the keys of all families.
std::string configSchema(const ModelFamilies &families);

// Returns the reason why no Hugging Face class computes the model, or "" if one does.
std::string notExportable(const ModelConfig &model);

// Returns the text of an exported config.json. Requires notExportable(config.model) == "".
std::string huggingFaceConfig(const Config &config);

} // namespace lmc

// A training job as described by its TOML file: parsed, with defaults, and checked.
//
// Everything known about a key (type, unit, range, choices, default, doc, whether `lmc-run --set`
// may change it) is in one place, compiler/config/Keys.cpp. That table drives parsing, the errors
// and docs/config.md. Fixed defaults are the initial values of the fields below.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace lmc {

struct ModelFamily; // compiler/config/ModelFamily.h
// The model families that a job can name. The first is the default.
using ModelFamilies = std::vector<const ModelFamily *>;

enum class DataType { F32, BF16, F64 };
enum class RecomputeMode { None, Activation, Full, Block, Auto, KeepAll };
enum class ShardingStrategy { Zero1, Zero2, Zero3, HybridShard };
enum class RopeScalingType { None, Linear, Llama3, Dynamic, Yarn };

// Field names are those of Hugging Face's config.json.
struct RopeScaling {
  RopeScalingType type = RopeScalingType::None;
  double factor = 1.0;
  double lowFreqFactor = 1.0;              // llama3
  double highFreqFactor = 4.0;             // llama3
  int64_t originalMaxPositionEmbeddings = 0; // default: max_position_embeddings
  double attentionFactor = 0.0;            // yarn; 0: the paper's 0.1 ln(factor) + 1
  double betaFast = 32.0, betaSlow = 1.0;  // yarn
};

struct ModelConfig {
  std::string config;                 // Hugging Face config.json to start from; "": none
  std::string architecture;           // name of a ModelFamily
  const ModelFamily *family = nullptr; // the one of that name
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
  int64_t slidingWindow = 0;          // 0: none
  double initializerRange = 0.02;     // embedding std
  std::string initializer = "fan_in"; // linear std: "fan_in" = 1/sqrt(fan_in), "normal" =
                                      // initializer_range. Residual projections are divided by
                                      // sqrt(2 * layers) in both.
  // Values of keys that a family has of its own, by name. T is the type of the key's row.
  std::map<std::string, std::variant<bool, int64_t, double, std::string>> familyValues;
  template <typename T> const T &familyValue(const std::string &name) const {
    return std::get<T>(familyValues.at(name));
  }
};

struct TrainingConfig {
  int64_t sequenceLength = 0;
  int64_t batchSize = 0;              // GBS: sequences per optimizer step, all devices
  int64_t microBatchSize = 0;         // MBS: sequences per device and micro-step
  bool microBatchAuto = false;        // "auto": the compile replaces microBatchSize
  int64_t gradientAccumulationSteps = 0; // GAS: derived
  int64_t trainIters = 0;
  DataType computeDType = DataType::BF16;
  bool documentMask = false;          // attention stays within a document
  uint64_t seed = 0;
};

struct OptimizerConfig {
  std::string type = "adamw";
  double weightDecay = 0.1, beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
  double clipGrad = 1.0;              // 0: no clipping
  bool decayNormsAndBiases = false;
};

struct LrScheduleConfig {
  std::string style = "cosine";       // constant | linear | cosine | wsd
  double lr = 3e-4;
  double minLr = 0;                   // default: lr / 10
  int64_t warmupIters = 0;
  int64_t decayIters = 0;             // step at which min_lr is reached; default train_iters
  double wsdDecayFraction = 0.2;      // wsd: last fraction of decay_iters, which decays
};

struct MemoryConfig {
  uint64_t budget = 0;                // bytes of planned peak; 0: what the device spec leaves
  RecomputeMode recompute = RecomputeMode::None;
  int64_t recomputeStride = 1;        // "block": every n-th layer
};

struct DistributedConfig {
  int64_t nodes = 1, devicesPerNode = 1;
  ShardingStrategy strategy = ShardingStrategy::Zero1;
};

struct DataConfig {
  std::vector<std::string> train, validation;
  int64_t endOfDocument = -1; // id, for files without a table of documents
  int64_t numWorkers = 2;
};

struct CheckpointConfig {
  int64_t interval = 0;               // steps; 0: only at the end
  int64_t keep = 5;                   // newest to keep; 0: all
  int64_t exportInterval = 0;         // Hugging Face exports; 0: only on request
};

struct MonitoringConfig {
  int64_t logInterval = 1, validationInterval = 0, validationIters = 10;
  bool logits = false;                // also compile a function that writes the logits
};

struct TargetConfig {
  std::string device = "cpu";         // of any target: "cpu", "cuda:sm_90a"
  std::string cpu = "native";         // LLVM CPU name, "native", or "x86-64", "x86-64-v3", ...
  std::string spec;                   // device spec: name or path; "": by device
  double peakTflops = 0;              // for MFU; 0: from the device's specification
};

// A key with its resolved value as canonical text. The plan lists all keys.
struct ResolvedSetting {
  enum class Type { Integer, Float, Boolean, String, StringList };
  std::string key; // "lr_schedule.lr"
  Type type = Type::String;
  std::string value;               // StringList: ""
  std::vector<std::string> values; // StringList
  double minimum = 0, maximum = 0; // numbers only, inclusive; may be infinite
  std::vector<std::string> choices; // String only; empty: any
  std::string doc;
  bool runTime = false;            // may be changed by lmc-run --set
};

struct Config {
  ModelConfig model;
  TrainingConfig training;
  OptimizerConfig optimizer;
  LrScheduleConfig lrSchedule;
  MemoryConfig memory;
  DistributedConfig distributed;
  DataConfig data;
  CheckpointConfig checkpoint;
  MonitoringConfig monitoring;
  TargetConfig target;

  std::string path;               // of the TOML file, as given
  std::string directory;          // absolute; relative paths of settings start here
  std::string text;               // contents of the TOML file
  std::vector<ResolvedSetting> settings;
};

struct ConfigError {
  // Complete lines "FILE:LINE:COLUMN: error: ...", one per mistake.
  std::string message;
};

// Returns "" if `device`, a job's target.device, is valid; otherwise what it must be: "it must be
// ...". The compiler's targets know the answer (compiler/kernels/Target.h).
using DeviceProblem = std::function<std::string(const std::string &device)>;

// Reads `path` as a job of one of `families`, applies `overrides` ("section.key=TOML value or bare
// word", in order), sets defaults, and checks every value and the rules that connect keys (heads
// divide hidden, KV heads divide heads, MBS x GAS x ranks = GBS, decay_iters <= train_iters ...).
// `[model] config = "config.json"` reads Hugging Face's file; keys in the TOML override it. On any
// mistake returns false and fills `error`; all mistakes of a file are reported together. Without
// `deviceProblem`, every target.device is accepted.
bool loadConfig(const std::string &path, const std::vector<std::string> &overrides,
                const ModelFamilies &families, Config &config, ConfigError &error,
                const DeviceProblem &deviceProblem = nullptr);

// Sets the micro-batch size, which must divide batch size / devices, and with it the gradient
// accumulation steps and the entries of `settings`.
void setMicroBatchSize(Config &config, int64_t size);

// Returns docs/config.md: every section and key with type, unit, range, default and doc.
std::string configReference(const ModelFamilies &families);

// Returns the model's Hugging Face config.json, for exported checkpoints.
std::string huggingFaceConfig(const Config &config);

} // namespace lmc

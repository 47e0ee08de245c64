// Whole optimizer steps of a CUDA plan, every kernel on the executor, beside the CPU's plan of
// the same job.
#include "test/simt/SimtDevice.h"

#include "compiler/driver/Compile.h"
#include "compiler/driver/Registration.h"
#include "compiler/kernels/KernelCache.h"
#include "runtime/device/Device.h"
#include "runtime/step/Functions.h"
#include "runtime/step/Initializer.h"
#include "runtime/step/Inputs.h"
#include "runtime/step/Scalars.h"
#include "test/ground/config/ShippedConfig.h"

#include "mlir/IR/MLIRContext.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <random>

using namespace lmc;
using plan::VariableKind;

namespace {

struct Job {
  const char *name;
  std::vector<std::string> settings;
  // Relative, in the L2 norm of a tensor: of the first step's gradients, and of what two steps of
  // AdamW changed: it goes by the signs of gradients at first, also of those that are nearly zero,
  // which bf16 does not settle.
  double gradients, updates;
};

void PrintTo(const Job &job, std::ostream *to) { *to << job.name; }

std::unique_ptr<PlanFile> planOf(const Job &job, const std::string &device) {
  mlir::DialectRegistry registry;
  registerDialects(registry);
  mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
  std::vector<std::string> settings = job.settings;
  for (const std::string &always :
       {std::string("distributed.nodes=1"), std::string("distributed.devices_per_node=1"),
        "target.device=" + device, std::string("training.batch_size=3"),
        std::string("training.micro_batch_size=1")})
    settings.push_back(always);
  const Config config = shippedConfig("test-tiny.toml", settings);
  CompileOptions options;
  options.kernelCache = codegen::KernelCache::defaultDirectory();
  auto compiled = compile(config, options, context);
  if (failed(compiled)) {
    ADD_FAILURE() << job.name << " does not compile for " << device;
    return nullptr;
  }
  auto plan = PlanFile::fromBytes(compiled->plan.data(), compiled->plan.size(), job.name);
  if (!plan) {
    ADD_FAILURE() << plan.error().message;
    return nullptr;
  }
  return std::move(*plan);
}

// Of variables, by name: the bytes as they are.
using State = std::map<std::string, std::string>;

// What steps leave behind.
struct Outcome {
  std::string failure;
  std::vector<double> losses, gradientNorms;
  State gradients;          // of the first step
  State before;             // parameters
  std::vector<State> after; // each step: parameters, their copies in bf16, moments and scales
};

// Of a step.
struct Settings {
  double lossScale = 1; // a multiple of the loss scale that a step has
  double normLimit = std::numeric_limits<double>::infinity();
};

class Trainer {
public:
  Trainer(const PlanFile &plan, Device &device) : plan(plan), device(device) {}

  Outcome run(const std::vector<Settings> &steps) {
    if (Result<void> done = tryRun(steps); !done)
      outcome.failure = done.error().message;
    return std::move(outcome);
  }

private:
  Result<void> tryRun(const std::vector<Settings> &steps) {
    LMC_TRY(device.load(plan));
    LMC_TRY(initializeVariables(plan, device, 7, [](const plan::Variable &) { return true; }));
    LMC_TRY(refreshCopies(plan, device));
    auto recorded = Functions::record(plan, device, nullptr, nullptr);
    LMC_TRY(recorded);
    functions = std::move(*recorded);
    auto openedInputs = Inputs::open(plan, device);
    LMC_TRY(openedInputs);
    inputs = std::move(*openedInputs);
    auto openedScalars = Scalars::open(plan, device);
    LMC_TRY(openedScalars);
    scalars = std::move(*openedScalars);
    LMC_TRY(read(outcome.before, VariableKind::Parameter));
    for (size_t i = 0; i < steps.size(); ++i) {
      LMC_TRY(runStep(int(i) + 1, steps[i].lossScale, steps[i].normLimit));
      if (i == 0)
        LMC_TRY(read(outcome.gradients, VariableKind::Gradient));
      State &after = outcome.after.emplace_back();
      for (VariableKind kind :
           {VariableKind::Parameter, VariableKind::ComputeCopy, VariableKind::Moment1,
            VariableKind::Moment2, VariableKind::Moment1Scale, VariableKind::Moment2Scale})
        LMC_TRY(read(after, kind));
    }
    return {};
  }

  Result<void> runStep(int step, double lossScale, double limit) {
    const plan::BatchInfo &batch = *plan->batch();
    const int64_t micro = int64_t(batch.gradient_accumulation_steps());
    const int64_t tokens = int64_t(batch.sequence_length() * batch.micro_batch_size());
    LMC_TRY(scalars->set("run.loss_scale", lossScale / double(tokens * micro)));
    const std::pair<const char *, double> values[] = {
        {"run.lr", 1e-2},          {"run.beta1", 0.9},
        {"run.beta2", 0.95},       {"run.eps", 1e-8},
        {"run.weight_decay", 0.1}, {"run.bias_correction1", 1 - std::pow(0.9, step)},
        {"run.clip_grad", 0.5},    {"run.bias_correction2", 1 - std::pow(0.95, step)},
        {"run.norm_limit", limit}, {"run.loss_limit", INFINITY}};
    for (auto [name, value] : values)
      LMC_TRY(scalars->set(name, value));
    for (auto [name, value] : {std::pair("run.muon_lr", 1e-2), std::pair("run.muon_momentum", 0.95),
                               std::pair("run.muon_eps", 1e-7)})
      if (plan.findVariable(name) >= 0)
        LMC_TRY(scalars->set(name, value));
    LMC_TRY(scalars->upload());
    for (int64_t i = 0; i < micro; ++i) {
      LMC_TRY(setBatch(tokens));
      LMC_TRY(functions->run(i == 0 ? "micro_first" : i + 1 == micro ? "micro_last" : "micro"));
    }
    LMC_TRY(functions->run("optimizer"));
    LMC_TRY(scalars->request());
    auto results = scalars->take();
    LMC_TRY(results);
    outcome.losses.push_back(results->at("run.loss"));
    outcome.gradientNorms.push_back(results->at("run.grad_norm"));
    return {};
  }

  // Each word twice or so, some without a loss; documents of some ten tokens.
  Result<void> setBatch(int64_t tokens) {
    const uint32_t words = uint32_t(plan->model()->vocab_size());
    const int64_t length = int64_t(plan->batch()->sequence_length());
    std::vector<int32_t> ids(tokens), targets(tokens), starts(tokens);
    for (int64_t i = 0; i < tokens; ++i) {
      const bool begins = i % length == 0 || generator() % 10 == 0;
      starts[i] = begins ? int32_t(i % length) : starts[i - 1];
      ids[i] = int32_t(generator() % words);
      targets[i] = generator() % 8 ? int32_t(generator() % words) : -1;
    }
    return inputs->upload(ids.data(), targets.data(), starts.data());
  }

  Result<void> read(State &into, VariableKind kind) {
    for (const auto *variable : *plan->variables()) {
      if (variable->kind() != kind)
        continue;
      std::string bytes(plan->slices()->Get(variable->slice())->bytes(), 0);
      LMC_TRY(device.copyOut(int(variable->slice()), bytes.data(), bytes.size(), 0));
      into[variable->name()->str()] = bytes;
    }
    return {};
  }

  const PlanFile &plan;
  Device &device;
  std::unique_ptr<Functions> functions;
  std::unique_ptr<Inputs> inputs;
  std::unique_ptr<Scalars> scalars;
  std::mt19937 generator{3};
  Outcome outcome;
};

Outcome train(const PlanFile &plan, std::unique_ptr<Device> device,
              const std::vector<Settings> &steps = {{}, {}}) {
  return Trainer(plan, *device).run(steps);
}

std::vector<float> floats(const std::string &bytes) {
  std::vector<float> values(bytes.size() / 4);
  std::memcpy(values.data(), bytes.data(), values.size() * 4);
  return values;
}

// |a - b| / |b|, L2.
double distance(const std::vector<float> &a, const std::vector<float> &b) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (double(a[i]) - b[i]) * (double(a[i]) - b[i]);
    norm += double(b[i]) * b[i];
  }
  return std::sqrt(difference / std::max(norm, 1e-30));
}

std::vector<float> change(const Outcome &outcome, const std::string &name) {
  std::vector<float> after = floats(outcome.after.back().at(name)),
                     before = floats(outcome.before.at(name));
  for (size_t i = 0; i < after.size(); ++i)
    after[i] -= before[i];
  return after;
}

void expectSameBits(const State &a, const State &b, const char *otherwise) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto &[name, bytes] : a)
    EXPECT_TRUE(bytes == b.at(name)) << name << otherwise;
}

const Job kJobs[] = {
    {"f32", {}, 2e-5, 2e-3},
    // With tensor cores, attention rounds its probabilities to bf16, which the CPU does not.
    {"bf16", {"training.compute_dtype=bf16"}, 3e-2, 0.25},
    {"bf16_heads_of_64_and_a_window",
     {"training.compute_dtype=bf16", "model.architecture=mistral", "model.sliding_window=9",
      "model.hidden_size=256", "model.vocab_size=77", "training.sequence_length=37"},
     3e-2,
     0.25},
    {"documents",
     {"training.document_mask=true", "model.num_attention_heads=8", "model.num_key_value_heads=1"},
     2e-5,
     2e-3},
    {"bf16_documents_and_heads_of_64",
     {"training.compute_dtype=bf16", "training.document_mask=true", "model.hidden_size=256",
      "model.vocab_size=77", "training.sequence_length=70"},
     3e-2,
     0.25},
    {"document_positions", {"training.document_positions=true"}, 2e-5, 2e-3},
    {"bf16_document_positions_and_mask",
     {"training.compute_dtype=bf16", "training.document_positions=true",
      "training.document_mask=true", "model.hidden_size=256", "model.vocab_size=77",
      "training.sequence_length=70"},
     3e-2,
     0.25},
    {"padded_sizes",
     {"model.vocab_size=131", "model.intermediate_size=77", "model.mlp_bias=true",
      "target.make_vocab_size_divisible_by=64", "target.make_intermediate_size_divisible_by=16"},
     2e-5,
     2e-3},
    {"bf16_padded_sizes",
     {"training.compute_dtype=bf16", "model.vocab_size=131", "model.intermediate_size=171",
      "target.make_vocab_size_divisible_by=64", "target.make_intermediate_size_divisible_by=64"},
     3e-2,
     0.3},
    {"adamw8bit", {"optimizer.type=adamw8bit"}, 2e-5, 2e-2},
    {"muon", {"optimizer.type=muon", "optimizer.muon_ns_dtype=f32"}, 2e-5, 2e-2},
    {"muon_bf16", {"optimizer.type=muon"}, 2e-5, 5e-2},
    {"odd_sizes",
     {"model.vocab_size=131", "model.hidden_size=60", "model.num_attention_heads=5",
      "model.num_key_value_heads=5", "model.intermediate_size=77", "training.sequence_length=19",
      "model.tie_word_embeddings=false"},
     2e-5,
     2e-3},
};

class SimtStep : public testing::TestWithParam<Job> {};

// Of a step behind one that counts.
struct Skipped {
  const char *optimizer;
  const char *norm; // "nan"; "infinite", of gradients that are finite; "limited": above its limit
};

void PrintTo(const Skipped &skipped, std::ostream *to) { *to << skipped.optimizer; }

class SimtSkippedStep : public testing::TestWithParam<Skipped> {};

} // namespace

TEST_P(SimtStep, isTheCpus) {
  const Job &job = GetParam();
  std::unique_ptr<PlanFile> cpuPlan = planOf(job, "cpu"), cudaPlan = planOf(job, "cuda:sm_90a");
  ASSERT_TRUE(cpuPlan && cudaPlan);
  const Outcome want = train(*cpuPlan, std::move(*openDevice(*cpuPlan, {.threads = 1})));
  const Outcome got = train(*cudaPlan, simt::makeSimtDevice(1));
  const Outcome again = train(*cudaPlan, simt::makeSimtDevice(2));
  ASSERT_EQ(want.failure, "");
  ASSERT_EQ(got.failure, "");
  ASSERT_EQ(again.failure, "");
  double worst = 0, worstUpdate = 0;
  for (size_t step = 0; step < want.losses.size(); ++step) {
    const double tolerance = step == 0 ? job.gradients : job.updates;
    // An untrained model's loss hardly moves, whatever is wrong with its gradients.
    EXPECT_NEAR(got.losses[step], want.losses[step],
                std::min(tolerance, 3e-3) * want.losses[step]);
    EXPECT_NEAR(got.gradientNorms[step], want.gradientNorms[step],
                tolerance * want.gradientNorms[step]);
  }
  ASSERT_EQ(got.gradients.size(), want.gradients.size());
  EXPECT_GT(got.gradients.size(), 10u);
  for (const auto &[name, bytes] : want.gradients) {
    const double d = distance(floats(got.gradients.at(name)), floats(bytes));
    EXPECT_LT(d, job.gradients) << name;
    worst = std::max(worst, d);
  }
  for (const auto &[name, bytes] : want.before) {
    EXPECT_EQ(got.before.at(name), bytes) << "other first values: " << name;
    const double d = distance(change(got, name), change(want, name));
    EXPECT_LT(d, job.updates) << name;
    worstUpdate = std::max(worstUpdate, d);
  }
  printf("losses %.6f %.6f (CPU %.6f %.6f); gradients differ by %.2g, updates by %.2g at most\n",
         got.losses[0], got.losses[1], want.losses[0], want.losses[1], worst, worstUpdate);
  EXPECT_EQ(got.losses, again.losses);
  const char *otherwise = " depends on the order of threads or blocks";
  expectSameBits(got.gradients, again.gradients, otherwise);
  expectSameBits(got.after.back(), again.after.back(), otherwise);
}

INSTANTIATE_TEST_SUITE_P(Jobs, SimtStep, testing::ValuesIn(kJobs),
                         [](const auto &info) { return info.param.name; });

TEST_P(SimtSkippedStep, leavesEverything) {
  const auto [optimizer, norm] = GetParam();
  const bool nan = std::string(norm) == "nan", limited = std::string(norm) == "limited";
  Settings skipped;
  // Squares of gradients of 1e25 are more than an f32 holds.
  skipped.lossScale = nan ? std::numeric_limits<double>::quiet_NaN() : limited ? 1 : 1e25;
  if (limited)
    skipped.normLimit = 1e-6;
  const Job job{
      optimizer, {"training.compute_dtype=bf16", std::string("optimizer.type=") + optimizer}, 0, 0};
  for (const char *name : {"cpu", "cuda:sm_90a"}) {
    SCOPED_TRACE(name);
    std::unique_ptr<PlanFile> plan = planOf(job, name);
    ASSERT_TRUE(plan);
    const bool cpu = std::string(name) == "cpu";
    const Outcome outcome =
        train(*plan, cpu ? std::move(*openDevice(*plan, {.threads = 1})) : simt::makeSimtDevice(1),
              {{}, skipped});
    ASSERT_EQ(outcome.failure, "");
    EXPECT_TRUE(std::isfinite(outcome.gradientNorms[0]));
    const double second = outcome.gradientNorms[1];
    EXPECT_TRUE(nan       ? std::isnan(second)
                : limited ? std::isfinite(second) && second > 1e-6
                          : std::isinf(second))
        << second;
    for (const auto &[parameter, bytes] : outcome.before)
      EXPECT_FALSE(bytes == outcome.after[0].at(parameter))
          << parameter << " stays in a step that counts";
    expectSameBits(outcome.after[0], outcome.after[1], " changes in a step that does not count");
  }
}

INSTANTIATE_TEST_SUITE_P(Norms, SimtSkippedStep,
                         testing::Values(Skipped{"adamw", "nan"}, Skipped{"adamw", "infinite"},
                                         Skipped{"adamw", "limited"}, Skipped{"adamw8bit", "nan"},
                                         Skipped{"adamw8bit", "infinite"},
                                         Skipped{"adamw8bit", "limited"}, Skipped{"muon", "nan"},
                                         Skipped{"muon", "infinite"}, Skipped{"muon", "limited"}),
                         [](const auto &info) {
                           return std::string(info.param.optimizer) + "_" + info.param.norm;
                         });

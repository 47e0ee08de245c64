#include "tools/lmc-run/measure/Bench.h"

#include "ground/plan/Names.h"
#include "ground/plan/PlannedBytes.h"
#include "ground/plan/Steps.h"
#include "ground/support/Median.h"
#include "runtime/comm/Agree.h"
#include "runtime/settings/LrSchedule.h"
#include "runtime/step/Inputs.h"
#include "runtime/step/Step.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <random>

namespace lmc {

namespace {

constexpr uint64_t kWarmUp = 2; // steps

// The source of batches: the training data, or random tokens if the job has no training data.
class Batches {
public:
  explicit Batches(const Session &session) : session(session) {}
  static Result<std::unique_ptr<Batches>> open(const Session &session) {
    auto batches = std::make_unique<Batches>(session);
    if (session.settings.trainData.empty()) {
      batches->drawn = draw(session);
      return batches;
    }
    auto source = session.openTrainData();
    if (!source)
      return session.settings.isMixed()
                 ? source.error()
                 : Error{fmt::format("{}; --set data.train=[] measures with random tokens",
                                     source.error().message),
                         source.error().code};
    batches->data = std::move(*source);
    batches->loader = std::make_unique<BatchLoader>(
        *batches->data, session.rows(), 0,
        static_cast<int>(std::min<int64_t>(session.settings.config.data.numWorkers, 256)));
    return batches;
  }

  // Returns the next batch, which is valid until the next call.
  Result<const BatchLoader::Batch *> next() {
    if (loader) {
      LMC_SET(drawn, loader->next());
      LMC_LET(targets, sumOf(session.world.all(), static_cast<double>(drawn.validTargets)));
      drawn.validTargets = static_cast<uint64_t>(*targets);
    }
    return &drawn;
  }

private:
  // Returns a batch of independent tokens, all equally probable.
  static BatchLoader::Batch draw(const Session &session) {
    const plan::Plan &plan = **session.plan;
    const uint64_t count = plan.batch()->global_batch_size() / plan.batch()->ranks() *
                           plan.batch()->sequence_length();
    std::mt19937_64 engine(static_cast<uint64_t>(session.settings.config.training.seed) +
                           static_cast<uint64_t>(session.world.rank()));
    BatchLoader::Batch batch;
    for (std::vector<int32_t> *tokens : {&batch.tokens, &batch.targets})
      for (uint64_t i = 0; i < count; ++i)
        tokens->push_back(static_cast<int32_t>(engine() % plan.model()->vocab_size()));
    if (readsDocuments(*session.plan))
      batch.starts.resize(count); // one document
    batch.validTargets = count * plan.batch()->ranks();
    return batch;
  }

  const Session &session;
  std::unique_ptr<DataSource> data;
  std::unique_ptr<BatchLoader> loader; // null: batches are random, see `drawn`
  BatchLoader::Batch drawn;
};

} // namespace

// Sets `loss` to the last step's loss, and ends[i] to a mark at the end of step i (from 0).
static Result<void> runSteps(Session &session, uint64_t total, const StopSignals &stop,
                             std::vector<std::unique_ptr<Mark>> &ends, double &loss) {
  LMC_LET(batches, Batches::open(session));
  auto takeLoss = [&]() -> Result<void> {
    LMC_LET(values, session.scalars->take());
    LMC_SET(loss, valueOf(*values, names::kLoss));
    return {};
  };
  Progress &progress = session.world.progress();
  for (uint64_t step = 1; step <= total; ++step) {
    progress.enter(Activity::Reading, step);
    LMC_LET(stopped, anyOf(session.world.all(), stop.requested()));
    if (*stopped)
      break;
    LMC_LET(batch, (*batches)->next());
    const auto number = static_cast<int64_t>(step);
    progress.enter(Activity::Computing, step);
    if (session.trace)
      session.trace->begin(step);
    LMC_TRY(enqueueGradients(session, number, learningRate(session.settings.lr, number), {},
                             **batch, [] { return Result<void>(); }));
    LMC_TRY(session.functions->run(names::kOptimizer));
    if (session.trace && session.trace->end())
      LMC_TRY(session.trace->write());
    LMC_LET(mark, session.device->makeMark());
    ends.push_back(std::move(*mark));
    LMC_TRY(session.device->place(*ends.back()));
    // The host is at most one step ahead of the device, as in training.
    if (session.scalars->hasRequests())
      LMC_TRY(takeLoss());
    LMC_TRY(session.scalars->request());
  }
  while (session.scalars->hasRequests())
    LMC_TRY(takeLoss());
  return {};
}

// Returns the speed, for the report, of a step that takes `seconds`.
static nlohmann::ordered_json speedOf(const Session &session, double seconds) {
  const plan::Plan &plan = **session.plan;
  const uint64_t tokens = plan.batch()->global_batch_size() * plan.batch()->sequence_length();
  const double rate = static_cast<double>(tokens) / seconds;
  nlohmann::ordered_json speed = {{"tokens_per_second", rate}};
  const double peak =
      session.deviceInfo.peakFlops * static_cast<double>(plan.batch()->ranks());
  auto mfu = [&](double flops) {
    return peak > 0 ? nlohmann::ordered_json(rate * flops / peak) : nullptr;
  };
  speed["mfu_causal"] = mfu(plan.model()->flops_per_token_causal());
  speed["mfu_full"] = mfu(plan.model()->flops_per_token_full());
  speed["tflops_per_device"] = rate * plan.model()->flops_per_token_causal() /
                               static_cast<double>(plan.batch()->ranks()) / 1e12;
  return speed;
}

static nlohmann::ordered_json reportOf(const Session &session, const std::vector<double> &seconds,
                                       double loss) {
  const plan::Plan &plan = **session.plan;
  const double step = median(seconds);
  nlohmann::ordered_json report;
  report["plan"] = session.plan->path();
  report["plan_hash"] = session.plan->hash();
  report["target"] = plan.target()->str();
  report["device"] = session.deviceInfo.name;
  report["tokens"] = session.settings.trainData.empty() ? "random" : session.settings.trainKey();
  report["batch"] = {{"gbs", plan.batch()->global_batch_size()},
                     {"mbs", plan.batch()->micro_batch_size()},
                     {"gas", plan.batch()->gradient_accumulation_steps()},
                     {"sequence_length", plan.batch()->sequence_length()}};
  report["steps"] = seconds.size();
  report["warm_up_steps"] = kWarmUp;
  report["step_seconds"] = {{"median", step},
                            {"min", *std::min_element(seconds.begin(), seconds.end())},
                            {"max", *std::max_element(seconds.begin(), seconds.end())}};
  report.update(speedOf(session, step));
  report["peak_flops"] = session.deviceInfo.peakFlops > 0
                             ? nlohmann::ordered_json(session.deviceInfo.peakFlops)
                             : nullptr;
  report["memory"] = {{"planned_bytes", plannedBytes(plan)},
                      {"allocated_bytes", session.device->allocatedBytes()}};
  report["predicted"] = nullptr;
  if (const double predicted = plan::predictedStepSeconds(plan); predicted > 0) {
    report["predicted"] = {{"step_seconds", predicted}};
    report["predicted"].update(speedOf(session, predicted));
    report["ratio"] = step / predicted;
  }
  report["loss"] = loss;
  // The implementation of each matrix product, and the seconds of one run of it (0: not measured).
  report["products"] = nlohmann::ordered_json::object();
  for (const GemmChoices::Use &use : session.gemms->inUse())
    report["products"][use.key.product] = {{"implementation", use.choice.implementation},
                                           {"seconds", use.choice.seconds}};
  return report;
}

static std::string mfuText(const nlohmann::ordered_json &speed) {
  const std::string flops =
      fmt::format(", {:.3g} TFLOP/s a device", speed["tflops_per_device"].get<double>());
  if (speed["mfu_causal"].is_null())
    return flops;
  return fmt::format(", MFU {:.1f}% causal, {:.1f}% full{}",
                     100 * speed["mfu_causal"].get<double>(), 100 * speed["mfu_full"].get<double>(),
                     flops);
}

static void print(const nlohmann::ordered_json &report, Console &console) {
  const auto &seconds = report["step_seconds"];
  console.note(fmt::format(
      "bench: {} steps after {} of warm-up, tokens: {}", report["steps"].get<uint64_t>(),
      report["warm_up_steps"].get<uint64_t>(), report["tokens"].get<std::string>()));
  console.note(fmt::format("  step:      median {:.6g} s, min {:.6g} s, max {:.6g} s",
                           seconds["median"].get<double>(), seconds["min"].get<double>(),
                           seconds["max"].get<double>()));
  console.note(fmt::format("  measured:  {:.0f} tokens/s{}",
                           report["tokens_per_second"].get<double>(), mfuText(report)));
  if (const auto &predicted = report["predicted"]; predicted.is_object())
    console.note(fmt::format("  predicted: {:.0f} tokens/s{}; a step takes {:.2f} times as long as "
                             "predicted",
                             predicted["tokens_per_second"].get<double>(), mfuText(predicted),
                             report["ratio"].get<double>()));
  else
    console.note("  predicted: the plan has no predictions");
}

Result<ExitCode> bench(Session &session, const ProgramOptions &options, const StopSignals &stop,
                       Console &console) {
  const uint64_t timed = kWarmUp + static_cast<uint64_t>(options.bench);
  const uint64_t total = timed + static_cast<uint64_t>(session.trace ? options.traceSteps : 0);
  if (session.trace)
    session.trace->choose(timed, total);
  if (!options.json)
    console.notes(session.facts());
  console.warnings(session.deviceInfo.remarks);
  std::vector<std::unique_ptr<Mark>> ends;
  double loss = 0;
  LMC_TRY(runSteps(session, total, stop, ends, loss));
  if (ends.size() < total)
    return ExitCode::Interrupted;
  std::vector<double> seconds;
  for (uint64_t step = kWarmUp; step < timed; ++step) {
    LMC_LET(took, session.device->secondsBetween(*ends[step - 1], *ends[step]));
    seconds.push_back(*took);
  }
  const nlohmann::ordered_json report = reportOf(session, seconds, loss);
  if (!options.json) {
    print(report, console);
    return ExitCode::Success;
  }
  std::fputs((report.dump(2) + "\n").c_str(), options.output);
  std::fflush(options.output);
  return ExitCode::Success;
}

Result<ExitCode> recordCommands(Session &session, CommandRecord &record,
                                const ProgramOptions &options, const StopSignals &stop,
                                Console &console) {
  console.warnings(session.deviceInfo.remarks);
  std::vector<std::unique_ptr<Mark>> ends;
  double loss = 0;
  LMC_TRY(runSteps(session, 1, stop, ends, loss));
  if (ends.empty())
    return ExitCode::Interrupted;
  if (session.functions->has(names::kEval))
    LMC_TRY(session.functions->run(names::kEval));
  LMC_TRY(record.finish(options.output));
  if (!options.recordCommands.empty())
    console.note("wrote what the commands of a step compute to " + options.recordCommands);
  return ExitCode::Success;
}

} // namespace lmc

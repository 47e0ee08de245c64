#include "runtime/loop/Trainer.h"

#include "ground/plan/Names.h"
#include "ground/plan/Steps.h"
#include "ground/plan/TargetRules.h"
#include "ground/support/File.h"
#include "ground/support/Size.h"
#include "runtime/checkpoint/Checkpoint.h"
#include "runtime/checkpoint/RunTokenizer.h"
#include "runtime/comm/Agree.h"
#include "runtime/settings/LrSchedule.h"
#include "runtime/step/Dump.h"
#include "runtime/step/Step.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <utility>

namespace lmc {

// At most two steps are enqueued, and the newer one is timed from the end of the older one.
static constexpr int kEnds = 3;
// Key of the guard's state in the extra state of a checkpoint.
static constexpr const char *kGuardState = "guard";
// Key of the newest step after which all weights that exist twice were equal.
static constexpr const char *kEqualWeights = "equal_weights";
// Key of the tensors that are out of range there.
static constexpr const char *kUpdatesState = "updates";

// Returns true if an action with period `interval` is due after `step`; an interval of 0 means
// never.
static bool isDue(uint64_t step, int64_t interval) {
  return interval > 0 && step % static_cast<uint64_t>(interval) == 0;
}

// Returns the key of a set's latest loss in the extra state of a checkpoint.
static std::string lossKey(const ValidationSettings &set) {
  return set.name.empty() ? "validation_loss"
                          : fmt::format("{}.{}.loss", kValidationSets, set.name);
}

Trainer::Trainer(Session &session, const RunOptions &options, RunDirectory &directory,
                 Console &console, RunLog &log, Monitors *monitors, const StopSignals &stop,
                 TimeBudget &time, std::shared_ptr<DataSource> data, RunPhase phase,
                 uint64_t totalSteps)
    : session(session), options(options), directory(directory), console(console), log(log),
      monitors(monitors), stop(stop), time(time), ranks(session.world.all()),
      progress(session.world.progress()), phase(std::move(phase)), totalSteps(totalSteps),
      firstStep(session.progress.step), data(std::move(data)), sources(this->data->sources()),
      enqueuedStep(session.progress.step),
      guard(session.settings.guard, (*session.plan)->model()->vocab_size(), session.settings.lr.lr),
      updateWatch(session.settings.guard.action == "off" ? 0 : session.settings.guard.updateRatio,
                  session.settings.lr.begin + session.settings.lr.warmupIters),
      routerSums(*session.plan),
      deadExperts(session.settings.guard.action == "off" ? 0 : session.settings.guard.deadExpert),
      slowSteps(plan::predictedStepSeconds(**session.plan), plan::computesOnHost(**session.plan),
                progress, console, log),
      space(session, directory.path(), totalSteps),
      writer(directory.path(), *session.plan, *session.device, session.world),
      savedStep(session.progress.step) {}

Result<void> Trainer::openMetrics() {
  if (session.world.rank() != 0)
    return {};
  auto writer = MetricsWriter::open(directory.path() + "/metrics.jsonl",
                                    static_cast<int64_t>(session.progress.step),
                                    [&]() -> Result<std::string> {
                                      auto folder = directory.undone();
                                      LMC_TRY(folder);
                                      const std::string file = *folder + "/metrics.jsonl";
                                      console.note(fmt::format("steps after {} are now in {}",
                                                               session.progress.step, file));
                                      return file;
                                    });
  LMC_TRY(writer);
  metrics.emplace(std::move(*writer));
  return {};
}

Result<void> Trainer::openUpdates() {
  const std::string path = directory.path() + "/updates.jsonl";
  if (session.world.rank() != 0 || !(writer.hasSnapshot() || std::filesystem::exists(path)))
    return {};
  auto opened = UpdatesWriter::open(path, static_cast<int64_t>(session.progress.step),
                                    [&]() -> Result<std::string> {
                                      auto folder = directory.undone();
                                      LMC_TRY(folder);
                                      return *folder + "/updates.jsonl";
                                    });
  LMC_TRY(opened);
  updates.emplace(std::move(*opened));
  return {};
}

Result<void> Trainer::prepare() {
  auto made = session.makeEvaluators();
  LMC_TRY(made);
  evaluators = std::move(*made);
  validations.resize(evaluators.size());
  LMC_TRY(allSucceed(ranks, openMetrics()));
  auto opened = TextGeneration::open(session, *data, directory, console, log, monitors);
  LMC_TRY(opened);
  generation = std::move(*opened);
  if (session.settings.guard.compareWeights > 0) {
    auto made = WeightComparison::open(*session.plan, *session.device, session.world);
    LMC_TRY(allSucceed(ranks, made ? Result<void>() : Result<void>(made.error())));
    comparison = std::move(*made);
  }
  if (const auto newest = newestCheckpoint())
    knownSave =
        KnownSave{newest->step, std::chrono::steady_clock::now() -
                                    std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                        std::chrono::duration<double>(newest->seconds))};

  const auto former = session.progress.extra.find(kPhase);
  const bool isNewPhase = former != session.progress.extra.end() && former->second != phase.name;
  session.progress.extra.erase(kPhase);
  if (!phase.name.empty())
    session.progress.extra[kPhase] = phase.name;
  auto saved = session.progress.extra.find(kGuardState);
  if (saved != session.progress.extra.end()) {
    if (auto restored = guard.restore(saved->second); !restored)
      console.warning(fmt::format("{}: {}; the loss is judged as in a new run", *session.checkpoint,
                                  restored.error().message));
  } else if (!session.checkpoint && session.initialWeights.empty()) {
    guard.expectFreshWeights();
  }
  if (const auto known = session.progress.extra.find(kUpdatesState);
      known != session.progress.extra.end())
    if (auto restored = updateWatch.restore(known->second); !restored)
      console.warning(fmt::format("{}: {}", *session.checkpoint, restored.error().message));
  if (isNewPhase)
    guard.expectChange();
  for (const DeclaredChange &change : runIdentityFromJson(session.progress.run).changes)
    if (change.step == session.progress.step)
      guard.expectChange();
  const TrainSettings &settings = session.settings;
  if (settings.checkpointBackground &&
      (settings.checkpointInterval > 0 || settings.exportInterval > 0)) {
    if (auto allocated = writer.allocate())
      console.note(fmt::format("checkpoints are written behind the steps, from a copy of the state "
                               "in {} of host memory",
                               formatBytes(writer.snapshotBytes())));
    else
      console.warning(
          fmt::format("{}; steps wait until checkpoints are written", allocated.error().message));
  }
  LMC_TRY(allSucceed(ranks, openUpdates()));
  for (int i = 0; i < kEnds; ++i) {
    auto mark = session.device->makeMark();
    LMC_TRY(mark);
    ends.push_back(std::move(*mark));
  }
  auto mark = session.device->makeMark();
  LMC_TRY(mark);
  start = std::move(*mark);
  return {};
}

// Returns the seconds since `start`.
static double secondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Result<std::optional<Trainer::NextBatch>> Trainer::nextBatch() {
  progress.enter(Activity::Reading, enqueuedStep + 1);
  slowSteps.begin(static_cast<int64_t>(enqueuedStep) + 1);
  const bool stopHere = stop.requested();
  Result<void> owned;
  {
    const Progress::Aside looking(progress, Activity::Logging);
    owned = directory.checkOwner();
  }
  const auto asked = std::chrono::steady_clock::now();
  auto batch = batches->next();
  const double waited = secondsSince(asked);
  const bool leaves =
      session.world.rank() == 0 &&
      time.mustLeave(enqueued.size(), secondsAfter(enqueuedStep + 1) + writingSeconds());
  double facts[] = {stopHere ? 1.0 : 0.0, owned ? 0.0 : 1.0, batch ? 0.0 : 1.0,
                    batch ? static_cast<double>(batch->validTargets) : 0.0,
                    writer.isBusy() && writer.isWritten() ? 1.0 : 0.0, leaves ? 1.0 : 0.0};
  LMC_TRY(ranks.allReduce(facts, std::size(facts), plan::DType::F64));
  const auto [stops, strangers, failures, targets, writers, late] = facts;
  if (writers == static_cast<double>(ranks.size())) {
    const Progress::Aside logging(progress, Activity::Logging);
    LMC_TRY(finishSave());
  }
  if (strangers > 0)
    LMC_TRY(allSucceed(ranks, owned));
  outOfTime = stops == 0 && late > 0;
  if (stops > 0 || late > 0)
    return std::optional<NextBatch>();
  if (failures > 0) {
    dataFailed = true;
    LMC_TRY(allSucceed(ranks, batch ? Result<void>() : Result<void>(batch.error())));
  }
  NextBatch next{std::move(*batch), waited};
  next.batch.validTargets = static_cast<uint64_t>(targets);
  return std::optional(std::move(next));
}

StepLimits Trainer::nextLimits(bool &named) const {
  const uint64_t number = enqueuedStep + 1;
  named = std::ranges::any_of(session.settings.skipSteps, [&](const StepRange &range) {
    return range.first <= number && number <= range.last;
  });
  // Neither losses nor norms are below 0.
  return named ? StepLimits{-1, -1} : guard.limitsOf(static_cast<int64_t>(number));
}

Result<void> Trainer::enqueue(const NextBatch &next) {
  const auto number = static_cast<int64_t>(enqueuedStep) + 1;
  EnqueuedStep step{.number = number,
                    .lr = learningRate(session.settings.lr, number),
                    .dataSeconds = next.seconds,
                    .validTargets = next.batch.validTargets,
                    .ended = ends[static_cast<size_t>(number) % ends.size()].get()};
  step.limits = nextLimits(step.named);
  if (enqueued.empty()) {
    LMC_TRY(session.device->place(*start));
    step.began = start.get();
  } else {
    step.began = enqueued.back().ended;
  }

  if (next.batch.validTargets == 0) {
    const Progress::Aside logging(progress, Activity::Logging);
    console.warning(fmt::format("step {}: no position of this batch has a loss", number));
  }
  if (session.trace)
    session.trace->begin(static_cast<uint64_t>(number));
  progress.enter(Activity::Computing, enqueuedStep + 1);
  LMC_TRY(enqueueGradients(session, number, step.lr, step.limits, next.batch, [&] {
    progress.enter(Activity::Computing, enqueuedStep + 1);
    return settleReady();
  }));
  if (!options.dumpGradients.empty() && !gradientsDumped) {
    progress.enter(Activity::Saving, enqueuedStep + 1);
    LMC_TRY(dumpGradients(options.dumpGradients, *session.plan, *session.device, session.world));
    gradientsDumped = true;
  }
  progress.enter(Activity::Computing, enqueuedStep + 1);
  progress.at(names::kOptimizer);
  LMC_TRY(session.functions->run(names::kOptimizer));
  if (session.trace && session.trace->end())
    writeTrace();
  LMC_TRY(session.device->place(*ends[static_cast<size_t>(number) % ends.size()]));
  LMC_TRY(session.scalars->request());
  enqueued.push_back(step);
  ++enqueuedStep;
  return {};
}

void Trainer::writeTrace() {
  const Progress::Aside logging(progress, Activity::Logging);
  auto written = session.trace->write();
  if (written)
    console.note(fmt::format("wrote the trace {}", session.trace->path()));
  else
    console.warning(fmt::format("there is no trace {}: {}", session.trace->path(),
                                written.error().message));
}

Result<StepRecord> Trainer::readStep(const EnqueuedStep &step) {
  auto values = session.scalars->take();
  LMC_TRY(values);
  auto loss = valueOf(*values, names::kLoss), gradNorm = valueOf(*values, names::kGradNorm),
       paramNorm = valueOf(*values, names::kParamNorm),
       updateNorm = valueOf(*values, names::kUpdateNorm);
  for (const auto *read : {&loss, &gradNorm, &paramNorm, &updateNorm})
    LMC_TRY(*read);
  auto seconds = session.device->secondsBetween(*step.began, *step.ended);
  LMC_TRY(seconds);
  StepRecord record;
  record.step = step.number;
  record.phase = phase.name;
  record.loss = *loss;
  record.lr = step.lr;
  record.gradNorm = *gradNorm;
  record.skipped = !std::isfinite(*gradNorm) ? SkipReason::NotFinite
                   : step.named              ? SkipReason::Named
                   : *gradNorm > step.limits.norm || *loss > step.limits.loss ? SkipReason::Spike
                                                                              : SkipReason::None;
  record.updateRatio =
      record.skipped != SkipReason::None || *paramNorm == 0 ? 0 : *updateNorm / *paramNorm;
  record.memoryBytes = session.device->allocatedBytes();
  record.stepSeconds = *seconds;
  record.dataSeconds = step.dataSeconds;
  routerSums.read(session.scalars->vectors(), step.validTargets, record);
  return record;
}

std::vector<SourceRecord> Trainer::recordSources() {
  // Sources that only other phases read stay as they are.
  std::erase_if(session.progress.sources, [&](const auto &source) {
    return !session.settingTable.find(fmt::format("{}.{}.paths", kSources, source.first));
  });
  std::vector<SourceRecord> records;
  for (size_t i = 0; i < sources.size(); ++i) {
    const SourceFacts &source = sources[i];
    if (source.name.empty())
      continue;
    const uint64_t tokens = data->tokensRead(i, session.progress.position);
    session.progress.sources[source.name] = {data->tokensRead(i, 0), tokens, source.tokensPerEpoch};
    records.push_back({source.name, tokens, double(tokens) / double(source.tokensPerEpoch)});
  }
  return records;
}

Result<StepRecord> Trainer::settle() {
  auto record = readStep(enqueued.front());
  LMC_TRY(record);
  enqueued.pop_front();
  const plan::Plan &plan = **session.plan;
  uint64_t stepTokens = plan.batch()->global_batch_size() * plan.batch()->sequence_length();
  session.progress.step = static_cast<uint64_t>(record->step);
  session.progress.samples += plan.batch()->global_batch_size();
  session.progress.tokens += stepTokens;
  session.progress.position += stepTokens;
  record->tokens = session.progress.tokens;
  record->sources = recordSources();
  // The clock of a device may be too coarse for a tiny step.
  record->tokensPerSecond =
      record->stepSeconds > 0 ? static_cast<double>(stepTokens) / record->stepSeconds : std::nan("");
  // If the peak is not known, both MFUs are NaN: null in the metrics, "?" on the console.
  double peak = session.deviceInfo.peakFlops > 0
                    ? session.deviceInfo.peakFlops * static_cast<double>(plan.batch()->ranks())
                    : std::nan("");
  record->mfuCausal = record->tokensPerSecond * plan.model()->flops_per_token_causal() / peak;
  record->mfuFull = record->tokensPerSecond * plan.model()->flops_per_token_full() / peak;
  record->deviceFlops = record->tokensPerSecond * plan.model()->flops_per_token_causal() /
                        static_cast<double>(plan.batch()->ranks());

  const Progress::Aside logging(progress, Activity::Logging); // both may warn
  auto divergence = watchForDivergence(*record);
  watchForDeadExperts(*record);
  if (!verdict)
    verdict = std::move(divergence);
  return record;
}

Result<void> Trainer::drain(size_t count) {
  while (enqueued.size() > count) {
    auto record = settle();
    LMC_TRY(record);
    report(*record);
  }
  return {};
}

Result<void> Trainer::settleReady() {
  LMC_TRY(writer.poll());
  while (!enqueued.empty()) {
    auto ready = session.scalars->isReady();
    LMC_TRY(ready);
    if (!*ready)
      break;
    LMC_TRY(drain(enqueued.size() - 1));
  }
  return {};
}

std::optional<Guard::Divergence> Trainer::watchForDivergence(const StepRecord &record) {
  Guard::Verdict verdict = guard.observe(record);
  for (const std::string &warning : verdict.warnings)
    console.warning(warning);
  if (verdict.spike)
    log.event("spike", {{"step", record.step},
                        {"since", verdict.spike->since},
                        {"loss", record.loss},
                        {"grad_norm", record.gradNorm},
                        {"usual_loss", verdict.spike->usualLoss},
                        {"usual_grad_norm", verdict.spike->usualNorm}});
  if (verdict.plateau)
    log.event("plateau", {{"step", record.step},
                          {"loss", verdict.plateau->latest},
                          {"loss_before", verdict.plateau->before},
                          {"steps", verdict.plateau->steps}});
  if (verdict.spike && session.settings.guard.onSpike == "rollback" && !spike)
    spike = static_cast<uint64_t>(verdict.spike->since);
  if (record.skipped != SkipReason::None)
    log.event("skip", {{"step", record.step}, {"reason", nameOf(record.skipped)}});
  if (!verdict.divergence || verdict.divergence->lasting ||
      session.settings.guard.action == "stop")
    return verdict.divergence;
  console.warning(fmt::format("step {}: {}", record.step, verdict.divergence->text));
  return std::nullopt;
}

void Trainer::watchForDeadExperts(const StepRecord &record) {
  const auto verdict = deadExperts.observe(record.step, record.routers);
  if (!verdict)
    return;
  console.warning(verdict->warning);
  nlohmann::ordered_json layers = nlohmann::ordered_json::object();
  for (const auto &[layer, experts] : verdict->experts)
    layers[std::to_string(layer)] = experts;
  log.event(
      "dead_expert",
      {{"step", record.step}, {"steps", session.settings.guard.deadExpert}, {"experts", layers}});
}

std::string Trainer::wayBack(const Guard::Divergence &divergence) const {
  const auto since = static_cast<uint64_t>(divergence.since);
  auto steps = listCheckpoints(directory.path());
  if (steps)
    for (uint64_t step : *steps)
      if (step < since)
        return fmt::format("go back to before with --rewind={} --set lr_schedule.lr=LOWER "
                           "--change=lr_schedule.lr",
                           step);
  if (session.checkpoint && firstStep < since)
    return fmt::format("go back with --resume={}, a lower lr_schedule.lr and another --out",
                       *session.checkpoint);
  return "there is no checkpoint from before: start over with a lower lr_schedule.lr and another "
         "--out";
}

Error Trainer::stopDiverged(const Guard::Divergence &divergence) {
  progress.enter(Activity::Saving, session.progress.step);
  session.progress.extra[kGuardState] = guard.state();
  LMC_TRY(finishSave());
  auto kept = saveDiverged(directory.path(), stateOf(*session.plan, *session.device, session.world),
                           session.progress);
  log.event("diverged", {{"step", session.progress.step},
                         {"since", divergence.since},
                         {"text", divergence.text},
                         {"kept", kept ? *kept : ""}});
  return Error{fmt::format("step {}: {}; {}; {}", session.progress.step, divergence.text,
                           kept ? "the state is kept in " + *kept
                                : "the state could not be kept: " + kept.error().message,
                           wayBack(divergence)),
               ExitCode::Diverged};
}

Result<Rollback> Trainer::chooseRollback(uint64_t spike) {
  const GuardSettings &guards = session.settings.guard;
  // A rollback is refunded after so many steps without another spike.
  const auto quiet = static_cast<uint64_t>(guards.refund);
  int64_t done = 0;
  uint64_t before = 0;
  for (const Rollback &back : runIdentityFromJson(session.progress.run).rollbacks) {
    done = quiet > 0 && back.spike > before + quiet ? 1 : done + 1;
    before = back.spike;
  }
  if (quiet > 0 && spike > before + quiet)
    done = 0;
  if (done >= guards.rollbacks)
    return Error{
        fmt::format("the run went back {} time(s) already{} (guard.rollbacks, guard.refund)", done,
                    quiet > 0 ? fmt::format(", each within {} steps of another", quiet) : "")};
  auto steps = listCheckpoints(directory.path());
  LMC_TRY(steps);
  for (uint64_t step : *steps) // newest first
    if (step < spike && step >= phase.firstStep)
      return Rollback{step, spike, session.progress.position};
  return Error{"the run has no checkpoint from before it; set checkpoint.interval"};
}

Result<ExitCode> Trainer::goBack() {
  LMC_TRY(finishSave());
  // Rank 0 looks into the folder.
  auto chosen = session.world.rank() == 0 ? chooseRollback(*spike) : Result<Rollback>(Rollback{});
  auto agreed = allSucceed(ranks, chosen);
  if (!agreed)
    return stopDiverged(
        {.since = static_cast<int64_t>(*spike),
         .text = fmt::format("a spike, and the run cannot go back: {}", agreed.error().message),
         .lasting = true});
  double step = static_cast<double>(chosen->step);
  LMC_TRY(ranks.allReduce(&step, 1, plan::DType::F64));
  goesBack = Rollback{static_cast<uint64_t>(step), *spike, session.progress.position};
  console.note(
      fmt::format("goes back to step {} because of the spike at step {}, and on behind the "
                  "data that was read so far",
                  goesBack->step, *spike));
  log.event("rollback", {{"step", goesBack->step},
                         {"spike", *spike},
                         {"from", session.progress.step},
                         {"position", goesBack->position}});
  return ExitCode::Success;
}

Result<void> Trainer::validate(StepRecord &record) {
  for (size_t i = 0; i < evaluators.size(); ++i) {
    const ValidationSettings &set = session.settings.validations[i];
    if (!set.isDue(session.progress.step, session.progress.step == totalSteps))
      continue;
    progress.enter(Activity::Validating, session.progress.step);
    auto start = std::chrono::steady_clock::now();
    session.device->setPurpose(fmt::format("validation after step {}", record.step));
    bool isLate = false;
    auto evaluation = evaluators[i]->evaluate([&] {
      isLate = session.world.rank() == 0 && time.mustSave(writingSeconds());
      return stop.requested() || isLate;
    });
    LMC_TRY(evaluation);
    const double seconds = secondsSince(start);
    record.validationSeconds += seconds;
    if (!evaluation->complete) {
      if (isLate && !stop.requested())
        sayUnvalidated(i);
      break;
    }
    validations[i].add(seconds);
    nlohmann::ordered_json event;
    event["step"] = record.step;
    if (!set.name.empty())
      event["set"] = set.name;
    event["loss"] = evaluation->loss;
    event["perplexity"] = std::exp(evaluation->loss);
    event["tokens"] = evaluation->tokens;
    event["seconds"] = seconds;
    if (evaluation->bitsPerByte)
      event["bits_per_byte"] = *evaluation->bitsPerByte;
    log.event("validation", std::move(event));
    record.validations.push_back({set.name, evaluation->loss, evaluation->bitsPerByte});
    session.progress.extra[lossKey(set)] = fmt::format("{}", evaluation->loss);
    watchValidation(set, record.step, evaluation->loss);
  }
  return {};
}

bool Trainer::isKeptBest(const ValidationSettings &set) const {
  return session.settings.checkpointKeepBest == (set.name.empty() ? kValidationData : set.name);
}

void Trainer::watchValidation(const ValidationSettings &set, int64_t step, double loss) {
  const auto rise = guard.observeValidation(set.name, step, loss);
  if (session.settings.checkpointBest && isKeptBest(set) && guard.bestStep(set.name) == step)
    bestStep = static_cast<uint64_t>(step);
  if (!rise)
    return;
  console.warning(fmt::format(
      "step {}: {}; {}", step, rise->text,
      isKeptBest(set)
          ? "the checkpoint that keep_best keeps is from before"
          : fmt::format("set checkpoint.keep_best = \"{}\" to keep its best checkpoint, "
                        "and check for too little or repeated training data",
                        set.name.empty() ? kValidationData : set.name)));
  nlohmann::ordered_json event = {{"step", step}};
  if (!set.name.empty())
    event["set"] = set.name;
  event["loss"] = rise->loss;
  event["lowest_loss"] = rise->lowest;
  event["lowest_step"] = rise->step;
  log.event("validation_rise", event);
}

Result<void> Trainer::generateText(StepRecord &record) {
  const uint64_t step = session.progress.step;
  if (!generation || !generation->isDue(step, step == totalSteps))
    return {};
  progress.enter(Activity::Generating, step);
  const auto start = std::chrono::steady_clock::now();
  bool isLate = false;
  const auto whole = generation->generate(step, [&] {
    isLate = session.world.rank() == 0 && time.mustSave(writingSeconds());
    return stop.requested() || isLate;
  });
  LMC_TRY(whole);
  const double seconds = secondsSince(start);
  record.validationSeconds += seconds;
  if (*whole) {
    generations.add(seconds);
  } else if (isLate && !stop.requested()) {
    console.warning(fmt::format("step {}: {} leaves no time for the generation of text", step,
                                time.what()->source));
    log.event("generation_cut_off", {{"step", step}, {"source", time.what()->source}});
  }
  return {};
}

uint64_t Trainer::equalStep() const {
  const auto found = session.progress.extra.find(kEqualWeights);
  return found == session.progress.extra.end() ? 0
                                               : std::strtoull(found->second.c_str(), nullptr, 10);
}

Result<void> Trainer::compareWeights() {
  const uint64_t step = session.progress.step;
  if (!comparison || !isDue(step, session.settings.guard.compareWeights))
    return {};
  progress.enter(Activity::Comparing, step);
  const auto differences = comparison->compare();
  LMC_TRY(differences);
  std::string &equal = session.progress.extra[kEqualWeights];
  if (differences->empty()) {
    equal = fmt::format("{}", step);
    return {};
  }
  nlohmann::ordered_json tensors = nlohmann::ordered_json::array();
  for (const WeightDifference &difference : *differences)
    tensors.push_back({{"tensor", difference.tensor},
                       {"ranks", difference.ranks},
                       {"beside_master", difference.beside}});
  nlohmann::ordered_json event = {{"step", step}};
  if (!equal.empty())
    event["equal_step"] = equalStep();
  event["tensors"] = std::move(tensors);
  log.event("weights_differ", event);
  return Error{
      fmt::format("step {}: weights were damaged: {}; nothing was saved since. {}; check "
                  "the machine, and go back to a checkpoint from before with --rewind=STEP",
                  step, describe(*differences, session.world),
                  equal.empty() ? "They were not compared before"
                                : "They were sound after step " + equal),
      ExitCode::Diverged};
}

double Trainer::writingSeconds() const {
  if (!writer.isBusy() || !time.what())
    return 0;
  const double whole = (writer.isCheckpoint() ? time.save() : 0) +
                       (writer.isExport() ? std::max(exportSeconds, time.save()) : 0);
  return std::max(0.0, whole - secondsSince(writeBegan));
}

void Trainer::sayUnvalidated(size_t first) {
  const uint64_t step = session.progress.step;
  std::vector<std::string> sets;
  for (size_t i = first; i < evaluators.size(); ++i)
    if (session.settings.validations[i].isDue(step, step == totalSteps))
      sets.push_back(session.settings.validations[i].name);
  const std::string &source = time.what()->source;
  // The only set may have no name.
  const std::string names = fmt::format("{}", fmt::join(sets, ", "));
  console.warning(fmt::format("step {}: {} leaves no time for the validation{}: its loss is not "
                              "known",
                              step, source, names.empty() ? "" : " of " + names));
  nlohmann::ordered_json event = {{"step", step}, {"source", source}};
  if (!names.empty())
    event["sets"] = sets;
  log.event("validation_cut_off", event);
}

double Trainer::secondsAfter(uint64_t step) const {
  double seconds = 0;
  if (isDue(step, session.settings.exportInterval))
    seconds += exports.times > 0 ? exports.mean() : time.save();
  if (generation && generation->isDue(step, step == totalSteps))
    seconds += generations.mean(); // one that does not fit is cut off
  for (size_t i = 0; i < evaluators.size(); ++i) {
    if (!session.settings.validations[i].isDue(step, step == totalSteps))
      continue;
    // A validation goes forward only, and so takes less than a step per batch. Before the first
    // step of a start this bound does not count: a run whose slots are shorter would not go on in
    // any, and a validation that does not fit is cut off.
    if (validations[i].times > 0)
      seconds += validations[i].mean();
    else if (time.hasStepped())
      seconds += evaluators[i]->batches() * time.step();
  }
  return seconds;
}

Result<void> Trainer::leaveInTime() {
  const TimeLimit limit = time.what().value_or(TimeLimit{0, "the time limit of rank 0"});
  const double left = time.what() ? time.secondsLeft() : 0;
  log.event("time_limit", {{"step", session.progress.step},
                           {"source", limit.source},
                           {"left_seconds", left},
                           {"step_seconds", time.step()},
                           {"save_seconds", time.save()}});
  if (time.hasStepped())
    return {};
  // A restart (--restarts) may come too late without anybody's mistake.
  return Error{fmt::format("{} leaves {:.1f} s at step {}, and a step with its checkpoint needs "
                           "about {:.1f} s: nothing was trained; give the run more time",
                           limit.source, std::max(left, 0.0), session.progress.step,
                           time.neededSeconds()),
               options.restart > 0 ? ExitCode::Interrupted : ExitCode::UserError};
}

double Trainer::pendingSeconds() const {
  const uint64_t done = session.progress.step;
  // Returns the seconds of the work that is due at each multiple of `interval`, and of `last` more
  // at the end.
  auto pending = [&](const Spent &spent, int64_t interval, int64_t last) {
    const int64_t times =
        interval > 0 ? int64_t(totalSteps) / interval - int64_t(done) / interval : 0;
    return spent.mean() * static_cast<double>(std::max(times, last));
  };
  const TrainSettings &settings = session.settings;
  double seconds =
      pending(saves, settings.checkpointInterval, 1) + pending(exports, settings.exportInterval, 0);
  if (generation)
    seconds += pending(generations, settings.generation.interval, 1);
  for (size_t i = 0; i < evaluators.size(); ++i)
    seconds += pending(validations[i], settings.validations[i].interval, 1);
  return seconds;
}

// Says after a few steps how long the rest of the job will take.
void Trainer::sayExpectedTime(const StepRecord &record) {
  constexpr uint64_t kMeasuredSteps = 5;
  const uint64_t done = session.progress.step - firstStep;
  if (done > 1)
    stepSeconds += record.stepSeconds;
  if (done != kMeasuredSteps || session.progress.step == phase.lastStep)
    return;
  const uint64_t left = phase.lastStep - session.progress.step;
  const double seconds =
      stepSeconds / double(kMeasuredSteps - 1) * double(left) + record.pendingSeconds;
  console.note(fmt::format(
      "job: about {:.2f} hours for the other {} steps{}, by the last {}", seconds / 3600, left,
      phase.name.empty() ? "" : fmt::format(" of phase {}", phase.name), kMeasuredSteps - 1));
}

// What a GPU does is not known from the time of its host's thread.
void Trainer::watchForSlowRanks(int64_t step) {
  if (step % int64_t(Progress::kBusyWindow) != 0 || !plan::computesOnHost(**session.plan))
    return;
  const std::optional<SlowRanks> slow = slowRanks.observe(session.world.progressOfRanks());
  if (!slow)
    return;
  console.warning(fmt::format(
      "{} {} busy for {:.3g} s of a step (reading data or computing), and the others for {:.3g} s: "
      "they wait for {}",
      session.world.namesOf(slow->ranks), slow->ranks.size() == 1 ? "is" : "are", slow->seconds,
      slow->others, slow->ranks.size() == 1 ? "it" : "them"));
  log.event("slow_rank", {{"step", step},
                          {"ranks", slow->ranks},
                          {"busy_seconds", slow->seconds},
                          {"others_busy_seconds", slow->others}});
}

void Trainer::tellSlowSave(uint64_t step, const char *how, const SlowSaveWatch::Found &slow) {
  console.warning(fmt::format("the checkpoint of step {} {} {:.3g} s, and one usually takes {:.3g} "
                              "s: the disk is slow, or others use it",
                              step, how, slow.seconds, slow.usual));
  log.event("slow_save", {{"step", session.progress.step},
                          {"saved_step", step},
                          {"seconds", slow.seconds},
                          {"usual_seconds", slow.usual}});
}

void Trainer::watchForSlowSave() {
  if (!writer.isBusy() || writer.isWritten() || !writer.isCheckpoint() || writer.isExport())
    return;
  if (const auto slow = slowSaves.goesOn(secondsSince(writeBegan)))
    tellSlowSave(writer.step(), "has been written for", *slow);
}

void Trainer::report(StepRecord &record) {
  const Progress::Aside logging(progress, Activity::Logging);
  record.saveSeconds = std::exchange(saveSeconds, 0);
  time.stepped(record.stepSeconds);
  record.pendingSeconds = pendingSeconds();
  // The file comes first: a step that a person has seen is in it, whatever happens next.
  auto written = metrics ? metrics->write(record) : Result<void>();
  console.step(record);
  if (monitors)
    monitors->step(record, session.settings.logInterval);
  watchForSlowRanks(record.step);
  slowSteps.observe(record);
  watchForSlowSave();
  sayExpectedTime(record);
  if (!written && !metricsHeldBack)
    console.warning(fmt::format("{}; the run goes on, and metrics are kept in memory until they "
                                "can be written",
                                written.error().message));
  metricsHeldBack = !written;
}

static constexpr const char *kPermanent = "permanent checkpoint", *kExport = "export",
                            *kKeepEvery = "checkpoint.keep_every",
                            *kExportInterval = "checkpoint.export_interval";

KeepRules Trainer::keepRules() const {
  const TrainSettings &settings = session.settings;
  KeepRules keep(static_cast<int>(settings.checkpointKeep));
  keep.every = static_cast<uint64_t>(settings.checkpointKeepEvery);
  for (const ValidationSettings &set : settings.validations)
    if (isKeptBest(set))
      keep.best = lossKey(set);
  return keep;
}

SaveJob Trainer::jobOf(bool checkpoint, std::string exportFolder) {
  if (checkpoint && session.world.rank() == 0)
    if (const auto warning = space.look())
      console.warning(*warning);
  session.progress.extra[kGuardState] = guard.state();
  session.progress.extra[kUpdatesState] = updateWatch.state();
  session.progress.extra.erase(kStandsFor);
  const uint64_t done = session.progress.step;
  if (checkpoint) {
    if (isPermanent(done))
      tellLost(latePermanent, kPermanent, kKeepEvery);
    writesPermanent = isPermanent(done) ? std::optional(done) : latePermanent;
    latePermanent.reset();
    if (writesPermanent && *writesPermanent != done)
      session.progress.extra[kStandsFor] = fmt::format("{}", *writesPermanent);
  }
  if (!exportFolder.empty()) {
    const bool isExact = isDue(done, session.settings.exportInterval);
    if (isExact)
      tellLost(lateExport, kExport, kExportInterval);
    writesExport = isExact ? std::optional(done) : lateExport;
    lateExport.reset();
  }
  SaveJob job{.state = session.progress,
              .checkpoint = checkpoint,
              .keep = keepRules(),
              .exportFolder = std::move(exportFolder)};
  if (const auto suspect = guard.suspectSince())
    job.suspect = static_cast<uint64_t>(*suspect);
  // What was saved since the weights were compared may be damaged; a checkpoint from before stays.
  if (comparison && equalStep() > 0)
    job.suspect = std::min(job.suspect.value_or(UINT64_MAX), equalStep() + 1);
  // The records of the steps reach the disk before the checkpoint that follows them, also those
  // that were kept while it could not be written. That it still cannot has been told.
  if (metrics) {
    (void)metrics->flush();
    job.before = [&records = *metrics] { records.sync(); };
  }
  return job;
}

Result<void> Trainer::saveNow(bool checkpoint, const std::string &exportFolder) {
  progress.enter(Activity::Saving, session.progress.step);
  LMC_TRY(finishSave());
  const auto start = std::chrono::steady_clock::now();
  const SaveOutcome outcome = writer.write(jobOf(checkpoint, exportFolder));
  takeOutcome(outcome, secondsSince(start));
  return {};
}

std::string Trainer::exportFolder(uint64_t step) const {
  return fmt::format("{}/exports/{}", directory.path(), step);
}

bool Trainer::isPermanent(uint64_t step) const {
  return isDue(step, session.settings.checkpointKeepEvery);
}

void Trainer::tellLost(const std::optional<uint64_t> &late, const char *what, const char *key) {
  if (!late)
    return;
  console.warning(fmt::format("step {}: there is no {} of step {}: writing what was due before it "
                              "took longer than {}",
                              session.progress.step, what, *late, key));
  log.event("lost_save", {{"step", *late}, {"what", what}});
}

void Trainer::postpone(uint64_t done, bool saves, bool exports) {
  if (!saveIsLate && !lateExport)
    console.note(fmt::format("step {}: what was saved after step {} is still being written; the "
                             "next {} follows it",
                             done, writer.step(), saves ? "checkpoint" : "export"));
  log.event("late_save", {{"step", done}, {"behind", writer.step()}});
  saveIsLate |= saves;
  if (saves && isPermanent(done)) {
    tellLost(latePermanent, kPermanent, kKeepEvery);
    latePermanent = done;
  }
  if (exports) {
    tellLost(lateExport, kExport, kExportInterval);
    lateExport = done;
  }
}

Result<void> Trainer::completeExports() {
  const uint64_t done = session.progress.step;
  bool isMissing = false; // known to rank 0, which writes the folder's names
  if (session.world.rank() == 0) {
    if (const std::string exports = directory.path() + "/exports"; exists(exports))
      if (auto removed = removeInterrupted(exports); !removed)
        console.warning(fmt::format("{}; the run goes on", removed.error().message));
    // A checkpoint of another run (--resume=PATH) is not the newest of this folder.
    isMissing = knownSave && knownSave->step == done &&
                isDue(done, session.settings.exportInterval) && !exists(exportFolder(done));
  }
  const auto exporting = anyOf(ranks, isMissing);
  LMC_TRY(exporting);
  return *exporting ? saveNow(/*checkpoint=*/false, exportFolder(done)) : Result<void>();
}

Result<void> Trainer::saveDue(const StepRecord &record) {
  const uint64_t done = session.progress.step;
  const bool saves = savesAfter(done), exports = exportsAfter(done);
  if (!saves && !exports)
    return {};
  const std::string folder = exports ? exportFolder(done) : "";
  if (!writer.hasSnapshot())
    return saveNow(saves, folder);
  if (writer.isBusy()) {
    postpone(done, saves, exports);
    return {};
  }
  progress.enter(Activity::Saving, done);
  saveIsLate = false;
  const auto start = std::chrono::steady_clock::now();
  writeBegan = start;
  SaveJob job = jobOf(saves, folder);
  // The moments after a step that was skipped are those of an earlier one.
  if (record.skipped == SkipReason::None)
    job.update = adamWStep(session.settings, record.step, record.lr);
  LMC_TRY(writer.begin(std::move(job)));
  copySeconds = secondsSince(start);
  saveSeconds += copySeconds;
  return {};
}

Result<void> Trainer::finishSave() {
  if (!writer.isBusy())
    return {};
  const auto start = std::chrono::steady_clock::now();
  const auto outcome = writer.finish();
  LMC_TRY(outcome);
  takeOutcome(*outcome, copySeconds + secondsSince(start));
  return {};
}

// Returns "300 s" or "2.5 hours".
static std::string ageText(double seconds) {
  return seconds < 7200 ? fmt::format("{:.0f} s", seconds)
                        : fmt::format("{:.1f} hours", seconds / 3600);
}

std::optional<Trainer::SavedBefore> Trainer::newestCheckpoint() const {
  const auto steps = listCheckpoints(directory.path());
  if (!steps || steps->empty())
    return std::nullopt;
  const std::string state =
      fmt::format("{}/checkpoints/{}/state.json", directory.path(), steps->front());
  std::error_code failed;
  const auto written = std::filesystem::last_write_time(state, failed);
  if (failed)
    return std::nullopt;
  const std::chrono::duration<double> age = std::filesystem::file_time_type::clock::now() - written;
  return SavedBefore{steps->front(), age.count()};
}

void Trainer::tellFailedSave(uint64_t step, const Error &error) {
  std::string others = "and has no checkpoint yet";
  std::optional<SavedBefore> newest = newestCheckpoint();
  if (newest) {
    others = fmt::format("and earlier checkpoints are whole: the newest, of step {}, is {} old",
                         newest->step, ageText(newest->seconds));
  } else if (knownSave) {
    newest = SavedBefore{knownSave->step, secondsSince(knownSave->written)};
    others = fmt::format("and the newest checkpoint, of step {}, is {} old and cannot be read now",
                         newest->step, ageText(newest->seconds));
  }
  console.warning(fmt::format("checkpoint of step {} not saved: {}; the run goes on, {}", step,
                              error.message, others));
  nlohmann::ordered_json event = {{"step", step}, {"error", error.message}};
  if (newest) {
    event["saved_step"] = newest->step;
    event["saved_age_seconds"] = newest->seconds;
  }
  log.event("save_failed", event);
}

void Trainer::takeOutcome(const SaveOutcome &outcome, double waited) {
  const double copied = std::exchange(copySeconds, 0);
  saveSeconds += waited - copied; // the copy was counted when it was made
  for (const std::string &warning : outcome.warnings)
    console.warning(warning);
  const TrainSettings &settings = session.settings;
  if (const auto &part = outcome.checkpoint) {
    saveError.reset();
    if (part->written) {
      savedStep = outcome.step;
      knownSave = KnownSave{savedStep, std::chrono::steady_clock::now()};
      failedSaves = 0;
      retryStep = 0;
      saves.add(waited);
      time.saved(part->seconds + outcome.updateSeconds);
      console.note(fmt::format("saved {} ({} in {:.1f} s)", part->path, formatBytes(part->bytes),
                               part->seconds));
      nlohmann::ordered_json event = {{"step", outcome.step},     {"path", part->path},
                                      {"bytes", part->bytes},     {"seconds", part->seconds},
                                      {"waited_seconds", waited}, {"copy_seconds", copied}};
      if (writesPermanent && *writesPermanent != outcome.step) {
        console.note(fmt::format("the checkpoint of step {} is kept for the permanent one of step "
                                 "{}, which could not be written in time",
                                 outcome.step, *writesPermanent));
        event[kStandsFor] = *writesPermanent;
      }
      log.event("checkpoint", event);
      if (const auto slow = slowSaves.ended(part->seconds))
        tellSlowSave(outcome.step, "took", *slow);
    } else {
      slowSaves.failed();
      if (!latePermanent) // no later one is due already
        latePermanent = writesPermanent;
      saveError = part->written.error();
      // 1, 2, 4 ... steps later, but no later than the interval.
      const int64_t delay = int64_t(1) << std::min<int64_t>(failedSaves++, 30);
      // All ranks have enqueued the same steps, and may have settled others.
      retryStep =
          enqueuedStep +
          static_cast<uint64_t>(std::min(delay, std::max<int64_t>(settings.checkpointInterval, 1)));
      tellFailedSave(outcome.step, *saveError);
    }
  }
  if (const auto &part = outcome.exported) {
    exportError = part->written ? std::nullopt : std::optional<Error>(part->written.error());
    if (exportError) {
      console.warning(
          fmt::format("export of step {} not written: {}", outcome.step, exportError->message));
    } else {
      exports.add(waited);
      exportSeconds = part->seconds;
      console.note(fmt::format("exported {} ({} in {:.1f} s)", part->path, formatBytes(part->bytes),
                               part->seconds));
      nlohmann::ordered_json event = {{"step", outcome.step},
                                      {"path", part->path},
                                      {"bytes", part->bytes},
                                      {"seconds", part->seconds}};
      if (!isDue(outcome.step, settings.exportInterval) && writesExport) {
        console.note(fmt::format("the export of step {} stands for that of step {}, which could "
                                 "not be written in time",
                                 outcome.step, *writesExport));
        event[kStandsFor] = *writesExport;
      }
      log.event("export", event);
    }
  }
  if (outcome.updates)
    takeUpdates(*outcome.updates);
}

void Trainer::takeUpdates(const StepUpdates &step) {
  auto written = updates ? updates->write(step) : Result<void>();
  if (!written && !updatesHeldBack)
    console.warning(
        fmt::format("{}; the run goes on, and the updates of tensors are kept in memory "
                    "until they can be written",
                    written.error().message));
  updatesHeldBack = !written;
  if (monitors)
    monitors->updated(step);
  const auto verdict = updateWatch.observe(step);
  if (!verdict)
    return;
  console.warning(verdict->warning);
  nlohmann::ordered_json tensors = nlohmann::ordered_json::object();
  for (const UpdateWatch::OutOfRange &tensor : verdict->tensors) {
    tensors[tensor.name]["fault"] = nameOf(tensor.fault);
    if (tensor.ratio)
      tensors[tensor.name]["ratio"] = *tensor.ratio;
  }
  log.event(
      "update_ratio",
      {{"step", step.step}, {"limit", session.settings.guard.updateRatio}, {"tensors", tensors}});
}

bool Trainer::isRetry(uint64_t step) const { return retryStep > 0 && step >= retryStep; }

bool Trainer::savesAfter(uint64_t step) const {
  return step < phase.lastStep && (isDue(step, session.settings.checkpointInterval) ||
                                   isPermanent(step) || (bestStep > 0 && bestStep == step) ||
                                   (!writer.isBusy() && (saveIsLate || isRetry(step))));
}

bool Trainer::exportsAfter(uint64_t step) const {
  return isDue(step, session.settings.exportInterval) || (lateExport && !writer.isBusy());
}

bool Trainer::hasWorkAfter(uint64_t step) const {
  const TrainSettings &settings = session.settings;
  const bool validates =
      std::ranges::any_of(settings.validations, [&](const ValidationSettings &set) {
        return set.isDue(step, step == totalSteps);
      });
  return step == phase.lastStep || validates || savesAfter(step) || exportsAfter(step) ||
         (generation && generation->isDue(step, step == totalSteps)) ||
         (comparison && isDue(step, settings.guard.compareWeights));
}

Result<ExitCode> Trainer::train() {
  const uint64_t &done = session.progress.step;
  if (session.trace)
    session.trace->choose(done, phase.lastStep);
  const TrainSettings &settings = session.settings;
  LMC_TRY(completeExports());
  batches = std::make_unique<BatchLoader>(
      *data, session.rows(), session.progress.position,
      static_cast<int>(std::min<int64_t>(settings.numWorkers, 256)));

  while (enqueuedStep < phase.lastStep) {
    auto next = nextBatch();
    if (!next) {
      LMC_TRY(drain(0));
      // If a token file is damaged or cannot be read, the weights are still those of the last
      // complete step, so they are saved.
      if (dataFailed) {
        if (verdict)
          return stopDiverged(*verdict);
        if (done > savedStep)
          LMC_TRY(saveNow(/*checkpoint=*/true, ""));
      }
      return next.error();
    }
    if (!*next)
      break;
    LMC_TRY(enqueue(**next));
    LMC_TRY(drain(1));
    if (verdict || spike)
      break;
    if (!hasWorkAfter(enqueuedStep)) {
      LMC_TRY(settleReady());
      continue;
    }
    auto record = settle();
    LMC_TRY(record);
    auto validated = verdict || spike ? Result<void>() : validate(*record);
    if (validated && !verdict && !spike)
      LMC_TRY(generateText(*record));
    report(*record);
    if (verdict || spike)
      break;
    if (!validated) {
      // The weights are sound, whatever is wrong with the validation data.
      if (done > savedStep && session.device->synchronize())
        LMC_TRY(saveNow(/*checkpoint=*/true, ""));
      return validated.error();
    }
    LMC_TRY(compareWeights());
    LMC_TRY(saveDue(*record));
  }
  LMC_TRY(drain(0));
  if (verdict)
    return stopDiverged(*verdict);
  if (spike)
    return goBack();
  return finish(/*interrupted=*/done < phase.lastStep);
}

Result<ExitCode> Trainer::finish(bool interrupted) {
  uint64_t done = session.progress.step;
  progress.enter(Activity::Ending, done);
  if (session.trace && !session.trace->isWritten()) // it has fewer steps than were asked for
    writeTrace();
  if (outOfTime)
    LMC_TRY(leaveInTime());
  LMC_TRY(finishSave());
  const bool saves = done > firstStep && savedStep != done;
  if (saves || lateExport)
    LMC_TRY(saveNow(saves, lateExport ? exportFolder(done) : ""));
  for (const SourceRecord &source : recordSources())
    console.note(fmt::format("data: {}: {} tokens read, {:.2f} epochs", source.name, source.tokens,
                             source.epochs));
  if (done >= totalSteps && !options.exportDirectory.empty())
    LMC_TRY(saveNow(/*checkpoint=*/false, options.exportDirectory));
  if (metricsHeldBack)
    console.warning("metrics.jsonl lacks the last steps: they could not be written");
  // Failed saves were reported as warnings. If the last save failed, the run must end with an
  // error.
  if (saveError)
    return Error{fmt::format("{}: the last checkpoint, of step {}, could not be saved: {}",
                             directory.path(), done, saveError->message),
                 ExitCode::Failure};
  if (exportError && !interrupted)
    return Error{exportError->message, ExitCode::Failure};
  if (interrupted) {
    console.note(fmt::format("stopped {} after step {}; start again to go on",
                             !outOfTime    ? "by a signal"
                             : time.what() ? fmt::format("in time for {}", time.what()->source)
                                           : "in time for the limit of rank 0",
                             done));
    return ExitCode::Interrupted;
  }
  return ExitCode::Success;
}

} // namespace lmc

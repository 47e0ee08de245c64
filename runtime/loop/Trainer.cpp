#include "runtime/loop/Trainer.h"

#include "ground/plan/Names.h"
#include "runtime/checkpoint/Checkpoint.h"
#include "runtime/comm/Agree.h"
#include "runtime/settings/LrSchedule.h"
#include "runtime/step/Dump.h"
#include "runtime/step/Step.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

namespace lmc {

// Number of marks for the ends of steps: two enqueued steps and the step before them need one each.
static constexpr int kEnds = 3;
Trainer::Trainer(const RunContext &run, std::shared_ptr<DataSource> data)
    : run(run), firstStep(run.session.progress.step), data(std::move(data)),
      sources(this->data->sources()), enqueuedStep(run.session.progress.step),
      routerSums(*run.session.plan), saves(run, watches, metrics, enqueuedStep) {}

Result<void> Trainer::openMetrics() {
  if (!run.isFirstRank())
    return {};
  const uint64_t step = run.session.progress.step;
  auto file =
      LineFile::openAfter(run.directory.path() + "/metrics.jsonl", static_cast<int64_t>(step), [&] {
        auto folder = run.directory.undone();
        if (folder)
          run.console.note(
              fmt::format("steps after {} are now in {}/metrics.jsonl", step, *folder));
        return folder;
      });
  LMC_TRY(file);
  metrics.emplace(std::move(*file));
  return {};
}

Result<void> Trainer::prepare() {
  LMC_LET(evaluators, run.session.makeEvaluators());
  for (size_t i = 0; i < evaluators->size(); ++i)
    validations.push_back({&run.session.settings.validations[i], std::move((*evaluators)[i]), {}});
  LMC_TRY(allSucceed(run.ranks(), openMetrics()));
  LMC_SET(generation, TextGeneration::open(run.session, *data, run.directory, run.console, run.log,
                                           run.observer));
  LMC_TRY(openWatches());
  LMC_TRY(saves.prepare());
  for (int i = 0; i < kEnds; ++i) {
    LMC_LET(mark, run.session.device->makeMark());
    ends.push_back(std::move(*mark));
  }
  LMC_SET(start, run.session.device->makeMark());
  return {};
}

Result<void> Trainer::openWatches() {
  LMC_SET(watches, Watches::open({run.session, run.directory.path(), run.totalSteps}));
  auto &extra = run.session.progress.extra;
  const auto former = extra.find(kPhase);
  bool isChanged = former != extra.end() && former->second != run.phase.name;
  extra.erase(kPhase);
  if (!run.phase.name.empty())
    extra[kPhase] = run.phase.name;
  for (const std::string &warning : watches.restore(extra))
    run.console.warning(fmt::format("{}: {}", *run.session.checkpoint, warning));
  if (!run.session.checkpoint && run.session.initialWeights.empty())
    watches.tell(&Watch::expectFreshWeights);
  for (const DeclaredChange &change : runIdentityFromJson(run.session.progress.run).changes)
    isChanged |= change.step == run.session.progress.step;
  if (isChanged)
    watches.tell(&Watch::expectChange);
  return {};
}

Result<std::optional<Trainer::NextBatch>> Trainer::nextBatch() {
  run.progress().enter(Activity::Reading, enqueuedStep + 1);
  watches.tell(&Watch::begins, static_cast<int64_t>(enqueuedStep) + 1);
  const bool stopHere = run.stop.requested();
  Result<void> owned;
  {
    const Progress::Aside looking(run.progress(), Activity::Logging);
    owned = run.directory.checkOwner();
  }
  const auto asked = std::chrono::steady_clock::now();
  auto batch = batches->next();
  const double waited = secondsSince(asked);
  const bool leaves =
      run.isFirstRank() &&
      run.time.mustLeave(enqueued.size(), secondsAfter(enqueuedStep + 1) + saves.writingSeconds());
  double facts[] = {stopHere ? 1.0 : 0.0,
                    owned ? 0.0 : 1.0,
                    batch ? 0.0 : 1.0,
                    batch ? static_cast<double>(batch->validTargets) : 0.0,
                    saves.isComplete() ? 1.0 : 0.0,
                    leaves ? 1.0 : 0.0};
  LMC_TRY(run.ranks().allReduce(facts, std::size(facts), plan::DType::F64));
  const auto [stops, strangers, failures, targets, writers, late] = facts;
  if (writers == static_cast<double>(run.ranks().size())) {
    const Progress::Aside logging(run.progress(), Activity::Logging);
    LMC_TRY(saves.finish());
  }
  if (strangers > 0)
    LMC_TRY(allSucceed(run.ranks(), owned));
  outOfTime = stops == 0 && late > 0;
  if (stops > 0 || late > 0)
    return std::optional<NextBatch>();
  if (failures > 0) {
    dataFailed = true;
    LMC_TRY(allSucceed(run.ranks(), batch ? Result<void>() : Result<void>(batch.error())));
  }
  NextBatch next{std::move(*batch), waited};
  next.batch.validTargets = static_cast<uint64_t>(targets);
  return std::optional(std::move(next));
}

Result<void> Trainer::enqueue(const NextBatch &next) {
  const auto number = static_cast<int64_t>(enqueuedStep) + 1;
  EnqueuedStep step{.number = number,
                    .lr = learningRate(run.session.settings.lr, number),
                    .dataSeconds = next.seconds,
                    .validTargets = next.batch.validTargets,
                    .ended = ends[static_cast<size_t>(number) % ends.size()].get()};
  step.named = std::ranges::any_of(run.session.settings.skipSteps, [&](const StepRange &range) {
    return range.first <= enqueuedStep + 1 && enqueuedStep + 1 <= range.last;
  });
  // With limits of -1, the device skips any step: losses and gradient norms are never below 0.
  step.limits = step.named ? StepLimits{-1, -1} : watches.limitsOf(number);
  if (enqueued.empty()) {
    LMC_TRY(run.session.device->place(*start));
    step.began = start.get();
  } else {
    step.began = enqueued.back().ended;
  }

  if (next.batch.validTargets == 0) {
    const Progress::Aside logging(run.progress(), Activity::Logging);
    run.console.warning(fmt::format("step {}: no position of this batch has a loss", number));
  }
  if (run.session.trace)
    run.session.trace->begin(static_cast<uint64_t>(number));
  run.progress().enter(Activity::Computing, enqueuedStep + 1);
  LMC_TRY(enqueueGradients(run.session, number, step.lr, step.limits, next.batch, [&] {
    run.progress().enter(Activity::Computing, enqueuedStep + 1);
    return settleReady();
  }));
  if (!run.options.dumpGradients.empty() && !gradientsDumped) {
    run.progress().enter(Activity::Saving, enqueuedStep + 1);
    LMC_TRY(dumpGradients(run.options.dumpGradients, *run.session.plan, *run.session.device,
                          run.session.world));
    gradientsDumped = true;
  }
  run.progress().enter(Activity::Computing, enqueuedStep + 1);
  run.progress().at(names::kOptimizer);
  LMC_TRY(run.session.functions->run(names::kOptimizer));
  if (run.session.trace && run.session.trace->end())
    writeTrace();
  LMC_TRY(run.session.device->place(*ends[static_cast<size_t>(number) % ends.size()]));
  LMC_TRY(run.session.scalars->request());
  enqueued.push_back(step);
  ++enqueuedStep;
  return {};
}

void Trainer::writeTrace() {
  const Progress::Aside logging(run.progress(), Activity::Logging);
  auto written = run.session.trace->write();
  if (written)
    run.console.note(fmt::format("wrote the trace {}", run.session.trace->path()));
  else
    run.console.warning(fmt::format("there is no trace {}: {}", run.session.trace->path(),
                                    written.error().message));
}

Result<StepRecord> Trainer::readStep(const EnqueuedStep &step) {
  LMC_LET(values, run.session.scalars->take());
  auto loss = valueOf(*values, names::kLoss), gradNorm = valueOf(*values, names::kGradNorm),
       paramNorm = valueOf(*values, names::kParamNorm),
       updateNorm = valueOf(*values, names::kUpdateNorm);
  for (const auto *read : {&loss, &gradNorm, &paramNorm, &updateNorm})
    LMC_TRY(*read);
  LMC_LET(seconds, run.session.device->secondsBetween(*step.began, *step.ended));
  StepRecord record;
  record.step = step.number;
  record.phase = run.phase.name;
  record.loss = *loss;
  record.lr = step.lr;
  record.gradNorm = *gradNorm;
  record.skipped = !std::isfinite(*gradNorm) ? SkipReason::NotFinite
                   : step.named              ? SkipReason::Named
                   : *gradNorm > step.limits.norm || *loss > step.limits.loss ? SkipReason::Spike
                                                                              : SkipReason::None;
  record.updateRatio =
      record.skipped != SkipReason::None || *paramNorm == 0 ? 0 : *updateNorm / *paramNorm;
  record.memoryBytes = run.session.device->allocatedBytes();
  record.stepSeconds = *seconds;
  record.dataSeconds = step.dataSeconds;
  routerSums.read(run.session.scalars->vectors(), step.validTargets, record);
  return record;
}

std::vector<SourceRecord> Trainer::recordSources() {
  // Removes sources that the settings no longer have. Keeps sources that only other phases read.
  std::erase_if(run.session.progress.sources, [&](const auto &source) {
    return !run.session.settingTable.find(fmt::format("{}.{}.paths", kSources, source.first));
  });
  std::vector<SourceRecord> records;
  for (size_t i = 0; i < sources.size(); ++i) {
    const SourceFacts &source = sources[i];
    if (source.name.empty())
      continue;
    const uint64_t tokens = data->tokensRead(i, run.session.progress.position);
    run.session.progress.sources[source.name] = {data->tokensRead(i, 0), tokens,
                                                 source.tokensPerEpoch};
    records.push_back({source.name, tokens, double(tokens) / double(source.tokensPerEpoch)});
  }
  return records;
}

Result<StepRecord> Trainer::settle() {
  LMC_LET(record, readStep(enqueued.front()));
  enqueued.pop_front();
  const plan::Plan &plan = **run.session.plan;
  uint64_t stepTokens = plan.batch()->global_batch_size() * plan.batch()->sequence_length();
  run.session.progress.step = static_cast<uint64_t>(record->step);
  run.session.progress.samples += plan.batch()->global_batch_size();
  run.session.progress.tokens += stepTokens;
  run.session.progress.position += stepTokens;
  record->tokens = run.session.progress.tokens;
  record->sources = recordSources();
  // If the device's clock is too coarse, a tiny step may seem to take 0 seconds: the rate is NaN.
  record->tokensPerSecond =
      record->stepSeconds > 0 ? static_cast<double>(stepTokens) / record->stepSeconds : std::nan("");
  // If the peak FLOP/s is unknown, both MFUs are NaN. The metrics show null, the console "?".
  double peak = run.session.deviceInfo.peakFlops > 0
                    ? run.session.deviceInfo.peakFlops * static_cast<double>(plan.batch()->ranks())
                    : std::nan("");
  record->mfuCausal = record->tokensPerSecond * plan.model()->flops_per_token_causal() / peak;
  record->mfuFull = record->tokensPerSecond * plan.model()->flops_per_token_full() / peak;
  record->deviceFlops = record->tokensPerSecond * plan.model()->flops_per_token_causal() /
                        static_cast<double>(plan.batch()->ranks());

  const Progress::Aside logging(run.progress(), Activity::Logging);
  take(watches.ask(&Watch::settled, *record));
  return record;
}

Result<void> Trainer::drain(size_t count) {
  while (enqueued.size() > count) {
    LMC_LET(record, settle());
    report(*record);
  }
  return {};
}

Result<void> Trainer::settleReady() {
  LMC_TRY(saves.poll());
  while (!enqueued.empty()) {
    LMC_LET(ready, run.session.scalars->isReady());
    if (!*ready)
      break;
    LMC_TRY(drain(enqueued.size() - 1));
  }
  return {};
}

std::string Trainer::wayBack(const WatchFinding &finding) const {
  const auto since = static_cast<uint64_t>(finding.since);
  auto steps = listCheckpoints(run.directory.path());
  if (steps)
    for (uint64_t step : *steps)
      if (step < since)
        return fmt::format("go back to before with --rewind={} --set lr_schedule.lr=LOWER "
                           "--change=lr_schedule.lr",
                           step);
  if (run.session.checkpoint && firstStep < since)
    return fmt::format("go back with --resume={}, a lower lr_schedule.lr and another --out",
                       *run.session.checkpoint);
  return "there is no checkpoint from before: start over with a lower lr_schedule.lr and another "
         "--out";
}

Error Trainer::stopDiverged(const WatchFinding &finding) {
  if (finding.action == WatchAction::StopUnsaved)
    return Error{finding.text, ExitCode::Diverged};
  run.progress().enter(Activity::Saving, run.session.progress.step);
  watches.save(run.session.progress.extra);
  LMC_TRY(saves.finish());
  auto kept = saveDiverged(run.directory.path(),
                           stateOf(*run.session.plan, *run.session.device, run.session.world),
                           run.session.progress);
  run.log.event("diverged", {{"step", run.session.progress.step},
                             {"since", finding.since},
                             {"text", finding.text},
                             {"kept", kept ? *kept : ""}});
  return Error{fmt::format("step {}: {}; {}; {}", run.session.progress.step, finding.text,
                           kept ? "the state is kept in " + *kept
                                : "the state could not be kept: " + kept.error().message,
                           wayBack(finding)),
               ExitCode::Diverged};
}

Result<Rollback> Trainer::chooseRollback(uint64_t spike) {
  const GuardConfig &guards = run.session.settings.config.guard;
  // Earlier rollbacks no longer count after guard.refund steps without a spike.
  const auto quiet = static_cast<uint64_t>(guards.refund);
  int64_t done = 0;
  uint64_t before = 0;
  for (const Rollback &back : runIdentityFromJson(run.session.progress.run).rollbacks) {
    done = quiet > 0 && back.spike > before + quiet ? 1 : done + 1;
    before = back.spike;
  }
  if (quiet > 0 && spike > before + quiet)
    done = 0;
  if (done >= guards.rollbacks)
    return userError("the run went back {} time(s) already{} (guard.rollbacks, guard.refund)", done,
                     quiet > 0 ? fmt::format(", each within {} steps of another", quiet) : "");
  LMC_LET(steps, listCheckpoints(run.directory.path()));
  for (uint64_t step : *steps) // newest first
    if (step < spike && step >= run.phase.firstStep)
      return Rollback{step, spike, run.session.progress.position};
  return Error{"the run has no checkpoint from before it; set checkpoint.interval"};
}

Result<ExitCode> Trainer::goBack() {
  LMC_TRY(saves.finish());
  // Only rank 0 reads the folder.
  auto chosen = run.isFirstRank() ? chooseRollback(*spike) : Result<Rollback>(Rollback{});
  auto agreed = allSucceed(run.ranks(), chosen);
  if (!agreed)
    return stopDiverged(
        {.action = WatchAction::Stop,
         .since = static_cast<int64_t>(*spike),
         .text = fmt::format("a spike, and the run cannot go back: {}", agreed.error().message)});
  LMC_LET(step, sumOf(run.ranks(), static_cast<double>(chosen->step)));
  goesBack = Rollback{static_cast<uint64_t>(*step), *spike, run.session.progress.position};
  run.console.note(
      fmt::format("goes back to step {} because of the spike at step {}, and on behind the "
                  "data that was read so far",
                  goesBack->step, *spike));
  run.log.event("rollback", {{"step", goesBack->step},
                             {"spike", *spike},
                             {"from", run.session.progress.step},
                             {"position", goesBack->position}});
  return ExitCode::Success;
}

Result<void> Trainer::validate(StepRecord &record) {
  for (Validation &validation : validations) {
    const ValidationSettings &set = *validation.set;
    if (!set.isDue(run.session.progress.step, run.session.progress.step == run.totalSteps))
      continue;
    run.progress().enter(Activity::Validating, run.session.progress.step);
    auto start = std::chrono::steady_clock::now();
    run.session.device->setPurpose(fmt::format("validation after step {}", record.step));
    bool isLate = false;
    LMC_LET(evaluation, validation.evaluator->evaluate([&] {
      isLate = run.isFirstRank() && run.time.mustSave(saves.writingSeconds());
      return run.stop.requested() || isLate;
    }));
    const double seconds = secondsSince(start);
    record.validationSeconds += seconds;
    if (!evaluation->complete) {
      if (isLate && !run.stop.requested())
        reportUnvalidated(&validation);
      break;
    }
    validation.spent.add(seconds);
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
    run.log.event("validation", std::move(event));
    record.validations.push_back({set.name, evaluation->loss, evaluation->bitsPerByte});
    run.session.progress.extra[lossKey(set)] = fmt::format("{}", evaluation->loss);
    take(watches.ask(&Watch::validated, set, record.step, evaluation->loss));
  }
  return {};
}

Result<void> Trainer::generateText(StepRecord &record) {
  const uint64_t step = run.session.progress.step;
  if (!generation || !generation->isDue(step, step == run.totalSteps))
    return {};
  run.progress().enter(Activity::Generating, step);
  const auto start = std::chrono::steady_clock::now();
  bool isLate = false;
  LMC_LET(whole, generation->generate(step, [&] {
    isLate = run.isFirstRank() && run.time.mustSave(saves.writingSeconds());
    return run.stop.requested() || isLate;
  }));
  const double seconds = secondsSince(start);
  record.validationSeconds += seconds;
  if (*whole) {
    generations.add(seconds);
  } else if (isLate && !run.stop.requested()) {
    run.console.warning(fmt::format("step {}: {} leaves no time for the generation of text", step,
                                    run.time.what()->source));
    run.log.event("generation_cut_off", {{"step", step}, {"source", run.time.what()->source}});
  }
  return {};
}

void Trainer::reportUnvalidated(const Validation *first) {
  const uint64_t step = run.session.progress.step;
  std::vector<std::string> sets;
  for (; first != validations.data() + validations.size(); ++first)
    if (first->set->isDue(step, step == run.totalSteps))
      sets.push_back(first->set->name);
  const std::string &source = run.time.what()->source;
  // If data.validation is the only set, it has no name.
  const std::string names = fmt::format("{}", fmt::join(sets, ", "));
  run.console.warning(
      fmt::format("step {}: {} leaves no time for the validation{}: its loss is not "
                  "known",
                  step, source, names.empty() ? "" : " of " + names));
  nlohmann::ordered_json event = {{"step", step}, {"source", source}};
  if (!names.empty())
    event["sets"] = sets;
  run.log.event("validation_cut_off", event);
}

double Trainer::secondsAfter(uint64_t step) const {
  double seconds = saves.exportSecondsAfter(step);
  if (generation && generation->isDue(step, step == run.totalSteps))
    seconds += generations.mean(); // a generation is cut off if the time limit comes first
  for (const Validation &validation : validations) {
    if (!validation.set->isDue(step, step == run.totalSteps))
      continue;
    // Until a validation is timed, each of its batches is assumed to take as long as a step (too
    // long), or 0 s if no step was timed. The time limit stops a validation that takes too long.
    if (validation.spent.times > 0)
      seconds += validation.spent.mean();
    else if (run.time.hasStepped())
      seconds += validation.evaluator->batches() * run.time.step();
  }
  return seconds;
}

Result<void> Trainer::leaveInTime() {
  const TimeLimit limit = run.time.what().value_or(TimeLimit{0, "the time limit of rank 0"});
  const double left = run.time.what() ? run.time.secondsLeft() : 0;
  run.log.event("time_limit", {{"step", run.session.progress.step},
                               {"source", limit.source},
                               {"left_seconds", left},
                               {"step_seconds", run.time.step()},
                               {"save_seconds", run.time.save()}});
  if (run.time.hasStepped())
    return {};
  // If --restarts restarted the run, the lack of time is not the user's mistake: no UserError.
  return Error{fmt::format("{} leaves {:.1f} s at step {}, and a step with its checkpoint needs "
                           "about {:.1f} s: nothing was trained; give the run more time",
                           limit.source, std::max(left, 0.0), run.session.progress.step,
                           run.time.neededSeconds()),
               run.options.restart > 0 ? ExitCode::Interrupted : ExitCode::UserError};
}

double Trainer::pendingSeconds() const {
  double seconds = saves.pendingSeconds();
  if (generation)
    seconds += run.pendingSeconds(generations, run.session.settings.config.generation.interval, 1);
  for (const Validation &validation : validations)
    seconds += run.pendingSeconds(validation.spent, validation.set->interval, 1);
  return seconds;
}

// After kMeasuredSteps steps, reports how long the rest of the job will take.
void Trainer::reportExpectedTime(const StepRecord &record) {
  constexpr uint64_t kMeasuredSteps = 5;
  const uint64_t done = run.session.progress.step - firstStep;
  if (done > 1)
    stepSeconds += record.stepSeconds;
  if (done != kMeasuredSteps || run.session.progress.step == run.phase.lastStep)
    return;
  const uint64_t left = run.phase.lastStep - run.session.progress.step;
  const double seconds =
      stepSeconds / double(kMeasuredSteps - 1) * double(left) + record.pendingSeconds;
  run.console.note(fmt::format(
      "job: about {:.2f} hours for the other {} steps{}, by the last {}", seconds / 3600, left,
      run.phase.name.empty() ? "" : fmt::format(" of phase {}", run.phase.name),
      kMeasuredSteps - 1));
}

void Trainer::report(StepRecord &record) {
  const Progress::Aside logging(run.progress(), Activity::Logging);
  record.saveSeconds = saves.takeWaited();
  run.time.stepped(record.stepSeconds);
  record.pendingSeconds = pendingSeconds();
  // The metrics file is written first, so that it includes every step that the console shows.
  const std::string unwritten = metrics ? metrics->writeOrWarn(lineOf(record), "metrics") : "";
  run.console.step(record);
  if (run.observer)
    run.observer->step(record, run.session.settings.config.monitoring.logInterval);
  take(watches.ask(&Watch::reported, record));
  saves.watch();
  reportExpectedTime(record);
  if (!unwritten.empty())
    run.console.warning(unwritten);
}

bool Trainer::hasWorkAfter(uint64_t step) const {
  const bool validates = std::ranges::any_of(validations, [&](const Validation &validation) {
    return validation.set->isDue(step, step == run.totalSteps);
  });
  return step == run.phase.lastStep || validates || saves.isDueAfter(step) || watches.isDue(step) ||
         (generation && generation->isDue(step, step == run.totalSteps));
}

void Trainer::take(const WatchFindings &found) {
  run.report(found);
  for (const WatchFinding &finding : found) {
    switch (finding.action) {
    case WatchAction::GoOn:
      break;
    case WatchAction::Save:
      saves.want(run.session.progress.step);
      break;
    case WatchAction::GoBack:
      spike = spike.value_or(static_cast<uint64_t>(finding.since));
      break;
    case WatchAction::Stop:
    case WatchAction::StopUnsaved:
      if (!stops)
        stops = finding;
    }
  }
}

Result<ExitCode> Trainer::train() {
  const uint64_t &done = run.session.progress.step;
  if (run.session.trace)
    run.session.trace->choose(done, run.phase.lastStep);
  const TrainSettings &settings = run.session.settings;
  LMC_TRY(saves.completeExports());
  batches = std::make_unique<BatchLoader>(
      *data, run.session.rows(), run.session.progress.position,
      static_cast<int>(std::min<int64_t>(settings.config.data.numWorkers, 256)));

  while (enqueuedStep < run.phase.lastStep) {
    auto next = nextBatch();
    if (!next) {
      LMC_TRY(drain(0));
      // The weights are saved, because damaged training data does not affect them.
      if (dataFailed) {
        if (stops)
          return stopDiverged(*stops);
        LMC_TRY(saves.saveNewest());
      }
      return next.error();
    }
    if (!*next)
      break;
    LMC_TRY(enqueue(**next));
    LMC_TRY(drain(1));
    if (mustLeave())
      break;
    if (!hasWorkAfter(enqueuedStep)) {
      LMC_TRY(settleReady());
      continue;
    }
    LMC_LET(record, settle());
    auto validated = mustLeave() ? Result<void>() : validate(*record);
    if (validated && !mustLeave())
      LMC_TRY(generateText(*record));
    report(*record);
    if (mustLeave())
      break;
    if (!validated) {
      // The weights are saved, because faulty validation data does not affect them.
      if (run.session.device->synchronize())
        LMC_TRY(saves.saveNewest());
      return validated.error();
    }
    LMC_LET(seen, watches.look(done));
    take(*seen);
    if (mustLeave())
      break;
    LMC_TRY(saves.saveDue(*record));
  }
  LMC_TRY(drain(0));
  if (stops)
    return stopDiverged(*stops);
  if (spike)
    return goBack();
  return finish(/*interrupted=*/done < run.phase.lastStep);
}

Result<ExitCode> Trainer::finish(bool interrupted) {
  uint64_t done = run.session.progress.step;
  run.progress().enter(Activity::Ending, done);
  if (run.session.trace &&
      !run.session.trace->isWritten()) // the run ended before all steps of the trace
    writeTrace();
  if (outOfTime)
    LMC_TRY(leaveInTime());
  LMC_TRY(saves.finish());
  LMC_TRY(saves.saveLast(/*hasTrained=*/done > firstStep));
  for (const SourceRecord &source : recordSources())
    run.console.note(fmt::format("data: {}: {} tokens read, {:.2f} epochs", source.name,
                                 source.tokens, source.epochs));
  if (done >= run.totalSteps && !run.options.exportDirectory.empty())
    LMC_TRY(saves.saveNow(/*checkpoint=*/false, run.options.exportDirectory));
  if (metrics && metrics->isBehind())
    run.console.warning("metrics.jsonl lacks the last steps: they could not be written");
  // Earlier failed saves were warnings; if the last save failed, the run ends with an error.
  if (const auto &error = saves.saveError())
    return machineError("{}: the last checkpoint, of step {}, could not be saved: {}",
                        run.directory.path(), done, error->message);
  if (const auto &error = saves.exportError(); error && !interrupted)
    return Error{error->message, ExitCode::Failure};
  if (interrupted) {
    run.console.note(fmt::format("stopped {} after step {}; start again to go on",
                                 !outOfTime ? "by a signal"
                                 : run.time.what()
                                     ? fmt::format("in time for {}", run.time.what()->source)
                                     : "in time for the limit of rank 0",
                                 done));
    return ExitCode::Interrupted;
  }
  return ExitCode::Success;
}

} // namespace lmc

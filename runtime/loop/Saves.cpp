#include "runtime/loop/Saves.h"

#include "ground/support/File.h"
#include "ground/support/Size.h"
#include "runtime/checkpoint/Checkpoint.h"
#include "runtime/comm/Agree.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace lmc {

static constexpr const char *kPermanent = "permanent checkpoint", *kExport = "export",
                            *kKeepEvery = "checkpoint.keep_every",
                            *kExportInterval = "checkpoint.export_interval";

std::string lossKey(const ValidationSettings &set) {
  return set.name.empty() ? "validation_loss"
                          : fmt::format("{}.{}.loss", kValidationSets, set.name);
}

double secondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Saves::Saves(const RunContext &run, Watches &watches, std::optional<LineFile> &metrics,
             const uint64_t &enqueuedStep)
    : run(run), watches(watches), metrics(metrics), enqueuedStep(enqueuedStep),
      settings(run.session.settings),
      writer(run.directory.path(), *run.session.plan, *run.session.device, run.session.world),
      savedStep(run.session.progress.step) {}

Result<void> Saves::prepare() {
  knownSave = newestCheckpoint();
  const CheckpointConfig &config = settings.config.checkpoint;
  if (config.background && (settings.checkpointInterval > 0 || config.exportInterval > 0)) {
    if (auto allocated = writer.allocate())
      run.console.note(fmt::format("checkpoints are written behind the steps, from a copy of the "
                                   "state in {} of host memory",
                                   formatBytes(writer.snapshotBytes())));
    else
      run.console.warning(
          fmt::format("{}; steps wait until checkpoints are written", allocated.error().message));
  }
  return allSucceed(run.ranks(), openUpdates());
}

Result<void> Saves::openUpdates() {
  const std::string path = run.directory.path() + "/updates.jsonl";
  if (!run.isFirstRank() || !(writer.hasSnapshot() || std::filesystem::exists(path)))
    return {};
  LMC_LET(opened, LineFile::openAfter(path, static_cast<int64_t>(run.session.progress.step),
                                      [&] { return run.directory.undone(); }));
  updates.emplace(std::move(*opened));
  return {};
}

double Saves::writingSeconds() const {
  if (!writer.isBusy() || !run.time.what())
    return 0;
  const double whole = (writer.isCheckpoint() ? run.time.save() : 0) +
                       (writer.isExport() ? std::max(exportSeconds, run.time.save()) : 0);
  return std::max(0.0, whole - secondsSince(began));
}

void Saves::watch() {
  if (!writer.isBusy() || writer.isWritten() || !writer.isCheckpoint() || writer.isExport())
    return;
  run.report(watches.ask(&Watch::writing, writer.step(), secondsSince(began)));
}

KeepRules Saves::keepRules() const {
  const CheckpointConfig &config = settings.config.checkpoint;
  KeepRules keep(static_cast<int>(config.keep));
  keep.every = static_cast<uint64_t>(config.keepEvery);
  for (const ValidationSettings &set : settings.validations)
    if (config.keepBest == (set.name.empty() ? kValidationData : set.name))
      keep.best = lossKey(set);
  keep.suspect = watches.suspectSince();
  return keep;
}

SaveJob Saves::jobOf(bool checkpoint, std::string exportFolder) {
  if (checkpoint)
    run.report(watches.ask(&Watch::saving));
  watches.save(run.session.progress.extra);
  run.session.progress.extra.erase(kStandsFor);
  const uint64_t done = run.session.progress.step;
  if (checkpoint) {
    if (isPermanent(done))
      reportLost(latePermanent, kPermanent, kKeepEvery);
    writesPermanent = isPermanent(done) ? std::optional(done) : latePermanent;
    latePermanent.reset();
    if (writesPermanent && *writesPermanent != done)
      run.session.progress.extra[kStandsFor] = fmt::format("{}", *writesPermanent);
  }
  if (!exportFolder.empty()) {
    const bool isExact = isDue(done, settings.config.checkpoint.exportInterval);
    if (isExact)
      reportLost(lateExport, kExport, kExportInterval);
    writesExport = isExact ? std::optional(done) : lateExport;
    lateExport.reset();
  }
  SaveJob job{.state = run.session.progress,
              .checkpoint = checkpoint,
              .keep = keepRules(),
              .exportFolder = std::move(exportFolder)};
  // The records of all earlier steps must be on the disk before the checkpoint. A failed write is
  // ignored here, because it was reported when it happened.
  if (metrics) {
    (void)metrics->flush();
    job.before = [&records = *metrics] { records.sync(); };
  }
  return job;
}

Result<void> Saves::saveNow(bool checkpoint, const std::string &exportFolder) {
  run.progress().enter(Activity::Saving, run.session.progress.step);
  LMC_TRY(finish());
  const auto start = std::chrono::steady_clock::now();
  const SaveOutcome outcome = writer.write(jobOf(checkpoint, exportFolder));
  takeOutcome(outcome, secondsSince(start));
  return {};
}

std::string Saves::exportFolder(uint64_t step) const {
  return fmt::format("{}/exports/{}", run.directory.path(), step);
}

bool Saves::isPermanent(uint64_t step) const {
  return isDue(step, settings.config.checkpoint.keepEvery);
}

void Saves::reportLost(const std::optional<uint64_t> &late, const char *what, const char *key) {
  if (!late)
    return;
  run.console.warning(
      fmt::format("step {}: there is no {} of step {}: writing what was due before it "
                  "took longer than {}",
                  run.session.progress.step, what, *late, key));
  run.log.event("lost_save", {{"step", *late}, {"what", what}});
}

void Saves::postpone(uint64_t done, bool saves, bool exports) {
  if (!isLate && !lateExport)
    run.console.note(
        fmt::format("step {}: what was saved after step {} is still being written; the "
                    "next {} follows it",
                    done, writer.step(), saves ? "checkpoint" : "export"));
  run.log.event("late_save", {{"step", done}, {"behind", writer.step()}});
  isLate |= saves;
  if (saves && isPermanent(done)) {
    reportLost(latePermanent, kPermanent, kKeepEvery);
    latePermanent = done;
  }
  if (exports) {
    reportLost(lateExport, kExport, kExportInterval);
    lateExport = done;
  }
}

Result<void> Saves::completeExports() {
  const uint64_t done = run.session.progress.step;
  bool isMissing = false; // known only to rank 0, which reads the folder
  if (run.isFirstRank()) {
    if (const std::string exports = run.directory.path() + "/exports"; exists(exports))
      if (auto removed = removeInterrupted(exports); !removed)
        run.console.warning(fmt::format("{}; the run goes on", removed.error().message));
    // knownSave is a checkpoint in this folder, never that of another run (--resume=PATH).
    isMissing = knownSave && knownSave->step == done &&
                isDue(done, settings.config.checkpoint.exportInterval) &&
                !exists(exportFolder(done));
  }
  LMC_LET(exporting, anyOf(run.ranks(), isMissing));
  return *exporting ? saveNow(/*checkpoint=*/false, exportFolder(done)) : Result<void>();
}

Result<void> Saves::saveDue(const StepRecord &record) {
  const uint64_t done = run.session.progress.step;
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
  run.progress().enter(Activity::Saving, done);
  isLate = false;
  const auto start = std::chrono::steady_clock::now();
  began = start;
  SaveJob job = jobOf(saves, folder);
  // A skipped step leaves the moments unchanged, so no update can be computed from them.
  if (record.skipped == SkipReason::None)
    job.update = adamWStep(settings, record.step, record.lr);
  LMC_TRY(writer.begin(std::move(job)));
  copySeconds = secondsSince(start);
  waited += copySeconds;
  return {};
}

Result<void> Saves::finish() {
  if (!writer.isBusy())
    return {};
  const auto start = std::chrono::steady_clock::now();
  LMC_LET(outcome, writer.finish());
  takeOutcome(*outcome, copySeconds + secondsSince(start));
  return {};
}

// Returns "300 s" or "2.5 hours".
static std::string ageText(double seconds) {
  return seconds < 7200 ? fmt::format("{:.0f} s", seconds)
                        : fmt::format("{:.1f} hours", seconds / 3600);
}

std::optional<Saves::KnownSave> Saves::newestCheckpoint() const {
  const auto steps = listCheckpoints(run.directory.path());
  if (!steps || steps->empty())
    return std::nullopt;
  const std::string state =
      fmt::format("{}/checkpoints/{}/state.json", run.directory.path(), steps->front());
  std::error_code failed;
  const auto written = std::filesystem::last_write_time(state, failed);
  if (failed)
    return std::nullopt;
  using Clock = std::chrono::steady_clock;
  const auto age = std::filesystem::file_time_type::clock::now() - written;
  return KnownSave{steps->front(), Clock::now() - std::chrono::duration_cast<Clock::duration>(age)};
}

void Saves::reportFailed(uint64_t step, const Error &error) {
  std::string others = "and has no checkpoint yet";
  const std::optional<KnownSave> found = newestCheckpoint(), newest = found ? found : knownSave;
  const double age = newest ? secondsSince(newest->written) : 0;
  if (found)
    others = fmt::format("and earlier checkpoints are whole: the newest, of step {}, is {} old",
                         found->step, ageText(age));
  else if (newest)
    others = fmt::format("and the newest checkpoint, of step {}, is {} old and cannot be read now",
                         newest->step, ageText(age));
  run.console.warning(fmt::format("checkpoint of step {} not saved: {}; the run goes on, {}", step,
                                  error.message, others));
  nlohmann::ordered_json event = {{"step", step}, {"error", error.message}};
  if (newest) {
    event["saved_step"] = newest->step;
    event["saved_age_seconds"] = age;
  }
  run.log.event("save_failed", event);
}

void Saves::takeOutcome(const SaveOutcome &outcome, double seconds) {
  const double copied = std::exchange(copySeconds, 0);
  waited += seconds - copied; // `copied` was added to `waited` when the copy was made
  run.console.warnings(outcome.warnings);
  if (outcome.checkpoint)
    takeCheckpoint(outcome, seconds, copied);
  if (outcome.exported)
    takeExport(outcome.step, *outcome.exported, seconds);
  if (outcome.updates)
    takeUpdates(*outcome.updates);
}

void Saves::takeCheckpoint(const SaveOutcome &outcome, double seconds, double copied) {
  const SaveOutcome::Part &part = *outcome.checkpoint;
  const auto took = part.written ? std::optional(part.seconds) : std::nullopt;
  if (!part.written) {
    run.report(watches.ask(&Watch::saved, outcome.step, took));
    if (!latePermanent) // has a value if the permanent checkpoint of a later step was postponed
      latePermanent = writesPermanent;
    errorOfSave = part.written.error();
    // After n failed saves in a row, the next attempt is min(2^(n-1), checkpoint interval) steps
    // after the latest enqueued step, which is the same on all ranks.
    const int64_t delay = int64_t(1) << std::min<int64_t>(failedSaves++, 30);
    retryStep =
        enqueuedStep +
        static_cast<uint64_t>(std::min(delay, std::max<int64_t>(settings.checkpointInterval, 1)));
    return reportFailed(outcome.step, *errorOfSave);
  }
  errorOfSave.reset();
  savedStep = outcome.step;
  knownSave = KnownSave{savedStep, std::chrono::steady_clock::now()};
  failedSaves = 0;
  retryStep = 0;
  saves.add(seconds);
  run.time.saved(part.seconds + outcome.updateSeconds);
  run.console.note(
      fmt::format("saved {} ({} in {:.1f} s)", part.path, formatBytes(part.bytes), part.seconds));
  nlohmann::ordered_json event = {{"step", outcome.step},      {"path", part.path},
                                  {"bytes", part.bytes},       {"seconds", part.seconds},
                                  {"waited_seconds", seconds}, {"copy_seconds", copied}};
  if (writesPermanent && *writesPermanent != outcome.step) {
    run.console.note(fmt::format("the checkpoint of step {} is kept for the permanent one of step "
                                 "{}, which could not be written in time",
                                 outcome.step, *writesPermanent));
    event[kStandsFor] = *writesPermanent;
  }
  run.log.event("checkpoint", event);
  run.report(watches.ask(&Watch::saved, outcome.step, took));
}

void Saves::takeExport(uint64_t step, const SaveOutcome::Part &part, double seconds) {
  errorOfExport = part.written ? std::nullopt : std::optional<Error>(part.written.error());
  if (errorOfExport)
    return run.console.warning(
        fmt::format("export of step {} not written: {}", step, errorOfExport->message));
  exports.add(seconds);
  exportSeconds = part.seconds;
  run.console.note(fmt::format("exported {} ({} in {:.1f} s)", part.path, formatBytes(part.bytes),
                               part.seconds));
  nlohmann::ordered_json event = {
      {"step", step}, {"path", part.path}, {"bytes", part.bytes}, {"seconds", part.seconds}};
  if (!isDue(step, settings.config.checkpoint.exportInterval) && writesExport) {
    run.console.note(fmt::format("the export of step {} stands for that of step {}, which could "
                                 "not be written in time",
                                 step, *writesExport));
    event[kStandsFor] = *writesExport;
  }
  run.log.event("export", event);
}

void Saves::takeUpdates(const StepUpdates &step) {
  if (updates)
    if (const auto warning = updates->writeOrWarn(lineOf(step), "the updates of tensors");
        !warning.empty())
      run.console.warning(warning);
  if (run.observer)
    run.observer->updated(step);
  run.report(watches.ask(&Watch::updated, step));
}

Result<void> Saves::saveNewest() {
  return run.session.progress.step > savedStep ? saveNow(/*checkpoint=*/true, "") : Result<void>();
}

Result<void> Saves::saveLast(bool hasTrained) {
  const uint64_t done = run.session.progress.step;
  const bool saves = hasTrained && savedStep != done;
  return saves || lateExport ? saveNow(saves, lateExport ? exportFolder(done) : "")
                             : Result<void>();
}

double Saves::exportSecondsAfter(uint64_t step) const {
  if (!isDue(step, settings.config.checkpoint.exportInterval))
    return 0;
  return exports.times > 0 ? exports.mean() : run.time.save();
}

double Saves::pendingSeconds() const {
  return run.pendingSeconds(saves, settings.checkpointInterval, 1) +
         run.pendingSeconds(exports, settings.config.checkpoint.exportInterval, 0);
}

bool Saves::savesAfter(uint64_t step) const {
  return step < run.phase.lastStep &&
         (isDue(step, settings.checkpointInterval) || isPermanent(step) ||
          (bestStep > 0 && bestStep == step) || (!writer.isBusy() && (isLate || isRetry(step))));
}

bool Saves::exportsAfter(uint64_t step) const {
  return isDue(step, settings.config.checkpoint.exportInterval) || (lateExport && !writer.isBusy());
}

} // namespace lmc

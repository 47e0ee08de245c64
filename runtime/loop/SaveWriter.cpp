#include "runtime/loop/SaveWriter.h"

#include "ground/support/File.h"
#include "runtime/checkpoint/Checkpoint.h"
#include "runtime/checkpoint/RunTokenizer.h"
#include "runtime/comm/Agree.h"
#include "runtime/watch/UpdateRatios.h"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <utility>

namespace lmc {

static uint64_t folderBytes(const std::string &path) {
  uint64_t bytes = 0;
  std::error_code failed;
  for (std::filesystem::directory_iterator at(path, failed), end; !failed && at != end;
       at.increment(failed)) {
    std::error_code unknown;
    const uint64_t size = at->file_size(unknown);
    bytes += unknown ? 0 : size;
  }
  return bytes;
}

static Result<void> writeExport(const SaveJob &job, const PlanFile &plan, const StateSource &source,
                                std::vector<std::string> &warnings) {
  ExportOptions options;
  auto tokenizer = source.group.position() == 0
                       ? addTokenizer(runIdentityFromJson(job.state.run), "", options)
                       : Result<void>();
  if (!tokenizer)
    warnings.push_back(fmt::format("{}; the export has no tokenizer", tokenizer.error().message));
  // If there are no new tokenizer files, keeps the files of an earlier export to this folder.
  std::error_code unknown;
  if (options.files.empty() && std::filesystem::is_directory(job.exportFolder, unknown))
    if (auto files = tokenizerFiles(job.exportFolder))
      options.files = std::move(*files);
  return exportRun(job.exportFolder, options, plan, source);
}

static SaveOutcome writeJob(const std::string &folder, const SaveJob &job, const PlanFile &plan,
                            const StateSource &source) {
  SaveOutcome outcome;
  outcome.step = job.state.step;
  auto timed = [](std::string path, auto act) {
    SaveOutcome::Part part;
    part.path = std::move(path);
    const auto start = std::chrono::steady_clock::now();
    part.written = act();
    part.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    part.bytes = part.written ? folderBytes(part.path) : 0;
    return part;
  };
  if (job.before)
    job.before();
  std::string remark;
  if (job.checkpoint)
    outcome.checkpoint = timed(fmt::format("{}/checkpoints/{}", folder, job.state.step), [&] {
      return saveRun(folder, source, job.state, job.keep, &remark);
    });
  if (!remark.empty())
    outcome.warnings.push_back(remark);
  // If the file system failed during an earlier export, its incomplete folder may still exist.
  if (const std::string exports = folder + "/exports";
      !job.exportFolder.empty() && source.group.position() == 0 && exists(exports))
    if (auto removed = removeInterrupted(exports); !removed)
      outcome.warnings.push_back(removed.error().message);
  if (!job.exportFolder.empty())
    outcome.exported = timed(job.exportFolder,
                             [&] { return writeExport(job, plan, source, outcome.warnings); });
  return outcome;
}

SaveWriter::SaveWriter(const std::string &runDirectory, const PlanFile &plan, Device &device,
                       World &world)
    : folder(runDirectory), plan(plan), device(device), world(world) {}

SaveWriter::~SaveWriter() {
  if (thread.joinable())
    thread.join();
}

Result<void> SaveWriter::allocate() {
  LMC_SET(snapshot, allSucceed(world.all(), Snapshot::make(plan, device, world)));
  return {};
}

SaveOutcome SaveWriter::write(const SaveJob &job) {
  return writeJob(folder, job, plan, stateOf(plan, device, world));
}

Result<void> SaveWriter::begin(SaveJob next) {
  LMC_TRY(snapshot->take());
  job = std::move(next);
  written = false;
  return poll();
}

Result<void> SaveWriter::poll() {
  if (!job || thread.joinable())
    return {};
  LMC_LET(complete, snapshot->isComplete());
  if (*complete)
    startThread();
  return {};
}

void SaveWriter::startThread() {
  thread = std::thread([this] {
    const StateSource source{
        [this](plan::VariableKind kind) {
          DeviceTensors tensors = snapshot->tensorsOfKind(kind);
          tensors.fetch = [this, fetch = std::move(tensors.fetch)](size_t index, void *data) {
            ++pieces;
            return fetch(index, data);
          };
          return tensors;
        },
        world.background(), [this] { ++pieces; }};
    outcome = writeJob(folder, *job, plan, source);
    if (job->update)
      addUpdates();
    written = true;
  });
}

void SaveWriter::addUpdates() {
  const auto start = std::chrono::steady_clock::now();
  auto updates = updatesOf([this](plan::VariableKind kind) { return snapshot->partsOfKind(kind); },
                           *job->update, world.background(), [this] { ++pieces; });
  outcome.updateSeconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (updates)
    outcome.updates = std::move(*updates);
  else
    outcome.warnings.push_back(fmt::format("the updates of step {} are not known: {}",
                                           job->state.step, updates.error().message));
}

Result<SaveOutcome> SaveWriter::finish() {
  if (!thread.joinable()) {
    LMC_TRY(snapshot->wait());
    startThread();
  }
  constexpr std::chrono::milliseconds kPause(5);
  for (uint64_t seen = pieces; !written; std::this_thread::sleep_for(kPause))
    if (const uint64_t now = pieces; now != seen) {
      seen = now;
      world.progress().move();
    }
  thread.join();
  job.reset();
  return std::exchange(outcome, {});
}

} // namespace lmc

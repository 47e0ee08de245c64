#include "runtime/folder/RunDirectory.h"

#include "ground/support/File.h"
#include "ground/support/FileWait.h"
#include "ground/support/Json.h"
#include "ground/support/Number.h"
#include "runtime/checkpoint/SafeTensors.h"
#include "runtime/comm/Agree.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <map>
#include <sys/file.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

namespace lmc {

using plan::VariableKind;

static constexpr uint64_t kMaximumIdentityBytes = 64 << 20;

static constexpr std::array<std::pair<const char *, VariableKind>, 5> kStateFiles = {{
    {kWeightsFile, VariableKind::Parameter},
    {"moment1.safetensors", VariableKind::Moment1},
    {"moment2.safetensors", VariableKind::Moment2},
    {"moment1_scale.safetensors", VariableKind::Moment1Scale},
    {"moment2_scale.safetensors", VariableKind::Moment2Scale},
}};

// Returns the text of the lock file, which names the process that holds the lock.
static std::string readLock(int fd) {
  std::array<char, 512> text{};
  ssize_t count = ::pread(fd, text.data(), text.size(), 0);
  return std::string(text.data(), count > 0 ? static_cast<size_t>(count) : 0);
}

static Error isHeld(const std::string &path, int fd) {
  const std::string holder = readLock(fd);
  return userError("{}: another run{} is writing here; give this one its own --out", path,
                   holder.empty() ? "" : fmt::format(" ({})", holder.substr(0, holder.find(','))));
}

// Tries for 10 seconds to lock the file: checkFree() of another process may lock it briefly.
static Result<void> lockToWrite(int fd, const std::string &path) {
  constexpr int kTries = 1000;
  for (int i = 0; ::flock(fd, LOCK_EX | LOCK_NB) != 0; ++i) {
    if (errno != EWOULDBLOCK)
      return systemError("lock", path + "/run.lock", errno);
    if (i == kTries || ::flock(fd, LOCK_SH | LOCK_NB) != 0)
      return isHeld(path, fd);
    (void)::flock(fd, LOCK_UN);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return {};
}

Result<std::unique_ptr<RunDirectory>> RunDirectory::open(const std::string &path) {
  LMC_TRY(makeFolders(path));
  std::string lock = path + "/run.lock";
  int fd = ::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0)
    return systemError("create", lock, errno);
  std::array<char, 256> host{};
  (void)!::gethostname(host.data(), host.size() - 1);
  std::unique_ptr<RunDirectory> directory(new RunDirectory(
      path, fd, fmt::format("process {} on {}, {}\n", ::getpid(), host.data(), drawRunId())));
  LMC_TRY(lockToWrite(fd, path));
  (void)!::ftruncate(fd, 0);
  (void)!::pwrite(fd, directory->owner.data(), directory->owner.size(), 0);
  return directory;
}

Result<std::unique_ptr<RunDirectory>> RunDirectory::join(const std::string &path,
                                                         const std::string &owner) {
  const std::string lock = path + "/run.lock";
  const int fd = ::open(lock.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return userError("{}: not the folder that rank 0 writes to; all ranks need one --out on a file "
                     "system that they share",
                     path);
  std::unique_ptr<RunDirectory> directory(new RunDirectory(path, fd, owner));
  if (readLock(fd) != owner)
    return userError("{}: not the folder that rank 0 writes to, for its run.lock is another; all "
                     "ranks need one --out on a file system that they share",
                     path);
  return directory;
}

std::unique_ptr<RunDirectory> RunDirectory::look(const std::string &path) {
  return std::unique_ptr<RunDirectory>(new RunDirectory(path, -1, ""));
}

Result<void> RunDirectory::checkFree(const std::string &path) {
  const int fd = ::open((path + "/run.lock").c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return {};
  // The lock is shared, so that several processes can check at the same time.
  const bool isFree = ::flock(fd, LOCK_SH | LOCK_NB) == 0 || errno != EWOULDBLOCK;
  const Result<void> result = isFree ? Result<void>() : Result<void>(isHeld(path, fd));
  ::close(fd);
  return result;
}

// The lock file is not removed: otherwise two runs could lock two different files of this name.
RunDirectory::~RunDirectory() {
  if (fd >= 0)
    ::close(fd);
}

Result<void> RunDirectory::checkOwner() const {
  const FileWait wait("looking at the lock of", folder);
  // Ignores errors of stat(), as of a file system unreachable for now, but not a missing run.lock.
  struct stat held {}, there {};
  if (::fstat(fd, &held) == 0 && (::stat((folder + "/run.lock").c_str(), &there) != 0
                                      ? errno == ENOENT || errno == ENOTDIR
                                      : held.st_ino != there.st_ino || held.st_dev != there.st_dev))
    return machineError("{}: run.lock, which keeps other runs away, was removed or replaced, or "
                        "the folder was moved; start again to go on",
                        folder);
  const std::string holder = readLock(fd);
  if (holder.empty() || holder == owner)
    return {};
  return machineError(
      "{}: another run ({}) has started to write here, and the file system does not share locks "
      "between machines; stop one of the two, and give each its own --out",
      folder, holder.substr(0, holder.find(',')));
}

static std::string identityPath(const std::string &folder) { return folder + "/run.json"; }

std::string gemmPath(const std::string &folder) { return folder + "/gemm.json"; }

static std::string planPath(const std::string &folder, const std::string &hash) {
  return fmt::format("{}/plans/{}.plan", folder, hash);
}

static Result<RunIdentity> readIdentity(const std::string &folder) {
  const std::string path = identityPath(folder);
  LMC_LET(json, readJsonObject(path, kMaximumIdentityBytes));
  try {
    return runIdentityFromJson(*json);
  } catch (const nlohmann::json::exception &) {
    return userError("{}: damaged, or of another release", path);
  }
}

Result<std::optional<RunIdentity>> RunDirectory::recorded(std::string &fault) const {
  const std::string path = identityPath(folder);
  if (!exists(path))
    return std::optional<RunIdentity>();
  auto identity = readIdentity(folder);
  if (identity)
    return std::optional(std::move(*identity));
  if (fd < 0) {
    fault = identity.error().message;
    return std::optional<RunIdentity>();
  }
  const std::string aside = path + ".damaged";
  if (std::rename(path.c_str(), aside.c_str()) != 0)
    return systemError("rename", path, errno);
  fault = fmt::format("{}; it is now {}", identity.error().message, aside);
  return std::optional<RunIdentity>();
}

Result<void> RunDirectory::record(const RunIdentity &identity, const PlanFile &plan) const {
  const std::string copy = planPath(folder, plan.hash());
  if (!exists(copy)) {
    LMC_TRY(makeFolders(folder + "/plans"));
    const auto bytes = plan.contents();
    LMC_TRY(publishFile(copy, {reinterpret_cast<const char *>(bytes.data()), bytes.size()}));
  }
  return publishFile(identityPath(folder), toJson(identity).dump(2) + "\n");
}

Result<std::unique_ptr<PlanFile>> openRecordedPlan(const std::string &folder,
                                                   std::optional<uint64_t> step) {
  std::string hash;
  if (step) {
    LMC_LET(state, readCheckpointState(fmt::format("{}/checkpoints/{}", folder, *step),
                                       /*verifyChecksums=*/false));
    hash = state->run.value("planHash", "");
  } else {
    if (!exists(identityPath(folder)))
      return userError("{}: no plan is given, and no run is there to go on with; give the PLAN "
                       "that lmc compile wrote",
                       folder);
    LMC_LET(identity, readIdentity(folder));
    hash = identity->planHash;
  }
  if (hash.size() != 64 || hash.find_first_not_of("0123456789abcdef") != std::string::npos)
    return userError("{}: it does not say which plan it ran; give the PLAN", folder);
  auto plan = PlanFile::open(planPath(folder, hash));
  if (plan && (*plan)->hash() != hash)
    return userError(
        "{}: its SHA-256 is {}, so it is not the plan that the run was started with; give the PLAN",
        (*plan)->path(), (*plan)->hash());
  return plan;
}

std::optional<std::string> lastSave(const std::string &folder) {
  std::optional<std::string> path;
  std::ifstream events(folder + "/events.jsonl");
  for (std::string line; std::getline(events, line);) {
    auto event = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (event.is_object() && event.value("event", "") == "checkpoint")
      path = event.value("path", "");
  }
  return path;
}

Result<std::string> RunDirectory::undone() {
  for (int number = 1; undoneFolder.empty(); ++number)
    if (std::string path = fmt::format("{}/undone/{}", folder, number); !exists(path)) {
      LMC_TRY(makeFolders(path));
      undoneFolder = path;
    }
  return undoneFolder;
}

Result<std::vector<std::string>> RunDirectory::undoAfter(uint64_t step) {
  undoneFolder.clear();
  std::vector<std::string> moved;
  for (const char *kind : {"checkpoints", "exports", "evaluations"}) {
    const std::string from = fmt::format("{}/{}", folder, kind);
    if (!exists(from))
      continue;
    LMC_LET(names, listFolder(from));
    // The newest checkpoint is moved first. If the process is killed after that, the folder looks
    // like that of a run that ended earlier. `.STEP.replaced`, left by a killed save, is moved too.
    std::multimap<uint64_t, std::string, std::greater<>> later;
    for (const std::string &name : *names) {
      constexpr std::string_view kReplaced = ".replaced";
      std::string_view digits = name;
      if (digits.starts_with('.') && digits.ends_with(kReplaced))
        digits = digits.substr(1, digits.size() - std::min(digits.size(), 1 + kReplaced.size()));
      if (const auto number = parseWhole<uint64_t>(digits); number && *number > step)
        later.emplace(*number, name);
    }
    for (const auto &[number, name] : later) {
      LMC_LET(to, undone());
      const std::string target = fmt::format("{}/{}", *to, kind);
      LMC_TRY(makeFolders(target));
      if (std::rename((from + "/" + name).c_str(), (target + "/" + name).c_str()) != 0)
        return systemError("move", from + "/" + name, errno);
      LMC_TRY(syncFolder(target));
      LMC_TRY(syncFolder(from));
      moved.push_back(target + "/" + name);
    }
  }
  return moved;
}

// Returns the newest complete checkpoint, or nullopt without checkpoints. Error: all are damaged.
static Result<std::optional<std::string>> latestOf(const std::string &runDirectory,
                                                   std::vector<DamagedCheckpoint> &damaged) {
  auto latest = findLatestCheckpoint(runDirectory, damaged);
  if (!latest || *latest || damaged.empty())
    return latest;
  std::string faults;
  for (const DamagedCheckpoint &checkpoint : damaged)
    faults +=
        fmt::format("{}{}: {}", faults.empty() ? "" : "; ", checkpoint.path, checkpoint.fault);
  return userError("{}: each of its {} checkpoints is damaged ({}); restore one from a copy, or "
                   "start over with another --out",
                   runDirectory, damaged.size(), faults);
}

Result<std::optional<std::string>> chooseCheckpoint(const std::string &resume,
                                                    const std::string &runDirectory,
                                                    std::vector<DamagedCheckpoint> &damaged) {
  if (resume == "none")
    return std::optional<std::string>{};
  if (resume == "auto") {
    if (runDirectory.empty() || !exists(runDirectory))
      return std::optional<std::string>{};
    return latestOf(runDirectory, damaged);
  }
  if (exists(resume + "/state.json")) {
    for (const DamagedCheckpoint &checkpoint : damaged)
      if (checkpoint.path == resume)
        return Error{checkpoint.fault};
    return std::optional<std::string>{resume};
  }
  if (exists(resume + "/checkpoints")) {
    auto latest = latestOf(resume, damaged);
    if (!latest || *latest)
      return latest;
  }
  return userError(
      "--resume={}: no checkpoint there (a folder with state.json, or a run with checkpoints/)",
      resume);
}

Result<std::vector<DamagedCheckpoint>> checkNothingLater(const std::string &runDirectory,
                                                         uint64_t step,
                                                         std::vector<DamagedCheckpoint> damaged) {
  std::erase_if(damaged, [&](const DamagedCheckpoint &checkpoint) {
    std::error_code failed;
    return !std::filesystem::equivalent(std::filesystem::path(checkpoint.path).parent_path(),
                                        runDirectory + "/checkpoints", failed);
  });
  LMC_LET(latest, latestOf(runDirectory, damaged));
  if (!*latest)
    return damaged;
  LMC_LET(state, readCheckpointState(**latest, /*verifyChecksums=*/false));
  if (state->step <= step)
    return damaged;
  return userError(
      "{}: holds a checkpoint of step {}, later than step {} where this run would start; give it "
      "another --out, go on with --resume=auto, or go back with --rewind={}",
      runDirectory, state->step, step, step);
}

std::span<const std::pair<const char *, VariableKind>> stateFiles() { return kStateFiles; }

StateSource stateOf(const PlanFile &plan, Device &device, World &world) {
  return {[&](VariableKind kind) { return tensorsOfKind(plan, device, world, kind); }, world.all(),
          [&] { world.progress().move(); }};
}

static std::vector<CheckpointFile> checkpointFiles(const StateSource &source) {
  std::vector<CheckpointFile> files;
  for (auto [name, kind] : kStateFiles) {
    DeviceTensors tensors = source.tensorsOfKind(kind);
    if (!tensors.tensors.empty())
      files.push_back({name, std::move(tensors.tensors), std::move(tensors.written),
                       std::move(tensors.fetch)});
  }
  return files;
}

Result<uint64_t> checkpointBytes(const PlanFile &plan) {
  std::vector<CheckpointFile> files;
  for (auto [name, kind] : kStateFiles)
    if (std::vector<TensorView> tensors = viewsOfKind(plan, kind); !tensors.empty())
      files.push_back({name, std::move(tensors), {}, {}});
  return checkpointBytes(files);
}

Result<void> saveRun(const std::string &runDirectory, const StateSource &source,
                     const CheckpointState &state, const KeepRules &keep, std::string *remark) {
  return saveCheckpoint(source.group, runDirectory, state, checkpointFiles(source), keep, remark);
}

Result<std::string> saveDiverged(const std::string &runDirectory, const StateSource &source,
                                 const CheckpointState &state) {
  return saveAside(source.group, runDirectory, state, checkpointFiles(source), "diverged");
}

Result<std::optional<DamagedCheckpoint>> loadRun(const std::string &checkpoint,
                                                 const PlanFile &plan, Device &device,
                                                 World &world) {
  std::vector<CheckpointTarget> targets;
  for (auto [name, kind] : kStateFiles) {
    DeviceTensors tensors = tensorsOfKind(plan, device, world, kind);
    if (!tensors.tensors.empty())
      targets.push_back({name, std::move(tensors.tensors), std::move(tensors.held),
                         std::move(tensors.store)});
  }
  return loadCheckpoint(world.all(), checkpoint, targets);
}

// Makes a Hugging Face checkpoint from the safetensors file `weights`.
static Result<void> exportFile(const std::string &weights, const std::string &directory,
                               const std::string &config, const ExportOptions &options,
                               const std::vector<TensorView> &tensors,
                               const std::function<void()> &moved) {
  LMC_LET(file, SafeTensorsFile::open(weights));
  auto fetch = [&](size_t index, void *data) -> Result<void> {
    moved();
    std::memcpy(data, (*file)->find(tensors[index].name)->data, tensors[index].bytes);
    return {};
  };
  return exportHuggingFace(directory, config, tensors, fetch, options);
}

Result<void> checkExportable(const PlanFile &plan) {
  if (plan->model()->huggingface_config())
    return {};
  const auto *reason = plan->model()->not_exportable();
  return userError("{}: checkpoints cannot be exported: {}", plan.path(),
                   reason ? reason->str() : "the plan has no config.json");
}

Result<void> exportRun(const std::string &directory, const ExportOptions &options,
                       const PlanFile &plan, const StateSource &source) {
  LMC_TRY(checkExportable(plan));
  const auto *config = plan->model()->huggingface_config();
  DeviceTensors tensors = source.tensorsOfKind(VariableKind::Parameter);
  if (source.group.size() == 1)
    return exportHuggingFace(directory, config->str(), tensors.tensors, tensors.fetch, options);
  const std::string weights =
      std::filesystem::path(directory + "/").lexically_normal().parent_path().string() +
      ".weights.partial";
  const bool first = source.group.position() == 0;
  auto makeParent = [&]() -> Result<void> {
    const auto parent = std::filesystem::path(weights).parent_path();
    return first && parent.has_parent_path() ? makeFolders(parent.string()) : Result<void>();
  };
  LMC_TRY(allSucceed(source.group, makeParent()));
  LMC_TRY(writeSafeTensorsTogether(source.group, weights, tensors.tensors, tensors.written,
                                   tensors.fetch, {}));
  Result<void> exported;
  if (first) {
    exported =
        exportFile(weights, directory, config->str(), options, tensors.tensors, source.moved);
    ::unlink(weights.c_str());
  }
  return allSucceed(source.group, exported);
}

} // namespace lmc

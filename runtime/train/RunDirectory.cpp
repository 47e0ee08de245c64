#include "runtime/train/RunDirectory.h"

#include "runtime/checkpoint/HuggingFace.h"
#include "runtime/checkpoint/SafeTensors.h"
#include "runtime/support/File.h"
#include "runtime/train/DeviceTensors.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

namespace lmc {

using plan::VariableKind;

static constexpr const char *kParameterFile = "model.safetensors";
static constexpr const char *kScaleFile = "moment1_scale.safetensors";

// The files of a checkpoint, and the kind of variable in each. A file exists only if the plan has
// variables of its kind.
static constexpr std::array<std::pair<const char *, VariableKind>, 5> kStateFiles = {{
    {kParameterFile, VariableKind::Parameter},
    {"moment1.safetensors", VariableKind::Moment1},
    {"moment2.safetensors", VariableKind::Moment2},
    {kScaleFile, VariableKind::Moment1Scale},
    {"moment2_scale.safetensors", VariableKind::Moment2Scale},
}};

static bool hasCodedMoments(const PlanFile &plan) {
  return std::any_of(plan->variables()->begin(), plan->variables()->end(),
                     [](const plan::Variable *variable) {
                       return variable->kind() == VariableKind::Moment1Scale;
                     });
}

Result<std::unique_ptr<RunDirectory>> RunDirectory::open(const std::string &path) {
  LMC_TRY(makeFolders(path));
  std::string lock = path + "/run.lock";
  int fd = ::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0)
    return systemError("create", lock, errno);
  std::unique_ptr<RunDirectory> directory(new RunDirectory(path, fd));
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK)
      return systemError("lock", lock, errno);
    std::array<char, 32> holder{};
    ssize_t count = ::pread(fd, holder.data(), holder.size() - 1, 0);
    return Error{
        fmt::format("{}: another run{} is writing here; give this one its own --out", path,
                    count > 0 ? fmt::format(" (process {})", std::atol(holder.data())) : "")};
  }
  // The process id in the file is only for the error message of a later run that finds the folder
  // locked, so a failed write is ignored.
  std::string pid = fmt::format("{}\n", ::getpid());
  (void)!::ftruncate(fd, 0);
  (void)!::pwrite(fd, pid.data(), pid.size(), 0);
  return directory;
}

// The lock file is not removed: otherwise two runs could each lock a different file of that name.
RunDirectory::~RunDirectory() { ::close(fd); }

Result<void> RunDirectory::rememberPlan(const PlanFile &plan,
                                        const std::vector<std::string> &overrides) const {
  nlohmann::ordered_json json;
  json["plan"] = plan.path();
  json["fingerprint"] = plan->fingerprint()->str();
  json["compiler_version"] = plan->compiler_version()->str();
  json["set"] = overrides;
  std::string path = folder + "/plan.json", partial = path + ".partial";
  LMC_TRY(writeTextFile(partial, json.dump(2) + "\n"));
  if (std::rename(partial.c_str(), path.c_str()) != 0)
    return systemError("rename", partial, errno);
  return {};
}

// Returns the newest complete checkpoint of a run's folder; nullopt if the folder has no
// checkpoints. Error: there are checkpoints and none is complete.
static Result<std::optional<std::string>> latestOf(const std::string &runDirectory,
                                                   std::vector<DamagedCheckpoint> *damaged) {
  auto latest = findLatestCheckpoint(runDirectory, damaged);
  if (!latest || *latest || damaged->empty())
    return latest;
  std::string faults;
  for (const DamagedCheckpoint &checkpoint : *damaged)
    faults += fmt::format("{}{}: {}", faults.empty() ? "" : "; ", checkpoint.path, checkpoint.fault);
  return Error{fmt::format("{}: each of its {} checkpoints is damaged ({}); restore one from a copy, "
                           "or start over with another --out",
                           runDirectory, damaged->size(), faults)};
}

Result<std::optional<std::string>> chooseCheckpoint(const std::string &resume,
                                                    const std::string &runDirectory,
                                                    std::vector<DamagedCheckpoint> *damaged) {
  if (resume == "none")
    return std::optional<std::string>{};
  if (resume == "auto") {
    if (runDirectory.empty() || !exists(runDirectory))
      return std::optional<std::string>{};
    return latestOf(runDirectory, damaged);
  }
  if (exists(resume + "/state.json"))
    return std::optional<std::string>{resume};
  if (exists(resume + "/checkpoints")) {
    auto latest = latestOf(resume, damaged);
    if (!latest || *latest)
      return latest;
  }
  return Error{fmt::format("--resume={}: no checkpoint there (a folder with state.json, or a run "
                           "with checkpoints/)",
                           resume)};
}

Result<std::vector<DamagedCheckpoint>> checkNothingLater(const std::string &runDirectory,
                                                         uint64_t step) {
  std::vector<DamagedCheckpoint> damaged;
  auto latest = latestOf(runDirectory, &damaged);
  LMC_TRY(latest);
  if (!*latest)
    return damaged;
  auto state = readCheckpointState(**latest, /*verifyChecksums=*/false);
  LMC_TRY(state);
  if (state->step <= step)
    return damaged;
  return Error{fmt::format("{}: holds a checkpoint of step {}, later than step {} where this run "
                           "would start; give it another --out, or go on with --resume=auto",
                           runDirectory, state->step, step)};
}

Result<void> saveRun(const std::string &runDirectory, const PlanFile &plan, Device &device,
                     const CheckpointState &state, int keep) {
  std::vector<CheckpointFile> files;
  for (auto [name, kind] : kStateFiles) {
    DeviceTensors tensors = tensorsOfKind(plan, device, kind);
    if (!tensors.tensors.empty())
      files.push_back({name, std::move(tensors.tensors), std::move(tensors.fetch)});
  }
  return saveCheckpoint(runDirectory, state, files, keep);
}

// Describes the first parameter that differs between a checkpoint and a plan; returns "" if none
// does.
static Result<std::string> parameterDifference(const std::string &checkpoint,
                                               const PlanFile &plan) {
  auto file = SafeTensorsFile::open(checkpoint + "/" + kParameterFile);
  if (!file)
    return file.error();
  size_t known = 0;
  for (const plan::Variable *variable : *plan->variables()) {
    if (variable->kind() != VariableKind::Parameter)
      continue;
    const std::string name = variable->name()->str();
    const plan::Slice &slice = *plan->slices()->Get(variable->slice());
    const SafeTensorsFile::Entry *entry = (*file)->find(name);
    if (!entry)
      return fmt::format("it has no parameter '{}'", name);
    ++known;
    std::vector<uint64_t> shape;
    if (slice.shape())
      shape.assign(slice.shape()->begin(), slice.shape()->end());
    const char *storage = safeTensorsName(slice.dtype());
    if (entry->storage != storage || entry->shape != shape)
      return fmt::format("parameter '{}' is {} {} there and {} {} in the plan", name,
                         entry->storage, shapeText(entry->shape), storage, shapeText(shape));
  }
  if (known < (*file)->entries().size())
    return fmt::format("it has {} parameters, the plan {}", (*file)->entries().size(), known);
  return std::string();
}

Result<CheckpointState> readRunState(const std::string &checkpoint, const PlanFile &plan) {
  auto state = readCheckpointState(checkpoint, /*verifyChecksums=*/true);
  LMC_TRY(state);
  if (state->fingerprint == plan->fingerprint()->str())
    return state;
  auto difference = parameterDifference(checkpoint, plan);
  LMC_TRY(difference);
  bool coded = hasCodedMoments(plan);
  if (difference->empty() && exists(checkpoint + "/" + kScaleFile) != coded)
    return Error{fmt::format("{}: the optimizer's moments are kept in {} there and in {} by {}; "
                             "compile with optimizer.type = \"{}\" to resume from it",
                             checkpoint, coded ? "32 bits" : "8 bits", coded ? "8 bits" : "32 bits",
                             plan.path(), coded ? "adamw" : "adamw8bit")};
  if (difference->empty())
    *difference = "the parameters are alike, so that model.architecture differs, or which moments "
                  "are kept in 8 bits";
  return Error{fmt::format("{}: checkpoint of another model (fingerprint {}) than {} "
                           "(fingerprint {}): {}; give --out another folder, or the plan it was "
                           "made with",
                           checkpoint, state->fingerprint, plan.path(), plan->fingerprint()->str(),
                           *difference)};
}

Result<void> loadRun(const std::string &checkpoint, const PlanFile &plan, Device &device) {
  for (auto [name, kind] : kStateFiles) {
    DeviceTensors tensors = tensorsOfKind(plan, device, kind);
    if (!tensors.tensors.empty())
      LMC_TRY(readCheckpointFile(checkpoint, name, tensors.tensors, tensors.store));
  }
  return {};
}

Result<void> exportRun(const std::string &directory, const PlanFile &plan, Device &device) {
  const auto *config = plan->model()->huggingface_config();
  if (!config)
    return Error{fmt::format("{}: the plan has no config.json to export", plan.path())};
  DeviceTensors tensors = tensorsOfKind(plan, device, VariableKind::Parameter);
  return exportHuggingFace(directory, config->str(), tensors.tensors, tensors.fetch);
}

} // namespace lmc

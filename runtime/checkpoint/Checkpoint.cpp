#include "runtime/checkpoint/Checkpoint.h"

#include "ground/support/File.h"
#include "ground/support/Json.h"
#include "ground/support/Number.h"
#include "runtime/checkpoint/SafeTensors.h"
#include "runtime/comm/Agree.h"

#include <fmt/core.h>

#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <limits>
#include <set>
#include <sys/stat.h>
#include <unistd.h>

namespace lmc {

static constexpr const char *kStateFile = "state.json";
static constexpr const char *kFormat = "lmc-checkpoint";
static constexpr uint64_t kVersion = 2;
static constexpr uint64_t kMaximumStateBytes = 64 << 20; // state.json may list many data files
// The maximum bytes that a file takes on the disk in addition to its size.
static constexpr uint64_t kFileOverheadBytes = 16 << 10;
static constexpr const char *kPartialSuffix = ".partial";
static constexpr const char *kReplacedSuffix = ".replaced";

//===--- Names ------------------------------------------------------------===//

static std::string checkpointsFolder(const std::string &runDirectory) {
  return runDirectory + "/checkpoints";
}

// Returns the step of a checkpoint folder, given its name ("1000"); nullopt for other names.
static std::optional<uint64_t> parseStep(std::string_view name) {
  const auto step = parseWhole<uint64_t>(name);
  return step && std::to_string(*step) == name ? step : std::nullopt;
}

// Returns the step of a folder named ".STEP" followed by `suffix`; nullopt for other names.
static std::optional<uint64_t> parseHidden(std::string_view name, std::string_view suffix) {
  if (!name.starts_with('.') || !name.ends_with(suffix) || name.size() < 1 + suffix.size())
    return std::nullopt;
  return parseStep(name.substr(1, name.size() - 1 - suffix.size()));
}

static bool isPlainFileName(const std::string &name) {
  return !name.empty() && name.front() != '.' && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

//===--- state.json -------------------------------------------------------===//

static std::string hex(uint64_t value) { return fmt::format("{:016x}", value); }

static std::optional<uint64_t> parseHex(const std::string &text) {
  uint64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc() || end != text.data() + text.size() || text.size() != 16)
    return std::nullopt;
  return value;
}

static uint64_t hashText(const std::string &text) { return XXH64(text.data(), text.size(), 0); }

static Result<std::string> stateText(const CheckpointState &of,
                                     const std::map<std::string, FileDigest> &digests) {
  nlohmann::json files = nlohmann::json::object();
  for (const auto &[name, digest] : digests)
    files[name] = {{"bytes", digest.bytes}, {"xxh64", hex(digest.xxh64)}};
  nlohmann::json state = {{"step", of.step},     {"samples", of.samples},
                          {"tokens", of.tokens}, {"position", of.position},
                          {"run", of.run},       {"fingerprint", of.fingerprint},
                          {"extra", of.extra},   {"files", std::move(files)}};
  for (const auto &[name, source] : of.sources)
    state["sources"][name] = {{"start", source.start},
                              {"tokens", source.tokens},
                              {"tokens_per_epoch", source.tokensPerEpoch}};
  try {
    nlohmann::json document = {{"format", kFormat},
                               {"version", kVersion},
                               {"xxh64", hex(hashText(state.dump()))},
                               {"state", state}};
    return document.dump(2) + "\n";
  } catch (const nlohmann::json::exception &) {
    return Error{"cannot save a checkpoint whose settings or extra state are not UTF-8",
                 ExitCode::Failure};
  }
}

Result<CheckpointContents> readCheckpointContents(const std::string &directory) {
  std::string path = directory + "/" + kStateFile;
  LMC_LET(document, readJsonObject(path, kMaximumStateBytes));
  Error damaged{fmt::format("{}: damaged, or not the state of an lmc checkpoint", path)};
  try {
    if (document->at("format").get_ref<const std::string &>() != kFormat)
      return damaged;
    // The type is checked because nlohmann's number conversion would accept 1.5 as 1.
    auto number = [](const nlohmann::json &object, const char *key) {
      const nlohmann::json &value = object.at(key);
      if (!value.is_number_unsigned())
        throw nlohmann::json::other_error::create(0, "not a natural number", &value);
      return value.get<uint64_t>();
    };
    uint64_t version = number(*document, "version");
    if (version != kVersion)
      return machineError("{}: a checkpoint of format version {}; this lmc-run reads version {}: "
                          "use the release that wrote it",
                          path, version, kVersion);
    const nlohmann::json &state = document->at("state");
    if (document->at("xxh64").get_ref<const std::string &>() != hex(hashText(state.dump())))
      return userError("{}: damaged: its contents do not match its checksum", path);
    CheckpointContents result;
    result.state.step = number(state, "step");
    result.state.samples = number(state, "samples");
    result.state.tokens = number(state, "tokens");
    result.state.position = number(state, "position");
    if (auto sources = state.find("sources"); sources != state.end())
      for (const auto &[name, source] : sources->get_ref<const nlohmann::json::object_t &>())
        result.state.sources[name] = {number(source, "start"), number(source, "tokens"),
                                      number(source, "tokens_per_epoch")};
    result.state.run = state.at("run");
    result.state.fingerprint = state.at("fingerprint").get<std::string>();
    result.state.extra = state.at("extra").get<std::map<std::string, std::string>>();
    for (const auto &[name, digest] :
         state.at("files").get_ref<const nlohmann::json::object_t &>()) {
      std::optional<uint64_t> hash = parseHex(digest.at("xxh64").get<std::string>());
      if (!isPlainFileName(name) || !hash)
        return damaged;
      result.files.push_back({directory + "/" + name, {number(digest, "bytes"), *hash}});
    }
    return result;
  } catch (const nlohmann::json::exception &) {
    return damaged;
  }
}

Result<CheckpointState> readCheckpointState(const std::string &directory, bool verifyChecksums) {
  LMC_LET(contents, readCheckpointContents(directory));
  for (const RecordedFile &file : contents->files)
    LMC_TRY(openRecorded(file));
  if (verifyChecksums)
    LMC_TRY(verifyFiles(contents->files));
  return contents->state;
}

//===--- Saving -----------------------------------------------------------===//

Result<void> removeInterrupted(const std::string &folder) {
  LMC_LET(names, listFolder(folder));
  for (const std::string &name : *names) {
    std::string path = folder + "/" + name;
    if (parseHidden(name, kPartialSuffix)) {
      LMC_TRY(removeTree(path));
    } else if (std::optional<uint64_t> step = parseHidden(name, kReplacedSuffix)) {
      std::string place = folder + "/" + std::to_string(*step);
      if (exists(place))
        LMC_TRY(removeTree(path));
      else
        LMC_TRY(publishFolder(path, place, path));
    }
  }
  return {};
}

// Sets `fetchFailed` to whether this rank's latest call of a file's `fetch` failed.
static Result<void> writeFiles(Communicator &group, const std::string &partial,
                               const CheckpointState &state,
                               const std::vector<CheckpointFile> &files, bool &fetchFailed) {
  std::map<std::string, FileDigest> digests;
  for (const CheckpointFile &file : files) {
    FetchTensor fetch = [&](size_t index, void *data) {
      Result<void> fetched = file.fetch(index, data);
      fetchFailed = !fetched;
      return fetched;
    };
    LMC_TRY(writeSafeTensorsTogether(group, partial + "/" + file.name, file.tensors, file.parts,
                                     fetch, {}, &digests[file.name]));
  }
  LMC_LET(text, stateText(state, digests));
  if (group.position() != 0)
    return {};
  LMC_TRY(writeTextFile(partial + "/" + kStateFile, *text));
  return syncFolder(partial);
}

static Result<uint64_t> bytesNeeded(const std::string &partial,
                                    const std::vector<CheckpointFile> &files) {
  uint64_t needed = 2 * kFileOverheadBytes; // overheads of the folder and of state.json
  for (const CheckpointFile &file : files) {
    LMC_LET(bytes, safeTensorsBytes(partial + "/" + file.name, file.tensors, {}));
    needed += *bytes + kFileOverheadBytes;
  }
  return needed;
}

Result<uint64_t> checkpointBytes(const std::vector<CheckpointFile> &files) {
  return bytesNeeded("checkpoint", files);
}

// Creates the folder `partial` in `folder`. Error: the disk has no room for the files.
static Result<void> beginSave(const std::string &folder, const std::string &partial, uint64_t step,
                              const std::vector<CheckpointFile> &files) {
  LMC_TRY(makeFolder(folder)); // and not the run's folder: another run may have taken its place
  LMC_TRY(removeInterrupted(folder));
  LMC_LET(needed, bytesNeeded(partial, files));
  LMC_LET(free, freeBytes(folder));
  if (*needed > *free)
    return machineError("cannot save the checkpoint of step {} in {}: the disk is too full: {} "
                        "bytes needed, {} free",
                        step, folder, *needed, *free);
  if (::mkdir(partial.c_str(), 0777) != 0)
    return systemError("create", partial, errno);
  return {};
}

// Writes a checkpoint to the folder `name` in `folder`.
static Result<void> saveNew(Communicator &group, const std::string &folder, const std::string &name,
                            const CheckpointState &state, const std::vector<CheckpointFile> &files,
                            bool &fetchFailed) {
  const bool first = group.position() == 0;
  const std::string partial = fmt::format("{}/.{}{}", folder, state.step, kPartialSuffix);
  LMC_TRY(allSucceed(group,
                     first ? beginSave(folder, partial, state.step, files) : Result<void>()));
  Result<void> written =
      allSucceed(group, writeFiles(group, partial, state, files, fetchFailed));
  if (written)
    written = allSucceed(group, first ? publishFolder(partial, folder + "/" + name,
                                                      folder + "/." + name + kReplacedSuffix)
                                      : Result<void>());
  // If this removal fails too, the next save frees the space. The Error of this save is returned.
  if (!written && first)
    (void)static_cast<bool>(removeTree(partial));
  return written;
}

// Returns the step of the checkpoint with the lowest extra[`key`]; nullopt if none has this key.
static std::optional<uint64_t> bestOf(const std::string &runDirectory,
                                      const std::vector<uint64_t> &steps, const std::string &key) {
  std::optional<uint64_t> best;
  double lowest = std::numeric_limits<double>::infinity();
  for (uint64_t step : steps) {
    const Result<CheckpointContents> state =
        readCheckpointContents(fmt::format("{}/{}", checkpointsFolder(runDirectory), step));
    if (!state)
      continue;
    const auto value = state->state.extra.find(key);
    if (value == state->state.extra.end())
      continue;
    const auto number = parseDouble(value->second);
    if (number && *number < lowest) {
      lowest = *number;
      best = step;
    }
  }
  return best;
}

static bool isPermanent(const std::string &runDirectory, uint64_t step, uint64_t every) {
  if (every == 0 || step % every == 0)
    return every > 0;
  const Result<CheckpointContents> state =
      readCheckpointContents(fmt::format("{}/{}", checkpointsFolder(runDirectory), step));
  return state && state->state.extra.count(kStandsFor) > 0;
}

static Result<void> removeOldest(const std::string &runDirectory, uint64_t saved,
                                 const KeepRules &keep) {
  LMC_LET(others, listCheckpoints(runDirectory));
  std::optional<uint64_t> best;
  if (!keep.best.empty())
    best = bestOf(runDirectory, *others, keep.best);
  std::erase(*others, saved);
  const auto sound = std::ranges::find_if(
      *others, [&](uint64_t step) { return keep.suspect && step < *keep.suspect; });
  const std::optional<uint64_t> spared =
      sound == others->end() ? std::nullopt : std::optional(*sound);
  for (size_t i = static_cast<size_t>(keep.newest) - 1; i < others->size(); ++i) {
    const uint64_t old = (*others)[i];
    if (old == best || old == spared || isPermanent(runDirectory, old, keep.every))
      continue;
    // The folder is renamed first, so a crash leaves no damaged checkpoint under a valid name.
    std::string step = std::to_string(old), folder = checkpointsFolder(runDirectory);
    std::string path = folder + "/" + step;
    std::string hidden = folder + "/." + step + kPartialSuffix;
    if (std::rename(path.c_str(), hidden.c_str()) != 0)
      return systemError("remove", path, errno);
    LMC_TRY(removeTree(hidden));
  }
  return {};
}

// Saves a checkpoint to the folder `name`, without removing others.
static Result<void> saveAs(Communicator &group, const std::string &runDirectory,
                           const std::string &name, const CheckpointState &state,
                           const std::vector<CheckpointFile> &files) {
  std::set<std::string> names;
  for (const CheckpointFile &file : files)
    if (!isPlainFileName(file.name) || file.name == kStateFile || !names.insert(file.name).second)
      return machineError("cannot save a checkpoint with a file named '{}'", file.name);

  std::string folder = checkpointsFolder(runDirectory);
  bool fetchFailed = false;
  Result<void> saved = saveNew(group, folder, name, state, files, fetchFailed);
  if (saved || saved.error().code != ExitCode::Failure || fetchFailed)
    return saved;
  return machineError("{}; the earlier checkpoints in {} are whole: free space there or make it "
                      "writable, then start again to resume",
                      saved.error().message, folder);
}

Result<void> saveCheckpoint(Communicator &group, const std::string &runDirectory,
                            const CheckpointState &state, const std::vector<CheckpointFile> &files,
                            const KeepRules &keep, std::string *remark) {
  LMC_TRY(saveAs(group, runDirectory, std::to_string(state.step), state, files));
  if (keep.newest <= 0)
    return {};
  Result<void> removed;
  if (group.position() == 0)
    removed = removeOldest(runDirectory, state.step, keep);
  if (!removed && remark) {
    *remark = fmt::format("an older checkpoint than that of step {} could not be removed: {}",
                          state.step, removed.error().message);
    removed = {};
  } else if (!removed) {
    removed = Error{fmt::format("the checkpoint of step {} is saved, but an older one could not be "
                                "removed: {}",
                                state.step, removed.error().message),
                    removed.error().code};
  }
  return allSucceed(group, removed);
}

Result<std::string> saveAside(Communicator &group, const std::string &runDirectory,
                              const CheckpointState &state,
                              const std::vector<CheckpointFile> &files, const std::string &suffix) {
  const std::string base = fmt::format("{}.{}", state.step, suffix);
  std::string free = base;
  for (int number = 2; exists(checkpointsFolder(runDirectory) + "/" + free); ++number)
    free = fmt::format("{}-{}", base, number);
  LMC_LET(name, broadcastText(group, free));
  LMC_TRY(saveAs(group, runDirectory, *name, state, files));
  return checkpointsFolder(runDirectory) + "/" + *name;
}

//===--- Reading ----------------------------------------------------------===//

Result<std::vector<uint64_t>> listCheckpoints(const std::string &runDirectory) {
  std::string folder = checkpointsFolder(runDirectory);
  std::vector<uint64_t> steps;
  if (!exists(folder))
    return steps;
  LMC_LET(names, listFolder(folder));
  for (const std::string &name : *names)
    if (std::optional<uint64_t> step = parseStep(name);
        step && readCheckpointState(folder + "/" + name, /*verifyChecksums=*/false))
      steps.push_back(*step);
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

Result<std::optional<std::string>> findLatestCheckpoint(const std::string &runDirectory,
                                                        std::vector<DamagedCheckpoint> &damaged) {
  std::string folder = checkpointsFolder(runDirectory);
  if (!exists(folder))
    return std::optional<std::string>();
  LMC_LET(names, listFolder(folder));
  // If two folders have the same step, STEP is tried before `.STEP.replaced`.
  std::map<uint64_t, std::vector<std::string>, std::greater<>> newestFirst;
  for (const std::string &name : *names)
    if (std::optional<uint64_t> step = parseStep(name))
      newestFirst[*step].insert(newestFirst[*step].begin(), name);
    else if (std::optional<uint64_t> step = parseHidden(name, kReplacedSuffix))
      newestFirst[*step].push_back(name);
  for (const auto &[step, candidates] : newestFirst)
    for (const std::string &name : candidates) {
      std::string path = folder + "/" + name;
      if (std::ranges::any_of(damaged, [&](const DamagedCheckpoint &known) {
            std::error_code failed;
            return std::filesystem::equivalent(known.path, path, failed);
          }))
        continue;
      Result<CheckpointState> state = readCheckpointState(path, /*verifyChecksums=*/false);
      if (state && state->step == step)
        return std::optional(path);
      // Returns an Error if the checkpoint cannot be read or is of another release. `damaged` does
      // not get such a checkpoint.
      if (!state && state.error().code == ExitCode::Failure)
        return state.error();
      if (::access((path + "/" + kStateFile).c_str(), R_OK) != 0 && errno != ENOENT)
        return systemError("read", path + "/" + kStateFile, errno);
      damaged.push_back(
          {path, state ? fmt::format("it is of step {}", state->step) : state.error().message});
    }
  return std::optional<std::string>();
}

Result<std::vector<std::string>> moveAside(const std::vector<DamagedCheckpoint> &damaged) {
  std::vector<std::string> moved;
  for (const DamagedCheckpoint &checkpoint : damaged) {
    std::string path = checkpoint.path + ".damaged";
    for (int number = 2; exists(path); ++number)
      path = fmt::format("{}.damaged-{}", checkpoint.path, number);
    if (std::rename(checkpoint.path.c_str(), path.c_str()) != 0)
      return systemError("rename", checkpoint.path, errno);
    moved.push_back(path);
  }
  return moved;
}

// Where a tensor lies in a file of a checkpoint.
struct PlacedTensor {
  uint64_t offset, bytes; // byte range in the file
  size_t index;           // index in CheckpointTarget::tensors
};

// Returns where tensors lie, by rising offset. Error: they are not exactly the tensors of `target`.
static Result<std::vector<PlacedTensor>> placeTensors(const SafeTensorsFile &contents,
                                                      const CheckpointTarget &target) {
  const char *other =
      "the checkpoint belongs to another model; give another --out or --resume=none";
  std::map<std::string_view, size_t> wanted;
  for (size_t i = 0; i < target.tensors.size(); ++i) {
    const TensorView &tensor = target.tensors[i];
    const SafeTensorsFile::Entry *entry = contents.find(tensor.name);
    if (!entry)
      return userError("{}: no tensor '{}': {}", contents.path(), tensor.name, other);
    if (entry->dtype != tensor.dtype || entry->shape != tensor.shape)
      return userError("{}: '{}' is {} {} there and {} {} in the plan: {}", contents.path(),
                       tensor.name, entry->storage, shapeText(entry->shape),
                       safeTensorsName(tensor.dtype), shapeText(tensor.shape), other);
    if (!wanted.emplace(tensor.name, i).second)
      return machineError("{}: '{}' is asked for twice", contents.path(), tensor.name);
  }
  std::vector<PlacedTensor> places;
  for (const SafeTensorsFile::Entry &entry : contents.entries()) {
    auto found = wanted.find(entry.name);
    if (found == wanted.end())
      return userError("{}: the plan has no tensor '{}': {}", contents.path(), entry.name, other);
    places.push_back({entry.offset, entry.bytes, found->second});
  }
  return places;
}

// `data` has bytes [offset, offset + bytes) of a file. Stores those that belong to tensors.
static Result<void> storeParts(const CheckpointTarget &target,
                               const std::vector<PlacedTensor> &places, uint64_t offset,
                               const void *data, uint64_t bytes) {
  auto place = std::partition_point(places.begin(), places.end(), [&](const PlacedTensor &tensor) {
    return tensor.offset + tensor.bytes <= offset;
  });
  for (; place != places.end() && place->offset < offset + bytes; ++place) {
    const uint64_t begin = std::max(offset, place->offset);
    const uint64_t end = std::min(offset + bytes, place->offset + place->bytes);
    if (begin < end)
      LMC_TRY(target.store(place->index, static_cast<const std::byte *>(data) + (begin - offset),
                           end - begin, begin - place->offset));
  }
  return {};
}

namespace {
// The files of a checkpoint that a load reads, and where their tensors are.
struct OpenedFiles {
  std::vector<RecordedFile> files;
  std::vector<std::vector<PlacedTensor>> places;
};
} // namespace

// Opens the files of `targets`. If one is damaged, sets `fault` to the reason.
static Result<OpenedFiles> openFiles(const std::string &directory,
                                     const std::vector<CheckpointTarget> &targets,
                                     std::string &fault) {
  OpenedFiles opened;
  auto damaged = [&](const Error &error) {
    fault = error.message;
    return std::move(opened);
  };
  Result<CheckpointContents> contents = readCheckpointContents(directory);
  if (!contents)
    return damaged(contents.error());
  for (const CheckpointTarget &target : targets) {
    const std::vector<RecordedFile> &files = contents->files;
    auto file = std::ranges::find(files, directory + "/" + target.name, &RecordedFile::path);
    if (file == files.end())
      return userError("{}: the checkpoint has no {}", directory, target.name);
    opened.files.push_back(*file);
    if (Result<File> whole = openRecorded(*file); !whole)
      return damaged(whole.error());
    Result<std::unique_ptr<SafeTensorsFile>> tensors = SafeTensorsFile::open(file->path);
    if (!tensors)
      return damaged(tensors.error());
    Result<std::vector<PlacedTensor>> placed = placeTensors(**tensors, target);
    if (!placed) {
      // A damaged header can look like that of another model, so the checksum is compared first.
      if (Result<void> whole = verifyFiles({*file}); !whole)
        return damaged(whole.error());
      return placed.error();
    }
    opened.places.push_back(std::move(*placed));
  }
  return opened;
}

// Reads this rank's parts of the tensors from the files and passes them to `store`.
static Result<void> readParts(const OpenedFiles &opened,
                              const std::vector<CheckpointTarget> &targets) {
  constexpr uint64_t kBlockBytes = 1 << 20;
  std::vector<std::byte> block(kBlockBytes);
  for (size_t i = 0; i < targets.size(); ++i) {
    LMC_LET(file, File::openForReading(opened.files[i].path));
    for (const PlacedTensor &place : opened.places[i]) {
      const ByteRange &part = targets[i].parts[place.index];
      for (uint64_t done = 0; done < part.bytes; done += kBlockBytes) {
        const uint64_t bytes = std::min(kBlockBytes, part.bytes - done);
        LMC_LET(got, file->readAt(block.data(), bytes, place.offset + part.offset + done));
        if (*got < bytes)
          return machineError("{}: it became shorter while it was read", file->path());
        LMC_TRY(targets[i].store(place.index, block.data(), bytes, part.offset + done));
      }
    }
  }
  return {};
}

Result<std::optional<DamagedCheckpoint>>
loadCheckpoint(Communicator &group, const std::string &directory,
               const std::vector<CheckpointTarget> &targets) {
  std::string fault;
  LMC_LET(opened, allSucceed(group, openFiles(directory, targets, fault)));
  if (group.size() > 1) {
    // If one rank finds a damaged file, all ranks return what this rank found.
    LMC_LET(faults, gatherTexts(group, fault));
    for (const std::string &found : *faults)
      if (!found.empty())
        return std::optional(DamagedCheckpoint{directory, found});
    if (Result<void> whole = verifyTogether(opened->files, group); !whole) {
      if (whole.error().code != ExitCode::UserError)
        return whole.error();
      return std::optional(DamagedCheckpoint{directory, whole.error().message});
    }
    LMC_TRY(allSucceed(group, readParts(*opened, targets)));
    return std::optional<DamagedCheckpoint>();
  }
  if (fault.empty()) {
    Result<std::optional<std::string>> found = readVerified(
        opened->files, [&](size_t file, uint64_t offset, const void *data, uint64_t bytes) {
          return storeParts(targets[file], opened->places[file], offset, data, bytes);
        });
    LMC_TRY(found);
    fault = found->value_or("");
  }
  if (!fault.empty())
    return std::optional(DamagedCheckpoint{directory, fault});
  return std::optional<DamagedCheckpoint>();
}

} // namespace lmc

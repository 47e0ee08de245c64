// lmc-data inspect: reports the contents of a checkpoint, without its plan.

#include "ground/support/Size.h"
#include "runtime/checkpoint/SafeTensors.h"
#include "tools/lmc-data/CheckpointFolder.h"
#include "tools/lmc-data/Commands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <set>

namespace lmc {

namespace {

struct Weights {
  uint64_t parameters = 0, tensors = 0, bytes = 0;
  std::set<std::string> dtypes; // dtypes, by their names in the safetensors format
};

Result<Weights> countWeights(const CheckpointFolder &checkpoint) {
  LMC_LET(recorded, weightsOf(checkpoint));
  LMC_LET(file, SafeTensorsFile::open(recorded->path));
  Weights weights;
  for (const SafeTensorsFile::Entry &entry : (*file)->entries()) {
    uint64_t count = 1;
    for (uint64_t size : entry.shape)
      count *= size;
    weights.parameters += count;
    weights.bytes += entry.bytes;
    weights.dtypes.insert(entry.storage);
    ++weights.tensors;
  }
  return weights;
}

// A file of the checkpoint. If the file was read and is damaged, `fault` describes the damage.
struct FileReport {
  std::string name;
  uint64_t bytes = 0;
  std::optional<std::string> fault;
};

double epochsOf(const SourceState &source) {
  return double(source.tokens) / double(std::max<uint64_t>(source.tokensPerEpoch, 1));
}

void printCheckpointText(const CheckpointFolder &checkpoint, const Weights &weights,
                         const std::vector<FileReport> &files, bool verified) {
  const CheckpointState &state = checkpoint.state;
  const RunIdentity &run = checkpoint.run;
  fmt::print("{}\n", checkpoint.path);
  for (const DamagedCheckpoint &newer : checkpoint.skipped)
    fmt::print("skipped          {}: {}\n", newer.path, newer.fault);
  fmt::print("step             {}\n", state.step);
  fmt::print("tokens           {} in {} samples; the next is token {} of the data's order\n",
             state.tokens, state.samples, state.position);
  for (const auto &[name, source] : state.sources)
    fmt::print("source           {}: {} tokens, {:.2f} epochs\n", name, source.tokens,
               epochsOf(source));
  fmt::print("parameters       {} in {} tensors, {}, {}\n", weights.parameters, weights.tensors,
             fmt::join(weights.dtypes, " and "), formatBytes(weights.bytes));
  fmt::print("run              {}\n", run.run);
  fmt::print("plan             {}, SHA-256 {}\n", run.planPath, run.planHash);
  fmt::print("configuration    {}\n", run.configPath);
  fmt::print("target           {}\n", run.target);
  fmt::print("versions         compiler {}, runtime {}\n", run.compilerVersion, run.runtimeVersion);
  fmt::print("host             {}\n", run.host);
  for (const auto &[key, value] : state.extra)
    fmt::print("{:<16} {}\n", key, value);
  fmt::print("files            {}\n",
             verified ? "read, checksums compared" : "sizes compared; --verify compares checksums");
  for (const FileReport &file : files)
    fmt::print("  {:<34} {:>12}  {}\n", file.name, formatBytes(file.bytes),
               file.fault ? "DAMAGED" : "all right");
  fmt::print("settings\n");
  for (const auto &[key, setting] : run.settings)
    fmt::print("  {:<34} {:<24} {}\n", key, setting.text(), setting.origin);
  fmt::print("declared changes {}\n", run.changes.empty() ? "none" : "");
  for (const DeclaredChange &change : run.changes)
    fmt::print("  at step {}: {} was {} and is {}\n", change.step, change.key, change.from,
               change.to);
}

void printCheckpointJson(const CheckpointFolder &checkpoint, const Weights &weights,
                         const std::vector<FileReport> &files, bool verified) {
  const CheckpointState &state = checkpoint.state;
  nlohmann::ordered_json json;
  json["path"] = checkpoint.path;
  json["step"] = state.step;
  json["samples"] = state.samples;
  json["tokens"] = state.tokens;
  json["position"] = state.position;
  for (const auto &[name, source] : state.sources)
    json["sources"][name] = {{"tokens", source.tokens}, {"epochs", epochsOf(source)}};
  json["parameters"] = {{"count", weights.parameters},
                        {"tensors", weights.tensors},
                        {"dtypes", weights.dtypes},
                        {"bytes", weights.bytes}};
  json["files"] = nlohmann::ordered_json::array();
  for (const FileReport &file : files)
    json["files"].push_back({{"name", file.name},
                             {"bytes", file.bytes},
                             {"checksum", !verified    ? "not compared"
                                          : file.fault ? "wrong"
                                                       : "right"}});
  json["fingerprint"] = state.fingerprint;
  json["extra"] = state.extra;
  json["run"] = state.run;
  json["skipped"] = nlohmann::ordered_json::array();
  for (const DamagedCheckpoint &newer : checkpoint.skipped)
    json["skipped"].push_back({{"path", newer.path}, {"fault", newer.fault}});
  // A path may be invalid UTF-8. Without `replace`, json.dump() would throw an exception.
  fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

} // namespace

Result<void> inspectCheckpoint(const std::string &path, bool verify, bool json) {
  LMC_LET(checkpoint, openCheckpoint(path));
  LMC_LET(weights, countWeights(*checkpoint));
  std::vector<FileReport> files;
  std::optional<Error> damaged;
  for (const RecordedFile &file : checkpoint->files) {
    FileReport report{std::filesystem::path(file.path).filename(), file.digest.bytes, {}};
    if (Result<void> whole = verify ? verifyFiles({file}) : Result<void>(); !whole) {
      report.fault = whole.error().message;
      damaged = damaged.value_or(whole.error());
    }
    files.push_back(std::move(report));
  }
  (json ? printCheckpointJson : printCheckpointText)(*checkpoint, *weights, files, verify);
  return damaged ? Result<void>(*damaged) : Result<void>();
}

} // namespace lmc

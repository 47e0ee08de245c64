#include "runtime/device/GemmChoices.h"

#include "runtime/support/File.h"
#include "runtime/support/Json.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <set>
#include <sys/file.h>
#include <unistd.h>

namespace lmc {

static constexpr uint64_t kMaximumBytes = 64 << 20;
static constexpr int kVersion = 1;

using Choices = std::map<GemmKey, GemmChoice>;

static Result<Choices> readFile(const std::string &path) {
  Choices choices;
  if (!exists(path))
    return choices;
  auto json = readJsonObject(path, kMaximumBytes);
  LMC_TRY(json);
  try {
    if (json->at("version") != kVersion)
      return Error{fmt::format("{}: of another release", path)};
    for (const auto &choice : json->at("choices"))
      choices[{choice.at("device"), choice.at("product")}] = {
          choice.at("implementation"), choice.at("payload"), choice.at("seconds")};
  } catch (const nlohmann::json::exception &) {
    return Error{fmt::format("{}: damaged", path)};
  }
  return choices;
}

static Result<void> writeFile(const std::string &path, const Choices &choices) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const auto &[key, choice] : choices)
    list.push_back({{"device", key.device},
                    {"product", key.product},
                    {"implementation", choice.implementation},
                    {"payload", choice.payload},
                    {"seconds", choice.seconds}});
  nlohmann::ordered_json json = {{"version", kVersion}, {"choices", std::move(list)}};
  return publishFile(path, json.dump(1) + "\n");
}

void GemmChoices::read(const std::string &path, Origin origin) {
  auto choices = readFile(path);
  if (!choices) {
    warnings.push_back(
        fmt::format("{}; its choices of matrix products are made again", choices.error().message));
    return;
  }
  for (auto &[key, choice] : *choices)
    entries[key] = {std::move(choice), origin};
}

void GemmChoices::readRun(const std::string &path) { read(path, Origin::Run); }

void GemmChoices::readCache(const std::string &path) {
  if (!measuring || path.empty())
    return;
  // What the run has precedes what the cache has, in whichever order they are read.
  const std::map<GemmKey, Entry> before = std::move(entries);
  entries.clear();
  read(path, Origin::Cache);
  for (const auto &[key, entry] : before)
    entries[key] = entry;
}

std::optional<GemmChoice> GemmChoices::find(const GemmKey &key) {
  auto found = entries.find(key);
  if (found == entries.end())
    return std::nullopt;
  found->second.used = true;
  return found->second.choice;
}

void GemmChoices::add(const GemmKey &key, GemmChoice choice, double spent) {
  if (auto found = entries.find(key);
      found != entries.end() && found->second.used && found->second.origin == Origin::Run)
    rejectedProducts.push_back(key.product);
  entries[key] = {std::move(choice), measuring ? Origin::Measured : Origin::Fixed, true};
  seconds += spent;
}

void GemmChoices::writeCache(const std::string &path) {
  Choices measured;
  for (const auto &[key, entry] : entries)
    if (entry.origin == Origin::Measured)
      measured[key] = entry.choice;
  if (measured.empty() || path.empty())
    return;
  auto write = [&]() -> Result<void> {
    LMC_TRY(makeFolders(std::filesystem::path(path).parent_path()));
    // The lock makes processes that write at the same time add to each other's choices.
    const std::string lock = path + ".lock";
    int fd = ::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
      return systemError("create", lock, errno);
    (void)::flock(fd, LOCK_EX);
    Choices all;
    if (auto there = readFile(path))
      all = std::move(*there);
    for (auto &[key, choice] : measured)
      all[key] = choice;
    auto written = writeFile(path, all);
    ::close(fd);
    return written;
  };
  if (auto written = write(); !written)
    warnings.push_back(
        fmt::format("{}; the next start times matrix products again", written.error().message));
}

Result<void> GemmChoices::writeRun(const std::string &path) const {
  Choices kept;
  for (const auto &[key, entry] : entries)
    if (entry.used || entry.origin == Origin::Run)
      kept[key] = entry.choice;
  return writeFile(path, kept);
}

std::vector<GemmChoices::Use> GemmChoices::inUse() const {
  std::vector<Use> used;
  for (const auto &[key, entry] : entries)
    if (entry.used)
      used.push_back({key, entry.choice});
  return used;
}

std::string GemmChoices::summary() const {
  std::map<Origin, int> origins;
  std::map<std::string, int> libraries;
  int products = 0;
  for (const auto &[key, entry] : entries) {
    if (!entry.used)
      continue;
    ++products;
    ++origins[entry.origin];
    const std::string &name = entry.choice.implementation;
    ++libraries[name.substr(0, name.find(' '))];
  }
  if (products == 0)
    return "";
  std::vector<std::string> parts = {fmt::format("{} shape{}", products, products == 1 ? "" : "s")};
  auto count = [&](Origin origin, const std::string &what) {
    if (int number = origins[origin])
      parts.push_back(fmt::format("{} {}", number, what));
  };
  count(Origin::Run, "as in the run");
  count(Origin::Cache, "from the cache");
  count(Origin::Measured, fmt::format("measured in {:.1f} s", seconds));
  count(Origin::Fixed, "by default");
  std::vector<std::string> counts;
  for (const auto &[library, number] : libraries)
    counts.push_back(fmt::format("{} {}", number, library));
  return fmt::format("{}; {}", fmt::join(parts, ", "), fmt::join(counts, ", "));
}

std::string GemmChoices::formerDevice() const {
  std::set<std::string> made; // the products that were chosen anew
  for (const auto &[key, entry] : entries)
    if (entry.used && entry.origin != Origin::Run)
      made.insert(key.product);
  for (const auto &[key, entry] : entries)
    if (!entry.used && entry.origin == Origin::Run && made.contains(key.product))
      return key.device;
  return "";
}

std::vector<std::string> GemmChoices::takeWarnings() { return std::exchange(warnings, {}); }

std::string gemmCachePath() {
  const char *cache = std::getenv("XDG_CACHE_HOME");
  if (cache && *cache)
    return std::string(cache) + "/lmc/gemm.json";
  const char *home = std::getenv("HOME");
  return home && *home ? std::string(home) + "/.cache/lmc/gemm.json" : "";
}

} // namespace lmc

#include "runtime/device/GemmChoices.h"

#include "ground/support/File.h"
#include "ground/support/Json.h"
#include "runtime/comm/Agree.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
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

static Choices fromJson(const nlohmann::json &list) {
  Choices choices;
  for (const auto &choice : list)
    choices[{choice.at("device"), choice.at("product")}] = {
        choice.at("implementation"), choice.at("payload"), choice.at("seconds")};
  return choices;
}

static nlohmann::ordered_json toJson(const Choices &choices) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const auto &[key, choice] : choices)
    list.push_back({{"device", key.device},
                    {"product", key.product},
                    {"implementation", choice.implementation},
                    {"payload", choice.payload},
                    {"seconds", choice.seconds}});
  return list;
}

static Result<Choices> readFile(const std::string &path) {
  if (!exists(path))
    return Choices();
  LMC_LET(json, readJsonObject(path, kMaximumBytes));
  try {
    if (json->at("version") != kVersion)
      return userError("{}: of another release", path);
    return fromJson(json->at("choices"));
  } catch (const nlohmann::json::exception &) {
    return userError("{}: damaged", path);
  }
}

static Result<void> writeFile(const std::string &path, const Choices &choices) {
  nlohmann::ordered_json json = {{"version", kVersion}, {"choices", toJson(choices)}};
  return publishFile(path, json.dump(1) + "\n");
}

void GemmChoices::read(const std::string &path, Origin origin) {
  auto choices = readFile(path);
  if (!choices) {
    warnings.push_back(
        fmt::format("{}; its choices of matrix products are made again", choices.error().message));
    return;
  }
  // For a product in both files, the run's choice replaces the cache's, whichever is read first.
  for (auto &[key, choice] : *choices)
    if (origin == Origin::Run || !entries.contains(key))
      entries[key] = {std::move(choice), origin};
}

void GemmChoices::readCache(const std::string &path) {
  if (measuring && !path.empty())
    read(path, Origin::Cache);
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
      found != entries.end() && found->second.used &&
      (found->second.origin == Origin::Run || found->second.origin == Origin::Rank))
    rejectedProducts.push_back(key.product);
  entries[key] = {std::move(choice), measuring ? Origin::Measured : Origin::Fixed, true};
  seconds += spent;
}

Result<bool> GemmChoices::agree(World &world) {
  Choices own;
  for (const Use &use : inUse())
    own[use.key] = use.choice;
  const std::string device = own.empty() ? "" : own.begin()->first.device;
  LMC_LET(devices, gatherTexts(world.all(), device));
  bool changed = false;
  for (int rank = 0; rank < world.size(); ++rank) {
    const std::string &theirs = (*devices)[static_cast<size_t>(rank)];
    if (theirs.empty() || std::ranges::find(*devices, theirs) - devices->begin() != rank)
      continue;
    LMC_LET(text, broadcastText(world.all(), rank == world.rank() ? toJson(own).dump() : "", rank));
    if (rank == world.rank())
      continue;
    for (auto &[key, choice] : fromJson(nlohmann::json::parse(*text))) {
      Entry &entry = entries[key];
      // The measured times are not compared, because they always differ.
      if (entry.choice.implementation == choice.implementation &&
          entry.choice.payload == choice.payload)
        continue;
      changed |= entry.used;
      entry = {std::move(choice), Origin::Rank};
    }
  }
  return changed;
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
    // Without the lock, two processes that write at the same time could lose choices.
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
    if (entry.used || entry.origin == Origin::Run || entry.origin == Origin::Rank)
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
  count(Origin::Rank, "as on another rank");
  count(Origin::Cache, "from the cache");
  count(Origin::Measured, fmt::format("measured in {:.1f} s", seconds));
  count(Origin::Fixed, "by default");
  std::vector<std::string> counts;
  for (const auto &[library, number] : libraries)
    counts.push_back(fmt::format("{} {}", number, library));
  return fmt::format("{}; {}", fmt::join(parts, ", "), fmt::join(counts, ", "));
}

std::string GemmChoices::formerDevice() const {
  std::set<std::string> made; // products with a new choice in this run
  for (const auto &[key, entry] : entries)
    if (entry.used && entry.origin != Origin::Run)
      made.insert(key.product);
  for (const auto &[key, entry] : entries)
    if (!entry.used && entry.origin == Origin::Run && made.contains(key.product))
      return key.device;
  return "";
}

Result<void> chooseTogether(GemmChoices *choices, World *world,
                            const std::function<Result<void>()> &choose) {
  if (!choices || !world || world->size() == 1)
    return choose();
  LMC_TRY(allSucceed(world->all(), choose()));
  LMC_LET(changed, choices->agree(*world));
  return *changed ? choose() : Result<void>();
}

std::string gemmCachePath() {
  const char *cache = std::getenv("XDG_CACHE_HOME");
  if (cache && *cache)
    return std::string(cache) + "/lmc/gemm.json";
  const char *home = std::getenv("HOME");
  return home && *home ? std::string(home) + "/.cache/lmc/gemm.json" : "";
}

} // namespace lmc

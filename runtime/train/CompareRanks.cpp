#include "runtime/train/CompareRanks.h"

#include "runtime/comm/Agree.h"
#include "runtime/train/RunIdentity.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace lmc {

static nlohmann::json toJson(const StartingPoint &start) {
  return {{"checkpoint", start.checkpoint},
          {"step", start.step},
          {"steps", start.totalSteps},
          {"init", start.init}};
}

// Returns how this rank differs from rank 0; "": not at all.
static std::string differenceFrom(const RunIdentity &first, const nlohmann::json &firstStart,
                                  const RunIdentity &own, const StartingPoint &start) {
  if (own.planHash != first.planHash)
    return fmt::format("its plan {} has the SHA-256 {}, and that of rank 0 has {}; give all ranks "
                       "one plan",
                       own.planPath, own.planHash, first.planHash);
  if (own.runtimeVersion != first.runtimeVersion)
    return fmt::format("its lmc-run is {}, and that of rank 0 is {}; install one release on all "
                       "nodes",
                       own.runtimeVersion, first.runtimeVersion);
  std::vector<SettingChange> changes = compareSettings(first, own);
  for (SettingChange &change : compareData(first, own))
    changes.push_back(std::move(change));
  if (!changes.empty())
    return fmt::format("it differs from rank 0, where a value is \"there\": {}",
                       describe(changes));
  const nlohmann::json mine = toJson(start);
  for (const auto &[key, value] : mine.items())
    if (value != firstStart.at(key))
      return fmt::format("its {} is {}, and that of rank 0 is {}; give all ranks the same options "
                         "and one --out on a file system that they share",
                         key, value.dump(), firstStart.at(key).dump());
  return "";
}

Result<void> compareRanks(World &world, const RunIdentity &identity, const StartingPoint &start) {
  if (world.size() == 1)
    return {};
  const nlohmann::json own = {{"identity", toJson(identity)}, {"start", toJson(start)}};
  auto text = broadcastText(world.all(), own.dump());
  LMC_TRY(text);
  Result<void> same;
  try {
    const nlohmann::json first = nlohmann::json::parse(*text);
    if (const std::string difference = differenceFrom(
            runIdentityFromJson(first.at("identity")), first.at("start"), identity, start);
        !difference.empty())
      same = Error{difference};
  } catch (const nlohmann::json::exception &) {
    same = Error{"rank 0 is another release of lmc-run; install one release on all nodes"};
  }
  return allSucceed(world.all(), same);
}

} // namespace lmc

#include "runtime/settings/CompareRanks.h"

#include "ground/support/Release.h"
#include "runtime/comm/Agree.h"
#include "runtime/settings/RunIdentity.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace lmc {

static Result<void> checkPlan(const PlanFile &plan, const std::string &firstHash,
                              const std::string &firstRelease, int ranks) {
  if (plan.hash() != firstHash)
    return userError(
        "its plan {} has the SHA-256 {}, and that of rank 0 has {}; give all ranks one plan",
        plan.path(), plan.hash(), firstHash);
  if (firstRelease != kRelease.text)
    return userError(
        "its lmc-run is {}, and that of rank 0 is {}; install one release on all nodes",
        kRelease.text, firstRelease);
  const uint64_t wanted = plan->batch()->ranks();
  if (wanted == static_cast<uint64_t>(ranks))
    return {};
  return userError("{}: compiled for {} rank(s) ({} x {}), and {} started; start {}, or compile "
                   "with other --nodes and --devices-per-node",
                   plan.path(), wanted, plan->nodes(), plan->devices_per_node(),
                   ranks == 1 ? "one was" : fmt::format("{} were", ranks),
                   wanted == 1
                       ? "one process"
                       : fmt::format("{0} with torchrun, srun or here with --nproc={0}", wanted));
}

Result<void> comparePlans(World &world, const PlanFile &plan) {
  LMC_LET(hash, broadcastText(world.all(), plan.hash()));
  LMC_LET(release, broadcastText(world.all(), kRelease.text));
  return allSucceed(world.all(), checkPlan(plan, *hash, *release, world.size()));
}

static nlohmann::json toJson(const StartingPoint &start) {
  return {{"checkpoint", start.checkpoint},
          {"step", start.step},
          {"steps", start.totalSteps},
          {"init", start.init}};
}

// Returns how this rank differs from rank 0, as a text; "" if the two are equal.
static std::string differenceFrom(const RunIdentity &first, const nlohmann::json &firstStart,
                                  const RunIdentity &own, const StartingPoint &start) {
  std::vector<SettingChange> changes = compareSettings(first, own);
  for (SettingChange &change : compareData(first, own))
    changes.push_back(std::move(change));
  if (!changes.empty())
    return fmt::format("it differs from rank 0, where a value is \"there\": {}", describe(changes));
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
  LMC_LET(text, broadcastText(world.all(), own.dump()));
  Result<void> same;
  try {
    const nlohmann::json first = nlohmann::json::parse(*text);
    if (const std::string difference = differenceFrom(runIdentityFromJson(first.at("identity")),
                                                      first.at("start"), identity, start);
        !difference.empty())
      same = Error{difference};
  } catch (const nlohmann::json::exception &) {
    same = Error{"rank 0 is another release of lmc-run; install one release on all nodes"};
  }
  return allSucceed(world.all(), same);
}

} // namespace lmc

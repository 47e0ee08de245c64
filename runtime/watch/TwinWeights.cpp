// Watches whether copies of weights that must be equal are equal (CompareWeights.h).
#include "runtime/watch/CompareWeights.h"
#include "runtime/watch/Watch.h"

#include <fmt/format.h>

#include <cstdlib>

namespace lmc {
namespace {

class TwinWeights final : public Watch {
public:
  TwinWeights(Session &session, std::unique_ptr<WeightComparison> comparison)
      : session(session), comparison(std::move(comparison)) {}

  const char *stateKey() const override { return "equal_weights"; }
  std::string state() const override { return equal; }
  Result<void> restore(const std::string &text) override {
    equal = text;
    return {};
  }

  // Returns N + 1 if the latest comparison without a difference was after step N; else nullopt.
  std::optional<uint64_t> suspectSince() const override {
    return equal.empty() ? std::nullopt : std::optional(equalStep() + 1);
  }

  bool isDue(uint64_t step) const override {
    const int64_t interval = session.settings.config.guard.compareWeights;
    return step % static_cast<uint64_t>(interval) == 0;
  }

  Result<WatchFindings> look(uint64_t step) override {
    session.world.progress().enter(Activity::Comparing, step);
    LMC_LET(differences, comparison->compare());
    if (differences->empty()) {
      equal = fmt::format("{}", step);
      return WatchFindings();
    }
    nlohmann::ordered_json tensors = nlohmann::ordered_json::array();
    for (const WeightDifference &difference : *differences)
      tensors.push_back({{"tensor", difference.tensor},
                         {"ranks", difference.ranks},
                         {"beside_master", difference.beside}});
    nlohmann::ordered_json facts = {{"step", step}};
    if (!equal.empty())
      facts["equal_step"] = equalStep();
    facts["tensors"] = std::move(tensors);
    WatchFinding finding{
        .event = "weights_differ", .facts = std::move(facts), .action = WatchAction::StopUnsaved};
    finding.text = fmt::format(
        "step {}: weights were damaged: {}; nothing was saved since. {}; check the machine, and go "
        "back to a checkpoint from before with --rewind=STEP",
        step, describe(*differences, session.world),
        equal.empty() ? "They were not compared before" : "They were sound after step " + equal);
    return WatchFindings{std::move(finding)};
  }

private:
  uint64_t equalStep() const { return std::strtoull(equal.c_str(), nullptr, 10); }

  Session &session;
  const std::unique_ptr<WeightComparison> comparison;
  std::string equal; // the newest step (as text) after which all copies were equal; "": none yet
};

} // namespace

Result<std::unique_ptr<Watch>> watchTwinWeights(const WatchedRun &run) {
  Session &session = run.session;
  if (session.settings.config.guard.compareWeights == 0)
    return noWatch();
  LMC_LET(comparison, WeightComparison::open(*session.plan, *session.device, session.world));
  if (!*comparison)
    return noWatch();
  return makeWatch<TwinWeights>(session, std::move(*comparison));
}

} // namespace lmc

// Watches the loss and the gradient norm with a Guard (monitor/Guard.h) and the settings [guard].
#include "runtime/watch/Watch.h"

#include <fmt/format.h>

namespace lmc {
namespace {

class LossWatch final : public Watch {
public:
  explicit LossWatch(const TrainSettings &settings, uint64_t vocabulary)
      : settings(settings), guard(settings.config.guard, vocabulary, settings.lr.lr) {}

  void expectFreshWeights() override { guard.expectFreshWeights(); }
  void expectChange() override { guard.expectChange(); }
  const char *stateKey() const override { return "guard"; }
  std::string state() const override { return guard.state(); }
  Result<void> restore(const std::string &text) override {
    if (auto restored = guard.restore(text); !restored)
      return Error{restored.error().message + "; the loss is judged as in a new run"};
    return {};
  }

  StepLimits limitsOf(int64_t step) const override { return guard.limitsOf(step); }
  std::optional<uint64_t> suspectSince() const override {
    const auto since = guard.suspectSince();
    return since ? std::optional(static_cast<uint64_t>(*since)) : std::nullopt;
  }

  WatchFindings settled(const StepRecord &record) override {
    const Guard::Verdict verdict = guard.observe(record);
    WatchFindings found;
    for (const std::string &warning : verdict.warnings)
      found.push_back({.warning = warning});
    if (const auto &spike = verdict.spike)
      found.push_back({.event = "spike",
                       .facts = {{"step", record.step},
                                 {"since", spike->since},
                                 {"loss", record.loss},
                                 {"grad_norm", record.gradNorm},
                                 {"usual_loss", spike->usualLoss},
                                 {"usual_grad_norm", spike->usualNorm}},
                       .action = settings.config.guard.onSpike == "rollback" ? WatchAction::GoBack
                                                                             : WatchAction::GoOn,
                       .since = spike->since});
    if (const auto &plateau = verdict.plateau)
      found.push_back({.event = "plateau",
                       .facts = {{"step", record.step},
                                 {"loss", plateau->latest},
                                 {"loss_before", plateau->before},
                                 {"steps", plateau->steps}}});
    if (record.skipped != SkipReason::None)
      found.push_back(
          {.event = "skip", .facts = {{"step", record.step}, {"reason", nameOf(record.skipped)}}});
    if (const auto &divergence = verdict.divergence) {
      if (divergence->lasting || settings.config.guard.action == "stop")
        found.push_back(
            {.action = WatchAction::Stop, .since = divergence->since, .text = divergence->text});
      else
        found.push_back({.warning = fmt::format("step {}: {}", record.step, divergence->text)});
    }
    return found;
  }

  WatchFindings validated(const ValidationSettings &set, int64_t step, double loss) override {
    const std::string name = set.name.empty() ? kValidationData : set.name;
    const CheckpointConfig &checkpoint = settings.config.checkpoint;
    const auto rise = guard.observeValidation(set.name, step, loss);
    WatchFindings found;
    if (checkpoint.saveBest && checkpoint.keepBest == name && guard.bestStep(set.name) == step)
      found.push_back({.action = WatchAction::Save});
    if (!rise)
      return found;
    nlohmann::ordered_json facts = {{"step", step}};
    if (!set.name.empty())
      facts["set"] = set.name;
    facts["loss"] = rise->loss;
    facts["lowest_loss"] = rise->lowest;
    facts["lowest_step"] = rise->step;
    const std::string advice =
        checkpoint.keepBest == name
            ? "the checkpoint that keep_best keeps is from before"
            : fmt::format(
                  "set checkpoint.keep_best = \"{}\" to keep its best checkpoint, and check "
                  "for too little or repeated training data",
                  name);
    found.push_back({.warning = fmt::format("step {}: {}; {}", step, rise->text, advice),
                     .event = "validation_rise",
                     .facts = std::move(facts)});
    return found;
  }

private:
  const TrainSettings &settings;
  Guard guard;
};

} // namespace

Result<std::unique_ptr<Watch>> watchLoss(const WatchedRun &run) {
  return makeWatch<LossWatch>(run.session.settings, (*run.session.plan)->model()->vocab_size());
}

} // namespace lmc

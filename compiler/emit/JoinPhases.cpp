#include "compiler/emit/JoinPhases.h"

#include "ground/plan/PlanTrailer.h"

#include "plan_generated.h"

namespace lmc {

std::string joinPhases(const std::deque<PhaseConfig> &phases,
                       const std::vector<std::string> &plans) {
  plan::PlanT first;
  plan::GetPlan(plans.front().data())->UnPackTo(&first);
  for (size_t i = 0; i < phases.size(); ++i) {
    auto phase = std::make_unique<plan::TrainingPhaseT>();
    phase->name = phases[i].name;
    phase->steps = static_cast<uint64_t>(phases[i].steps);
    if (i > 0)
      phase->plan.assign(plans[i].begin(), plans[i].end());
    first.training_phases.push_back(std::move(phase));
  }
  flatbuffers::FlatBufferBuilder builder(1 << 20);
  builder.Finish(plan::CreatePlan(builder, &first), plan::PlanIdentifier());
  std::string bytes(reinterpret_cast<const char *>(builder.GetBufferPointer()), builder.GetSize());
  appendPlanTrailer(bytes);
  return bytes;
}

} // namespace lmc

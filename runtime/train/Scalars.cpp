#include "runtime/train/Scalars.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

namespace lmc {

Result<int> Scalars::sliceOf(const std::string &name) const {
  int index = plan.findVariable(name);
  if (index < 0)
    return Error{
        fmt::format("{}: the plan has no variable '{}', which training needs", plan.path(), name)};
  auto slice = plan->variables()->Get(static_cast<flatbuffers::uoffset_t>(index))->slice();
  plan::DType dtype = plan->slices()->Get(slice)->dtype();
  if ((dtype != plan::DType::F32 && dtype != plan::DType::F64) ||
      plan->slices()->Get(slice)->bytes() < byteWidth(dtype))
    return Error{fmt::format("{}: variable '{}' is no f32 or f64 scalar", plan.path(), name)};
  return static_cast<int>(slice);
}

Result<void> Scalars::set(const std::string &name, double value) {
  auto known = written.find(name);
  if (known != written.end() &&
      std::bit_cast<uint64_t>(known->second) == std::bit_cast<uint64_t>(value))
    return {};
  auto slice = sliceOf(name);
  LMC_TRY(slice);
  auto narrow = static_cast<float>(value);
  bool wide = plan->slices()->Get(static_cast<uint32_t>(*slice))->dtype() == plan::DType::F64;
  LMC_TRY(wide ? device.copyIn(*slice, &value, sizeof value)
               : device.copyIn(*slice, &narrow, sizeof narrow));
  written[name] = value;
  return {};
}

Result<void> Scalars::setSettings(const SettingTable &settings) {
  for (const plan::Variable *variable : *plan->variables())
    if (variable->setting()) {
      auto value = settings.number(variable->setting()->string_view());
      LMC_TRY(value);
      LMC_TRY(set(variable->name()->str(), *value));
    }
  return {};
}

Result<void> Scalars::setStepValue(plan::StepValue which, double value) {
  for (const plan::Variable *variable : *plan->variables())
    if (variable->step_value() == which)
      LMC_TRY(set(variable->name()->str(), value));
  return {};
}

Result<double> Scalars::get(const std::string &name) {
  auto slice = sliceOf(name);
  LMC_TRY(slice);
  if (plan->slices()->Get(static_cast<uint32_t>(*slice))->dtype() == plan::DType::F64) {
    double value = 0;
    LMC_TRY(device.copyOut(*slice, &value, sizeof value));
    return value;
  }
  float value = 0;
  LMC_TRY(device.copyOut(*slice, &value, sizeof value));
  return static_cast<double>(value);
}

} // namespace lmc

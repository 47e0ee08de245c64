#include "runtime/watch/UpdateRatios.h"

#include "ground/plan/MomentBlock.h"
#include "runtime/comm/Agree.h"
#include "runtime/watch/UpdateSums.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <string>

namespace lmc {

using plan::VariableKind;

// Below this ratio of norm(old weights) to norm(update), norm(old weights) may be only a rounding
// error. kCodeRounding is for parameters with 8-bit moments, and kRounding for all others.
static constexpr double kRounding = 1e-5, kCodeRounding = 0.1;

namespace {

// A rank's parts of a parameter and its moments. Without 8-bit moments, the scales are null.
struct ParameterParts {
  const SnapshotPart *weights = nullptr;
  const SnapshotPart *moment1 = nullptr, *moment2 = nullptr;
  const SnapshotPart *scale1 = nullptr, *scale2 = nullptr;
};

using PartsByName = std::map<std::string, SnapshotPart>;

} // namespace

static PartsByName byName(std::vector<SnapshotPart> parts) {
  PartsByName result;
  for (SnapshotPart &part : parts)
    result.emplace(part.tensor.view.name, std::move(part));
  return result;
}

static const SnapshotPart *find(const PartsByName &parts, const std::string &name) {
  const auto found = parts.find(name);
  return found == parts.end() ? nullptr : &found->second;
}

template <typename T> static const T *elementsAt(const SnapshotPart &part, uint64_t byte) {
  return reinterpret_cast<const T *>(part.data + byte);
}

// Returns true if `part`, whose elements have `width` bytes, covers the same elements as `weights`.
static bool matches(const SnapshotPart &part, const SnapshotPart &weights, uint64_t width) {
  const HeldPart &a = part.tensor.written, &b = weights.tensor.written;
  const uint64_t own = byteWidth(weights.tensor.view.dtype);
  return a.first * own == b.first * width && a.count * own == b.count * width &&
         a.columns * own == b.columns * width && a.pitch * own == b.pitch * width;
}

// Returns the totals over all elements of the part. Visits one contiguous range after the other.
template <typename T>
static UpdateSums plainSums(const ParameterParts &parts, const AdamWStep &step) {
  const HeldPart &written = parts.weights->tensor.written;
  const bool decays = parts.weights->tensor.decays;
  UpdateSums sums;
  for (const HeldPart &run : written.runs()) {
    const uint64_t at = run.at - written.at;
    sums.add(updateSums(step, decays, elementsAt<T>(*parts.weights, at),
                        elementsAt<T>(*parts.moment1, at), elementsAt<T>(*parts.moment2, at),
                        run.count / sizeof(T)));
  }
  return sums;
}

static Result<UpdateSums> sumsOf(const ParameterParts &parts, const AdamWStep &step) {
  const StateTensor &weights = parts.weights->tensor;
  const plan::DType dtype = weights.view.dtype, moments = parts.moment1->tensor.view.dtype;
  const uint64_t width = byteWidth(dtype);
  const Error mismatch{fmt::format("{}: the moments do not match the weights", weights.view.name)};
  if (moments != parts.moment2->tensor.view.dtype)
    return mismatch;
  if (!parts.scale1) {
    if (moments != dtype || !matches(*parts.moment1, *parts.weights, width) ||
        !matches(*parts.moment2, *parts.weights, width))
      return mismatch;
    if (dtype == plan::DType::F32)
      return plainSums<float>(parts, step);
    if (dtype == plan::DType::F64)
      return plainSums<double>(parts, step);
    return mismatch;
  }
  constexpr auto kBlock = static_cast<uint64_t>(kMomentBlock);
  auto isScale = [&](const SnapshotPart &scale) {
    const HeldPart &part = scale.tensor.written;
    return part.first * kBlock == weights.written.first &&
           part.count * kBlock == weights.written.count;
  };
  if (dtype != plan::DType::F32 || moments != plan::DType::I8 || weights.written.pitch != 0 ||
      !matches(*parts.moment1, *parts.weights, 1) || !matches(*parts.moment2, *parts.weights, 1) ||
      !isScale(*parts.scale1) || !isScale(*parts.scale2))
    return mismatch;
  const CodedMoments coded{
      elementsAt<int8_t>(*parts.moment1, 0), elementsAt<uint8_t>(*parts.moment2, 0),
      elementsAt<float>(*parts.scale1, 0), elementsAt<float>(*parts.scale2, 0)};
  return updateSums(step, weights.decays, elementsAt<float>(*parts.weights, 0), coded,
                    weights.written.count / width);
}

static TensorUpdate updateOf(const ParameterParts &parts, const UpdateSums &sums) {
  const TensorView &view = parts.weights->tensor.view;
  const auto elements = static_cast<double>(view.bytes / byteWidth(view.dtype));
  TensorUpdate update{.name = view.name,
                      .isMatrix = view.shape.size() > 1,
                      .ratio = std::nullopt,
                      .weightRms = std::sqrt(sums.weights / elements),
                      .isFinite = std::isfinite(sums.update) && std::isfinite(sums.before),
                      .hasGradient = sums.moment1 != 0};
  const double ratio = std::sqrt(sums.update / sums.before);
  if (std::isfinite(ratio) && ratio < 1 / (parts.scale1 ? kCodeRounding : kRounding))
    update.ratio = ratio;
  return update;
}

Result<StepUpdates> updatesOf(const PartsOfKind &parts, const AdamWStep &step, Communicator &group,
                              const std::function<void()> &moved) {
  const std::vector<SnapshotPart> weights = parts(VariableKind::Parameter);
  const PartsByName moment1 = byName(parts(VariableKind::Moment1)),
                    moment2 = byName(parts(VariableKind::Moment2)),
                    scale1 = byName(parts(VariableKind::Moment1Scale)),
                    scale2 = byName(parts(VariableKind::Moment2Scale));
  std::vector<ParameterParts> parameters;
  for (const SnapshotPart &part : weights) {
    const std::string &name = part.tensor.view.name;
    const ParameterParts all{&part, find(moment1, name), find(moment2, name), find(scale1, name),
                             find(scale2, name)};
    if (all.moment1 && all.moment2 && !all.scale1 == !all.scale2)
      parameters.push_back(all);
  }
  std::vector<double> numbers; // the sums of all parameters, one after the other
  auto addUp = [&]() -> Result<void> {
    for (const ParameterParts &each : parameters) {
      LMC_LET(sums, sumsOf(each, step.of(each.weights->tensor.group)));
      numbers.insert(numbers.end(), {sums->update, sums->before, sums->weights, sums->moment1});
      moved();
    }
    return {};
  };
  LMC_TRY(allSucceed(group, addUp()));
  LMC_TRY(group.allReduce(numbers.data(), numbers.size(), plan::DType::F64));
  StepUpdates updates{.step = step.number, .lr = step.lr, .tensors = {}};
  for (size_t i = 0; i < parameters.size(); ++i) {
    const double *sums = numbers.data() + i * UpdateSums::kNumbers;
    updates.tensors.push_back(updateOf(parameters[i], {sums[0], sums[1], sums[2], sums[3]}));
  }
  return updates;
}

} // namespace lmc

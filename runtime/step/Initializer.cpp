#include "runtime/step/Initializer.h"

#include "ground/plan/FloatConvert.h"
#include "runtime/step/NormalStream.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

namespace lmc {

using plan::DType;
using plan::InitializerKind;

// The number of elements in host memory at a time, and the number in one task of a thread.
static constexpr uint64_t kChunkElements = uint64_t{1} << 22;
static constexpr uint64_t kThreadElements = uint64_t{1} << 16;

static Error unsupported(const plan::Variable &variable, const char *what) {
  return userError("plan: variable '{}': {}", variable.name()->str(), what);
}

template <typename T>
static Result<void> elementsAs(const plan::Variable &variable, const plan::Slice &slice,
                               uint64_t seed, uint64_t begin, uint64_t count, T *out) {
  const plan::Initializer &initializer = *variable.initializer();
  InitializerKind kind = initializer.kind();
  switch (kind) {
  case InitializerKind::Zeros:
    std::fill_n(out, count, T(0));
    return {};
  case InitializerKind::Ones:
    std::fill_n(out, count, T(1));
    return {};
  case InitializerKind::Constant:
    std::fill_n(out, count, static_cast<T>(initializer.scale()));
    return {};
  case InitializerKind::Normal: {
    std::string_view name = variable.name()->string_view();
    uint64_t stream = XXH64(name.data(), name.size(), 0);
    fillNormal(seed, stream, begin, count, initializer.stddev(), out);
    return {};
  }
  case InitializerKind::RopeCos:
  case InitializerKind::RopeSin: {
    const auto *frequencies = initializer.values();
    const auto *shape = slice.shape();
    if (!frequencies || !shape || shape->size() != 2 || frequencies->size() == 0 ||
        shape->Get(1) != frequencies->size())
      return unsupported(variable, "a rope table needs one frequency per column");
    uint64_t columns = frequencies->size();
    for (uint64_t i = begin; i < begin + count; ++i) {
      double angle = static_cast<double>(i / columns) *
                     frequencies->Get(static_cast<flatbuffers::uoffset_t>(i % columns));
      double value = kind == InitializerKind::RopeCos ? std::cos(angle) : std::sin(angle);
      out[i - begin] = static_cast<T>(value * initializer.scale());
    }
    return {};
  }
  case InitializerKind::None:
  case InitializerKind::CopyOf:
    break;
  }
  return unsupported(variable, "its initializer makes no values");
}

Result<void> initialElements(const plan::Variable &variable, const plan::Slice &slice,
                             uint64_t seed, uint64_t begin, uint64_t count, void *out) {
  switch (slice.dtype()) {
  case DType::F32:
    return elementsAs(variable, slice, seed, begin, count, static_cast<float *>(out));
  case DType::F64:
    return elementsAs(variable, slice, seed, begin, count, static_cast<double *>(out));
  case DType::BF16: {
    std::vector<float> wide(count);
    LMC_TRY(elementsAs(variable, slice, seed, begin, count, wide.data()));
    convertFloats(DType::F32, wide.data(), DType::BF16, out, count);
    return {};
  }
  default:
    break;
  }
  if (variable.initializer()->kind() != InitializerKind::Zeros)
    return unsupported(variable, "integers can only start as zeros");
  std::memset(out, 0, count * byteWidth(slice.dtype()));
  return {};
}

static InitializerKind kindOf(const plan::Variable &variable) {
  return variable.initializer() ? variable.initializer()->kind() : InitializerKind::None;
}

// Writes the initial values of `part`, whose elements are adjacent. `chunk` is scratch memory.
static Result<void> initializeRun(const PlanFile &plan, Device &device, uint64_t seed,
                                  flatbuffers::uoffset_t index, const HeldPart &part,
                                  std::vector<char> &chunk) {
  LMC_LET(onDevice, device.initialize(static_cast<int>(index), part, seed));
  if (*onDevice)
    return {};
  const plan::Variable *variable = plan->variables()->Get(index);
  const plan::Slice &slice = *plan->slices()->Get(variable->slice());
  size_t width = byteWidth(slice.dtype());
  chunk.resize(std::max<size_t>(chunk.size(), std::min(part.count, kChunkElements) * width));
  for (uint64_t done = 0; done < part.count; done += kChunkElements) {
    uint64_t begin = part.first + done, count = std::min(kChunkElements, part.count - done);
    // An initializer is valid for all elements or for none, so only the first element is checked.
    LMC_TRY(initialElements(*variable, slice, seed, begin, 1, chunk.data()));
#pragma omp parallel for schedule(dynamic)
    for (uint64_t first = 0; first < count; first += kThreadElements)
      (void)initialElements(*variable, slice, seed, begin + first,
                            std::min(kThreadElements, count - first), chunk.data() + first * width);
    LMC_TRY(device.copyIn(static_cast<int>(variable->slice()), chunk.data(), count * width,
                          (part.at + done) * width));
  }
  return {};
}

Result<void> initializeVariables(const PlanFile &plan, Device &device, uint64_t seed,
                                 const VariableFilter &filter, uint64_t position) {
  std::vector<char> chunk;
  for (flatbuffers::uoffset_t index = 0; index < plan->variables()->size(); ++index) {
    const plan::Variable *variable = plan->variables()->Get(index);
    InitializerKind kind = kindOf(*variable);
    if (kind == InitializerKind::None || kind == InitializerKind::CopyOf || !filter(*variable))
      continue;
    for (const HeldPart &run : heldPart(*plan, *variable, position).runs())
      LMC_TRY(initializeRun(plan, device, seed, index, run, chunk));
  }
  return {};
}

// The plan's verifier has checked that the source is not itself a CopyOf.
static Result<const plan::Variable *> copySource(const PlanFile &plan,
                                                 const plan::Variable &variable) {
  const auto *source = variable.initializer()->source();
  int index = source ? plan.findVariable(source->string_view()) : -1;
  if (index < 0)
    return unsupported(variable, "it is a copy of no variable of the plan");
  return plan->variables()->Get(static_cast<flatbuffers::uoffset_t>(index));
}

Result<void> refreshCopies(const PlanFile &plan, Device &device, uint64_t position) {
  std::vector<char> from, to;
  for (flatbuffers::uoffset_t index = 0; index < plan->variables()->size(); ++index) {
    const plan::Variable *variable = plan->variables()->Get(index);
    if (kindOf(*variable) != InitializerKind::CopyOf)
      continue;
    LMC_LET(origin, copySource(plan, *variable));
    // The padding between rows, which is zeros, is copied too.
    const HeldPart part = heldPart(*plan, *variable, position).withPadding();
    const HeldPart copied = heldPart(*plan, **origin, position).withPadding();
    if (part.first != copied.first || part.count != copied.count || part.at != copied.at)
      return unsupported(*variable, "it is a copy of a variable of another size");
    if (part.count == 0)
      continue;
    LMC_LET(onDevice, device.initialize(static_cast<int>(index), part, /*seed=*/0));
    if (*onDevice)
      continue;
    const plan::Slice &source = *plan->slices()->Get((*origin)->slice());
    const plan::Slice &target = *plan->slices()->Get(variable->slice());
    size_t sourceWidth = byteWidth(source.dtype()), targetWidth = byteWidth(target.dtype());
    from.resize(std::max<size_t>(from.size(), std::min(part.count, kChunkElements) * sourceWidth));
    to.resize(std::max<size_t>(to.size(), std::min(part.count, kChunkElements) * targetWidth));
    for (uint64_t done = 0; done < part.count; done += kChunkElements) {
      uint64_t begin = part.at + done, count = std::min(kChunkElements, part.count - done);
      LMC_TRY(device.copyOut(static_cast<int>((*origin)->slice()), from.data(), count * sourceWidth,
                             begin * sourceWidth));
      bool floats = true;
#pragma omp parallel for schedule(static) reduction(&& : floats)
      for (uint64_t first = 0; first < count; first += kThreadElements)
        floats = convertFloats(source.dtype(), from.data() + first * sourceWidth, target.dtype(),
                               to.data() + first * targetWidth,
                               std::min(kThreadElements, count - first)) &&
                 floats;
      if (!floats)
        return unsupported(*variable, "only float variables can be copied");
      LMC_TRY(device.copyIn(static_cast<int>(variable->slice()), to.data(), count * targetWidth,
                            begin * targetWidth));
    }
  }
  return {};
}

} // namespace lmc

#include "runtime/device/cuda/ProductWays.h"

#include "ground/plan/FloatConvert.h"
#include "ground/plan/Operands.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <limits>
#include <random>

namespace lmc::cuda {

using Kind = TwoWayProduct::Kind;

// The two ways (ProductWays.h) have these names in a GemmChoice.
struct Names {
  const char *first, *second;
};
static Names namesOf(Kind kind) {
  if (kind == Kind::Experts)
    return {"lmc expert_gemm", "lmc expert_gemm, persistent"};
  return {"cuBLASLt with SwiGLU behind it", "lmc swiglu_gemm"};
}

// A matrix that a command writes. isNeeded is true if another command reads the matrix.
struct WayResult {
  CUdeviceptr WayAddresses::*at;
  uint64_t columns;
  bool isNeeded;
};
static std::vector<WayResult> resultsOf(const TwoWayProduct &command) {
  const uint64_t columns = command.columns();
  if (command.kind == Kind::Experts)
    return {{&WayAddresses::result, columns, true}};
  if (command.kind == Kind::Gradient)
    return {{&WayAddresses::gradients, 2 * columns, true},
            {&WayAddresses::result, columns, command.both}};
  return {{&WayAddresses::halves, 2 * columns, command.both},
          {&WayAddresses::result, columns, true}};
}

// Memory for trials of a command, outside of the plan's arenas. Experts get equally many rows.
class ProductWays::Trial {
public:
  static Result<Trial> prepare(const Driver &driver, const Gpu &gpu, const TwoWayProduct &command,
                               CUstream stream) {
    Trial trial(driver, stream);
    LMC_TRY(trial.allocate(gpu, command));
    LMC_TRY(trial.fill(command.shape.input));
    if (command.experts)
      LMC_TRY(trial.setOffsets(command));
    for (Event *event : {&trial.begin, &trial.end})
      LMC_TRY(makeEvent(driver, /*timed=*/true, *event));
    return trial;
  }
  Trial(Trial &&) = default;
  // Waits until the GPU no longer uses the memory.
  ~Trial() {
    if (memory.get())
      (void)driver->cuStreamSynchronize(stream);
  }

  // Returns three rows of each needed result: the first, one in between and the last.
  Result<std::vector<std::vector<double>>> results(const TwoWayProduct &command) const {
    const uint64_t m = command.shape.m;
    std::vector<std::vector<double>> copied;
    for (const WayResult &result : resultsOf(command))
      for (uint64_t number : {uint64_t(0), m * 5 / 8, m - 1}) {
        if (!result.isNeeded)
          break;
        const uint64_t bytes = result.columns * byteWidth(command.shape.output);
        LMC_CUDA(*driver,
                 cuMemcpyDtoHAsync(row.get(), at.*result.at + number * bytes, bytes, stream),
                 "copy results");
        LMC_CUDA(*driver, cuStreamSynchronize(stream), "run a matrix product");
        convertFloats(command.shape.output, row.get(), plan::DType::F64,
                      copied.emplace_back(result.columns).data(), result.columns);
      }
    return copied;
  }

  // Overwrites the results, so that old ones cannot be mistaken for new ones.
  Result<void> forget(const TwoWayProduct &command) const {
    const uint64_t columnBytes = command.shape.m * byteWidth(command.shape.output);
    for (const WayResult &result : resultsOf(command))
      LMC_CUDA(*driver, cuMemsetD8Async(at.*result.at, 0xff, result.columns * columnBytes, stream),
               "overwrite results");
    return {};
  }

  WayAddresses at;
  Event begin, end;

private:
  Trial(const Driver &driver, CUstream stream) : driver(&driver), stream(stream) {}
  Result<void> allocate(const Gpu &gpu, const TwoWayProduct &command) {
    const ProductShape &shape = command.shape;
    const uint64_t width = byteWidth(shape.input), result = shape.m * command.columns() * width;
    parts = {{&WayAddresses::left, shape.m * shape.k * width, true},
             {&WayAddresses::weight,
              std::max(uint64_t(1), command.experts) * shape.k * shape.n * width, true},
             {&WayAddresses::result, result, true},
             {&WayAddresses::halves, command.kind == Kind::Experts ? 0 : 2 * result, true},
             {&WayAddresses::gradients, command.kind == Kind::Gradient ? 2 * result : 0, true},
             {&WayAddresses::offsets, command.experts ? 4 * (command.experts + 1) : 0, false},
             {&WayAddresses::workspace, shape.workspaceBytes, false}};
    auto padded = [](uint64_t bytes) { return (bytes + 255) / 256 * 256; };
    uint64_t total = 0;
    for (const Part &part : parts)
      total += padded(part.bytes);
    CUdeviceptr next = 0;
    LMC_TRY(gpu.requireFree(total, "to try ways of matrix products"));
    LMC_CUDA(*driver, cuMemAlloc(&next, total),
             fmt::format("allocate {} bytes to try ways of matrix products", total));
    memory = DeviceMemory(*driver, next);
    for (const Part &part : parts) {
      at.*part.at = next;
      next += padded(part.bytes);
    }
    return allocatePinned(*driver,
                          std::max(2 * command.columns() * width, 4 * (command.experts + 1)),
                          "allocate pinned memory", row);
  }

  // Fills the inputs with random values between -1/2 and 1/2, because a GPU multiplies zeros faster
  // than data. The values repeat after a prime number of elements, so that no two rows are equal.
  Result<void> fill(plan::DType dtype) {
    constexpr uint64_t kValues = 524287;
    const uint64_t patternBytes = kValues * byteWidth(dtype);
    PinnedMemory pattern;
    LMC_TRY(allocatePinned(*driver, patternBytes, "allocate pinned memory", pattern));
    std::vector<double> values(kValues);
    std::mt19937_64 generator(1);
    std::uniform_real_distribution<float> uniform(-0.5f, 0.5f);
    for (double &value : values)
      value = uniform(generator);
    if (!convertFloats(plan::DType::F64, values.data(), dtype, pattern.get(), kValues))
      return machineError("only floating-point matrices can be multiplied");
    for (const Part &part : parts)
      for (uint64_t from = 0; part.isRandom && from < part.bytes; from += patternBytes)
        LMC_CUDA(*driver,
                 cuMemcpyHtoDAsync(at.*part.at + from, pattern.get(),
                                   std::min(patternBytes, part.bytes - from), stream),
                 "copy random values");
    LMC_CUDA(*driver, cuStreamSynchronize(stream), "copy random values");
    return {};
  }

  Result<void> setOffsets(const TwoWayProduct &command) {
    auto *offsets = static_cast<int32_t *>(row.get());
    for (uint64_t e = 0; e <= command.experts; ++e)
      offsets[e] = static_cast<int32_t>(command.shape.m * e / command.experts);
    LMC_CUDA(*driver, cuMemcpyHtoDAsync(at.offsets, offsets, 4 * (command.experts + 1), stream),
             "copy the offsets of experts");
    LMC_CUDA(*driver, cuStreamSynchronize(stream), "copy the offsets of experts");
    return {};
  }

  struct Part {
    CUdeviceptr WayAddresses::*at;
    uint64_t bytes;
    bool isRandom;
  };
  const Driver *driver;
  CUstream stream;
  std::vector<Part> parts;
  DeviceMemory memory;
  PinnedMemory row; // holds a downloaded row of a result or, in setOffsets(), experts' offsets
};
TwoWayProduct ProductWays::describe(const plan::Plan &plan, const plan::Command &command,
                                    const Kernels &kernels) {
  const std::vector<const plan::Launch *> launches = plan::launchesOf(command);
  auto kernel = [&](size_t number) {
    return number < launches.size() ? &kernels.all()[launches[number]->kernel()] : nullptr;
  };
  TwoWayProduct made;
  made.first = kernel(0);
  made.second = kernel(1);
  if (const plan::ExpertLinear *op = command.body_as_ExpertLinear()) {
    made.kind = Kind::Experts;
    made.experts = op->experts();
    made.shape.m = op->rows();
    made.shape.n = op->columns();
    made.shape.k = op->inner();
    made.shape.transposeB = !op->transposed();
    made.shape.input = made.shape.output = plan.slices()->Get(op->x())->dtype();
    return made;
  }
  const plan::LinearSwiglu *forward = command.body_as_LinearSwiglu();
  made.kind = forward ? Kind::Forward : Kind::Gradient;
  made.both = forward ? forward->both() : command.body_as_SwigluLinearGrad()->both();
  made.shape = Products::shapeOf(plan, command, *plan::productOf(command));
  return made;
}

Result<void> ProductWays::run(const TwoWayProduct &command, Way way, const WayAddresses &at,
                              CUstream stream) {
  const bool isGradient = command.kind == Kind::Gradient;
  std::vector<CUdeviceptr> arguments = {at.left, at.weight};
  if (command.kind == Kind::Experts) {
    arguments.push_back(at.offsets);
  } else {
    if (way == Way::First) {
      LMC_TRY(products.run(
          command.shape, {at.left, at.weight, isGradient ? at.result : at.halves, 0, at.workspace},
          stream));
      arguments.clear(); // only cuBLASLt reads `left` and `weight`, not the kernel
    }
    arguments.push_back(at.halves);
    if (isGradient)
      arguments.push_back(at.gradients);
  }
  arguments.push_back(at.result);
  return Kernels::launch(driver, way == Way::First ? *command.first : *command.second, arguments,
                         stream);
}

Result<void> ProductWays::run(const TwoWayProduct &command, const WayAddresses &at,
                              CUstream stream) {
  auto found = chosen.find(command);
  if (found == chosen.end())
    return machineError("no way to compute a product was chosen");
  return run(command, found->second, at, stream);
}

GemmKey ProductWays::keyOf(const TwoWayProduct &command) const {
  GemmKey key = products.keyOf(command.shape);
  if (command.kind == Kind::Experts)
    key.product += fmt::format(" of {} experts", command.experts);
  else
    key.product += fmt::format(" swiglu{}{}", command.kind == Kind::Gradient ? " gradient" : "",
                               command.both ? ", both" : "");
  return key;
}

// Returns hashes of the code of both kernels. If the code changes, the ways are timed again.
static std::string payloadOf(const TwoWayProduct &command) {
  return fmt::format("{:016x} {:016x}", command.first->code, command.second->code);
}

// Returns a text about the first element whose error is larger than rounding explains, or "". Each
// way rounds at most three values to bf16, each with a relative error of 2^-8. Terms of a sum may
// cancel, so a part of the allowed error depends on the root mean square of the row.
static std::string difference(const std::vector<std::vector<double>> &found,
                              const std::vector<std::vector<double>> &expected) {
  for (size_t row = 0; row < found.size(); ++row) {
    double squares = 0;
    for (double value : expected[row])
      squares += value * value;
    const double usual = std::sqrt(squares / double(expected[row].size()));
    for (size_t i = 0; i < found[row].size(); ++i) {
      const double allowed = 0x1p-5 * std::abs(expected[row][i]) + 0x1p-7 * usual;
      if (!(std::abs(found[row][i] - expected[row][i]) <= allowed))
        return fmt::format("element {} of row {} of result {} is {:.9g}, and must be {:.9g}", i,
                           row % 3, row / 3, found[row][i], expected[row][i]);
    }
  }
  return "";
}

// The comment on kHeatSeconds in Products.cpp explains these numbers.
static constexpr int kRounds = 3;
static constexpr double kHeatSeconds = 3e-3, kRoundSeconds = 2e-3;

Result<GemmChoice> ProductWays::measure(const TwoWayProduct &command, const Trial &trial,
                                        CUstream stream) {
  auto seconds = [&](Way way, int runs) -> Result<double> {
    LMC_CUDA(driver, cuEventRecord(trial.begin.get(), stream), "time a matrix product");
    for (int i = 0; i < runs; ++i)
      LMC_TRY(run(command, way, trial.at, stream));
    LMC_CUDA(driver, cuEventRecord(trial.end.get(), stream), "time a matrix product");
    LMC_CUDA(driver, cuEventSynchronize(trial.end.get()), "time a matrix product");
    float milliseconds = 0;
    LMC_CUDA(driver, cuEventElapsedTime(&milliseconds, trial.begin.get(), trial.end.get()),
             "time a matrix product");
    return milliseconds * 1e-3 / runs;
  };
  LMC_LET(once, seconds(Way::First, 1));
  auto runsIn = [&](double time) {
    return static_cast<int>(std::clamp(time / std::max(*once, 1e-6), 1.0, 50.0));
  };
  std::array<double, 2> best;
  best.fill(std::numeric_limits<double>::infinity());
  for (int round = 0; round < kRounds; ++round)
    for (Way way : {Way::First, Way::Second}) {
      for (int i = 0; i < runsIn(kHeatSeconds); ++i)
        LMC_TRY(run(command, Way::First, trial.at, stream));
      LMC_LET(mean, seconds(way, runsIn(kRoundSeconds)));
      best[size_t(way)] = std::min(best[size_t(way)], *mean);
    }
  const Names names = namesOf(command.kind);
  const auto [first, second] = best;
  return second < first ? GemmChoice{names.second, payloadOf(command), second}
                        : GemmChoice{names.first, payloadOf(command), first};
}

Result<ProductWays::Way> ProductWays::chooseOne(const TwoWayProduct &command, GemmChoices *choices,
                                                CUstream stream) {
  if (!choices || !command.second)
    return Way::First;
  const Names names = namesOf(command.kind);
  const GemmKey key = keyOf(command);
  std::optional<GemmChoice> known = choices->find(key);
  if (known && known->payload != payloadOf(command))
    known.reset();
  if (known && known->implementation == names.first)
    return Way::First;
  const bool isKnown = known && known->implementation == names.second;
  GemmChoice choice{names.first, payloadOf(command), 0};
  if (!isKnown && !choices->measures()) {
    choices->add(key, choice, 0);
    return Way::First;
  }
  const auto started = std::chrono::steady_clock::now();
  auto trial = Trial::prepare(driver, gpu, command, stream);
  if (!trial && trial.error().code == ExitCode::DoesNotFit) {
    leftOut.push_back(fmt::format("kernel '{}' was not tried: {}", command.second->name,
                                  trial.error().message));
    choices->add(key, choice, 0);
    return Way::First;
  }
  LMC_TRY(trial);
  LMC_TRY(run(command, Way::First, trial->at, stream));
  LMC_LET(expected, trial->results(command));
  LMC_TRY(trial->forget(command));
  LMC_TRY(run(command, Way::Second, trial->at, stream));
  LMC_LET(found, trial->results(command));
  if (const std::string wrong = difference(*found, *expected); !wrong.empty()) {
    leftOut.push_back(fmt::format("kernel '{}' was left out: {}", command.second->name, wrong));
  } else if (isKnown) {
    return Way::Second;
  } else {
    LMC_LET(measured, measure(command, *trial, stream));
    choice = *measured;
  }
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - started;
  choices->add(key, choice, spent.count());
  return choice.implementation == names.second ? Way::Second : Way::First;
}

Result<void> ProductWays::choose(std::vector<TwoWayProduct> commands, GemmChoices *choices,
                                 CUstream stream) {
  leftOut.clear();
  std::sort(commands.begin(), commands.end());
  commands.erase(std::unique(commands.begin(), commands.end()), commands.end());
  for (const TwoWayProduct &command : commands) {
    if (!command.first)
      return Error{"a command of the plan has no kernels (a matrix product)"};
    LMC_LET(way, chooseOne(command, choices, stream));
    chosen[command] = *way;
  }
  return {};
}

} // namespace lmc::cuda

#include "runtime/device/cuda/SwigluProducts.h"

#include "runtime/plan/FloatConvert.h"
#include "runtime/plan/Operands.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <limits>
#include <random>

namespace lmc::cuda {

// The implementations, by their names in files of choices.
static constexpr const char *kApart = "cuBLASLt with SwiGLU behind it", *kWhole = "lmc swiglu_gemm";

// Memory for a command that is run to try it, outside of the plan's arenas, with random inputs.
class SwigluProducts::Trial {
public:
  static Result<Trial> prepare(const Driver &driver, const Gpu &gpu, const SwigluProduct &command,
                               CUstream stream);
  Trial(Trial &&) = default;
  // Waits until the GPU no longer uses the memory.
  ~Trial() {
    if (memory.get())
      (void)driver->cuStreamSynchronize(stream);
  }

  // Returns three rows of each result that is needed, as numbers: the first, the last and one
  // between.
  Result<std::vector<std::vector<double>>> results(const SwigluProduct &command) const;
  // Overwrites the results, so that those of an earlier run are not taken for new ones.
  Result<void> forget(const SwigluProduct &command) const;

  SwigluAddresses at;
  Event begin, end;

private:
  Trial(const Driver &driver, CUstream stream) : driver(&driver), stream(stream) {}

  const Driver *driver;
  CUstream stream;
  DeviceMemory memory;
  PinnedMemory rows; // a row of a result
};

Result<SwigluProducts::Trial> SwigluProducts::Trial::prepare(const Driver &driver, const Gpu &gpu,
                                                             const SwigluProduct &command,
                                                             CUstream stream) {
  const ProductShape &shape = command.shape;
  const uint64_t width = byteWidth(shape.input);
  std::vector<std::pair<CUdeviceptr SwigluAddresses::*, uint64_t>> parts = {
      {&SwigluAddresses::left, shape.m * shape.k * width},
      {&SwigluAddresses::weight, shape.k * shape.n * width},
      {&SwigluAddresses::halves, command.bytesOfHalves()},
      {&SwigluAddresses::activation, command.bytesOfHalves() / 2},
      {&SwigluAddresses::workspace, shape.workspaceBytes}};
  if (command.gradient)
    parts.push_back({&SwigluAddresses::gradients, command.bytesOfHalves()});
  uint64_t total = 0;
  for (auto &[part, bytes] : parts)
    total += (bytes + 255) / 256 * 256;
  Trial trial(driver, stream);
  CUdeviceptr next = 0;
  LMC_TRY(gpu.requireFree(total, "to try matrix products with SwiGLU"));
  LMC_CUDA(driver, cuMemAlloc(&next, total),
           fmt::format("allocate {} bytes to try matrix products with SwiGLU", total));
  trial.memory = DeviceMemory(driver, next);
  for (auto &[part, bytes] : parts) {
    trial.at.*part = next;
    next += (bytes + 255) / 256 * 256;
  }
  // A GPU that multiplies zeros draws less power, and runs faster, than one that multiplies data.
  // Of random values between -1/2 and 1/2, a prime number is repeated, so that no two rows are
  // equal.
  constexpr uint64_t kValues = 524287;
  void *pinned = nullptr;
  LMC_CUDA(driver, cuMemHostAlloc(&pinned, kValues * width, 0), "allocate pinned memory");
  PinnedMemory pattern(driver, pinned);
  std::vector<double> values(kValues);
  std::mt19937_64 generator(1);
  std::uniform_real_distribution<float> uniform(-0.5f, 0.5f);
  for (double &value : values)
    value = uniform(generator);
  if (!convertFloats(plan::DType::F64, values.data(), shape.input, pinned, kValues))
    return Error{"only floating-point matrices can be multiplied", ExitCode::Failure};
  for (auto &[part, bytes] : parts)
    if (part != &SwigluAddresses::workspace)
      for (uint64_t from = 0; from < bytes; from += kValues * width)
        LMC_CUDA(driver,
                 cuMemcpyHtoDAsync(trial.at.*part + from, pinned,
                                   std::min(kValues * width, bytes - from), stream),
                 "copy random values");
  LMC_CUDA(driver, cuStreamSynchronize(stream), "copy random values");
  LMC_CUDA(driver,
           cuMemHostAlloc(&pinned, 2 * command.columns() * byteWidth(command.shape.output), 0),
           "allocate pinned memory");
  trial.rows = PinnedMemory(driver, pinned);
  for (Event *event : {&trial.begin, &trial.end}) {
    auto made = makeEvent(driver, /*timed=*/true);
    LMC_TRY(made);
    *event = std::move(*made);
  }
  return trial;
}

Result<std::vector<std::vector<double>>>
SwigluProducts::Trial::results(const SwigluProduct &command) const {
  const uint64_t m = command.shape.m;
  std::vector<std::vector<double>> copied;
  std::vector<std::pair<CUdeviceptr, uint64_t>> needed;
  if (command.gradient || command.both)
    needed.emplace_back(command.gradient ? at.gradients : at.halves, 2 * command.columns());
  if (!command.gradient || command.both)
    needed.emplace_back(at.activation, command.columns());
  for (auto [result, columns] : needed)
    for (uint64_t row : {uint64_t(0), m * 5 / 8, m - 1}) {
      const uint64_t bytes = columns * byteWidth(command.shape.output);
      LMC_CUDA(*driver, cuMemcpyDtoHAsync(rows.get(), result + row * bytes, bytes, stream),
               "copy results");
      LMC_CUDA(*driver, cuStreamSynchronize(stream), "run a matrix product with SwiGLU");
      convertFloats(command.shape.output, rows.get(), plan::DType::F64,
                    copied.emplace_back(columns).data(), columns);
    }
  return copied;
}

Result<void> SwigluProducts::Trial::forget(const SwigluProduct &command) const {
  const CUdeviceptr halves = command.gradient ? at.gradients : at.halves;
  for (auto [result, bytes] : {std::pair(halves, command.bytesOfHalves()),
                               std::pair(at.activation, command.bytesOfHalves() / 2)})
    LMC_CUDA(*driver, cuMemsetD8Async(result, 0xff, bytes, stream), "overwrite results");
  return {};
}

SwigluProduct SwigluProducts::describe(const plan::Plan &plan, const plan::Command &command,
                                       const Kernels &kernels) {
  const std::vector<const plan::Launch *> launches = plan::launchesOf(command);
  auto kernel = [&](size_t number) {
    return number < launches.size() ? &kernels.all()[launches[number]->kernel()] : nullptr;
  };
  const plan::LinearSwiglu *forward = command.body_as_LinearSwiglu();
  return {Products::shapeOf(plan, command, *plan::productOf(command)), !forward,
          forward ? forward->both() : command.body_as_SwigluLinearGrad()->both(), kernel(0),
          kernel(1)};
}

Result<void> SwigluProducts::run(const SwigluProduct &command, Way way, const SwigluAddresses &at,
                                 CUstream stream) {
  std::vector<CUdeviceptr> arguments;
  if (way == Way::Whole)
    arguments = {at.left, at.weight};
  else
    LMC_TRY(products.run(
        command.shape,
        {at.left, at.weight, command.gradient ? at.activation : at.halves, 0, at.workspace},
        stream));
  arguments.push_back(at.halves);
  if (command.gradient)
    arguments.push_back(at.gradients);
  arguments.push_back(at.activation);
  return Kernels::launch(driver, way == Way::Whole ? *command.whole : *command.rows, arguments,
                         stream);
}

Result<void> SwigluProducts::run(const SwigluProduct &command, const SwigluAddresses &at,
                                 CUstream stream) {
  auto found = chosen.find(command);
  if (found == chosen.end())
    return Error{"a product with SwiGLU has no choice", ExitCode::Failure};
  return run(command, found->second, at, stream);
}

GemmKey SwigluProducts::keyOf(const SwigluProduct &command) const {
  GemmKey key = products.keyOf(command.shape);
  key.product +=
      fmt::format(" {} by {:016x} or {:016x}", command.gradient ? "swiglu gradient" : "swiglu",
                  command.rows->code, command.whole->code);
  return key;
}

// Returns "", or how a result differs by more than the rounding of sums and results allows:
// elements are rounded to bf16 several times on their way, each time to within 2^-9 of their value;
// sums whose terms cancel have an error that is small beside the other elements of the row.
static std::string difference(const std::vector<std::vector<double>> &found,
                              const std::vector<std::vector<double>> &expected) {
  for (size_t row = 0; row < found.size(); ++row) {
    double squares = 0;
    for (double value : expected[row])
      squares += value * value;
    const double usual = std::sqrt(squares / double(expected[row].size()));
    for (size_t i = 0; i < found[row].size(); ++i) {
      const double allowed = 0x1p-6 * std::abs(expected[row][i]) + 0x1p-7 * usual;
      if (!(std::abs(found[row][i] - expected[row][i]) <= allowed))
        return fmt::format("element {} of row {} of result {} is {:.9g}, and must be {:.9g}", i,
                           row % 3, row / 3, found[row][i], expected[row][i]);
    }
  }
  return "";
}

// As in Products.cpp.
static constexpr int kRounds = 3;
static constexpr double kHeatSeconds = 3e-3, kRoundSeconds = 2e-3;

Result<GemmChoice> SwigluProducts::measure(const SwigluProduct &command, const Trial &trial,
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
  auto once = seconds(Way::Apart, 1);
  LMC_TRY(once);
  auto runsIn = [&](double time) {
    return static_cast<int>(std::clamp(time / std::max(*once, 1e-6), 1.0, 50.0));
  };
  // The two take turns, each behind products that heat the GPU.
  std::array<double, 2> best;
  best.fill(std::numeric_limits<double>::infinity());
  for (int round = 0; round < kRounds; ++round)
    for (Way way : {Way::Apart, Way::Whole}) {
      for (int i = 0; i < runsIn(kHeatSeconds); ++i)
        LMC_TRY(run(command, Way::Apart, trial.at, stream));
      auto mean = seconds(way, runsIn(kRoundSeconds));
      LMC_TRY(mean);
      best[size_t(way)] = std::min(best[size_t(way)], *mean);
    }
  const bool whole = best[size_t(Way::Whole)] < best[size_t(Way::Apart)];
  return GemmChoice{whole ? kWhole : kApart, "", best[size_t(whole ? Way::Whole : Way::Apart)]};
}

Result<SwigluProducts::Way> SwigluProducts::chooseOne(const SwigluProduct &command,
                                                      GemmChoices *choices, CUstream stream) {
  if (!choices || !command.whole)
    return Way::Apart;
  const GemmKey key = keyOf(command);
  const std::optional<GemmChoice> known = choices->find(key);
  if (known && known->implementation == kApart)
    return Way::Apart;
  const bool isKnown = known && known->implementation == kWhole;
  if (!isKnown && !choices->measures()) {
    choices->add(key, {kApart, "", 0}, 0);
    return Way::Apart;
  }
  const auto started = std::chrono::steady_clock::now();
  auto trial = Trial::prepare(driver, gpu, command, stream);
  LMC_TRY(trial);
  LMC_TRY(run(command, Way::Apart, trial->at, stream));
  auto expected = trial->results(command);
  LMC_TRY(expected);
  LMC_TRY(trial->forget(command));
  LMC_TRY(run(command, Way::Whole, trial->at, stream));
  auto found = trial->results(command);
  LMC_TRY(found);
  GemmChoice choice{kApart, "", 0};
  if (const std::string wrong = difference(*found, *expected); !wrong.empty()) {
    leftOut.push_back(fmt::format("kernel '{}' was left out: {}", command.whole->name, wrong));
  } else if (isKnown) {
    return Way::Whole;
  } else {
    auto measured = measure(command, *trial, stream);
    LMC_TRY(measured);
    choice = *measured;
  }
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - started;
  choices->add(key, choice, spent.count());
  return choice.implementation == kWhole ? Way::Whole : Way::Apart;
}

Result<void> SwigluProducts::choose(std::vector<SwigluProduct> commands, GemmChoices *choices,
                                    CUstream stream) {
  std::sort(commands.begin(), commands.end());
  commands.erase(std::unique(commands.begin(), commands.end()), commands.end());
  for (const SwigluProduct &command : commands) {
    if (!command.rows)
      return Error{"a command of the plan has no kernels (a matrix product with SwiGLU)"};
    auto way = chooseOne(command, choices, stream);
    LMC_TRY(way);
    chosen[command] = *way;
  }
  return {};
}

} // namespace lmc::cuda

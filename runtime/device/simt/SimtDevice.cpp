#include "runtime/device/simt/SimtDevice.h"
#include "runtime/device/cpu/CpuMachine.h"
#include "runtime/device/cpu/HostCommands.h"
#include "runtime/device/simt/SimtKernel.h"

#include <fmt/format.h>

#include <functional>

namespace lmc::simt {
namespace {

class SimtDevice;

struct SimtExecutable final : Executable {
  SimtDevice *owner = nullptr;
  std::vector<std::function<Result<void>()>> commands;
};

class SimtDevice final : public Device {
public:
  explicit SimtDevice(uint64_t seed) : seed(seed), gemms(1) {}

  DeviceInfo info(plan::DType) const override {
    DeviceInfo info;
    info.name = "SIMT executor";
    info.memoryBytes = cpu::memoryBytes();
    return info;
  }
  Result<void> load(const PlanFile &file) override;
  uint64_t allocatedBytes() const override { return memory.bytes(); }
  Result<std::unique_ptr<Executable>> record(int index) override;
  Result<void> submit(Executable &executable) override;
  Result<void> synchronize() override { return {}; }
  Result<void> copyIn(int slice, const void *source, uint64_t bytes, uint64_t offset) override {
    return memory.copyIn(slice, source, bytes, offset);
  }
  Result<void> copyOut(int slice, void *target, uint64_t bytes, uint64_t offset) override {
    return memory.copyOut(slice, target, bytes, offset);
  }

private:
  using Step = std::function<Result<void>()>;

  Argument argument(uint32_t index, Access access) {
    const plan::Slice &slice = memory.slice(index);
    return {memory.address(index), slice.bytes(), access, slice.pitch() ? slice.rows() : 1,
            slice.pitch()};
  }
  // `results` says how the kernel accesses the arguments that follow its inputs.
  Step stepOf(const plan::Launch &launch, Access results, const std::string &source);
  Result<void> resolve(const plan::Command &command, std::vector<Step> &steps);

  uint64_t seed, launched = 0;
  cpu::GemmCache gemms;
  cpu::HostMemory memory;
  std::vector<Kernel> kernels; // one per kernel of the plan
};

Result<void> SimtDevice::load(const PlanFile &file) {
  std::vector<Source> sources;
  for (const auto *kernel : *file->kernels()) {
    if (!kernel->source() || !kernel->grid())
      return Error{
          fmt::format("{}: kernel '{}' has no CUDA source", file.path(), kernel->name()->str())};
    Source source;
    source.name = kernel->entry()->str();
    source.text = kernel->source()->str();
    for (uint32_t i = 0; i < 3; ++i)
      source.grid[i] = kernel->grid()->Get(i);
    source.threads = kernel->threads();
    source.sharedBytes = kernel->shared_bytes();
    sources.push_back(source);
  }
  for (Result<Kernel> &kernel : compile(sources)) {
    if (!kernel)
      return Error{fmt::format("{}: {}", file.path(), kernel.error().message)};
    kernels.push_back(std::move(*kernel));
  }
  LMC_TRY(memory.allocate(file));
  // The arena `state` (index 0) starts as zeros; all other arenas start as garbage.
  for (uint32_t i = 1; i < file->arenas()->size(); ++i)
    fillGarbage(memory.arena(i).data(), file->arenas()->Get(i)->bytes(), seed, i + 1);
  return {};
}

SimtDevice::Step SimtDevice::stepOf(const plan::Launch &launch, Access results,
                                    const std::string &source) {
  std::vector<Argument> arguments;
  for (uint32_t slice : *launch.args())
    arguments.push_back(
        argument(slice, arguments.size() < launch.inputs() ? Access::Read : results));
  return [=, this, &kernel = kernels[launch.kernel()]]() -> Result<void> {
    RunResult run = simt::run(kernel, arguments, Order::of(seed * 1000003 + launched++));
    if (!run.failure.empty())
      return Error{fmt::format("{} ({})", run.failure, source), ExitCode::Failure};
    return {};
  };
}

Result<void> SimtDevice::resolve(const plan::Command &command, std::vector<Step> &steps) {
  const std::string source = command.source() ? command.source()->str() : "";
  if (const plan::Launch *launch = command.body_as_Launch()) {
    steps.push_back(stepOf(*launch, Access::Write, source));
    return {};
  }
  if (const plan::Gemm *op = command.body_as_Gemm()) {
    auto gemm = cpu::bindGemm(*op, memory, gemms);
    LMC_TRY(gemm);
    steps.push_back([gemm = *gemm]() -> Result<void> {
      gemm.run();
      return {};
    });
    return {};
  }
  if (const plan::Copy *op = command.body_as_Copy()) {
    steps.push_back([copy = cpu::bindCopy(*op, memory)]() -> Result<void> {
      copy.run(1);
      return {};
    });
    return {};
  }
  if (!command.launches() || command.launches()->size() == 0)
    return Error{fmt::format("a command of the plan has no kernels ({})", source)};
  // A launch may write only a part of a command's result or workspace, and may read what an earlier
  // launch of the command wrote.
  for (const plan::Launch *launch : *command.launches())
    steps.push_back(stepOf(*launch, Access::ReadWrite, source));
  return {};
}

Result<std::unique_ptr<Executable>> SimtDevice::record(int index) {
  auto function = memory.function(index);
  LMC_TRY(function);
  auto executable = std::make_unique<SimtExecutable>();
  executable->owner = this;
  for (const auto *command : *(*function)->commands())
    LMC_TRY(resolve(*command, executable->commands));
  return std::unique_ptr<Executable>(std::move(executable));
}

Result<void> SimtDevice::submit(Executable &executable) {
  auto *recorded = dynamic_cast<SimtExecutable *>(&executable);
  if (!recorded || recorded->owner != this)
    return Error{"a function was submitted to a device that did not record it", ExitCode::Failure};
  for (const auto &command : recorded->commands)
    LMC_TRY(command());
  return {};
}

} // namespace

std::unique_ptr<Device> makeSimtDevice(uint64_t seed) { return std::make_unique<SimtDevice>(seed); }

} // namespace lmc::simt

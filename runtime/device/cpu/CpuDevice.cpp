// The CPU as a device. submit() runs the commands of a function on OpenMP threads, and returns when
// they are complete.
#include "ground/plan/Operands.h"
#include "ground/support/Arithmetic.h"
#include "runtime/device/CommandClock.h"
#include "runtime/device/GemmChoices.h"
#include "runtime/device/cpu/CpuMachine.h"
#include "runtime/device/cpu/HostCommands.h"
#include "runtime/device/cpu/Resolver.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <vector>

namespace lmc::cpu {
namespace {

class CpuDevice;

struct CpuExecutable final : Executable {
  CpuDevice *owner = nullptr;
  const plan::Function *function = nullptr;
  std::vector<BoundCommand> commands;                      // one per command of the function
  std::shared_ptr<std::vector<StartedCollective>> started; // see Resolver
};

struct CpuMark final : Mark {
  std::chrono::steady_clock::time_point reached;
};

class CpuDevice final : public Device {
public:
  CpuDevice(int threads, const DeviceOptions &options)
      : choices(options.gemms), resolver(threads, options.gemms, options.world) {}

  DeviceInfo info(plan::DType computeDType) const override {
    const int threads = resolver.threads;
    PeakSpeed peak = peakSpeed(storageOf(computeDType), threads);
    return {fmt::format("{}, {} thread{}", processorName(), threads, threads == 1 ? "" : "s"),
            threads,
            peak.flops,
            peak.source,
            memoryBytes(),
            0,
            {}};
  }

  Result<void> load(const PlanFile &file) override;
  uint64_t allocatedBytes() const override { return resolver.memory.bytes(); }
  Result<std::unique_ptr<Executable>> record(int index) override;
  Result<void> submit(Executable &executable) override {
    return run(executable, [](uint32_t) { return Result<void>(); });
  }
  Result<std::vector<CommandTime>> submitTimed(Executable &executable,
                                               const AfterCommand &after) override {
    CommandClock clock;
    LMC_TRY(run(executable, [&](uint32_t command) -> Result<void> {
      if (after)
        LMC_TRY(after(command));
      clock.ended();
      return {};
    }));
    const auto &recorded = static_cast<const CpuExecutable &>(executable);
    for (size_t i = 0; i < recorded.started->size(); ++i)
      if (const StartedCollective &each = (*recorded.started)[i]; each.number > 0)
        clock.ran(i, each.begin, each.end);
    return clock.take();
  }
  // submit() and the copies return only when the work is complete, so no mark ever has to wait.
  Result<std::unique_ptr<HostBuffer>> hostBuffer(uint64_t bytes) override {
    return PlainBuffer::allocate(bytes);
  }
  Result<void> upload(const ArenaRange &to, const HostBuffer &from, uint64_t offset) override {
    return resolver.memory.upload(to, from, offset);
  }
  Result<void> download(const ArenaRange &from, HostBuffer &to, uint64_t offset) override {
    return resolver.memory.download(from, to, offset);
  }
  Result<std::unique_ptr<Mark>> makeMark() override {
    return std::unique_ptr<Mark>(std::make_unique<CpuMark>());
  }
  Result<void> place(Mark &mark) override {
    static_cast<CpuMark &>(mark).reached = std::chrono::steady_clock::now();
    return {};
  }
  Result<void> wait(Mark &) override { return synchronize(); }
  Result<bool> reached(Mark &) override {
    LMC_TRY(synchronize());
    return true;
  }
  Result<double> secondsBetween(const Mark &from, const Mark &to) override {
    return std::chrono::duration<double>(static_cast<const CpuMark &>(to).reached -
                                         static_cast<const CpuMark &>(from).reached)
        .count();
  }
  Result<void> synchronize() override { return outcome; }
  Result<void> copyIn(int slice, const void *source, uint64_t bytes, uint64_t offset) override {
    return resolver.memory.copyIn(slice, source, bytes, offset);
  }
  Result<void> copyOut(int slice, void *target, uint64_t bytes, uint64_t offset) override {
    return resolver.memory.copyOut(slice, target, bytes, offset);
  }

private:
  Result<void> chooseProducts(const plan::Plan &plan);
  // Runs a function, and calls `ended` after each command.
  template <typename Ended> Result<void> run(Executable &executable, Ended ended);
  // Sets OpenMP's number of threads and the rounding mode, which a library may have changed.
  void useThreads() const {
    omp_set_dynamic(0);
    omp_set_num_threads(resolver.threads);
#pragma omp parallel
    useDefaultArithmetic();
  }

  GemmChoices *const choices; // may be null
  std::vector<std::unique_ptr<CpuModule>> modules;
  Resolver resolver;
  Result<void> outcome; // the first Error of a run
};

Result<void> CpuDevice::load(const PlanFile &file) {
  // Modules are loaded before arenas are allocated: a plan that cannot run here takes no memory.
  for (const auto *module : *file->modules()) {
    if (module->image()->size() == 0)
      return userError("{}: the plan's kernels have no code; compile it again", file.path());
    auto loaded = CpuModule::load(*module);
    if (!loaded)
      return Error{fmt::format("{}: {}", file.path(), loaded.error().message), loaded.error().code};
    modules.push_back(std::move(*loaded));
  }
  for (const auto *kernel : *file->kernels()) {
    auto entry = modules[kernel->module_()]->find(kernel->entry()->str());
    if (!entry)
      return userError("{}: {}", file.path(), entry.error().message);
    resolver.entries.push_back(*entry);
  }
  LMC_TRY(resolver.memory.allocate(file));
  return chooseTogether(choices, resolver.world, [&] { return chooseProducts(*file); });
}

Result<void> CpuDevice::chooseProducts(const plan::Plan &plan) {
  useThreads();
  resolver.gemms.clear();
  for (const auto *function : *plan.functions())
    for (const auto *command : *function->commands()) {
      if (const plan::Gemm *op = plan::productOf(*command))
        LMC_TRY(bindGemm(*op, command->workspace(), resolver.memory, resolver.gemms));
      if (const plan::ExpertLinear *op = command->body_as_ExpertLinear())
        LMC_TRY(bindExperts(*op, resolver.memory, resolver.gemms));
      if (const plan::ExpertLinearGrad *op = command->body_as_ExpertLinearGrad())
        LMC_TRY(bindExperts(*op, resolver.memory, resolver.gemms));
      if (const plan::ExpertScaledLinear *op = command->body_as_ExpertScaledLinear())
        LMC_TRY(bindExperts(*op, command->workspace(), resolver.memory, resolver.gemms));
    }
  return {};
}

Result<std::unique_ptr<Executable>> CpuDevice::record(int index) {
  LMC_LET(function, resolver.memory.function(index));
  useThreads();
  auto executable = std::make_unique<CpuExecutable>();
  executable->owner = this;
  executable->function = *function;
  try {
    resolver.function = *function;
    resolver.started = executable->started =
        std::make_shared<std::vector<StartedCollective>>((*function)->commands()->size());
    for (const auto *command : *(*function)->commands()) {
      resolver.command = static_cast<uint32_t>(executable->commands.size());
      LMC_LET(resolved, plan::visitBody(*command, [&](const auto &body) {
                return resolve(resolver, *command, body);
              }));
      executable->commands.push_back(std::move(*resolved));
    }
  } catch (const std::bad_alloc &) {
    return Error{"not enough memory for the scratch of the plan's commands", ExitCode::Failure};
  }
  return std::unique_ptr<Executable>(std::move(executable));
}

template <typename Ended> Result<void> CpuDevice::run(Executable &executable, Ended ended) {
  auto *recorded = dynamic_cast<CpuExecutable *>(&executable);
  if (!recorded || recorded->owner != this)
    return Error{"a function was submitted to a device that did not record it", ExitCode::Failure};
  useThreads();
  LMC_TRY(synchronize());
  const plan::Function &function = *recorded->function;
  flatbuffers::uoffset_t at = 0;
  try {
    for (; at < recorded->commands.size(); ++at) {
      recorded->commands[at]();
      LMC_TRY(ended(at));
    }
  } catch (const CommandFailed &failed) {
    outcome = Error{fmt::format("{}: {}", plan::placeOf(function, at), failed.what()), failed.code};
  } catch (const std::exception &thrown) {
    outcome = machineError("{} failed: {}", plan::placeOf(function, at), thrown.what());
  }
  return synchronize();
}

} // namespace

// Returns the number of threads that OpenMP really gives, at most `wanted`. If oneDNN gets fewer
// threads than it prepared a product for, it leaves out work.
static int obtainedThreads(int wanted) {
  omp_set_dynamic(0);
  omp_set_max_active_levels(std::max(1, omp_get_max_active_levels()));
  int obtained = 1;
#pragma omp parallel num_threads(wanted)
#pragma omp single
  obtained = omp_get_num_threads();
  return obtained;
}

} // namespace lmc::cpu

namespace lmc {

Result<std::unique_ptr<Device>> cpuDevice(const DeviceOptions &options) {
  LMC_TRY(cpu::checkKernelSet());
  const int threads = cpu::obtainedThreads(cpu::threadCount(options.threads));
  return std::unique_ptr<Device>(std::make_unique<cpu::CpuDevice>(threads, options));
}

} // namespace lmc

#include "test/simt/SimtDevice.h"

#include "ground/plan/Operands.h"
#include "runtime/device/CommandClock.h"
#include "runtime/device/cpu/CpuMachine.h"
#include "runtime/device/cpu/HostCommands.h"
#include "test/simt/SimtKernel.h"

#include <fmt/format.h>

#include <chrono>
#include <deque>
#include <functional>
#include <optional>

namespace lmc::simt {
namespace {

class SimtDevice;

using Task = std::function<Result<void>()>;

struct SimtExecutable final : Executable {
  SimtDevice *owner = nullptr;
  std::vector<std::vector<Task>> commands; // the tasks of each command
};

// A mark is reached when all `behind` pieces of work that were enqueued before it are complete.
struct SimtMark final : Mark {
  using Time = std::chrono::steady_clock::time_point;
  uint64_t behind = 0;
  std::shared_ptr<Time> time = std::make_shared<Time>();
};

class SimtDevice final : public Device {
public:
  SimtDevice(uint64_t seed, World *world) : seed(seed), world(world), gemms(1) {}

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
  Result<std::vector<CommandTime>> submitTimed(Executable &executable,
                                               const AfterCommand &after) override;
  Result<std::unique_ptr<HostBuffer>> hostBuffer(uint64_t bytes) override {
    return cpu::PlainBuffer::allocate(bytes);
  }
  Result<void> upload(const ArenaRange &to, const HostBuffer &from, uint64_t offset) override {
    LMC_TRY(memory.check(to));
    LMC_TRY(checkRange(from, offset, to.bytes));
    queue.push_back([=, this, &from] { return memory.upload(to, from, offset); });
    return {};
  }
  Result<void> download(const ArenaRange &from, HostBuffer &to, uint64_t offset) override {
    LMC_TRY(memory.check(from));
    LMC_TRY(checkRange(to, offset, from.bytes));
    queue.push_back([=, this, &to] { return memory.download(from, to, offset); });
    return {};
  }
  Result<std::unique_ptr<Mark>> makeMark() override {
    return std::unique_ptr<Mark>(std::make_unique<SimtMark>());
  }
  Result<void> place(Mark &mark) override {
    auto &at = static_cast<SimtMark &>(mark);
    queue.push_back([time = at.time]() -> Result<void> {
      *time = std::chrono::steady_clock::now();
      return {};
    });
    at.behind = executed + queue.size();
    return {};
  }
  Result<void> wait(Mark &mark) override { return runUntil(static_cast<SimtMark &>(mark).behind); }
  Result<bool> reached(Mark &mark) override {
    LMC_TRY(runUntil(0));
    return executed >= static_cast<SimtMark &>(mark).behind;
  }
  Result<double> secondsBetween(const Mark &from, const Mark &to) override {
    return std::chrono::duration<double>(*static_cast<const SimtMark &>(to).time -
                                         *static_cast<const SimtMark &>(from).time)
        .count();
  }
  Result<void> synchronize() override { return runUntil(executed + queue.size()); }
  Result<void> copyIn(int slice, const void *source, uint64_t bytes, uint64_t offset) override {
    LMC_TRY(synchronize());
    return memory.copyIn(slice, source, bytes, offset);
  }
  Result<void> copyOut(int slice, void *target, uint64_t bytes, uint64_t offset) override {
    LMC_TRY(synchronize());
    return memory.copyOut(slice, target, bytes, offset);
  }

private:
  Argument argument(uint32_t index, Access access) {
    const plan::Slice &slice = memory.slice(index);
    return {memory.address(index), slice.bytes(), access, slice.pitch() ? slice.rows() : 1,
            slice.pitch()};
  }
  // `results` says how the kernel accesses the arguments that follow its inputs.
  Task taskOf(const plan::Launch &launch, Access results, const std::string &source);
  Result<Task> taskOf(const plan::Collective &op);
  Result<void> resolve(const plan::Command &command, std::vector<Task> &tasks);
  Result<void> resolveInOneOfTwoWays(const plan::Command &command, const std::string &source,
                                     std::vector<Task> &tasks);
  Result<SimtExecutable *> recordedHere(Executable &executable);
  // Executes the queue until `count` pieces of work are complete since the device was opened.
  Result<void> runUntil(uint64_t count);

  uint64_t seed, launched = 0;
  uint64_t inTwoWays = 0; // commands that were recorded and can be computed in two ways
  World *world;
  cpu::GemmCache gemms;
  cpu::HostMemory memory;
  std::vector<Kernel> kernels; // one per kernel of the plan
  // Work that is enqueued and not executed. It stays here until somebody waits, as late as a GPU
  // may execute it: a host buffer that is changed too early has the wrong contents.
  std::deque<Task> queue;
  uint64_t executed = 0;
  std::optional<Error> failure; // the first failure of a task
};

Result<void> SimtDevice::runUntil(uint64_t count) {
  while (!failure && executed < count && !queue.empty()) {
    Task task = std::move(queue.front());
    queue.pop_front();
    ++executed;
    if (auto done = task(); !done)
      failure = done.error();
  }
  if (failure)
    return *failure;
  return {};
}

Result<void> SimtDevice::load(const PlanFile &file) {
  std::vector<Source> sources;
  for (const auto *kernel : *file->kernels()) {
    if (!kernel->source() || !kernel->grid())
      return userError("{}: kernel '{}' has no CUDA source", file.path(), kernel->name()->str());
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
      return userError("{}: {}", file.path(), kernel.error().message);
    kernels.push_back(std::move(*kernel));
  }
  LMC_TRY(memory.allocate(file));
  // The arena `state` (index 0) starts as zeros; all other arenas start as garbage.
  for (uint32_t i = 1; i < file->arenas()->size(); ++i)
    fillGarbage(memory.arena(i).data(), file->arenas()->Get(i)->bytes(), seed, i + 1);
  return {};
}

Task SimtDevice::taskOf(const plan::Launch &launch, Access results, const std::string &source) {
  std::vector<Argument> arguments;
  for (uint32_t slice : *launch.args())
    arguments.push_back(
        argument(slice, arguments.size() < launch.inputs() ? Access::Read : results));
  return [=, this, &kernel = kernels[launch.kernel()]]() -> Result<void> {
    RunResult run = simt::run(kernel, arguments, Order::of(seed * 1000003 + launched++));
    if (!run.failure.empty())
      return machineError("{} ({})", run.failure, source);
    return {};
  };
}

Result<Task> SimtDevice::taskOf(const plan::Collective &op) {
  if (!world)
    return Error{"the plan is for several ranks, and this device has none"};
  const void *x = memory.address(op.x());
  void *d = memory.address(op.d());
  const plan::Slice &in = memory.slice(op.x()), &out = memory.slice(op.d());
  return Task([&group = world->along(op.axis()), kind = op.kind(), x, d, bytes = in.bytes(),
               elements = out.bytes() / byteWidth(out.dtype()),
               dtype = out.dtype()] { return group.run(kind, x, bytes, d, elements, dtype); });
}

// The commands of a plan take turns: one is computed in the first way, the next one in the second.
Result<void> SimtDevice::resolveInOneOfTwoWays(const plan::Command &command,
                                               const std::string &source,
                                               std::vector<Task> &tasks) {
  const std::vector<const plan::Launch *> launches = plan::launchesOf(command);
  if (launches.empty())
    return userError("a command of the plan has no kernels ({})", source);
  const bool second = launches.size() > 1 && inTwoWays++ % 2 == 1;
  if (const plan::Gemm *op = plan::productOf(command); op && !second) {
    auto gemm = cpu::bindGemm(*op, -1, memory, gemms);
    LMC_TRY(gemm);
    tasks.push_back([gemm = *gemm]() -> Result<void> {
      gemm.run();
      return {};
    });
  }
  tasks.push_back(taskOf(*launches[second], Access::ReadWrite, source));
  return {};
}

Result<void> SimtDevice::resolve(const plan::Command &command, std::vector<Task> &tasks) {
  const std::string source = command.source() ? command.source()->str() : "";
  if (const plan::Launch *launch = command.body_as_Launch()) {
    tasks.push_back(taskOf(*launch, Access::Write, source));
    return {};
  }
  if (const plan::Gemm *op = command.body_as_Gemm()) {
    auto gemm = cpu::bindGemm(*op, command.workspace(), memory, gemms);
    LMC_TRY(gemm);
    tasks.push_back([gemm = *gemm]() -> Result<void> {
      gemm.run();
      return {};
    });
    return {};
  }
  if (plan::hasTwoWays(command))
    return resolveInOneOfTwoWays(command, source, tasks);
  if (const plan::Copy *op = command.body_as_Copy()) {
    tasks.push_back([copy = cpu::bindCopy(*op, memory)]() -> Result<void> {
      copy.run(1);
      return {};
    });
    return {};
  }
  if (const plan::Collective *op = command.body_as_Collective()) {
    auto collective = taskOf(*op);
    LMC_TRY(collective);
    tasks.push_back(std::move(*collective));
    return {};
  }
  if (command.body_as_Wait())
    return {}; // a collective ends before the next command starts
  if (!command.launches() || command.launches()->size() == 0)
    return userError("a command of the plan has no kernels ({})", source);
  // A launch may write only a part of a command's result or workspace, and may read what an earlier
  // launch of the command wrote.
  for (const plan::Launch *launch : *command.launches())
    tasks.push_back(taskOf(*launch, Access::ReadWrite, source));
  return {};
}

Result<std::unique_ptr<Executable>> SimtDevice::record(int index) {
  auto function = memory.function(index);
  LMC_TRY(function);
  auto executable = std::make_unique<SimtExecutable>();
  executable->owner = this;
  for (const auto *command : *(*function)->commands())
    LMC_TRY(resolve(*command, executable->commands.emplace_back()));
  return std::unique_ptr<Executable>(std::move(executable));
}

Result<SimtExecutable *> SimtDevice::recordedHere(Executable &executable) {
  auto *recorded = dynamic_cast<SimtExecutable *>(&executable);
  if (!recorded || recorded->owner != this)
    return Error{"a function was submitted to a device that did not record it", ExitCode::Failure};
  return recorded;
}

Result<void> SimtDevice::submit(Executable &executable) {
  auto recorded = recordedHere(executable);
  LMC_TRY(recorded);
  for (const std::vector<Task> &tasks : (*recorded)->commands)
    queue.insert(queue.end(), tasks.begin(), tasks.end());
  return {};
}

Result<std::vector<CommandTime>> SimtDevice::submitTimed(Executable &executable,
                                                         const AfterCommand &after) {
  auto recorded = recordedHere(executable);
  LMC_TRY(recorded);
  LMC_TRY(synchronize());
  CommandClock clock;
  uint32_t command = 0;
  for (const std::vector<Task> &tasks : (*recorded)->commands) {
    queue.insert(queue.end(), tasks.begin(), tasks.end());
    LMC_TRY(synchronize());
    if (after)
      LMC_TRY(after(command++));
    clock.ended();
  }
  return clock.take();
}

} // namespace

std::unique_ptr<Device> makeSimtDevice(uint64_t seed, World *world) {
  return std::make_unique<SimtDevice>(seed, world);
}

} // namespace lmc::simt

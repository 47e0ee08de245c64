#include "runtime/device/cpu/CpuDevice.h"
#include "runtime/device/cpu/CpuMachine.h"
#include "runtime/device/cpu/CpuModule.h"
#include "runtime/device/cpu/HostCommands.h"
#include "runtime/device/cpu/Movement.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <variant>
#include <vector>

namespace lmc::cpu {
namespace {

// Commands with every operand resolved to an address.
struct LaunchCommand {
  KernelEntry entry;
  std::vector<void *> args;
  int64_t items, chunk, chunks;
};
struct AttentionCommand {
  AttentionArgs args;
  Storage storage;
};
struct AttentionGradCommand {
  AttentionGradArgs args;
  Storage storage;
};
using Command = std::variant<LaunchCommand, GemmCommand, AttentionCommand, AttentionGradCommand,
                             ScatterAddArgs, FillCommand, CopyCommand>;

class CpuDevice;

struct CpuExecutable final : Executable {
  CpuDevice *owner = nullptr;
  std::vector<Command> commands;
};

class CpuDevice final : public Device {
public:
  explicit CpuDevice(int threads) : threads(threads), gemms(threads) {}

  DeviceInfo info(plan::DType computeDType) const override {
    PeakSpeed peak = peakSpeed(storageOf(computeDType), threads);
    return {fmt::format("{}, {} thread{}", processorName(), threads, threads == 1 ? "" : "s"),
            threads, peak.flops, peak.source, memoryBytes()};
  }

  Result<void> load(const PlanFile &file) override;
  uint64_t allocatedBytes() const override { return memory.bytes(); }
  Result<std::unique_ptr<Executable>> record(int index) override;
  Result<void> submit(Executable &executable) override;
  // Submissions have run when submit returns.
  Result<void> synchronize() override { return {}; }
  Result<void> copyIn(int slice, const void *source, uint64_t bytes, uint64_t offset) override {
    return memory.copyIn(slice, source, bytes, offset);
  }
  Result<void> copyOut(int slice, void *target, uint64_t bytes, uint64_t offset) override {
    return memory.copyOut(slice, target, bytes, offset);
  }

private:
  char *address(uint32_t slice) { return memory.address(slice); }
  // Null without a document mask.
  const int32_t *starts(int32_t slice) {
    return slice < 0 ? nullptr : reinterpret_cast<const int32_t *>(address(uint32_t(slice)));
  }
  // Null where an attention's gradients are not rotated back.
  const float *table(int32_t slice) {
    return slice < 0 ? nullptr : reinterpret_cast<const float *>(address(uint32_t(slice)));
  }
  // Elements from one row of a matrix to the next; `columns` when they touch.
  int64_t pitch(uint32_t slice, int64_t columns) const {
    const plan::Slice &at = memory.slice(slice);
    return at.pitch() ? int64_t(at.pitch() / byteWidth(at.dtype())) : columns;
  }
  Storage storage(uint32_t slice) const { return storageOf(memory.slice(slice).dtype()); }
  Result<Command> resolve(const plan::Command &command);
  // Reserves `bytes` of scratch for every thread.
  void needScratch(size_t bytes) {
    // Whole pages and one line: neighbours share neither pages nor cache sets.
    size_t rounded = (bytes + 4095) / 4096 * 4096 + 64;
    scratchBytes = std::max(scratchBytes, int64_t(rounded));
    scratch.reserve(scratchBytes * threads);
  }
  template <typename Task> void forTasks(int64_t tasks, Task task) {
#pragma omp parallel for num_threads(threads) schedule(dynamic) if (tasks > 1)
    for (int64_t i = 0; i < tasks; ++i)
      task(i, scratch.at(omp_get_thread_num() * scratchBytes));
  }

  void execute(const LaunchCommand &launch);
  void execute(const GemmCommand &command) { command.run(); }
  void execute(const AttentionCommand &command) {
    const auto &kernels = kernelSet().attention[int(command.storage)];
    forTasks(kernels.tasks(command.args),
             [&](int64_t task, void *bytes) { kernels.run(command.args, task, bytes); });
  }
  void execute(const AttentionGradCommand &command) {
    const auto &kernels = kernelSet().attention[int(command.storage)];
    forTasks(kernels.gradTasks(command.args),
             [&](int64_t task, void *bytes) { kernels.gradRun(command.args, task, bytes); });
  }
  void execute(const ScatterAddArgs &args) { scatterAdd(args, threads); }
  void execute(const FillCommand &command) { command.run(threads); }
  void execute(const CopyCommand &command) { command.run(threads); }

  int threads;
  GemmCache gemms;
  HostMemory memory;
  std::vector<std::unique_ptr<CpuModule>> modules;
  std::vector<KernelEntry> entries; // of the plan's kernels
  AlignedMemory scratch;
  int64_t scratchBytes = 0;
};

Result<void> CpuDevice::load(const PlanFile &file) {
  // Modules first: a plan that cannot run here should not take memory.
  for (const auto *module : *file->modules()) {
    if (module->image()->size() == 0)
      return Error{fmt::format("{}: the plan's kernels have no code; compile it again", file.path())};
    auto loaded = CpuModule::load(*module);
    if (!loaded)
      return Error{fmt::format("{}: {}", file.path(), loaded.error().message), loaded.error().code};
    modules.push_back(std::move(*loaded));
  }
  for (const auto *kernel : *file->kernels()) {
    auto entry = modules[kernel->module_()]->find(kernel->entry()->str());
    if (!entry)
      return Error{fmt::format("{}: {}", file.path(), entry.error().message)};
    entries.push_back(*entry);
  }
  return memory.allocate(file);
}

Result<std::unique_ptr<Executable>> CpuDevice::record(int index) {
  auto function = memory.function(index);
  LMC_TRY(function);
  // oneDNN prepares for, and runs on, as many threads as OpenMP would use.
  omp_set_num_threads(threads);
  auto executable = std::make_unique<CpuExecutable>();
  executable->owner = this;
  try {
    for (const auto *command : *(*function)->commands()) {
      auto resolved = resolve(*command);
      if (!resolved)
        return resolved.error();
      executable->commands.push_back(std::move(*resolved));
    }
  } catch (const std::bad_alloc &) {
    return Error{"not enough memory for the scratch of the plan's commands", ExitCode::Failure};
  }
  return std::unique_ptr<Executable>(std::move(executable));
}

Result<Command> CpuDevice::resolve(const plan::Command &command) {
  switch (command.body_type()) {
  case plan::CommandBody::Launch: {
    const plan::Launch &launch = *command.body_as_Launch();
    LaunchCommand resolved{
        entries[launch.kernel()], {}, int64_t(launch.items()), int64_t(launch.chunk()), 0};
    resolved.chunks = (resolved.items + resolved.chunk - 1) / resolved.chunk;
    for (uint32_t slice : *launch.args())
      resolved.args.push_back(address(slice));
    return Command(std::move(resolved));
  }
  case plan::CommandBody::Gemm: {
    auto gemm = bindGemm(*command.body_as_Gemm(), memory, gemms);
    LMC_TRY(gemm);
    return Command(*gemm);
  }
  case plan::CommandBody::Attention: {
    const plan::Attention &op = *command.body_as_Attention();
    const int64_t queries = int64_t(op.heads()) * op.head_dim(),
                  keys = int64_t(op.kv_heads()) * op.head_dim();
    AttentionCommand resolved{{address(op.q()), address(op.k()), address(op.v()), address(op.out()),
                               address(op.lse()), op.batch(), op.seq(), op.heads(), op.kv_heads(),
                               op.head_dim(), op.window(), op.scale(), pitch(op.q(), queries),
                               pitch(op.k(), keys), pitch(op.v(), keys), starts(op.starts())},
                              storage(op.q())};
    needScratch(kernelSet().attention[int(resolved.storage)].scratchBytes(resolved.args));
    return Command(resolved);
  }
  case plan::CommandBody::AttentionGrad: {
    const plan::AttentionGrad &op = *command.body_as_AttentionGrad();
    const int64_t queries = int64_t(op.heads()) * op.head_dim(),
                  keys = int64_t(op.kv_heads()) * op.head_dim();
    AttentionGradCommand resolved{
        {address(op.q()), address(op.k()), address(op.v()), address(op.out()), address(op.lse()),
         address(op.dout()), address(op.dq()), address(op.dk()), address(op.dv()),
         op.workspace() >= 0 ? address(uint32_t(op.workspace())) : nullptr, op.batch(), op.seq(),
         op.heads(), op.kv_heads(), op.head_dim(), op.window(), op.scale(), pitch(op.q(), queries),
         pitch(op.k(), keys), pitch(op.v(), keys), pitch(op.dq(), queries), pitch(op.dk(), keys),
         pitch(op.dv(), keys), starts(op.starts()), table(op.cos()), table(op.sin())},
        storage(op.q())};
    needScratch(kernelSet().attention[int(resolved.storage)].gradScratchBytes(resolved.args));
    return Command(resolved);
  }
  case plan::CommandBody::ScatterAdd: {
    const plan::ScatterAdd &op = *command.body_as_ScatterAdd();
    return Command(ScatterAddArgs{reinterpret_cast<const int32_t *>(address(op.ids())),
                                  address(op.x()), address(op.d()), storage(op.x()),
                                  storage(op.d()), int64_t(op.rows()), int64_t(op.columns()),
                                  int64_t(op.vocabulary()), op.accumulate()});
  }
  case plan::CommandBody::Fill:
    return Command(bindFill(*command.body_as_Fill(), memory));
  case plan::CommandBody::Copy:
    return Command(bindCopy(*command.body_as_Copy(), memory));
  case plan::CommandBody::NONE:
    break;
  }
  return Error{"a command of the plan has no body", ExitCode::Failure};
}

void CpuDevice::execute(const LaunchCommand &launch) {
  auto runChunks = [&](int64_t from, int64_t to) {
    for (int64_t chunk = from; chunk < to; ++chunk)
      launch.entry(launch.args.data(), chunk * launch.chunk,
                   std::min(launch.items, (chunk + 1) * launch.chunk));
  };
  const int64_t parts = std::min<int64_t>(threads, launch.chunks);
  if (parts <= 1)
    return runChunks(0, launch.chunks);
    // The runtime may give fewer threads than asked for; every part runs anyway.
#pragma omp parallel for num_threads(int(parts)) schedule(static)
  for (int64_t part = 0; part < parts; ++part)
    runChunks(launch.chunks * part / parts, launch.chunks * (part + 1) / parts);
}

Result<void> CpuDevice::submit(Executable &executable) {
  auto *recorded = dynamic_cast<CpuExecutable *>(&executable);
  if (!recorded || recorded->owner != this)
    return Error{"a function was submitted to a device that did not record it", ExitCode::Failure};
  omp_set_num_threads(threads);
  try {
    for (const Command &command : recorded->commands)
      std::visit([&](const auto &body) { execute(body); }, command);
  } catch (const std::exception &failure) {
    return Error{fmt::format("a command of the plan failed: {}", failure.what()),
                 ExitCode::Failure};
  }
  return {};
}

} // namespace

std::unique_ptr<Device> makeCpuDevice(int threads) {
  return std::make_unique<CpuDevice>(threadCount(threads));
}

} // namespace lmc::cpu

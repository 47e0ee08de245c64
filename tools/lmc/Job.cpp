#include "tools/lmc/Job.h"
#include "compiler/cost/DeviceSpec.h"
#include "compiler/driver/Registration.h"
#include "compiler/emit/Emit.h"
#include "compiler/kernels/KernelCache.h"
#include "compiler/kernels/Target.h"
#include "models/decoder/Model.h"
#include "models/families/Families.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

namespace lmc {

void addJobOptions(Command &command, JobOptions &options) {
  command.group("The job");
  command.list("--set", "SECTION.KEY=VALUE", options.settings,
               "override a key of the TOML; repeatable. VALUE,VALUE: a plan for each");
  command.option("--target", "cpu|cuda:sm_90a", options.target,
                 "device to compile for (target.device)");
  command.option("--nodes", "N", options.nodes, "nodes of the job (distributed.nodes)");
  command.option("--devices-per-node", "N", options.devicesPerNode,
                 "devices per node (distributed.devices_per_node)");
  command.option("--memory-budget", "76GiB", options.memoryBudget,
                 "bytes that all arenas together may take (memory.budget)");
  command.option("--spec", "NAME|FILE.toml", options.spec,
                 "device spec to plan or predict for (target.spec)");
  command.option("--kernel-cache", "DIR|off", options.kernelCache,
                 "where compiled kernels are kept (default: $LMC_CACHE_DIR, or "
                 "~/.cache/lmc/kernels); off: nowhere");
  command.group("");
  command.list("--disable-fusion", "KIND", options.disableFusion,
               "leave out kinds of fusion: linears, producer, siblings, layers, state, rope, "
               "residual, swiglu, "
               "transpose, largest",
               true);
  command.option("--long-rows", "KIND", options.longRows,
                 "how CUDA kernels read rows again that registers cannot keep, for comparisons: "
                 "shared (default), again, alone");
}

// Returns the device spec that the command line gives. Makes a relative path absolute, because the
// path starts from the working directory, not from the folder of the TOML file.
static std::string fromHere(const std::string &spec) {
  llvm::SmallString<128> path(spec);
  if (cost::isSpecPath(spec))
    llvm::sys::fs::make_absolute(path);
  return path.str().str();
}

Result<std::vector<Config>> readPhases(const std::string &path, const JobOptions &options) {
  std::vector<std::string> overrides = options.settings;
  for (auto [key, value] : {std::pair("target.device", &options.target),
                            {"distributed.nodes", &options.nodes},
                            {"distributed.devices_per_node", &options.devicesPerNode},
                            {"memory.budget", &options.memoryBudget}})
    if (!value->empty())
      overrides.push_back(std::string(key) + "=" + *value);
  if (!options.spec.empty())
    overrides.push_back("target.spec=\"" + fromHere(options.spec) + "\"");
  std::vector<Config> phases;
  do {
    Result<Config> config = loadConfig(path, overrides, modelFamilies(), codegen::checkDeviceName,
                                       phases.size(), parameterNames);
    if (!config)
      return Error{llvm::StringRef(config.error().message).rtrim().str()};
    config->target.longRows = options.longRows;
    phases.push_back(std::move(*config));
  } while (phases.size() < phases.front().phases.size());
  return phases;
}

void setCompileOptions(const JobOptions &from, CompileOptions &to) {
  to.disableFusion.assign(from.disableFusion.begin(), from.disableFusion.end());
  to.kernelCache = from.kernelCache.empty()    ? codegen::KernelCache::defaultDirectory()
                   : from.kernelCache == "off" ? ""
                                               : from.kernelCache;
}

std::unique_ptr<mlir::MLIRContext> makeContext() {
  mlir::DialectRegistry registry;
  registerDialects(registry);
  return std::make_unique<mlir::MLIRContext>(registry, mlir::MLIRContext::Threading::ENABLED);
}

// Compiles a job in a context from makeContext().
static mlir::FailureOr<CompileResult>
compileConfig(const Config &config, const CompileOptions &options, mlir::MLIRContext &context) {
  context.printOpOnDiagnostic(false);
  if (!options.printIrAfter.empty())
    context.disableMultithreading(); // MLIR requires a single thread for printing IR
  const std::string phase =
      config.phases.empty() ? "" : "[[phase]] " + config.phases[config.phase].name + ": ";
  context.getDiagEngine().registerHandler(
      [path = config.path, phase](mlir::Diagnostic &diagnostic) {
        if (diagnostic.getSeverity() == mlir::DiagnosticSeverity::Error)
          llvm::errs() << path << ": error: " << phase << diagnostic.str() << "\n";
        return mlir::success();
      });
  return compile(config, options, context);
}

mlir::FailureOr<CompiledPhases> compilePhases(const std::vector<Config> &phases,
                                              const CompileOptions &options) {
  CompiledPhases compiled;
  std::vector<std::string> plans;
  for (size_t i = 0; i < phases.size(); ++i) {
    const Config &config = phases[i];
    CompileOptions own = options;
    if (!own.dumpDirectory.empty() && !config.phases.empty())
      own.dumpDirectory += "/" + config.phases[i].name;
    auto context = makeContext();
    mlir::FailureOr<CompileResult> result = compileConfig(config, own, *context);
    if (mlir::failed(result))
      return mlir::failure();
    if (options.compileTo <= Phase::Buffers)
      result->module->print(llvm::outs());
    result->module = nullptr; // the module must not outlive `context`
    plans.push_back(result->plan);
    std::vector<PhaseTime> times = std::move(compiled.result.times);
    for (PhaseTime &time : result->times)
      times.push_back(time);
    const bool fits = result->fits;
    if (i == 0 || !fits)
      compiled.result = std::move(*result);
    compiled.result.times = std::move(times);
    compiled.misfit = i;
    if (!fits)
      return compiled;
  }
  if (options.compileTo == Phase::Emit && phases.size() > 1)
    compiled.result.plan = joinPhases(phases.front().phases, plans);
  return compiled;
}

static std::error_code replaceOrWrite(const std::string &path, llvm::StringRef bytes) {
  // A device or a pipe is written directly: a rename would put a regular file in its place.
  const bool replaces = !llvm::sys::fs::exists(path) || llvm::sys::fs::is_regular_file(path);
  std::string temporary = replaces ? path + ".partial" : path;
  std::error_code error;
  {
    llvm::raw_fd_ostream stream(temporary, error);
    if (error)
      return error;
    stream << bytes;
    stream.close();
    error = stream.error();
    stream.clear_error();
  }
  if (!replaces)
    return error;
  if (!error)
    error = llvm::sys::fs::rename(temporary, path);
  if (error)
    llvm::sys::fs::remove(temporary);
  return error;
}

Result<void> writeAtomically(const std::string &path, llvm::StringRef bytes) {
  if (std::error_code error = replaceOrWrite(path, bytes))
    return Error{"cannot write " + path + ": " + error.message(), ExitCode::Failure};
  return {};
}

int fail(llvm::StringRef message, ExitCode code) {
  llvm::errs() << message << "\n";
  return int(code);
}

int exitCodeOf(const Result<int> &result, llvm::StringRef prefix) {
  return result ? *result : fail((prefix + result.error().message).str(), result.error().code);
}

} // namespace lmc

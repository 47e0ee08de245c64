// lmc: compiles a training job into a plan, and explains plans.
#include "compiler/driver/Compile.h"
#include "compiler/driver/Registration.h"
#include "compiler/targets/cuda/KernelCache.h"
#include "compiler/config/Config.h"
#include "compiler/cost/PlanCost.h"
#include "compiler/report/Explain.h"
#include "compiler/extract/ExtractKernel.h"
#include "compiler/report/Html.h"
#include "compiler/report/Trace.h"
#include "models/families/Families.h"
#include "runtime/plan/PlanFile.h"

#include "mlir/IR/MLIRContext.h"
#include "mlir/Pass/PassRegistry.h"

#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

#include <chrono>
#include <sys/resource.h>

namespace cl = llvm::cl;
using namespace lmc;

namespace {

cl::SubCommand compileCommand("compile", "compile a TOML file into a plan");
cl::SubCommand explainCommand("explain", "say what a plan does and what it needs");
cl::SubCommand referenceCommand("config-reference", "print the reference of the TOML's keys");

cl::opt<std::string> compileInput(cl::Positional, cl::desc("<job.toml>"), cl::Required,
                                  cl::sub(compileCommand));
cl::opt<std::string> output("o", cl::desc("file to write (a plan: default beside the TOML; an "
                                          "extracted kernel: default standard output)"),
                            cl::value_desc("file"), cl::sub(compileCommand),
                            cl::sub(explainCommand));
cl::list<std::string> settings("set", cl::desc("override a key of the TOML"),
                               cl::value_desc("section.key=value"), cl::sub(compileCommand),
                               cl::sub(explainCommand));
cl::opt<std::string> target("target", cl::desc("device to compile for (target.device)"),
                            cl::value_desc("cpu|cuda:sm_90a"), cl::sub(compileCommand),
                            cl::sub(explainCommand));
cl::opt<std::string> nodes("nodes", cl::desc("nodes of the job (distributed.nodes)"),
                           cl::sub(compileCommand), cl::sub(explainCommand));
cl::opt<std::string> devicesPerNode("devices-per-node",
                                    cl::desc("devices per node (distributed.devices_per_node)"),
                                    cl::sub(compileCommand), cl::sub(explainCommand));
cl::opt<std::string> memoryBudget("memory-budget",
                                  cl::desc("bytes of planned peak (memory.budget)"),
                                  cl::value_desc("76GiB"), cl::sub(compileCommand),
                                  cl::sub(explainCommand));
cl::opt<std::string> deviceSpec("spec",
                                cl::desc("device spec to plan or predict for (target.spec)"),
                                cl::value_desc("name|file.toml"), cl::sub(compileCommand),
                                cl::sub(explainCommand));
cl::opt<std::string> dumpIr("dump-ir", cl::desc("write the IR after each phase into this folder"),
                            cl::value_desc("dir"), cl::sub(compileCommand));
cl::opt<std::string> compileTo("compile-to",
                               cl::desc("stop after this phase and print its IR: model, autodiff, "
                                        "distribute, memory, fusion, schedule, buffers"),
                               cl::value_desc("phase"), cl::sub(compileCommand));
cl::list<std::string> printIrAfter("mlir-print-ir-after",
                                   cl::desc("print the IR after these passes"),
                                   cl::value_desc("pass"), cl::CommaSeparated,
                                   cl::sub(compileCommand));
cl::list<std::string> disableFusion("disable-fusion",
                                    cl::desc("leave out kinds of fusion: linears, producer, "
                                             "siblings, layers, state, rope"),
                                    cl::value_desc("kind"), cl::CommaSeparated, cl::Hidden,
                                    cl::sub(compileCommand), cl::sub(explainCommand));
cl::opt<bool> disableReuse("disable-reuse",
                           cl::desc("give every value bytes of its own in the workspace"),
                           cl::Hidden, cl::sub(compileCommand));
cl::opt<bool> planOnly("plan-only",
                       cl::desc("leave the kernels without code: to be explained, not run"),
                       cl::sub(compileCommand));
cl::opt<std::string>
    kernelCache("kernel-cache",
                cl::desc("where compiled CUDA kernels are kept (default: $LMC_CACHE_DIR, or "
                         "~/.cache/lmc/kernels); off: nowhere"),
                cl::value_desc("dir|off"), cl::sub(compileCommand), cl::sub(explainCommand));
cl::opt<bool> quiet("quiet", cl::desc("print errors only"), cl::sub(compileCommand));

cl::opt<std::string> explainInput(cl::Positional, cl::desc("<job.plan | job.toml>"), cl::Required,
                                  cl::sub(explainCommand));
cl::opt<bool> asJson("json", cl::desc("print the report as JSON"), cl::sub(explainCommand));
cl::opt<std::string> htmlOutput("html", cl::desc("write the report as a page"),
                                cl::value_desc("file"), cl::sub(explainCommand));
cl::opt<std::string>
    traceOutput("trace", cl::desc("write the predicted schedule as a Chrome or Perfetto trace"),
                cl::value_desc("file"), cl::sub(explainCommand));
cl::opt<bool> memoryOnly("memory", cl::desc("memory by category, by phase and at the peak"),
                         cl::sub(explainCommand));
cl::opt<bool> fusionOnly("fusion", cl::desc("fusions formed and refused; traffic and its floor"),
                         cl::sub(explainCommand));
cl::opt<bool> recomputeOnly("recompute", cl::desc("what is computed again, and its price"),
                            cl::sub(explainCommand));
cl::opt<bool> costOnly("cost", cl::desc("predicted times and what bounds them"),
                       cl::sub(explainCommand));
cl::opt<bool> commOnly("comm", cl::desc("communication between ranks"), cl::sub(explainCommand));
cl::opt<bool> kernelsOnly("kernels", cl::desc("the generated kernels"), cl::sub(explainCommand));
cl::opt<std::string>
    kernelToExtract("extract-kernel",
                    cl::desc("a CUDA kernel as a program of its own, with a check and a bench"),
                    cl::value_desc("name"), cl::sub(explainCommand));
cl::opt<bool> commandsOnly("commands", cl::desc("the functions and their commands"),
                           cl::sub(explainCommand));

constexpr int kUserError = int(ExitCode::UserError);

int fail(llvm::StringRef message, ExitCode code = ExitCode::UserError) {
  llvm::errs() << message << "\n";
  return int(code);
}

// The first option that `command` does not have; "" when it has all. LLVM's parser would
// take "--output" for "-o" and a value, and complain about that in several lines.
std::string unknownOption(cl::SubCommand &command, llvm::ArrayRef<char *> arguments) {
  for (llvm::StringRef argument : arguments) {
    if (!argument.consume_front("--") || argument.empty())
      continue;
    if (!cl::getRegisteredOptions(command).contains(argument.split('=').first))
      return argument.str();
  }
  return "";
}

// The parser may complain in several lines; the user gets the first.
std::string firstLine(llvm::StringRef complaints) {
  llvm::StringRef line = complaints.split('\n').first;
  line.consume_front("lmc: ");
  return ("lmc: error: " + line).str();
}

// A spec named on the command line: a file's path starts here, not at the TOML's folder.
std::string fromHere(const std::string &spec) {
  llvm::SmallString<128> path(spec);
  if (cost::isSpecPath(spec))
    llvm::sys::fs::make_absolute(path);
  return path.str().str();
}

bool readConfig(const std::string &path, Config &config) {
  std::vector<std::string> overrides(settings.begin(), settings.end());
  auto flag = [&](const cl::opt<std::string> &option, llvm::StringRef key) {
    if (option.getNumOccurrences())
      overrides.push_back((key + "=" + option.getValue()).str());
  };
  flag(target, "target.device");
  flag(nodes, "distributed.nodes");
  flag(devicesPerNode, "distributed.devices_per_node");
  flag(memoryBudget, "memory.budget");
  if (deviceSpec.getNumOccurrences())
    overrides.push_back("target.spec=\"" + fromHere(deviceSpec) + "\"");
  ConfigError error;
  if (loadConfig(path, overrides, modelFamilies(), config, error))
    return true;
  llvm::errs() << llvm::StringRef(error.message).rtrim() << "\n";
  return false;
}

std::string kernelCacheDirectory() {
  if (!kernelCache.getNumOccurrences())
    return codegen::KernelCache::defaultDirectory();
  return kernelCache == "off" ? "" : kernelCache.getValue();
}

// Compiler diagnostics in the form of the configuration's: one line, the file first.
mlir::FailureOr<CompileResult> compileConfig(const Config &config, const CompileOptions &options,
                                             mlir::MLIRContext &context) {
  context.printOpOnDiagnostic(false);
  context.getDiagEngine().registerHandler([&](mlir::Diagnostic &diagnostic) {
    if (diagnostic.getSeverity() == mlir::DiagnosticSeverity::Error)
      llvm::errs() << config.path << ": error: " << diagnostic.str() << "\n";
    return mlir::success();
  });
  return compile(config, options, context);
}

std::string defaultOutput(llvm::StringRef input) {
  llvm::SmallString<128> path(input);
  llvm::sys::path::replace_extension(path, "plan");
  return path.str().str();
}

// Writes beside the target and renames, so that a plan is whole or not there.
std::error_code writeAtomically(const std::string &path, llvm::StringRef bytes) {
  std::string temporary = path + ".partial";
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
  if (!error)
    error = llvm::sys::fs::rename(temporary, path);
  if (error)
    llvm::sys::fs::remove(temporary);
  return error;
}

// Whether the spec that a job names can be read; a job that names none may do without.
Result<void> checkSpec(const Config &config) {
  if (config.target.spec.empty())
    return {};
  if (auto spec = cost::deviceSpecOf(config.target, config.directory); !spec)
    return spec.error();
  return {};
}

int runCompile() {
  // Read before compiling: the linker inside resets the options of the whole process.
  const std::string path = output.empty() ? defaultOutput(compileInput) : output.getValue();
  const bool silent = quiet;
  CompileOptions options;
  if (compileTo.getNumOccurrences()) {
    std::optional<Phase> phase = parsePhase(compileTo);
    if (!phase)
      return fail("lmc compile: error: --compile-to=" + compileTo +
                  ": no such phase; choose model, autodiff, distribute, memory, fusion, "
                  "schedule, buffers, codegen or emit");
    options.compileTo = *phase;
  }
  options.dumpDirectory = dumpIr;
  registerPasses();
  for (const std::string &pass : printIrAfter)
    if (!mlir::PassInfo::lookup(pass))
      return fail("lmc compile: error: --mlir-print-ir-after=" + pass +
                  ": no such pass; docs/passes.md lists them");
  options.printIrAfter.assign(printIrAfter.begin(), printIrAfter.end());
  options.disableFusion.assign(disableFusion.begin(), disableFusion.end());
  options.reuseMemory = !disableReuse;
  options.withCode = !planOnly;
  options.kernelCache = kernelCacheDirectory();

  Config config;
  if (!readConfig(compileInput, config))
    return kUserError;
  if (Result<void> known = checkSpec(config); !known)
    return fail(known.error().message);
  auto start = std::chrono::steady_clock::now();
  mlir::DialectRegistry registry;
  registerDialects(registry);
  mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
  mlir::FailureOr<CompileResult> result = compileConfig(config, options, context);
  if (mlir::failed(result))
    return kUserError;
  if (options.compileTo < Phase::Emit) {
    if (options.compileTo <= Phase::Buffers)
      result->module->print(llvm::outs());
    return 0;
  }
  const plan::Plan &plan = *plan::GetPlan(result->plan.data());
  if (!result->fits)
    return fail(budgetError(plan, config.path, result->budgetBytes, result->smallestBudget),
                ExitCode::DoesNotFit);
  if (std::error_code error = writeAtomically(path, result->plan))
    return fail("lmc compile: error: cannot write " + path + ": " + error.message(),
                ExitCode::Failure);
  if (silent)
    return 0;
  std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  llvm::outs() << llvm::formatv("{0}: {1:f1} MiB, compiled in {2:f2} s ({3} MiB of memory)\n", path,
                                double(result->plan.size()) / 1048576, elapsed.count(),
                                usage.ru_maxrss / 1024);
  for (const PhaseTime &time : result->times)
    llvm::outs() << llvm::formatv("  {0,-10} {1:f2} s\n", phaseName(time.phase), time.seconds);
  if (plan.modules()->Get(0)->image()->size() == 0)
    llvm::outs() << "  the kernels have no code: the plan can be explained, not run\n";
  return 0;
}

// The spec that a plan is explained with: the command line's, or what it was made for.
Result<cost::DeviceSpec> specOf(const plan::Plan &plan) {
  if (deviceSpec.getNumOccurrences())
    return cost::loadDeviceSpec(deviceSpec);
  TargetConfig target;
  target.device = plan.target()->str();
  if (plan.device_spec())
    target.spec = plan.device_spec()->str();
  if (target.spec.empty())
    target.spec = cost::settingOf(plan, "target.spec");
  return cost::deviceSpecOf(target, plan.config_directory() ? plan.config_directory()->str() : "");
}

// Writes the kernel that was asked for.
int writeKernel(const plan::Plan &plan) {
  mlir::DialectRegistry registry;
  registerDialects(registry);
  mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
  llvm::Expected<std::string> program = extractKernel(plan, kernelToExtract, context);
  if (!program)
    return fail("lmc explain: error: " + llvm::toString(program.takeError()));
  if (output.empty()) {
    llvm::outs() << *program;
    return 0;
  }
  if (std::error_code error = writeAtomically(output, *program))
    return fail("lmc explain: error: cannot write " + output + ": " + error.message(),
                ExitCode::Failure);
  return 0;
}

int runExplain() {
  // Read before compiling, as above.
  const std::string input = explainInput, html = htmlOutput, trace = traceOutput;
  const bool json = asJson;
  const bool all = !memoryOnly && !fusionOnly && !recomputeOnly && !costOnly && !commOnly &&
                   !kernelsOnly && !commandsOnly;
  const ExplainSections sections{all || memoryOnly,  all || fusionOnly, all || recomputeOnly,
                                 all || costOnly,    all || commOnly,   all || kernelsOnly,
                                 all || commandsOnly};
  // With a file to write, text only where a section is asked for.
  const bool print = json || !all || (html.empty() && trace.empty());
  Result<cost::DeviceSpec> spec = Error{};
  nlohmann::json compileTimes;
  std::unique_ptr<PlanFile> plan;
  if (llvm::StringRef(input).ends_with(".toml")) {
    Config config;
    if (!readConfig(input, config))
      return kUserError;
    spec = cost::deviceSpecOf(config.target, config.directory);
    if (!spec)
      return fail(spec.error().message, spec.error().code);
    CompileOptions options;
    // Other reports are about the plan, and the CPU's kernels have no resources to report.
    options.withCode =
        (kernelsOnly || !kernelToExtract.empty()) && config.target.device != "cpu";
    options.kernelCache = kernelCacheDirectory();
    options.disableFusion.assign(disableFusion.begin(), disableFusion.end());
    mlir::DialectRegistry registry;
    registerDialects(registry);
    mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
    mlir::FailureOr<CompileResult> result = compileConfig(config, options, context);
    if (mlir::failed(result))
      return kUserError;
    double seconds = 0;
    for (const PhaseTime &time : result->times) {
      compileTimes["phases"][phaseName(time.phase).str()] = time.seconds;
      seconds += time.seconds;
    }
    compileTimes["seconds"] = seconds;
    auto opened = PlanFile::fromBytes(result->plan.data(), result->plan.size(), input);
    if (!opened)
      return fail(opened.error().message, opened.error().code);
    plan = std::move(*opened);
  } else {
    auto opened = PlanFile::open(input);
    if (!opened)
      return fail(opened.error().message, opened.error().code);
    plan = std::move(*opened);
    spec = specOf(**plan);
  }
  if (!spec)
    return fail(spec.error().message, spec.error().code);
  if (!kernelToExtract.empty())
    return writeKernel(**plan);
  nlohmann::json report = explainJson(**plan, *spec);
  if (!compileTimes.is_null())
    report.emplace("compile", compileTimes);
  auto write = [](const std::string &path, const std::string &content) {
    std::error_code error = writeAtomically(path, content);
    return error ? fail("lmc explain: error: cannot write " + path + ": " + error.message(),
                        ExitCode::Failure)
                 : 0;
  };
  if (!html.empty())
    if (int code = write(html, htmlReport(**plan, report, llvm::sys::path::filename(input).str())))
      return code;
  if (!trace.empty())
    if (int code = write(trace, traceJson(**plan, *spec).dump()))
      return code;
  if (print)
    llvm::outs() << (json ? report.dump(2) + "\n" : explainText(report, sections));
  return 0;
}

} // namespace

int main(int argc, char **argv) {
  cl::SetVersionPrinter([](llvm::raw_ostream &stream) { stream << "lmc 0.1.0\n"; });
  llvm::ArrayRef<char *> arguments(argv, size_t(argc));
  for (cl::SubCommand *command : {&compileCommand, &explainCommand, &referenceCommand})
    if (argc > 1 && command->getName() == arguments[1])
      if (std::string option = unknownOption(*command, arguments.drop_front(2)); !option.empty())
        return fail("lmc " + command->getName().str() + ": error: unknown option '--" + option +
                    "'; lmc " + command->getName().str() + " --help lists them");
  std::string complaints;
  llvm::raw_string_ostream stream(complaints);
  if (!cl::ParseCommandLineOptions(argc, argv, "lmc: the compiler for LLM pre-training\n", &stream))
    return fail(firstLine(complaints));
  if (compileCommand)
    return runCompile();
  if (explainCommand)
    return runExplain();
  if (referenceCommand) {
    llvm::outs() << configReference(modelFamilies());
    return 0;
  }
  return fail("lmc: error: say what to do: lmc compile JOB.toml, lmc explain JOB.plan or lmc "
              "config-reference (--help for more)");
}

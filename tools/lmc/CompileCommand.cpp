// lmc compile: compiles a TOML file into a plan.
#include "compiler/cost/DeviceSpec.h"
#include "compiler/driver/Hints.h"
#include "compiler/driver/Registration.h"
#include "compiler/report/Explain.h"
#include "compiler/report/HintsText.h"
#include "runtime/plan/PlanFile.h"
#include "tools/lmc/Commands.h"
#include "tools/lmc/Job.h"

#include "mlir/Pass/PassRegistry.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

#include <chrono>
#include <sys/resource.h>

namespace lmc {
namespace {

struct CompileArguments {
  std::string input, output;
  JobOptions job;
  std::string dumpIr, compileTo;
  std::vector<std::string> printIrAfter;
  bool disableReuse = false, planOnly = false, quiet = false;
};

std::string defaultOutput(llvm::StringRef input) {
  llvm::SmallString<128> path(input);
  llvm::sys::path::replace_extension(path, "plan");
  return path.str().str();
}

// Returns an error if the job names a device spec that cannot be read. A job need not name one.
Result<void> checkSpec(const Config &config) {
  if (config.target.spec.empty())
    return {};
  LMC_TRY(cost::deviceSpecOf(config.target, config.directory));
  return {};
}

Result<CompileOptions> compileOptions(const CompileArguments &arguments) {
  CompileOptions options;
  if (!arguments.compileTo.empty()) {
    std::optional<Phase> phase = parsePhase(arguments.compileTo);
    if (!phase)
      return Error{"lmc compile: error: --compile-to=" + arguments.compileTo +
                   ": no such phase; choose model, autodiff, distribute, memory, fusion, "
                   "schedule, buffers, codegen or emit"};
    options.compileTo = *phase;
  }
  registerPasses();
  for (const std::string &pass : arguments.printIrAfter)
    if (!mlir::PassInfo::lookup(pass))
      return Error{"lmc compile: error: --mlir-print-ir-after=" + pass +
                   ": no such pass; docs/passes.md lists them"};
  options.dumpDirectory = arguments.dumpIr;
  options.printIrAfter.assign(arguments.printIrAfter.begin(), arguments.printIrAfter.end());
  options.reuseMemory = !arguments.disableReuse;
  options.withCode = !arguments.planOnly;
  return options;
}

void printTimes(const std::string &path, const CompileResult &result, double seconds) {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  llvm::outs() << llvm::formatv("{0}: {1:f1} MiB, compiled in {2:f2} s ({3} MiB of memory)\n", path,
                                double(result.plan.size()) / 1048576, seconds,
                                usage.ru_maxrss / 1024);
  for (const PhaseTime &time : result.times)
    llvm::outs() << llvm::formatv("  {0,-10} {1:f2} s\n", phaseName(time.phase), time.seconds);
}

int runCompile(const CompileArguments &arguments) {
  Result<CompileOptions> options = compileOptions(arguments);
  if (!options)
    return fail(options.error().message);
  std::optional<std::vector<Config>> phases = readPhases(arguments.input, arguments.job);
  if (!phases)
    return int(ExitCode::UserError);
  const Config *config = &phases->front();
  setCompileOptions(arguments.job, *config, *options);
  if (Result<void> known = checkSpec(*config); !known)
    return fail(known.error().message);
  auto start = std::chrono::steady_clock::now();
  mlir::FailureOr<CompiledPhases> compiled = compilePhases(*phases, *options);
  if (mlir::failed(compiled))
    return int(ExitCode::UserError);
  CompileResult *const result = &compiled->result;
  if (options->compileTo < Phase::Emit)
    return 0;
  const plan::Plan &plan = *plan::GetPlan(result->plan.data());
  if (!result->fits) {
    config = &(*phases)[compiled->misfit];
    const std::string phase =
        config->phases.empty() ? "" : ": [[phase]] " + config->phases[config->phase].name;
    std::string message =
        budgetError(plan, config->path + phase, result->budgetBytes, result->smallestBudget);
    if (!arguments.quiet)
      message += "\n" + hintsText(hintsFor(*config, plan, result->budgetBytes, *options));
    return fail(llvm::StringRef(message).rtrim(), ExitCode::DoesNotFit);
  }
  const std::string path =
      arguments.output.empty() ? defaultOutput(arguments.input) : arguments.output;
  if (llvm::sys::fs::equivalent(path, arguments.input))
    return fail("lmc compile: error: " + path + " is the job itself; give another -o");
  if (std::error_code error = writeAtomically(path, result->plan))
    return fail("lmc compile: error: cannot write " + path + ": " + error.message(),
                ExitCode::Failure);
  if (arguments.quiet)
    return 0;
  for (const std::string &warning : warningsIn(plan))
    llvm::errs() << "warning: " << warning << "\n";
  std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  printTimes(path, *result, elapsed.count());
  if (plan.modules()->Get(0)->image()->size() == 0)
    llvm::outs() << "  the kernels have no code: the plan can be explained, not run\n";
  return 0;
}

} // namespace

LmcCommand addCompileCommand(CommandLine &line) {
  auto arguments = std::make_shared<CompileArguments>();
  Command &command = line.command("compile", "compile a TOML file into a plan");
  command.argument("JOB.toml", arguments->input, "the job (docs/config.md)");
  command.option("-o", "FILE", arguments->output, "plan to write (default: beside the TOML)");
  command.flag("--plan-only", arguments->planOnly,
               "leave the kernels without code: to be explained, not run");
  command.flag("--quiet", arguments->quiet, "print errors only");
  addJobOptions(command, arguments->job);
  command.flag("--disable-reuse", arguments->disableReuse,
               "give every value bytes of its own in the workspace");
  command.group("Looking inside");
  command.option("--dump-ir", "DIR", arguments->dumpIr,
                 "write the IR after each phase into this folder");
  command.option("--compile-to", "PHASE", arguments->compileTo,
                 "stop after this phase and print its IR: model, autodiff, distribute, memory, "
                 "fusion, schedule, buffers");
  command.list("--mlir-print-ir-after", "PASS,...", arguments->printIrAfter,
               "print the IR after these passes (docs/passes.md)", true);
  return {&command, [=] { return runCompile(*arguments); }};
}

} // namespace lmc

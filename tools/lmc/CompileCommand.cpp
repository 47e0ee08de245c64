// lmc compile: compiles a TOML file into a plan, or into several plans if --set gives keys several
// values (a sweep).
#include "compiler/cost/DeviceSpec.h"
#include "compiler/driver/Hints.h"
#include "compiler/driver/Registration.h"
#include "compiler/report/Explain.h"
#include "ground/config/Sweep.h"
#include "ground/plan/PlanFile.h"
#include "models/families/Families.h"
#include "tools/lmc/Commands.h"
#include "tools/lmc/Job.h"

#include "mlir/Pass/PassRegistry.h"

#include "llvm/ADT/StringExtras.h"
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

// Returns an Error if the job names a device spec that cannot be read.
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

struct Outcome {
  int code = 0;
  int64_t nodes = 1, devicesPerNode = 1; // the job's values; each is 1 if `code` is not 0
};

// Compiles one job, writes its plan to `path`, and prints errors. For a job of a sweep, prints only
// one line, which is a comment in a shell.
Outcome compileJob(const CompileArguments &arguments, CompileOptions options,
                   const std::string &path, const SweepJob *sweepJob = nullptr) {
  const auto failed = [](int code) { return Outcome{code}; };
  Result<std::vector<Config>> phases = readPhases(arguments.input, arguments.job);
  if (!phases)
    return failed(fail(phases.error().message));
  const Config *config = &phases->front();
  const Outcome done{0, config->distributed.nodes, config->distributed.devicesPerNode};
  setCompileOptions(arguments.job, options);
  if (Result<void> known = checkSpec(*config); !known)
    return failed(fail(known.error().message));
  auto start = std::chrono::steady_clock::now();
  mlir::FailureOr<CompiledPhases> compiled = compilePhases(*phases, options);
  if (mlir::failed(compiled))
    return failed(int(ExitCode::UserError));
  CompileResult *const result = &compiled->result;
  if (options.compileTo < Phase::Emit)
    return done;
  const plan::Plan &plan = *plan::GetPlan(result->plan.data());
  if (!result->fits) {
    config = &(*phases)[compiled->misfit];
    const std::string phase =
        config->phases.empty() ? "" : ": [[phase]] " + config->phases[config->phase].name;
    std::string message =
        budgetError(plan, config->path + phase, result->budgetBytes, result->smallestBudget);
    if (!arguments.quiet && !sweepJob) // hints are slow: they compile the job several times
      message += "\n" + hintsText(hintsFor(*config, plan, result->budgetBytes, options));
    return failed(fail(llvm::StringRef(message).rtrim(), ExitCode::DoesNotFit));
  }
  if (llvm::sys::fs::equivalent(path, arguments.input))
    return failed(fail("lmc compile: error: " + path + " is the job itself; give another -o"));
  if (Result<void> written = writeAtomically(path, result->plan); !written)
    return failed(fail("lmc compile: error: " + written.error().message, written.error().code));
  if (arguments.quiet)
    return done;
  for (const std::string &warning : warningsIn(plan))
    llvm::errs() << "warning: " << (sweepJob ? sweepJob->name + ": " : "") << warning << "\n";
  std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  if (sweepJob)
    llvm::outs() << llvm::formatv("# {0}: {1:f1} MiB, compiled in {2:f2} s\n", path,
                                  double(result->plan.size()) / 1048576, elapsed.count());
  else
    printTimes(path, *result, elapsed.count());
  if (plan.modules()->Get(0)->image()->size() == 0 && !sweepJob)
    llvm::outs() << "  the kernels have no code: the plan can be explained, not run\n";
  llvm::outs().flush();
  return done;
}

// Returns the text as one word for a shell, in quotes if it needs them.
std::string shellWord(const std::string &text) {
  const bool isPlain = llvm::all_of(
      text, [](char c) { return llvm::isAlnum(c) || llvm::StringRef("._+-=/:@%").contains(c); });
  if (isPlain && !text.empty())
    return text;
  std::string word = "'";
  for (const char c : text)
    word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

// Returns the command that trains a plan.
std::string runLine(const std::string &plan, const std::string &name, const Outcome &of) {
  // lmc-run starts the ranks of one machine. Several machines need a launcher.
  const std::string ranks = of.nodes == 1 && of.devicesPerNode > 1
                                ? llvm::formatv(" --nproc={0}", of.devicesPerNode).str()
                                : "";
  return "lmc-run " + shellWord(plan) + " --out=" + shellWord("runs/" + name) + ranks + "\n";
}

// Compiles all jobs of a sweep, even if one fails, and prints the commands that train them. Returns
// the worst exit code of a job, from worst to best: 1 (the machine failed), 2 (a mistake of the
// user), 3 (the plan does not fit), 0.
int compileSweep(const CompileArguments &arguments, const CompileOptions &options,
                 const std::vector<SweepJob> &jobs) {
  const std::string several =
      llvm::formatv("lmc compile: error: --set gives {0} jobs", jobs.size()).str();
  if (options.compileTo < Phase::Emit)
    return fail(several + ", and --compile-to prints the IR of one; give one value of each key");
  std::string folder = arguments.output;
  if (folder.empty())
    folder = llvm::sys::path::parent_path(arguments.input).str();
  if (llvm::StringRef(folder).ends_with(".plan") ||
      (llvm::sys::fs::exists(folder) && !llvm::sys::fs::is_directory(folder)))
    return fail(several + "; give a folder as -o, not " + folder);
  if (!folder.empty())
    if (std::error_code error = llvm::sys::fs::create_directories(folder))
      return fail("lmc compile: error: cannot make the folder " + folder + ": " + error.message(),
                  ExitCode::Failure);
  const std::string stem = llvm::sys::path::stem(arguments.input).str();
  std::string lines;
  size_t compiled = 0;
  int worst = 0;
  for (const SweepJob &job : jobs) {
    const std::string name = stem + "-" + job.name;
    llvm::SmallString<128> path(folder);
    llvm::sys::path::append(path, name + ".plan");
    CompileArguments own = arguments;
    own.job.settings = job.settings;
    CompileOptions ownOptions = options;
    if (!options.dumpDirectory.empty())
      ownOptions.dumpDirectory += "/" + job.name;
    const Outcome outcome = compileJob(own, ownOptions, path.str().str(), &job);
    if (outcome.code) {
      fail("lmc compile: error: there is no plan for " + llvm::join(job.varied, ", "));
      worst = worst ? std::min(worst, outcome.code) : outcome.code;
      continue;
    }
    if (outcome.nodes > 1)
      lines += llvm::formatv("# on {0} nodes, with a launcher (docs/cluster.md):\n", outcome.nodes);
    lines += runLine(path.str().str(), name, outcome);
    ++compiled;
  }
  if (arguments.quiet || compiled == 0)
    return worst;
  llvm::outs() << llvm::formatv("# {0} of {1} plans", compiled, jobs.size());
  if (arguments.planOnly)
    llvm::outs() << "; their kernels have no code: they can be explained, not run\n";
  else
    llvm::outs() << "; to train them:\n"
                 << lines << "# to compare the runs: lmc report runs/" << shellWord(stem + "-")
                 << "*\n";
  return worst;
}

int runCompile(const CompileArguments &arguments) {
  Result<CompileOptions> options = compileOptions(arguments);
  if (!options)
    return fail(options.error().message);
  Result<std::vector<SweepJob>> jobs = expandSettings(arguments.job.settings, modelFamilies());
  if (!jobs)
    return fail(jobs.error().message);
  if (jobs->size() > 1)
    return compileSweep(arguments, *options, *jobs);
  const std::string path =
      arguments.output.empty() ? defaultOutput(arguments.input) : arguments.output;
  return compileJob(arguments, *options, path).code;
}

} // namespace

LmcCommand addCompileCommand(CommandLine &line) {
  auto arguments = std::make_shared<CompileArguments>();
  Command &command = line.command("compile", "compile a TOML file into a plan");
  command.argument("JOB.toml", arguments->input, "the job (docs/config.md)");
  command.option("-o", "FILE", arguments->output,
                 "plan to write (default: beside the TOML); with several values: a folder");
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

// lmc explain: prints what a plan does, and the memory and time that it needs.
#include "compiler/cost/PlanCost.h"
#include "compiler/driver/Hints.h"
#include "compiler/driver/Strategies.h"
#include "compiler/extract/ExtractKernel.h"
#include "compiler/kernels/Target.h"
#include "compiler/report/Explain.h"
#include "compiler/report/Measured.h"
#include "ground/config/Sweep.h"
#include "ground/plan/PlanFile.h"
#include "ground/support/File.h"
#include "models/families/Families.h"
#include "tools/lmc/Commands.h"
#include "tools/lmc/Job.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

#include <nlohmann/json.hpp>

namespace lmc {
namespace {

struct ExplainArguments {
  std::string input, output;
  JobOptions job;
  bool json = false;
  std::string html, trace, kernel, measured;
  std::string phase;          // name of the phase to explain; "": the first
  std::vector<int64_t> scale; // numbers of devices for --scale
  ExplainSections sections;
};

// A plan to explain, and the device for which it is explained.
struct Explained {
  std::unique_ptr<PlanFile> file;
  cost::DeviceSpec spec;
  // The report also gets the sections "compile" if this command has compiled the plan, "hints" if
  // the job does not fit, and "scale" if the user requests it.
  nlohmann::json sections = nlohmann::json::object();
  size_t phase = 0; // number of the phase that is explained

  const PlanFile &plan() const { return file->phasePlan(phase); }
};

// Returns the index of the phase `name`; 0 for "".
Result<size_t> findPhase(const PlanFile &plan, const std::string &name) {
  if (name.empty())
    return size_t{0};
  std::vector<std::string> names;
  for (const PlanFile::Phase &phase : plan.phases()) {
    if (phase.name == name)
      return names.size();
    names.push_back(phase.name);
  }
  if (names.empty())
    return Error{plan.path() + ": --phase=" + name + ": the run has no phases"};
  return Error{plan.path() + ": --phase=" + name + ": no such phase; the run has " +
               llvm::join(names, ", ")};
}

// Returns the device spec `given`; if it is empty, the one for which the plan was compiled.
Result<cost::DeviceSpec> specOf(const plan::Plan &plan, const std::string &given) {
  if (!given.empty())
    return cost::loadDeviceSpec(given);
  TargetConfig target;
  target.device = plan.target()->str();
  if (plan.device_spec())
    target.spec = plan.device_spec()->str();
  if (target.spec.empty())
    target.spec = cost::settingOf(plan, "target.spec");
  if (target.spec == cost::defaultDeviceSpec(target.device))
    target.spec.clear(); // "" means the default spec with this machine's memory, as in a compile
  return cost::deviceSpecOf(target, plan.config_directory() ? plan.config_directory()->str() : "");
}

Result<Explained> openPlan(const ExplainArguments &arguments) {
  LMC_LET(plan, PlanFile::open(arguments.input));
  LMC_LET(spec, specOf(***plan, arguments.job.spec));
  LMC_LET(phase, findPhase(**plan, arguments.phase));
  return Explained{std::move(*plan), std::move(*spec), nlohmann::json::object(), *phase};
}

// Returns an Error if --set gives a key several values.
Result<void> checkOneJob(const JobOptions &options) {
  LMC_LET(jobs, expandSettings(options.settings, modelFamilies()));
  if (jobs->size() == 1)
    return {};
  return Error{"lmc explain: error: --set gives " + std::to_string(jobs->size()) +
               " jobs, and a report is about one; give one value of each key, or explain each plan "
               "of lmc compile"};
}

// Compiles the job and returns its plan; nullopt if the compiler has printed an error.
Result<std::optional<Explained>> compileJob(const ExplainArguments &arguments) {
  LMC_TRY(checkOneJob(arguments.job));
  LMC_LET(phases, readPhases(arguments.input, arguments.job));
  const Config *config = &phases->front();
  LMC_LET(spec, cost::deviceSpecOf(config->target, config->directory));
  CompileOptions options;
  setCompileOptions(arguments.job, options);
  // Only the section on kernels needs the kernels' code, and only for some targets.
  options.withCode = (arguments.sections.kernels || !arguments.kernel.empty()) &&
                     codegen::findTarget(config->target.device)->reportsResources();
  mlir::FailureOr<CompiledPhases> compiled = compilePhases(*phases, options);
  if (mlir::failed(compiled))
    return std::optional<Explained>();
  const CompileResult *const result = &compiled->result;
  Explained explained;
  explained.spec = std::move(*spec);
  double seconds = 0;
  nlohmann::json &times = explained.sections["compile"];
  for (const PhaseTime &time : result->times) {
    times["phases"][phaseName(time.phase).str()] = time.seconds;
    seconds += time.seconds;
  }
  times["seconds"] = seconds;
  LMC_LET(plan, PlanFile::fromBytes(result->plan.data(), result->plan.size(), arguments.input));
  explained.file = std::move(*plan);
  if (result->fits) {
    LMC_LET(phase, findPhase(*explained.file, arguments.phase));
    explained.phase = *phase;
    config = &(*phases)[*phase];
  } else { // the plan has only the phase that does not fit
    config = &(*phases)[compiled->misfit];
    explained.sections["hints"] =
        hintsFor(*config, *explained.plan(), result->budgetBytes, options);
  }
  if (!arguments.scale.empty()) {
    auto scale = scaleReport(*config, *explained.plan(), arguments.scale, options);
    if (!scale)
      return Error{config->path + ": error: --scale: " + llvm::toString(scale.takeError())};
    explained.sections["scale"] = std::move(*scale);
  }
  return std::optional<Explained>(std::move(explained));
}

// Reads positive numbers with commas between them.
Result<void> readCounts(llvm::StringRef text, std::vector<int64_t> &counts) {
  constexpr int64_t kMax = 1 << 20;
  counts.clear();
  for (llvm::StringRef part : llvm::split(text, ',')) {
    int64_t count = 0;
    if (part.getAsInteger(10, count) || count < 1 || count > kMax)
      return Error{"--scale: \"" + part.str() + "\" is no number of devices; write, for example, " +
                   "--scale=1,8,64"};
    counts.push_back(count);
  }
  return {};
}

Error failure(const std::string &what, ExitCode code = ExitCode::UserError) {
  return Error{"lmc explain: error: " + what, code};
}

Result<void> write(const std::string &path, const std::string &content) {
  const Result<void> written = writeAtomically(path, content);
  return written ? written : failure(written.error().message, written.error().code);
}

Result<void> writeKernel(const Explained &explained, const ExplainArguments &arguments) {
  const plan::Plan &plan = *explained.plan();
  auto context = makeContext();
  cost::DeviceSpec spec = explained.spec;
  spec.clock = spec.clockAlone; // clock for a kernel that runs alone, as in the program
  const cost::PlanCost cost =
      cost::planCost(plan, *codegen::costModelOf(plan.target()->string_view(), spec));
  llvm::Expected<std::string> program =
      extractKernel(plan, arguments.kernel, cost.kernels, *context);
  if (!program)
    return failure(llvm::toString(program.takeError()));
  if (!arguments.output.empty())
    return write(arguments.output, *program);
  llvm::outs() << *program;
  return {};
}

// Adds the section `measured` to the report. Writes the fitted device spec to `arguments.output`.
Result<void> addMeasured(const Explained &explained, const ExplainArguments &arguments,
                         nlohmann::json &report) {
  const plan::Plan &plan = *explained.plan();
  auto text = readTextFile(arguments.measured, uint64_t{4} << 30);
  if (!text)
    return failure(text.error().message, text.error().code);
  auto times = plan::readMeasuredTimes(*text, arguments.measured, explained.plan());
  if (!times)
    return failure(times.error().message, times.error().code);
  const cost::PlanCost cost =
      cost::planCost(plan, *codegen::costModelOf(plan.target()->string_view(), explained.spec));
  report["measured"] = measuredJson(plan, cost, *times);
  if (arguments.output.empty())
    return {};
  const cost::Refit refit = refitSpec(plan, *times, explained.spec);
  report["measured"]["fitted"] = fittedJson(refit);
  return write(arguments.output,
               refitToml(refit, *times, llvm::sys::path::stem(arguments.output).str(),
                         llvm::sys::path::filename(arguments.measured).str()));
}

Result<void> writeReport(const Explained &explained, const ExplainArguments &arguments) {
  const plan::Plan &plan = *explained.plan();
  nlohmann::json report = explainJson(plan, explained.spec);
  if (!arguments.measured.empty())
    LMC_TRY(addMeasured(explained, arguments, report));
  if (nlohmann::json phases = trainingPhasesJson(*explained.file, explained.spec); !phases.empty())
    report["training_phases"] = std::move(phases);
  report.update(explained.sections);
  if (!arguments.html.empty())
    LMC_TRY(write(arguments.html,
                  htmlReport(plan, report, llvm::sys::path::filename(arguments.input).str())));
  if (!arguments.trace.empty())
    LMC_TRY(write(arguments.trace, traceJson(plan, explained.spec).dump()));
  const bool all = arguments.sections == ExplainSections() && arguments.scale.empty();
  // A report that goes to a file is printed only if the user requests sections.
  if (arguments.json)
    llvm::outs() << report.dump(2) << "\n";
  else if (!all || (arguments.html.empty() && arguments.trace.empty())) {
    if (all &&
        !explained.sections.contains("compile")) // a job that was compiled here has no plan file
      llvm::outs() << "plan: SHA-256 " << explained.file->hash() << "\n\n";
    if (all)
      llvm::outs() << trainingPhasesText(report.value("training_phases", nlohmann::json::array()));
    llvm::outs() << explainText(report, arguments.sections, all);
    if (!arguments.scale.empty())
      llvm::outs() << scaleText(report);
  }
  return {};
}

Result<int> runExplain(const ExplainArguments &arguments) {
  std::optional<Explained> explained;
  const bool isJob = llvm::StringRef(arguments.input).ends_with(".toml");
  if (!arguments.measured.empty() && (isJob || !arguments.kernel.empty()))
    return failure("--measured is about the plan that lmc-run ran; give the .plan, "
                   "and no --extract-kernel");
  if (!arguments.output.empty() && arguments.measured.empty() && arguments.kernel.empty())
    return failure("-o is the file of --extract-kernel or --measured; give one of "
                   "them");
  if (!isJob && !arguments.scale.empty())
    return failure("--scale compiles the job for other numbers of devices; give "
                   "the .toml");
  if (isJob) {
    LMC_LET(compiled, compileJob(arguments));
    if (!*compiled)
      return int(ExitCode::UserError);
    explained = std::move(*compiled);
  } else {
    LMC_LET(opened, openPlan(arguments));
    explained = std::move(*opened);
  }
  LMC_TRY(arguments.kernel.empty() ? writeReport(*explained, arguments)
                                   : writeKernel(*explained, arguments));
  return 0;
}

} // namespace

LmcCommand addExplainCommand(CommandLine &line) {
  auto arguments = std::make_shared<ExplainArguments>();
  Command &command = line.command("explain", "say what a plan does and what it needs");
  command.argument("JOB.plan|JOB.toml", arguments->input, "a plan, or a job to compile first");
  command.flag("--json", arguments->json, "print the report as JSON");
  command.option("--html", "FILE", arguments->html, "write the report as a page");
  command.option("--trace", "FILE", arguments->trace,
                 "write the predicted schedule as a Chrome or Perfetto trace");
  command.option("--measured", "FILE", arguments->measured,
                 "lay the times of a trace that lmc-run wrote beside the predicted ones");
  command.option("--extract-kernel", "NAME", arguments->kernel,
                 "a CUDA kernel as a program of its own, with a check and a bench");
  command.option("-o", "FILE", arguments->output,
                 "extracted kernel to write (default: standard output); with --measured: a device "
                 "spec, fitted to the times");
  command.option("--phase", "NAME", arguments->phase,
                 "the phase of the run to explain (default: the first)");
  command.group("Sections to print (default: all)");
  ExplainSections &sections = arguments->sections;
  command.flag("--memory", sections.memory, "memory by category, by phase and at the peak");
  command.flag("--fusion", sections.fusion, "fusions formed and refused; traffic and its floor");
  command.flag("--recompute", sections.recompute, "what is computed again, and its price");
  command.flag("--cost", sections.cost, "predicted times and what bounds them");
  command.flag("--comm", sections.comm, "communication between ranks");
  command.option(
      "--scale", "1,8,64", [=](const std::string &text) { return readCounts(text, arguments->scale); },
      "the job on other numbers of devices, under each sharding strategy");
  command.flag("--kernels", sections.kernels, "the generated kernels");
  command.flag("--commands", sections.commands, "the functions and their commands");
  addJobOptions(command, arguments->job);
  return {&command, [=] { return exitCodeOf(runExplain(*arguments), ""); }};
}

} // namespace lmc

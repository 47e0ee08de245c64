// lmc report: shows runs as an HTML page.
#include "ground/support/Signals.h"
#include "tools/lmc/Commands.h"
#include "tools/lmc/Job.h"
#include "tools/report/Page.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

#include <chrono>
#include <csignal>

namespace lmc {
namespace {

struct ReportArguments {
  std::vector<std::string> folders, curves;
  std::string output = "report.html";
  PageOptions page;
  bool watch = false, quiet = false;
  uint64_t every = 10; // seconds between two pages
};

bool allEnded(const std::vector<RunHistory> &runs) {
  return llvm::all_of(runs, [](const RunHistory &run) { return run.hasEnded(); });
}

// Returns an Error if the page would replace a file that this command reads.
Result<void> checkOutput(const ReportArguments &arguments) {
  std::vector<std::string> read = arguments.curves;
  for (const std::string &folder : arguments.folders)
    for (const char *file :
         {"metrics.jsonl", "events.jsonl", "updates.jsonl", "generated.jsonl", "run.json"})
      read.push_back(folder + "/" + file);
  for (const std::string &path : read)
    if (llvm::sys::fs::equivalent(path, arguments.output))
      return Error{arguments.output + ": -o is a file that the report reads; give another -o"};
  return {};
}

Result<std::string> makePage(std::vector<RunHistory> &runs,
                             const std::vector<PublishedCurve> &curves, PageOptions options) {
  for (RunHistory &run : runs)
    LMC_TRY(run.update());
  options.writtenAt =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  if (allEnded(runs))
    options.reloadSeconds = 0;
  return reportPage(runs, curves, options);
}

void printResult(const ReportArguments &arguments, const std::vector<RunHistory> &runs,
                 size_t bytes) {
  int64_t damaged = 0;
  for (const RunHistory &run : runs)
    damaged += run.damaged();
  llvm::outs() << llvm::formatv("{0}: {1} run{2}, {3} KiB\n", arguments.output, runs.size(),
                                runs.size() == 1 ? "" : "s", (bytes + 1023) / 1024);
  if (damaged > 0)
    llvm::outs() << llvm::formatv("  {0} damaged or half written line{1} left out\n", damaged,
                                  damaged == 1 ? " is" : "s are");
  llvm::outs().flush();
}

// Waits for `seconds`. Returns true at once if a stop signal (which must be blocked) arrives.
bool isStopped(uint64_t seconds) {
  sigset_t stops;
  sigemptyset(&stops);
  for (int signal : kStopSignals)
    if (signal != SIGHUP || !hangUpIsIgnored())
      sigaddset(&stops, signal);
  const timespec limit{static_cast<time_t>(seconds), 0};
  return sigtimedwait(&stops, nullptr, &limit) > 0;
}

// Writes the page repeatedly until all runs have ended or the user stops the program. After a
// failure, warns once and tries again.
int watch(const ReportArguments &arguments, std::vector<RunHistory> &runs,
          const std::vector<PublishedCurve> &curves) {
  blockSignals();
  unblockQuit();
  std::string warned;
  auto warn = [&](const std::string &message) {
    if (message != warned)
      llvm::errs() << "warning: " << message << "; it is tried again\n";
    warned = message;
  };
  PageOptions options = arguments.page;
  options.reloadSeconds = static_cast<int>(arguments.every);
  for (bool stopped = false;;) {
    const bool last = stopped;
    if (last)
      options.reloadSeconds = 0;
    auto attempt = [&]() -> Result<size_t> {
      Result<std::string> page = makePage(runs, curves, options);
      LMC_TRY(page);
      LMC_TRY(writeAtomically(arguments.output, *page));
      return page->size();
    };
    const Result<size_t> bytes = attempt();
    if (bytes)
      warned.clear();
    else
      warn(bytes.error().message);
    if (last || (bytes && allEnded(runs))) {
      if (bytes && !arguments.quiet)
        printResult(arguments, runs, *bytes);
      return bytes ? 0 : int(ExitCode::Failure);
    }
    stopped = isStopped(arguments.every);
  }
}

Result<int> runReport(const ReportArguments &arguments) {
  if (arguments.page.by != "tokens" && arguments.page.by != "hours" && arguments.page.by != "steps")
    return Error{"--by=" + arguments.page.by + ": no such axis; choose tokens, hours or steps"};
  LMC_TRY(checkOutput(arguments));
  std::vector<RunHistory> runs;
  for (const std::string &folder : arguments.folders) {
    LMC_LET(run, RunHistory::open(folder));
    runs.push_back(std::move(*run));
  }
  std::vector<PublishedCurve> curves;
  for (const std::string &path : arguments.curves) {
    LMC_LET(curve, readPublishedCurve(path));
    curves.push_back(std::move(*curve));
  }
  if (arguments.watch)
    return watch(arguments, runs, curves);
  Result<std::string> page = makePage(runs, curves, arguments.page);
  LMC_TRY(page);
  for (const RunHistory &run : runs)
    if (run.steps == 0)
      return Error{run.folder + ": metrics.jsonl has no whole line of a step yet; wait for the "
                                "first step, or give --watch"};
  LMC_TRY(writeAtomically(arguments.output, *page));
  if (!arguments.quiet)
    printResult(arguments, runs, page->size());
  return 0;
}

} // namespace

LmcCommand addReportCommand(CommandLine &line) {
  auto arguments = std::make_shared<ReportArguments>();
  Command &command =
      line.command("report", "show runs as a page for the browser, and compare them");
  command.arguments("RUN", arguments->folders, "folders of runs (lmc-run --out)");
  command.option("-o", "FILE", arguments->output, "page to write (default: report.html)");
  command.option("--by", "AXIS", arguments->page.by,
                 "what the page compares over at first: tokens (default), hours or steps");
  command.list("--curve", "FILE.csv", arguments->curves,
               "a published loss curve to lay beside: a header tokens,loss and a line per point");
  command.flag("--watch", arguments->watch,
               "write the page again and again until all runs have ended, or Ctrl-C; the page "
               "loads itself anew");
  command.number("--every", "SECONDS", 1, 86400, arguments->every,
                 "how often --watch writes the page (default: 10)");
  command.flag("--quiet", arguments->quiet, "print errors only");
  return {&command, [=] { return exitCodeOf(runReport(*arguments), "lmc report: error: "); }};
}

} // namespace lmc

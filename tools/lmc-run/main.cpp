// lmc-run: runs a plan. This file only parses the command line.
#include "ground/support/Arithmetic.h"
#include "ground/support/Number.h"
#include "ground/support/Release.h"
#include "ground/support/Signals.h"
#include "ground/support/Size.h"
#include "runtime/device/GpuMachine.h"
#include "tools/lmc-run/Run.h"
#include "tools/lmc-run/end/Supervise.h"
#include "tools/lmc-run/launch/Launch.h"
#include "tools/support/CommandLine.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdlib>

#include <sys/resource.h>

using namespace lmc;

namespace {

// The command line options that ProgramOptions does not have.
struct OtherOptions {
  std::string gemm;
  int64_t nproc = 1, restarts = 0;
  std::string maxHours, deadline; // parameters of findTimeLimit()
  bool devices = false;
};

} // namespace

static void addOptions(CommandLine &line, ProgramOptions &options, OtherOptions &other) {
  auto number = [&](const char *name, uint64_t least, uint64_t most, auto &value,
                    const char *description) {
    line.number(name, "N", least, most, value, description);
  };
  line.argument("PLAN", options.plan,
                "written by `lmc compile`; may be left out to go on with the run in DIR",
                /*required=*/false);
  line.option("--out", "DIR", options.out,
              "folder of the run: metrics.jsonl, log.txt, events.jsonl, checkpoints/, exports/");
  number("--steps", 0, uint64_t{1} << 53, options.steps,
         "optimizer steps to reach (default: training.train_iters)");
  line.option(
      "--resume", "auto|none|PATH", options.resume,
      "the newest checkpoint of DIR, nothing, or a checkpoint or run folder (default: auto)");
  line.number("--rewind", "STEP", 0, uint64_t{1} << 53, options.rewind,
              "go back to the checkpoint of this step in DIR; what came later is moved to "
              "DIR/undone/");
  line.option("--max-hours", "TIME", other.maxHours,
              "save and end, with exit code 75, before so many hours (3.5) or such a time (3h50m) "
              "have passed; start again to go on");
  line.option("--deadline", "TIME|none", other.deadline,
              "the same before a point in time: 2026-11-22T13:40, 2026-11-22T13:40:00Z, or seconds "
              "since 1970 (default: SLURM_JOB_END_TIME, which `none` ignores)");
  number("--restarts", 1, 1000000, other.restarts,
         "start the run again when a signal, the machine or another rank has ended it; give up "
         "after N restarts without progress");
  line.list("--change", "SECTION.KEY", options.changes,
            "declare that this setting differs from the run's; repeatable");
  line.option("--expect-hash", "SHA256", options.expectHash, "refuse a plan of another hash");
  line.list("--set", "SECTION.KEY=VALUE", options.overrides,
            "change a setting that the plan leaves open; repeatable");
  line.option(
      "--skip-steps", "STEPS",
      [&options](const std::string &text) -> Result<void> {
        options.overrides.push_back("guard.skip_steps=" + text);
        return {};
      },
      "leave out the updates of these steps, as in 120,130-140: --set guard.skip_steps");
  line.option("--init", "PATH", options.init,
              "initial weights: a Hugging Face folder or .safetensors file");
  line.option("--export", "DIR", options.exportDirectory,
              "at the end, write the model as a Hugging Face folder");
  number("--threads", 1, 4096, options.threads,
         "CPU threads (default: OMP_NUM_THREADS, else this rank's part of the CPUs of its host)");
  number("--device", 0, 4095, options.device,
         "which GPU, of those that CUDA_VISIBLE_DEVICES leaves (default: 0)");
  line.flag(
      "--devices", other.devices,
      "only say which GPUs, driver and libraries this machine has, and whether memory of each "
      "GPU keeps what is copied to it; needs no plan");
  line.flag("--no-cuda-graphs", options.noGraphs,
            "enqueue each command of a GPU's plan instead of replaying CUDA graphs");
  line.flag("--check-commands", options.checkCommands,
            "wait after each command, so that a failure of the GPU names its op");
  line.option("--collectives", "nccl|host", options.collectives,
              "GPUs exchange data by NCCL, or through the host's memory (default: nccl)");
  line.option("--gemm", "default|measure", other.gemm,
              "matrix products by a fixed library, or by the fastest for each shape: timed once, "
              "then kept in the user's cache and in DIR/gemm.json (default: LMC_GEMM, else "
              "measure)");
  line.option("--profile", "FILE", options.profile,
              "write the time spent in each function of the plan as JSON");
  line.option("--trace", "FILE", options.trace,
              "write the time of each command in some steps, beside its prediction, as a Chrome or "
              "Perfetto trace");
  number("--trace-steps", 1, 1000, options.traceSteps,
         "steps in the trace, after a warm-up of two (default: 1)");
  number("--bench", 1, 10000, options.bench,
         "only time N steps, with the job's data or, if it names none, random tokens");
  line.flag(
      "--check", options.check,
      "change nothing in DIR: check data, disk, memory, folder and links, train three steps "
      "in a scratch folder beside it, with a save and a resume, and say how long the job will "
      "take");
  line.flag("--json", options.json,
            "with --bench, --check, --preflight, --devices or --compare-commands: print the result "
            "as JSON");
  line.flag("--eval", options.eval, "only measure the validation loss, printed as JSON");
  line.option("--dump-gradients", "FILE", options.dumpGradients,
              "write the gradients of the first step (safetensors)");
  line.option("--record-commands", "FILE", options.recordCommands,
              "only run one step, and write what each of its commands computes: norms and random "
              "sums (JSON lines)");
  line.option("--compare-commands", "FILE", options.compareCommands,
              "only run one step, and name its first command that computes something else than the "
              "file says");
  line.option(
      "--tolerance", "X",
      [&options](const std::string &text) -> Result<void> {
        options.tolerance = parseDouble(text).value_or(0);
        if (!(options.tolerance > 0) || std::isinf(options.tolerance))
          return userError("--tolerance={}: must be a number above 0, as 1e-4", text);
        return {};
      },
      "how far results may be off with --compare-commands, relative (default: 1e-9 in f64, 1e-4 in "
      "f32, 0.05 in bf16)");
  line.option("--phase", "NAME", options.phase,
              "with --bench, --eval or --dump-logits: the phase whose program is used (default: "
              "that of the checkpoint)");
  line.option("--dump-logits", "FILE", options.dumpLogits,
              "only write the logits of one micro-batch (safetensors); needs a plan compiled with "
              "the function `logits`");
  line.group("Many ranks (otherwise from the environment of torchrun, Slurm, Open MPI, Kubernetes)");
  number("--nproc", 1, 4096, other.nproc, "start all ranks of the plan on this machine");
  number("--rank", 0, 1 << 20, options.launch.rank, "number of this rank, from 0");
  number("--world-size", 1, 1 << 20, options.launch.worldSize, "number of ranks");
  number("--local-rank", 0, 1 << 20, options.launch.localRank, "number of this rank on its host");
  line.option("--master-addr", "HOST", options.launch.masterAddress, "host of rank 0");
  number("--master-port", 1, 65535, options.launch.masterPort, "port of rank 0");
  line.option("--interface", "NAME", options.launch.interface,
              "network interface, or its address, for all traffic between ranks");
  line.option("--secret-file", "FILE", options.launch.secretFile,
              "let only ranks in that know the text of this file");
  line.flag(
      "--preflight", options.preflight,
      "train nothing: measure for about 5 s how fast the ranks reach each other, compare with "
      "what the plan assumed, and name slow links and hosts");
  number("--join-timeout", 1, 1 << 20, options.launch.joinSeconds,
         "seconds that ranks wait for each other at the start (default: 30)");
  number("--hang-timeout", 1, 1 << 20, options.launch.hangSeconds,
         "seconds that a rank may read data or compute without progress while others wait for it, "
         "or three steps if they take longer (default: 10); more than 8 also lets a process be "
         "stopped for so long, as by a debugger. A run of one rank is only warned of");
  number("--slow-timeout", 1, 1 << 20, options.launch.slowSeconds,
         "the same for a rank that starts, validates, saves, exports or writes logs, and for all "
         "ranks that wait for each other (default: 1800)");
  line.footer(
      "Exit codes: 0 done, 1 the machine failed (disk, memory, device), 2 a mistake in what\n"
      "was given, or --check found an error, 3 --check found that memory or disk are too small,\n"
      "4 the guard stopped a run that diverged, 5 another rank ended, hangs or disagrees,\n"
      "6 --preflight found a slow link, 75 stopped by a signal (SIGTERM, SIGINT,\n"
      "SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU, SIGALRM) or before its time limit, after writing a\n"
      "checkpoint.");
}

// Returns an Error if the options contradict each other.
static Result<void> check(const ProgramOptions &options, const OtherOptions &other) {
  const std::string &gemm = other.gemm;
  if (gemm != "default" && gemm != "measure")
    return userError("--gemm={}: must be default or measure", gemm);
  if (options.collectives != "nccl" && options.collectives != "host")
    return userError("--collectives={}: must be nccl or host", options.collectives);
  if (options.preflight && (options.bench > 0 || options.eval || !options.dumpLogits.empty()))
    return Error{"--preflight only measures links; leave out --bench, --eval and --dump-logits"};
  if (options.check &&
      (options.preflight || options.bench > 0 || options.eval || !options.dumpLogits.empty() ||
       !options.trace.empty() || !options.profile.empty() || !options.dumpGradients.empty()))
    return Error{"--check trains nothing that is kept; leave out --bench, --eval, --preflight, "
                 "--trace, --profile, --dump-logits and --dump-gradients"};
  const bool trains = options.trains();
  const bool records = !options.recordCommands.empty(), compares = !options.compareCommands.empty();
  if ((records || compares) &&
      (records == compares || options.bench > 0 || options.eval || options.preflight ||
       options.check || !options.out.empty() || options.steps || !options.exportDirectory.empty() ||
       !options.trace.empty() || !options.dumpGradients.empty() || !options.dumpLogits.empty()))
    return Error{
        "--record-commands and --compare-commands each run one step that is not kept; give "
        "one of them, and leave out --out, --steps, --bench, --eval, --check, --preflight, "
        "--export, --trace, --dump-gradients and --dump-logits"};
  if (options.tolerance > 0 && !compares)
    return Error{"--tolerance is for --compare-commands=FILE; give that too"};
  if (!trains && !(other.maxHours.empty() && other.deadline.empty()))
    return Error{"--max-hours and --deadline end a run that trains; leave them out with --bench, "
                 "--eval, --dump-logits, --preflight and --record-commands"};
  if (options.bench > 0 &&
      (options.eval || !options.out.empty() || options.steps || !options.exportDirectory.empty() ||
       !options.dumpGradients.empty() || !options.dumpLogits.empty()))
    return Error{"--bench only measures; leave out --out, --steps, --eval, --export, "
                 "--dump-gradients and --dump-logits"};
  if (!options.phase.empty() && trains)
    return Error{
        "--phase chooses a program for --bench, --eval or --dump-logits; a run goes through "
        "its phases in order"};
  if (options.json && options.bench == 0 && !options.preflight && !options.check && !compares)
    return Error{"--json prints the result of --bench=N, --check, --preflight or "
                 "--compare-commands=FILE; give one of them"};
  if (!options.trace.empty() && !trains && options.bench == 0)
    return Error{"--trace records training steps, and --eval and --dump-logits do none; leave one "
                 "of them out"};
  if (other.restarts > 0 && (!trains || options.out.empty()))
    return Error{"--restarts starts a run that trains again; it needs --out=DIR, and no --bench, "
                 "--eval, --dump-logits or --preflight"};
  if (options.out.empty() && trains)
    return Error{"--out=DIR is needed: the folder for metrics and checkpoints"};
  if (options.plan.empty() && options.out.empty())
    return Error{"a PLAN is needed, or --out=DIR of a run to go on with"};
  if (options.rewind && options.resume != "auto")
    return Error{"--rewind and --resume both choose the checkpoint; give one of them"};
  return {};
}

// Prints which GPUs this machine has, and if it can run plans for them.
static ExitCode describeDevices(bool json) {
  const nlohmann::ordered_json found = describeGpus();
  if (json) {
    fmt::print("{}\n", found.dump(2));
  } else {
    if (found.contains("cuda_driver"))
      fmt::print("driver: for CUDA {}\n", found["cuda_driver"].get<std::string>());
    for (const auto &gpu : found["devices"]) {
      fmt::print("GPU {}: {} ({}), compute capability {}, {} multiprocessors, {} of {} free\n",
                 gpu["index"].get<int>(), gpu["name"].get<std::string>(),
                 gpu["uuid"].get<std::string>(), gpu["compute_capability"].get<std::string>(),
                 gpu["multiprocessors"].get<int>(), formatBytes(gpu["free_bytes"].get<uint64_t>()),
                 formatBytes(gpu["memory_bytes"].get<uint64_t>()));
      if (gpu.contains("memory"))
        fmt::print("  {} to it and back in {:.4f} s{}\n",
                   formatBytes(gpu["memory"]["bytes"].get<uint64_t>()),
                   gpu["memory"]["seconds"].get<double>(),
                   gpu["memory"]["ok"].get<bool>() ? "" : ": NOT the same");
    }
    for (const auto &[name, library] : found["libraries"].items())
      fmt::print("{}: {}\n", name,
                 library.contains("error")
                     ? library["error"].get<std::string>()
                     : fmt::format("{} ({})", library["version"].get<std::string>(),
                                   library["file"].get<std::string>()));
  }
  std::fflush(stdout);
  for (const auto &problem : found["problems"])
    fmt::print(stderr, "lmc-run: error: {}\n", problem.get<std::string>());
  return found["problems"].empty() ? ExitCode::Success : ExitCode::Failure;
}

// Raises the soft limit of descriptors, because each token file needs one or two.
static void raiseDescriptorLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limit.rlim_cur = limit.rlim_max;
    (void)::setrlimit(RLIMIT_NOFILE, &limit);
  }
}

// Returns the time by which the run must have ended; nullopt if the run does not train.
static Result<std::optional<TimeLimit>> timeLimit(const ProgramOptions &options,
                                                  const OtherOptions &other) {
  if (!options.trains())
    return std::optional<TimeLimit>();
  return findTimeLimit(other.maxHours, other.deadline, std::getenv, unixSeconds());
}

int main(int argc, char **argv) {
  blockSignals();
  useDefaultArithmetic(); // a library may have changed the floating-point mode before main()
  raiseDescriptorLimit();
  ProgramOptions options;
  const char *gemmSetting = std::getenv("LMC_GEMM");
  OtherOptions other;
  other.gemm = gemmSetting && *gemmSetting ? gemmSetting : "measure";
  CommandLine line("lmc-run", kRelease.text,
                   "Trains the model of PLAN, and goes on where an earlier run in DIR stopped.");
  addOptions(line, options, other);
  if (std::optional<int> done = line.parse(argc, argv))
    return *done;
  if (const char *restart = std::getenv(kRestartVariable))
    options.restart = std::atoll(restart);
  options.measureGemms = other.gemm == "measure";
  if (other.devices) {
    startSignalThread();
    return static_cast<int>(describeDevices(options.json));
  }
  auto start = [&]() -> Result<int> {
    LMC_TRY(check(options, other));
    LMC_SET(options.timeLimit, timeLimit(options, other));
    if (other.restarts > 0)
      return superviseHere(other.restarts, argc, argv, options);
    if (other.nproc > 1)
      return launchHere(static_cast<int>(other.nproc), argc, argv, options.launch);
    // The user's commands (monitoring.on_event) may start runs that must not inherit these
    // variables.
    ::unsetenv(kTimeLimitVariable);
    ::unsetenv(kRestartVariable);
    startSignalThread(); // not earlier: a launcher forks, so it must have only one thread
    LMC_LET(result, run(options));
    return static_cast<int>(*result);
  };
  const Result<int> result = start();
  if (result)
    return *result;
  // fmt::print would throw an exception if the output is closed.
  std::fputs(fmt::format("lmc-run: error: {}\n", result.error().message).c_str(), stderr);
  return static_cast<int>(result.error().code);
}

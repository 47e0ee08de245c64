// lmc-run: trains what a plan says. The command line, and nothing else.
#include "runtime/support/Nearest.h"
#include "runtime/train/Run.h"

#include <fmt/format.h>

#include <charconv>
#include <functional>
#include <optional>
#include <string>
#include <vector>

using lmc::Error;
using lmc::ExitCode;
using lmc::Result;
using lmc::RunOptions;

static constexpr const char *kUsage = R"(usage: lmc-run PLAN --out=DIR [options]

Trains the model of PLAN (written by `lmc compile`), and goes on where an earlier
run in DIR stopped.

  --out=DIR               folder of the run: metrics.jsonl, checkpoints/, exports/
  --steps=N               optimizer steps to reach (default: training.train_iters)
  --resume=auto|none|PATH the newest checkpoint of DIR, nothing, or a checkpoint or
                          run folder (default: auto)
  --set SECTION.KEY=VALUE change a setting that the plan leaves open; repeatable
  --init=PATH             initial weights: a Hugging Face folder or .safetensors file
  --export=DIR            at the end, write the model as a Hugging Face folder
  --threads=N             CPU threads (default: OMP_NUM_THREADS, else every CPU)
  --profile=FILE          write the time spent in each function of the plan as JSON
  --eval                  only measure the validation loss, printed as JSON
  --dump-gradients=FILE   write the gradients of the first step (safetensors)
  --dump-logits=FILE      only write the logits of one micro-batch (safetensors); needs
                          a plan compiled with the function `logits`
  --help, --version

Exit codes: 0 done, 1 the machine failed (disk, memory, device), 2 a mistake in what
was given, 75 stopped by SIGTERM or SIGINT after writing a checkpoint.
)";

// An option that takes a value, and what to do with it.
struct Option {
  std::string name; // "--out"
  std::function<Result<void>(const std::string &)> apply;
};

static Result<void> parseCount(const std::string &option, const std::string &text, int64_t least,
                               int64_t most, int64_t &value) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most)
    return Error{
        fmt::format("{}={}: expected an integer from {} to {}", option, text, least, most)};
  return {};
}

// Fills `options`, or gives the text to print (--help, --version).
static Result<std::optional<std::string>> parse(const std::vector<std::string> &arguments,
                                                RunOptions &options) {
  auto text = [](std::string &target) {
    return [&target](const std::string &value) -> Result<void> {
      target = value;
      return {};
    };
  };
  const std::vector<Option> withValue = {
      {"--out", text(options.out)},
      {"--resume", text(options.resume)},
      {"--init", text(options.init)},
      {"--export", text(options.exportDirectory)},
      {"--profile", text(options.profile)},
      {"--dump-gradients", text(options.dumpGradients)},
      {"--dump-logits", text(options.dumpLogits)},
      {"--set",
       [&](const std::string &value) -> Result<void> {
         options.overrides.push_back(value);
         return {};
       }},
      {"--steps",
       [&](const std::string &value) -> Result<void> {
         int64_t steps = 0;
         LMC_TRY(parseCount("--steps", value, 0, int64_t{1} << 53, steps));
         options.steps = steps;
         return {};
       }},
      {"--threads",
       [&](const std::string &value) -> Result<void> {
         int64_t threads = 0;
         LMC_TRY(parseCount("--threads", value, 1, 4096, threads));
         options.threads = static_cast<int>(threads);
         return {};
       }},
  };

  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string &argument = arguments[i];
    if (argument == "--help" || argument == "-h")
      return std::optional<std::string>(kUsage);
    if (argument == "--version")
      return std::optional<std::string>("lmc-run " LMC_VERSION "\n");
    if (argument == "--eval") {
      options.eval = true;
      continue;
    }
    if (argument.rfind("-", 0) != 0 || argument == "-") {
      if (!options.plan.empty())
        return Error{
            fmt::format("one plan at a time: '{}' and '{}' were given", options.plan, argument)};
      options.plan = argument;
      continue;
    }
    size_t equals = argument.find('=');
    std::string name = argument.substr(0, equals);
    const Option *found = nullptr;
    for (const Option &option : withValue)
      if (option.name == name)
        found = &option;
    if (!found) {
      std::vector<std::string> names = {"--eval", "--help", "--version"};
      for (const Option &option : withValue)
        names.push_back(option.name);
      std::string nearest = lmc::nearestName(name, names);
      return Error{fmt::format("unknown option '{}'{}", name,
                               nearest.empty() ? "; see lmc-run --help"
                                               : fmt::format("; did you mean '{}'?", nearest))};
    }
    std::string value;
    if (equals != std::string::npos)
      value = argument.substr(equals + 1);
    else if (i + 1 < arguments.size())
      value = arguments[++i];
    if (value.empty())
      return Error{fmt::format("{} needs a value", name)};
    LMC_TRY(found->apply(value));
  }
  if (options.plan.empty())
    return Error{"no plan given; see lmc-run --help"};
  if (options.out.empty() && !options.eval && options.dumpLogits.empty())
    return Error{"--out=DIR is needed: the folder for metrics and checkpoints"};
  return std::optional<std::string>();
}

int main(int argc, char **argv) {
  RunOptions options;
  auto text = parse(std::vector<std::string>(argv + 1, argv + argc), options);
  if (text && *text) {
    std::fputs((*text)->c_str(), stdout);
    return 0;
  }
  Result<ExitCode> result = text ? lmc::run(options) : Result<ExitCode>(text.error());
  if (result)
    return static_cast<int>(*result);
  std::fputs(fmt::format("lmc-run: error: {}\n", result.error().message).c_str(), stderr);
  return static_cast<int>(result.error().code);
}

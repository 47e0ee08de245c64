#include "runtime/train/Run.h"

#include "runtime/train/Dump.h"
#include "runtime/train/Trainer.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <filesystem>

namespace lmc {

// Runs only the evaluation of the validation data, and prints its result as one JSON object.
static Result<ExitCode> evaluate(Session &session, const RunOptions &options) {
  if (session.settings.validationData.empty())
    return Error{"--eval: no validation data; give --set data.validation=FILE"};
  if (session.settings.validationIters == 0)
    return Error{"--eval: monitoring.validation_iters is 0; give --set "
                 "monitoring.validation_iters=N"};
  auto evaluator = session.makeEvaluator();
  if (!evaluator)
    return evaluator.error();
  auto evaluation = (*evaluator)->evaluate([] { return false; });
  LMC_TRY(evaluation);
  nlohmann::ordered_json json;
  json["step"] = session.progress.step;
  json["validation_loss"] = evaluation->loss;
  json["validation_tokens"] = evaluation->tokens;
  std::fputs((json.dump() + "\n").c_str(), options.output);
  std::fflush(options.output);
  return ExitCode::Success;
}

static Result<ExitCode> dump(Session &session, const RunOptions &options) {
  auto data = session.settings.validationData.empty() ? session.openTrainData()
                                                      : session.openValidationData();
  if (!data)
    return data.error();
  LMC_TRY(dumpLogits(options.dumpLogits, session, **data));
  return ExitCode::Success;
}

// Warns of each file that a run both trains on and validates with.
static Result<void> warnOfSharedFiles(const Session &session, const DataSource &training,
                                      Console &console) {
  if (session.settings.validationData.empty())
    return {};
  auto validation = session.openValidationData();
  if (!validation)
    return validation.error();
  for (const std::string &path : (*validation)->paths())
    for (const std::string &other : training.paths())
      if (std::error_code failed; std::filesystem::equivalent(path, other, failed))
        console.warning(fmt::format("{}: data.train and data.validation both have this file, so the "
                                    "validation loss says nothing of unseen text",
                                    path));
  return {};
}

// Returns what a run reads: "data: 1000 tokens in 1 file(s), read 2.50 times by 50 steps".
static std::string dataFacts(const Session &session, const DataSource &data, int64_t totalSteps) {
  const double samples =
      double(totalSteps) * double((*session.plan)->batch()->global_batch_size());
  return fmt::format("data: {} tokens in {} file(s), read {:.2f} times by {} steps", data.tokens(),
                     data.paths().size(), samples / double(data.samplesPerEpoch()), totalSteps);
}

static Result<ExitCode> train(Session &session, const RunOptions &options, RunDirectory &directory,
                              Console &console, const StopSignals &stop,
                              std::unique_ptr<DataSource> data, int64_t totalSteps) {
  const std::string reads = dataFacts(session, *data, totalSteps);
  Trainer trainer(session, options, directory, console, stop, std::move(data), totalSteps);
  LMC_TRY(trainer.prepare());
  for (const std::string &line : session.facts())
    console.note(line);
  console.note(reads);
  if (session.checkpoint && !options.init.empty())
    console.note(
        fmt::format("--init={} is not used: the run resumes from a checkpoint", options.init));
  if (session.progress.step >= static_cast<uint64_t>(totalSteps))
    console.note(
        fmt::format("nothing to train: step {} of {} is done", session.progress.step, totalSteps));
  return trainer.train();
}

Result<ExitCode> run(const RunOptions &options) {
  // Signals are handled from here on, so that a signal during the set-up leaves no half-written
  // file.
  StopSignals stop;
  auto opened = Session::open(options);
  if (!opened)
    return opened.error();
  Session &session = **opened;
  bool training = !options.eval && options.dumpLogits.empty();
  int64_t totalSteps = options.steps.value_or(session.settings.trainIters);
  Console console(options.output, options.errors, session.settings.logInterval, totalSteps);

  std::unique_ptr<RunDirectory> directory;
  std::unique_ptr<DataSource> data;
  if (training) {
    auto locked = RunDirectory::open(options.out);
    if (!locked)
      return locked.error();
    directory = std::move(*locked);
  }
  std::vector<DamagedCheckpoint> damaged;
  auto checkpoint = chooseCheckpoint(options.resume, options.out, &damaged);
  LMC_TRY(checkpoint);
  for (const DamagedCheckpoint &skipped : damaged)
    console.warning(fmt::format("skipping the checkpoint {}: {}", skipped.path, skipped.fault));
  LMC_TRY(session.chooseStart(*checkpoint));
  if (training) {
    auto unreadable = checkNothingLater(options.out, session.progress.step);
    LMC_TRY(unreadable);
    auto moved = moveAside(*unreadable);
    LMC_TRY(moved);
    for (const std::string &path : *moved)
      console.warning(fmt::format("the damaged checkpoint is now {}", path));
    // The data is opened before the weights are loaded, so that a wrong path is reported early.
    auto source = session.openTrainData();
    if (!source)
      return source.error();
    data = std::move(*source);
    LMC_TRY(warnOfSharedFiles(session, *data, console));
    LMC_TRY(directory->rememberPlan(*session.plan, options.overrides));
  }
  LMC_TRY(session.start(options));

  Result<ExitCode> result =
      options.eval ? evaluate(session, options)
      : !options.dumpLogits.empty()
          ? dump(session, options)
          : train(session, options, *directory, console, stop, std::move(data), totalSteps);
  if (!options.profile.empty())
    LMC_TRY(session.profile.write(options.profile));
  return result;
}

} // namespace lmc

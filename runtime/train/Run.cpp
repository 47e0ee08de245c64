#include "runtime/train/Run.h"

#include "runtime/support/File.h"
#include "runtime/train/Dump.h"
#include "runtime/train/Trainer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <unistd.h>

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

static void warnOf(const DataSource &data, Console &console) {
  for (const std::string &warning : data.warnings())
    console.warning(warning);
}

// Warns if the TOML file that the plan was compiled from is still there and has another text.
static void warnOfEditedConfig(const RunIdentity &identity, Console &console) {
  const std::string path =
      (std::filesystem::path(identity.configDirectory) /
       std::filesystem::path(identity.configPath).filename())
          .string();
  if (identity.configToml.empty() || !exists(path))
    return;
  auto text = readTextFile(path, uint64_t{16} << 20);
  if (text && *text != identity.configToml)
    console.warning(fmt::format("{} has changed since the plan was compiled; the run uses the plan: "
                                "compile again if it should use the change",
                                path));
}

// Warns of each file that a run both trains on and validates with, copies included.
static void warnOfSharedData(const RunIdentity &identity, Console &console) {
  for (const FileFingerprint &file : identity.validationData)
    for (const FileFingerprint &other : identity.trainData)
      if (!difference(other, file))
        console.warning(fmt::format("data.validation has {}, and data.train has the same tokens in "
                                    "{}: the validation loss says nothing of unseen text",
                                    file.path, other.path));
}

// Sets the fingerprints of the data.
static Result<void> describeData(const Session &session, const DataSource &training,
                                 RunIdentity &identity, Console &console) {
  auto trained = training.fingerprint();
  LMC_TRY(trained);
  identity.trainData = std::move(*trained);
  if (session.settings.validationData.empty())
    return {};
  auto validation = session.openValidationData();
  if (!validation)
    return validation.error();
  warnOf(**validation, console);
  auto validated = (*validation)->fingerprint();
  LMC_TRY(validated);
  identity.validationData = std::move(*validated);
  return {};
}

// A step that reads more sequences than the data has reads some of them more than once. That is an
// error unless the user allows it.
static Result<void> checkRepeats(const Session &session, const DataSource &training,
                                 Console &console) {
  const uint64_t batchSize = (*session.plan)->batch()->global_batch_size(),
                 samples = training.samplesPerEpoch();
  if (batchSize <= samples)
    return {};
  const std::string arithmetic = fmt::format(
      "data.train has {} sequences of {} tokens, and one step reads {} (training.batch_size), so it "
      "reads the data {:.2f} times",
      samples, training.sequenceLength(), batchSize, double(batchSize) / double(samples));
  if (!session.settings.allowRepeats)
    return Error{fmt::format("{}; give more data, compile with a batch_size of at most {}, or set "
                             "data.allow_repeats = true",
                             arithmetic, samples)};
  console.warning(arithmetic);
  return {};
}

// Returns what a run reads and trains: "data: 1000 tokens in 1 file(s), 960 in whole
// blocks, read 2.50 times by 50 steps", and "job: 50 steps, 2500 tokens, 20.0 per parameter".
static std::vector<std::string> jobFacts(const Session &session, const DataSource &data,
                                         int64_t totalSteps) {
  const plan::Plan &plan = **session.plan;
  const double samples = double(totalSteps) * double(plan.batch()->global_batch_size());
  const double tokens = samples * double(plan.batch()->sequence_length());
  return {fmt::format("data: {} tokens in {} file(s), {} in whole blocks, read {:.2f} times by {} "
                      "steps",
                      data.tokens(), data.paths().size(), data.tokensPerEpoch(),
                      samples / double(data.samplesPerEpoch()), totalSteps),
          fmt::format("job: {} steps, {:.0f} tokens, {:.1f} per parameter", totalSteps, tokens,
                      tokens / double(plan.model()->parameters()))};
}

namespace {

// How a run starts: from which checkpoint, and what an earlier start recorded.
struct Start {
  std::optional<std::string> checkpoint;
  CheckpointState state;                // of the checkpoint
  std::optional<RunIdentity> saved;     // the identity in the checkpoint
  std::optional<RunIdentity> before;    // the identity that this start is compared with
  bool forked = false;                  // the checkpoint is of a run in another folder
};

// The checkpoints that this start found damaged.
struct Damage {
  std::vector<DamagedCheckpoint> found;
  size_t warned = 0; // so many of them the user has been told of
};

} // namespace

static Result<std::optional<std::string>> findCheckpoint(const RunOptions &options, Damage &damage,
                                                         Console &console) {
  std::string resume = options.resume;
  if (options.rewind) {
    resume = fmt::format("{}/checkpoints/{}", options.out, *options.rewind);
    if (!std::filesystem::exists(resume + "/state.json"))
      return Error{fmt::format("--rewind={}: {} is no checkpoint; the run's checkpoints are in "
                               "{}/checkpoints",
                               *options.rewind, resume, options.out)};
  }
  auto checkpoint = chooseCheckpoint(resume, options.out, damage.found);
  if (checkpoint)
    for (; damage.warned < damage.found.size(); ++damage.warned)
      console.warning(fmt::format("skipping the checkpoint {}: {}",
                                  damage.found[damage.warned].path,
                                  damage.found[damage.warned].fault));
  return checkpoint;
}

// Returns true if the checkpoint is in the folder `out`.
static bool isOf(const std::string &checkpoint, const std::string &out) {
  std::error_code failed;
  const auto run = std::filesystem::path(checkpoint).parent_path().parent_path();
  return !out.empty() && std::filesystem::equivalent(run, out, failed);
}

// `directory` is null if the run does not train.
static Result<Start> chooseStart(const RunOptions &options, RunDirectory *directory,
                                 Damage &damage, Console &console) {
  Start start;
  auto checkpoint = findCheckpoint(options, damage, console);
  LMC_TRY(checkpoint);
  start.checkpoint = *checkpoint;
  if (start.checkpoint) {
    auto state = readCheckpointState(*start.checkpoint, /*verifyChecksums=*/false);
    LMC_TRY(state);
    start.state = std::move(*state);
    start.forked = !isOf(*start.checkpoint, options.out);
    try {
      start.saved = runIdentityFromJson(start.state.run);
    } catch (const nlohmann::json::exception &) {
      return Error{fmt::format("{}: its state.json does not describe the run; it is of another "
                               "release: use the release that wrote it",
                               *start.checkpoint)};
    }
  }
  start.before = start.saved;
  // The folder's own record is newer than the checkpoint's: it also has what was declared at a start
  // that did not reach its next checkpoint. A rewind takes such changes back.
  if (directory && !options.rewind && !start.forked) {
    std::string fault;
    auto recorded = directory->recorded(fault);
    LMC_TRY(recorded);
    if (!fault.empty())
      console.warning(fault);
    if (*recorded && (!start.before || (*recorded)->run == start.before->run))
      start.before = std::move(*recorded);
  }
  return start;
}

// Returns an error if the parameters or moments of the checkpoint are not those of the plan.
static Result<void> checkModel(const Start &start, const PlanFile &plan, const RunIdentity &now) {
  if (!start.checkpoint || start.state.fingerprint == plan->fingerprint()->str())
    return {};
  std::vector<SettingChange> changes;
  for (SettingChange &change : compareSettings(*start.before, now))
    if (change.key.starts_with("model.") || change.key.starts_with("optimizer.") ||
        change.key == "training.compute_dtype")
      changes.push_back(std::move(change));
  return Error{fmt::format("{}: checkpoint of another model than {}: {}; give --out another folder, "
                           "or the plan that the checkpoint was made with",
                           *start.checkpoint, plan.path(),
                           changes.empty() ? "its parameters or moments differ"
                                           : describe(changes))};
}

// Returns the changes since the recorded start, or an error that names those that must be declared.
static Result<std::vector<SettingChange>> checkIdentity(const Start &start,
                                                        const RunOptions &options,
                                                        const RunIdentity &now, bool training) {
  if (!start.before)
    return std::vector<SettingChange>();
  std::vector<SettingChange> changes = compareSettings(*start.before, now);
  // A start that does not train depends only on the model. A run that has no checkpoint loses
  // nothing.
  if (training)
    for (SettingChange &change : compareData(*start.before, now))
      changes.push_back(std::move(change));
  else
    std::erase_if(changes, [](const SettingChange &change) {
      return !change.key.starts_with("model.");
    });
  if (!start.checkpoint || (training && start.forked))
    return changes;
  const std::vector<SettingChange> missing = undeclared(changes, options.changes);
  if (missing.empty())
    return changes;
  std::vector<std::string> declarations;
  for (const SettingChange &change : missing)
    declarations.push_back("--change=" + change.key);
  return Error{fmt::format("{}: this start would train something else than the run did: {}; set "
                           "these as they were, or declare the change with {}, or start another run "
                           "with --resume={} and a new --out",
                           *start.checkpoint, describe(missing), fmt::join(declarations, " "),
                           *start.checkpoint)};
}

// Sets session.progress and the run's identity, and records them in the run's folder.
static Result<void> recordStart(Session &session, const Start &start, const RunOptions &options,
                                const std::vector<SettingChange> &changes, RunIdentity identity,
                                RunDirectory &directory, Console &console, RunLog &log) {
  identity.run = start.before && !start.forked ? start.before->run : drawRunId();
  if (start.before)
    identity.changes = start.before->changes;
  nlohmann::ordered_json facts = {{"run", identity.run},
                                  {"step", session.progress.step},
                                  {"plan", session.plan->path()},
                                  {"plan_hash", session.plan->hash()},
                                  {"target", identity.target},
                                  {"version", identity.runtimeVersion},
                                  {"host", identity.host},
                                  {"pid", ::getpid()}};
  if (start.checkpoint)
    facts["resumed_from"] = *start.checkpoint;
  if (start.forked)
    facts["forked_from"] = start.before->run;
  if (options.rewind)
    facts["rewound"] = true;
  log.event("start", facts);
  if (start.before && start.before->planHash != session.plan->hash()) {
    console.note(fmt::format("another plan than at the last start, of SHA-256 {}",
                             start.before->planHash));
    log.event("plan", {{"from", start.before->planHash}, {"to", session.plan->hash()}});
  }
  for (const SettingChange &change : changes) {
    console.note(fmt::format("changed: {} was {} and is {}", change.key, change.from, change.to));
    log.event("change", {{"step", session.progress.step},
                         {"key", change.key},
                         {"from", change.from},
                         {"to", change.to},
                         {"identity", change.identity}});
    if (change.identity && start.checkpoint)
      identity.changes.push_back({session.progress.step, change.key, change.from, change.to});
  }
  for (const DeclaredChange &change : identity.changes)
    if (change.step < session.progress.step)
      console.note(fmt::format("changed at step {}: {} was {} and is {}", change.step, change.key,
                               change.from, change.to));
  session.progress.run = toJson(identity);
  return directory.record(identity, *session.plan);
}

// Takes back what the folder has of later steps than the start: with --rewind by moving it aside.
// Otherwise there is nothing but `damaged` checkpoints, which are renamed.
static Result<void> undoLaterSteps(const RunOptions &options, uint64_t step,
                                   const std::vector<DamagedCheckpoint> &damaged,
                                   RunDirectory &directory, Console &console, RunLog &log) {
  if (options.rewind) {
    auto moved = directory.undoAfter(step);
    LMC_TRY(moved);
    for (const std::string &path : *moved)
      console.note(fmt::format("moved to {}", path));
    log.event("rewind", {{"step", step}, {"moved", *moved}});
    return {};
  }
  auto moved = moveAside(damaged);
  LMC_TRY(moved);
  for (const std::string &path : *moved)
    console.warning(fmt::format("the damaged checkpoint is now {}", path));
  return {};
}

static Result<std::unique_ptr<PlanFile>> openPlan(const RunOptions &options) {
  std::string path = options.plan;
  if (path.empty()) {
    auto recorded = recordedPlan(options.out);
    LMC_TRY(recorded);
    path = *recorded;
  }
  auto plan = PlanFile::open(path);
  if (plan && !options.expectHash.empty() && (*plan)->hash() != options.expectHash)
    return Error{fmt::format("{}: its SHA-256 is {}, and --expect-hash is {}; this is not the plan "
                             "that was meant",
                             path, (*plan)->hash(), options.expectHash)};
  return plan;
}

namespace {

// The parts of a training run that outlive its errors.
struct Folder {
  std::unique_ptr<RunDirectory> directory;
  std::optional<RunLog> log;
};

// A start up to the point where the weights are loaded. It has changed nothing in the run's folder.
struct Prepared {
  Start start;
  std::vector<std::string> repeated; // changes of --set of an earlier start
  std::unique_ptr<Session> session;
  int64_t totalSteps = 0;
  RunIdentity identity;
  std::vector<SettingChange> changes;
  // Only if the run trains:
  std::unique_ptr<DataSource> data;
  std::vector<DamagedCheckpoint> damaged; // checkpoints of the folder that are later than the start
};

} // namespace

// `directory` is null if the run does not train.
static Result<Prepared> prepare(RunDirectory *directory, const RunOptions &options,
                                std::unique_ptr<PlanFile> plan, Damage &damage, Console &console) {
  const bool training = directory != nullptr;
  Prepared prepared;
  auto start = chooseStart(options, directory, damage, console);
  if (!start)
    return start.error();
  if (start->before)
    prepared.repeated = repeatedOverrides(*start->before, **plan);
  std::vector<std::string> overrides = prepared.repeated;
  overrides.insert(overrides.end(), options.overrides.begin(), options.overrides.end());

  auto opened = Session::open(std::move(plan), overrides);
  if (!opened)
    return opened.error();
  Session &session = **opened;
  const int64_t totalSteps = options.steps.value_or(session.settings.trainIters);
  console.setSteps(session.settings.logInterval, totalSteps);
  RunIdentity &identity = prepared.identity;
  identity = describeRun(*session.plan, session.settingTable);
  LMC_TRY(checkDeclarations(options.changes, identity));
  LMC_TRY(checkModel(*start, *session.plan, identity));

  if (training) {
    if (totalSteps > session.settings.trainIters)
      return Error{fmt::format("--steps={} is more than training.train_iters, {}; give --set "
                               "training.train_iters={}",
                               totalSteps, session.settings.trainIters, totalSteps)};
    auto source = session.openTrainData();
    if (!source)
      return source.error();
    prepared.data = std::move(*source);
    warnOf(*prepared.data, console);
    LMC_TRY(checkRepeats(session, *prepared.data, console));
    LMC_TRY(describeData(session, *prepared.data, identity, console));
    warnOfSharedData(identity, console);
    warnOfEditedConfig(identity, console);
  }
  auto changes = checkIdentity(*start, options, identity, training);
  LMC_TRY(changes);
  prepared.changes = std::move(*changes);
  if (start->checkpoint) {
    session.checkpoint = start->checkpoint;
    session.progress = start->state;
    if (training && (reordersData(compareSettings(*start->saved, identity)) ||
                     reordersData(compareData(*start->saved, identity)))) {
      session.progress.position = 0;
      console.note("the data has another order than before and is read from its beginning");
    }
  }
  if (training && !options.rewind) {
    auto damaged = checkNothingLater(options.out, session.progress.step, damage.found);
    LMC_TRY(damaged);
    prepared.damaged = std::move(*damaged);
  }
  prepared.start = std::move(*start);
  prepared.session = std::move(*opened);
  prepared.totalSteps = totalSteps;
  return prepared;
}

// Prepares a start and loads the weights. If the checkpoint turns out to be damaged, the next older
// one is tried. All mistakes of the user are found before the first weight is loaded.
static Result<Prepared> prepareAndLoad(RunDirectory *directory, const RunOptions &options,
                                       std::unique_ptr<PlanFile> plan, Console &console) {
  Damage damage;
  for (;;) {
    auto prepared = prepare(directory, options, std::move(plan), damage, console);
    if (!prepared)
      return prepared.error();
    auto damaged = prepared->session->start(options);
    LMC_TRY(damaged);
    if (!*damaged)
      return prepared;
    damage.found.push_back(**damaged);
    plan = std::move(prepared->session->plan);
  }
}

static Result<ExitCode> runIn(Folder &folder, const RunOptions &options, const StopSignals &stop,
                              std::unique_ptr<PlanFile> plan, Console &console) {
  auto prepared = prepareAndLoad(folder.directory.get(), options, std::move(plan), console);
  if (!prepared)
    return prepared.error();
  Session &session = *prepared->session;
  const int64_t totalSteps = prepared->totalSteps;
  if (!folder.directory) {
    auto result = options.eval ? evaluate(session, options) : dump(session, options);
    if (!options.profile.empty())
      LMC_TRY(session.profile.write(options.profile));
    return result;
  }

  std::unique_ptr<DataSource> data = std::move(prepared->data);
  LMC_TRY(undoLaterSteps(options, session.progress.step, prepared->damaged, *folder.directory,
                         console, *folder.log));
  LMC_TRY(recordStart(session, prepared->start, options, prepared->changes,
                      std::move(prepared->identity), *folder.directory, console, *folder.log));
  const std::vector<std::string> job = jobFacts(session, *data, totalSteps);
  Trainer trainer(session, options, *folder.directory, console, *folder.log, stop, std::move(data),
                  totalSteps);
  for (const std::string &line : session.facts())
    console.note(line);
  for (const std::string &line : job)
    console.note(line);
  for (const std::string &repeated : prepared->repeated)
    console.note(fmt::format("repeats --set {} of the last start", repeated));
  if (session.checkpoint) {
    console.note(fmt::format("resumed at step {} from {}", session.progress.step,
                             *session.checkpoint));
    if (!options.init.empty())
      console.note(fmt::format("--init={} is not used: the run resumes from a checkpoint",
                               options.init));
  }
  LMC_TRY(trainer.prepare());
  if (session.progress.step >= static_cast<uint64_t>(totalSteps))
    console.note(
        fmt::format("nothing to train: step {} of {} is done", session.progress.step, totalSteps));
  Result<ExitCode> result = trainer.train();
  if (!options.profile.empty())
    LMC_TRY(session.profile.write(options.profile));
  return result;
}

Result<ExitCode> run(const RunOptions &options) {
  // Signals are handled from here on, so that a signal during the set-up leaves no half-written
  // file.
  StopSignals stop;
  const auto begin = std::chrono::steady_clock::now();
  auto plan = openPlan(options);
  if (!plan)
    return plan.error();
  Folder folder;
  Console console(options.output, options.errors);
  const bool training = !options.eval && options.dumpLogits.empty();
  if (!training)
    return runIn(folder, options, stop, std::move(*plan), console);

  auto locked = RunDirectory::open(options.out);
  if (!locked)
    return locked.error();
  folder.directory = std::move(*locked);
  auto log = RunLog::open(options.out);
  if (!log)
    return log.error();
  folder.log.emplace(std::move(*log));
  console.record(&*folder.log);
  Result<ExitCode> result = runIn(folder, options, stop, std::move(*plan), console);
  nlohmann::ordered_json end = {
      {"code", static_cast<int>(result ? *result : result.error().code)},
      {"seconds",
       std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count()}};
  if (!result) {
    folder.log->line("error: " + result.error().message);
    end["error"] = result.error().message;
  }
  folder.log->event("exit", end);
  return result;
}

} // namespace lmc

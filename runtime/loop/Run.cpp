#include "runtime/loop/Run.h"

#include "ground/plan/Steps.h"
#include "ground/support/File.h"
#include "runtime/comm/Agree.h"
#include "runtime/comm/GlooWorld.h"
#include "runtime/loop/CheckData.h"
#include "runtime/loop/Trainer.h"
#include "runtime/settings/CompareRanks.h"
#include "runtime/watch/DiskSpace.h"
#include "runtime/watch/LoneWatch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <unistd.h>

namespace lmc {

// Warns if the TOML file from which the plan was compiled still exists, but has changed.
static void warnOfEditedConfig(const RunIdentity &identity, Console &console) {
  const std::string path = (std::filesystem::path(identity.configDirectory) /
                            std::filesystem::path(identity.configPath).filename())
                               .string();
  if (identity.configToml.empty() || !exists(path))
    return;
  auto text = readTextFile(path, uint64_t{16} << 20);
  if (text && *text != identity.configToml)
    console.warning(
        fmt::format("{} has changed since the plan was compiled; the run uses the plan: "
                    "compile again if it should use the change",
                    path));
}

// Warns of validation files that are also training files, and of validation data that another
// tokenizer made.
static void warnOfSharedData(const RunIdentity &identity, Console &console) {
  const std::vector<FileFingerprint> trained = identity.trainData();
  for (const auto &[set, validated] : identity.data) {
    if (!namesValidationFiles(set))
      continue;
    for (const FileFingerprint &file : validated) {
      const auto other = std::ranges::find_if(
          trained, [&](const auto &each) { return haveOtherTokenizers(file, each); });
      if (other == trained.end())
        continue;
      console.warning(fmt::format("{} ({}) and {} were made by different tokenizers, so that an id "
                                  "means another text in each; pack both with one --tokenizer",
                                  file.path, set, other->path));
      break;
    }
  }
  for (const auto &[set, validated] : identity.data)
    for (const FileFingerprint &file : validated)
      for (const auto &[key, files] : identity.data)
        for (const FileFingerprint &other : files)
          if (namesValidationFiles(set) && !namesValidationFiles(key) && !difference(other, file))
            console.warning(fmt::format("{} has {}, and {} has the same tokens in {}: the "
                                        "validation loss does not measure unseen text",
                                        set, file.path, key, other.path));
}

// Adds the fingerprints of all phases' training data and of the validation data to `identity`.
static Result<void> describeData(const std::vector<PhaseData> &phases, RunIdentity &identity,
                                 Console &console) {
  for (const PhaseData &phase : phases) {
    LMC_LET(trained, phase.data->fingerprints());
    identity.data.merge(*trained);
  }
  const Session &session = *phases.front().session;
  for (const ValidationSettings &set : session.settings.validations) {
    LMC_LET(validation, session.openValidationData(set));
    console.warnings((*validation)->warnings());
    LMC_LET(validated, (*validation)->fingerprints());
    identity.data.merge(*validated);
  }
  return {};
}

// Returns an error if a step to train comes before the first step of its learning rate schedule.
static Result<void> checkRestart(const std::vector<PhaseData> &phases, size_t current,
                                 uint64_t done) {
  for (size_t i = current; i < phases.size(); ++i) {
    const uint64_t from = std::max(done, phases[i].phase.firstStep);
    const auto begin = static_cast<uint64_t>(phases[i].session->settings.lr.begin);
    if (from < std::min(begin, phases[i].phase.lastStep))
      return userError("lr_schedule.restart_step is {}, and the run goes on after step {}: the "
                       "schedule has no rate for the steps between; go on from a checkpoint of "
                       "step {}, as with --rewind={}, or set lr_schedule.restart_step={}",
                       begin, from, begin, begin, from);
  }
  return {};
}

// Returns the names of the sources that a phase of an earlier start reads; "": all sources.
static std::string sourcesOf(const RunIdentity &identity, const std::string &phase) {
  const auto found = identity.settings.find(fmt::format("phase.{}.sources", phase));
  const bool chooses = found != identity.settings.end() && !found->second.values.empty();
  return chooses ? found->second.text() : "";
}

// Returns at which token of each source the stream of phase number `current` begins. If the sources
// or the order of the data (`reordered`) changed, the stream is new: progress.position becomes 0, a
// source of unchanged order begins with its first unread token, and all others at token 0.
static std::vector<uint64_t> continueData(const std::vector<PhaseData> &phases, size_t current,
                                          CheckpointState &progress, const RunIdentity &saved,
                                          const RunIdentity &now, bool &reordered,
                                          Console &console) {
  std::vector<SettingChange> changes = compareSettings(saved, now);
  std::ranges::move(compareData(saved, now), std::back_inserter(changes));
  reordered = reordersData(changes);
  const auto former = progress.extra.find(kPhase);
  const bool sameStream = sourcesOf(saved, former == progress.extra.end() ? "" : former->second) ==
                          sourcesOf(now, phases[current].phase.name);
  std::vector<uint64_t> starts;
  std::vector<std::string> kept;
  for (const SourceFacts &source : phases[current].data->sources()) {
    const auto known = progress.sources.find(source.name);
    const bool keeps = known != progress.sources.end() && keepsSource(changes, source.key);
    const bool continues = sameStream && !reordered;
    starts.push_back(!keeps ? 0 : continues ? known->second.start : known->second.tokens);
    if (keeps)
      kept.push_back(source.name);
  }
  if (!sameStream || reordered)
    progress.position = 0;
  if (reordered)
    console.note(
        kept.empty()
            ? "the order of the training data has changed; it is read from its beginning"
            : fmt::format("the mixture of the training data has changed; these sources go on "
                          "where they were, and others are read from their beginning: {}",
                          fmt::join(kept, ", ")));
  return starts;
}

// If the latest rollback went back to this checkpoint, skips the data read before that rollback.
static void applyRollback(const std::vector<Rollback> &rollbacks, const RunIdentity &saved,
                          CheckpointState &progress) {
  if (rollbacks.size() > saved.rollbacks.size() && rollbacks.back().step == progress.step)
    progress.position = std::max(progress.position, rollbacks.back().position);
}

namespace {

// What a start begins with: a checkpoint, and the identity of an earlier start.
struct Start {
  std::optional<std::string> checkpoint;
  CheckpointState state;             // the state in the checkpoint
  std::optional<RunIdentity> saved;  // the identity in the checkpoint
  std::optional<RunIdentity> before; // the identity with which this start is compared
  bool forked = false;               // true if the checkpoint is of another run, in another folder
  bool begins = false;               // true for the first start of this run
};

// The checkpoints that this start found damaged.
struct Damage {
  std::vector<DamagedCheckpoint> found;
  size_t warned = 0; // the user was warned of the first `warned` elements of `found`
};

} // namespace

static Result<std::optional<std::string>> findCheckpoint(const RunOptions &options, Damage &damage,
                                                         Console &console) {
  std::string resume = options.resume;
  if (options.rewind) {
    resume = fmt::format("{}/checkpoints/{}", options.out, *options.rewind);
    if (!std::filesystem::exists(resume + "/state.json"))
      return userError(
          "--rewind={}: {} is no checkpoint; the run's checkpoints are in {}/checkpoints",
          *options.rewind, resume, options.out);
  }
  auto checkpoint = chooseCheckpoint(resume, options.out, damage.found);
  if (checkpoint)
    for (; damage.warned < damage.found.size(); ++damage.warned)
      console.warning(fmt::format("skipping the checkpoint {}: {}",
                                  damage.found[damage.warned].path,
                                  damage.found[damage.warned].fault));
  return checkpoint;
}

// Returns true if the checkpoint is one of the run in the folder `out`.
static bool isOf(const std::string &checkpoint, const std::string &out) {
  std::error_code failed;
  // The path may end in a slash, be relative, or name a symbolic link.
  const auto run = std::filesystem::canonical(checkpoint, failed).parent_path().parent_path();
  return !out.empty() && std::filesystem::equivalent(run, out, failed);
}

// Returns true if the list `all` begins with the list `first`.
static bool isPrefix(const std::vector<DeclaredChange> &first,
                     const std::vector<DeclaredChange> &all) {
  return first.size() <= all.size() && std::equal(first.begin(), first.end(), all.begin());
}

// If run.json (`recorded`), written by the latest start, belongs to the checkpoint, compares this
// start with run.json: only run.json has the changes declared after the checkpoint was saved.
static Result<void> useRecord(Start &start, const RunIdentity &recorded,
                              const RunOptions &options) {
  if (start.forked)
    return userError("{}: holds another run than {}; give the new run an --out of its own",
                     options.out, *start.checkpoint);
  if (start.saved && start.saved->run != recorded.run)
    return userError("{}: a checkpoint of another run than the one in {}; to begin with it, give "
                     "--resume={} and a new --out",
                     *start.checkpoint, options.out, *start.checkpoint);
  // Ignores a run.json that lacks changes of the checkpoint: it is older (after an aborted rewind).
  if (start.saved && !isPrefix(start.saved->changes, recorded.changes))
    return {};
  for (const DeclaredChange &change : recorded.changes)
    if (start.checkpoint && change.step > start.state.step)
      return userError("{}: the run changed {} at step {}, after this checkpoint; go back to its "
                       "settings with --rewind={}",
                       *start.checkpoint, change.key, change.step, start.state.step);
  start.before = recorded;
  return {};
}

// `directory` is null if the run does not train.
static Result<Start> chooseStart(const RunOptions &options, RunDirectory *directory, Damage &damage,
                                 Console &console) {
  Start start;
  LMC_SET(start.checkpoint, findCheckpoint(options, damage, console));
  std::optional<RunIdentity> recorded;
  // A rollback keeps the setting changes declared after its checkpoint. A rewind drops them.
  if (directory && (!options.rewind || !options.rollbacks.empty())) {
    std::string fault;
    LMC_LET(read, directory->recorded(fault));
    if (!fault.empty())
      console.warning(fault);
    recorded = std::move(*read);
  }
  if (!start.checkpoint && options.resume == "auto" && !options.out.empty()) {
    if (auto saved = lastSave(options.out))
      return userError("{}: the run saved {}, and no checkpoint is there now; bring its "
                       "checkpoints back, or start over with another --out",
                       options.out, *saved);
    if (!directory)
      return userError("{}: no checkpoint is there; leave --out away to use the initial weights",
                       options.out);
    // The run has no checkpoint of its own yet. If it began with another run's, it does so again.
    if (recorded && !recorded->startedFrom.empty())
      start.checkpoint = recorded->startedFrom;
  }
  if (start.checkpoint) {
    LMC_SET(start.state, readCheckpointState(*start.checkpoint, /*verifyChecksums=*/false));
    start.forked = !isOf(*start.checkpoint, options.out);
    try {
      start.saved = runIdentityFromJson(start.state.run);
    } catch (const nlohmann::json::exception &) {
      return userError("{}: state.json has no valid identity of the run; use the release of "
                       "lmc-run that wrote it",
                       *start.checkpoint);
    }
  }
  // If a run in this folder already began with this checkpoint, the start continues that run.
  start.begins = start.forked;
  if (start.forked && recorded && !recorded->startedFrom.empty()) {
    std::error_code failed;
    if (std::filesystem::equivalent(recorded->startedFrom, *start.checkpoint, failed)) {
      start.begins = false;
      start.before = std::move(recorded);
      return start;
    }
  }
  start.before = start.saved;
  if (recorded)
    LMC_TRY(useRecord(start, *recorded, options));
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
  return userError("{}: checkpoint of another model than {}: {}; give --out another folder, or the "
                   "plan that the checkpoint was made with",
                   *start.checkpoint, plan.path(),
                   changes.empty() ? "its parameters or moments differ" : describe(changes));
}

// Returns the changes since `start.before`. Error: a change is not declared by --change.
static Result<std::vector<SettingChange>> checkIdentity(const Start &start,
                                                        const RunOptions &options,
                                                        const RunIdentity &now, bool training) {
  if (!start.before)
    return std::vector<SettingChange>();
  std::vector<SettingChange> changes = compareSettings(*start.before, now);
  // If the start does not train, its result depends only on the model, so data is not compared.
  if (training)
    for (SettingChange &change : compareData(*start.before, now))
      changes.push_back(std::move(change));
  else
    std::erase_if(changes, [](const SettingChange &change) {
      return !change.key.starts_with("model.") || change.key.starts_with("model.initializer") ||
             change.key == "model.max_position_embeddings";
    });
  // If the run has no checkpoint of its own, a change loses no work and need not be declared.
  if (!start.checkpoint || (training && start.begins))
    return changes;
  const std::vector<SettingChange> missing = undeclared(changes, options.changes);
  if (missing.empty())
    return changes;
  std::vector<std::string> declarations;
  for (const SettingChange &change : missing)
    declarations.push_back("--change=" + change.key);
  return userError("{}: this start differs from the run: {}; restore these values, declare the "
                   "change with {}, or start a new run with --resume={} and another --out",
                   *start.checkpoint, describe(missing), fmt::join(declarations, " "),
                   *start.checkpoint);
}

// Returns all rollbacks of a run so far: options.rollbacks or, if it is empty, the recorded ones.
static std::vector<Rollback> rollbacksOf(const Start &start, const RunOptions &options) {
  return options.rollbacks.empty() ? start.before->rollbacks : options.rollbacks;
}

// Completes the identity, and writes it to session.progress, the run's folder and events.jsonl.
// prepare() describes `goesOn`.
static Result<void> recordStart(Session &session, const Start &start, const RunOptions &options,
                                const std::vector<SettingChange> &changes, RunIdentity identity,
                                const std::string &init, const RunPhase &phase, bool goesOn,
                                RunDirectory &directory, Console &console, RunLog &log) {
  identity.run = start.before && !start.begins ? start.before->run : drawRunId();
  identity.device = session.deviceInfo.name;
  if (const auto uses = session.gemms->inUse(); !uses.empty())
    identity.device += "; " + uses.front().key.device;
  if (start.before) {
    identity.changes = start.before->changes;
    identity.rollbacks = rollbacksOf(start, options);
  }
  if (start.before && !start.begins) {
    identity.startedFrom = start.before->startedFrom;
    identity.init = start.before->init;
  } else if (start.begins) {
    identity.startedFrom = std::filesystem::canonical(*start.checkpoint).string();
  }
  if (!start.checkpoint)
    identity.init = init;
  nlohmann::ordered_json facts = {{"run", identity.run},
                                  {"step", session.progress.step},
                                  {"plan", session.job->path()},
                                  {"plan_hash", session.job->hash()},
                                  {"target", identity.target},
                                  {"version", identity.runtimeVersion},
                                  {"host", identity.host},
                                  {"device", identity.device},
                                  {"pid", ::getpid()}};
  if (start.checkpoint)
    facts["resumed_from"] = *start.checkpoint;
  if (start.begins)
    facts["forked_from"] = start.before->run;
  if (!start.checkpoint && !init.empty())
    facts["init"] = init;
  if (options.rewind)
    facts["rewound"] = true;
  if (!options.rollbacks.empty())
    facts["rollback"] = {{"spike", options.rollbacks.back().spike},
                         {"position", options.rollbacks.back().position}};
  if (!phase.name.empty())
    facts["phase"] = phase.name;
  log.event(goesOn && options.rollbacks.empty() ? "phase" : "start", facts);
  if (const auto *warnings = (*session.job)->warnings(); warnings && !goesOn)
    for (const flatbuffers::String *warning : *warnings)
      console.warning(warning->str());
  if (start.before && start.before->planHash != session.job->hash()) {
    console.note(fmt::format("the plan has changed: the last start used the plan with SHA-256 {}",
                             start.before->planHash));
    log.event("plan", {{"from", start.before->planHash}, {"to", session.job->hash()}});
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
    if (change.step < session.progress.step && !goesOn)
      console.note(fmt::format("changed at step {}: {} was {} and is {}", change.step, change.key,
                               change.from, change.to));
  session.progress.run = toJson(identity);
  return directory.record(identity, *session.job);
}

// With --rewind, moves checkpoints, exports and evaluations of later steps to OUT/undone. Without
// --rewind, only damaged checkpoints can be of later steps, and they are renamed.
static Result<void> undoLaterSteps(const RunOptions &options, uint64_t step,
                                   const std::vector<DamagedCheckpoint> &damaged,
                                   RunDirectory &directory, Console &console, RunLog &log) {
  if (options.rewind) {
    LMC_LET(moved, directory.undoAfter(step));
    for (const std::string &path : *moved)
      console.note(fmt::format("moved to {}", path));
    log.event("rewind", {{"step", step}, {"moved", *moved}});
    return {};
  }
  LMC_LET(moved, moveAside(damaged));
  for (const std::string &path : *moved)
    console.warning(fmt::format("the damaged checkpoint is now {}", path));
  return {};
}

static Result<std::unique_ptr<PlanFile>> openPlanFile(const RunOptions &options) {
  auto plan = options.plan.empty() ? openRecordedPlan(options.out, options.rewind)
                                   : PlanFile::open(options.plan);
  std::string expected = options.expectHash;
  for (char &digit : expected)
    digit = static_cast<char>(std::tolower(static_cast<unsigned char>(digit)));
  if (plan && !expected.empty() && (*plan)->hash() != expected)
    return userError("{}: its SHA-256 is {}, and --expect-hash is {}", (*plan)->path(),
                     (*plan)->hash(), expected);
  return plan;
}

Result<std::unique_ptr<PlanFile>> openPlan(const RunOptions &options, World &world) {
  LMC_LET(plan, allSucceed(world.all(), openPlanFile(options)));
  LMC_TRY(comparePlans(world, **plan));
  LMC_TRY(world.divide(static_cast<int>((**plan)->shard_ranks()),
                       static_cast<int>((**plan)->devices_per_node()),
                       static_cast<int>((**plan)->expert_ranks())));
  return plan;
}

// Records in the run's folder which implementations of matrix products this start uses.
static Result<void> recordGemms(const Session &session, const std::string &folder, Console &console,
                                RunLog &log) {
  const std::vector<GemmChoices::Use> uses = session.gemms->inUse();
  if (uses.empty())
    return {};
  nlohmann::ordered_json products = nlohmann::ordered_json::object();
  for (const GemmChoices::Use &use : uses)
    products[use.key.product] = use.choice.implementation;
  nlohmann::ordered_json facts = {{"step", session.progress.step},
                                  {"device", uses.front().key.device},
                                  {"choices", session.gemms->summary()},
                                  {"products", std::move(products)}};
  if (const std::string former = session.gemms->formerDevice(); !former.empty()) {
    facts["former_device"] = former;
    console.note(fmt::format("gemm: the run's choices are for another device or other libraries "
                             "({}), and are made again for this ({}): the last bits of results "
                             "differ from those of the earlier start",
                             former, uses.front().key.device));
  }
  if (const std::vector<std::string> &rejected = session.gemms->rejected(); !rejected.empty()) {
    facts["rejected"] = rejected;
    console.note(fmt::format("gemm: {} of the run's choices cannot be used here, though the device "
                             "and its libraries have the same names and versions, and are made "
                             "again: the last bits of results may differ from those of the earlier "
                             "start",
                             rejected.size()));
  }
  log.event("gemm", facts);
  return session.gemms->writeRun(gemmPath(folder));
}

namespace {

// These objects outlive runIn(), so that train() can record how the run ended.
struct Folder {
  std::unique_ptr<RunDirectory> directory;
  std::optional<RunLog> log;
  std::string interruption;              // why the run ends with ExitCode::Interrupted
  std::unique_ptr<RunObserver> observer; // null on ranks other than 0, and in a trial
};

// A prepared start, before the weights are loaded. It has not changed the run's folder.
struct Prepared {
  Start start;
  std::vector<std::string> repeated; // --set changes of an earlier start that are repeated
  std::string init;                  // path of the initial weights of the run
  std::unique_ptr<Session> session;  // the session of `phase`
  int64_t totalSteps = 0;
  RunPhase phase;
  RunIdentity identity;
  std::vector<SettingChange> changes;
  // Members that are set only if the run trains:
  std::shared_ptr<DataSource> data;
  std::vector<std::string> job;           // lines about the data and the job (jobFacts)
  std::vector<DamagedCheckpoint> damaged; // damaged checkpoints of later steps in the folder
};

} // namespace

// Chooses the start on all ranks. Rank 0 chooses first, because it renames damaged checkpoints.
static Result<Start> chooseStart(const RunOptions &options, RunDirectory *directory, Damage &damage,
                                 Console &console, World &world) {
  auto choose = [&] { return chooseStart(options, directory, damage, console); };
  Result<Start> start = world.rank() == 0 ? choose() : Result<Start>(Start());
  if (world.size() == 1)
    return start;
  start = allSucceed(world.all(), std::move(start));
  if (!start)
    return start;
  return allSucceed(world.all(), world.rank() == 0 ? std::move(start) : choose());
}

// Opens all phases of the run and their data. Phases that read the same data share one DataSource.
static Result<std::vector<PhaseData>> openPhases(const PlanFile &job,
                                                 const std::vector<std::string> &overrides,
                                                 const std::vector<RunPhase> &phases, bool training,
                                                 World &world) {
  std::vector<PhaseData> opened;
  for (const RunPhase &phase : phases) {
    LMC_LET(session, Session::open(job, phase.index, overrides, world));
    PhaseData entry{phase, std::move(*session), nullptr};
    for (const PhaseData &other : opened)
      if (other.data && readsSameStream(other.session->settings, entry.session->settings) &&
          (*other.session->plan)->batch()->sequence_length() ==
              (*entry.session->plan)->batch()->sequence_length())
        entry.data = other.data;
    if (training && !entry.data)
      LMC_SET(entry.data, entry.session->openTrainData());
    opened.push_back(std::move(entry));
  }
  return opened;
}

static void warnOfData(const std::vector<PhaseData> &phases, const RunIdentity &identity,
                       const std::vector<std::string> &repeats, Console &console) {
  console.warnings(phases.front().session->settings.warnings);
  std::vector<const DataSource *> seen;
  for (const PhaseData &phase : phases)
    if (std::ranges::find(seen, phase.data.get()) == seen.end()) {
      console.warnings(phase.data->warnings());
      seen.push_back(phase.data.get());
    }
  console.warnings(repeats);
  warnOfSharedData(identity, console);
  warnOfEditedConfig(identity, console);
}

// Only a start that does not train takes the phase from --phase.
static Result<size_t> choosePhase(const RunOptions &options, const std::vector<RunPhase> &phases,
                                  uint64_t step, bool runsSteps) {
  if (options.phase.empty())
    return phaseAt(phases, step, /*isDone=*/!runsSteps);
  std::vector<std::string> names;
  for (const RunPhase &phase : phases) {
    if (phase.name == options.phase)
      return phase.index;
    names.push_back(phase.name);
  }
  return userError("--phase={}: the run has {}", options.phase,
                   names.front().empty() ? "no phases"
                                         : fmt::format("the phases {}", fmt::join(names, ", ")));
}

// `directory` is null if the run does not train. `runsSteps` is true if the run trains or measures
// steps. `goesOn` is true if this process has already trained steps of the run.
static Result<Prepared> prepare(RunDirectory *directory, const Run &run, bool runsSteps,
                                bool goesOn, Damage &damage, Console &console) {
  const RunOptions &options = run.options;
  const PlanFile &job = run.plan;
  World &world = run.world;
  const bool training = directory != nullptr;
  Prepared prepared;
  LMC_LET(start, chooseStart(options, directory, damage, console, world));
  if (start->before)
    prepared.repeated = repeatedOverrides(*start->before, *job, start->checkpoint.has_value());
  // A --set option of this start replaces the repeated value of the same setting.
  std::erase_if(prepared.repeated, [&](const std::string &repeated) {
    const std::string key = repeated.substr(0, repeated.find('=') + 1);
    return std::any_of(options.overrides.begin(), options.overrides.end(),
                       [&](const std::string &given) { return given.starts_with(key); });
  });
  prepared.init = options.init;
  if (prepared.init.empty() && !start->checkpoint && start->before)
    prepared.init = start->before->init;
  std::vector<std::string> overrides = prepared.repeated;
  overrides.insert(overrides.end(), options.overrides.begin(), options.overrides.end());

  LMC_LET(settings, RunSettings::read(*job, overrides));
  const int64_t trainIters = settings->config.training.trainIters;
  const int64_t totalSteps = options.steps.value_or(trainIters);
  if (training && totalSteps > trainIters)
    return userError(
        "--steps={} is more than training.train_iters, {}; give --set training.train_iters={}",
        totalSteps, trainIters, totalSteps);
  const std::vector<RunPhase> spans = phasesOf(job, static_cast<uint64_t>(totalSteps));
  LMC_LET(current, choosePhase(options, spans, start->state.step, runsSteps));
  prepared.phase = spans[*current];

  LMC_LET(opened, openPhases(job, overrides, spans, training, world));
  std::vector<PhaseData> phases = std::move(*opened);
  Session &session = *phases[*current].session;
  console.setSteps(session.settings.config.monitoring.logInterval, totalSteps);
  RunIdentity &identity = prepared.identity;
  if (training &&
      (session.settings.config.checkpoint.exportInterval > 0 || !options.exportDirectory.empty()))
    LMC_TRY(checkExportable(job));
  identity = describeRun(job, settings->table);
  LMC_TRY(checkDeclarations(options.changes, identity, start->before ? &*start->before : nullptr));
  LMC_TRY(checkModel(*start, job, identity));

  if (training) {
    std::vector<std::string> repeats;
    LMC_TRY(checkRepeats(phases, repeats));
    LMC_TRY(describeData(phases, identity, console));
    if (!goesOn)
      warnOfData(phases, identity, repeats, console);
  }
  LMC_SET(prepared.changes, checkIdentity(*start, options, identity, training));
  std::vector<uint64_t> starts;
  if (training)
    starts.resize(phases[*current].data->sources().size());
  if (start->checkpoint) {
    session.checkpoint = start->checkpoint;
    session.progress = start->state;
    if (training) {
      bool reordered = false;
      starts = continueData(phases, *current, session.progress, *start->saved, identity, reordered,
                            console);
      if (!reordered)
        applyRollback(rollbacksOf(*start, options), *start->saved, session.progress);
    }
  }
  if (training) {
    LMC_TRY(checkRestart(phases, *current, session.progress.step));
    const std::vector<DataLeg> legs = legsOf(phases, *current, session.progress, std::move(starts));
    LMC_TRY(checkEpochs(phases, legs));
    prepared.job = jobFacts(phases, legs, static_cast<uint64_t>(totalSteps));
    prepared.data = std::move(phases[*current].data);
    prepared.data->startAt(legs.front().starts);
  }
  if (training && !options.rewind)
    LMC_SET(prepared.damaged, checkNothingLater(options.out, session.progress.step, damage.found));
  prepared.start = std::move(*start);
  prepared.session = std::move(phases[*current].session);
  prepared.totalSteps = totalSteps;
  return prepared;
}

// Prepares a start and loads the weights. If the checkpoint is damaged, tries the next older one.
static Result<Prepared> prepareAndLoad(RunDirectory *directory, const Run &run,
                                       const Measurement *measurement, bool goesOn,
                                       Console &console) {
  World &world = run.world;
  const bool runsSteps = !measurement || measurement->runsSteps;
  Damage damage;
  for (;;) {
    LMC_LET(prepared,
            allSucceed(world.all(), prepare(directory, run, runsSteps, goesOn, damage, console)));
    LMC_TRY(compareRanks(world, prepared->identity,
                         {prepared->start.checkpoint.value_or(""), prepared->session->progress.step,
                          static_cast<uint64_t>(prepared->totalSteps), prepared->init}));
    LMC_LET(damaged,
            prepared->session->start(run.options, prepared->init,
                                     measurement ? measurement->observer : ObserverMaker()));
    if (!*damaged)
      return prepared;
    damage.found.push_back(**damaged);
  }
}

// How a phase ended. `more` is true if the run continues with another phase, or with a rollback.
struct PhaseEnd {
  ExitCode code = ExitCode::Success;
  bool more = false;
  std::vector<Rollback> rollbacks = {}; // all rollbacks of the run, if it continues with one
};

Result<StartFacts> lookAtStart(const Run &run, Console &console) {
  World &world = run.world;
  Damage damage;
  const std::unique_ptr<RunDirectory> directory = RunDirectory::look(run.options.out);
  LMC_LET(prepared, allSucceed(world.all(), prepare(directory.get(), run, /*runsSteps=*/true,
                                                    /*goesOn=*/false, damage, console)));
  const uint64_t step = prepared->session->progress.step;
  const auto totalSteps = static_cast<uint64_t>(prepared->totalSteps);
  LMC_TRY(
      compareRanks(world, prepared->identity,
                   {prepared->start.checkpoint.value_or(""), step, totalSteps, prepared->init}));
  StartFacts facts{prepared->start.checkpoint, prepared->init, prepared->repeated, step, totalSteps,
                   phasesOf(run.plan, totalSteps), prepared->job};
  facts.overrides.insert(facts.overrides.end(), run.options.overrides.begin(),
                         run.options.overrides.end());
  return facts;
}

// Warns of mistakes in a sample of the tokens, and of a disk that is too small for the run.
static void warnAtStart(const Prepared &prepared, const PlanFile &job, const RunOptions &options,
                        Console &console) {
  const Session &session = *prepared.session;
  const auto totalSteps = static_cast<uint64_t>(prepared.totalSteps);
  console.warnings(sampleAtStart(session, *prepared.data));
  const std::string place = nearestFolder(options.out + "/checkpoints");
  const auto need =
      diskNeed(session, options, phasesOf(job, totalSteps), session.progress.step, totalSteps);
  const auto free = freeBytes(place);
  if (!need || !free || need->saves == 0)
    return;
  if (const Finding finding = judgeDisk(*need, *free, place); finding.severity != Severity::Ok)
    console.warning(finding.text);
}

// Writes the profile of a phase to a file of its own, if --profile is given.
static Result<void> writeProfile(const Session &session, const RunOptions &options,
                                 const RunPhase &phase) {
  if (options.profile.empty())
    return {};
  return session.profile.write(phase.name.empty() ? options.profile
                                                  : options.profile + "." + phase.name);
}

// Returns the line about the time limit that a run prints at its start.
static std::string describeLimit(const TimeBudget &time) {
  const TimeLimit &limit = *time.what();
  const auto end = std::chrono::system_clock::from_time_t(static_cast<time_t>(limit.end));
  return fmt::format("time: the run saves and ends before {} ({}), in {}; a save is expected to "
                     "take {:.1f} s",
                     timeText(end), limit.source, formatDuration(std::max(time.secondsLeft(), 0.0)),
                     time.save());
}

// Returns the `reason` of the event `exit`.
static std::string reasonOf(ExitCode code, const std::string &interruption) {
  switch (code) {
  case ExitCode::Success:
    return "done";
  case ExitCode::Interrupted:
    return interruption;
  case ExitCode::Diverged:
    return "diverged";
  case ExitCode::RankFailed:
    return "rank_failed";
  default:
    return "error";
  }
}

// Trains the phase that prepare() chooses, or measures it. `goesOn` is as in prepare().
static Result<PhaseEnd> runPhase(Folder &folder, const Run &run, const Measurement *measurement,
                                 TimeBudget &time, bool goesOn, Console &console) {
  const RunOptions &options = run.options;
  World &world = run.world;
  LMC_LET(prepared, prepareAndLoad(folder.directory.get(), run, measurement, goesOn, console));
  Session &session = *prepared->session;
  const int64_t totalSteps = prepared->totalSteps;
  console.warnings(session.gemms->takeWarnings());
  if (measurement) {
    auto result = measurement->use(session, console);
    LMC_TRY(writeProfile(session, options, prepared->phase));
    LMC_TRY(result);
    return PhaseEnd{*result};
  }

  if (!goesOn && world.rank() == 0)
    warnAtStart(*prepared, run.plan, options, console);
  if (world.rank() == 0 && run.makeObserver && !folder.observer)
    folder.observer = run.makeObserver(session.settings.config, options.out, console, *folder.log);
  // Only rank 0 changes the folder of the run, so other ranks record nothing.
  auto record = [&]() -> Result<void> {
    if (world.rank() != 0)
      return {};
    LMC_TRY(undoLaterSteps(options, session.progress.step, prepared->damaged, *folder.directory,
                           console, *folder.log));
    LMC_TRY(recordStart(session, prepared->start, options, prepared->changes,
                        std::move(prepared->identity), prepared->init, prepared->phase, goesOn,
                        *folder.directory, console, *folder.log));
    return recordGemms(session, options.out, console, *folder.log);
  };
  LMC_TRY(allSucceed(world.all(), record()));
  LMC_LET(identity, broadcastText(world.all(), session.progress.run.dump()));
  session.progress.run = nlohmann::json::parse(*identity);
  const RunPhase &phase = prepared->phase;
  if (!goesOn) {
    LMC_LET(bytes, checkpointBytes(*session.plan));
    time.expectSave(expectedSaveSeconds(*bytes, options.out));
    if (options.timeLimit)
      console.note(describeLimit(time));
  }
  if (!time.hasStepped())
    time.expectStep(plan::predictedStepSeconds(**session.plan));
  const RunContext context = {.session = session,
                              .options = options,
                              .directory = *folder.directory,
                              .console = console,
                              .log = *folder.log,
                              .observer = folder.observer.get(),
                              .stop = run.stop,
                              .time = time,
                              .phase = phase,
                              .totalSteps = static_cast<uint64_t>(totalSteps)};
  Trainer trainer(context, std::move(prepared->data));
  console.notes(session.facts());
  console.warnings(session.deviceInfo.remarks);
  if (!phase.name.empty())
    console.note(
        fmt::format("phase {}: steps {} to {}", phase.name, phase.firstStep + 1, phase.lastStep));
  if (!goesOn)
    console.notes(prepared->job);
  if (!goesOn)
    for (const std::string &repeated : prepared->repeated)
      console.note(fmt::format("uses --set {} again, as at the last start", repeated));
  if (!session.checkpoint && !prepared->init.empty())
    console.note(fmt::format("initial weights: {}", prepared->init));
  if (session.checkpoint) {
    console.note(
        fmt::format("resumed at step {} from {}", session.progress.step, *session.checkpoint));
    if (!options.init.empty())
      console.note(
          fmt::format("--init={} is not used: the run resumes from a checkpoint", options.init));
  }
  LMC_TRY(trainer.prepare());
  console.notes(session.device->takeNotes());
  if (session.progress.step >= static_cast<uint64_t>(totalSteps))
    console.note(
        fmt::format("nothing to train: step {} of {} is done", session.progress.step, totalSteps));
  Result<ExitCode> result = trainer.train();
  // A GPU captures a function with collectives as CUDA graphs after its first run, and notes this.
  console.notes(session.device->takeNotes());
  folder.interruption = trainer.interruption();
  LMC_TRY(writeProfile(session, options, phase));
  LMC_TRY(result);
  if (const std::optional<Rollback> back = trainer.rollback()) {
    std::vector<Rollback> all = runIdentityFromJson(session.progress.run).rollbacks;
    all.push_back(*back);
    return PhaseEnd{ExitCode::Success, true, std::move(all)};
  }
  return PhaseEnd{*result, *result == ExitCode::Success &&
                               session.progress.step < static_cast<uint64_t>(totalSteps)};
}

// Runs the phases one after the other. Goes back to a checkpoint if the guard requires it. Each
// phase begins with the checkpoint that the phase before it has saved.
static Result<ExitCode> runIn(Folder &folder, const Run &run, const Measurement *measurement,
                              Console &console) {
  TimeBudget time(run.options.timeLimit);
  auto end = runPhase(folder, run, measurement, time, /*goesOn=*/false, console);
  RunOptions next = run.options;
  const Run rest = {next, run.stop, run.plan, run.world, run.makeObserver};
  next.resume = "auto";
  next.rewind.reset();
  next.changes.clear();
  next.init = next.trace = next.dumpGradients = "";
  while (end && end->more) {
    next.rollbacks = std::move(end->rollbacks);
    next.rewind.reset();
    if (!next.rollbacks.empty())
      next.rewind = next.rollbacks.back().step;
    // After a rollback, a signal does not stop the run here: the rollback must be recorded first.
    LMC_LET(stops, anyOf(run.world.all(), run.stop.requested() && next.rollbacks.empty()));
    if (*stops) {
      console.note("stopped by a signal at the end of a phase; start again to go on");
      folder.interruption = "signal";
      return ExitCode::Interrupted;
    }
    end = runPhase(folder, rest, measurement, time, /*goesOn=*/true, console);
  }
  LMC_TRY(end);
  return end->code;
}

// Opens the folder of the run. Rank 0 locks it; the other ranks check that they see the lock.
static Result<void> openFolder(Folder &folder, const RunOptions &options, World &world) {
  auto open = [&](auto directory, const std::string &logs) -> Result<void> {
    LMC_TRY(directory);
    folder.directory = std::move(*directory);
    LMC_TRY(makeFolders(logs));
    LMC_LET(log, RunLog::open(logs));
    folder.log.emplace(std::move(*log));
    return {};
  };
  const bool first = world.rank() == 0;
  LMC_TRY(allSucceed(world.all(),
                     first ? open(RunDirectory::open(options.out), options.out) : Result<void>()));
  LMC_LET(lock, broadcastText(world.all(), first ? folder.directory->lockText() : ""));
  return allSucceed(world.all(), first
                                     ? Result<void>()
                                     : open(RunDirectory::join(options.out, *lock),
                                            fmt::format("{}/ranks/{}", options.out, world.rank())));
}

Result<ExitCode> train(const Run &run) {
  const RunOptions &options = run.options;
  World &world = run.world;
  const auto begin = std::chrono::steady_clock::now();
  Console console(options.output, options.errors);
  Folder folder; // destroyed before `console`, because the folder's observer prints warnings there
  LMC_TRY(openFolder(folder, options, world));
  console.record(&*folder.log);
  std::unique_ptr<HangWatch> watch;
  if (world.size() == 1)
    watch =
        watchLoneRank(world.progress(), stallLimits(options.launch), *folder.log, options.errors);
  Result<ExitCode> result = runIn(folder, run, nullptr, console);
  const ExitCode code = result ? *result : result.error().code;
  nlohmann::ordered_json end = {
      {"code", static_cast<int>(code)},
      {"reason", reasonOf(code, folder.interruption)},
      {"seconds", std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count()}};
  if (!result) {
    folder.log->line("error: " + result.error().message);
    end["error"] = result.error().message;
  }
  folder.log->event("exit", end);
  return result;
}

Result<ExitCode> measure(const Run &run, const Measurement &measurement) {
  Folder none;
  Console console(run.options.output, run.options.errors);
  return runIn(none, run, &measurement, console);
}

} // namespace lmc

#include "tools/lmc-run/Run.h"

#include "runtime/comm/GlooWorld.h"
#include "runtime/loop/Run.h"
#include "runtime/step/Dump.h"
#include "tools/lmc-run/check/Check.h"
#include "tools/lmc-run/check/Preflight.h"
#include "tools/lmc-run/measure/Bench.h"
#include "tools/lmc-run/measure/CommandRecord.h"
#include "tools/lmc-run/monitors/Monitors.h"

#include <nlohmann/json.hpp>

#include <optional>

namespace lmc {

// Only evaluates the validation data, and prints the results as one JSON object.
static Result<ExitCode> evaluate(Session &session, const ProgramOptions &options) {
  const std::vector<ValidationSettings> &sets = session.settings.validations;
  if (sets.empty())
    return Error{"--eval: no validation data; give --set data.validation=FILE"};
  LMC_LET(evaluators, session.makeEvaluators());
  session.world.progress().enter(Activity::Validating, session.progress.step);
  nlohmann::ordered_json json;
  json["step"] = session.progress.step;
  for (size_t i = 0; i < sets.size(); ++i) {
    LMC_LET(evaluation, (*evaluators)[i]->evaluate([] { return false; }));
    const std::string &name = sets[i].name;
    addValidation({name, evaluation->loss, evaluation->bitsPerByte}, json);
    (name.empty() ? json["validation_tokens"] : json["validation"][name]["tokens"]) =
        evaluation->tokens;
  }
  std::fputs((json.dump() + "\n").c_str(), options.output);
  std::fflush(options.output);
  return ExitCode::Success;
}

static Result<ExitCode> dump(Session &session, const ProgramOptions &options) {
  const std::vector<ValidationSettings> &sets = session.settings.validations;
  LMC_LET(data, sets.empty() ? session.openTrainData() : session.openValidationData(sets.front()));
  LMC_TRY(dumpLogits(options.dumpLogits, session, **data));
  return ExitCode::Success;
}

// Opens the record that --record-commands or --compare-commands requests.
static Result<std::unique_ptr<CommandRecord>> openRecord(const ProgramOptions &options,
                                                         const PlanFile &plan,
                                                         const DeviceInfo &device,
                                                         const World &world) {
  if (!options.recordCommands.empty())
    return CommandRecord::toWrite(plan, device.name,
                                  CommandRecord::fileOf(options.recordCommands, world));
  return CommandRecord::toCompare(plan, CommandRecord::fileOf(options.compareCommands, world),
                                  options.tolerance, options.json ? options.output : nullptr);
}

static Result<ExitCode> measure(const Run &run, const ProgramOptions &options) {
  std::unique_ptr<CommandRecord> record;
  Measurement measurement;
  measurement.runsSteps = options.bench > 0 || options.recordsCommands();
  if (options.recordsCommands())
    measurement.observer = [&](const PlanFile &plan,
                               const DeviceInfo &device) -> Result<FunctionObserver *> {
      LMC_SET(record, openRecord(options, plan, device, run.world));
      return record.get();
    };
  measurement.use = [&](Session &session, Console &console) -> Result<ExitCode> {
    if (record) {
      auto result = recordCommands(session, *record, options, run.stop, console);
      record.reset(); // the record must be destroyed before the device, whose memory it uses
      return result;
    }
    return options.bench > 0 ? bench(session, options, run.stop, console)
           : options.eval    ? evaluate(session, options)
                             : dump(session, options);
  };
  return measure(run, measurement);
}

Result<ExitCode> run(const ProgramOptions &options) {
  LMC_LET(world, openWorld(options.launch));
  return run(options, **world);
}

Result<ExitCode> run(const ProgramOptions &options, World &world) {
  // Handles signals from here on, so that a signal during the set-up leaves no half-written file.
  std::optional<StopSignals> signals(std::in_place);
  const StopSignals &stop = *signals;
  world.progress().enter(Activity::Starting, 0);
  LMC_LET(plan, openPlan(options, world));
  std::unique_ptr<FILE, int (*)(FILE *)> nowhere(nullptr, &std::fclose);
  ProgramOptions own = options;
  if (world.rank() != 0) {
    nowhere.reset(std::fopen("/dev/null", "w"));
    own.output = own.errors = nowhere.get();
  }
  if (options.preflight) {
    signals.reset(); // a preflight writes nothing, so a signal may end it at any time
    return preflight(**plan, world, own);
  }
  const Run run = {own, stop, **plan, world,
                   [](const Config &config, const std::string &out, Console &console, RunLog &log) {
                     return std::make_unique<Monitors>(
                         config.monitoring, config.checkpoint.exportCommand, out, console, log);
                   }};
  return options.check ? check(run, own) : options.trains() ? train(run) : measure(run, own);
}

} // namespace lmc

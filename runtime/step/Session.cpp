#include "runtime/step/Session.h"

#include "ground/plan/Names.h"
#include "ground/plan/PlannedBytes.h"
#include "ground/plan/Steps.h"
#include "ground/plan/TargetRules.h"
#include "ground/support/Size.h"
#include "runtime/checkpoint/HuggingFace.h"
#include "runtime/comm/Agree.h"
#include "runtime/comm/FairThreads.h"
#include "runtime/folder/DeviceTensors.h"
#include "runtime/folder/RunDirectory.h"
#include "runtime/step/Initializer.h"
#include "runtime/step/Inputs.h"

#include <fmt/format.h>
#include <omp.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

namespace lmc {

using plan::VariableKind;

Result<std::unique_ptr<Session>> Session::open(const PlanFile &job, size_t phase,
                                               const std::vector<std::string> &overrides,
                                               World &world) {
  std::unique_ptr<Session> session(new Session(world));
  session->job = &job;
  session->plan = &job.phasePlan(phase);
  const PlanFile &plan = *session->plan;
  LMC_LET(read, RunSettings::read(*plan, overrides));
  std::optional<PlanFile::Phase> own;
  if (!job.phases().empty()) {
    own = job.phases()[phase];
    // The last phase ends with the run, so training.train_iters sets its number of steps.
    const auto end = static_cast<uint64_t>(read->config.training.trainIters);
    if (phase + 1 == job.phases().size() && end > own->firstStep)
      own->steps = end - own->firstStep;
  }
  LMC_SET(session->settings, TrainSettings::make(*read, own ? &*own : nullptr));
  session->settingTable = std::move(read->table);
  const double stepSeconds = plan::predictedStepSeconds(*plan);
  session->settings.checkpointInterval =
      checkpointInterval(session->settings.config, session->settingTable, stepSeconds);
  if (std::string warning =
          unsavedWarning(session->settings.config, session->settingTable, stepSeconds);
      !warning.empty())
    session->settings.warnings.push_back(std::move(warning));

  const plan::BatchInfo &batch = *plan->batch();
  if (batch.sequence_length() == 0 || batch.micro_batch_size() == 0 ||
      batch.gradient_accumulation_steps() == 0 ||
      batch.micro_batch_size() * batch.gradient_accumulation_steps() * batch.ranks() !=
          batch.global_batch_size())
    return userError("{}: MBS {} x GAS {} x {} rank(s) is not GBS {}", plan.path(),
                     batch.micro_batch_size(), batch.gradient_accumulation_steps(), batch.ranks(),
                     batch.global_batch_size());
  session->progress.fingerprint = plan->fingerprint()->str();
  return session;
}

Result<std::unique_ptr<DataSource>>
Session::openData(const char *key, std::vector<SourceOptions> sources, bool shuffle) const {
  LMC_LET(format, parseDataFormat(settings.config.data.format));
  DataOptions data;
  data.sources = std::move(sources);
  data.format = *format;
  data.allowRepeats = settings.config.data.allowRepeats;
  if ((*plan)->config_directory())
    data.baseDirectory = (*plan)->config_directory()->str();
  data.key = key;
  data.sequenceLength = (*plan)->batch()->sequence_length();
  data.vocabSize = static_cast<uint32_t>((*plan)->model()->vocab_size());
  data.seed = settings.config.training.seed;
  data.shuffle = shuffle;
  if (shuffle) {
    data.shuffleBlock = static_cast<uint64_t>(settings.config.data.shuffleBlock);
    data.bestFit = settings.config.data.packing == "best_fit";
  }
  data.documentMask = readsDocuments(*plan);
  data.documentLossMask = settings.config.training.documentLossMask;
  data.documentKey = hasDocumentMask(*plan)  ? "training.document_mask"
                     : readsDocuments(*plan) ? "training.document_positions"
                                             : "training.document_loss_mask";
  data.endOfDocument = static_cast<int32_t>(settings.config.data.endOfDocument);
  return DataSource::open(data);
}

Result<std::unique_ptr<DataSource>> Session::openTrainData() const {
  return openData(settings.trainKey(), settings.trainData, /*shuffle=*/true);
}

Result<std::unique_ptr<DataSource>>
Session::openValidationData(const ValidationSettings &set) const {
  return openData(set.key.c_str(), {{.name = "", .key = set.key, .paths = set.paths}},
                  /*shuffle=*/false);
}

BatchRows Session::rows() const {
  const plan::BatchInfo &batch = *(*plan)->batch();
  return {batch.global_batch_size(), batch.micro_batch_size(), batch.ranks(),
          static_cast<uint64_t>(world.rank())};
}

Result<std::optional<DamagedCheckpoint>> Session::setState(const std::string &init) {
  const uint64_t position = static_cast<uint64_t>(world.rank()) % (*plan)->shard_ranks();
  bool loaded = checkpoint.has_value();
  // Variables that the checkpoint or `init` will set get no initial values.
  auto filter = [&](const plan::Variable &variable) {
    switch (variable.kind()) {
    case VariableKind::Parameter:
      return !loaded && init.empty();
    case VariableKind::Moment1:
    case VariableKind::Moment2:
    case VariableKind::Moment1Scale:
    case VariableKind::Moment2Scale:
      return !loaded;
    default:
      return true;
    }
  };
  auto initialize = [&]() -> Result<void> {
    LMC_TRY(initializeVariables(*plan, *device, settings.config.training.seed, filter, position));
    if (loaded || init.empty())
      return {};
    DeviceTensors tensors = tensorsOfKind(*plan, *device, world, VariableKind::Parameter);
    return importHuggingFace(init, tensors.tensors, tensors.store);
  };
  LMC_TRY(allSucceed(world.all(), initialize()));
  if (loaded) {
    auto damaged = loadRun(*checkpoint, *plan, *device, world);
    if (!damaged || *damaged)
      return damaged;
  }
  auto copy = [&]() -> Result<void> {
    LMC_TRY(refreshCopies(*plan, *device, position));
    return scalars->upload();
  };
  LMC_TRY(allSucceed(world.all(), copy()));
  // If each rank has only a part of the weights, gathers the weights that ranks need as a whole.
  if (functions->has(names::kRefresh))
    LMC_TRY(functions->run(names::kRefresh));
  return std::optional<DamagedCheckpoint>();
}

Result<std::optional<DamagedCheckpoint>> Session::start(const RunOptions &options,
                                                        const std::string &init,
                                                        const ObserverMaker &observer) {
  initialWeights = init;
  LMC_LET(share, world.size() > 1 ? fairThreads(world) : Result<int>(0));
  LMC_TRY(allSucceed(world.all(), startDevice(options, *share, observer)));
  return setState(init);
}

// A run's MFU uses the peak FLOP/s of the plan's device spec. If the device's own peak differs by
// more than this share, the device is another machine, and the MFU uses its own peak.
static constexpr double kSameMachine = 0.25;

static void chooseSpecPeak(DeviceInfo &device, const plan::Plan &plan) {
  const double spec = plan.peak_flops(), own = device.peakFlops;
  if (spec <= 0)
    return;
  const std::string name = plan.device_spec() ? plan.device_spec()->str() : "";
  if (own > 0 && std::abs(own / spec - 1) > kSameMachine) {
    device.peakSource +=
        fmt::format("; the plan's device spec '{}' is of another machine, with {:.3f}"
                    ": lmc-calibrate measures this one",
                    name, spec / 1e12);
    return;
  }
  device.peakFlops = spec;
  device.peakSource = fmt::format("device spec '{}' of the plan", name);
  if (own > 0)
    device.peakSource += fmt::format("; {:.3f} by the clock at the start", own / 1e12);
}

Result<void> Session::startDevice(const RunOptions &options, int share,
                                  const ObserverMaker &makeObserver) {
  const char *variable = std::getenv("OMP_NUM_THREADS");
  const bool isGiven = variable && *variable;
  const int threads = options.threads > 0 ? options.threads : isGiven ? 0 : share;
  if (threads > 0)
    omp_set_num_threads(threads);
  gemms = std::make_unique<GemmChoices>(options.measureGemms);
  const std::string cache = gemmCachePath();
  gemms->readCache(cache);
  // A run that starts from another run's checkpoint uses that run's choices for matrix products.
  if (checkpoint)
    gemms->readRun(gemmPath(std::filesystem::path(*checkpoint).parent_path().parent_path()));
  if (!options.out.empty())
    gemms->readRun(gemmPath(options.out));
  LMC_SET(device, openDevice(*plan, {.threads = threads,
                                     .world = &world,
                                     .index = options.device,
                                     .localRank = world.rank() % int((*plan)->devices_per_node()),
                                     .gemms = gemms.get(),
                                     .hostCollectives = options.collectives == "host",
                                     .graphs = !options.noGraphs,
                                     .checkEveryCommand = options.checkCommands}));
  LMC_TRY(device->load(*plan));
  uint64_t planned = plannedBytes(**plan), allocated = device->allocatedBytes();
  if (allocated != planned)
    return machineError("{}: the device holds {} bytes where the plan says {}", plan->path(),
                        allocated, planned);
  deviceInfo = device->info((*plan)->compute_dtype());
  // Adds a remark if OMP_NUM_THREADS is not `share`: torchrun sets it to 1 if the user does not.
  if (const int given = omp_get_max_threads();
      isGiven && threads == 0 && share > 0 && given != share && plan::computesOnHost(**plan))
    deviceInfo.remarks.push_back(fmt::format(
        "OMP_NUM_THREADS={} gives rank {} {} thread{}, and its part of the CPUs of its host is {}: "
        "unset the variable, or give --threads",
        variable, world.rank(), given, given == 1 ? "" : "s", share));
  chooseSpecPeak(deviceInfo, **plan);
  if (settings.config.target.peakTflops > 0) {
    deviceInfo.peakFlops = settings.config.target.peakTflops * 1e12;
    deviceInfo.peakSource = "target.peak_tflops";
  }
  if (!options.trace.empty())
    trace = std::make_unique<StepTrace>(*plan, deviceInfo.name, options.trace,
                                        static_cast<uint64_t>(options.traceSteps));
  FunctionObserver *observer = trace.get();
  if (makeObserver)
    LMC_SET(observer, makeObserver(*plan, deviceInfo));
  LMC_SET(functions, Functions::record(*plan, *device, options.profile.empty() ? nullptr : &profile,
                                       observer));
  gemms->writeCache(cache);
  LMC_SET(inputs, Inputs::open(*plan, *device));
  LMC_SET(scalars, Scalars::open(*plan, *device));
  scalars->setStepValue(
      plan::StepValue::ShardRank,
      static_cast<double>(static_cast<uint64_t>(world.rank()) % (*plan)->shard_ranks()));
  return scalars->setSettings(settingTable);
}

Result<std::vector<std::unique_ptr<Evaluator>>> Session::makeEvaluators() {
  std::vector<std::unique_ptr<Evaluator>> evaluators;
  for (const ValidationSettings &set : settings.validations) {
    if (!functions->has(names::kEval))
      return userError("{}: the plan has no function 'eval'", plan->path());
    LMC_LET(data, openValidationData(set));
    evaluators.push_back(std::make_unique<Evaluator>(*plan, *functions, *inputs, *scalars,
                                                     std::move(*data),
                                                     static_cast<uint64_t>(set.iters), world));
  }
  return evaluators;
}

std::vector<std::string> Session::facts() const {
  const plan::Plan &root = **plan;
  const plan::BatchInfo &batch = *root.batch();
  std::vector<std::string> lines;
  lines.push_back(fmt::format("{}: {}, {} parameters, {} for {}", plan->path(),
                              root.model()->architecture()->str(), root.model()->parameters(),
                              plan::EnumNameDType(root.compute_dtype()), root.target()->str()));
  lines.push_back(fmt::format("plan: SHA-256 {}", job->hash()));
  lines.push_back(fmt::format("batch: GBS {} = MBS {} x GAS {} x {} rank(s), {} tokens each",
                              batch.global_batch_size(), batch.micro_batch_size(),
                              batch.gradient_accumulation_steps(), batch.ranks(),
                              batch.sequence_length()));
  lines.push_back(deviceInfo.peakFlops > 0
                      ? fmt::format("device: {}; MFU counts from a peak of {:.3f} TFLOP/s ({})",
                                    deviceInfo.name, deviceInfo.peakFlops / 1e12,
                                    deviceInfo.peakSource)
                      : fmt::format("device: {}; its peak is not known, so there is no MFU (set "
                                    "target.peak_tflops)",
                                    deviceInfo.name));
  const std::string free =
      deviceInfo.freeBytes ? fmt::format("; {} of {} are free", formatBytes(deviceInfo.freeBytes),
                                         formatBytes(deviceInfo.memoryBytes))
                           : "";
  lines.push_back(fmt::format("memory: {} allocated in {} arena(s), {} planned{}",
                              formatBytes(device->allocatedBytes()), root.arenas()->size(),
                              formatBytes(plannedBytes(**plan)), free));
  if (const std::string products = gemms->summary(); !products.empty())
    lines.push_back("gemm: " + products);
  return lines;
}

} // namespace lmc

#include "compiler/emit/Emit.h"

#include "compiler/emit/Commands.h"
#include "compiler/emit/Variables.h"
#include "compiler/kernels/Hero.h"
#include "dialects/interfaces/TensorBytes.h"
#include "dialects/kern/Kern.h"
#include "dialects/plan/Plan.h"
#include "ground/config/Values.h"
#include "ground/plan/PlanFile.h"
#include "ground/plan/PlanTrailer.h"

using namespace mlir;
using namespace lmc;
namespace fb = lmc::plan;

namespace {

// Returns the bytes of the plan file with the contents `plan`.
std::string fileOf(const fb::PlanT &plan) {
  flatbuffers::FlatBufferBuilder builder(1 << 20);
  builder.Finish(fb::CreatePlan(builder, &plan), fb::PlanIdentifier());
  std::string bytes(reinterpret_cast<const char *>(builder.GetBufferPointer()), builder.GetSize());
  appendPlanTrailer(bytes);
  return bytes;
}

// Returns the parameter's name. `name` is the name of its gradient or moment, of kind `kind`.
std::string parameterOf(StringRef name, lm::VariableKind kind) {
  return name.drop_back(lm::stateName("", kind).size()).str();
}

// Returns a plan entry for a tensor of `variable`. Sets the fields that all its tensors share.
std::unique_ptr<fb::VariableT> variableOf(plan_ir::VariableOp variable, std::string name,
                                          uint32_t slice, lm::InitAttr init) {
  auto entry = std::make_unique<fb::VariableT>();
  entry->name = std::move(name);
  entry->kind = fb::VariableKind(variable.getKind());
  entry->slice = slice;
  entry->weight_decay = variable.getWeightDecay();
  if (const std::optional<lm::GroupAttr> group = variable.getGroup())
    entry->group = group->getName().str();
  entry->initializer = initializerOf(init);
  return entry;
}

std::string textOf(kern::KernelOp kernel) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  kernel->print(stream, OpPrintingFlags().useLocalScope().assumeVerified());
  return text;
}

// Returns a kernel of module 0 without its text and its launch shape.
std::unique_ptr<fb::KernelT> kernelOf(kern::KernelOp kernel) {
  auto entry = std::make_unique<fb::KernelT>();
  entry->name = entry->entry = kernel.getSymName().str();
  entry->hero = kern::stringifyHero(kernel.getHero()).str();
  if (ArrayAttr names = kernel.getSourceOpsAttr())
    for (auto name : names.getAsRange<StringAttr>())
      entry->source_ops.push_back(name.str());
  if (llvm::Expected<codegen::KernelShape> shape = codegen::analyze(kernel)) {
    entry->bytes_per_item = shape->bytesPerItem;
    entry->flops_per_item = shape->flopsPerItem;
    entry->read_bytes = shape->readBytes;
    entry->written_bytes = shape->writtenBytes;
    entry->flops = shape->flops;
  } else {
    llvm::consumeError(shape.takeError());
  }
  return entry;
}

class Emitter {
public:
  Emitter(ModuleOp module, const Config &config, const PlanDetails &details)
      : module(module), config(config), details(details),
        planned(details.code ? codegen::TargetCode() : codegen::kernelsWithoutCode(module)),
        code(details.code ? *details.code : planned) {}

  LogicalResult run(std::string &bytes) {
    addHeader();
    if (!details.onlyMeasures)
      addSettings();
    for (auto arena : module.getOps<plan_ir::ArenaOp>()) {
      auto entry = std::make_unique<fb::ArenaT>();
      entry->name = arena.getSymName().str();
      entry->bytes = arena.getBytes();
      entry->alignment = uint32_t(arena.getAlignment());
      entry->lower_bound_bytes = arena.getLowerBound();
      arenas[arena.getSymName()] = uint32_t(plan.arenas.size());
      plan.arenas.push_back(std::move(entry));
    }
    if (failed(addVariables()))
      return failure();
    addKernels();
    for (auto function : module.getOps<plan_ir::FunctionOp>())
      if (failed(addFunction(function)))
        return failure();
    addReports();
    bytes = fileOf(plan);
    return success();
  }

private:
  // Reports errors at `op`.
  FailureOr<uint32_t> addSlice(Operation *op, std::string name, uint32_t arena, int64_t offset,
                               RankedTensorType type, fb::Category category, int function) {
    FailureOr<fb::DType> dtype = dtypeOf(op, type.getElementType());
    if (failed(dtype))
      return failure();
    auto slice = std::make_unique<fb::SliceT>();
    slice->name = std::move(name);
    slice->arena = arena;
    slice->offset = uint64_t(offset);
    slice->bytes = byteSize(type);
    slice->dtype = *dtype;
    slice->shape.assign(type.getShape().begin(), type.getShape().end());
    slice->category = category;
    slice->function = function;
    plan.slices.push_back(std::move(slice));
    return uint32_t(plan.slices.size() - 1);
  }

  void addHeader() {
    plan.schema_version = kSchemaVersion;
    plan.compiler_version = "lmc 0.1.0";
    plan.target = details.target;
    plan.device_spec = details.deviceSpec;
    plan.memory_budget = details.memoryBudget;
    plan.peak_flops = details.peakFlops;
    for (const fb::LinkT &link : details.links)
      plan.links.push_back(std::make_unique<fb::LinkT>(link));
    for (const fb::AxisSpeedT &speed : details.axisSpeeds)
      plan.axis_speeds.push_back(std::make_unique<fb::AxisSpeedT>(speed));
    plan.nodes = uint32_t(config.distributed.nodes);
    plan.devices_per_node = uint32_t(config.distributed.devicesPerNode);
    plan.shard_ranks = uint32_t(config.distributed.shardRanks());
    plan.expert_ranks = uint32_t(config.distributed.expertParallel);
    numbers.hasTwoCollectiveStreams = config.distributed.replicateRanks() > 1 &&
                                      config.distributed.shardRanks() > 1 &&
                                      codegen::findTarget(config.target.device)->runsAxesAtOnce();
    if (!details.onlyMeasures)
      plan.fingerprint =
          modelFingerprint(module, config.model.architecture + " " + config.optimizer.type);
    plan.config_path = config.path;
    plan.config_toml = config.text;
    plan.config_directory = config.directory;
    plan.warnings = config.warnings;
    plan.compute_dtype = config.training.computeDType == DataType::BF16  ? fb::DType::BF16
                         : config.training.computeDType == DataType::F64 ? fb::DType::F64
                                                                         : fb::DType::F32;
    plan.model = std::make_unique<fb::ModelInfoT>();
    plan.model->architecture = config.model.architecture;
    if (std::string reason = notExportable(config.model); !reason.empty())
      plan.model->not_exportable = std::move(reason);
    else
      plan.model->huggingface_config = huggingFaceConfig(config);
    if (const std::optional<ModelCounts> &counts = details.counts) {
      plan.model->parameters = counts->parameters;
      plan.model->flops_per_token_causal = counts->flopsPerTokenCausal;
      plan.model->flops_per_token_full = counts->flopsPerTokenFull;
      plan.model->traffic_floor = std::make_unique<fb::TrafficFloorT>();
      plan.model->traffic_floor->layers = counts->layerTrafficFloor;
      plan.model->traffic_floor->head = counts->headTrafficFloor;
    }
    plan.model->vocab_size = uint64_t(config.model.vocabSize);
    plan.batch = std::make_unique<fb::BatchInfoT>();
    plan.batch->sequence_length = uint64_t(config.training.sequenceLength);
    plan.batch->micro_batch_size = uint64_t(config.training.microBatchSize);
    plan.batch->gradient_accumulation_steps = uint64_t(config.training.gradientAccumulationSteps);
    plan.batch->global_batch_size = uint64_t(config.training.batchSize);
    plan.batch->ranks = uint64_t(config.distributed.nodes * config.distributed.devicesPerNode);
  }

  void addSettings() {
    for (const Setting &setting : config.settings) {
      auto entry = std::make_unique<fb::SettingT>();
      entry->key = setting.key;
      entry->type = setting.type;
      entry->value = setting.value;
      entry->values = setting.values;
      entry->minimum = setting.minimum;
      entry->maximum = setting.maximum;
      entry->choices = setting.choices;
      entry->doc = setting.doc;
      entry->run_time = setting.runTime;
      entry->identity = setting.identity;
      entry->origin = static_cast<fb::SettingOrigin>(setting.origin);
      entry->derived_from = setting.derivedFrom;
      entry->derived_divisor = setting.derivedDivisor;
      plan.settings.push_back(std::move(entry));
    }
  }

  // Returns the index of the kernel that writes a variable's initial values, or -1 if none is
  // needed. Adds the kernel's traffic to initializerBytes. A copy reads elements of type `source`.
  FailureOr<int32_t> initializerKernel(lm::InitAttr init, RankedTensorType type, Type source) {
    FailureOr<std::optional<codegen::TargetCode::Initializer>> launch =
        code.initializer(init, type, source);
    if (failed(launch))
      return failure();
    if (!*launch)
      return -1;
    codegen::GlobalBytes &all = initializerBytes[(*launch)->kernel];
    all.read += (*launch)->bytes.read;
    all.written += (*launch)->bytes.written;
    return int32_t((*launch)->kernel);
  }

  // `variable` is this rank's piece of some tensors. Adds each tensor, with the slice of the piece.
  void addSharded(plan_ir::VariableOp variable) {
    for (auto tensor : variable.getShardedAttr().getAsRange<lm::ShardedAttr>()) {
      auto entry = variableOf(variable, tensor.getName().str(),
                              variableSlices.lookup(variable.getSymName()), tensor.getInit());
      if (variable.getKind() != lm::VariableKind::Parameter)
        entry->parameter = parameterOf(entry->name, variable.getKind());
      entry->shard = std::make_unique<fb::ShardT>();
      entry->shard->offset = uint64_t(tensor.getOffset());
      entry->shard->pitch = uint64_t(tensor.getPitch());
      entry->shard->groups = uint32_t(variable.getGroups());
      entry->shard->shape.assign(tensor.getType().getShape().begin(),
                                 tensor.getType().getShape().end());
      plan.variables.push_back(std::move(entry));
    }
  }

  LogicalResult addVariables() {
    SymbolTable symbols(module);
    llvm::StringMap<Type> elementTypes; // by NamedRows::name, which initializers refer to
    if (!details.onlyMeasures)
      for (auto variable : module.getOps<plan_ir::VariableOp>())
        for (const NamedRows &rows : namedRows(variable, symbols))
          elementTypes[rows.name] = rows.type.getElementType();
    for (auto variable : module.getOps<plan_ir::VariableOp>()) {
      fb::Category category = categoryOf(variable.getKind());
      uint32_t arena = arenas.lookup(variable.getArena());
      auto type = cast<RankedTensorType>(variable.getType());
      SmallVector<NamedRows> named;
      if (!details.onlyMeasures) // a plan that is only measured needs just the variable's slice
        named = namedRows(variable, symbols);
      bool hasOwnName = !variable.getAnonymous() && !variable.getShards() && named.size() == 1;
      if (!hasOwnName) { // commands use the whole variable, but its rows have their own names
        FailureOr<uint32_t> slice = addSlice(variable, variable.getSymName().str(), arena,
                                             int64_t(variable.getOffset()), type, category, -1);
        if (failed(slice))
          return failure();
        variableSlices[variable.getSymName()] = *slice;
      }
      if (details.onlyMeasures || variable.getAnonymous())
        continue;
      if (variable.getShards()) {
        addSharded(variable);
        continue;
      }
      int64_t rowBytes = type.getRank() ? int64_t(byteSize(type)) / type.getDimSize(0) : 0;
      for (const NamedRows &rows : named) {
        RankedTensorType whole = rows.type; // the rows' type with the columns that are padding
        if (rows.pitch)
          whole = whole.clone({whole.getDimSize(0), rows.pitch});
        FailureOr<uint32_t> slice =
            addSlice(variable, rows.name, arena,
                     int64_t(variable.getOffset()) + rows.first * rowBytes, whole, category, -1);
        if (failed(slice))
          return failure();
        if (hasOwnName)
          variableSlices[variable.getSymName()] = *slice;
        auto entry = variableOf(variable, rows.name, *slice, rows.init);
        entry->parameter = rows.parameter;
        if (rows.pitch) {
          entry->shard = std::make_unique<fb::ShardT>();
          entry->shard->shape.assign(rows.type.getShape().begin(), rows.type.getShape().end());
          entry->shard->pitch = uint64_t(rows.pitch);
        }
        entry->of_experts = variable.getGroups() > 1;
        entry->setting = variable.getSetting().value_or("").str();
        entry->step_value = stepValueOf(variable.getStepValue());
        FailureOr<int32_t> kernel = initializerKernel(
            rows.init, rows.type, elementTypes.lookup(entry->initializer->source));
        if (failed(kernel))
          return variable.emitOpError("has no kernel for its initial values");
        entry->initializer->kernel = *kernel;
        plan.variables.push_back(std::move(entry));
      }
    }
    return success();
  }

  void addKernels() {
    for (const codegen::TargetCode::Module &module : code.modules) {
      auto entry = std::make_unique<fb::ModuleT>();
      entry->target = plan.target;
      entry->features = module.features;
      entry->image = module.image;
      plan.modules.push_back(std::move(entry));
    }
    for (const codegen::TargetCode::Kernel &kernel : code.kernels) {
      std::unique_ptr<fb::KernelT> entry;
      if (kern::KernelOp op = kernel.op) {
        numbers.kernels[op.getSymName()] = uint32_t(plan.kernels.size());
        entry = kernelOf(op);
        if (!details.onlyMeasures)
          (kernel.source.empty() ? entry->source : entry->region) = textOf(op);
      } else {
        entry = std::make_unique<fb::KernelT>();
        entry->name = kernel.entry;
        auto found = initializerBytes.find(plan.kernels.size());
        codegen::GlobalBytes bytes = found == initializerBytes.end() ? kernel.bytes : found->second;
        entry->read_bytes = bytes.read;
        entry->written_bytes = bytes.written;
        if (!kernel.sourceOp.empty())
          entry->source_ops = {kernel.sourceOp};
        entry->hero = kernel.hero;
      }
      entry->module_ = uint32_t(kernel.module);
      if (!kernel.entry.empty())
        entry->entry = kernel.entry;
      if (!kernel.source.empty())
        entry->source = kernel.source;
      if (kernel.grid) {
        entry->grid.assign(kernel.grid->blocks.begin(), kernel.grid->blocks.end());
        entry->threads = kernel.grid->threads;
        entry->shared_bytes = kernel.grid->sharedBytes;
        entry->registers = kernel.grid->registers;
        entry->spill_bytes = kernel.grid->spillBytes;
        entry->stack_bytes = kernel.grid->stackBytes;
        const codegen::Target *target = codegen::findTarget(plan.target);
        if (auto filled = target ? target->occupancy(plan.target, *kernel.grid) : std::nullopt)
          entry->blocks_per_sm = filled->blocks;
      }
      plan.kernels.push_back(std::move(entry));
    }
  }

  LogicalResult addFunction(plan_ir::FunctionOp function) {
    auto entry = std::make_unique<fb::FunctionT>();
    entry->name = function.getSymName().str();
    entry->peak_workspace_bytes = function.getPeakBytes();
    int index = int(plan.functions.size());
    numbers.slices.clear();
    // Views of a variable with the same offset, rows, pitch and type share one slice.
    std::map<std::tuple<uint32_t, int64_t, int64_t, int64_t, const void *>, uint32_t> known;
    for (Operation &op : function.getBody().front()) {
      if (auto slice = dyn_cast<plan_ir::SliceOp>(op)) {
        auto type = cast<plan_ir::SliceType>(slice.getType()).getContent();
        uint32_t arena = arenas.lookup(slice.getArena());
        FailureOr<uint32_t> made =
            addSlice(slice, slice.getSource().str(), arena, int64_t(slice.getOffset()), type,
                     categoryOf(slice.getCategory()), index);
        if (failed(made))
          return failure();
        numbers.slices[slice] = *made;
        plan.slices.back()->first_command = int32_t(slice.getFirst());
        plan.slices.back()->last_command = int32_t(slice.getLast());
        plan.slices.back()->rows = slice.getRows();
        plan.slices.back()->pitch = slice.getPitch();
        continue;
      }
      if (auto ref = dyn_cast<plan_ir::VariableRefOp>(op)) {
        auto type = cast<plan_ir::SliceType>(ref.getType()).getContent();
        uint32_t whole = variableSlices.lookup(ref.getVariable());
        const fb::SliceT &base = *plan.slices[whole];
        auto [it, inserted] =
            known.try_emplace({whole, int64_t(ref.getOffset()), int64_t(ref.getRows()),
                               int64_t(ref.getPitch()), type.getAsOpaquePointer()},
                              0);
        if (inserted) {
          FailureOr<uint32_t> made =
              addSlice(ref, ref.getVariable().str(), base.arena,
                       int64_t(base.offset + ref.getOffset()), type, base.category, -1);
          if (failed(made))
            return failure();
          it->second = *made;
          plan.slices.back()->rows = ref.getRows();
          plan.slices.back()->pitch = ref.getPitch();
        }
        numbers.slices[ref] = it->second;
        continue;
      }
      auto made = emitCommand(op, numbers, code);
      if (failed(made))
        return failure();
      if ((*made)->stream != 0)
        numbers.started[op.getOperands().back()] = uint32_t(entry->commands.size());
      else if (auto wait = dyn_cast<plan_ir::WaitOp>(op))
        numbers.started.erase(wait.getD());
      if (!details.seconds.empty())
        (*made)->predicted_seconds = details.seconds[size_t(index)][entry->commands.size()];
      entry->commands.push_back(std::move(*made));
    }
    plan.functions.push_back(std::move(entry));
    return success();
  }

  void addReports() {
    nlohmann::json reports = details.reports;
    if (auto mode = module->getAttrOfType<StringAttr>("lm.recompute"))
      reports["recompute"].emplace("mode", mode.getValue().str());
    for (const auto &[name, content] : reports.items()) {
      auto report = std::make_unique<fb::ReportT>();
      report->name = name;
      report->json = content.dump();
      plan.reports.push_back(std::move(report));
    }
  }

  ModuleOp module;
  const Config &config;
  const PlanDetails &details;
  const codegen::TargetCode planned; // kernels without code, used if `details` has no code
  const codegen::TargetCode &code;
  fb::PlanT plan;
  llvm::StringMap<uint32_t> arenas;
  llvm::StringMap<uint32_t> variableSlices;
  PlanNumbers numbers;
  // For each kernel that writes initial values: its memory traffic, summed over all variables.
  std::map<size_t, codegen::GlobalBytes> initializerBytes;
};

} // namespace

LogicalResult lmc::emitPlan(ModuleOp module, const Config &config, const PlanDetails &details,
                            std::string &bytes) {
  return Emitter(module, config, details).run(bytes);
}

std::string lmc::joinPhases(const std::deque<PhaseConfig> &phases,
                            const std::vector<std::string> &plans) {
  fb::PlanT first;
  fb::GetPlan(plans.front().data())->UnPackTo(&first);
  for (size_t i = 0; i < phases.size(); ++i) {
    auto phase = std::make_unique<fb::TrainingPhaseT>();
    phase->name = phases[i].name;
    phase->steps = static_cast<uint64_t>(phases[i].steps);
    if (i > 0)
      phase->plan.assign(plans[i].begin(), plans[i].end());
    first.training_phases.push_back(std::move(phase));
  }
  return fileOf(first);
}

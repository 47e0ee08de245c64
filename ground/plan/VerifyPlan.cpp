#include "ground/plan/MomentBlock.h"
#include "ground/plan/Names.h"
#include "ground/plan/Operands.h"
#include "ground/plan/PlanFile.h"
#include "ground/plan/SliceGeometry.h"
#include "ground/plan/TargetRules.h"
#include "ground/support/Number.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace lmc {
namespace {

using plan::DType;
using plan::sumType;

// A limit far above every dimension, size and count of a real plan. Two numbers below the limit can
// be added without overflow, and each fits into int64_t.
constexpr uint64_t kLimit = uint64_t(1) << 60;

constexpr uint64_t kMaxInt32 = std::numeric_limits<int32_t>::max();
constexpr size_t kStreams = 3; // 0: ordinary commands; 1 and 2: async collectives

template <typename... Args> Error fail(fmt::format_string<Args...> format, Args &&...args) {
  return userError(format, std::forward<Args>(args)...);
}

// Returns the product of the factors, but at most kLimit.
template <typename Factors = std::initializer_list<uint64_t>>
uint64_t product(const Factors &factors) {
  uint64_t result = 1;
  for (uint64_t factor : factors) {
    if (factor == 0)
      return 0;
    result = result > kLimit / factor ? kLimit : result * factor;
  }
  return result;
}

bool isFloat(DType dtype) {
  return dtype == DType::F32 || dtype == DType::BF16 || dtype == DType::F64;
}

// Returns true for floats of 8 bits.
bool isEightBits(DType dtype) { return dtype == DType::F8E4M3 || dtype == DType::F8E5M2; }

template <typename E> bool known(E value, E last) {
  return std::underlying_type_t<E>(value) <= std::underlying_type_t<E>(last);
}

// Returns true if the 8-byte elements of `vector` are not aligned to 8 bytes. FlatBuffers' verifier
// checks only the alignment of the vector's length.
template <typename Vector> bool misaligned(const Vector *vector) {
  return vector && reinterpret_cast<uintptr_t>(vector->Data()) % 8 != 0;
}

class Verifier {
public:
  explicit Verifier(const plan::Plan &plan) : plan(plan) {}

  Result<void> run() {
    LMC_TRY(header());
    LMC_TRY(arenas());
    LMC_TRY(slices());
    LMC_TRY(variables());
    LMC_TRY(code());
    LMC_TRY(functions());
    return settings();
  }

private:
  Result<void> header() {
    if (plan.target()->size() == 0)
      return fail("it names no target");
    if (!isFloat(plan.compute_dtype()))
      return fail("its compute dtype is not a floating-point type");
    if (plan.model()->architecture()->size() == 0)
      return fail("it names no model architecture");
    const plan::BatchInfo &batch = *plan.batch();
    const uint64_t sequences =
        product({batch.micro_batch_size(), batch.gradient_accumulation_steps(), batch.ranks()});
    if (batch.sequence_length() == 0 || batch.sequence_length() >= kLimit || sequences == 0 ||
        sequences >= kLimit || sequences != batch.global_batch_size())
      return fail("its batch of {} sequences is not {} x {} x {}", batch.global_batch_size(),
                  batch.micro_batch_size(), batch.gradient_accumulation_steps(), batch.ranks());
    if (plan.nodes() == 0 || plan.devices_per_node() == 0)
      return fail("it is for no device");
    const uint64_t ranks = product({plan.nodes(), plan.devices_per_node()});
    if (ranks != batch.ranks())
      return fail("it is for {} devices, and its batch is for {}", ranks, batch.ranks());
    if (plan.shard_ranks() == 0 || ranks % plan.shard_ranks() != 0)
      return fail("its {} ranks are in groups of {}", ranks, plan.shard_ranks());
    if (plan.expert_ranks() == 0 || plan.shard_ranks() % plan.expert_ranks() != 0)
      return fail("its {} ranks that divide state divide experts among {}", plan.shard_ranks(),
                  plan.expert_ranks());
    return links();
  }

  Result<void> links() {
    auto isTime = [](double x) { return x >= 0 && std::isfinite(x); };
    auto isRate = [](double x) { return x > 0 && std::isfinite(x); };
    int last = -1;
    for (uint32_t i = 0; plan.links() && i < plan.links()->size(); ++i) {
      const plan::Link &link = *plan.links()->Get(i);
      if (!known(link.kind(), plan::LinkKind::MAX) || int(link.kind()) <= last)
        return fail("link {} is of an unknown kind, or of that of one before", i);
      last = int(link.kind());
      if ((link.kind() == plan::LinkKind::Device ? plan.devices_per_node() : plan.nodes()) < 2)
        return fail("link {} joins no two ranks", i);
      if (!isTime(link.base()) || !isTime(link.latency()) || !isRate(link.bandwidth()))
        return fail("link {} has an impossible speed", i);
    }
    std::unordered_set<int> axes;
    for (uint32_t i = 0; plan.axis_speeds() && i < plan.axis_speeds()->size(); ++i) {
      const plan::AxisSpeed &speed = *plan.axis_speeds()->Get(i);
      if (!known(speed.axis(), plan::Axis::MAX) || !axes.insert(int(speed.axis())).second)
        return fail("axis speed {} is of an unknown axis, or of that of one before", i);
      if (!isTime(speed.latency()) || !isRate(speed.bandwidth()))
        return fail("axis speed {} is impossible", i);
    }
    return {};
  }

  Result<void> arenas() {
    for (const auto *arena : *plan.arenas()) {
      // The maximum alignment is a page of memory: every device allocation is aligned to a page.
      constexpr uint32_t kPage = 4096;
      const uint32_t alignment = arena->alignment();
      if (alignment == 0 || (alignment & (alignment - 1)) != 0 || alignment > kPage)
        return fail("arena '{}' has alignment {}", arena->name()->str(), alignment);
      if (arena->bytes() >= kLimit || arena->lower_bound_bytes() > arena->bytes())
        return fail("arena '{}' has an impossible size", arena->name()->str());
    }
    return {};
  }

  Result<void> slices() {
    for (uint32_t i = 0; i < plan.slices()->size(); ++i) {
      const plan::Slice &slice = *plan.slices()->Get(i);
      if (slice.arena() >= plan.arenas()->size())
        return fail("slice {} is in arena {}, which does not exist", i, slice.arena());
      if (!known(slice.dtype(), DType::MAX) || !known(slice.category(), plan::Category::MAX))
        return fail("slice {} has an unknown dtype or category", i);
      if (misaligned(slice.shape()))
        return fail("the shape of slice {} is not aligned to 8 bytes", i);
      const uint64_t elements = slice.shape() ? product(*slice.shape()) : 1;
      const uint64_t width = byteWidth(slice.dtype());
      if (elements >= kLimit || slice.bytes() != elements * width)
        return fail("slice {} has {} bytes, which do not match its shape", i, slice.bytes());
      const uint64_t room = plan.arenas()->Get(slice.arena())->bytes();
      if (slice.pitch() != 0 &&
          (slice.rows() == 0 || slice.bytes() % slice.rows() != 0 ||
           slice.pitch() < slice.bytes() / slice.rows() || slice.pitch() % width != 0 ||
           !leadingProduct(slice) || product({slice.rows(), slice.pitch()}) >= kLimit))
        return fail("slice {} has {} rows {} bytes apart, which do not match its shape", i,
                    slice.rows(), slice.pitch());
      if (slice.offset() > room || extentOf(slice) > room - slice.offset())
        return fail("slice {} reaches beyond the end of its arena", i);
      if (slice.offset() % width != 0)
        return fail("slice {} is not aligned to its elements", i);
      if (slice.function() < 0)
        continue;
      if (uint32_t(slice.function()) >= plan.functions()->size())
        return fail("slice {} belongs to function {}, which does not exist", i, slice.function());
      const int64_t commands =
          plan.functions()->Get(uint32_t(slice.function()))->commands()->size();
      if (slice.first_command() < -1 || slice.last_command() < slice.first_command() ||
          slice.last_command() >= commands)
        return fail("slice {} lives from command {} to {} of {}", i, slice.first_command(),
                    slice.last_command(), commands);
    }
    return {};
  }

  // Returns true if the slice's number of rows is a product of its first dimensions. For the shape
  // [2, 3, 4], these products are 1, 2, 6 and 24.
  static bool leadingProduct(const plan::Slice &slice) {
    uint64_t rows = 1;
    if (slice.shape())
      for (uint64_t extent : *slice.shape()) {
        if (rows == slice.rows())
          return true;
        rows = product({rows, extent});
      }
    return rows == slice.rows();
  }

  uint64_t elements(const plan::Slice &slice) const {
    return slice.bytes() / byteWidth(slice.dtype());
  }

  static bool isScale(plan::VariableKind kind) {
    return kind == plan::VariableKind::Moment1Scale || kind == plan::VariableKind::Moment2Scale;
  }

  Result<void> variables() {
    std::unordered_map<std::string_view, const plan::Variable *> byName;
    for (const auto *variable : *plan.variables()) {
      const std::string name = variable->name()->str();
      if (name.empty())
        return fail("a variable has no name");
      if (!byName.emplace(variable->name()->string_view(), variable).second)
        return fail("two variables are named '{}'", name);
      if (!known(variable->kind(), plan::VariableKind::MAX))
        return fail("variable '{}' is of an unknown kind", name);
      if (variable->slice() >= plan.slices()->size())
        return fail("variable '{}' has no slice", name);
      const plan::Slice &slice = *plan.slices()->Get(variable->slice());
      if (slice.arena() != 0)
        return fail("variable '{}' is not in the arena of the state", name);
      if (slice.pitch() != 0)
        return fail("variable '{}' is not dense", name);
      if (variable->kind() == plan::VariableKind::Scalar && elements(slice) != 1)
        return fail("scalar '{}' has {} elements", name, elements(slice));
      LMC_TRY(hostValue(*variable));
      LMC_TRY(shard(*variable, slice));
    }
    for (const auto *variable : *plan.variables()) {
      LMC_TRY(initializer(*variable, byName));
      using Kind = plan::VariableKind;
      const Kind kind = variable->kind();
      const bool isOfRank = kind == Kind::ComputeCopy || kind == Kind::Gradient;
      if (!isOfRank && kind != Kind::Moment1 && kind != Kind::Moment2 && !isScale(kind))
        continue;
      // With several ranks, a compute copy or gradient that is not divided may lack `parameter`.
      if (isOfRank && !variable->parameter() && plan.shard_ranks() > 1)
        continue;
      auto of =
          variable->parameter() ? byName.find(variable->parameter()->string_view()) : byName.end();
      if (of == byName.end() || of->second->kind() != Kind::Parameter)
        return fail("variable '{}' belongs to no parameter", variable->name()->str());
      const uint64_t share = isScale(kind) ? uint64_t(kMomentBlock) : 1;
      if (elements(slice(of->second->slice())) !=
          product({share, elements(slice(variable->slice()))}))
        return fail("variable '{}' and its parameter differ in size", variable->name()->str());
    }
    return {};
  }

  // Checks that a variable's tensor lies inside the vector that the ranks divide (plan.fbs, Shard).
  Result<void> shard(const plan::Variable &variable, const plan::Slice &piece) {
    if (!variable.shard())
      return {};
    if (const uint32_t groups = variable.shard()->groups();
        groups != 1 && groups != plan.expert_ranks())
      return fail("variable '{}' is divided among {} groups of experts, and the plan has {}",
                  variable.name()->str(), groups, plan.expert_ranks());
    if (misaligned(variable.shard()->shape()))
      return fail("the shape of variable '{}' is not aligned to 8 bytes", variable.name()->str());
    uint64_t count = product(*variable.shard()->shape());
    if (const uint64_t pitch = variable.shard()->pitch()) {
      const auto &shape = *variable.shard()->shape();
      if (shape.size() != 2 || shape.Get(0) == 0 || shape.Get(1) == 0 || pitch < shape.Get(1))
        return fail("variable '{}' has rows {} elements apart, which do not match its shape",
                    variable.name()->str(), pitch);
      count = product({shape.Get(0) - 1, pitch}) + std::min(shape.Get(1), kLimit);
    }
    const uint64_t whole = product({elements(piece), plan.shard_ranks()});
    const uint64_t offset = variable.shard()->offset();
    if (offset > whole || count > whole - offset)
      return fail("variable '{}' of {} elements does not lie in its vector of {}",
                  variable.name()->str(), count, whole);
    return {};
  }

  // Returns true if the plan has a Float setting `key`.
  bool isNumber(std::string_view key) const {
    for (const auto *setting : *plan.settings())
      if (setting->key()->string_view() == key && setting->type() == plan::SettingType::Float)
        return true;
    return false;
  }

  // Checks that the plan has the settings of a variable's parameter group. Only parameters and the
  // learning rates of groups may have a group; the latter must.
  Result<void> group(const plan::Variable &variable) {
    const std::string name = variable.name()->str();
    const bool isRate = variable.step_value() == plan::StepValue::GroupLearningRate ||
                        variable.step_value() == plan::StepValue::GroupMuonLearningRate;
    if (!variable.group() && isRate)
      return fail("scalar '{}' is the learning rate of a group, and has none", name);
    if (!variable.group())
      return {};
    if (!isRate && variable.kind() != plan::VariableKind::Parameter)
      return fail("variable '{}' has a group, and is neither a parameter nor a learning rate",
                  name);
    for (const char *key : {"lr_mult", "weight_decay"})
      if (const std::string path = names::groupSetting(variable.group()->string_view(), key);
          !isNumber(path))
        return fail("variable '{}' is of a group whose setting '{}' is no number of the plan", name,
                    path);
    return {};
  }

  // Checks what the host writes into a variable: see Variable.setting in plan.fbs.
  Result<void> hostValue(const plan::Variable &variable) {
    const std::string name = variable.name()->str();
    if (!known(variable.step_value(), plan::StepValue::MAX))
      return fail("variable '{}' has an unknown value of the step", name);
    const bool isOfStep = variable.step_value() != plan::StepValue::None;
    LMC_TRY(group(variable));
    if (!variable.setting() && !isOfStep)
      return {};
    if (variable.kind() != plan::VariableKind::Scalar)
      return fail("variable '{}' is no scalar, and the host sets it", name);
    if (!variable.setting())
      return {};
    if (isOfStep)
      return fail("scalar '{}' is of a setting and of the step", name);
    if (isNumber(variable.setting()->string_view()))
      return {};
    return fail("scalar '{}' is of setting '{}', which is no number of the plan", name,
                variable.setting()->str());
  }

  Result<void>
  initializer(const plan::Variable &variable,
              const std::unordered_map<std::string_view, const plan::Variable *> &byName) {
    const plan::Initializer *init = variable.initializer();
    if (!init)
      return {};
    const std::string name = variable.name()->str();
    const plan::Slice &slice = *plan.slices()->Get(variable.slice());
    using Kind = plan::InitializerKind;
    if (!known(init->kind(), Kind::MAX))
      return fail("variable '{}' has an unknown initializer", name);
    if (misaligned(init->values()))
      return fail("the values of variable '{}' are not aligned to 8 bytes", name);
    if (init->kernel() < -1 || init->kernel() >= int64_t(plan.kernels()->size()))
      return fail("variable '{}' is initialised by kernel {}, which does not exist", name,
                  init->kernel());
    if (!isFloat(slice.dtype()) && init->kind() != Kind::None && init->kind() != Kind::Zeros)
      return fail("variable '{}' is of {} and has an initializer for reals", name,
                  plan::EnumNameDType(slice.dtype()));
    switch (init->kind()) {
    case Kind::Normal:
      if (!std::isfinite(init->stddev()) || init->stddev() < 0)
        return fail("variable '{}' has standard deviation {}", name, init->stddev());
      break;
    case Kind::RopeCos:
    case Kind::RopeSin:
      if (!slice.shape() || slice.shape()->size() != 2 || !init->values() ||
          init->values()->size() != slice.shape()->Get(1))
        return fail("the frequencies of table '{}' do not match its shape", name);
      break;
    case Kind::CopyOf: {
      auto source = init->source() ? byName.find(init->source()->string_view()) : byName.end();
      if (source == byName.end())
        return fail("variable '{}' is a copy of nothing", name);
      const plan::Slice &from = *plan.slices()->Get(source->second->slice());
      if (!isFloat(from.dtype()) || elements(from) != elements(slice))
        return fail("variable '{}' is a copy of '{}', which differs in size", name,
                    init->source()->str());
      // A copy of a copy would depend on the order in which variables are initialised.
      if (source->second->initializer() && source->second->initializer()->kind() == Kind::CopyOf)
        return fail("variable '{}' is a copy of a copy", name);
      break;
    }
    default:
      break;
    }
    return {};
  }

  Result<void> code() {
    for (const auto *module : *plan.modules()) {
      if (module->target()->size() == 0)
        return fail("a module has no target");
      if (rules.modulesMatch && module->target()->string_view() != plan.target()->string_view())
        return fail("a module is for '{}' in a plan for '{}'", module->target()->str(),
                    plan.target()->str());
    }
    for (const auto *kernel : *plan.kernels()) {
      if (kernel->module_() >= plan.modules()->size())
        return fail("kernel '{}' is in module {}, which does not exist", kernel->name()->str(),
                    kernel->module_());
      if (kernel->entry()->size() == 0)
        return fail("kernel '{}' has no entry", kernel->name()->str());
      if (auto sound = launchShape(*kernel); !sound)
        return fail("kernel '{}' {}", kernel->name()->str(), sound.error().message);
    }
    return {};
  }

  // Checks that a kernel with code has a grid if the target requires one, that no kernel has a grid
  // otherwise, and that a grid is within the limits.
  Result<void> launchShape(const plan::Kernel &kernel) {
    const plan::GridLimits *limits = rules.grid;
    if (!kernel.grid()) {
      if (limits && plan.modules()->Get(kernel.module_())->image()->size() > 0)
        return fail("has code and no grid");
      return {};
    }
    if (!limits)
      return fail("has a grid, in a plan for '{}'", plan.target()->str());
    if (kernel.grid()->size() != limits->blocks.size())
      return fail("has a grid of {} dimensions", kernel.grid()->size());
    for (uint32_t i = 0; i < limits->blocks.size(); ++i)
      if (kernel.grid()->Get(i) == 0 || kernel.grid()->Get(i) > limits->blocks[i])
        return fail("has a grid of {} blocks in dimension {}", kernel.grid()->Get(i), i);
    if (kernel.threads() == 0 || kernel.threads() > limits->threads ||
        kernel.threads() % limits->threadMultiple != 0)
      return fail("has blocks of {} threads", kernel.threads());
    if (kernel.shared_bytes() > limits->sharedBytes)
      return fail("takes {} bytes of shared memory", kernel.shared_bytes());
    if (kernel.registers() > limits->registers || kernel.stack_bytes() > limits->stackBytes)
      return fail("takes {} registers and {} bytes of stack", kernel.registers(),
                  kernel.stack_bytes());
    return {};
  }

  Result<void> functions() {
    std::unordered_set<std::string_view> names;
    for (const auto *function : *plan.functions()) {
      const std::string name = function->name()->str();
      if (name.empty() || !names.insert(function->name()->string_view()).second)
        return fail("a function's name '{}' is empty or taken", name);
      if (plan.arenas()->size() > 1 &&
          function->peak_workspace_bytes() > plan.arenas()->Get(1)->bytes())
        return fail("function '{}' needs more workspace than there is", name);
      const uint32_t count = function->commands()->size();
      for (uint32_t i = 0; i < count; ++i)
        if (auto sound = command(*function->commands()->Get(i)); !sound)
          return fail("function '{}', command {}: {}", name, i, sound.error().message);
      LMC_TRY(streams(*function));
    }
    return {};
  }

  // Checks commands that run while a collective may run. They must not access bytes that the
  // collective writes, or write bytes that it reads.
  Result<void> streams(const plan::Function &function) {
    // A vector clock with one element per stream: if element s is n, all collectives of stream s
    // whose command index is below n have ended. endedWith[c] is the clock when collective c ends.
    using Ended = std::array<uint32_t, kStreams>;
    std::map<uint32_t, Ended> endedWith;
    Ended latest{};                // each stream's last collective: its number + 1, or 0 if none
    std::vector<uint32_t> started; // collectives that may still run
    for (uint32_t i = 0; i < function.commands()->size(); ++i) {
      const plan::Command &command = *function.commands()->Get(i);
      const plan::Collective *collective = command.body_as_Collective();
      if (command.stream() >= (collective ? kStreams : 1))
        return fail("{}: it is on stream {}", plan::placeOf(function, i), command.stream());
      const auto streamOf = [&](uint32_t c) { return function.commands()->Get(c)->stream(); };
      if (const plan::Wait *wait = command.body_as_Wait()) {
        const auto waited = endedWith.find(wait->command());
        if (waited == endedWith.end())
          return fail("{}: it waits for command {}, which is no collective before it on a stream of "
                      "its own",
                      plan::placeOf(function, i), wait->command());
        std::erase_if(started, [&](uint32_t c) { return c < waited->second[streamOf(c)]; });
      }
      Ended before{}; // what has ended when this collective starts
      if (collective) {
        if (command.stream() == 0)
          before.fill(i);
        else if (const uint32_t last = latest[command.stream()])
          before = endedWith.at(last - 1);
        if (collective->after() >= 0) {
          const auto source = endedWith.find(uint32_t(collective->after()));
          if (source == endedWith.end() || command.stream() == 0)
            return fail("{}: it comes after command {}, which is no collective that it may wait for",
                        plan::placeOf(function, i), collective->after());
          for (size_t stream = 0; stream < kStreams; ++stream)
            before[stream] = std::max(before[stream], source->second[stream]);
        }
      }
      for (uint32_t other : started)
        if (other >= before[streamOf(other)] && disturbs(command, *function.commands()->Get(other)))
          return fail("{}: it uses bytes that command {} uses until its wait",
                      plan::placeOf(function, i), other);
      if (command.stream() != 0) {
        before[command.stream()] = latest[command.stream()] = i + 1;
        endedWith.emplace(i, before);
        started.push_back(i);
      }
    }
    if (!started.empty())
      return fail("{}: it is never waited for", plan::placeOf(function, started.front()));
    return {};
  }

  // Returns true if one of the two commands writes bytes that the other one accesses.
  bool disturbs(const plan::Command &command, const plan::Command &collective) const {
    for (const plan::Operand &used : plan::operandsOf(collective))
      for (const plan::Operand &operand : plan::operandsOf(command))
        if ((used.isResult() || operand.role != plan::Role::Read) &&
            overlap(slice(used.slice), slice(operand.slice)))
          return true;
    return false;
  }

  Result<void> command(const plan::Command &command) {
    const auto &types = plan::EnumValuesCommandBody();
    if (command.body_type() == plan::CommandBody::NONE ||
        std::find(std::begin(types), std::end(types), command.body_type()) == std::end(types))
      return fail("it is of an unknown type");
    LMC_TRY(plan::visitBody(command, [&](const auto &body) { return shapes(body); }));
    LMC_TRY(workspace(command));
    const plan::Operands operands = plan::operandsOf(command);
    for (const plan::Operand &operand : operands) {
      LMC_TRY(exists(operand.name, operand.slice));
      if (!operand.mayBeSpaced && slice(operand.slice).pitch() != 0)
        return fail("operand {} is not dense", operand.name);
    }
    // Only a Launch's results may overlap its other operands: its kernel reads before it writes.
    if (!command.body_as_Launch())
      LMC_TRY(apart(operands));
    return launches(command, operands);
  }

  Result<void> workspace(const plan::Command &command) {
    const auto need = rules.scratchOf ? rules.scratchOf(plan, command) : std::nullopt;
    if (need) {
      const auto &[a, b, c, d] = need->extents;
      return operand("workspace", command.workspace(), need->dtype, product({a, b, c, d}));
    }
    if (plan::productOf(command) && command.workspace() != -1)
      return gemmWorkspace(command.workspace());
    return {};
  }

  Result<void> gemmWorkspace(int64_t index) {
    const uint32_t alignment = rules.gemmWorkspaceAlignment;
    if (alignment == 0)
      return fail("a matrix product has a workspace, in a plan for '{}'", plan.target()->str());
    LMC_TRY(operand("workspace", index, DType::I8, 1));
    const plan::Slice &known = slice(index);
    if (known.offset() % alignment != 0 ||
        plan.arenas()->Get(known.arena())->alignment() % alignment != 0)
      return fail("operand workspace is not aligned to {} bytes", alignment);
    return {};
  }

  const plan::Slice &slice(int64_t index) const { return *plan.slices()->Get(uint32_t(index)); }

  Result<void> exists(std::string_view name, int64_t index) const {
    if (index < 0 || uint64_t(index) >= plan.slices()->size())
      return fail("operand {} does not exist", name);
    return {};
  }

  // Checks that operand `name` is a slice of `dtype` with at least `needed` elements.
  Result<void> operand(std::string_view name, int64_t index, DType dtype, uint64_t needed) {
    LMC_TRY(exists(name, index));
    const plan::Slice &known = slice(index);
    if (known.dtype() != dtype)
      return fail("operand {} is {}, not {}", name, plan::EnumNameDType(known.dtype()),
                  plan::EnumNameDType(dtype));
    if (needed >= kLimit || elements(known) < needed)
      return fail("operand {} has {} elements, not {}", name, elements(known), needed);
    return {};
  }

  // Checks that operand `name` is a slice of `dtype` with at least `rows` x `columns` elements. If
  // the slice has a pitch, it must have exactly `rows` rows of `columns` elements.
  Result<void> matrix(std::string_view name, int64_t index, DType dtype, uint64_t rows,
                      uint64_t columns) {
    LMC_TRY(operand(name, index, dtype, product({rows, columns})));
    const plan::Slice &known = slice(index);
    if (known.pitch() != 0 && (known.rows() != rows || elements(known) != rows * columns))
      return fail("operand {} does not have {} rows of {}", name, rows, columns);
    return {};
  }

  // Returns the dtype of slice `index`, or F32 if no such slice exists; operand() reports this.
  DType dtypeOf(int64_t index) const {
    return index >= 0 && uint64_t(index) < plan.slices()->size() ? slice(index).dtype()
                                                                 : DType::F32;
  }

  // Checks that no operand that a command writes shares memory with another operand of the command.
  Result<void> apart(const plan::Operands &operands) {
    for (const plan::Operand &result : operands)
      for (const plan::Operand &other : operands)
        if (&other != &result && result.role != plan::Role::Read &&
            overlap(slice(result.slice), slice(other.slice)))
          return fail("result {} shares memory with operand {}", result.name, other.name);
    return {};
  }

  Result<void> launch(const plan::Launch &launch) {
    if (launch.kernel() >= plan.kernels()->size())
      return fail("kernel {} does not exist", launch.kernel());
    if (launch.items() == 0 || launch.chunk() == 0 || launch.items() >= kLimit ||
        launch.chunk() >= kLimit)
      return fail("it has {} items in chunks of {}", launch.items(), launch.chunk());
    if (launch.inputs() > launch.args()->size())
      return fail("it has {} inputs of {} arguments", launch.inputs(), launch.args()->size());
    for (uint32_t slice : *launch.args())
      if (slice >= plan.slices()->size())
        return fail("argument slice {} does not exist", slice);
    // All launches of a kernel must have the same number of arguments, because a CUDA driver reads
    // as many as the kernel declares.
    if (auto [count, isNew] = arguments.emplace(launch.kernel(), launch.args()->size());
        !isNew && count->second != launch.args()->size())
      return fail("kernel '{}' has {} arguments here and {} elsewhere",
                  plan.kernels()->Get(launch.kernel())->name()->str(), launch.args()->size(),
                  count->second);
    return {};
  }

  // Checks that the kernels of a command (Command.launches) access only the command's operands.
  Result<void> launches(const plan::Command &command, const plan::Operands &operands) {
    if (!command.launches())
      return {};
    if (!rules.grid)
      return fail("it has launches, in a plan for '{}'", plan.target()->str());
    for (const auto *entry : *command.launches()) {
      LMC_TRY(launch(*entry));
      if (entry->args()->size() == entry->inputs())
        return fail("a launch of it has no result");
      for (uint32_t i = 0; i < entry->args()->size(); ++i) {
        const uint32_t arg = entry->args()->Get(i);
        const bool isNamed =
            std::any_of(operands.begin(), operands.end(), [&](const plan::Operand &operand) {
              return operand.role == plan::Role::Scratch
                         ? inside(arg, operand.slice)
                         : operand.slice == arg && (i < entry->inputs() || operand.isResult());
            });
        if (!isNamed)
          return fail("argument {} of a launch is slice {}, which the command does not name", i,
                      arg);
      }
    }
    return plan::hasTwoWays(command) ? twoWays(command) : Result<void>();
  }

  // Checks the arguments of kernels that are alternatives for one command (hasTwoWays()).
  Result<void> twoWays(const plan::Command &command) {
    std::array<std::vector<uint32_t>, 2> needed;
    if (const plan::LinearSwiglu *op = command.body_as_LinearSwiglu()) {
      const plan::Gemm &gemm = *op->product();
      needed = {{{gemm.d(), op->a()}, {gemm.a(), gemm.b(), gemm.d(), op->a()}}};
    } else if (const plan::SwigluLinearGrad *op = command.body_as_SwigluLinearGrad()) {
      const plan::Gemm &gemm = *op->product();
      needed = {{{op->dgu(), op->dgu(), gemm.d()},
                 {gemm.a(), gemm.b(), op->dgu(), op->dgu(), gemm.d()}}};
    } else {
      const plan::ExpertLinear &product = *command.body_as_ExpertLinear();
      needed.fill({product.x(), product.weight(), product.offsets(), product.y()});
    }
    if (command.launches()->size() > needed.size())
      return fail("it has {} kernels, and two ways", command.launches()->size());
    for (uint32_t i = 0; i < command.launches()->size(); ++i) {
      const auto &args = *command.launches()->Get(i)->args();
      if (!std::equal(args.begin(), args.end(), needed[i].begin(), needed[i].end()))
        return fail("way {} has other arguments than its kernel needs", i + 1);
    }
    return {};
  }

  bool inside(int64_t x, int64_t whole) const {
    const plan::Slice &a = slice(x), &b = slice(whole);
    return a.arena() == b.arena() && a.offset() >= b.offset() && endOf(a) <= endOf(b);
  }

  // Check that the operands of a kind of command have the types and sizes that it accesses.
  Result<void> shapes(const plan::Launch &op) { return launch(op); }

  Result<void> shapes(const plan::Gemm &gemm) {
    const DType type = dtypeOf(gemm.a());
    if (isEightBits(type))
      return scaledProduct(gemm);
    if (!isFloat(type))
      return fail("it multiplies integers");
    if (gemm.scale_a() != -1 || gemm.scale_b() != -1)
      return fail("it has scales for factors of {}", plan::EnumNameDType(type));
    LMC_TRY(factors(gemm, type, type));
    return resultOf(gemm, type);
  }

  // Checks a product of factors of 8 bits, which have scales.
  Result<void> scaledProduct(const plan::Gemm &gemm) {
    if (rules.eightBits == plan::EightBits::None)
      return fail("it multiplies 8-bit floats, in a plan for '{}'", plan.target()->str());
    const DType a = dtypeOf(gemm.a()), b = dtypeOf(gemm.b());
    if (!isEightBits(b) || (a == DType::F8E5M2 && b == a) || gemm.batch() != 1)
      return fail("it multiplies {} by {}, {} times", plan::EnumNameDType(a),
                  plan::EnumNameDType(b), gemm.batch());
    LMC_TRY(factors(gemm, a, b));
    if (rules.eightBits == plan::EightBits::RowsOfK) {
      if (gemm.transpose_a() || !gemm.transpose_b())
        return fail("it multiplies 8-bit floats that are not rows of k elements");
      uint64_t bits = gemm.m() | gemm.n() | gemm.k();
      for (int64_t index : {int64_t(gemm.a()), int64_t(gemm.b()), int64_t(gemm.d()),
                            int64_t(gemm.c()), int64_t(gemm.scale_a()), int64_t(gemm.scale_b())})
        if (index >= 0 && index < int64_t(plan.slices()->size()))
          bits |= slice(index).offset();
      if (bits % 16 != 0)
        return fail("its factors are {} x {} and {} x {} 8-bit floats; these extents, and the "
                    "offsets of its matrices and scales, must be multiples of 16",
                    gemm.m(), gemm.k(), gemm.n(), gemm.k());
    }
    LMC_TRY(scales(gemm));
    return resultOf(gemm, DType::BF16);
  }

  // Checks the scales of a product of factors of 8 bits.
  Result<void> scales(const plan::Gemm &gemm) {
    const plan::Scaling scaling = gemm.scaling();
    if (scaling == plan::Scaling::Tensor) {
      LMC_TRY(operand("scale_a", gemm.scale_a(), DType::F32, 1));
      return operand("scale_b", gemm.scale_b(), DType::F32, 1);
    }
    constexpr uint64_t kBlock = 128;
    const uint64_t k = gemm.k(), n = gemm.n();
    if (scaling > plan::Scaling::Tiles)
      return fail("it has scales of kind {}", int(scaling));
    if (k % kBlock != 0 || gemm.transpose_a() ||
        (scaling == plan::Scaling::Rows && !gemm.transpose_b()))
      return fail("it has scales for blocks of {} elements, and its rows have {}, or other ones",
                  kBlock, k);
    LMC_TRY(operand("scale_a", gemm.scale_a(), DType::F32, product({k / kBlock, gemm.m()})));
    if (scaling == plan::Scaling::Rows)
      return operand("scale_b", gemm.scale_b(), DType::F32, product({k / kBlock, n}));
    const uint64_t rows = gemm.transpose_b() ? n : k, columns = gemm.transpose_b() ? k : n;
    if (n % kBlock != 0)
      return fail("it has scales for tiles of {0} x {0} elements of {1} x {2}", kBlock, rows,
                  columns);
    if (gemm.scale_b() < 0 || gemm.scale_b() >= int64_t(plan.slices()->size()))
      return operand("scale_b", gemm.scale_b(), DType::F32, 1);
    const uint64_t pitch = slice(gemm.scale_b()).bytes() / sizeof(float) / (rows / kBlock);
    // cuBLASLt has no pitch: it takes rows of the next multiple of 4.
    const bool isExact = rules.eightBits == plan::EightBits::RowsOfK;
    const uint64_t least = isExact ? (columns / kBlock + 3) / 4 * 4 : columns / kBlock;
    if (pitch < least || (isExact && pitch > least))
      return fail("it has {} scales in a row of tiles, and needs {}", pitch, least);
    return operand("scale_b", gemm.scale_b(), DType::F32, product({rows / kBlock, pitch}));
  }

  // Checks the factors of a matrix product, of dtypes `a` and `b`.
  Result<void> factors(const plan::Gemm &gemm, DType a, DType b) {
    // Libraries for matrix products take dimensions as signed 32-bit numbers.
    for (uint64_t extent : {gemm.m(), gemm.n(), gemm.k(), gemm.batch()})
      if (extent == 0 || extent > kMaxInt32)
        return fail("it multiplies {} x {} by {} x {}, {} times", gemm.m(), gemm.k(), gemm.k(),
                    gemm.n(), gemm.batch());
    LMC_TRY(operand("a", gemm.a(), a, product({gemm.batch(), gemm.m(), gemm.k()})));
    return operand("b", gemm.b(), b, product({gemm.batch(), gemm.k(), gemm.n()}));
  }
  // Checks the result, bias and residual of a matrix product of factors of `type`.
  Result<void> resultOf(const plan::Gemm &gemm, DType type) {
    LMC_TRY(operand("d", gemm.d(), typeOrSum(gemm.d(), type),
                    product({gemm.batch(), gemm.m(), gemm.n()})));
    if (gemm.batch() > 1 && gemm.bias() != -1)
      return fail("it adds a bias to {} products", gemm.batch());
    if (gemm.batch() > 1 && residualOf(gemm) != -1)
      return fail("it adds a residual to {} products", gemm.batch());
    if (residualOf(gemm) != -1)
      LMC_TRY(operand("residual", residualOf(gemm), dtypeOf(gemm.d()),
                      product({gemm.m(), gemm.n()})));
    if (gemm.bias() != -1)
      LMC_TRY(operand("bias", gemm.bias(), typeOrSum(gemm.bias(), type), gemm.n()));
    return {};
  }

  // Returns the expected dtype of an operand that may have `type` or sumType(type).
  DType typeOrSum(int64_t index, DType type) const {
    return dtypeOf(index) == type ? type : sumType(type);
  }

  // Checks the matrix product of a command that also computes SwiGLU or its gradient.
  Result<void> productOfSwiglu(const plan::Gemm &gemm) {
    LMC_TRY(shapes(gemm));
    if (gemm.c() != -1 || gemm.bias() != -1 || gemm.batch() != 1 || gemm.transpose_a() ||
        dtypeOf(gemm.d()) != dtypeOf(gemm.a()))
      return fail("its product is not one of two matrices of one dtype");
    return {};
  }

  Result<void> shapes(const plan::LinearSwiglu &op) {
    const plan::Gemm &gemm = *op.product();
    LMC_TRY(productOfSwiglu(gemm));
    if (gemm.n() % 2 != 0)
      return fail("its {} columns have no halves", gemm.n());
    return operand("a", op.a(), dtypeOf(gemm.a()), product({gemm.m(), gemm.n() / 2}));
  }

  Result<void> shapes(const plan::SwigluLinearGrad &op) {
    const plan::Gemm &gemm = *op.product();
    LMC_TRY(productOfSwiglu(gemm));
    return operand("dgu", op.dgu(), dtypeOf(gemm.a()), product({gemm.m(), 2, gemm.n()}));
  }

  // Returns the expected dtype of a scalar that may be f32 or f64: F64 if it is f64, else F32.
  DType realOf(int64_t index) const {
    return dtypeOf(index) == DType::F64 ? DType::F64 : DType::F32;
  }

  // Checks that `type` is a float type, and that extents and index counts are in [1, kMaxInt32].
  static bool isBF16OrF32(DType type) { return type == DType::BF16 || type == DType::F32; }

  Result<void> extents(DType type, std::initializer_list<uint64_t> all) {
    if (!isFloat(type))
      return fail("it is of {}", plan::EnumNameDType(type));
    for (uint64_t each : all)
      if (each == 0 || each > kMaxInt32)
        return fail("it has an extent of {}", each);
    return {};
  }

  // Check the rules of commands that commands.toml does not express. Most commands have none.
  Result<void> rule(const auto &) { return {}; }
  Result<void> scalesOfTiles(uint64_t tiles, uint64_t pitch) {
    if (pitch < tiles)
      return fail("it has {} tiles in a row, and {} scales", tiles, pitch);
    return {};
  }
  Result<void> rule(const plan::QuantizeTiles &op) {
    return scalesOfTiles(op.across(), op.pitch());
  }
  Result<void> rule(const plan::ExpertScaledLinear &op) {
    constexpr uint64_t kBlock = 128;
    if (op.transposed() && op.beside())
      return fail("its weights are transposed, and lie one beside the other");
    if (rules.eightBits == plan::EightBits::None)
      return fail("it has factors of 8 bits, in a plan for '{}'", plan.target()->str());
    return extents(DType::F32, {product({op.depth(), kBlock}), product({op.across(), kBlock})});
  }
  Result<void> rule(const plan::QuantizeTilesBoth &op) {
    LMC_TRY(scalesOfTiles(op.across(), op.pitch()));
    return scalesOfTiles(op.down(), op.transposed_pitch());
  }

  template <typename Op> Result<void> attention(const Op &op) {
    if (op.batch() == 0 || op.seq() == 0 || op.heads() == 0 || op.kv_heads() == 0 ||
        op.head_dim() == 0 || op.heads() % op.kv_heads() != 0)
      return fail("{} heads of {} over {} key/value heads, {} x {} tokens, make no attention",
                  op.heads(), op.head_dim(), op.kv_heads(), op.batch(), op.seq());
    // The maximum head dimension limits the scratch size. Kernels compute positions in 32 bits.
    constexpr uint32_t kMostHeadDim = 4096, kMostPositions = 1u << 30;
    if (op.head_dim() > kMostHeadDim || op.seq() > kMostPositions || op.window() > kMostPositions)
      return fail("head dimension {} over {} tokens with window {} is beyond what is supported",
                  op.head_dim(), op.seq(), op.window());
    if (!std::isfinite(op.scale()))
      return fail("its scale is not finite");
    return {};
  }
  Result<void> rule(const plan::Attention &op) { return attention(op); }
  Result<void> rule(const plan::AttentionGrad &op) {
    if ((op.cos() == -1) != (op.sin() == -1))
      return fail("operand {} does not exist", op.cos() == -1 ? "cos" : "sin");
    if (op.cos() != -1 && op.head_dim() % 2 != 0)
      return fail("it rotates heads of {}", op.head_dim());
    return attention(op);
  }

  template <typename Op> Result<void> router(const Op &op) {
    if (op.chosen() > op.count())
      return fail("it chooses {} of {} experts", op.chosen(), op.count());
    return {};
  }
  Result<void> rule(const plan::Route &op) { return router(op); }
  Result<void> rule(const plan::RouteGrad &op) {
    if (op.sigmoid() && op.dmass() != -1)
      return fail("it has a gradient of the mass of sigmoids");
    return router(op);
  }

  Result<void> rule(const plan::SortRows &op) {
    if (op.groups() == 0 || (op.groups() == 1) != (op.rank() == -1))
      return fail("it sorts experts of {} groups {} the rank", op.groups(),
                  op.rank() == -1 ? "without" : "with");
    if (op.groups() == 1 && (op.first() != 0 || op.held() != 0))
      return fail("it leaves out rows of experts that all are there");
    const uint64_t held = op.held() ? op.held() : op.choices();
    if (op.first() > op.choices() || held > op.choices() - op.first())
      return fail("it sorts rows {} to {} of {} choices", op.first(), op.first() + held,
                  op.choices());
    return {};
  }

#include "ground/plan/Shapes.inc"

  Result<void> shapes(const plan::Copy &op) {
    LMC_TRY(operand("x", op.x(), dtypeOf(op.x()), 0));
    const plan::Slice &from = slice(op.x());
    LMC_TRY(operand("d", op.d(), from.dtype(), elements(from)));
    const plan::Slice &to = slice(op.d());
    if (to.bytes() != from.bytes())
      return fail("it copies {} bytes to {}", from.bytes(), to.bytes());
    if (to.pitch() && from.pitch() && to.rows() != from.rows())
      return fail("it copies {} rows to {}", from.rows(), to.rows());
    return {};
  }

  Result<void> shapes(const plan::Collective &op) {
    if (!known(op.kind(), plan::CollectiveKind::MAX) || !known(op.axis(), plan::Axis::MAX))
      return fail("it is of an unknown kind");
    LMC_TRY(exists("x", op.x()));
    const uint64_t ranks = ranksAlong(plan, op.axis());
    const uint64_t count = elements(slice(op.x()));
    const DType type = dtypeOf(op.x());
    const bool isMoved =
        (type == DType::I32 || isEightBits(type)) && op.kind() == plan::CollectiveKind::AllGather;
    if (!isFloat(type) && type != DType::F16 && !isMoved)
      return fail("it is of {}", plan::EnumNameDType(type));
    switch (op.kind()) {
    case plan::CollectiveKind::AllGather:
      return operand("d", op.d(), type, product({count, ranks}));
    case plan::CollectiveKind::ReduceScatter:
      if (count % ranks != 0)
        return fail("it divides {} elements between {} ranks", count, ranks);
      return operand("d", op.d(), type, count / ranks);
    case plan::CollectiveKind::AllReduce:
      if (op.x() != op.d())
        return fail("it sums in two places");
    }
    return {};
  }

  Result<void> shapes(const plan::Wait &) { return {}; } // streams() checks it

  Result<void> settings() {
    std::unordered_set<std::string_view> keys;
    for (const auto *setting : *plan.settings()) {
      const std::string key = setting->key()->str();
      if (key.empty() || !keys.insert(setting->key()->string_view()).second)
        return fail("a setting's key '{}' is empty or taken", key);
      if (!known(setting->type(), plan::SettingType::MAX))
        return fail("setting '{}' is of an unknown type", key);
      if (setting->type() == plan::SettingType::StringList)
        continue;
      if (!setting->value())
        return fail("setting '{}' has no value", key);
      const std::string_view value = setting->value()->string_view();
      if ((setting->type() == plan::SettingType::Integer && !parseWhole<int64_t>(value)) ||
          (setting->type() == plan::SettingType::Float && !parseWhole<double>(value)) ||
          (setting->type() == plan::SettingType::Boolean && value != "true" && value != "false"))
        return fail("setting '{}' has the value '{}', which is no {}", key, value,
                    plan::EnumNameSettingType(setting->type()));
    }
    return {};
  }

  const plan::Plan &plan;
  const plan::TargetRules &rules = plan::rulesOf(plan.target()->string_view());
  std::unordered_map<uint32_t, uint32_t> arguments; // the argument count of each launched kernel
};

} // namespace

Result<void> verifyPlan(const plan::Plan &plan) { return Verifier(plan).run(); }

} // namespace lmc

#include "runtime/plan/VerifyPlan.h"
#include "runtime/plan/MomentBlock.h"
#include "runtime/plan/PlanFile.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace lmc {
namespace {

using plan::DType;

// No dimension, size or count of a real plan comes near; below it sums of two
// and casts to int64_t are safe.
constexpr uint64_t kLimit = uint64_t(1) << 60;

template <typename... Args> Error fail(fmt::format_string<Args...> format, Args &&...args) {
  return Error{fmt::format(format, std::forward<Args>(args)...)};
}

// The product of the factors; kLimit when it reaches that.
uint64_t product(std::initializer_list<uint64_t> factors) {
  uint64_t result = 1;
  for (uint64_t factor : factors) {
    if (factor == 0)
      return 0;
    result = result >= kLimit / factor + 1 ? kLimit : result * factor;
    if (result > kLimit)
      result = kLimit;
  }
  return result;
}

bool isFloat(DType dtype) {
  return dtype == DType::F32 || dtype == DType::BF16 || dtype == DType::F64;
}

// The dtype that sums of `dtype` are held in.
DType sumType(DType dtype) { return dtype == DType::F64 ? DType::F64 : DType::F32; }

template <typename E> bool known(E value, E last) {
  return std::underlying_type_t<E>(value) <= std::underlying_type_t<E>(last);
}

// FlatBuffers' verifier aligns a vector's length, not its 8-byte elements.
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
    return {};
  }

  Result<void> arenas() {
    for (const auto *arena : *plan.arenas()) {
      // A page: what every allocation of a device is aligned to at least.
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
        return fail("slice {} has a shape at an odd place", i);
      uint64_t elements = 1;
      if (slice.shape())
        for (uint64_t extent : *slice.shape())
          elements = product({elements, extent});
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
      if (slice.offset() > room || extent(slice) > room - slice.offset())
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

  // From the first byte of a slice to behind its last.
  static uint64_t extent(const plan::Slice &slice) {
    if (slice.pitch() == 0)
      return slice.bytes();
    return (slice.rows() - 1) * slice.pitch() + slice.bytes() / slice.rows();
  }

  // Whether the rows of a strided slice are a product of its leading dimensions.
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
    }
    for (const auto *variable : *plan.variables()) {
      LMC_TRY(initializer(*variable, byName));
      switch (variable->kind()) {
      case plan::VariableKind::ComputeCopy:
      case plan::VariableKind::Gradient:
      case plan::VariableKind::Moment1:
      case plan::VariableKind::Moment2:
      case plan::VariableKind::Moment1Scale:
      case plan::VariableKind::Moment2Scale: {
        auto of = variable->parameter() ? byName.find(variable->parameter()->string_view())
                                        : byName.end();
        if (of == byName.end() || of->second->kind() != plan::VariableKind::Parameter)
          return fail("variable '{}' belongs to no parameter", variable->name()->str());
        const uint64_t share = isScale(variable->kind()) ? uint64_t(kMomentBlock) : 1;
        if (elements(*plan.slices()->Get(of->second->slice())) !=
            product({share, elements(*plan.slices()->Get(variable->slice()))}))
          return fail("variable '{}' and its parameter differ in size", variable->name()->str());
        break;
      }
      default:
        break;
      }
    }
    return {};
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
      return fail("variable '{}' has values at an odd place", name);
    if (init->kernel() < -1 || init->kernel() >= int64_t(plan.kernels()->size()))
      return fail("variable '{}' is initialised by kernel {}, which does not exist", name,
                  init->kernel());
    if (!isFloat(slice.dtype()) && init->kind() != Kind::None && init->kind() != Kind::Zeros)
      return fail("variable '{}' holds integers and has an initializer for reals", name);
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
      // Otherwise the order of initialisation would matter, or never end.
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
      if (isCuda() && module->target()->string_view() != plan.target()->string_view())
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

  // A CUDA kernel with code says how it is launched, within what every device since compute
  // capability 8.0 allows (CUDA C++ Programming Guide, "Technical Specifications per Compute
  // Capability").
  Result<void> launchShape(const plan::Kernel &kernel) {
    constexpr uint32_t kMostThreads = 1024, kWarp = 32, kMostRegisters = 255;
    constexpr uint32_t kMostSharedBytes = 227 << 10, kMostLocalBytes = 512 << 10;
    constexpr uint32_t kMostBlocks[] = {0x7fffffff, 0xffff, 0xffff};
    if (!kernel.grid()) {
      if (isCuda() && plan.modules()->Get(kernel.module_())->image()->size() > 0)
        return fail("has code and no grid");
      return {};
    }
    if (!isCuda())
      return fail("has a grid, in a plan for '{}'", plan.target()->str());
    if (kernel.grid()->size() != std::size(kMostBlocks))
      return fail("has a grid of {} dimensions", kernel.grid()->size());
    for (uint32_t i = 0; i < std::size(kMostBlocks); ++i)
      if (kernel.grid()->Get(i) == 0 || kernel.grid()->Get(i) > kMostBlocks[i])
        return fail("has a grid of {} blocks in dimension {}", kernel.grid()->Get(i), i);
    if (kernel.threads() == 0 || kernel.threads() > kMostThreads || kernel.threads() % kWarp != 0)
      return fail("has blocks of {} threads", kernel.threads());
    if (kernel.shared_bytes() > kMostSharedBytes)
      return fail("takes {} bytes of shared memory", kernel.shared_bytes());
    if (kernel.registers() > kMostRegisters || kernel.stack_bytes() > kMostLocalBytes)
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
      if (function->segments()) {
        uint64_t next = 0;
        for (const auto *segment : *function->segments()) {
          if (segment->first() < next || segment->last() < segment->first() ||
              segment->last() >= count)
            return fail("function '{}' has a segment of commands {} to {}", name, segment->first(),
                        segment->last());
          next = uint64_t(segment->last()) + 1;
        }
      }
    }
    return {};
  }

  Result<void> command(const plan::Command &command) {
    switch (command.body_type()) {
    case plan::CommandBody::Launch:
      return launch(*command.body_as_Launch());
    case plan::CommandBody::Gemm:
      return gemm(*command.body_as_Gemm());
    case plan::CommandBody::Attention:
      return attention(*command.body_as_Attention());
    case plan::CommandBody::AttentionGrad:
      return attentionGrad(*command.body_as_AttentionGrad());
    case plan::CommandBody::ScatterAdd:
      return scatterAdd(*command.body_as_ScatterAdd());
    case plan::CommandBody::Fill:
      return fill(*command.body_as_Fill());
    case plan::CommandBody::Copy:
      return copy(*command.body_as_Copy());
    default:
      return fail("it is of an unknown type");
    }
  }

  // Operand `name` is a slice of `dtype` with at least `needed` elements, and dense.
  Result<void> operand(std::string_view name, int64_t index, DType dtype, uint64_t needed) {
    LMC_TRY(anyOperand(name, index, dtype, needed));
    if (plan.slices()->Get(uint32_t(index))->pitch() != 0)
      return fail("operand {} is not dense", name);
    return {};
  }

  // The same, whose `rows` rows may lie apart.
  Result<void> matrix(std::string_view name, int64_t index, DType dtype, uint64_t rows,
                      uint64_t columns) {
    LMC_TRY(anyOperand(name, index, dtype, product({rows, columns})));
    const plan::Slice &slice = *plan.slices()->Get(uint32_t(index));
    if (slice.pitch() != 0 && (slice.rows() != rows || elements(slice) != rows * columns))
      return fail("operand {} does not have {} rows of {}", name, rows, columns);
    return {};
  }

  Result<void> anyOperand(std::string_view name, int64_t index, DType dtype, uint64_t needed) {
    if (index < 0 || uint64_t(index) >= plan.slices()->size())
      return fail("operand {} does not exist", name);
    const plan::Slice &slice = *plan.slices()->Get(uint32_t(index));
    if (slice.dtype() != dtype)
      return fail("operand {} is {}, not {}", name, plan::EnumNameDType(slice.dtype()),
                  plan::EnumNameDType(dtype));
    if (needed >= kLimit || elements(slice) < needed)
      return fail("operand {} has {} elements, not {}", name, elements(slice), needed);
    return {};
  }

  // The dtype of a slice that may not exist yet; F32 then, `operand` complains.
  DType dtypeOf(int64_t index) const {
    return index >= 0 && uint64_t(index) < plan.slices()->size()
               ? plan.slices()->Get(uint32_t(index))->dtype()
               : DType::F32;
  }

  bool overlap(uint32_t x, uint32_t y) const {
    const plan::Slice &a = *plan.slices()->Get(x), &b = *plan.slices()->Get(y);
    if (a.arena() != b.arena() || a.offset() >= b.offset() + extent(b) ||
        b.offset() >= a.offset() + extent(a))
      return false;
    // Columns of one matrix lie between each other without touching.
    if (a.pitch() == 0 || a.pitch() != b.pitch())
      return true;
    const plan::Slice &low = a.offset() <= b.offset() ? a : b, &high = &low == &a ? b : a;
    const uint64_t column = (high.offset() - low.offset()) % a.pitch();
    return column < low.bytes() / low.rows() ||
           column + high.bytes() / high.rows() > a.pitch();
  }

  // No result may share memory with an operand that the command still reads.
  Result<void> apart(std::string_view name, uint32_t result,
                     std::initializer_list<uint32_t> operands) {
    for (uint32_t other : operands)
      if (overlap(result, other))
        return fail("result {} shares memory with an operand", name);
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
    // A CUDA driver reads as many arguments as the kernel has, whatever it is given.
    if (auto [count, isNew] = arguments.emplace(launch.kernel(), launch.args()->size());
        !isNew && count->second != launch.args()->size())
      return fail("kernel '{}' has {} arguments here and {} elsewhere",
                  plan.kernels()->Get(launch.kernel())->name()->str(), launch.args()->size(),
                  count->second);
    return {};
  }

  // The kernels that do a command on a CUDA device touch nothing but what the command names:
  // they read `operands`, and write `results` and the workspace (-1: none).
  Result<void> launches(const flatbuffers::Vector<flatbuffers::Offset<plan::Launch>> *launches,
                        std::vector<int64_t> operands, std::vector<int64_t> results,
                        int64_t workspace) {
    if (!launches)
      return {};
    if (!isCuda())
      return fail("it has launches, in a plan for '{}'", plan.target()->str());
    operands.insert(operands.end(), results.begin(), results.end());
    for (const auto *entry : *launches) {
      LMC_TRY(launch(*entry));
      if (entry->args()->size() == entry->inputs())
        return fail("a launch of it has no result");
      for (uint32_t i = 0; i < entry->args()->size(); ++i) {
        const uint32_t arg = entry->args()->Get(i);
        const std::vector<int64_t> &allowed = i < entry->inputs() ? operands : results;
        if (std::find(allowed.begin(), allowed.end(), int64_t(arg)) == allowed.end() &&
            (workspace < 0 || !inside(arg, uint32_t(workspace))))
          return fail("argument {} of a launch is slice {}, which the command does not name", i,
                      arg);
      }
    }
    return {};
  }

  // Whether slice `x` lies in slice `whole`.
  bool inside(uint32_t x, uint32_t whole) const {
    const plan::Slice &a = *plan.slices()->Get(x), &b = *plan.slices()->Get(whole);
    return a.arena() == b.arena() && a.offset() >= b.offset() &&
           a.offset() + extent(a) <= b.offset() + extent(b);
  }

  Result<void> gemm(const plan::Gemm &gemm) {
    const DType type = dtypeOf(gemm.a());
    if (!isFloat(type))
      return fail("it multiplies integers");
    // Libraries count rows and columns in 32 bits.
    constexpr uint64_t kMost = std::numeric_limits<int32_t>::max();
    for (uint64_t extent : {gemm.m(), gemm.n(), gemm.k()})
      if (extent == 0 || extent > kMost)
        return fail("it multiplies {} x {} by {} x {}", gemm.m(), gemm.k(), gemm.k(), gemm.n());
    LMC_TRY(operand("a", gemm.a(), type, product({gemm.m(), gemm.k()})));
    LMC_TRY(operand("b", gemm.b(), type, product({gemm.k(), gemm.n()})));
    DType result = dtypeOf(gemm.d());
    if (result != type)
      result = sumType(type);
    LMC_TRY(operand("d", gemm.d(), result, product({gemm.m(), gemm.n()})));
    LMC_TRY(apart("d", gemm.d(), {gemm.a(), gemm.b()}));
    if (gemm.c() != -1 && int64_t(gemm.c()) != int64_t(gemm.d()))
      return fail("operand c is neither absent nor d");
    if (gemm.bias() != -1) {
      DType bias = dtypeOf(gemm.bias());
      if (bias != type)
        bias = sumType(type);
      LMC_TRY(operand("bias", gemm.bias(), bias, gemm.n()));
      LMC_TRY(apart("d", gemm.d(), {uint32_t(gemm.bias())}));
    }
    if (gemm.workspace() != -1)
      LMC_TRY(operand("workspace", gemm.workspace(), dtypeOf(gemm.workspace()), 0));
    return {};
  }

  bool isCuda() const { return plan.target()->string_view().starts_with("cuda:"); }

  template <typename Op> Result<void> attentionShape(const Op &op, DType type) {
    if (!isFloat(type))
      return fail("it attends to integers");
    if (op.batch() == 0 || op.seq() == 0 || op.heads() == 0 || op.kv_heads() == 0 ||
        op.head_dim() == 0 || op.heads() % op.kv_heads() != 0)
      return fail("{} heads of {} over {} key/value heads, {} x {} tokens, make no attention",
                  op.heads(), op.head_dim(), op.kv_heads(), op.batch(), op.seq());
    // Scratch grows with the head dimension, and positions are 32-bit lanes.
    constexpr uint32_t kMostHeadDim = 4096, kMostPositions = 1u << 30;
    if (op.head_dim() > kMostHeadDim || op.seq() > kMostPositions || op.window() > kMostPositions)
      return fail("head dimension {} over {} tokens with window {} is beyond what is supported",
                  op.head_dim(), op.seq(), op.window());
    if (!std::isfinite(op.scale()))
      return fail("its scale is not finite");
    const uint64_t queries = product({op.batch(), op.seq(), op.heads(), op.head_dim()});
    const uint64_t tokens = product({op.batch(), op.seq()});
    LMC_TRY(matrix("q", op.q(), type, tokens, product({op.heads(), op.head_dim()})));
    LMC_TRY(matrix("k", op.k(), type, tokens, product({op.kv_heads(), op.head_dim()})));
    LMC_TRY(matrix("v", op.v(), type, tokens, product({op.kv_heads(), op.head_dim()})));
    LMC_TRY(operand("out", op.out(), type, queries));
    if (op.starts() != -1)
      LMC_TRY(operand("starts", op.starts(), DType::I32, tokens));
    return operand("lse", op.lse(), sumType(type), product({op.batch(), op.seq(), op.heads()}));
  }

  Result<void> attention(const plan::Attention &op) {
    LMC_TRY(attentionShape(op, dtypeOf(op.q())));
    for (uint32_t result : {op.out(), op.lse()})
      LMC_TRY(apart(result == op.out() ? "out" : "lse", result, {op.q(), op.k(), op.v()}));
    LMC_TRY(apart("lse", op.lse(), {op.out()}));
    if (op.starts() != -1)
      LMC_TRY(apart("out or lse", uint32_t(op.starts()), {op.out(), op.lse()}));
    if (op.workspace() != -1) {
      LMC_TRY(operand("workspace", op.workspace(), dtypeOf(op.workspace()), 0));
      LMC_TRY(apart("workspace", uint32_t(op.workspace()),
                    {op.q(), op.k(), op.v(), op.out(), op.lse()}));
      if (op.starts() != -1)
        LMC_TRY(apart("workspace", uint32_t(op.workspace()), {uint32_t(op.starts())}));
    }
    return launches(op.launches(), {op.q(), op.k(), op.v(), op.starts()}, {op.out(), op.lse()},
                    op.workspace());
  }

  Result<void> attentionGrad(const plan::AttentionGrad &op) {
    const DType type = dtypeOf(op.q());
    LMC_TRY(attentionShape(op, type));
    const uint64_t queries = product({op.batch(), op.seq(), op.heads(), op.head_dim()});
    const uint64_t tokens = product({op.batch(), op.seq()});
    LMC_TRY(operand("dout", op.dout(), type, queries));
    LMC_TRY(matrix("dq", op.dq(), type, tokens, product({op.heads(), op.head_dim()})));
    LMC_TRY(matrix("dk", op.dk(), type, tokens, product({op.kv_heads(), op.head_dim()})));
    LMC_TRY(matrix("dv", op.dv(), type, tokens, product({op.kv_heads(), op.head_dim()})));
    for (uint32_t result : {op.dq(), op.dk(), op.dv()})
      LMC_TRY(
          apart("dq, dk or dv", result, {op.q(), op.k(), op.v(), op.out(), op.lse(), op.dout()}));
    LMC_TRY(apart("dq", op.dq(), {op.dk(), op.dv()}));
    LMC_TRY(apart("dk", op.dk(), {op.dv()}));
    if (op.starts() != -1)
      LMC_TRY(apart("dq, dk or dv", uint32_t(op.starts()), {op.dq(), op.dk(), op.dv()}));
    if ((op.cos() != -1 || op.sin() != -1) && op.head_dim() % 2 != 0)
      return fail("it rotates heads of {}", op.head_dim());
    for (auto [name, table] : {std::pair("cos", op.cos()), std::pair("sin", op.sin())}) {
      if (op.cos() == -1 && op.sin() == -1)
        continue;
      LMC_TRY(operand(name, table, DType::F32, product({op.seq(), op.head_dim() / 2})));
      LMC_TRY(apart("dq, dk or dv", uint32_t(table), {op.dq(), op.dk(), op.dv()}));
      if (op.workspace() != -1)
        LMC_TRY(apart("workspace", uint32_t(op.workspace()), {uint32_t(table)}));
    }
    if (isCuda())
      LMC_TRY(operand("workspace", op.workspace(), sumType(type), product({tokens, op.heads()})));
    else if (type == DType::BF16)
      LMC_TRY(operand("workspace", op.workspace(), DType::F32, queries));
    else if (op.workspace() != -1)
      LMC_TRY(operand("workspace", op.workspace(), dtypeOf(op.workspace()), 0));
    if (op.workspace() != -1)
      LMC_TRY(apart(
          "workspace", uint32_t(op.workspace()),
          {op.q(), op.k(), op.v(), op.out(), op.lse(), op.dout(), op.dq(), op.dk(), op.dv()}));
    if (op.workspace() != -1 && op.starts() != -1)
      LMC_TRY(apart("workspace", uint32_t(op.workspace()), {uint32_t(op.starts())}));
    return launches(op.launches(),
                    {op.q(), op.k(), op.v(), op.out(), op.lse(), op.dout(), op.starts(), op.cos(),
                     op.sin()},
                    {op.dq(), op.dk(), op.dv()}, op.workspace());
  }

  Result<void> scatterAdd(const plan::ScatterAdd &op) {
    const DType type = dtypeOf(op.x());
    if (!isFloat(type) || op.columns() == 0)
      return fail("it adds rows of {} {}", op.columns(), plan::EnumNameDType(type));
    LMC_TRY(operand("ids", op.ids(), DType::I32, op.rows()));
    LMC_TRY(operand("x", op.x(), type, product({op.rows(), op.columns()})));
    LMC_TRY(operand("d", op.d(), sumType(type), product({op.vocabulary(), op.columns()})));
    LMC_TRY(apart("d", op.d(), {op.ids(), op.x()}));
    // How much of it the kernels need is for the compiler to know: at least the sorted pairs.
    if (isCuda())
      LMC_TRY(operand("workspace", op.workspace(), DType::I8, product({op.rows(), 8})));
    else if (op.workspace() != -1)
      LMC_TRY(operand("workspace", op.workspace(), dtypeOf(op.workspace()), 0));
    if (op.workspace() != -1)
      LMC_TRY(apart("workspace", uint32_t(op.workspace()), {op.ids(), op.x(), op.d()}));
    return launches(op.launches(), {op.ids(), op.x()}, {op.d()}, op.workspace());
  }

  Result<void> fill(const plan::Fill &op) {
    LMC_TRY(operand("d", op.d(), dtypeOf(op.d()), 0));
    double low = 0, high = 0;
    switch (dtypeOf(op.d())) {
    case DType::I32:
      low = std::numeric_limits<int32_t>::min();
      high = std::numeric_limits<int32_t>::max();
      break;
    case DType::I8:
      low = std::numeric_limits<int8_t>::min();
      high = std::numeric_limits<int8_t>::max();
      break;
    default:
      return {};
    }
    if (!(op.value() >= low && op.value() <= high))
      return fail("{} does not fit the integers that it fills", op.value());
    return {};
  }

  Result<void> copy(const plan::Copy &op) {
    LMC_TRY(anyOperand("x", op.x(), dtypeOf(op.x()), 0));
    const plan::Slice &from = *plan.slices()->Get(op.x());
    LMC_TRY(anyOperand("d", op.d(), from.dtype(), elements(from)));
    const plan::Slice &to = *plan.slices()->Get(op.d());
    if (to.bytes() != from.bytes())
      return fail("it copies {} bytes to {}", from.bytes(), to.bytes());
    if (to.pitch() && from.pitch() && to.rows() != from.rows())
      return fail("it copies {} rows to {}", from.rows(), to.rows());
    return apart("d", op.d(), {op.x()});
  }

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
      const char *end = value.data() + value.size();
      bool sound = true;
      if (setting->type() == plan::SettingType::Integer) {
        int64_t parsed;
        auto [at, error] = std::from_chars(value.data(), end, parsed);
        sound = error == std::errc() && at == end;
      } else if (setting->type() == plan::SettingType::Float) {
        double parsed;
        auto [at, error] = std::from_chars(value.data(), end, parsed);
        sound = error == std::errc() && at == end;
      } else if (setting->type() == plan::SettingType::Boolean) {
        sound = value == "true" || value == "false";
      }
      if (!sound)
        return fail("setting '{}' has the value '{}', which is no {}", key, value,
                    plan::EnumNameSettingType(setting->type()));
    }
    return {};
  }

  const plan::Plan &plan;
  std::unordered_map<uint32_t, uint32_t> arguments; // of each kernel launched so far: how many
};

} // namespace

Result<void> verifyPlan(const plan::Plan &plan) { return Verifier(plan).run(); }

} // namespace lmc

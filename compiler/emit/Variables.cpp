#include "compiler/emit/Variables.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/xxhash.h"

using namespace mlir;
using namespace lmc;
namespace fb = lmc::plan;

FailureOr<fb::DType> lmc::dtypeOf(Operation *op, Type element) {
  if (element.isF32())
    return fb::DType::F32;
  if (element.isBF16())
    return fb::DType::BF16;
  if (element.isF16())
    return fb::DType::F16;
  if (element.isF64())
    return fb::DType::F64;
  if (element.isInteger(32))
    return fb::DType::I32;
  if (element.isInteger(8))
    return fb::DType::I8;
  if (isa<Float8E4M3FNType>(element))
    return fb::DType::F8E4M3;
  if (isa<Float8E5M2Type>(element))
    return fb::DType::F8E5M2;
  return op->emitOpError("has elements of ") << element << ", which a plan file cannot hold",
         failure();
}

fb::Category lmc::categoryOf(lm::VariableKind kind) {
  switch (kind) {
  case lm::VariableKind::Parameter:
    return fb::Category::Parameters;
  case lm::VariableKind::ComputeCopy:
    return fb::Category::ComputeCopies;
  case lm::VariableKind::Gradient:
    return fb::Category::Gradients;
  case lm::VariableKind::Moment1:
  case lm::VariableKind::Moment2:
  case lm::VariableKind::Moment1Scale:
  case lm::VariableKind::Moment2Scale:
    return fb::Category::OptimizerState;
  case lm::VariableKind::Table:
    return fb::Category::Tables;
  case lm::VariableKind::Scalar:
    return fb::Category::Scalars;
  case lm::VariableKind::Input:
    return fb::Category::Inputs;
  }
  llvm_unreachable("a variable is of a known kind");
}

std::unique_ptr<fb::InitializerT> lmc::initializerOf(lm::InitAttr init) {
  auto entry = std::make_unique<fb::InitializerT>();
  entry->kind = fb::InitializerKind(init.getKind());
  if (FloatAttr stddev = init.getStddev())
    entry->stddev = stddev.getValueAsDouble();
  if (FloatAttr scale = init.getScale())
    entry->scale = scale.getValueAsDouble();
  if (DenseF64ArrayAttr frequencies = init.getFrequencies())
    entry->values.assign(frequencies.asArrayRef().begin(), frequencies.asArrayRef().end());
  if (StringAttr source = init.getSource())
    entry->source = source.str();
  return entry;
}

SmallVector<NamedRows> lmc::namedRows(plan_ir::VariableOp variable, const SymbolTable &symbols) {
  auto type = cast<RankedTensorType>(variable.getType());
  auto owner = variable;
  if (std::optional<StringRef> parameter = variable.getParameter())
    if (auto found = symbols.lookup<plan_ir::VariableOp>(*parameter))
      owner = found;
  if (variable.getShards()) {
    SmallVector<NamedRows> tensors;
    for (auto tensor : variable.getShardedAttr().getAsRange<lm::ShardedAttr>())
      tensors.push_back({tensor.getName().str(), "", tensor.getType(), 0, tensor.getInit()});
    return tensors;
  }
  if (!owner.getParts())
    return {{variable.getSymName().str(), variable.getParameter().value_or("").str(), type, 0,
             variable.getInit()}};
  bool own = owner == variable;
  // A parameter may have more rows than the scales of its moments. Then a part with 1/4 of the
  // parameter's rows has 1/4 of the scales' rows.
  int64_t ownerRows = cast<RankedTensorType>(owner.getType()).getDimSize(0);
  SmallVector<NamedRows> rows;
  int64_t first = 0;
  for (auto part : owner.getPartsAttr().getAsRange<lm::PartAttr>()) {
    SmallVector<int64_t> shape(type.getShape());
    shape[0] = part.getRows() * type.getDimSize(0) / ownerRows;
    lm::InitAttr init = own ? part.getInit() : variable.getInit();
    if (init.getKind() == lm::InitKind::CopyOf) // each part copies the same part of the parameter
      init = lm::InitAttr::copyOf(part.getName());
    const int64_t columns = part.getColumns(), pitch = columns && columns < shape[1] ? shape[1] : 0;
    if (pitch)
      shape[1] = columns;
    if (!part.getName().empty())
      rows.push_back({lm::stateName(part.getName().getValue(), variable.getKind()),
                      own ? "" : part.getName().str(), type.clone(shape), first, init, pitch});
    first += shape[0];
  }
  return rows;
}

// Returns true if checkpoints contain variables of this kind.
static bool isSaved(lm::VariableKind kind) {
  const fb::Category category = categoryOf(kind);
  return category == fb::Category::Parameters || category == fb::Category::OptimizerState;
}

std::string lmc::modelFingerprint(ModuleOp module, StringRef job) {
  SymbolTable symbols(module);
  // Sorting makes the lines independent of which variables the compiler passes have merged.
  std::vector<std::string> lines;
  for (auto variable : module.getOps<plan_ir::VariableOp>())
    if (isSaved(variable.getKind()) && !variable.getAnonymous())
      for (const NamedRows &rows : namedRows(variable, symbols))
        lines.push_back(llvm::formatv("{0} {1}", rows.name, rows.type).str());
  llvm::sort(lines);
  std::string text = job.str();
  for (const std::string &line : lines)
    text += "\n" + line;
  return llvm::utohexstr(llvm::xxh3_64bits(text), /*LowerCase=*/true, /*Width=*/16);
}

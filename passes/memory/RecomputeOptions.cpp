#include "passes/memory/RecomputeOptions.h"

#include "mlir/IR/Builders.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace lmc;

static constexpr StringRef kOptions = "lm.recompute_options", kChoice = "lm.recompute_choice";

int64_t RecomputeKind::find(StringRef name) const {
  auto it = llvm::find_if(options, [&](const RecomputeOption &o) { return o.name == name; });
  return it == options.end() ? -1 : it - options.begin();
}

FailureOr<std::vector<int64_t>> RecomputeOptions::choiceOf(ModuleOp module, StringRef mode,
                                                           int64_t stride) const {
  std::vector<int64_t> choice;
  for (auto [layer, kind] : llvm::enumerate(layers)) {
    const RecomputeKind &options = kinds[size_t(kind)];
    StringRef name = int64_t(layer) % stride == 0 ? mode : "none";
    choice.push_back(options.find(name));
    if (choice.back() < 0)
      return module.emitError("has no recompute option '")
             << name << "' for @" << options.layer << "; run lm-analyze-recompute, which makes one";
  }
  return choice;
}

LogicalResult RecomputeOptions::check(ModuleOp module, ArrayRef<int64_t> choice) const {
  if (choice.size() != layers.size())
    return module.emitError("has ")
           << kChoice << " for " << choice.size() << " layers, but calls " << layers.size()
           << "; give one option for each layer, first to last";
  for (auto [layer, option] : llvm::enumerate(choice)) {
    const RecomputeKind &kind = kinds[size_t(layers[layer])];
    if (option < 0 || option >= int64_t(kind.options.size()))
      return module.emitError("has no recompute option ")
             << option << " for layer " << layer << ": @" << kind.layer << " has options 0 to "
             << int64_t(kind.options.size()) - 1;
  }
  return success();
}

//===-- Attributes --------------------------------------------------------------------------===//

void lmc::writeRecomputeOptions(ModuleOp module, const RecomputeOptions &options) {
  Builder b(module.getContext());
  SmallVector<NamedAttribute> kinds;
  for (auto [index, kind] : llvm::enumerate(options.kinds)) {
    SmallVector<Attribute> entries;
    for (const RecomputeOption &option : kind.options) {
      SmallVector<StringRef> ops(option.ops.begin(), option.ops.end());
      entries.push_back(b.getDictionaryAttr(
          {b.getNamedAttr("name", b.getStringAttr(option.name)),
           b.getNamedAttr("recomputed", b.getDenseI64ArrayAttr(option.recomputed)),
           b.getNamedAttr("ops", b.getStrArrayAttr(ops)),
           b.getNamedAttr("kept_bytes", b.getI64IntegerAttr(int64_t(option.keptBytes))),
           b.getNamedAttr("seconds", b.getF64FloatAttr(option.seconds)),
           b.getNamedAttr("flops", b.getF64FloatAttr(option.flops))}));
    }
    SmallVector<int64_t> layers;
    for (auto [layer, of] : llvm::enumerate(options.layers))
      if (of == int64_t(index))
        layers.push_back(int64_t(layer));
    kinds.push_back(b.getNamedAttr(
        kind.layer,
        b.getDictionaryAttr({b.getNamedAttr("layers", b.getDenseI64ArrayAttr(layers)),
                             b.getNamedAttr("forward_flops", b.getF64FloatAttr(kind.forwardFlops)),
                             b.getNamedAttr("options", b.getArrayAttr(entries))})));
  }
  module->setAttr(kOptions, b.getDictionaryAttr(kinds));
}

// Reads one option. Returns nullopt if `entry` has another form.
static std::optional<RecomputeOption> readOption(Attribute entry) {
  auto fields = dyn_cast<DictionaryAttr>(entry);
  if (!fields)
    return std::nullopt;
  auto name = fields.getAs<StringAttr>("name");
  auto recomputed = fields.getAs<DenseI64ArrayAttr>("recomputed");
  auto ops = fields.getAs<ArrayAttr>("ops");
  auto keptBytes = fields.getAs<IntegerAttr>("kept_bytes");
  auto seconds = fields.getAs<FloatAttr>("seconds"), flops = fields.getAs<FloatAttr>("flops");
  if (!name || !recomputed || !ops || !keptBytes || !seconds || !flops)
    return std::nullopt;
  RecomputeOption option;
  option.name = name.getValue();
  option.recomputed.assign(recomputed.asArrayRef().begin(), recomputed.asArrayRef().end());
  for (Attribute op : ops) {
    if (!isa<StringAttr>(op))
      return std::nullopt;
    option.ops.push_back(cast<StringAttr>(op).getValue().str());
  }
  option.keptBytes = uint64_t(keptBytes.getInt());
  option.seconds = seconds.getValueAsDouble();
  option.flops = flops.getValueAsDouble();
  return option;
}

bool lmc::hasRecomputeOptions(ModuleOp module) { return module->hasAttr(kOptions); }

FailureOr<RecomputeOptions> lmc::readRecomputeOptions(ModuleOp module) {
  auto malformed = [&]() -> InFlightDiagnostic {
    return module.emitError("has no ")
           << kOptions << " as lm-analyze-recompute writes it; run that pass first";
  };
  auto dictionary = module->getAttrOfType<DictionaryAttr>(kOptions);
  if (!dictionary)
    return malformed();
  RecomputeOptions options;
  for (NamedAttribute entry : dictionary) {
    auto fields = dyn_cast<DictionaryAttr>(entry.getValue());
    auto layers = fields ? fields.getAs<DenseI64ArrayAttr>("layers") : DenseI64ArrayAttr();
    auto forwardFlops = fields ? fields.getAs<FloatAttr>("forward_flops") : FloatAttr();
    auto list = fields ? fields.getAs<ArrayAttr>("options") : ArrayAttr();
    if (!layers || !forwardFlops || !list)
      return malformed();
    RecomputeKind kind;
    kind.layer = entry.getName().str();
    kind.forwardFlops = forwardFlops.getValueAsDouble();
    for (Attribute element : list) {
      std::optional<RecomputeOption> option = readOption(element);
      if (!option)
        return malformed();
      kind.options.push_back(std::move(*option));
    }
    for (int64_t layer : layers.asArrayRef()) {
      if (layer < 0 || layer >= int64_t(1) << 32)
        return malformed();
      if (size_t(layer) >= options.layers.size())
        options.layers.resize(size_t(layer) + 1, -1);
      options.layers[size_t(layer)] = int64_t(options.kinds.size());
    }
    options.kinds.push_back(std::move(kind));
  }
  if (llvm::is_contained(options.layers, -1))
    return malformed();
  return options;
}

void lmc::writeRecomputeChoice(ModuleOp module, ArrayRef<int64_t> choice) {
  module->setAttr(kChoice, DenseI64ArrayAttr::get(module.getContext(), choice));
}

FailureOr<std::optional<std::vector<int64_t>>> lmc::readRecomputeChoice(ModuleOp module) {
  Attribute attribute = module->getAttr(kChoice);
  if (!attribute)
    return std::optional<std::vector<int64_t>>();
  auto choice = dyn_cast<DenseI64ArrayAttr>(attribute);
  if (!choice)
    return module.emitError("has a ") << kChoice << " that is not an array<i64: ...>";
  return std::make_optional(std::vector<int64_t>(choice.asArrayRef()));
}

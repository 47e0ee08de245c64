#include "compiler/emit/FusionNotes.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using nlohmann::json;

static json toJson(Attribute attribute) {
  return llvm::TypeSwitch<Attribute, json>(attribute)
      .Case([](BoolAttr flag) { return json(flag.getValue()); })
      .Case([](StringAttr text) { return json(text.getValue().str()); })
      .Case([](IntegerAttr number) { return json(number.getInt()); })
      .Case([](FloatAttr number) { return json(number.getValueAsDouble()); })
      .Case([](ArrayAttr list) {
        json entries = json::array();
        for (Attribute element : list)
          entries.push_back(toJson(element));
        return entries;
      })
      .Case([](DictionaryAttr fields) {
        json entries = json::object();
        for (NamedAttribute field : fields)
          entries[field.getName().str()] = toJson(field.getValue());
        return entries;
      })
      .Default([](Attribute other) {
        std::string text;
        llvm::raw_string_ostream(text) << other;
        return json(text);
      });
}

json lmc::fusionNotes(ModuleOp module) {
  auto report = module->getAttrOfType<ArrayAttr>("kern.fusion_report");
  if (!report)
    return json::object();
  json notes = {{"formed", json::array()}, {"refused", json::array()}, {"merged", json::array()}};
  for (auto entry : report.getAsRange<DictionaryAttr>()) {
    json fields = toJson(entry);
    std::string outcome = fields.value("outcome", "");
    fields.erase("outcome");
    if (!outcome.empty())
      notes[outcome].push_back(std::move(fields));
  }
  return notes;
}

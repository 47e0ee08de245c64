#include "runtime/plan/Operands.h"

#include <fmt/format.h>

namespace lmc::plan {

Operands operandsOf(const Command &command) {
  Operands operands = visitBody(command, [](const auto &body) { return operandsOf(body); });
  if (command.workspace() != -1)
    operands.push_back({"workspace", command.workspace(), Role::Scratch});
  return operands;
}

std::vector<const Launch *> launchesOf(const Command &command) {
  if (const Launch *launch = command.body_as_Launch())
    return {launch};
  if (!command.launches())
    return {};
  return {command.launches()->begin(), command.launches()->end()};
}

std::string commandName(CommandBody body) {
  std::string name;
  for (const char *c = EnumNameCommandBody(body); *c; ++c) {
    bool upper = *c >= 'A' && *c <= 'Z';
    if (upper && !name.empty())
      name += '_';
    name += char(upper ? *c - 'A' + 'a' : *c);
  }
  return name;
}

std::string placeOf(const Function &function, uint32_t command) {
  const Command &at = *function.commands()->Get(command);
  return fmt::format("command {} of {}, {} {}", command, function.name()->str(),
                     commandName(at.body_type()), at.source() ? at.source()->str() : "");
}

} // namespace lmc::plan

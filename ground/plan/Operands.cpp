#include "ground/plan/Operands.h"

#include "ground/plan/Names.h"

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

std::string commandName(const Command &command) {
  const Collective *collective = command.body_as_Collective();
  return names::snakeCase(collective ? EnumNameCollectiveKind(collective->kind())
                                     : EnumNameCommandBody(command.body_type()));
}

std::string placeOf(const Function &function, uint32_t command) {
  const Command &at = *function.commands()->Get(command);
  return fmt::format("command {} of {}, {} {}", command, function.name()->str(),
                     commandName(at), at.source() ? at.source()->str() : "");
}

} // namespace lmc::plan

// The settings of a run: those of a plan, with the changes of `lmc-run --set`.
#pragma once

#include "ground/config/Config.h"
#include "ground/settings/SettingTable.h"
#include "ground/support/Result.h"
#include "plan_generated.h"

#include <string>
#include <vector>

namespace lmc {

struct RunSettings {
  // The values of all keys except those of [model]. A key that the plan lacks has its default.
  Config config;
  SettingTable table; // the texts of all settings, each with its origin

  // Reads the settings of `plan` and applies `overrides` ("section.key=VALUE") in order. Then
  // computes the defaults that derive from changed settings. Error: the plan lacks an overridden
  // key, or does not allow it to change at run time.
  static Result<RunSettings> read(const plan::Plan &plan,
                                  const std::vector<std::string> &overrides);
};

} // namespace lmc

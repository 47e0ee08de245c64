// The settings of a run: those of a plan, with the changes of `lmc-run --set`. They are read by the
// table of keys that reads a job's TOML file.
#pragma once

#include "ground/config/Config.h"
#include "ground/settings/SettingTable.h"
#include "ground/support/Result.h"
#include "plan_generated.h"

#include <string>
#include <vector>

namespace lmc {

struct RunSettings {
  // The values, without those of [model]; a key that the plan does not have is at its default.
  Config config;
  SettingTable table; // the texts of all settings, each with its origin

  // Reads the settings of `plan` and applies `overrides` in order. Each has the form
  // "section.key=VALUE", as for `lmc compile --set`. The plan must have the key and allow it to
  // change at run time. Afterwards each default that follows another setting is computed from that
  // setting's value.
  static Result<RunSettings> read(const plan::Plan &plan,
                                  const std::vector<std::string> &overrides);
};

} // namespace lmc

// The jobs of models/configs, for tests.
#pragma once

#include "ground/config/Config.h"
#include "models/families/Families.h"

#include <gtest/gtest.h>

namespace lmc {

// Loads models/configs/NAME with `--set` overrides. The test fails if the job has a mistake.
inline Config shippedConfig(const std::string &name,
                            const std::vector<std::string> &overrides = {}) {
  Result<Config> config =
      loadConfig(LMC_SOURCE_DIR "/models/configs/" + name, overrides, modelFamilies());
  EXPECT_TRUE(bool(config)) << config.error().message;
  return config ? std::move(*config) : Config();
}

} // namespace lmc

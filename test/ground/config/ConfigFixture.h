// A folder of its own for each test, and shorthands to load what is written there.
#pragma once

#include "ground/config/Config.h"
#include "models/families/Families.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace lmc {

// A complete job that each test changes in one place.
inline const std::string kModel = R"([model]
vocab_size = 128
hidden_size = 64
intermediate_size = 176
num_hidden_layers = 2
num_attention_heads = 4
)";
inline const std::string kTraining = R"([training]
sequence_length = 32
batch_size = 8
micro_batch_size = 2
train_iters = 100
)";

class ConfigTest : public testing::Test {
protected:
  void SetUp() override {
    const auto *info = testing::UnitTest::GetInstance()->current_test_info();
    directory = std::filesystem::temp_directory_path() /
                ("lmc-config-" + std::to_string(getpid()) + "-" + info->name());
    std::filesystem::create_directories(directory);
  }
  void TearDown() override { std::filesystem::remove_all(directory); }

  std::string write(const std::string &name, const std::string &text) {
    const std::string path = directory / name;
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  // Loads `text` as job.toml. What is returned has the path cut down to that name.
  std::string errorsOf(const std::string &text, const std::vector<std::string> &overrides = {}) {
    const std::string path = write("job.toml", text);
    Result<Config> loaded =
        loadConfig(path, overrides, families, checkDevice, /*phase=*/0, listParameters);
    if (loaded) {
      config = std::move(*loaded);
      return "";
    }
    std::string message = loaded.error().message;
    const std::string prefix = directory.string() + "/";
    for (size_t at = message.find(prefix); at != std::string::npos; at = message.find(prefix))
      message.erase(at, prefix.size());
    return message;
  }

  std::filesystem::path directory;
  ModelFamilies families = modelFamilies();
  CheckDevice checkDevice; // null: every target.device is sound
  ListParameters listParameters; // null: patterns of parameters are not checked
  Config config;
};

} // namespace lmc

// Hand-written kernels for the executor's own tests.
#pragma once

#include "test/simt/SimtKernel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

namespace lmc::simt::test {

// Compiles `body` as `kernel(parameters)`; a failure to compile fails the test.
inline Kernel build(const std::string &parameters, const std::string &body, uint32_t blocks = 1,
                    uint32_t threads = 32, uint32_t sharedBytes = 0) {
  Source source;
  source.name = "kernel";
  source.text = "#include \"lmc/vector_io.cuh\"\nusing namespace lmc;\n"
                "extern \"C\" __global__ void __launch_bounds__(" +
                std::to_string(threads) + ") kernel(" + parameters + ") {\n" + body + "\n}\n";
  source.grid = {blocks, 1, 1};
  source.threads = threads;
  source.sharedBytes = sharedBytes;
  auto kernel = compile(source);
  if (!kernel) {
    ADD_FAILURE() << kernel.error().message;
    std::abort();
  }
  return *kernel;
}

// Returns `text` with `to` in the first place of `from`, which must be there: a planted mistake.
inline std::string replaced(std::string text, const std::string &from, const std::string &to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

template <typename T> Argument input(const std::vector<T> &values) {
  return {const_cast<T *>(values.data()), values.size() * sizeof(T), Access::Read};
}
template <typename T> Argument result(std::vector<T> &values) {
  return {values.data(), values.size() * sizeof(T), Access::Write};
}
template <typename T> Argument updated(std::vector<T> &values) {
  return {values.data(), values.size() * sizeof(T), Access::ReadWrite};
}

inline std::vector<float> randomFloats(size_t count, unsigned seed = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float &value : values)
    value = normal(generator);
  return values;
}

} // namespace lmc::simt::test

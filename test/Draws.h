// How many drawn cases a test tries.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>

namespace lmc::test {

// Returns `count`, or LMC_FUZZ times as many if that environment variable is set (LMC_FUZZ=0.5
// halves the count); at least 1. `./dev test long` runs every test that has "rawn" in its name
// with a large LMC_FUZZ, so a test that calls this function must have such a name.
inline int64_t drawCount(int64_t count) {
  const auto *test = testing::UnitTest::GetInstance()->current_test_info();
  const std::string name =
      test ? std::string(test->test_suite_name()) + "." + test->name() : "no test";
  EXPECT_NE(name.find("rawn"), std::string::npos) << name << " has no \"Drawn\" in its name";
  const char *factor = std::getenv("LMC_FUZZ");
  if (!factor)
    return count;
  const auto draws = std::max<int64_t>(int64_t(double(count) * std::atof(factor)), 1);
  std::cout << "draws: " << draws << " in " << name << "\n";
  return draws;
}

} // namespace lmc::test

#include "runtime/device/cpu/HostCommands.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

using namespace lmc::cpu;

TEST(CopyCommand, CopiesAnyNumberOfBytes) {
  for (int64_t bytes : {1, 2, 8, 1000, 65536, 65537, 800000}) {
    std::vector<char> x(size_t(bytes) + 1), d(x.size(), 0);
    std::iota(x.begin(), x.end(), char(1));
    CopyCommand{d.data(), x.data(), bytes, 1, 0, 0}.run(3);
    EXPECT_EQ(d.back(), 0) << "written past the end";
    x.back() = 0;
    EXPECT_EQ(d, x);
  }
}

#include "compiler/targets/cuda/DeviceLibrary.h"

#include <gtest/gtest.h>

using namespace lmc::codegen;

TEST(DeviceLibrary, HoldsTheFilesAsTheyAre) {
  const DeviceHeader *platform = nullptr;
  for (const DeviceHeader &header : deviceHeaders())
    if (header.name == "lmc/platform.cuh")
      platform = &header;
  ASSERT_NE(platform, nullptr);
  EXPECT_TRUE(platform->text.contains("__device__ inline Bits<Bytes> loadGlobal"));
}

TEST(DeviceLibrary, InlinesEachHeaderOnceBeforeItsUse) {
  std::string whole = inlineDeviceHeaders("// mine\n"
                                          "#include \"lmc/vector_io.cuh\"\n"
                                          "#include \"lmc/platform.cuh\"\n"
                                          "#include \"other.h\"\n"
                                          "int last;\n");
  llvm::StringRef text = whole;
  EXPECT_EQ(text.count("struct bf16 {"), 1u);
  EXPECT_LT(text.find("struct bf16 {"), text.find("struct Vec {"));
  EXPECT_LT(text.find("struct Vec {"), text.find("int last;"));
  EXPECT_EQ(text.count("#include"), 1u);
  EXPECT_TRUE(text.contains("#include \"other.h\""));
  EXPECT_FALSE(text.contains("#pragma once"));
}

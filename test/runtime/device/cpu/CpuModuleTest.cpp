#include "runtime/device/cpu/CpuModule.h"
#include "test/runtime/checkpoint/TestFolder.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

using namespace lmc;

namespace {

// Compiles `text`, C code, and returns it as a module of a plan.
std::vector<uint8_t> moduleOf(const lmc::test::TestFolder &folder, const std::string &text) {
  std::ofstream(folder / "module.c") << text;
  const std::string command =
      "cc -shared -fPIC -o '" + (folder / "module.so") + "' '" + (folder / "module.c") + "'";
  EXPECT_EQ(std::system(command.c_str()), 0);
  std::ifstream file(folder / "module.so", std::ios::binary);
  plan::ModuleT module;
  module.target = "cpu";
  module.image.assign(std::istreambuf_iterator<char>(file), {});
  flatbuffers::FlatBufferBuilder builder;
  builder.Finish(plan::CreateModule(builder, &module));
  return {builder.GetBufferPointer(), builder.GetBufferPointer() + builder.GetSize()};
}

} // namespace

TEST(CpuModule, KeepsItsCodeWhileAnotherModuleIsLoaded) {
  const lmc::test::TestFolder folder;
  const auto one = moduleOf(folder, "int number(void) { return 1; }");
  const auto two = moduleOf(folder, "int number(void) { return 2; }");
  auto first = cpu::CpuModule::load(*flatbuffers::GetRoot<plan::Module>(one.data()));
  auto second = cpu::CpuModule::load(*flatbuffers::GetRoot<plan::Module>(two.data()));
  ASSERT_TRUE(first && second);
  auto call = [](const cpu::CpuModule &module) {
    return reinterpret_cast<int (*)()>(*module.find("number"))();
  };
  EXPECT_EQ(call(**first), 1);
  EXPECT_EQ(call(**second), 2);
}

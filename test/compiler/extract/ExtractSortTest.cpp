// A command of several kernels as one program, compiled for the host with plain loops in the place
// of the kernels. test/simt/kernels/CommandsTest.cpp runs the programs of all commands.
#include "test/compiler/extract/HostProgram.h"

#include <gmock/gmock.h>

using namespace lmc;
using namespace lmc::test;
using plan::DType;
using testing::HasSubstr;

// The kernels of a command are in one program, in their order, and share its workspace.
TEST(ExtractKernel, BothKernelsOfASortAreInOneProgram) {
  CudaPlan plan;
  plan::SortRowsT op;
  op.choices = 300;
  op.count = 9;
  op.experts = plan.slice(DType::I32, {100, 3});
  op.offsets = plan.slice(DType::I32, {10});
  op.rows = plan.slice(DType::I32, {300});
  op.places = plan.slice(DType::I32, {300});
  plan.command(op);
  const uint32_t workspace = plan.slice(DType::I8, {9 * 4}, 1);
  auto &command = *plan.plan.functions[0]->commands[0];
  command.workspace = int(workspace);
  const std::string counting = "{ const int *experts = at(arguments, 0);\n"
                               "  int *counts = at(arguments, 1);\n"
                               "  for (int e = 0; e < kExperts; ++e) counts[e] = 0;\n"
                               "  for (int c = 0; c < kChoices; ++c) ++counts[experts[c]]; }";
  const std::string sorting = "{ const int *experts = at(arguments, 0);\n"
                              "  const int *counts = at(arguments, 1);\n"
                              "  int *offsets = at(arguments, 2);\n"
                              "  int *rows = at(arguments, 3);\n"
                              "  int *places = at(arguments, 4);\n"
                              "  int next[kExperts], first = 0;\n"
                              "  for (int e = 0; e < kExperts; ++e) {\n"
                              "    offsets[e] = next[e] = first;\n"
                              "    first += counts[e];\n"
                              "  }\n"
                              "  offsets[kExperts] = first;\n"
                              "  for (int c = 0; c < kChoices; ++c)\n"
                              "    rows[places[c] = next[experts[c]]++] = c; }";
  for (const auto &[name, body, own] :
       {std::tuple("counting", counting, std::vector<uint32_t>{op.experts, workspace}),
        std::tuple("sorting", sorting,
                   std::vector<uint32_t>{op.experts, workspace, op.offsets, op.rows, op.places})}) {
    auto launch = std::make_unique<plan::LaunchT>();
    launch->args = own;
    launch->kernel = plan.kernel(
        name,
        "constexpr int kExperts = 9, kChoices = 300;\n"
        "static int *at(void **arguments, int i) { return *static_cast<int **>(arguments[i]); }\n"
        "extern \"C\" void " +
            std::string(name) + "(void **arguments) " + body);
    command.launches.push_back(std::move(launch));
  }
  HostProgram program;
  for (const char *name : {"counting", "sorting"}) {
    auto text = plan.extract(name);
    ASSERT_TRUE(bool(text)) << llvm::toString(text.takeError());
    EXPECT_EQ(program.run(*text), 0) << program.log();
    EXPECT_THAT(program.log(), HasSubstr("check: 0 of 610 elements wrong"));
    EXPECT_THAT(program.log(), HasSubstr("  counting 1.0000 ms"));
    EXPECT_THAT(program.log(), HasSubstr("  sorting 1.0000 ms"));
  }
}

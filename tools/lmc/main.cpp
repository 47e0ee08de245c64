// lmc: compiles a training job into a plan, explains plans, and shows runs.
#include "compiler/driver/Registration.h"
#include "ground/support/Release.h"
#include "tools/lmc/Commands.h"

#include <malloc.h>

using namespace lmc;

int main(int argc, char **argv) {
  // A search makes and frees many plans. Keeping freed memory in the process saves a tenth of the
  // time of a compile.
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_MMAP_THRESHOLD, 32 << 20); // the maximum that glibc allows
  mallopt(M_TOP_PAD, 64 << 20);
  registerTargets();
  CommandLine line("lmc", kRelease.text, "The compiler for LLM pre-training.");
  const LmcCommand commands[] = {addCompileCommand(line), addExplainCommand(line),
                                 addReportCommand(line), addConfigCommand(line)};
  line.footer(
      "lmc COMMAND --help tells more. lmc-opt takes the options of MLIR and LLVM.\n"
      "Exit codes: 0 done, 1 the machine failed, 2 a mistake in what was given, 3 the plan\n"
      "does not fit its memory budget.");
  if (std::optional<int> done = line.parse(argc, argv))
    return *done;
  for (const LmcCommand &command : commands)
    if (command.command->chosen())
      return command.run();
  return 0;
}

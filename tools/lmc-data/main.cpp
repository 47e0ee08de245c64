// lmc-data: converts text to token files, inspects these and checkpoints, and exports weights.

#include "ground/support/Release.h"
#include "ground/support/Signals.h"
#include "tools/lmc-data/Commands.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>

using namespace lmc;

// Runs a command, and turns exceptions of libraries (a lack of memory, too) into Errors.
static Result<void> runCaught(const DataCommand &command) {
  try {
    LMC_TRY(command.run());
    if (std::fflush(stdout) != 0)
      return machineError("cannot write the report: {}", std::strerror(errno));
    return {};
  } catch (const std::bad_alloc &) {
    return Error{"out of memory", ExitCode::Failure};
  } catch (const std::exception &failure) {
    return Error{failure.what(), ExitCode::Failure};
  }
}

int main(int argc, char **argv) {
  startSignalThread();
  CommandLine line(
      "lmc-data", kRelease.text,
      "Makes token files out of text, looks into them and into checkpoints, and exports "
      "weights.");
  const DataCommand commands[] = {addPackCommand(line),      addInspectCommand(line),
                                  addDumpCommand(line),      addVerifyCommand(line),
                                  addTokenizerCommand(line), addExportCommand(line)};
  line.footer("lmc-data COMMAND --help tells more. Token files of llm.c, nanoGPT and Megatron\n"
              "are read too.\n"
              "Exit codes: 0 done, 1 the machine failed (disk, memory), 2 the input is wrong.");
  if (std::optional<int> done = line.parse(argc, argv))
    return *done;
  for (const DataCommand &command : commands) {
    if (!command.command->chosen())
      continue;
    if (Result<void> done = runCaught(command); !done) {
      fmt::print(stderr, "lmc-data: error: {}\n", done.error().message);
      return static_cast<int>(done.error().code);
    }
  }
  return static_cast<int>(ExitCode::Success);
}

// lmc-data: makes token files out of text, and looks into them.

#include "tools/lmc-data/CommandLine.h"
#include "tools/lmc-data/Commands.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <string_view>

using namespace lmc;

static constexpr const char *kHelp = R"(lmc-data makes token files out of text, and looks into them.

  lmc-data pack IN... -o OUT.bin    text or JSON lines to a token file
  lmc-data inspect FILE             what a token file holds
  lmc-data verify FILE              reads all of it and checks it

lmc-data COMMAND --help tells more. Token files of llm.c and nanoGPT are read too.
Exit codes: 0 done, 1 the machine failed (disk, memory), 2 the input is wrong.
)";

static Result<void> runCommand(int argc, char **argv) {
  std::string_view name = argc > 1 ? argv[1] : "";
  if (name == "pack")
    return packCommand(argc - 1, argv + 1);
  if (name == "inspect")
    return inspectCommand(argc - 1, argv + 1);
  if (name == "verify")
    return verifyCommand(argc - 1, argv + 1);
  if (name == "--help" || name == "-h") {
    fmt::print("{}", kHelp);
    return {};
  }
  if (name.empty())
    return Error{"no command given: pack, inspect or verify; see: lmc-data --help"};
  return Error{
      fmt::format("unknown command '{}': pack, inspect or verify; see: lmc-data --help", name)};
}

// Exceptions come from the libraries: no memory, or a report that cannot be written.
static Result<void> runCaught(int argc, char **argv) {
  try {
    LMC_TRY(runCommand(argc, argv));
    if (std::fflush(stdout) != 0)
      return Error{fmt::format("cannot write the report: {}", std::strerror(errno)),
                   ExitCode::Failure};
    return {};
  } catch (const std::bad_alloc &) {
    return Error{"out of memory", ExitCode::Failure};
  } catch (const std::exception &failure) {
    return Error{failure.what(), ExitCode::Failure};
  }
}

int main(int argc, char **argv) {
  Result<void> done = runCaught(argc, argv);
  if (done)
    return static_cast<int>(ExitCode::Success);
  fmt::print(stderr, "lmc-data: error: {}\n", done.error().message);
  return static_cast<int>(done.error().code);
}

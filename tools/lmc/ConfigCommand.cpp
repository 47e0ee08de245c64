// lmc config: prints the keys that a TOML file may have, for people or for editors.
#include "ground/config/Config.h"
#include "models/families/Families.h"
#include "tools/lmc/Commands.h"
#include "tools/lmc/Job.h"

#include "llvm/Support/raw_ostream.h"

namespace lmc {
namespace {

struct ConfigArguments {
  bool jsonSchema = false;
  std::string output;
};

int runConfig(const ConfigArguments &arguments) {
  const std::string text =
      arguments.jsonSchema ? configSchema(modelFamilies()) : configReference(modelFamilies());
  if (arguments.output.empty())
    llvm::outs() << text;
  else if (std::error_code error = writeAtomically(arguments.output, text))
    return fail("lmc config: error: cannot write " + arguments.output + ": " + error.message(),
                ExitCode::Failure);
  return 0;
}

} // namespace

LmcCommand addConfigCommand(CommandLine &line) {
  auto arguments = std::make_shared<ConfigArguments>();
  Command &command = line.command("config", "print every key of the TOML, as docs/config.md does");
  command.flag("--json-schema", arguments->jsonSchema,
               "print a JSON Schema instead, with which editors complete and check a TOML file");
  command.option("-o", "FILE", arguments->output, "file to write (default: standard output)");
  return {&command, [=] { return runConfig(*arguments); }};
}

} // namespace lmc

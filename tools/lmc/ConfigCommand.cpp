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

Result<int> runConfig(const ConfigArguments &arguments) {
  const std::string text =
      arguments.jsonSchema ? configSchema(modelFamilies()) : configReference(modelFamilies());
  if (arguments.output.empty())
    llvm::outs() << text;
  else
    LMC_TRY(writeAtomically(arguments.output, text));
  return 0;
}

} // namespace

LmcCommand addConfigCommand(CommandLine &line) {
  auto arguments = std::make_shared<ConfigArguments>();
  Command &command = line.command("config", "print every key of the TOML, as docs/config.md does");
  command.flag("--json-schema", arguments->jsonSchema,
               "print a JSON Schema instead, with which editors complete and check a TOML file");
  command.option("-o", "FILE", arguments->output, "file to write (default: standard output)");
  return {&command, [=] { return exitCodeOf(runConfig(*arguments), "lmc config: error: "); }};
}

} // namespace lmc

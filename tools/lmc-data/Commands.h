// Each function adds a command of lmc-data. It returns the command and the function that runs it.
#pragma once

#include "runtime/data/TokenFile.h"
#include "tools/support/CommandLine.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

namespace lmc {

struct DataCommand {
  const Command *command;
  std::function<Result<void>()> run;
};

DataCommand addPackCommand(CommandLine &line);
DataCommand addInspectCommand(CommandLine &line);
DataCommand addVerifyCommand(CommandLine &line);
DataCommand addDumpCommand(CommandLine &line);
DataCommand addTokenizerCommand(CommandLine &line);
DataCommand addExportCommand(CommandLine &line);

// Prints the report on a checkpoint. With `verify`, reads all files. Error: a file is damaged.
Result<void> inspectCheckpoint(const std::string &path, bool verify, bool json);

// Returns the token that ends the documents of the file: `given` if it is set, else the token in
// the file's table of documents. Without a table, guesses the id of GPT-2 or of Llama 3.
std::optional<uint32_t> separatorOf(const TokenFile &file, std::optional<uint32_t> given);

// Adds an option. parse(text) returns the option's value as a Result. An error of parse() gets the
// prefix "NAME=TEXT: ". `target` must live until the command line is parsed.
template <typename Parse, typename Target>
void addParsedOption(Command &command, const std::string &name, const std::string &placeholder,
                     Parse parse, Target &target, const std::string &description) {
  command.option(
      name, placeholder,
      [name, parse, &target](const std::string &text) -> Result<void> {
        auto value = parse(text);
        if (!value)
          return userError("{}={}: {}", name, text, value.error().message);
        target = std::move(*value);
        return {};
      },
      description);
}

// Adds the option --format. `format` must live until the command line is parsed.
void addFormatOption(Command &command, DataFormat &format);

// Adds the options for reading documents. `options` must live until the command line is parsed.
struct DocumentOptions;
void addDocumentOptions(Command &command, DocumentOptions &options);

} // namespace lmc

// The command lines of lmc, lmc-run and lmc-data: options, help, and errors of one line that
// suggest the name that a mistyped one is closest to.
//
// CLI11 parses. It stays out of this header because it throws, and the compiler's sources are
// compiled without exceptions.
#pragma once

#include "runtime/support/Result.h"

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace lmc {

// The options and arguments of a program, or of one of its commands. Variables that receive
// values must live until CommandLine::parse returns. `names` is "--output" or "-o,--output";
// `placeholder` is what the help shows for a value: "FILE".
class Command {
public:
  explicit Command(CLI::App &app) : app(app) {}

  // An option with a value that is not empty. Given several times, the last one counts.
  void option(const std::string &names, const std::string &placeholder, std::string &value,
              const std::string &description);
  // An option whose text `read` understands; an Error of it is one of the command line.
  void option(const std::string &names, const std::string &placeholder,
              std::function<Result<void>(const std::string &text)> read,
              const std::string &description);
  // An option that adds a value each time, or several where they are `separated` by commas.
  void list(const std::string &names, const std::string &placeholder,
            std::vector<std::string> &values, const std::string &description,
            bool separated = false);
  void flag(const std::string &names, bool &value, const std::string &description);
  // What stands on the command line without a name: exactly one, or one at least.
  void argument(const std::string &placeholder, std::string &value, const std::string &description);
  void arguments(const std::string &placeholder, std::vector<std::string> &values,
                 const std::string &description);

  // Options that are added from here on stand under `title` in the help; "" hides them.
  void group(const std::string &title);
  // Text at the end of the help.
  void footer(const std::string &text);

  // Whether the user chose this command.
  bool chosen() const;

protected:
  CLI::App &app;
};

class CommandLine : public Command {
public:
  // `name` is the program's; --help and --version are added.
  CommandLine(const std::string &name, const std::string &version, const std::string &description);
  ~CommandLine();

  // A command of the program: `NAME COMMAND`. A program with commands needs one of them.
  Command &command(const std::string &name, const std::string &description);

  // Gives the variables their values. Returns an exit code if the program is done: 0 after it
  // printed its help or version, ExitCode::UserError after it printed what is wrong to stderr.
  std::optional<int> parse(int argc, char **argv);

private:
  explicit CommandLine(std::unique_ptr<CLI::App> root);

  std::unique_ptr<CLI::App> root;
  std::list<Command> commands;
};

// A whole number within [least, most], the value of `option` ("--steps").
Result<uint64_t> parseNumber(const std::string &option, const std::string &text, uint64_t least,
                             uint64_t most);

} // namespace lmc

// Parses the command lines of lmc, lmc-run and lmc-data, and prints their help.
//
// This header does not include CLI11, the parser, because CLI11 throws exceptions, and the
// compiler's sources are compiled without exceptions.
#pragma once

#include "ground/support/Result.h"

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

// The options and arguments of a program, or of one of its commands. `names` is, for example,
// "-o,--output". `placeholder`, such as "FILE", stands for the value in the help. Variables that
// receive values must live until CommandLine::parse returns.
class Command {
public:
  explicit Command(CLI::App &app) : app(app) {}

  // Adds an option whose value must not be empty. If the user repeats it, the last value counts.
  void option(const std::string &names, const std::string &placeholder, std::string &value,
              const std::string &description);
  // Adds an option whose value `read` reads. parse() reports an Error of `read`.
  void option(const std::string &names, const std::string &placeholder,
              std::function<Result<void>(const std::string &text)> read,
              const std::string &description);
  // Adds an option whose value is a whole number in [least, most].
  template <typename Number>
  void number(const std::string &name, const std::string &placeholder, uint64_t least,
              uint64_t most, Number &value, const std::string &description);
  // Adds an option that takes one of two words: `no` sets `value` to false, `yes` sets it to true.
  template <typename Boolean>
  void either(const std::string &name, const std::string &no, const std::string &yes,
              Boolean &value, const std::string &description);
  // Adds an option that the user may repeat. Each use adds its value to `values`. If `separated` is
  // true, a use may give several values with commas between them.
  void list(const std::string &names, const std::string &placeholder,
            std::vector<std::string> &values, const std::string &description,
            bool separated = false);
  void flag(const std::string &names, bool &value, const std::string &description);
  // Add positional arguments: argument() adds exactly one, arguments() one or more.
  void argument(const std::string &placeholder, std::string &value, const std::string &description,
                bool required = true);
  void arguments(const std::string &placeholder, std::vector<std::string> &values,
                 const std::string &description);

  // Puts options that are added later under `title` in the help. The title "" hides them.
  void group(const std::string &title);
  // Sets the text at the end of the help.
  void footer(const std::string &text);

  bool chosen() const;

protected:
  CLI::App &app;
};

class CommandLine : public Command {
public:
  // `name` is the program's name. The options --help and --version are added.
  CommandLine(const std::string &name, const std::string &version, const std::string &description);
  ~CommandLine();

  // Adds a command. If a program has commands, the user must give one of them.
  Command &command(const std::string &name, const std::string &description);

  // Parses the command line and sets the variables. Returns an exit code if the program must end: 0
  // after its help or version, ExitCode::UserError after an error.
  std::optional<int> parse(int argc, char **argv);

private:
  explicit CommandLine(std::unique_ptr<CLI::App> root);

  std::unique_ptr<CLI::App> root;
  std::list<Command> commands;
};

// Parses `text`, the value of `option` ("--steps"), as a whole number in [least, most].
Result<uint64_t> parseNumber(const std::string &option, const std::string &text, uint64_t least,
                             uint64_t most);

template <typename Number>
void Command::number(const std::string &name, const std::string &placeholder, uint64_t least,
                     uint64_t most, Number &value, const std::string &description) {
  option(
      name, placeholder,
      [name, least, most, &value](const std::string &text) -> Result<void> {
        LMC_LET(number, parseNumber(name, text, least, most));
        value = static_cast<int64_t>(*number);
        return {};
      },
      description);
}

template <typename Boolean>
void Command::either(const std::string &name, const std::string &no, const std::string &yes,
                     Boolean &value, const std::string &description) {
  option(
      name, no + "|" + yes,
      [name, no, yes, &value](const std::string &text) -> Result<void> {
        if (text != no && text != yes)
          return Error{name + "=" + text + ": expected " + no + " or " + yes};
        value = text == yes;
        return {};
      },
      description);
}

} // namespace lmc

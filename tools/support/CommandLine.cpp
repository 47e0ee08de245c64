#include "tools/support/CommandLine.h"
#include "ground/support/Nearest.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>

namespace lmc {
namespace {

// In the help, descriptions start in column kColumn, and lines have at most kWidth columns.
constexpr size_t kColumn = 28, kWidth = 100;

// Breaks a text into lines of at most kWidth columns, which all start in column `indent`.
std::string wrap(const std::string &text, size_t indent) {
  std::string result;
  size_t column = indent;
  for (const std::string &word : CLI::detail::split(text, ' ')) {
    if (column > indent && column + 1 + word.size() > kWidth) {
      result += "\n" + std::string(indent, ' ');
      column = indent;
    }
    result += (column > indent ? " " : "") + word;
    column += (column > indent ? 1 : 0) + word.size();
  }
  return result;
}

// Returns the help of an option: its name, with the description beside or below it.
std::string entry(const std::string &name, const std::string &description) {
  std::string line = "  " + name;
  line += line.size() + 2 > kColumn ? "\n" + std::string(kColumn, ' ')
                                    : std::string(kColumn - line.size(), ' ');
  return line + wrap(description, kColumn) + "\n";
}

class HelpFormatter : public CLI::Formatter {
public:
  HelpFormatter() { label("Positionals", "Arguments"); }

  std::string make_help(const CLI::App *app, std::string name,
                        CLI::AppFormatMode mode) const override {
    const std::string footer = app->get_footer();
    const std::string help = make_usage(app, name) + "\n" + wrap(app->get_description(), 0) + "\n" +
                             make_positionals(app) + make_groups(app, mode) +
                             make_subcommands(app, mode) +
                             (footer.empty() ? "" : "\n" + footer + "\n");
    // Removes one of two empty lines, which make_group() and CLI11 may write at the same place.
    return CLI::detail::trim_copy(CLI::detail::find_and_replace(help, "\n\n\n", "\n\n")) + "\n";
  }
  std::string make_usage(const CLI::App *app, std::string name) const override {
    std::string usage = name + (app->get_subcommands({}).empty() ? "" : " COMMAND");
    for (const CLI::Option *option : app->get_options())
      if (option->get_positional())
        usage += " " + make_option_name(option, true);
    return usage + " [options]\n";
  }
  std::string make_group(std::string group, bool isPositional,
                         std::vector<const CLI::Option *> options) const override {
    std::string text = "\n" + group + ":\n";
    for (const CLI::Option *option : options)
      text += make_option(option, isPositional);
    return text;
  }
  std::string make_option(const CLI::Option *option, bool isPositional) const override {
    std::string name = make_option_name(option, isPositional);
    if (!isPositional && option->get_items_expected_max() != 0) // true unless the option is a flag
      name += (option->get_lnames().empty() ? " " : "=") + option->get_type_name();
    return entry(name, option->get_description());
  }
  std::string make_option_name(const CLI::Option *option, bool isPositional) const override {
    if (isPositional)
      return option->get_name(true) + (option->get_expected_max() > 1 ? "..." : "");
    return CLI::detail::find_and_replace(option->get_name(false, true), ",", ", ");
  }
  std::string make_subcommand(const CLI::App *command) const override {
    return entry(command->get_name(), command->get_description());
  }
};

// An error in the value of an option, whose message comes from this program.
struct BadValue : CLI::ParseError {
  explicit BadValue(const std::string &message)
      : ParseError("BadValue", message, CLI::ExitCodes::ValidationError) {}
};

// Returns the command that the user chose, or `root` if there is none.
const CLI::App &chosenOf(const CLI::App &root) {
  const auto commands = root.get_subcommands();
  return commands.empty() ? root : *commands.back();
}

// Returns the error text for `extra`, an argument that belongs to no option.
std::string unknown(const CLI::App &root, const std::string &extra) {
  const CLI::App &command = chosenOf(root);
  std::vector<std::string> names;
  if (extra.size() > 1 && extra[0] == '-') {
    for (const CLI::Option *option : command.get_options())
      for (const std::string &name : option->get_lnames())
        names.push_back("--" + name);
    return "unknown option " + extra + suggestion(extra.substr(0, extra.find('=')), names);
  }
  for (const CLI::App *other : command.get_subcommands({}))
    names.push_back(other->get_name());
  if (names.empty())
    return fmt::format("'{}' is one argument too many", extra);
  return fmt::format("unknown command '{}'", extra) + suggestion(extra, names);
}

std::string complaint(const CLI::App &root, const std::vector<std::string> &arguments,
                      const CLI::ParseError &error) {
  // Reports unknown options first: a missing required option may be one of them, mistyped.
  if (const auto extras = root.remaining(true); !extras.empty())
    return unknown(root, extras.front());
  if (dynamic_cast<const BadValue *>(&error))
    return error.what();
  if (dynamic_cast<const CLI::ArgumentMismatch *>(&error)) {
    for (const std::string &argument : arguments)
      for (const CLI::Option *option : chosenOf(root).get_options())
        for (const std::string &name : option->get_lnames())
          if (option->get_items_expected_max() == 0 && argument.starts_with("--" + name + "="))
            return fmt::format("option {} takes no value", argument);
    return fmt::format("option {} needs a value", arguments.back());
  }
  if (dynamic_cast<const CLI::RequiredError *>(&error)) {
    const CLI::App &command = chosenOf(root);
    if (!command.get_subcommands({}).empty())
      return "no command given";
    for (const CLI::Option *option : command.get_options())
      if (option->get_required() && option->count() == 0)
        return fmt::format("no {} given", option->get_name(true));
  }
  return error.what();
}

} // namespace

void Command::option(const std::string &names, const std::string &placeholder, std::string &value,
                     const std::string &description) {
  const std::string name = names.substr(names.find(',') + 1);
  option(
      names, placeholder,
      [name, &value](const std::string &text) -> Result<void> {
        if (text.empty())
          return Error{name + " needs a value"};
        value = text;
        return {};
      },
      description);
}

void Command::option(const std::string &names, const std::string &placeholder,
                     std::function<Result<void>(const std::string &text)> read,
                     const std::string &description) {
  app.add_option_function<std::string>(
         names,
         [read = std::move(read)](const std::string &text) {
           if (Result<void> done = read(text); !done)
             throw BadValue(done.error().message);
         },
         description)
      ->type_name(placeholder)
      ->take_last();
}

void Command::list(const std::string &names, const std::string &placeholder,
                   std::vector<std::string> &values, const std::string &description,
                   bool separated) {
  CLI::Option *option = app.add_option(names, values, description)
                            ->type_name(placeholder)
                            ->allow_extra_args(false)
                            ->take_all();
  if (separated)
    option->delimiter(',');
}

void Command::flag(const std::string &names, bool &value, const std::string &description) {
  app.add_flag(names, value, description)->disable_flag_override();
}

void Command::argument(const std::string &placeholder, std::string &value,
                       const std::string &description, bool required) {
  app.add_option(placeholder, value, description)->required(required);
}

void Command::arguments(const std::string &placeholder, std::vector<std::string> &values,
                        const std::string &description) {
  app.add_option(placeholder, values, description)->required();
}

void Command::group(const std::string &title) { app.option_defaults()->group(title); }

void Command::footer(const std::string &text) { app.footer(text); }

bool Command::chosen() const { return app.parsed(); }

CommandLine::CommandLine(const std::string &name, const std::string &version,
                         const std::string &description)
    : CommandLine(std::make_unique<CLI::App>(description, name)) {
  app.formatter(std::make_shared<HelpFormatter>());
  app.set_help_flag("-h,--help", "print this help");
  app.set_version_flag("--version", name + " " + version, "print the version");
}

CommandLine::CommandLine(std::unique_ptr<CLI::App> app) : Command(*app), root(std::move(app)) {}

CommandLine::~CommandLine() = default;

Command &CommandLine::command(const std::string &name, const std::string &description) {
  app.require_subcommand(1);
  return commands.emplace_back(*app.add_subcommand(name, description)->group("Commands"));
}

std::optional<int> CommandLine::parse(int argc, char **argv) {
  std::vector<std::string> arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const size_t equals = argument.find('=');
    // CLI11 would take the next argument as the value of "--name=", and "=x" as that of "-o=x".
    if (argument.starts_with("-") &&
        (equals + 1 == argument.size() || (equals == 2 && argument[1] != '-'))) {
      arguments.push_back(argument.substr(0, equals));
      arguments.push_back(argument.substr(equals + 1));
    } else {
      arguments.push_back(argument);
    }
  }
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
    return std::nullopt;
  } catch (const CLI::Success &asked) {
    return app.exit(asked);
  } catch (const CLI::ParseError &error) {
    const CLI::App &command = chosenOf(app);
    std::string message = complaint(app, arguments, error);
    if (message.back() != '?')
      message += fmt::format("; see: {}{}{} --help", app.get_name(), &command == &app ? "" : " ",
                             &command == &app ? "" : command.get_name());
    fmt::print(stderr, "{}: error: {}\n", app.get_name(), message);
    return int(ExitCode::UserError);
  }
}

Result<uint64_t> parseNumber(const std::string &option, const std::string &text, uint64_t least,
                             uint64_t most) {
  uint64_t value = 0;
  auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size() || value < least || value > most)
    return userError("{}={}: expected a whole number from {} to {}", option, text, least, most);
  return value;
}

} // namespace lmc

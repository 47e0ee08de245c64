#include "tools/lmc-data/CommandLine.h"

#include <fmt/format.h>

#include <charconv>
#include <getopt.h>

namespace lmc {

Error usageError(const std::string &command, const std::string &what) {
  return {fmt::format("{}; see: lmc-data {} --help", what, command)};
}

Result<Arguments> parseCommandLine(int argc, char **argv, std::span<const Option> options) {
  // Values of getopt_long that are no character: an option's index, from here on.
  constexpr int kFirst = 256;
  std::vector<option> table;
  std::string letters = ":h"; // ':' tells a missing value from an unknown option
  for (size_t i = 0; i < options.size(); ++i) {
    int hasValue = options[i].takesValue ? required_argument : no_argument;
    table.push_back({options[i].name, hasValue, nullptr, kFirst + static_cast<int>(i)});
    if (options[i].letter) {
      letters += options[i].letter;
      letters += options[i].takesValue ? ":" : "";
    }
  }
  table.push_back({"help", no_argument, nullptr, 'h'});
  table.push_back({nullptr, 0, nullptr, 0});

  Arguments arguments;
  const std::string command = argv[0];
  opterr = 0;
  optind = 1;
  for (int found;
       (found = getopt_long(argc, argv, letters.c_str(), table.data(), nullptr)) != -1;) {
    if (found == 'h') {
      arguments.help = true;
      return arguments;
    }
    // optind is past the argument, except inside a group of short options.
    std::string given = argv[optind - 1];
    if (found == ':')
      return usageError(command, fmt::format("option {} needs a value", given));
    if (found == '?')
      return usageError(command, optopt >= kFirst ? fmt::format("option {} takes no value", given)
                                                  : fmt::format("unknown option {}", given));
    for (size_t i = 0; i < options.size(); ++i)
      if (found == kFirst + static_cast<int>(i) || found == options[i].letter)
        LMC_TRY(options[i].set(optarg ? optarg : ""));
  }
  arguments.positional.assign(argv + optind, argv + argc);
  return arguments;
}

Result<uint64_t> parseNumber(const std::string &option, const std::string &text, uint64_t least,
                             uint64_t most) {
  uint64_t value = 0;
  auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size() || value < least || value > most)
    return Error{
        fmt::format("--{}={}: expected a whole number from {} to {}", option, text, least, most)};
  return value;
}

} // namespace lmc

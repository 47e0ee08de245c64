// The command lines of lmc-data's commands: long options with a value, through
// getopt_long, with errors as values.
#pragma once

#include "runtime/support/Result.h"

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace lmc {

struct Option {
  const char *name; // without the dashes
  char letter = 0;  // short form; 0: none
  bool takesValue = true;
  std::function<Result<void>(const std::string &value)> set;
};

struct Arguments {
  std::vector<std::string> positional;
  bool help = false; // --help or -h: nothing else counts
};

// argv[0] is the command's name. Options and positional arguments may be mixed; a
// bare "--" ends the options.
Result<Arguments> parseCommandLine(int argc, char **argv, std::span<const Option> options);

// An Error that names the command and points to its --help.
Error usageError(const std::string &command, const std::string &what);

// A whole number within [least, most].
Result<uint64_t> parseNumber(const std::string &option, const std::string &text, uint64_t least,
                             uint64_t most);

} // namespace lmc

// lmc-data verify: reads all of a token file.

#include "runtime/data/TokenFile.h"
#include "tools/lmc-data/CommandLine.h"
#include "tools/lmc-data/Commands.h"

#include <fmt/format.h>

namespace lmc {

static constexpr const char *kHelp = R"(lmc-data verify FILE [--vocab-size=N]

Reads all of a token file and checks the header against the size, and in files of
lmc-data pack the checksum, the table of documents, and every id against the
header's vocabulary.

  --vocab-size=N    every id must be below N too, the model's vocabulary
)";

Result<void> verifyCommand(int argc, char **argv) {
  uint64_t vocabSize = 0;
  const Option table[] = {{"vocab-size", 0, true, [&](const std::string &value) -> Result<void> {
                             auto size = parseNumber("vocab-size", value, 1, UINT32_MAX);
                             if (!size)
                               return size.error();
                             vocabSize = *size;
                             return {};
                           }}};
  auto arguments = parseCommandLine(argc, argv, table);
  if (!arguments)
    return arguments.error();
  if (arguments->help) {
    fmt::print("{}", kHelp);
    return {};
  }
  if (arguments->positional.size() != 1)
    return usageError("verify", "expected one FILE");
  auto file = TokenFile::open(arguments->positional[0]);
  if (!file)
    return file.error();
  LMC_TRY((*file)->verify(vocabSize));
  std::string checked = "size";
  if ((*file)->format() == TokenFormat::Lmc)
    checked += fmt::format(", checksum, {} documents, ids below {}",
                           (*file)->documentStarts().size(), (*file)->vocabulary());
  if (vocabSize)
    checked += fmt::format(", ids below {}", vocabSize);
  fmt::print("{}: {} tokens, all right: {}\n", (*file)->path(), (*file)->size(), checked);
  if ((*file)->format() != TokenFormat::Lmc && !vocabSize)
    fmt::print("note: this format has no checksum and no vocabulary; --vocab-size=N checks the "
               "ids\n");
  return {};
}

} // namespace lmc

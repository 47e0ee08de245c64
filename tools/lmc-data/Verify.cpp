// lmc-data verify: reads and checks a whole token file.

#include "runtime/data/TokenFile.h"
#include "tools/lmc-data/Commands.h"

#include <fmt/format.h>

namespace lmc {

static Result<void> verify(const std::string &path, uint64_t vocabSize) {
  auto file = TokenFile::open(path);
  if (!file)
    return file.error();
  LMC_TRY((*file)->verify(vocabSize));
  std::string checked = "size";
  if ((*file)->format() == TokenFormat::Lmc)
    checked += fmt::format(", checksum, {} documents, ids below {}",
                           (*file)->documents(), (*file)->vocabulary());
  if (vocabSize)
    checked += fmt::format(", ids below {}", vocabSize);
  fmt::print("{}: {} tokens, all right: {}\n", (*file)->path(), (*file)->size(), checked);
  if ((*file)->format() != TokenFormat::Lmc && !vocabSize)
    fmt::print("note: this format has no checksum and no vocabulary; --vocab-size=N checks the "
               "ids\n");
  return {};
}

DataCommand addVerifyCommand(CommandLine &line) {
  struct Options {
    std::string path;
    uint64_t vocabSize = 0;
  };
  auto options = std::make_shared<Options>();
  Command &command = line.command("verify", "reads all of a token file and checks it");
  command.argument("FILE", options->path, "the token file");
  command.option(
      "--vocab-size", "N",
      [=](const std::string &value) -> Result<void> {
        auto size = parseNumber("--vocab-size", value, 1, UINT32_MAX);
        LMC_TRY(size);
        options->vocabSize = *size;
        return {};
      },
      "every id must be below N too, the model's vocabulary");
  command.footer(
      "Checks the header against the size, and in files of lmc-data pack the checksum, the\n"
      "table of documents, and every id against the header's vocabulary.");
  return {&command, [=] { return verify(options->path, options->vocabSize); }};
}

} // namespace lmc

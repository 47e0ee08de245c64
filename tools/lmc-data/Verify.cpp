// lmc-data verify: reads and checks a whole token file.

#include "tools/lmc-data/Commands.h"

#include <fmt/format.h>

namespace lmc {

struct VerifyOptions {
  std::string path;
  DataFormat format = DataFormat::Auto;
  uint64_t vocabSize = 0;
};

static Result<void> verify(const VerifyOptions &options) {
  auto opened = TokenFile::open(options.path, options.format);
  LMC_TRY(opened);
  const TokenFile &file = **opened;
  LMC_TRY(file.verify(options.vocabSize));
  std::string checked = "size";
  if (file.format() == TokenFormat::Lmc)
    checked += ", checksum";
  if (file.format() == TokenFormat::Megatron)
    checked += ", index";
  if (file.hasDocuments())
    checked += fmt::format(", {} documents", file.documents());
  if (infoOf(file.type()).isSigned)
    checked += ", no negative id";
  if (file.vocabulary())
    checked += fmt::format(", ids below {}", file.vocabulary());
  if (options.vocabSize)
    checked += fmt::format(", ids below {}", options.vocabSize);
  fmt::print("{}: {} {} tokens, {}, all right: {}\n", file.path(), file.size(),
             infoOf(file.type()).name, nameOf(file.format()), checked);
  if (file.format() != TokenFormat::Lmc && !options.vocabSize)
    fmt::print("note: this format has no checksum and no vocabulary; --vocab-size=N checks the "
               "ids\n");
  return {};
}

DataCommand addVerifyCommand(CommandLine &line) {
  auto options = std::make_shared<VerifyOptions>();
  Command &command = line.command("verify", "reads all of a token file and checks it");
  command.argument("FILE", options->path, "the token file");
  addFormatOption(command, options->format);
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
      "Checks the header or index against the size, and in files of lmc-data pack the checksum,\n"
      "the table of documents, and every id against the header's vocabulary.");
  return {&command, [=] { return verify(*options); }};
}

} // namespace lmc

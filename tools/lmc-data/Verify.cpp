// lmc-data verify: reads and checks a whole token file.

#include "tools/lmc-data/Commands.h"

#include <fmt/format.h>

#include <optional>

namespace lmc {

struct VerifyOptions {
  std::string path;
  DataFormat format = DataFormat::Auto;
  uint64_t vocabSize = 0;
  std::optional<uint32_t> eod; // the token that ends documents; absent: separatorOf() finds it
};

static Result<void> verify(const VerifyOptions &options) {
  LMC_LET(opened, TokenFile::open(options.path, options.format));
  const TokenFile &file = **opened;
  const std::optional<uint32_t> eod = separatorOf(file, options.eod);
  SeparatorCount separators(eod ? static_cast<int32_t>(*eod) : -1);
  LMC_TRY(file.verify(options.vocabSize, &separators));
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
  const std::string fault = separators.faultOf(file.path());
  if (separators.separators() > 0 && fault.empty())
    checked += fmt::format(", {} separators (id {}), none doubled", separators.separators(),
                           separators.id());
  fmt::print("{}: {} {} tokens, {}, all right: {}\n", file.path(), file.size(),
             infoOf(file.type()).name, nameOf(file.format()), checked);
  if (!fault.empty())
    fmt::print(stderr, "lmc-data: warning: {}\n", fault);
  else if (options.eod && separators.separators() == 0)
    fmt::print(stderr,
               "lmc-data: warning: {}: no token is {}, which would end a document; is it "
               "the id of another tokenizer?\n",
               file.path(), separators.id());
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
  command.number("--vocab-size", "N", 1, UINT32_MAX, options->vocabSize,
                 "every id must be below N too, the model's vocabulary");
  command.number(
      "--eod", "ID", 0, INT32_MAX, options->eod,
      "the id that ends a document, where the file does not say. Default: 50256 (GPT-2) for uint16 "
      "files, 128000 (Llama 3) for uint32 files");
  command.footer(
      "Checks the header or index against the size, and in files of lmc-data pack the checksum,\n"
      "the table of documents, and every id against the header's vocabulary. Tokens that end\n"
      "documents and are doubled, or never occur, give a warning.");
  return {&command, [=] { return verify(*options); }};
}

} // namespace lmc

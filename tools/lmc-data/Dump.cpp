// lmc-data dump: prints the documents of a token file, one per line, as ids or as text.

#include "corpus/tokenizer/Tokenizer.h"
#include "runtime/checkpoint/RunTokenizer.h"
#include "tools/lmc-data/Commands.h"
#include "tools/lmc-data/TokenizerFiles.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace lmc {

namespace {

constexpr uint64_t kDocuments = 4096; // number of documents whose starts are read at a time

struct DumpOptions {
  std::string path, tokenizer;
  DataFormat format = DataFormat::Auto;
  bool text = false;
};

class Dump {
public:
  explicit Dump(const DumpOptions &options) : options(options) {}

  Result<void> run() {
    if (!options.tokenizer.empty() && !options.text)
      return Error{"--tokenizer needs --text: without it ids are printed"};
    LMC_LET(opened, TokenFile::open(options.path, options.format));
    const TokenFile &file = **opened;
    if (options.text)
      LMC_TRY(openTokenizer());
    const uint64_t documents = file.documents();
    for (uint64_t first = 0; first < documents; first += kDocuments) {
      const uint64_t count = std::min(kDocuments, documents - first);
      LMC_LET(starts, file.documentStarts(first, count + (first + count < documents)));
      for (uint64_t i = 0; i < count; ++i) {
        const uint64_t end = i + 1 < starts->size() ? (*starts)[i + 1] : file.size();
        LMC_TRY(print(file, (*starts)[i], end));
      }
    }
    return {};
  }

private:
  const DumpOptions &options;
  std::shared_ptr<const Tokenizer> tokenizer; // null: no tokenizer, each token is a byte
  std::vector<int32_t> ids;
  std::string line;

  Result<void> openTokenizer() {
    std::optional<std::string> place = tokenizerOf(options.path);
    if (!options.tokenizer.empty())
      place = options.tokenizer;
    if (!place)
      return {};
    LMC_LET(path, tokenizerFile(*place));
    LMC_LET(opened, Tokenizer::open(*path));
    tokenizer = *opened;
    return {};
  }

  Result<void> print(const TokenFile &file, uint64_t begin, uint64_t end) {
    ids.resize(end - begin);
    LMC_TRY(file.read(begin, end - begin, ids.data()));
    line.clear();
    if (options.text)
      LMC_TRY(appendText(file));
    else
      for (size_t i = 0; i < ids.size(); ++i)
        fmt::format_to(std::back_inserter(line), "{}{}", i > 0 ? " " : "", ids[i]);
    line += '\n';
    if (std::fwrite(line.data(), 1, line.size(), stdout) != line.size())
      return Error{"cannot write to standard output", ExitCode::Failure};
    return {};
  }

  // Appends the document's text as a JSON string, without the token that ends the document.
  Result<void> appendText(const TokenFile &file) {
    if (!ids.empty() && ids.back() == file.endOfDocument())
      ids.pop_back();
    std::string text;
    if (tokenizer) {
      auto decoded =
          tokenizer->decode({reinterpret_cast<const uint32_t *>(ids.data()), ids.size()});
      LMC_TRY(decoded);
      text = std::move(*decoded);
    } else {
      for (int32_t id : ids) {
        if (id < 0 || id > 255)
          return userError("{}: id {} is no byte; give the tokenizer with --tokenizer",
                           options.path, id);
        text += static_cast<char>(id);
      }
    }
    line += nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    return {};
  }
};

} // namespace

DataCommand addDumpCommand(CommandLine &line) {
  auto options = std::make_shared<DumpOptions>();
  Command &command = line.command("dump", "prints the documents of a token file, one per line");
  command.argument("FILE", options->path, "a token file");
  command.flag("--text", options->text,
               "print each document's text, as a JSON string, and not its ids");
  command.option(
      "--tokenizer", "FILE", options->tokenizer,
      "the tokenizer for --text. Default: the one that was packed with the file; without "
      "it, ids are bytes");
  addFormatOption(command, options->format);
  return {&command, [=] { return Dump(*options).run(); }};
}

} // namespace lmc

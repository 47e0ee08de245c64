// lmc-data tokenizer train: trains a byte-level BPE tokenizer on a text.

#include "corpus/tokenizer/models/BpeTrainer.h"
#include "ground/support/File.h"
#include "tools/lmc-data/Commands.h"
#include "tools/lmc-data/input/InputFiles.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace lmc {

namespace {

struct TrainOptions {
  std::string action, output, endOfText = "<|endoftext|>";
  std::vector<std::string> inputs;
  DocumentOptions documents{.maximumBytes = kMaximumDocument};
  uint32_t size = 32768;
};

class Feeder : public DocumentReceiver {
public:
  explicit Feeder(BpeTrainer &trainer) : trainer(trainer) {}
  Result<void> text(std::string_view piece) override {
    document += piece;
    return {};
  }
  Result<void> endDocument(const DocumentPlace &, const DocumentPlace &) override {
    Result<void> done = trainer.add(document);
    document.clear();
    return done;
  }

private:
  BpeTrainer &trainer;
  std::string document;
};

Result<void> train(const TrainOptions &options) {
  if (options.action != "train")
    return userError("unknown action '{}'; the only one is: lmc-data tokenizer train",
                     options.action);
  if (options.output.empty())
    return Error{"no --output given; see: lmc-data tokenizer --help"};
  const std::string file = options.output + "/tokenizer.json",
                    beside = options.output + "/tokenizer_config.json";
  for (const std::string &path : {file, beside})
    if (exists(path))
      return userError("{}: exists already; give --output another folder", path);
  if (Result<void> good = BpeTrainer::checkEndOfText(options.endOfText); !good)
    return userError("--eod: {}", good.error().message);
  BpeTrainer trainer;
  Feeder feeder(trainer);
  LMC_LET(inputs, findInputs(options.inputs, options.documents));
  LMC_TRY(readInputs(*inputs, stampsOf(*inputs), options.documents, "counting words", feeder));
  auto trained = trainer.train(options.size, options.endOfText);
  if (!trained)
    return userError("{}: {}", options.inputs[0], trained.error().message);
  const nlohmann::ordered_json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                                         {"bos_token", nullptr},
                                         {"eos_token", options.endOfText}};
  LMC_TRY(makeFolders(options.output));
  LMC_TRY(publishFile(beside, config.dump(2) + "\n"));
  LMC_TRY(publishFile(file, trained->json));
  fmt::print("{}: a byte-level BPE of {} tokens{}; documents end with {}\n", file, trained->tokens,
             trained->tokens < options.size ? ", because the text has nothing more to merge" : "",
             options.endOfText);
  return {};
}

} // namespace

DataCommand addTokenizerCommand(CommandLine &line) {
  auto options = std::make_shared<TrainOptions>();
  Command &command =
      line.command("tokenizer", "`tokenizer train` makes a byte-level BPE of a text");
  command.argument("train", options->action, "what to do");
  command.arguments("IN", options->inputs, "files, folders or patterns of documents, as for pack");
  command.option("-o,--output", "DIR", options->output,
                 "the folder for tokenizer.json and tokenizer_config.json");
  command.number("--vocab-size", "N", 257, 1 << 24, options->size,
                 "tokens, with the 256 bytes and the end of a document. Default: 32768");
  addDocumentOptions(command, options->documents);
  command.option("--eod", "TOKEN", options->endOfText,
                 "the special token that ends a document. Default: <|endoftext|>");
  return {&command, [=] { return train(*options); }};
}

} // namespace lmc

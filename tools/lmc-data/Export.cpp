// lmc-data export: writes the weights of a checkpoint as a Hugging Face folder.

#include "ground/support/File.h"
#include "ground/support/Size.h"
#include "runtime/checkpoint/HuggingFace.h"
#include "runtime/checkpoint/RunTokenizer.h"
#include "runtime/checkpoint/SafeTensors.h"
#include "tools/lmc-data/CheckpointFolder.h"
#include "tools/lmc-data/Commands.h"

#include <fmt/format.h>

namespace lmc {

namespace {

struct ExportArguments {
  std::string checkpoint, output, tokenizer;
  ExportOptions options;
};

Result<void> exportCheckpoint(ExportArguments arguments) {
  if (arguments.output.empty())
    return Error{"no --output given; see: lmc-data export --help"};
  ExportOptions &options = arguments.options;
  if (!arguments.tokenizer.empty())
    LMC_TRY(tokenizerFiles(arguments.tokenizer));
  LMC_LET(checkpoint, openCheckpoint(arguments.checkpoint));
  LMC_TRY(addTokenizer(checkpoint->run, arguments.tokenizer, options));
  for (const DamagedCheckpoint &newer : checkpoint->skipped)
    fmt::print(stderr, "warning: skipping the checkpoint {}: {}\n", newer.path, newer.fault);
  if (checkpoint->run.huggingfaceConfig.empty())
    return userError("{}: the checkpoint cannot be exported: {}", checkpoint->path,
                     checkpoint->run.notExportable.empty() ? "its plan has no config.json"
                                                           : checkpoint->run.notExportable);

  LMC_LET(weights, weightsOf(*checkpoint));
  LMC_TRY(verifyFiles({*weights}));
  LMC_LET(header, SafeTensorsFile::open(weights->path));
  LMC_LET(file, File::openForReading(weights->path));
  std::vector<TensorView> tensors;
  for (const SafeTensorsFile::Entry &entry : (*header)->entries()) {
    if (!entry.dtype)
      return userError("{}: '{}' is {}, which no model has", weights->path, entry.name,
                       entry.storage);
    tensors.push_back({entry.name, *entry.dtype, entry.shape, nullptr, entry.bytes});
  }
  auto fetch = [&](size_t index, void *data) -> Result<void> {
    const SafeTensorsFile::Entry &entry = (*header)->entries()[index];
    LMC_LET(got, file->readAt(data, entry.bytes, entry.offset));
    if (*got < entry.bytes)
      return userError("{}: it has become shorter", weights->path);
    return {};
  };
  LMC_TRY(exportHuggingFace(arguments.output, checkpoint->run.huggingfaceConfig, tensors, fetch,
                            options));
  fmt::print("{}: {} tensors of step {} in {}, {}\n", arguments.output, tensors.size(),
             checkpoint->state.step, safeTensorsName(options.dtype.value_or(tensors.front().dtype)),
             options.eosTokenId ? fmt::format("documents end with id {}", *options.eosTokenId)
                                : "the id that ends a document is not known; --eos gives it");
  return {};
}

} // namespace

DataCommand addExportCommand(CommandLine &line) {
  auto arguments = std::make_shared<ExportArguments>();
  ExportOptions &options = arguments->options;
  Command &command =
      line.command("export", "writes a checkpoint's weights as a Hugging Face folder");
  command.argument("CHECKPOINT", arguments->checkpoint,
                   "a checkpoint's folder, or a run's: its newest checkpoint");
  command.option("-o,--output", "DIR", arguments->output, "the folder to write");
  addParsedOption(
      command, "--dtype", "DTYPE",
      [](const std::string &text) -> Result<plan::DType> {
        if (text != "f32" && text != "bf16")
          return Error{"must be f32 or bf16"};
        return text == "f32" ? plan::DType::F32 : plan::DType::BF16;
      },
      options.dtype, "f32 or bf16, which rounds to nearest even. Default: as in the checkpoint");
  command.option(
      "--max-shard-size", "SIZE",
      [&options](const std::string &value) -> Result<void> {
        auto bytes = parseSize(value);
        if (!bytes)
          return userError("--max-shard-size: {}", bytes.error().message);
        options.maximumShardBytes = *bytes;
        return {};
      },
      "the most bytes of tensors in one file. Default: 5GB");
  command.number(
      "--pad-vocab", "N", 1, 65536, options.vocabMultiple,
      "pad the embedding and the head with rows of zeros to a multiple of N. Default: no padding");
  command.option("--tokenizer", "PATH", arguments->tokenizer,
                 "a tokenizer's folder or file, which is copied to the folder. Default: the one that the "
                 "training data was packed with");
  command.number("--eos", "ID", 0, UINT32_MAX, options.eosTokenId,
                 "the id that ends a document. Default: the one that the run's data has");
  command.number("--bos", "ID", 0, UINT32_MAX, options.bosTokenId,
                 "the id that begins a document. Default: that of --eos");
  command.footer(
      "Needs the checkpoint alone, not the plan. Writes config.json, generation_config.json and\n"
      "model.safetensors, or several files with model.safetensors.index.json. An earlier export\n"
      "in DIR is replaced; a folder with other files is refused.");
  return {&command, [=] { return exportCheckpoint(*arguments); }};
}

} // namespace lmc

// The keys of the data: [data], [[data.source]] and [[validation]].
#include "ground/config/keys/Rows.h"

namespace lmc::config::keys {

void Rows::data() {
  section("data", "Token files, as `lmc-data pack` writes them.", runTime);
  KEY(data.train, optional, identity,
      "Token files or globs to train on, relative to the TOML file; `lmc-run` needs it, or "
      "`[[data.source]]` in its place.");
  KEY(data.validation, optional,
      "Token files or globs of the validation set; several sets with names: `[[validation]]`.");
  KEY(data.endOfDocument, range(-1, kMaxInt32, "token id"), identity,
      "For `document_mask`, `document_positions` and `document_loss_mask`: the token after which "
      "the next document starts, in token files that do not say where documents start; -1: such "
      "files have no such token. The token counts as the last token of a document, as nanoGPT "
      "writes it. llm.c writes it in front of each document: then it counts as the end of the "
      "document before, and a document's first token does not see it. Files of `lmc-data pack` say "
      "where documents start and do not need this key.");
  KEY(data.format, choices({"auto", "uint16", "uint32", "megatron"}),
      "Format of `.bin` files that have no header. `auto`: a file beside an `.idx` file of the "
      "same name is Megatron's format, any other is `uint16`, as nanoGPT writes it, unless its "
      "contents contradict, which is an error. Files of `lmc-data pack` and of llm.c are known by "
      "their header.");
  KEY(data.shuffleBlock, tokens(1), derived("training.sequence_length"), identity,
      "Tokens that stay together when the training data is shuffled; a multiple of "
      "`sequence_length`. A run can go on with another sequence length if it divides the block: "
      "give the longest length of the whole training. The end of a file that is shorter than a "
      "block is not used.");
  KEY(data.packing, choices({"concatenate", "best_fit"}), identity,
      "How the documents of a training file come to sequences. `concatenate`: one after the other, "
      "cut wherever a sequence ends. `best_fit`: a document that fits into a sequence is not cut "
      "([packing](data.md#packing)); `shuffle_block` is `sequence_length` then, and files say "
      "where documents start, as those of `lmc-data pack` do.");
  KEY(data.allowRepeats,
      "Train even if the data has fewer sequences than a global batch, which then has some of them "
      "more than once, or a file is given twice.");
  KEY(data.numWorkers, range(1, 1024, "threads"), "Threads that prepare batches ahead of time.");

  list("data.source",
       "Training data from several sources, in the place of `train` of `[data]`: a table for each "
       "source ([mixtures](data.md#mixtures)).",
       &Rows::source, runTime);
}

void Rows::source(const std::string &name) {
  KEY(data.sources[name].paths, required, identity,
      "Token files or globs of the source, relative to the TOML file.");
  KEY(data.sources[name].weight, range(1e-9, 1e15), required, identity,
      "The source's share of the trained tokens is its weight, divided by the sum of all weights: "
      "70, 20 and 10 are the same as 0.7, 0.2 and 0.1.");
  KEY(data.sources[name].maxEpochs, range(0, 1e9, "epochs"),
      "A run whose steps would read the source more often than this is refused before its first "
      "step; 1.5 allows half of the source to be read twice; 0: any number.");
}

void Rows::validation(const std::string &name) {
  KEY(validations[name].paths, required,
      "Token files or globs of the set, relative to the TOML file.");
  KEY(validations[name].interval, steps(0), derived("monitoring.validation_interval"),
      "Steps between validations with the set; 0: only at the end.");
  KEY(validations[name].iters, range(0, kMaxSteps, "batches"),
      derived("monitoring.validation_iters"),
      "Global batches of a validation, from the beginning of the set; 0: all of it.");
}

} // namespace lmc::config::keys

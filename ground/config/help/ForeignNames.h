// Maps the names that other training programs give to their settings to lmc's keys.
//
// A user who moves a job to lmc may write the names of the program that the job comes from. By
// these tables, the error names lmc's key, or says that there is none. They add no aliases: a job
// must use lmc's names. docs/guides/coming-from.md shows the table of keys to users.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace lmc::config {

// The programs that use a name, as bits.
enum ForeignProgram : unsigned {
  kFastLlm = 1,
  kMegatron = 2,
  kTorchtitan = 4,
  kHuggingFace = 8, // TrainingArguments of transformers' Trainer, and related tools
  kNanoGpt = 16,
  kOtherProgram = 32, // torchrun, DeepSpeed, fms-fsdp, Llama's model parameters
};

struct ForeignKey {
  // The name in lower case, with '_' for '-'. A name such as "learning_rate.base" counts only in
  // sections whose last part is "learning_rate"; any other name counts in every section.
  std::string name;
  unsigned programs; // of ForeignProgram
  const char *key;   // path of lmc's key; "": lmc has none
  // The difference in meaning or unit; "" if there is none. If `key` is "": a remark that lmc has
  // no such key, and what to use instead.
  const char *remark;
};

// A section of another program. The name is written as in ForeignKey, and is compared with the
// whole path of a section and with its last part.
struct ForeignSection {
  std::string name;
  const char *remark; // lmc's section
};

std::span<const ForeignKey> foreignKeys();
std::span<const ForeignSection> foreignSections();

// Returns the entry for `name` in `section` ("" for none), or nullptr if there is none. Capital
// letters, '-' for '_' and leading dashes make no difference: "--num-layers" finds `num_layers`. If
// `ofSection` is true, searches only the entries that name a section; else only the others.
const ForeignKey *findForeignKey(std::string_view section, std::string_view name, bool ofSection);
const ForeignSection *findForeignSection(std::string_view section);

// Returns the text of an entry for an error: "lmc's key is a.b", and the remark if there is one.
// For an entry without a key, returns only the remark.
std::string foreignHint(const ForeignKey &key);

} // namespace lmc::config

// Maps the names that other training programs give to their settings to lmc's keys.
//
// A person who moves a job to lmc writes the names of the program that the job comes from. These
// tables let an error name lmc's own key, or say that there is none. They add no other name for a
// key: a job must use lmc's. docs/guides/coming-from.md shows the table of keys to readers.
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
  // Lower case, with '_' for '-'. A name such as "learning_rate.base" holds only in sections whose
  // last part is "learning_rate"; any other name holds in every section.
  std::string name;
  unsigned programs; // of ForeignProgram
  const char *key;   // path of lmc's key; "": lmc has none
  // The difference in meaning or unit; "" if there is none. Without a key: a remark that lmc has
  // none, and what to use instead.
  const char *remark;
};

// A section whose name another program uses. The name is written as in ForeignKey, and holds for
// the whole path of a section or for its last part.
struct ForeignSection {
  std::string name;
  const char *remark; // lmc's section
};

std::span<const ForeignKey> foreignKeys();
std::span<const ForeignSection> foreignSections();

// Returns the entry for `name`, written in `section` ("" for none). Capital letters, '-' for '_'
// and leading dashes make no difference, so that "--num-layers" finds `num_layers`. `ofSection`
// restricts the search to the entries that name a section, or to the others. Returns nullptr if
// there is no entry.
const ForeignKey *findForeignKey(std::string_view section, std::string_view name, bool ofSection);
const ForeignSection *findForeignSection(std::string_view section);

// Returns the text of an entry for an error: "lmc's key is a.b", with the remark if there is one;
// without a key, the remark alone.
std::string foreignHint(const ForeignKey &key);

} // namespace lmc::config

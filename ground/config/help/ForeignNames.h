// Maps the names of settings in other training programs to lmc's keys, for hints in errors. A job
// cannot use these names. docs/guides/coming-from.md shows the table to users.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace lmc::config {

// The programs that use a name. The values are bits, so that a name can have several programs.
enum ForeignProgram : unsigned {
  kFastLlm = 1,
  kMegatron = 2,
  kTorchtitan = 4,
  kHuggingFace = 8, // TrainingArguments of transformers' Trainer, and related tools
  kNanoGpt = 16,
  kOtherProgram = 32, // torchrun, DeepSpeed, fms-fsdp, Llama's model parameters
};

struct ForeignKey {
  // The name in lower case, with '_' for '-'. A name such as "learning_rate.base" counts only in a
  // section "learning_rate". Any other name counts in every section.
  std::string name;
  unsigned programs; // of ForeignProgram
  const char *key;   // path of lmc's key; "": lmc has none
  // How the name differs from `key` in meaning or unit, or "". Without a key: what to use instead.
  const char *remark;
};

// A section of another program. Its name is a whole path, or the last part of a path.
struct ForeignSection {
  std::string name;
  const char *remark; // lmc's section
};

std::span<const ForeignKey> foreignKeys();
std::span<const ForeignSection> foreignSections();

// Returns the entry for `name` in `section` ("" for none), or nullptr. Finds `num_layers` for
// "--num-layers" and "NUM_LAYERS", too. If `ofSection`, searches only entries that name a section
// ("learning_rate.base"), else only the others.
const ForeignKey *findForeignKey(std::string_view section, std::string_view name, bool ofSection);
const ForeignSection *findForeignSection(std::string_view section);

// Returns the text of an entry: "lmc's key is a.b" with the remark, or the remark alone.
std::string foreignHint(const ForeignKey &key);

} // namespace lmc::config

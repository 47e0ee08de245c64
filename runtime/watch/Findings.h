// The findings of a check before a run, as lines of a table or as JSON.
#pragma once

#include "ground/support/Result.h"
#include "runtime/comm/Communicator.h"

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

namespace lmc {

// Ok: nothing is wrong. Warning: the run can start, but the finding may not be intended. Error: the
// run cannot start or cannot end. Skipped: the check was not made, for the reason in the text.
enum class Severity { Ok, Warning, Error, Skipped };

struct Finding {
  std::string check; // "folder", "disk", "data", "job", "memory", "links", "trial", "totals"
  Severity severity = Severity::Ok;
  std::string text;        // one line: the finding and, unless it is Ok, a remedy
  bool doesNotFit = false; // for an Error: memory or disk are too small
};

class Findings {
public:
  void ok(const std::string &check, const std::string &text);
  void warning(const std::string &check, const std::string &text);
  void error(const std::string &check, const std::string &text);
  // Adds a finding, unless another one has the same text, perhaps after a longer beginning.
  void add(Finding finding);

  bool has(Severity severity) const;
  const std::vector<Finding> &all() const { return list; }
  // Returns Success without an Error, DoesNotFit if all errors are of memory or disk that are too
  // small, else UserError.
  ExitCode code() const;

  // Adds those warnings and errors of other ranks that this rank does not have, so that all ranks
  // have the same ones. All ranks of the group call it together.
  Result<void> share(Communicator &group);

  // Returns a line for each finding, "  warning  disk    TEXT", and the line with the totals.
  std::string table() const;
  nlohmann::ordered_json json() const;

private:
  std::vector<Finding> list;
};

} // namespace lmc

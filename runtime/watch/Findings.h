// What a check before a run has found: lines of a table, or of JSON.
#pragma once

#include "ground/support/Result.h"
#include "runtime/comm/Communicator.h"

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

namespace lmc {

// Ok: as it should be. Warning: the run can start, and the user may not want what is said. Error:
// the run cannot start or cannot end. Skipped: it was not looked at, for the reason that is said.
enum class Level { Ok, Warning, Error, Skipped };

struct Finding {
  std::string check; // "folder", "disk", "data", "job", "memory", "links", "trial", "totals"
  Level level = Level::Ok;
  std::string text;        // one line: what was found and, unless it is Ok, what to do
  bool doesNotFit = false; // of an Error: memory or disk are too small
};

class Findings {
public:
  void ok(const std::string &check, const std::string &text);
  void warning(const std::string &check, const std::string &text);
  void error(const std::string &check, const std::string &text);
  // Does nothing if a finding has the text already, or has it after a longer beginning.
  void add(Finding finding);

  bool has(Level level) const;
  const std::vector<Finding> &all() const { return list; }
  // Returns Success without an Error, DoesNotFit if all errors are of memory or disk that are too
  // small, else UserError.
  ExitCode code() const;

  // Adds the warnings and errors of all other ranks that this rank does not have, so that all ranks
  // have equal warnings and errors. All ranks of the group call it together.
  Result<void> share(Communicator &group);

  // Returns a line for each finding, "  warning  disk    TEXT", and the line with the totals.
  std::string table() const;
  nlohmann::ordered_json json() const;

private:
  std::vector<Finding> list;
};

} // namespace lmc

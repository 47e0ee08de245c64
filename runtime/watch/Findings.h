// The findings of checks before a run.
#pragma once

#include "ground/support/Result.h"
#include "runtime/comm/Communicator.h"

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

namespace lmc {

// Warning: the run can start, but the finding may not be intended. Error: the run cannot start or
// cannot reach its end. Skipped: the check was not made; the text says why.
enum class Severity { Ok, Warning, Error, Skipped };

struct Finding {
  std::string check; // "folder", "disk", "data", "job", "memory", "links", "trial", "totals"
  Severity severity = Severity::Ok;
  std::string text;        // one line: the finding and, unless it is Ok, a remedy
  bool doesNotFit = false; // true if the Error is that memory or disk is too small
};

class Findings {
public:
  void ok(const std::string &check, const std::string &text);
  void warning(const std::string &check, const std::string &text);
  void error(const std::string &check, const std::string &text);
  // Adds `finding`, unless another finding of its severity has a text that ends with finding.text.
  void add(Finding finding);

  bool has(Severity severity) const;
  const std::vector<Finding> &all() const { return list; }
  // Returns Success if no Error exists, DoesNotFit if all Errors have `doesNotFit`, else UserError.
  ExitCode code() const;

  // Adds the other ranks' findings, except Ok ones. All ranks of `group` must call it together.
  Result<void> share(Communicator &group);

  // Returns a line for each finding, " warning disk TEXT", and a line with the totals.
  std::string table() const;
  nlohmann::ordered_json json() const;

private:
  std::vector<Finding> list;
};

} // namespace lmc

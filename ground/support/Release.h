// Names the release of lmc from which a program is built.
#pragma once

namespace lmc {

struct Release {
  const char *version; // "0.1.0"
  const char *commit;  // the first 12 digits of the commit's hash; "" if the build knew no commit
  // The text that `--version` prints: "0.1.0 (commit 0123456789ab, 2026-11-25)", or only the
  // version if the build knew no commit.
  const char *text;
};

// This constant has a small source file of its own, the only file that a new commit recompiles.
extern const Release kRelease;

} // namespace lmc

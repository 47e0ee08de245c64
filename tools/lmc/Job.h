// What `lmc compile` and `lmc explain` share: parsing the options that change a job, and compiling
// the job.
#pragma once

#include "compiler/driver/Compile.h"
#include "ground/config/Config.h"
#include "ground/support/Result.h"
#include "tools/support/CommandLine.h"

#include "mlir/IR/MLIRContext.h"

#include "llvm/ADT/StringRef.h"

#include <optional>
#include <string>
#include <system_error>
#include <vector>

namespace lmc {

// The command line options that replace keys of the TOML file, and the compiler's own options.
struct JobOptions {
  std::vector<std::string> settings; // values of --set: "section.key=value"
  std::string target, nodes, devicesPerNode, memoryBudget;
  std::string spec;        // name, or path relative to the working directory
  std::string kernelCache; // "off", a folder, or "" for the default folder
  std::vector<std::string> disableFusion;
  std::string longRows;
};

// Adds these options to `command`. `options` must live until the command line is parsed.
void addJobOptions(Command &command, JobOptions &options);

// Reads the TOML file at `path` and applies `options`. Returns one Config per phase of the job, in
// order, or one for a job without phases.
Result<std::vector<Config>> readPhases(const std::string &path, const JobOptions &options);

// Copies the compile options of `from` to `to`, with the defaults of the job's target.
void setCompileOptions(const JobOptions &from, const Config &config, CompileOptions &to);

// Returns an MLIR context with lmc's dialects that uses one thread.
std::unique_ptr<mlir::MLIRContext> makeContext();

// Compiles a job for each of its phases, and makes one plan of all. The result has the module of
// the first phase, all times, and the largest budget that a phase needs. `fits` is true if all
// phases fit; otherwise `misfit` is the index of the first phase that does not fit, and the result
// has the plan of this phase. Prints each error as one line that begins with the path of the job's
// file and, if the job has phases, names the phase.
struct CompiledPhases {
  CompileResult result;
  size_t misfit = 0;
};
mlir::FailureOr<CompiledPhases> compilePhases(const std::vector<Config> &phases,
                                              const CompileOptions &options);

// Writes a temporary file beside `path` and renames it to `path`, which therefore is never
// incomplete. Writes directly to a device or a pipe.
Result<void> writeAtomically(const std::string &path, llvm::StringRef bytes);

// Prints `message` and a newline to stderr, and returns `code` as the program's exit code.
int fail(llvm::StringRef message, ExitCode code = ExitCode::UserError);

// Returns the exit code of a command. If `result` is an Error, prints `prefix` and the message.
int exitCodeOf(const Result<int> &result, llvm::StringRef prefix);

} // namespace lmc

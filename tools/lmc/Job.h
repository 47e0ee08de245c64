// Functions that both `lmc compile` and `lmc explain` use: they parse the options that change a
// job, and compile the job.
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

// The command line options that replace keys of the TOML file, and options for the compiler itself.
struct JobOptions {
  std::vector<std::string> settings; // values of --set: "section.key=value"
  std::string target, nodes, devicesPerNode, memoryBudget;
  std::string spec;        // name, or path relative to the working directory
  std::string kernelCache; // "off", a folder, or "" for the default folder
  std::vector<std::string> disableFusion;
  std::string longRows;
};

// Adds these options to `command`. The parser writes to `options`, which must live until then.
void addJobOptions(Command &command, JobOptions &options);

// Reads the TOML file at `path` and applies `options`, for each phase of the job, in order; returns
// one Config for a job without phases.
Result<std::vector<Config>> readPhases(const std::string &path, const JobOptions &options);

// Sets those fields of `to` that `from` contains, with the defaults of the job's target.
void setCompileOptions(const JobOptions &from, const Config &config, CompileOptions &to);

// Returns an MLIR context with lmc's dialects that uses one thread.
std::unique_ptr<mlir::MLIRContext> makeContext();

// Compiles a job for each of its phases, and makes one plan of all. The result has the module of
// the first phase, all times, and the largest budget that a phase needs. `fits` is true if all
// phases fit; otherwise `misfit` is the number of the first phase that does not, and the result has
// its plan. Prints each error as one line that begins with the path of the job's file, and names
// the phase if the job has phases.
struct CompiledPhases {
  CompileResult result;
  size_t misfit = 0;
};
mlir::FailureOr<CompiledPhases> compilePhases(const std::vector<Config> &phases,
                                              const CompileOptions &options);

// Writes a temporary file beside `path` and renames it, so that `path` never is an incomplete file.
// A device or a pipe is written directly.
Result<void> writeAtomically(const std::string &path, llvm::StringRef bytes);

// Prints `message` and a newline to stderr, and returns `code` as the program's exit code.
int fail(llvm::StringRef message, ExitCode code = ExitCode::UserError);

// Returns the exit code of a command, after it has printed the error, if any, behind `prefix`.
int exitCodeOf(const Result<int> &result, llvm::StringRef prefix);

} // namespace lmc

// Functions for `lmc compile` and `lmc explain`: options that change a job, and compiling it.
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

// Options that replace keys of the TOML file, and the compiler's own options.
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

// Reads the TOML file at `path` and applies `options`. Returns one Config for each phase of the
// job, or one Config if the job has no phases.
Result<std::vector<Config>> readPhases(const std::string &path, const JobOptions &options);

// Sets the options of `to` that `from` has: the fusions to disable, and the kernel cache's folder.
void setCompileOptions(const JobOptions &from, CompileOptions &to);

// Returns an MLIR context with lmc's dialects, which may use several threads.
std::unique_ptr<mlir::MLIRContext> makeContext();

struct CompiledPhases {
  CompileResult result; // has no module, but the compile times of all compiled phases of the job
  size_t misfit = 0;    // if result.fits is false: the index of the phase that does not fit
};
// Compiles each phase of a job, and makes one plan of all. Stops at a phase that does not fit, and
// returns its result. Prints each error as one line that begins with the path of the job's file
// and, if the job has phases, names the phase.
mlir::FailureOr<CompiledPhases> compilePhases(const std::vector<Config> &phases,
                                              const CompileOptions &options);

// Writes a temporary file beside `path` and renames it, so that `path` is never incomplete. Writes
// directly to a device or a pipe.
Result<void> writeAtomically(const std::string &path, llvm::StringRef bytes);

// Prints `message` to stderr, and returns `code` as the program's exit code.
int fail(llvm::StringRef message, ExitCode code = ExitCode::UserError);

// Returns the exit code of a command. If `result` is an Error, prints `prefix` and the message.
int exitCodeOf(const Result<int> &result, llvm::StringRef prefix);

} // namespace lmc

// What `lmc compile` and `lmc explain` have in common: the options that change a job, and
// compiling it.
#pragma once

#include "compiler/config/Config.h"
#include "compiler/driver/Compile.h"
#include "runtime/support/Result.h"
#include "tools/support/CommandLine.h"

#include "mlir/IR/MLIRContext.h"

#include "llvm/ADT/StringRef.h"

#include <optional>
#include <string>
#include <system_error>
#include <vector>

namespace lmc {

// Options of the command line that stand in for keys of the TOML, and how to compile.
struct JobOptions {
  std::vector<std::string> settings; // "section.key=value", of --set
  std::string target, nodes, devicesPerNode, memoryBudget;
  std::string spec;        // a name, or a path that starts in the working directory
  std::string kernelCache; // "off", a folder, or "": the default
  std::vector<std::string> disableFusion;
};

// Adds the options to `command`; `options` must live until they are parsed.
void addJobOptions(Command &command, JobOptions &options);

// Reads the TOML at `path` with what the options change. Without a value the error is printed.
std::optional<Config> readConfig(const std::string &path, const JobOptions &options);

// Sets the compiler options that JobOptions contain, with the defaults of the job's target.
void setCompileOptions(const JobOptions &from, const Config &config, CompileOptions &to);

// A context with lmc's dialects, on one thread.
std::unique_ptr<mlir::MLIRContext> makeContext();

// Compiles in a context of makeContext(). Prints each error as one line that begins with the
// job's file.
mlir::FailureOr<CompileResult> compileConfig(const Config &config, const CompileOptions &options,
                                             mlir::MLIRContext &context);

// Writes beside `path` and renames, so that the file is whole or not there.
std::error_code writeAtomically(const std::string &path, llvm::StringRef bytes);

// Prints the message on a line of stderr and returns the exit code.
int fail(llvm::StringRef message, ExitCode code = ExitCode::UserError);

} // namespace lmc

// Errors are values: every function that can fail returns a Result<T>.
//
// An Error is one line for the user: it names the mistake, and what to do about it. Functions
// return it to their callers up to main(), the only place that prints it.
#pragma once

#include <fmt/core.h>

#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace lmc {

// Exit codes of the command line programs.
enum class ExitCode : int {
  Success = 0,
  Failure = 1,      // the machine failed: disk, memory, device
  UserError = 2,    // something that the user gave is wrong
  DoesNotFit = 3,   // the plan cannot meet its memory budget
  Diverged = 4,     // the guard stopped a run that has diverged; its state is kept
  RankFailed = 5,   // another rank ended, hangs or disagrees; a restart continues
  SlowLink = 6,     // lmc-run --preflight found a link that is slower than the others
  Interrupted = 75, // stopped by a signal or a time limit; a restart continues
};

struct Error {
  std::string message;
  ExitCode code = ExitCode::UserError;
};

// Return an Error, with a message formatted as by fmt::format. userError() is for a mistake of the
// user, machineError() for a failure of the machine.
template <typename... Args> Error userError(fmt::format_string<Args...> text, Args &&...args) {
  return {fmt::format(text, std::forward<Args>(args)...)};
}
template <typename... Args> Error machineError(fmt::format_string<Args...> text, Args &&...args) {
  return {fmt::format(text, std::forward<Args>(args)...), ExitCode::Failure};
}

template <typename T> class [[nodiscard]] Result {
public:
  Result(T value) : state(std::move(value)) {}
  Result(Error error) : state(std::move(error)) {}

  explicit operator bool() const { return std::holds_alternative<T>(state); }
  T &operator*() { return std::get<T>(state); }
  const T &operator*() const { return std::get<T>(state); }
  T *operator->() { return &std::get<T>(state); }
  const T *operator->() const { return &std::get<T>(state); }
  const Error &error() const { return std::get<Error>(state); }

private:
  std::variant<T, Error> state;
};

template <> class [[nodiscard]] Result<void> {
public:
  Result() = default;
  Result(Error error) : failure(std::move(error)) {}

  explicit operator bool() const { return !failure.has_value(); }
  const Error &error() const { return *failure; }

private:
  std::optional<Error> failure;
};

} // namespace lmc

// Evaluates `expr` once. `expr` is a Result, and is not copied. If it holds an Error, returns the
// Error from the enclosing function.
#define LMC_TRY(expr)                                                                              \
  do {                                                                                             \
    if (auto &&lmcTryResult = (expr); !lmcTryResult)                                               \
      return lmcTryResult.error();                                                                 \
  } while (false)

// Declares the variable `name` with the Result of an expression. If the Result holds an Error,
// returns the Error from the enclosing function.
#define LMC_LET(name, ...)                                                                         \
  auto name = (__VA_ARGS__);                                                                       \
  LMC_TRY(name)

// Assigns the value of an expression, which is a Result, to `place`. If the Result holds an Error,
// returns the Error from the enclosing function.
#define LMC_SET(place, ...)                                                                        \
  do {                                                                                             \
    LMC_LET(lmcSetResult, __VA_ARGS__);                                                            \
    place = std::move(*lmcSetResult);                                                              \
  } while (false)

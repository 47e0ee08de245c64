// Exchanges values between the ranks of a group. All these ranks must call a function together.
#pragma once

#include "runtime/comm/Communicator.h"

#include <string>
#include <vector>

namespace lmc {

// Returns the texts of all ranks, indexed by position.
Result<std::vector<std::string>> gatherTexts(Communicator &group, const std::string &mine);

// Returns the text of the rank at position `root`.
Result<std::string> broadcastText(Communicator &group, const std::string &text, int root = 0);

// Returns the sum of all ranks' numbers.
Result<double> sumOf(Communicator &group, double mine);

// Returns true on all ranks if `mine` is true on at least one.
Result<bool> anyOf(Communicator &group, bool mine);

// If `mine` is an Error on at least one rank, returns an Error on all ranks. A failed rank returns
// its own Error. The others return the Error of the first failed rank, with the rank's number.
Result<void> allSucceed(Communicator &group, const Result<void> &mine);

// Returns `mine`, or an Error as allSucceed() above returns it.
template <typename T> Result<T> allSucceed(Communicator &group, Result<T> mine) {
  LMC_TRY(allSucceed(group, mine ? Result<void>() : Result<void>(mine.error())));
  return mine;
}

} // namespace lmc

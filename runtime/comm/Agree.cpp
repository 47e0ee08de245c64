#include "runtime/comm/Agree.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace lmc {

Result<std::vector<std::string>> gatherTexts(Communicator &group, const std::string &mine) {
  const auto ranks = static_cast<size_t>(group.size());
  const uint64_t size = mine.size();
  std::vector<uint64_t> sizes(ranks);
  LMC_TRY(group.allGather(&size, sizes.data(), sizeof size));
  // allGather() needs texts of equal length.
  const uint64_t longest = *std::max_element(sizes.begin(), sizes.end());
  std::string padded = mine, all(ranks * longest, '\0');
  padded.resize(longest);
  LMC_TRY(group.allGather(padded.data(), all.data(), longest));
  std::vector<std::string> texts;
  for (size_t rank = 0; rank < ranks; ++rank)
    texts.push_back(all.substr(rank * longest, sizes[rank]));
  return texts;
}

Result<std::string> broadcastText(Communicator &group, const std::string &text, int root) {
  uint64_t size = text.size();
  LMC_TRY(group.broadcast(&size, sizeof size, root));
  std::string received = group.position() == root ? text : std::string(size, '\0');
  LMC_TRY(group.broadcast(received.data(), size, root));
  return received;
}

Result<double> sumOf(Communicator &group, double mine) {
  LMC_TRY(group.allReduce(&mine, 1, plan::DType::F64));
  return mine;
}

Result<bool> anyOf(Communicator &group, bool mine) {
  LMC_LET(count, sumOf(group, mine ? 1 : 0));
  return *count > 0;
}

Result<void> allSucceed(Communicator &group, const Result<void> &mine) {
  auto failed = anyOf(group, !mine);
  if (!failed)
    return mine ? failed.error() : mine.error();
  if (!*failed)
    return {};
  // A rank with success sends "". Any other rank sends its exit code and error message.
  auto texts = gatherTexts(
      group,
      mine ? "" : fmt::format("{} {}", static_cast<int>(mine.error().code), mine.error().message));
  LMC_TRY(mine);
  LMC_TRY(texts);
  for (size_t rank = 0; rank < texts->size(); ++rank)
    if (const std::string &text = (*texts)[rank]; !text.empty())
      return Error{fmt::format("rank {}: {}", rank, text.substr(text.find(' ') + 1)),
                   static_cast<ExitCode>(std::atoi(text.c_str()))};
  return {};
}

} // namespace lmc

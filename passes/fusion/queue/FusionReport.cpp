#include "passes/fusion/queue/FusionReport.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace lmc;

void lmc::add(FusionReport &report, FusionPair pair) {
  auto known = llvm::find_if(report, [&](const FusionEntry &entry) { return entry.pair == pair; });
  if (known == report.end())
    report.push_back({std::move(pair), 1});
  else
    ++known->times;
}

void lmc::print(const FusionReport &report, llvm::raw_ostream &os) {
  os << "fusions: " << report.size() << "\n";
  for (const auto &[pair, times] : report) {
    const bool isFormed = pair.refusal.empty();
    os << (isFormed ? "  formed " : "  refused ") << (pair.isSiblings ? "siblings" : "producer")
       << " in " << pair.function << ": " << pair.first << ", " << pair.second
       << (isFormed ? ", saves " : ", would save ")
       << llvm::formatv("{0} bytes and {1:f5} us, times {2}: ", pair.bytes, pair.seconds * 1e6,
                        times)
       << (isFormed ? pair.hero : pair.refusal) << "\n";
  }
}

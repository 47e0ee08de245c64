#include "test/hostdriver/Hostility.h"

#include <cstdlib>

namespace lmc::hostdriver {

static uint64_t number(const char *name, uint64_t otherwise) {
  const char *text = std::getenv(name);
  return text && *text ? std::strtoull(text, nullptr, 0) : otherwise;
}

static std::string text(const char *name) {
  const char *value = std::getenv(name);
  return value ? value : "";
}

// 80 GB of memory, as an H100 reports it.
static constexpr uint64_t kH100Memory = 85'017'624'576;

Hostility::Hostility()
    : seed(number("LMC_HOST_SEED", 1)), memory(number("LMC_HOST_MEMORY", kH100Memory)),
      free(number("LMC_HOST_FREE", memory)), takes(number("LMC_HOST_TAKES", 0)),
      failAt(number("LMC_HOST_FAIL_AT", 0)), faultAt(number("LMC_HOST_FAULT_AT", 0)),
      queue(number("LMC_HOST_QUEUE", 0)), patience(number("LMC_HOST_PATIENCE", 20'000)),
      arch(int(number("LMC_HOST_ARCH", 90))), devices(int(number("LMC_HOST_DEVICES", 1))),
      driverVersion(int(number("LMC_HOST_DRIVER_VERSION", 13000))),
      ncclVersion(int(number("LMC_HOST_NCCL_VERSION", 0))),
      extraRegisters(int(number("LMC_HOST_EXTRA_REGISTERS", 0))),
      noKernels(number("LMC_HOST_NO_KERNELS", 0)), abortHangs(number("LMC_HOST_ABORT_HANGS", 0)),
      cuts(number("LMC_HOST_CUTS", 0)), plan(text("LMC_HOST_PLAN")),
      report(text("LMC_HOST_REPORT")), failCall(text("LMC_HOST_FAIL_CALL")),
      badAlgorithm(text("LMC_HOST_BAD_ALGORITHM")), slowKernel(text("LMC_HOST_SLOW_KERNEL")),
      wrongKernel(text("LMC_HOST_WRONG_KERNEL")), noAlgorithm(number("LMC_HOST_NO_ALGORITHM", 0)) {
  if (const size_t colon = failCall.find(':'); colon != std::string::npos) {
    failCallAt = std::strtoull(failCall.c_str() + colon + 1, nullptr, 10);
    failCall.resize(colon);
  }
}

Hostility &hostility() {
  static Hostility instance;
  return instance;
}

uint32_t Random::below(uint32_t n) {
  state += 0x9e3779b97f4a7c15u;
  uint64_t x = state;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  x ^= x >> 31;
  return uint32_t((x >> 32) * n >> 32);
}

} // namespace lmc::hostdriver

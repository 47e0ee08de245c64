// What the environment asks of the host driver: how the device looks, and what goes wrong.
//
// LMC_HOST_SEED=N             orders of execution and garbage, default 1
// LMC_HOST_PLAN=FILE          the plan; default: the process's argument that is a plan
// LMC_HOST_ARCH=90            compute capability
// LMC_HOST_MEMORY=BYTES       memory of the device, LMC_HOST_FREE=BYTES what others leave of it
// LMC_HOST_TAKES=BYTES        memory that the context, each module, cuBLASLt's handle, each
//                             communicator and each graph take of the device, default 0
// LMC_HOST_DEVICES=N          devices in the machine
// LMC_HOST_DRIVER_VERSION=N   as cuDriverGetVersion returns it, default 13000
// LMC_HOST_EXTRA_REGISTERS=N  registers that kernels have in addition to what the plan says
// LMC_HOST_FAIL_AT=N          the N-th call that can fail, counted from 1, returns an error
// LMC_HOST_FAIL_CALL=NAME:N   the N-th call of the function NAME returns an error
// LMC_HOST_FAULT_AT=N         the N-th command that is executed faults
// LMC_HOST_NO_KERNELS=1       kernels and products of the plan are not executed, and memory
//                             starts as zeros
// LMC_HOST_QUEUE=N            calls that enqueue wait until at most N commands are queued; 0: never
// LMC_HOST_PATIENCE=MS        how long an abort of a communicator waits for graphs that use it
// LMC_HOST_ABORT_HANGS=1      an abort of a communicator never returns
// LMC_HOST_NCCL_VERSION=N     as ncclGetVersion returns it, default that of nccl.h
// LMC_HOST_NO_ALGORITHM=N     from the N-th question on cuBLASLt's heuristic has no answer
// LMC_HOST_BAD_ALGORITHM=HOW  what is wrong with cuBLASLt's first proposal: "state" it has the
//                             state of a failure, "run" it does not run, "sum" its last row is
//                             wrong, "rows" the second half of its rows is that of the first
// LMC_HOST_SLOW_KERNEL=NAME   this kernel takes a thousand times as long
// LMC_HOST_WRONG_KERNEL=NAME  the last element of this kernel's last result is 3 in bf16
// LMC_HOST_CUTS=1             products of bf16 cut bits off after every 16 terms, as tensor
//                             cores do
// LMC_HOST_REPORT=FILE        where the report is written at exit, as JSON
#pragma once

#include "test/hostdriver/Failure.h"

#include <cstdint>
#include <string>
#include <vector>

namespace lmc::hostdriver {

struct Hostility {
  Hostility();

  uint64_t seed, memory, free, takes, failAt, faultAt, queue, patience;
  int arch, devices, driverVersion, ncclVersion, extraRegisters;
  bool noKernels, abortHangs, cuts;
  std::string plan, report, failCall, badAlgorithm, slowKernel, wrongKernel; // "" or a name
  uint64_t failCallAt = 0, noAlgorithm;

  // Counts a call that can fail; returns true if it must.
  bool failsCall(const std::string &name) {
    const bool fails = name == failCall && --failCallAt == 0;
    calls.push_back(name);
    return calls.size() == failAt || fails;
  }
  // Counts a command that is about to be executed; returns true if it must fault.
  bool faultsCommand() { return ++commands == faultAt; }

  std::vector<std::string> calls; // names, in order
  uint64_t commands = 0;
};

LMC_HOST_EXPORT Hostility &hostility();

// A splitmix64 generator.
struct Random {
  uint64_t state;
  uint32_t below(uint32_t n); // 0 to n - 1
};

} // namespace lmc::hostdriver

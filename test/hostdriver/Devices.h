// How the device looks: an H100, or the GPU that LMC_HOST_ARCH asks for.
#pragma once

#include "test/hostdriver/Failure.h"

#include <array>
#include <string>
#include <vector>

namespace lmc::hostdriver {

struct DeviceLimits {
  int multiprocessors, sharedPerBlock, sharedPerSm; // shared memory in bytes; per block by opt-in
  int l2Bytes, memoryBusBits, memoryClock, clock;   // in kHz
  int registers = 65536, threadsPerSm = 2048, blocksPerSm = 32;
};

const DeviceLimits &deviceLimits();

// The numbers of the devices that the program sees: CUDA_VISIBLE_DEVICES picks some by their index
// or the start of their UUID ("GPU-..."), and its first word that names none ends the list.
std::vector<int> visibleDevices();

std::string deviceName();
std::array<unsigned char, 16> deviceUuid(int device);
int deviceAttribute(CUdevice_attribute which, int device);

} // namespace lmc::hostdriver

#include "test/hostdriver/Devices.h"
#include "test/hostdriver/Hostility.h"

#include <cstdlib>
#include <map>
#include <sstream>

namespace lmc::hostdriver {

// CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; NVIDIA's
// datasheets of A100 SXM, H100 SXM and B200.
static const struct {
  int arch;
  const char *name;
  DeviceLimits limits;
} kDevices[] = {
    {80, "Host driver A100", {108, 166912, 167936, 40 << 20, 5120, 1593000, 1410000}},
    {90, "Host driver H100", {132, 232448, 233472, 50 << 20, 5120, 2619000, 1980000}},
    {100, "Host driver B200", {148, 232448, 233472, 126 << 20, 8192, 3996000, 1965000}},
};

static const auto &device() {
  for (const auto &device : kDevices)
    if (device.arch == hostility().arch)
      return device;
  return kDevices[1];
}

const DeviceLimits &deviceLimits() { return device().limits; }

std::string deviceName() { return device().name; }

std::array<unsigned char, 16> deviceUuid(int device) {
  std::array<unsigned char, 16> uuid = {'h', 'o', 's', 't'};
  uuid[15] = static_cast<unsigned char>(device + 1);
  return uuid;
}

static std::string uuidText(int device) {
  std::string text = "GPU-";
  const auto uuid = deviceUuid(device);
  for (size_t i = 0; i < uuid.size(); ++i)
    text += fmt::format("{}{:02x}", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
  return text;
}

std::vector<int> visibleDevices() {
  std::vector<int> visible;
  const char *picked = std::getenv("CUDA_VISIBLE_DEVICES");
  if (!picked) {
    for (int i = 0; i < hostility().devices; ++i)
      visible.push_back(i);
    return visible;
  }
  std::stringstream words(picked);
  for (std::string word; std::getline(words, word, ',');) {
    int found = -1;
    for (int i = 0; i < hostility().devices; ++i)
      if (word == std::to_string(i) || (word.size() > 4 && uuidText(i).starts_with(word)))
        found = i;
    if (found < 0)
      break;
    visible.push_back(found);
  }
  return visible;
}

int deviceAttribute(CUdevice_attribute which, int device) {
  const DeviceLimits &limits = deviceLimits();
  const std::map<int, int> values = {
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, hostility().arch / 10},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, hostility().arch % 10},
      {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, limits.multiprocessors},
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 0x7fffffff},
      {CU_DEVICE_ATTRIBUTE_MAX_PITCH, 0x7fffffff},
      {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 48 << 10},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, limits.sharedPerBlock},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, limits.sharedPerSm},
      {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 1024},
      {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, limits.registers},
      {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, limits.registers},
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, limits.threadsPerSm},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, limits.blocksPerSm},
      {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, limits.l2Bytes},
      {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, limits.memoryBusBits},
      {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, limits.memoryClock},
      {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, limits.clock},
      {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 64 << 10},
      {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
      {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 3},
      {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
      {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
      {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
      {CU_DEVICE_ATTRIBUTE_INTEGRATED, 0},
      {CU_DEVICE_ATTRIBUTE_ECC_ENABLED, 1},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, 0},
      {CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT, 0},
      {CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, 0},
      {CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, device + 1},
      {CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, 0},
  };
  auto found = values.find(which);
  if (found == values.end())
    broken(CUDA_ERROR_INVALID_VALUE, "device attribute {} is not modelled", int(which));
  return found->second;
}

} // namespace lmc::hostdriver

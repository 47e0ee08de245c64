// Formats quantities for people.
#pragma once

#include <string>

namespace lmc {

std::string readableBytes(double bytes);     // "64 B", "1.5 KiB", "272.0 MiB", "25.74 GiB"
std::string readableSeconds(double seconds); // "12.3 us", "4.56 ms", "1.23 s", "15.5 h"
std::string readableFlops(double rate);      // "685 TFLOP/s", "1.2 GFLOP/s"
std::string readableBandwidth(double rate);  // "2.98 TB/s", "34.5 GB/s"
std::string readableCount(double count);     // "849,123"

} // namespace lmc

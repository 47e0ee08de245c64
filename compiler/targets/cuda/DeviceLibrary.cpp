#include "compiler/targets/cuda/DeviceLibrary.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"

#include <vector>

using llvm::StringRef;

namespace lmc::codegen {

static constexpr struct {
  const char *stem, *text;
} kHeaders[] = {
#include "device_library.inc"
};

llvm::ArrayRef<DeviceHeader> deviceHeaders() {
  static const std::vector<DeviceHeader> headers = [] {
    std::vector<DeviceHeader> made;
    for (const auto &[stem, text] : kHeaders)
      made.push_back({std::string("lmc/") + stem + ".cuh", text});
    llvm::sort(made, [](const auto &a, const auto &b) { return a.name < b.name; });
    return made;
  }();
  return headers;
}

// Returns the device header that a line includes; null for any other line.
static const DeviceHeader *includedBy(StringRef line) {
  line = line.trim();
  if (!line.consume_front("#include"))
    return nullptr;
  StringRef name = line.trim().trim("\"<>");
  const DeviceHeader *found = llvm::find_if(
      deviceHeaders(), [&](const DeviceHeader &header) { return header.name == name; });
  return found == deviceHeaders().end() ? nullptr : found;
}

static void inlineInto(std::string &to, StringRef text, llvm::StringSet<> &done) {
  while (!text.empty()) {
    auto [line, rest] = text.split('\n');
    text = rest;
    if (const DeviceHeader *header = includedBy(line)) {
      if (done.insert(header->name).second)
        inlineInto(to, header->text, done);
      continue;
    }
    if (line.trim() == "#pragma once") // this line is needed only in a header
      continue;
    to += line;
    to += '\n';
  }
}

std::string inlineDeviceHeaders(StringRef source) {
  std::string whole;
  llvm::StringSet<> done;
  inlineInto(whole, source, done);
  return whole;
}

} // namespace lmc::codegen

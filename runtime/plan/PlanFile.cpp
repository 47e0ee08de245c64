#include "runtime/plan/PlanFile.h"
#include "runtime/plan/PlanTrailer.h"
#include "runtime/plan/VerifyPlan.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace lmc {

size_t byteWidth(plan::DType dtype) {
  switch (dtype) {
  case plan::DType::F32:
  case plan::DType::I32:
    return 4;
  case plan::DType::BF16:
    return 2;
  case plan::DType::F64:
    return 8;
  case plan::DType::I8:
    return 1;
  }
  return 0;
}

// Verifies the plan in the `bytes` bytes at `data` and returns it. Errors call the plan `name`.
static Result<const plan::Plan *> verified(const void *data, size_t bytes,
                                           const std::string &name) {
  auto damaged = [&](const std::string &why) {
    return Error{fmt::format("{}: {}; compile it again", name, why)};
  };
  // A FlatBuffer's header is the offset of the root table and the file identifier, 4 bytes each.
  constexpr size_t kHeaderBytes = 8;
  if (bytes < kHeaderBytes || !plan::PlanBufferHasIdentifier(data))
    return Error{fmt::format("{}: not a plan (made by 'lmc compile')", name)};
  const PlanTrailer trailer = checkPlanTrailer(data, bytes);
  if (trailer == PlanTrailer::Missing)
    return damaged("the plan is cut short or damaged: its checksum is missing");
  if (trailer == PlanTrailer::Damaged)
    return damaged("the plan is damaged: its checksum does not match");
  // The number of tables is limited because a hostile plan may refer to one table many times, which
  // takes far longer to verify than its bytes suggest. Real plans have a few tables per command.
  constexpr size_t kMaxDepth = 64, kMaxTables = 10'000'000;
  flatbuffers::Verifier verifier(static_cast<const uint8_t *>(data), bytes - kPlanTrailerBytes,
                                 kMaxDepth, kMaxTables);
  if (!plan::VerifyPlanBuffer(verifier))
    return damaged("the plan is damaged: its structure is not valid");
  const plan::Plan *root = plan::GetPlan(data);
  if (root->schema_version() != kSchemaVersion)
    return Error{fmt::format("{}: the plan has schema version {}, this program reads version {}; "
                             "compile it with the lmc of this release",
                             name, root->schema_version(), kSchemaVersion)};
  if (auto sound = verifyPlan(*root); !sound)
    return damaged(fmt::format("the plan makes no sense: {}", sound.error().message));
  return root;
}

Result<std::unique_ptr<PlanFile>> PlanFile::open(const std::string &path) {
  auto failed = [&](int reason) {
    return Error{fmt::format("{}: cannot read the plan: {}", path, std::strerror(reason))};
  };
  int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0)
    return failed(errno);
  struct stat status;
  if (fstat(file, &status) != 0) {
    int reason = errno;
    close(file);
    return failed(reason);
  }
  if (!S_ISREG(status.st_mode)) {
    close(file);
    return Error{fmt::format("{}: cannot read the plan: not a file", path)};
  }
  if (status.st_size == 0) {
    close(file);
    return Error{fmt::format("{}: not a plan: the file is empty", path)};
  }
  std::unique_ptr<PlanFile> plan(new PlanFile);
  plan->name = path;
  plan->mappedBytes = size_t(status.st_size);
  void *mapping = mmap(nullptr, plan->mappedBytes, PROT_READ, MAP_PRIVATE, file, 0);
  int reason = errno;
  close(file);
  if (mapping == MAP_FAILED)
    return failed(reason);
  plan->mapping = mapping;
  auto root = verified(plan->mapping, plan->mappedBytes, path);
  if (!root)
    return root.error();
  plan->root = *root;
  return plan;
}

Result<std::unique_ptr<PlanFile>> PlanFile::fromBytes(const void *data, size_t bytes,
                                                      const std::string &name) {
  std::unique_ptr<PlanFile> plan(new PlanFile);
  plan->name = name;
  plan->mappedBytes = bytes;
  plan->owned = true;
  plan->mapping = std::malloc(bytes ? bytes : 1);
  if (!plan->mapping)
    return Error{fmt::format("{}: not enough memory for the plan", name), ExitCode::Failure};
  if (bytes)
    std::memcpy(plan->mapping, data, bytes);
  auto root = verified(plan->mapping, bytes, name);
  if (!root)
    return root.error();
  plan->root = *root;
  return plan;
}

PlanFile::~PlanFile() {
  if (!mapping)
    return;
  if (owned)
    std::free(mapping);
  else
    munmap(mapping, mappedBytes);
}

int PlanFile::findVariable(std::string_view variable) const {
  for (uint32_t i = 0; i < root->variables()->size(); ++i)
    if (root->variables()->Get(i)->name()->string_view() == variable)
      return int(i);
  return -1;
}

int PlanFile::findFunction(std::string_view function) const {
  for (uint32_t i = 0; i < root->functions()->size(); ++i)
    if (root->functions()->Get(i)->name()->string_view() == function)
      return int(i);
  return -1;
}

} // namespace lmc

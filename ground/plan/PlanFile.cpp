#include "ground/plan/PlanFile.h"
#include "ground/plan/Names.h"
#include "ground/plan/PlanTrailer.h"
#include "ground/support/Sha256.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace lmc {

uint64_t ranksAlong(const plan::Plan &plan, plan::Axis axis) {
  switch (axis) {
  case plan::Axis::Replicate:
    return plan.batch()->ranks() / plan.shard_ranks();
  case plan::Axis::Shard:
    return plan.shard_ranks();
  case plan::Axis::Expert:
    return plan.expert_ranks();
  case plan::Axis::ExpertShard:
    return plan.shard_ranks() / plan.expert_ranks();
  }
  return 1;
}

std::string nameOf(plan::Axis axis) { return names::snakeCase(plan::EnumNameAxis(axis)); }

size_t byteWidth(plan::DType dtype) {
  switch (dtype) {
  case plan::DType::F32:
  case plan::DType::I32:
    return 4;
  case plan::DType::BF16:
  case plan::DType::F16:
    return 2;
  case plan::DType::F64:
    return 8;
  case plan::DType::I8:
  case plan::DType::F8E4M3:
  case plan::DType::F8E5M2:
    return 1;
  }
  return 0;
}

// A FlatBuffer's header has the offset of the root table and the file identifier (4 bytes each).
static constexpr size_t kHeaderBytes = 8;

static Error notAPlan(const std::string &name) {
  return {fmt::format("{}: not a plan (made by 'lmc compile')", name)};
}

// Verifies and returns the plan in the `bytes` bytes at `data`. Errors use `name` as its path.
static Result<const plan::Plan *> verified(const void *data, size_t bytes,
                                           const std::string &name) {
  auto damaged = [&](const std::string &why) {
    return userError("{}: {}; compile it again", name, why);
  };
  if (bytes < kHeaderBytes || !plan::PlanBufferHasIdentifier(data))
    return notAPlan(name);
  const PlanTrailer trailer = checkPlanTrailer(data, bytes);
  if (trailer == PlanTrailer::Missing)
    return damaged("the plan is cut short or damaged: its checksum is missing");
  if (trailer == PlanTrailer::Damaged)
    return damaged("the plan is damaged: its checksum does not match");
  // A small hostile plan may refer to one table many times, so that verifying it takes very long.
  // The limit prevents this; real plans have a few tables per command.
  constexpr size_t kMaxDepth = 64, kMaxTables = 10'000'000;
  flatbuffers::Verifier verifier(static_cast<const uint8_t *>(data), bytes - kPlanTrailerBytes,
                                 kMaxDepth, kMaxTables);
  if (!plan::VerifyPlanBuffer(verifier))
    return damaged("the plan is damaged: its structure is not valid");
  const plan::Plan *root = plan::GetPlan(data);
  if (root->schema_version() != kSchemaVersion)
    return userError("{}: the plan has schema version {}, this program reads version {}; compile "
                     "it with the lmc of this release",
                     name, root->schema_version(), kSchemaVersion);
  if (auto sound = verifyPlan(*root); !sound)
    return damaged(fmt::format("the plan makes no sense: {}", sound.error().message));
  return root;
}

Result<std::unique_ptr<PlanFile>> PlanFile::open(const std::string &path) {
  auto failed = [&](const std::string &reason) {
    return userError("{}: cannot read the plan: {}", path, reason);
  };
  int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); // else open() waits on a FIFO
  if (file < 0)
    return failed(std::strerror(errno));
  struct stat status;
  if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) {
    close(file);
    return failed("not a file");
  }
  // Checks the header first, because a file that is no plan may not fit into memory.
  char header[kHeaderBytes] = {};
  if (status.st_size > 0 && (::pread(file, header, sizeof(header), 0) < ssize_t(sizeof(header)) ||
                             !plan::PlanBufferHasIdentifier(header))) {
    close(file);
    return notAPlan(path);
  }
  std::unique_ptr<PlanFile> plan(new PlanFile);
  plan->name = path;
  plan->bytes.resize(size_t(status.st_size));
  size_t done = 0;
  int reason = 0;
  while (done < plan->bytes.size() && reason == 0) {
    ssize_t got = ::read(file, plan->bytes.data() + done, plan->bytes.size() - done);
    if (got > 0)
      done += size_t(got);
    else if (got == 0)
      plan->bytes.resize(done); // the file has become shorter
    else if (errno != EINTR)
      reason = errno;
  }
  close(file);
  if (reason != 0)
    return failed(std::strerror(reason));
  if (plan->bytes.empty())
    return userError("{}: not a plan: the file is empty", path);
  LMC_TRY(plan->verify());
  return plan;
}

Result<std::unique_ptr<PlanFile>> PlanFile::fromBytes(const void *data, size_t bytes,
                                                      const std::string &name) {
  std::unique_ptr<PlanFile> plan(new PlanFile);
  plan->name = name;
  const auto *begin = static_cast<const std::byte *>(data);
  plan->bytes.assign(begin, begin + bytes);
  LMC_TRY(plan->verify());
  return plan;
}

Result<void> PlanFile::verify() {
  LMC_LET(verifiedRoot, verified(bytes.data(), bytes.size(), name));
  root = *verifiedRoot;
  sha = sha256(bytes.data(), bytes.size());
  return openPhases();
}

// Returns what differs between the plans of two phases of a run, but must be equal; "" if nothing.
static std::string differenceOfPhases(const plan::Plan &first, const plan::Plan &later) {
  if (first.fingerprint()->string_view() != later.fingerprint()->string_view())
    return "its parameters or moments";
  if (first.target()->string_view() != later.target()->string_view())
    return "its target";
  if (first.nodes() != later.nodes() || first.devices_per_node() != later.devices_per_node() ||
      first.shard_ranks() != later.shard_ranks() || first.expert_ranks() != later.expert_ranks())
    return "its ranks";
  return "";
}

Result<void> PlanFile::openPhases() {
  if (!root->training_phases())
    return {};
  uint64_t before = 0;
  for (const plan::TrainingPhase *phase : *root->training_phases()) {
    auto damaged = [&](const std::string &why) {
      return userError("{}: the plan makes no sense: phase '{}': {}; compile it again", name,
                       phase->name()->str(), why);
    };
    constexpr uint64_t kMaxSteps = uint64_t{1} << 50;
    if (phase->steps() == 0 || phase->steps() > kMaxSteps)
      return damaged(fmt::format("{} steps", phase->steps()));
    const bool isFirst = trainingPhases.empty();
    for (const Phase &other : trainingPhases)
      if (other.name == phase->name()->string_view())
        return damaged("two phases have this name");
    if ((phase->plan() == nullptr) != isFirst)
      return damaged(isFirst ? "the first phase has a plan of its own" : "it has no plan");
    trainingPhases.push_back({phase->name()->str(), before, phase->steps()});
    before += phase->steps();
    if (isFirst)
      continue;
    LMC_LET(plan, fromBytes(phase->plan()->data(), phase->plan()->size(),
                            fmt::format("{} (phase {})", name, phase->name()->str())));
    if ((**plan)->training_phases())
      return damaged("its plan has phases, too");
    if (const std::string differs = differenceOfPhases(*root, ***plan); !differs.empty())
      return damaged(differs + " are not those of the first phase");
    laterPhases.push_back(std::move(*plan));
  }
  return {};
}

const PlanFile &PlanFile::phasePlan(size_t index) const {
  return index == 0 ? *this : *laterPhases.at(index - 1);
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

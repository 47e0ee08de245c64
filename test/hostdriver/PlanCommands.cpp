#include "test/hostdriver/PlanCommands.h"
#include "test/hostdriver/Driver.h"

#include "ground/plan/Operands.h"
#include "ground/plan/SliceGeometry.h"

#include <xxhash.h>

#include <cstring>
#include <fstream>
#include <iterator>

namespace lmc::hostdriver {
namespace {

// The record that a kernel for initial values reads (plan.fbs, Initializer).
struct Record {
  uint64_t first, elements, seed, stream;
  double value;
};

bool isPlan(const std::string &path) {
  char start[8] = {};
  std::ifstream(path, std::ios::binary).read(start, sizeof(start));
  return std::string_view(start + 4, 4) == plan::PlanIdentifier();
}

// Returns the first argument of this process that is the file of a plan, also as --name=FILE.
std::string planOnCommandLine() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  for (std::string argument; std::getline(file, argument, '\0');) {
    if (argument.starts_with("--") && argument.find('=') != std::string::npos)
      argument = argument.substr(argument.find('=') + 1);
    if (isPlan(argument))
      return argument;
  }
  return "";
}

bool equal(const Matrix &a, const Matrix &b) {
  return a.dtype == b.dtype && a.rows == b.rows && a.columns == b.columns && a.batch == b.batch &&
         (a.batch == 1 || a.stride == b.stride) && (a.rows == 1 || a.row == b.row) &&
         (a.columns == 1 || a.column == b.column);
}

// Rows without gaps between them are one run.
Access joined(Access access) {
  if (access.rows > 1 && access.pitch == access.run) {
    access.run *= access.rows;
    access.rows = 1;
  }
  if (access.rows == 1)
    access.pitch = 0;
  return access;
}

bool equal(const Access &a, const Access &b) {
  const Access x = joined(a), y = joined(b);
  return x.run == y.run && x.rows == y.rows && x.pitch == y.pitch;
}

std::string sourceOf(const plan::Command &command) {
  return command.source() ? command.source()->str() : "";
}

} // namespace

const PlanFile &PlanCommands::file() {
  if (!opened)
    read();
  return *opened;
}

void PlanCommands::read() {
  const std::string path = hostility().plan.empty() ? planOnCommandLine() : hostility().plan;
  if (path.empty())
    broken(CUDA_ERROR_FILE_NOT_FOUND,
           "no argument of this process is a plan (and LMC_HOST_PLAN names none), so that kernels "
           "and products are unknown");
  auto file = PlanFile::open(path);
  if (!file)
    broken(CUDA_ERROR_FILE_NOT_FOUND, "{}", file.error().message);
  whole = std::move(*file);
  enterPhase(0);
}

void PlanCommands::enterPhase(size_t index) {
  phase = index;
  opened = &whole->phasePlan(index);
  const plan::Plan &plan = **opened;
  arenas.assign(plan.arenas()->size(), 0);
  launches.assign(plan.kernels()->size(), {});
  values.assign(plan.kernels()->size(), {});
  gemms.clear();
  copies.clear();
  collectives.clear();
  for (const auto *function : *plan.functions())
    for (const auto *command : *function->commands()) {
      for (const plan::Launch *launch : plan::launchesOf(*command))
        launches[launch->kernel()].push_back({launch, command, function});
      if (plan::productOf(*command))
        gemms.push_back({nullptr, command, function});
      if (command->body_as_Copy())
        copies.push_back({nullptr, command, function});
      if (command->body_as_Collective())
        collectives.push_back({nullptr, command, function});
    }
  for (const auto *variable : *plan.variables())
    if (variable->initializer() && variable->initializer()->kernel() >= 0)
      values[size_t(variable->initializer()->kernel())].push_back(variable);
}

int PlanCommands::findModule(const void *image) {
  file(); // reads the plan
  const size_t phases = std::max<size_t>(whole->phases().size(), 1), before = phase;
  for (size_t i = 0; i < phases; ++i) {
    if (const size_t next = (before + i) % phases; next != phase)
      enterPhase(next);
    if (const int module = findModuleOfPhase(image); module >= 0)
      return module;
  }
  return -1;
}

int PlanCommands::findModuleOfPhase(const void *image) {
  const auto &modules = *file()->modules();
  for (uint32_t i = 0; i < modules.size(); ++i) {
    const auto &code = *modules[i]->image();
    // The length of the program's image is unknown, so the comparison stops at the first byte that
    // differs.
    const auto *bytes = static_cast<const uint8_t *>(image);
    uint32_t same = 0;
    while (same < code.size() && code[same] == bytes[same])
      ++same;
    if (code.size() && same == code.size())
      return int(i);
  }
  return -1;
}

int PlanCommands::findKernel(int module, const std::string &entry) {
  const auto &kernels = *file()->kernels();
  for (uint32_t i = 0; i < kernels.size(); ++i)
    if (int(kernels[i]->module_()) == module && kernels[i]->entry()->str() == entry)
      return int(i);
  return -1;
}

size_t PlanCommands::argumentsOf(uint32_t kernel) {
  file();
  if (!values[kernel].empty())
    return values[kernel].front()->initializer()->kind() == plan::InitializerKind::CopyOf ? 3 : 2;
  return launches[kernel].empty() ? 0 : launches[kernel].front().launch->args()->size();
}

bool PlanCommands::fits(const Operands &operands) {
  std::vector<uint64_t> known = arenas;
  for (auto [index, address] : operands) {
    const uint32_t arena = slice(index).arena();
    const uint64_t start = address - slice(index).offset();
    if (known[arena] == start)
      continue;
    // Devices may round the sizes of allocations up.
    constexpr uint64_t kRounding = 2 << 20;
    const Memory::Allocation *at = driver().memory.holding(start);
    const uint64_t bytes = (*opened)->arenas()->Get(arena)->bytes();
    if (known[arena] || !at || at->pinned || at->address != start || at->bytes < bytes ||
        at->bytes > bytes + kRounding || std::count(known.begin(), known.end(), start))
      return false;
    known[arena] = start;
  }
  arenas = known;
  return true;
}

bool PlanCommands::isInArena(uint64_t address) {
  const Memory::Allocation *at = driver().memory.holding(address);
  return at && std::count(arenas.begin(), arenas.end(), at->address);
}

void PlanCommands::forget(uint64_t allocation) {
  std::replace(arenas.begin(), arenas.end(), allocation, uint64_t(0));
}

std::string PlanCommands::place(uint64_t address) {
  const Memory::Allocation *at = driver().memory.holding(address);
  for (size_t i = 0; at && i < arenas.size(); ++i)
    if (arenas[i] == at->address)
      return fmt::format("byte {} of arena '{}'", address - arenas[i],
                         (*opened)->arenas()->Get(uint32_t(i))->name()->str());
  return fmt::format("{:#x}", address);
}

Access PlanCommands::bytesOf(uint32_t index, uint64_t address, bool write) {
  const plan::Slice &at = slice(index);
  if (!at.pitch())
    return {address, at.bytes(), write};
  return {address, at.bytes() / at.rows(), write, at.rows(), at.pitch()};
}

LaunchMatch PlanCommands::findLaunch(uint32_t kernel, const std::vector<uint64_t> &pointers) {
  const std::string entry = file()->kernels()->Get(kernel)->entry()->str();
  for (const Candidate &candidate : launches[kernel]) {
    const plan::Launch &launch = *candidate.launch;
    Operands operands;
    for (uint32_t i = 0; i < launch.args()->size(); ++i)
      operands.push_back({launch.args()->Get(i), pointers[i]});
    if (!fits(operands))
      continue;
    // A launch that is only a part of a command may write a part of a result, and may read what an
    // earlier launch of the command wrote.
    const bool whole = candidate.command->body_as_Launch() == &launch;
    LaunchMatch match{
        fmt::format("{} ({})", entry, sourceOf(*candidate.command)), {}, {}, nullptr, {}};
    for (uint32_t i = 0; i < operands.size(); ++i) {
      const bool input = i < launch.inputs();
      match.access.push_back(input   ? simt::Access::Read
                             : whole ? simt::Access::Write
                                     : simt::Access::ReadWrite);
      match.bytes.push_back(bytesOf(operands[i].first, operands[i].second, !input));
    }
    return match;
  }
  // Commands that can be computed in two ways are tried on memory outside of the arenas.
  for (const Candidate &candidate : launches[kernel]) {
    if (!plan::hasTwoWays(*candidate.command) ||
        std::any_of(pointers.begin(), pointers.end(), [&](uint64_t at) { return isInArena(at); }))
      continue;
    const plan::Launch &launch = *candidate.launch;
    LaunchMatch match{fmt::format("{} on scratch memory ({})", entry, sourceOf(*candidate.command)),
                      {},
                      {},
                      nullptr,
                      {}};
    for (uint32_t i = 0; i < pointers.size(); ++i) {
      const bool input = i < launch.inputs();
      match.access.push_back(input ? simt::Access::Read : simt::Access::ReadWrite);
      match.bytes.push_back(bytesOf(launch.args()->Get(i), pointers[i], !input));
    }
    return match;
  }
  for (const plan::Variable *variable : values[kernel]) {
    const plan::Slice &to = slice(variable->slice());
    const uint64_t out = pointers.back(), width = byteWidth(to.dtype());
    const Memory::Allocation *at = driver().memory.holding(out);
    if (!at || out - at->address < to.offset() || out - at->address >= to.offset() + to.bytes())
      continue;
    const uint64_t skipped = out - at->address - to.offset();
    Operands operands = {{variable->slice(), out - skipped}};
    LaunchMatch match{fmt::format("{} ('{}')", entry, variable->name()->str()),
                      {simt::Access::Read},
                      {{pointers[0], sizeof(Record), false}},
                      variable,
                      {0}};
    if (pointers.size() == 3) {
      const int source = opened->findVariable(variable->initializer()->source()->str());
      const uint32_t index = (*opened)->variables()->Get(uint32_t(source))->slice();
      const uint64_t skip = skipped / width * byteWidth(slice(index).dtype());
      operands.push_back({index, pointers[1] - skip});
      match.access.push_back(simt::Access::Read);
      match.bytes.push_back({pointers[1], slice(index).bytes() - skip, false});
      match.elementBytes.push_back(byteWidth(slice(index).dtype()));
    }
    if (skipped % width || !fits(operands))
      continue;
    match.access.push_back(simt::Access::Write);
    match.bytes.push_back({out, to.bytes() - skipped, true});
    match.elementBytes.push_back(width);
    return match;
  }
  std::string places;
  for (uint64_t pointer : pointers)
    places += (places.empty() ? "" : ", ") + place(pointer);
  broken(kRuleBroken, "the plan has no launch of '{}' on {}", entry, places);
}

uint64_t PlanCommands::checkRecord(const plan::Variable &variable, const void *data, uint64_t out) {
  Record record;
  std::memcpy(&record, data, sizeof(record));
  const plan::Slice &to = slice(variable.slice());
  const plan::Initializer &how = *variable.initializer();
  const uint64_t width = byteWidth(to.dtype()), all = to.bytes() / width;
  const std::string name = variable.name()->str();
  const uint64_t first = (out - arenas[to.arena()] - to.offset()) / width;
  const bool normal = how.kind() == plan::InitializerKind::Normal;
  // With padding between rows, a launch draws the elements of one row, which are numbered without
  // the padding. A copy takes the padding too.
  uint64_t number = first, most = all - first;
  if (variable.shard() && variable.shard()->pitch() && how.kind() != plan::InitializerKind::CopyOf) {
    const uint64_t pitch = variable.shard()->pitch(), columns = variable.shard()->shape()->Get(1);
    number = first / pitch * columns + first % pitch;
    most = first % pitch < columns ? columns - first % pitch : 0;
  }
  if (record.first != number || record.elements > most)
    broken(CUDA_ERROR_LAUNCH_FAILED,
           "the record says elements {} to {} of '{}', which has {}; the pointer is to element {}",
           record.first, record.first + record.elements, name, all, first);
  if (how.kind() != plan::InitializerKind::CopyOf &&
      record.value != (normal ? how.stddev() : how.scale()))
    broken(CUDA_ERROR_LAUNCH_FAILED, "the record of '{}' has the value {}", name, record.value);
  if (normal && record.stream != XXH64(name.data(), name.size(), 0))
    broken(CUDA_ERROR_LAUNCH_FAILED, "the record of '{}' has the random stream of another variable",
           name);
  return record.elements;
}

bool PlanCommands::isScratch(const PlainProduct &product) {
  return !isInArena(product.a.address) && !isInArena(product.b.address) &&
         !isInArena(product.d.address);
}

std::string PlanCommands::findProduct(const PlainProduct &product) {
  file();
  const bool inArenas = !isScratch(product);
  const plan::Command *alike = nullptr;
  for (const Candidate &candidate : gemms) {
    const plan::Gemm &gemm = *plan::productOf(*candidate.command);
    auto matrix = [&](uint32_t index, uint64_t rows, uint64_t columns, bool transposed) {
      const plan::DType dtype = slice(index).dtype();
      const uint64_t width = byteWidth(dtype);
      const uint64_t stride = rows * columns * width;
      return transposed
                 ? Matrix{0, dtype, rows, columns, width, rows * width, gemm.batch(), stride}
                 : Matrix{0, dtype, rows, columns, columns * width, width, gemm.batch(), stride};
    };
    if (!equal(product.a, matrix(gemm.a(), gemm.m(), gemm.k(), gemm.transpose_a())) ||
        !equal(product.b, matrix(gemm.b(), gemm.k(), gemm.n(), gemm.transpose_b())) ||
        !equal(product.d, matrix(gemm.d(), gemm.m(), gemm.n(), false)) ||
        product.accumulate != plan::accumulates(gemm) ||
        (product.residual.address != 0) != (plan::residualOf(gemm) >= 0) ||
        (product.bias != 0) != (gemm.bias() >= 0) ||
        (product.scaleA != 0) != (gemm.scale_a() >= 0) ||
        (product.scaleB != 0) != (gemm.scale_b() >= 0) || product.scaling != gemm.scaling())
      continue;
    alike = candidate.command;
    if (!inArenas && !arenas.empty() && std::count(arenas.begin(), arenas.end(), 0) == 0)
      break;
    Operands operands = {{gemm.a(), product.a.address},
                         {gemm.b(), product.b.address},
                         {gemm.d(), product.d.address}};
    if (product.bias)
      operands.push_back({uint32_t(gemm.bias()), product.bias});
    if (product.scaleA) {
      operands.push_back({uint32_t(gemm.scale_a()), product.scaleA});
      operands.push_back({uint32_t(gemm.scale_b()), product.scaleB});
    }
    if (product.residual.address)
      operands.push_back({uint32_t(plan::residualOf(gemm)), product.residual.address});
    if (!fits(operands))
      continue;
    const int64_t workspace = candidate.command->workspace();
    if (product.workspaceBytes && isInArena(product.workspace) &&
        (workspace < 0 ||
         product.workspace !=
             arenas[slice(uint32_t(workspace)).arena()] + slice(uint32_t(workspace)).offset() ||
         product.workspaceBytes > slice(uint32_t(workspace)).bytes()))
      broken(kRuleBroken,
             "the product of {} uses {} bytes at {} as workspace, which the plan does not give it",
             sourceOf(*candidate.command), product.workspaceBytes, place(product.workspace));
    return fmt::format("gemm ({})", sourceOf(*candidate.command));
  }
  if (alike && !inArenas)
    return fmt::format("gemm on scratch memory ({})", sourceOf(*alike));
  broken(kRuleBroken, "the plan has no product [{}, {}] x [{}, {}]{} of {} and {} into {}{}",
         product.a.rows, product.a.columns, product.b.rows, product.b.columns,
         product.accumulate ? " that adds" : "", place(product.a.address), place(product.b.address),
         place(product.d.address), alike ? ", only one of that shape" : "");
}

std::string PlanCommands::findCopy(const Access &from, const Access &to) {
  if (!opened || (!isInArena(from.begin) && !isInArena(to.begin)))
    return "copy on the device";
  for (const Candidate &candidate : copies) {
    const plan::Copy &copy = *candidate.command->body_as_Copy();
    if (equal(from, bytesOf(copy.x(), 0, false)) && equal(to, bytesOf(copy.d(), 0, true)) &&
        fits({{copy.x(), from.begin}, {copy.d(), to.begin}}))
      return fmt::format("copy ({})", sourceOf(*candidate.command));
  }
  broken(kRuleBroken,
         "the plan has no copy of {} rows of {} bytes, {} apart, at {} to rows {} apart at {}",
         from.rows, from.run, from.pitch, place(from.begin), to.pitch, place(to.begin));
}

std::string PlanCommands::findCollective(plan::CollectiveKind kind, const Access &x,
                                         const Access &d) {
  file();
  for (const Candidate &candidate : collectives) {
    const plan::Collective &op = *candidate.command->body_as_Collective();
    if (op.kind() == kind && slice(op.x()).bytes() == x.run && slice(op.d()).bytes() == d.run &&
        fits({{op.x(), x.begin}, {op.d(), d.begin}}))
      return fmt::format("{} ({})", plan::EnumNameCollectiveKind(kind),
                         sourceOf(*candidate.command));
  }
  broken(kRuleBroken, "the plan has no {} of {} bytes at {} to {} bytes at {}",
         plan::EnumNameCollectiveKind(kind), x.run, place(x.begin), d.run, place(d.begin));
}

} // namespace lmc::hostdriver

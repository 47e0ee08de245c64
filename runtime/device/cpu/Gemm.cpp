// Chooses an implementation for each matrix product.
#include "runtime/device/cpu/Gemm.h"

#include "runtime/device/cpu/CpuMachine.h"
#include "runtime/device/cpu/gemm/Groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <limits>

namespace lmc::cpu {

static constexpr std::array<const char *, 4> kNames = {"oneDNN", "oneDNN sgemm", "packed", "MKL"};

const char *nameOf(GemmLibrary library) { return kNames[size_t(library)]; }

static const char *nameOf(Storage storage) {
  return storage == Storage::F64 ? "f64" : storage == Storage::F32 ? "f32" : "bf16";
}

std::string describe(const GemmShape &shape) {
  std::string text = fmt::format("{} {}x{}x{}", nameOf(shape.input), shape.m, shape.n, shape.k);
  if (shape.transposeA)
    text += " a^T";
  if (shape.transposeB)
    text += " b^T";
  if (shape.accumulate)
    text += " +d";
  if (shape.hasBias)
    text += fmt::format(" +bias {}", nameOf(shape.bias));
  if (shape.output != shape.input)
    text += fmt::format(" -> {}", nameOf(shape.output));
  return text;
}

std::string describe(const GemmGroupShape &group) {
  return fmt::format("{}, {} in {} part{}", describe(group.shape),
                     group.split == GemmGroupShape::Split::M ? "m" : "k", group.parts,
                     group.parts == 1 ? "" : "s");
}

Result<GemmKey> GemmCache::key(const std::string &product) const {
  LMC_LET(mkl, openMkl());
  return GemmKey{fmt::format("{}, {} thread{}, kernels {}, oneDNN {}, {}", processorName(), threads,
                             threads == 1 ? "" : "s", kernelSet().name, oneDnnVersion(),
                             *mkl ? "MKL " + (*mkl)->version : "no MKL"),
                 product};
}

Result<std::vector<GemmLibrary>> GemmCache::libraries(const GemmShape &shape) const {
  LMC_LET(mkl, openMkl());
  std::vector<GemmLibrary> found;
  if (oneDnnHas(shape))
    found.push_back(GemmLibrary::OneDnn);
  if (isPlainF32(shape))
    found.push_back(GemmLibrary::OneDnnSgemm);
  found.push_back(GemmLibrary::Packed);
  if (*mkl && mklHas(**mkl, shape))
    found.push_back(GemmLibrary::Mkl);
  return found;
}

Result<std::unique_ptr<Gemm>> GemmCache::make(const GemmShape &shape, GemmLibrary library) {
  switch (library) {
  case GemmLibrary::OneDnn:
    return makeOneDnnGemm(shape);
  case GemmLibrary::OneDnnSgemm:
    return std::unique_ptr<Gemm>(new LibraryGemm(shape, nameOf(library), oneDnnSgemm));
  case GemmLibrary::Packed:
    return makePackedGemm(shape, threads, buffers);
  case GemmLibrary::Mkl:
    return std::unique_ptr<Gemm>(
        new LibraryGemm(shape, nameOf(library), mklProduct(**openMkl(), threads)));
  }
  return Error{"no such library", ExitCode::Failure};
}

Result<std::vector<GemmLibrary>> GemmCache::libraries(const GemmGroupShape &group) const {
  auto found = libraries(group.shape);
  // oneDNN compiles for one m and k, so it cannot compute a group, whose products differ in m or k.
  if (found)
    std::erase(*found, GemmLibrary::OneDnn);
  return found;
}

Result<std::unique_ptr<GemmGroup>> GemmCache::make(const GemmGroupShape &group,
                                                   GemmLibrary library) {
  switch (library) {
  case GemmLibrary::OneDnn:
    break;
  case GemmLibrary::OneDnnSgemm:
    return std::unique_ptr<GemmGroup>(
        new LibraryGroup(group, threads, nameOf(library), oneDnnSgemm));
  case GemmLibrary::Packed:
    return makePackedGroup(group, threads, buffers);
  case GemmLibrary::Mkl:
    return std::unique_ptr<GemmGroup>(
        new LibraryGroup(group, threads, nameOf(library), mklProduct(**openMkl(), /*threads=*/1)));
  }
  return Error{"no such library", ExitCode::Failure};
}

template <typename Shape> Result<GemmLibrary> GemmCache::choose(const Shape &shape) {
  // Without timing, the packed kernels are used: their results do not depend on the number of
  // threads. Those of oneDNN 2.6 often do, in the last bits: its threads divide the sum over k.
  const GemmLibrary fixed = GemmLibrary::Packed;
  if (!choices)
    return fixed;
  LMC_LET(product, key(describe(shape)));
  LMC_LET(available, libraries(shape));
  auto named = [&](const std::string &name) -> std::optional<GemmLibrary> {
    for (GemmLibrary library : *available)
      if (name == nameOf(library))
        return library;
    return std::nullopt;
  };
  if (auto choice = choices->find(*product))
    if (auto library = named(choice->implementation))
      return *library;
  if (!choices->measures()) {
    choices->add(*product, {nameOf(fixed), "", 0}, 0);
    return fixed;
  }
  const auto begin = std::chrono::steady_clock::now();
  auto best = available->size() == 1 ? GemmChoice{nameOf(available->front()), "", 0}
                                     : measure(shape, *available);
  LMC_TRY(best);
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
  choices->add(*product, *best, spent.count());
  return *named(best->implementation);
}

// If a product would take more than this number of seconds at the machine's peak speed, a smaller
// shape is timed (probeOf()). So all products of a model are timed in about ten seconds.
static constexpr double kProbeSeconds = 0.04;
static constexpr int kTimedRuns = 4;

// Halves the largest of m, n and k until the product has at most `flops` FLOPs, or until all three
// are at most 512. A size above 512 hardly changes the speed.
static GemmShape probeOf(GemmShape shape, double flops) {
  while (shape.flops() > flops) {
    int64_t &wider = shape.m > shape.n ? shape.m : shape.n;
    int64_t &largest = wider > shape.k ? wider : shape.k;
    if (largest <= 512)
      break;
    // If `largest` is a multiple of 64, its half is rounded up to a multiple of 64.
    const int64_t unit = largest % 64 == 0 ? 64 : 1;
    largest = (largest / 2 + unit - 1) / unit * unit;
  }
  return shape;
}

// Fills the memory with elements between -1/2 and 1/2.
static void fillRandom(AlignedMemory &memory, int64_t elements, Storage storage) {
  const int64_t width = elementBytes(storage), period = std::min<int64_t>(elements, 4096);
  memory.reserve(elements * width);
  uint32_t state = 1;
  for (int64_t i = 0; i < period; ++i) {
    state = state * 1664525u + 1013904223u;
    const float value = float(int32_t(state)) / 4294967296.0f;
    const double wide = value;
    if (storage == Storage::F64)
      std::memcpy(memory.at(i * 8), &wide, 8);
    else if (storage == Storage::F32)
      std::memcpy(memory.at(i * 4), &value, 4);
    else
      std::memcpy(memory.at(i * 2), reinterpret_cast<const char *>(&value) + 2, 2);
  }
  for (int64_t i = period; i < elements; i += period)
    std::memcpy(memory.at(i * width), memory.data(),
                size_t(std::min(period, elements - i) * width));
}

// Measures the time of run(product) for each library. Returns the fastest, with its shortest time.
template <typename Product, typename Shape, typename Run>
Result<GemmChoice> GemmCache::fastest(const Shape &shape, const std::vector<GemmLibrary> &available,
                                      Run run) {
  std::vector<std::unique_ptr<Product>> products;
  for (GemmLibrary library : available) {
    LMC_LET(product, make(shape, library));
    products.push_back(std::move(*product));
  }
  std::vector<double> seconds(products.size(), std::numeric_limits<double>::infinity());
  // All libraries run in each round, so that other load on the machine slows all of them. Round 0
  // only warms them up. From round 2 on, libraries over 25% slower than the best are left out.
  double best = std::numeric_limits<double>::infinity();
  for (int turn = 0; turn <= kTimedRuns; ++turn)
    for (size_t i = 0; i < products.size(); ++i) {
      if (turn > 1 && seconds[i] > 1.25 * best)
        continue;
      const auto begin = std::chrono::steady_clock::now();
      run(*products[i]);
      const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
      if (turn == 0)
        continue;
      seconds[i] = std::min(seconds[i], spent.count());
      best = std::min(best, seconds[i]);
    }
  const auto first = std::min_element(seconds.begin(), seconds.end());
  return GemmChoice{nameOf(available[size_t(first - seconds.begin())]), "", *first};
}

Result<GemmChoice> GemmCache::measure(const GemmShape &shape,
                                      const std::vector<GemmLibrary> &available) {
  const GemmShape probe = probeOf(shape, kProbeSeconds * peakSpeed(shape.input, threads).flops);
  AlignedMemory a, b, d, bias;
  fillRandom(a, probe.m * probe.k, probe.input);
  fillRandom(b, probe.k * probe.n, probe.input);
  fillRandom(d, probe.m * probe.n, probe.output);
  fillRandom(bias, probe.n, probe.bias);
  auto choice = fastest<Gemm>(
      probe, available, [&](Gemm &gemm) { gemm.run(a.data(), b.data(), d.data(), bias.data()); });
  if (choice)
    choice->seconds *= shape.flops() / probe.flops();
  return choice;
}

// If several products of a group are timed, each operand has at most this many bytes in all of them
// together. The limit exceeds the caches: timing must read operands from memory, as training does.
static constexpr int64_t kProbeBytes = 64 << 20;

Result<GemmChoice> GemmCache::measure(const GemmGroupShape &group,
                                      const std::vector<GemmLibrary> &available) {
  // All timed parts have equal sizes, and an m (Split::M) or k (Split::K) of at least 1.
  GemmShape part = group.shape;
  int64_t &rows = group.split == GemmGroupShape::Split::M ? part.m : part.k;
  rows = std::max<int64_t>(1, rows / group.parts);
  const double flops = kProbeSeconds * peakSpeed(part.input, threads).flops;
  part = probeOf(part, flops);
  const int64_t width = elementBytes(part.input), sumWidth = elementBytes(part.output);
  const int64_t largest =
      std::max({part.m * part.k * width, part.k * part.n * width, part.m * part.n * sumWidth});
  GemmGroupShape probe = group;
  probe.parts = std::clamp<int64_t>(std::min(int64_t(flops / part.flops()), kProbeBytes / largest),
                                    1, group.parts);
  probe.shape = part;
  (group.split == GemmGroupShape::Split::M ? probe.shape.m : probe.shape.k) = probe.parts * rows;

  AlignedMemory a, b, d;
  fillRandom(a, probe.parts * part.m * part.k, part.input);
  fillRandom(b, probe.parts * part.k * part.n, part.input);
  fillRandom(d, probe.parts * part.m * part.n, part.output);
  std::vector<GemmPart> parts;
  for (int64_t i = 0; i < probe.parts; ++i)
    parts.push_back({a.at(i * part.m * part.k * width), b.at(i * part.k * part.n * width),
                     d.at(i * part.m * part.n * sumWidth), part.m, part.k});
  auto choice =
      fastest<GemmGroup>(probe, available, [&](GemmGroup &product) { product.run(parts); });
  if (choice)
    choice->seconds *= group.shape.flops() / (part.flops() * double(probe.parts));
  return choice;
}

// Returns the product of `shape` by `library` in the map `made`. Makes it if it is not there yet.
template <typename Made, typename Shape>
auto GemmCache::findIn(Made &made, const Shape &shape, GemmLibrary library)
    -> Result<typename Made::mapped_type::pointer> {
  auto &product = made[{shape, library}];
  if (!product) {
    LMC_LET(fresh, make(shape, library));
    product = std::move(*fresh);
  }
  return product.get();
}

Result<Gemm *> GemmCache::find(const GemmShape &shape) {
  LMC_LET(library, choose(shape));
  return find(shape, *library);
}

Result<Gemm *> GemmCache::find(const GemmShape &shape, GemmLibrary library) {
  return findIn(gemms, shape, library);
}

Result<GemmGroup *> GemmCache::find(const GemmGroupShape &group) {
  LMC_LET(library, choose(group));
  return find(group, *library);
}

Result<GemmGroup *> GemmCache::find(const GemmGroupShape &group, GemmLibrary library) {
  return findIn(groups, group, library);
}

void GemmCache::clear() {
  gemms.clear();
  groups.clear();
}

} // namespace lmc::cpu

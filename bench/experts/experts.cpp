// Times the products of the experts of one layer, as the commands ExpertLinear and ExpertLinearGrad
// of a plan compute them. bench/experts/bench.py drives it, line by line:
//
//   case f32|bf16 INNER COLUMNS ROWS EXPERTS
//     makes x [ROWS, INNER] and w [COLUMNS, INNER] of each expert, and prints the library of each
//     product: forward (y = x w^T), dx = dy w, dw = dy^T x (in f32)
//   run COUNT...
//     runs each once, the experts having COUNT rows each, and prints the seconds of each
//
// Its argument is the clock: wall, or cpu, the processor time of the calling thread. The threads
// are those of OMP_NUM_THREADS. Libraries are chosen by timing, as lmc-run does.
#include "bench/Measure.h"
#include "ground/support/Signals.h"
#include "runtime/device/GemmChoices.h"
#include "runtime/device/cpu/AlignedMemory.h"
#include "runtime/device/cpu/Gemm.h"

#include <fmt/format.h>
#include <omp.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

using namespace lmc::cpu;

namespace {

[[noreturn]] void fail(const std::string &why) {
  fmt::print(stderr, "lmc-bench-experts: {}\n", why);
  std::exit(2);
}

class Layer {
public:
  Layer(Storage type, int64_t inner, int64_t columns, int64_t all, int64_t experts)
      : inner(inner), columns(columns), all(all), experts(experts), width(elementBytes(type)),
        choices(/*measures=*/true), gemms(omp_get_max_threads(), &choices) {
    const int64_t matrix = inner * columns;
    lmc::bench::fillRandom(x, type, all * inner);
    lmc::bench::fillRandom(dy, type, all * columns);
    lmc::bench::fillRandom(weight, type, experts * matrix);
    lmc::bench::fillRandom(y, type, all * columns);
    lmc::bench::fillRandom(dx, type, all * inner);
    lmc::bench::fillRandom(dw, Storage::F32, experts * matrix);
    add("forward", {all, columns, inner, false, true}, GemmGroupShape::Split::M, type, type);
    add("dx", {all, inner, columns}, GemmGroupShape::Split::M, type, type);
    add("dw", {columns, inner, all, true}, GemmGroupShape::Split::K, type, Storage::F32);
  }

  // Gives the experts their rows: a count each, which add up to those of the case.
  void divide(const std::vector<int64_t> &rows) {
    if (int64_t(rows.size()) != experts ||
        std::accumulate(rows.begin(), rows.end(), int64_t(0)) != all)
      fail(fmt::format("a run needs counts of {} experts that add up to {}", experts, all));
    for (Product &product : products)
      product.parts.clear();
    const int64_t matrix = inner * columns;
    int64_t first = 0;
    for (int64_t e = 0; e < experts; ++e) {
      char *xAt = x.at(first * inner * width), *dyAt = dy.at(first * columns * width);
      char *w = weight.at(e * matrix * width);
      products[0].parts.push_back({xAt, w, y.at(first * columns * width), rows[size_t(e)], inner});
      products[1].parts.push_back(
          {dyAt, w, dx.at(first * inner * width), rows[size_t(e)], columns});
      products[2].parts.push_back({dyAt, xAt, dw.at(e * matrix * 4), columns, rows[size_t(e)]});
      first += rows[size_t(e)];
    }
  }

  void run(clockid_t clock) {
    std::string line;
    for (Product &product : products)
      line += fmt::format("{:.9f} ", lmc::bench::measure(
                                         1, [&] { product.group->run(product.parts); }, clock)
                                         .best);
    fmt::print("{}\n", line);
  }

  void printLibraries() const {
    for (const Product &product : products)
      fmt::print("{}={};", product.name, product.group->implementation());
    fmt::print("\n");
  }

private:
  struct Product {
    const char *name;
    GemmGroup *group;
    std::vector<GemmPart> parts;
  };

  void add(const char *name, GemmShape shape, GemmGroupShape::Split split, Storage input,
           Storage output) {
    shape.input = input;
    shape.output = output;
    auto group = gemms.find(GemmGroupShape{shape, experts, split});
    if (!group)
      fail(group.error().message);
    products.push_back({name, *group, {}});
  }

  int64_t inner, columns, all, experts, width;
  lmc::GemmChoices choices;
  GemmCache gemms;
  AlignedMemory x, dy, weight, y, dx, dw;
  std::vector<Product> products;
};

} // namespace

int main(int argc, char **argv) {
  lmc::startSignalThread();
  const std::string clock = argc == 2 ? argv[1] : "";
  if (clock != "wall" && clock != "cpu")
    fail("usage: lmc-bench-experts wall|cpu, with cases on the standard input");
  omp_set_dynamic(0);
  std::unique_ptr<Layer> layer;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string what, type;
    words >> what;
    if (what == "run" && layer) {
      std::vector<int64_t> rows;
      for (int64_t each; words >> each;)
        rows.push_back(each);
      layer->divide(rows);
      layer->run(clock == "wall" ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID);
    } else if (what == "case") {
      int64_t inner = 0, columns = 0, rows = 0, experts = 0;
      words >> type >> inner >> columns >> rows >> experts;
      if ((type != "f32" && type != "bf16") || inner < 1 || columns < 1 || rows < 1 || experts < 1)
        fail("a case is 'case f32|bf16 INNER COLUMNS ROWS EXPERTS', not '" + line + "'");
      layer.reset(); // its memory, before that of the next one is taken
      layer = std::make_unique<Layer>(type == "f32" ? Storage::F32 : Storage::BF16, inner, columns,
                                      rows, experts);
      layer->printLibraries();
    } else {
      fail("the first line is a case, and each other one a case or 'run', not '" + line + "'");
    }
    std::fflush(stdout);
  }
}

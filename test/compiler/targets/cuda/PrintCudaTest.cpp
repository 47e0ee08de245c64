// What printCudaKernel decides of a kernel: widths of vectors, literals, and an order of sums that
// does not depend on what was fused.
#include "compiler/targets/cuda/CudaArch.h"
#include "compiler/targets/cuda/CudaKernel.h"
#include "test/compiler/targets/cpu/KernelRunner.h"
#include "test/compiler/targets/cpu/KernelTexts.h"

#include "gtest/gtest.h"

#include <regex>

using namespace lmc;
using namespace lmc::codegen;
using namespace lmc::codegen::test;

namespace {

CudaKernel print(const std::string &text) {
  std::string error;
  mlir::OwningOpRef<mlir::ModuleOp> module = parse(text, error);
  if (!module) {
    ADD_FAILURE() << error;
    return {};
  }
  kern::KernelOp kernel = *module->getOps<kern::KernelOp>().begin();
  return llvm::cantFail(printCudaKernel(kernel));
}

// y = x of $T [$R, $C], whose rows begin $PX and $PY elements apart (0: dense).
constexpr char kCopy[] = R"(
#rc = affine_map<(r, c) -> (r, c)>
kern.kernel @kernel elementwise attributes {arg_pitches = array<i64: $PX, $PY>,
                                            arg_rows = array<i64: $R, $R>} {
^bb0(%x: tensor<$Rx$Cx$T>):
  %e = tensor.empty() : tensor<$Rx$Cx$T>
  %y = linalg.generic {indexing_maps = [#rc, #rc], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<$Rx$Cx$T>) outs(%e : tensor<$Rx$Cx$T>) {
  ^bb0(%a: $T, %o: $T):
    linalg.yield %a : $T
  } -> tensor<$Rx$Cx$T>
  kern.yield %y : tensor<$Rx$Cx$T>
}
)";

// y = x w of bf16 [6, 64], w f32 [$S] at ($I).
constexpr char kScale[] = R"(
#rc = affine_map<(r, c) -> (r, c)>
#w = affine_map<(r, c) -> ($I)>
kern.kernel @kernel elementwise {
^bb0(%x: tensor<6x64xbf16>, %w: tensor<$Sxf32>):
  %e = tensor.empty() : tensor<6x64xbf16>
  %y = linalg.generic {indexing_maps = [#rc, #w, #rc], iterator_types = ["parallel", "parallel"]}
      ins(%x, %w : tensor<6x64xbf16>, tensor<$Sxf32>) outs(%e : tensor<6x64xbf16>) {
  ^bb0(%a: bf16, %b: f32, %o: bf16):
    %s = arith.extf %a : bf16 to f32
    %t = arith.mulf %s, %b : f32
    %u = arith.truncf %t : f32 to bf16
    linalg.yield %u : bf16
  } -> tensor<6x64xbf16>
  kern.yield %y : tensor<6x64xbf16>
}
)";

// Elements of the vectors that a kernel loads.
int widthOf(const CudaKernel &kernel) {
  std::smatch found;
  EXPECT_TRUE(std::regex_search(kernel.source, found, std::regex("load<(\\d+)>"))) << kernel.source;
  return std::stoi(found[1]);
}

// The same of a copy of [6, columns].
int widthOf(const char *type, int64_t columns, int64_t pitch = 0, int64_t resultPitch = 0) {
  return widthOf(print(substitute(kCopy, {{"T", type},
                                          {"R", "6"},
                                          {"C", std::to_string(columns)},
                                          {"PX", std::to_string(pitch)},
                                          {"PY", std::to_string(resultPitch)}})));
}

// The columns of a row that thread t takes, and how the block's sums meet: what decides the
// order of a sum over the row.
std::vector<std::string> orderOfSums(const CudaKernel &kernel) {
  std::vector<std::string> lines;
  std::regex order("(const u32 c = .*|reduceWarp<[^(]*|blockTotal<[^(]*)");
  for (std::sregex_iterator it(kernel.source.begin(), kernel.source.end(), order), end; it != end;
       ++it)
    if (!llvm::is_contained(lines, it->str()))
      lines.push_back(it->str());
  return lines;
}

TEST(PrintCuda, literalsHaveTheirTypeAndBindAsTheirSign) {
  CudaKernel kernel = print(R"(
#rc = affine_map<(r, c) -> (r, c)>
kern.kernel @kernel elementwise {
^bb0(%x: tensor<8x64xi32>):
  %splat = arith.constant dense<-2.5> : tensor<8x64xf32>
  %five = arith.constant 5 : i64
  %least = arith.constant -9223372036854775808 : i64
  %e = tensor.empty() : tensor<8x64xf32>
  %y = linalg.generic {indexing_maps = [#rc, #rc, #rc], iterator_types = ["parallel", "parallel"]}
      ins(%x, %splat : tensor<8x64xi32>, tensor<8x64xf32>) outs(%e : tensor<8x64xf32>) {
  ^bb0(%a: i32, %s: f32, %o: f32):
    %n = arith.negf %s : f32
    %w = arith.extsi %a : i32 to i64
    %m = arith.minsi %w, %five : i64
    %l = arith.maxsi %m, %least : i64
    %f = arith.sitofp %l : i64 to f32
    %z = arith.mulf %f, %n : f32
    linalg.yield %z : f32
  } -> tensor<8x64xf32>
  kern.yield %y : tensor<8x64xf32>
}
)");
  const std::string &source = kernel.source;
  EXPECT_NE(source.find(" = -(-2.5f);"), std::string::npos) << source;
  EXPECT_NE(source.find(", 5ll)"), std::string::npos) << "max takes two of one type\n" << source;
  EXPECT_NE(source.find("(-9223372036854775807ll - 1)"), std::string::npos) << source;
  EXPECT_NE(source.find(", 5)"), std::string::npos) << "the formula has no suffixes\n" << source;
}

TEST(PrintCuda, vectorsAreAsWideAsTypesExtentsAndPitchesAllow) {
  EXPECT_EQ(widthOf("bf16", 16), 8);
  EXPECT_EQ(widthOf("f32", 16), 4);
  EXPECT_EQ(widthOf("f64", 16), 2);
  EXPECT_EQ(widthOf("i32", 4), 4);
  EXPECT_EQ(widthOf("f32", 5), 2) << "dense: 30 elements in a row";
  EXPECT_EQ(widthOf("bf16", 12, 24), 4) << "columns begin at multiples of 12";
  EXPECT_EQ(widthOf("bf16", 16, 24), 8);
  EXPECT_EQ(widthOf("bf16", 16, 0, 20), 4) << "rows begin at multiples of 20";
  EXPECT_EQ(widthOf("f32", 7, 21), 1);
}

// A weight that all rows share takes two words; a tensor of the domain's shape takes one.
TEST(PrintCuda, theWidestTypeThatCoversTheDomainMovesInWordsOf16Bytes) {
  EXPECT_EQ(widthOf(print(substitute(kScale, {{"S", "64"}, {"I", "c"}}))), 8);
  EXPECT_EQ(widthOf(print(substitute(kScale, {{"S", "6x64"}, {"I", "r, c"}}))), 4);
}

TEST(PrintCuda, theOrderOfSumsDependsOnTheRowAlone) {
  for (const char *columns : {"96", "1000", "2048", "5120", "12288"}) {
    auto orderOf = [&](const char *text) {
      return orderOfSums(print(substitute(text, {{"R", "64"}, {"C", columns}, {"T", "f32"}})));
    };
    std::vector<std::string> fused = orderOf(kResidualRmsNorm);
    EXPECT_GE(fused.size(), 2u);
    std::vector<std::string> gradient = orderOf(kRmsNormGrad);
    EXPECT_EQ(fused, gradient) << columns << " columns";
  }
}

// A row of 512 KiB. What a block keeps of it depends on the SM; other kinds read it again.
TEST(PrintCuda, longRowsAreKeptWhereTheyFit) {
  const uint64_t row = 131072 * 4, rows = 16384;
  auto printed = [&](LongRows kind, const char *arch) {
    const CudaArch &of = *findCudaArch(arch);
    std::string error;
    mlir::OwningOpRef<mlir::ModuleOp> module =
        parse(substitute(kCrossEntropy, {{"R", "16384"}, {"C", "131072"}, {"T", "f32"}}), error);
    EXPECT_TRUE(module) << error;
    return llvm::cantFail(printCudaKernel(*module->getOps<kern::KernelOp>().begin(),
                                          {kind, of.sharedBytesPerBlock, of.sharedBytesPerSm}));
  };
  for (auto [arch, kept] : {std::pair("sm_90a", 14), std::pair("sm_80", 10)}) {
    const CudaKernel shared = printed(LongRows::Shared, arch);
    EXPECT_EQ(shared.threads, 1024u);
    EXPECT_EQ(shared.again.read, rows * (row - uint64_t(kept) * 1024 * 16)) << arch;
    EXPECT_LE(shared.sharedBytes, findCudaArch(arch)->sharedBytesPerBlock);
    EXPECT_EQ(residentBlocks(*findCudaArch(arch), 1024, 56, shared.sharedBytes), 1u) << arch;
    // Elements number 2^31 and more have numbers of 64 bits.
    EXPECT_NE(shared.source.find("u64(row) * 131072"), std::string::npos) << shared.source;
  }
  // Where shared memory is small, two blocks on an SM read the row again.
  for (auto [kind, arch] : {std::pair(LongRows::Again, "sm_90a"), std::pair(LongRows::Shared, "sm_89")}) {
    const CudaKernel again = printed(kind, arch);
    EXPECT_EQ(again.threads, 512u);
    EXPECT_EQ(again.again.read, rows * row);
    EXPECT_LE(again.sharedBytes, 1024u);
  }
  const CudaKernel alone = printed(LongRows::Alone, "sm_90a");
  EXPECT_EQ(alone.threads, 1024u);
  EXPECT_EQ(alone.again.read, rows * row);
  EXPECT_EQ(residentBlocks(*findCudaArch("sm_90a"), 1024, 32, alone.sharedBytes), 1u);
  for (auto [name, kind] : {std::pair("shared", LongRows::Shared), {"again", LongRows::Again},
                            {"alone", LongRows::Alone}})
    EXPECT_EQ(longRowsOf(name), kind);
  EXPECT_EQ(longRowsOf("clusters"), std::nullopt);
}

TEST(PrintCuda, knowsArchitecturesFromAmpereUp) {
  EXPECT_EQ(findCudaArch("sm_90a")->version, 90u);
  EXPECT_EQ(findCudaArch("sm_100")->version, 100u);
  EXPECT_EQ(findCudaArch("sm_75"), nullptr);
}

} // namespace

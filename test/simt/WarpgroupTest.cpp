// Products of warpgroups: a kernel that keeps their rules is right in every order, and each mistake is
// caught and called by its name.
#include "test/simt/Fixture.h"

#include <bit>
#include <fmt/format.h>

using namespace lmc::simt;
using namespace lmc::simt::test;
using testing::HasSubstr;

namespace {

// y [128, 64] = a [128, 192] b [64, 192]^T in bf16, f32 sums: two warpgroups, three slices of 64 terms
// in two stages, so that the tile of slice 2 takes the place of that of slice 0.
const char *const kProduct = R"(
  const int t = threadIdx.x;
  const u32 tiles = (sharedAddress(sharedMemory()) + 1023) / 1024 * 1024;
  auto copy = [&](int slice) {
    const u32 to = tiles + slice % 2 * 24576;
    for (int i = t; i < 192 * 8; i += 256) {
      const int row = i / 8, chunk = i % 8;
      copyAsync16(to + tileOffset(row, chunk),
                  (row < 128 ? a + row * 192 : b + (row - 128) * 192) + slice * 64 + chunk * 8, true);
    }
    copyAsyncCommit();
  };
  float d[32];
  for (int i = 0; i < 32; ++i)
    d[i] = 0;
  GroupProducts products;
  copy(0);
  for (int slice = 0; slice < 3; ++slice) {
    copyAsyncWait<0>();
    seenByProducts();
    products.wait<0>(); // the slice before
    __syncthreads();    // the slice is there, and that before it is done
    products.begin();
    for (int k = 0; k < 4; ++k)
      products.add<64, false, false>(d, tiles + slice % 2 * 24576 + t / 128 * 8192 + k * 32,
                                     tiles + slice % 2 * 24576 + 16384 + k * 32);
    products.commit();
    if (slice < 2)
      copy(slice + 1);
  }
  products.finish(d);
  for (int i = 0; i < 32; ++i)
    storeOne(y + (t / 32 * 16 + t % 32 / 4 + i / 2 % 2 * 8) * 64 + i / 4 * 8 + t % 4 * 2 + i % 2, d[i]);
)";

// y [64, N] = a [64, 16] b [N, 16]^T with a in registers.
const char *const kRegisters = R"(
  const int t = threadIdx.x, row = t / 32 * 16 + t % 32 / 4, term = t % 4 * 2;
  const u32 tile = (sharedAddress(sharedMemory()) + 1023) / 1024 * 1024;
  for (int i = t; i < N * 2; i += 128)
    storeForProducts<16>(tile + tileOffset(i / 2, i % 2), loadGlobal<16>(b + i * 8));
  u32 factor[4];
  for (int word = 0; word < 4; ++word)
    factor[word] = loadOne(reinterpret_cast<const u32 *>(a + (row + word % 2 * 8) * 16 + term + word / 2 * 8));
  float d[N / 2];
  for (int i = 0; i < N / 2; ++i)
    d[i] = 1;
  seenByProducts();
  __syncthreads();
  GroupProducts products;
  products.begin();
  products.add<N, false>(d, factor, tile);
  products.commit();
  products.finish(d);
  for (int i = 0; i < N / 2; ++i)
    storeOne(y + (row + i / 2 % 2 * 8) * N + i / 4 * 8 + t % 4 * 2 + i % 2, d[i]);
)";

// Numbers whose products and sums are exact, in bf16.
std::vector<uint16_t> exactHalves(size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::vector<uint16_t> halves(count);
  for (uint16_t &half : halves)
    half = uint16_t(std::bit_cast<uint32_t>(float(int(generator() % 31) - 15) / 8) >> 16);
  return halves;
}

float valueOf(uint16_t half) { return std::bit_cast<float>(uint32_t(half) << 16); }

// Returns "" if the kernel gives the products in many orders, or what is wrong in one.
std::string failureOf(const std::string &body, int rows, int columns, int terms, float begin,
                      uint32_t threads, uint32_t shared, uint64_t orders = 6) {
  Kernel kernel = build("const bf16 *a, const bf16 *b, float *y", body, 1, threads, shared);
  const auto a = exactHalves(size_t(rows * terms), 1), b = exactHalves(size_t(columns * terms), 2);
  std::vector<float> y(size_t(rows * columns));
  for (uint64_t seed = 1; seed <= orders; ++seed) {
    if (auto ran = runTwice(kernel, {input(a), input(b), result(y)}, seed); !ran.failure.empty())
      return ran.failure;
    for (int row = 0; row < rows; ++row)
      for (int column = 0; column < columns; ++column) {
        float sum = begin;
        for (int k = 0; k < terms; ++k)
          sum += valueOf(a[size_t(row * terms + k)]) * valueOf(b[size_t(column * terms + k)]);
        if (y[size_t(row * columns + column)] != sum)
          return "a wrong result";
      }
  }
  return "";
}

std::string productFailure(const std::string &from = "", const std::string &to = "") {
  return failureOf(from.empty() ? kProduct : replaced(kProduct, from, to), 128, 64, 192, 0, 256,
                   2 * 24576 + 1024);
}

std::string registersFailure(const std::string &from = "", const std::string &to = "", int columns = 96) {
  const std::string body = from.empty() ? kRegisters : replaced(kRegisters, from, to);
  return failureOf(fmt::format("constexpr int N = {};\n{}", columns, body), 64, columns, 16, 1, 128,
                   uint32_t(columns) * 128 + 1024);
}

} // namespace

TEST(Warpgroup, ProductsAreRightInAnyOrder) { EXPECT_EQ(productFailure(), ""); }

TEST(Warpgroup, AFactorInRegistersAndEachWidth) {
  for (int columns : {32, 64, 96, 128, 192, 256})
    EXPECT_EQ(registersFailure("", "", columns), "") << columns;
}

TEST(Warpgroup, AMissingWaitForCopies) {
  EXPECT_THAT(productFailure("copyAsyncWait<0>();", ""),
              HasSubstr("an asynchronous copy to it is under way: copyAsyncWait or a barrier is missing"));
}

TEST(Warpgroup, AMissingBarrier) {
  EXPECT_THAT(productFailure("__syncthreads();", ""), testing::AnyOf(HasSubstr("copyAsyncWait or a barrier is missing"),
                             HasSubstr("which neither copyAsync16 nor storeForProducts has written")));
}

TEST(Warpgroup, AMissingFence) {
  EXPECT_THAT(productFailure("seenByProducts();", ""), HasSubstr("seenByProducts() is missing behind the write"));
  EXPECT_THAT(registersFailure("seenByProducts();", ""), HasSubstr("seenByProducts() is missing"));
}

TEST(Warpgroup, AFenceBeforeTheCopyHasEnded) {
  EXPECT_THAT(productFailure("copyAsyncWait<0>();\n    seenByProducts();", "seenByProducts();\n    copyAsyncWait<0>();"),
              HasSubstr("seenByProducts() is missing behind the write"));
}

TEST(Warpgroup, ATileThatIsWrittenTooEarly) {
  // The product of the slice before may still read its tile, which the next copy overwrites.
  EXPECT_THAT(productFailure("products.wait<0>(); // the slice before", ""),
              HasSubstr("the tile is written too early"));
}

TEST(Warpgroup, APlainStore) {
  EXPECT_THAT(registersFailure("storeForProducts<16>(tile + tileOffset(i / 2, i % 2), loadGlobal<16>(b + i * 8));",
                               "*reinterpret_cast<Bits<16> *>(sharedMemory() + (tile - sharedAddress(sharedMemory())) + "
                               "tileOffset(i / 2, i % 2)) = loadGlobal<16>(b + i * 8);"),
              HasSubstr("which neither copyAsync16 nor storeForProducts has written"));
  EXPECT_THAT(registersFailure("  seenByProducts();", "  seenByProducts();\n  __syncthreads();\n  if (t == 5)\n"
                               "sharedMemory()[tile - sharedAddress(sharedMemory()) + 3] ^= 64;"),
              HasSubstr("which a plain store has changed: use storeForProducts"));
}

TEST(Warpgroup, AChunkOfWhichAPartIsStored) {
  EXPECT_THAT(registersFailure("storeForProducts<16>(tile + tileOffset(i / 2, i % 2), loadGlobal<16>(b + i * 8));",
                               "storeForProducts<8>(tile + tileOffset(i / 2, i % 2), loadGlobal<8>(b + i * 8));"),
              HasSubstr("which neither copyAsync16 nor storeForProducts has written"));
}

TEST(Warpgroup, AFactorThatIsNotAligned) {
  EXPECT_THAT(registersFailure("factor, tile)", "factor, tile + 2)"), HasSubstr("misaligned: the address of a factor"));
}

TEST(Warpgroup, AnAccumulatorThatIsReadInFlight) {
  EXPECT_NE(productFailure("products.finish(d);", "float early[32];\nfor (int i = 0; i < 32; ++i) early[i] = d[i];\n"
                           "products.finish(d);\nd[7] = early[7];"), "");
}

TEST(Warpgroup, AnAccumulatorThatIsWrittenInFlight) {
  EXPECT_THAT(productFailure("products.finish(d);", "d[3] = 0;\n  products.finish(d);"),
              HasSubstr("an accumulator has been written while a product that adds to it is in flight"));
}

TEST(Warpgroup, RegistersThatAreWrittenInFlight) {
  EXPECT_THAT(registersFailure("products.commit();", "products.commit();\n  factor[2] = 0;"),
              HasSubstr("registers with a factor have been written"));
}

TEST(Warpgroup, AMissingBegin) {
  EXPECT_THAT(productFailure("products.begin();", ""), HasSubstr("without begin()"));
}

TEST(Warpgroup, AMissingCommit) {
  // The wait then waits for nothing, and what d holds is no result.
  EXPECT_THAT(registersFailure("products.commit();", ""), HasSubstr("in flight"));
}

TEST(Warpgroup, AWarpThatLeavesOutAProduct) {
  EXPECT_THAT(productFailure("for (int k = 0; k < 4; ++k)", "for (int k = 0; k < (t / 32 == 2 ? 3 : 4); ++k)"),
              HasSubstr("divergent code"));
}

TEST(Warpgroup, ThreadsThatIssueDifferentProducts) {
  EXPECT_THAT(productFailure("+ 16384 + k * 32", "+ 16384 + (t % 32 == 9 ? 0 : k) * 32"), HasSubstr("divergent code"));
}

TEST(Warpgroup, AWarpThatDoesNotWait) {
  EXPECT_THAT(productFailure("products.finish(d);", "if (t / 32 != 1)\n    products.finish(d);"),
              testing::AnyOf(HasSubstr("divergent code"), HasSubstr("in flight")));
}

TEST(Warpgroup, AStoreBetweenBeginAndCommit) {
  EXPECT_THAT(registersFailure("products.begin();", "products.begin();\n  storeForProducts<4>(tile, {0});"),
              HasSubstr("between begin() and commit()"));
}

TEST(Warpgroup, ATileOutsideOfSharedMemory) {
  EXPECT_THAT(registersFailure("factor, tile)", "factor, tile + 2 * N * 128)"), HasSubstr("out of bounds: a product reads"));
}

// Shared memory begins at any multiple of 128: a tile must be moved to one of 1024, with room for it.
TEST(Warpgroup, ATileThatIsNotAligned) {
  EXPECT_NE(registersFailure("(sharedAddress(sharedMemory()) + 1023) / 1024 * 1024", "sharedAddress(sharedMemory())"),
            "");
  EXPECT_NE(failureOf(fmt::format("constexpr int N = 96;\n{}", kRegisters), 64, 96, 16, 1, 128, 96 * 128), "");
}

// Two halves of a block exchange numbers at barriers of their own: warps 0 and 1 at 1, 2 and 3 at 2.
const char *const kExchange = R"(
  const int t = threadIdx.x;
  u32 *s = reinterpret_cast<u32 *>(sharedMemory());
  for (int round = 0; round < 4; ++round) {
    s[t] = loadOne(x + t) + round;
    barrierOf<64>(1 + t / 64);
    const u32 other = s[t ^ 33];
    barrierOf<64>(1 + t / 64);
    storeOne(y + round * 128 + t, other);
  }
)";

std::string exchangeFailure(const std::string &from = "", const std::string &to = "") {
  Kernel kernel = build("const u32 *x, u32 *y", from.empty() ? kExchange : replaced(kExchange, from, to), 1, 128, 512);
  std::vector<uint32_t> x(128), y(512);
  for (uint32_t i = 0; i < 128; ++i)
    x[i] = i * 7;
  for (uint64_t seed = 1; seed < 7; ++seed) {
    if (auto ran = runTwice(kernel, {input(x), result(y)}, seed); !ran.failure.empty())
      return ran.failure;
    for (uint32_t i = 0; i < 512; ++i)
      if (y[i] != x[i % 128 ^ 33] + i / 128)
        return "a wrong result";
  }
  return "";
}

TEST(NamedBarrier, LetsItsThreadsMeet) { EXPECT_EQ(exchangeFailure(), ""); }

TEST(NamedBarrier, Mistakes) {
  EXPECT_NE(exchangeFailure("barrierOf<64>(1 + t / 64);\n    storeOne", "storeOne"), "");
  EXPECT_THAT(exchangeFailure("barrierOf<64>(1 + t / 64);", "if (t / 32 != 3) barrierOf<64>(1 + t / 64);"),
              HasSubstr("divergent code"));
  EXPECT_THAT(exchangeFailure("barrierOf<64>(1 + t / 64);", "if (t / 64) barrierOf<64>(1); else barrierOf<128>(1);"),
              testing::AnyOf(HasSubstr("at which others wait for"), HasSubstr("divergent code")));
  // Half of each warp.
  EXPECT_THAT(exchangeFailure("barrierOf<64>(1 + t / 64);", "barrierOf<64>(1 + t % 32 / 16);"),
              HasSubstr("divergent code: only 16 threads of a warp"));
  EXPECT_THAT(exchangeFailure("barrierOf<64>(1 + t / 64);", "barrierOf<64>(16);"), HasSubstr("barriers 1 to 15"));
}

// The hardware features that device code needs beyond CUDA C++, and all inline PTX of lmc.
//
// The SIMT device (test/simt) compiles all device code for the host, and replaces only this file.
// Device code therefore obeys these rules:
// * It accesses global memory only through loadGlobal, storeGlobal and copyAsync16.
// * Shared memory comes from sharedMemory() only. Its contents are undefined when a block starts.
// * Warps synchronise by __syncwarp, __shfl_*_sync and __ballot_sync with the full mask, blocks by
//   __syncthreads. All threads of the warp (or block) that have not returned take part.
// * Kernels are `extern "C" __global__ void`. They include only headers of this folder.
// * No block reads what another block of the same kernel writes.
#pragma once

namespace lmc {

typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;

// A bfloat16 number, stored as the upper half of an f32.
struct bf16 {
  u16 bits;
};

__device__ inline float toFloat(bf16 x) { return __uint_as_float(u32(x.bits) << 16); }

// Returns x rounded to the nearest bf16, ties to even; NaN stays NaN.
__device__ inline bf16 toBf16(float x) {
  bf16 y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}

// An IEEE half-precision number.
struct f16 {
  u16 bits;
};

__device__ inline float toFloat(f16 x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}

// Returns x rounded to the nearest f16, ties to even, and to infinity beyond 65504; NaN stays NaN.
__device__ inline f16 toF16(float x) {
  f16 y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}

// 8-bit floats, which matrix products read: OFP8's E4M3 (at most 448) and E5M2 (at most 57344).
struct e4m3 {
  u8 bits;
};
struct e5m2 {
  u8 bits;
};

// Return x rounded to the nearest number, ties to even, and at most the largest finite one; NaN stays
// NaN. From sm_89 on.
__device__ inline e4m3 toE4M3(float x) {
  u16 pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
  return {u8(pair)};
}
__device__ inline e5m2 toE5M2(float x) {
  u16 pair;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
  return {u8(pair)};
}

// Return the number of a code. From sm_89 on.
__device__ inline float toFloat(e4m3 x) {
  u32 pair;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(u16(x.bits)));
  return toFloat(f16{u16(pair)});
}
__device__ inline float toFloat(e5m2 x) { return toFloat(f16{u16(u16(x.bits) << 8)}); }

// Returns a word with `low` in its lower half and `high` in its upper half, both rounded to bf16.
__device__ inline u32 packBf16(float low, float high) {
  u32 word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}

// Returns 2^x with an error of at most 2 units in the last place. A result below 2^-126 is 0.
__device__ inline float exp2Fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Return the larger or smaller value; NaN if either is NaN.
__device__ inline float maximum(float a, float b) {
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
__device__ inline float minimum(float a, float b) {
  float y;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}

// A word of 1, 2, 4, 8 or 16 bytes, aligned to its size.
template <int Bytes> struct Bits;
template <> struct Bits<1> {
  u8 word;
};
template <> struct Bits<2> {
  u16 word;
};
template <> struct Bits<4> {
  u32 word;
};
template <> struct alignas(8) Bits<8> {
  u32 words[2];
};
template <> struct alignas(16) Bits<16> {
  u32 words[4];
};

// Load or store `Bytes` bytes of global memory by one instruction, at a multiple of `Bytes` bytes.
template <int Bytes> __device__ inline Bits<Bytes> loadGlobal(const void *from) {
  if constexpr (Bytes == 16) {
    uint4 v = *static_cast<const uint4 *>(from);
    return {{v.x, v.y, v.z, v.w}};
  } else if constexpr (Bytes == 8) {
    uint2 v = *static_cast<const uint2 *>(from);
    return {{v.x, v.y}};
  } else {
    return *static_cast<const Bits<Bytes> *>(from);
  }
}
// PTX makes this one instruction. The compiler would split a C++ store of a struct.
template <int Bytes> __device__ inline void storeGlobal(void *to, Bits<Bytes> v) {
  if constexpr (Bytes == 16)
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v.words[0]),
                 "r"(v.words[1]), "r"(v.words[2]), "r"(v.words[3])
                 : "memory");
  else if constexpr (Bytes == 8)
    asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(v.words[0]), "r"(v.words[1])
                 : "memory");
  else
    *static_cast<Bits<Bytes> *>(to) = v;
}

// Returns the thread block's shared memory, aligned to 128 bytes. The launch requests its size.
__device__ inline u8 *sharedMemory() {
  extern __shared__ __align__(128) u8 lmcSharedMemory[];
  return lmcSharedMemory;
}

// Load or store `Bytes` bytes of shared memory. As a uint4, 16 bytes take one instruction. The
// compiler would split a C++ store of a struct, which causes bank conflicts.
template <int Bytes> __device__ inline Bits<Bytes> loadShared(const void *from) {
  if constexpr (Bytes == 16) {
    const uint4 v = *static_cast<const uint4 *>(from);
    return {{v.x, v.y, v.z, v.w}};
  } else {
    return *static_cast<const Bits<Bytes> *>(from);
  }
}
template <int Bytes> __device__ inline void storeShared(void *to, Bits<Bytes> v) {
  if constexpr (Bytes == 16)
    *static_cast<uint4 *>(to) = make_uint4(v.words[0], v.words[1], v.words[2], v.words[3]);
  else
    *static_cast<Bits<Bytes> *>(to) = v;
}

// Returns the address of `shared` within the block's shared memory, in bytes.
__device__ inline u32 sharedAddress(const void *shared) {
  return u32(__cvta_generic_to_shared(shared));
}

// Copies 16 bytes from global memory to the shared address `to`, not through registers or L1 cache.
// If `valid` is false, writes zeros and reads nothing. copyAsyncCommit() ends a group of copies of
// this thread; copyAsyncWait<N>() waits for all groups but the last N. Other threads see the bytes
// after a barrier.
__device__ inline void copyAsync16(u32 to, const void *from, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(valid ? 16 : 0)
               : "memory");
}
__device__ inline void copyAsyncCommit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int Pending> __device__ inline void copyAsyncWait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

// Loads four 8 x 8 matrices of 16-bit elements from shared memory (PTX ISA, ldmatrix). The whole
// warp must call it. Lane l passes the shared address of row l % 8 of matrix l / 8. Register i of
// lane l gets the elements (l / 4, 2 (l % 4)) and (l / 4, 2 (l % 4) + 1) of matrix i. The
// transposed load swaps row and column.
__device__ inline void loadMatrix4(u32 (&to)[4], u32 from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from)
               : "memory");
}
__device__ inline void loadMatrix4Transposed(u32 (&to)[4], u32 from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from)
               : "memory");
}

// Computes d += a b (PTX ISA, mma.m16n8k16). The whole warp must call it. a [16, 16] and b [16, 8]
// are bf16, d [16, 8] is f32. With g = lane / 4 and t = lane % 4, a lane holds these elements (row,
// column):
//   a[0] (g, 2t..)  a[1] (g + 8, 2t..)  a[2] (g, 2t + 8..)  a[3] (g + 8, 2t + 8..)
//   b[0] rows 2t, 2t + 1 of column g    b[1] rows 2t + 8, 2t + 9 of column g
//   d[0] (g, 2t)  d[1] (g, 2t + 1)  d[2] (g + 8, 2t)  d[3] (g + 8, 2t + 1)
// A word of a or b holds two elements, the first one in its lower half.
__device__ inline void multiplyAdd16x8x16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
               "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// A tile of shared memory for GroupProducts: 64 rows of 128 bytes, or several such blocks one after
// the other. It starts at a multiple of 1024 bytes. To avoid bank conflicts, the 16-byte chunk c of
// row r is at tileOffset(r, c). A row holds 64 terms of one sum. In a `Turned` factor, a row
// instead holds one term of each of 64 sums.
constexpr int kTileRowBytes = 128, kTurnedTileBytes = 64 * kTileRowBytes;
__device__ constexpr int tileOffset(int row, int chunk) {
  return row * kTileRowBytes + ((chunk ^ (row & 7)) << 4);
}

// Products of a warpgroup (PTX ISA, wgmma; only on sm_90a). A warpgroup is 128 threads; the index
// of the first thread is a multiple of 128. All 128 threads must call each function. The products
// are computed while the threads execute later instructions.
//
//   begin()             starts a group of add() calls; must come after the threads' own uses of d
//   add<N, ...>()       d += a b (or d = a b, if Fresh): a [64, 16] and b [16, N] in bf16,
//                       d [64, N] in f32. N is 32, 64, 96, 128, 192 or 256. a and b are addresses
//                       in shared memory. 16 terms of a sum take 32 bytes of a tile's row, and
//                       2048 bytes of a Turned tile.
//                       d[i] of thread t is in row 16 (t / 32) + t % 32 / 4 + 8 (i / 2 % 2) and
//                       column 8 (i / 4) + 2 (t % 4) + i % 2.
//                       a may also be 4 words of each thread, in the layout of multiplyAdd16x8x16.
//                       These words must not change until a wait for the group.
//   commit()            ends the group
//   wait<Pending>()     waits for all groups except the last `Pending` ones. Then threads may
//                       write to the tiles of the groups that ended
//   finish<Pending>(d)  waits as wait() does. Then d may be read, unless a pending group adds to d
//
// copyAsync16 or storeForProducts write the tiles, but not between begin() and commit(), because
// the compiler may move a store across these two. Before begin(), the writing threads must call
// copyAsyncWait, then seenByProducts(), and then meet at a barrier.
template <int Bytes> __device__ inline void storeForProducts(u32 to, Bits<Bytes> v) {
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16, "4, 8 or 16 bytes");
  if constexpr (Bytes == 4)
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(v.word) : "memory");
  else if constexpr (Bytes == 8)
    asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(to), "r"(v.words[0]), "r"(v.words[1])
                 : "memory");
  else
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(v.words[0]),
                 "r"(v.words[1]), "r"(v.words[2]), "r"(v.words[3])
                 : "memory");
}
__device__ inline void seenByProducts() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// A barrier of `Threads` threads, in whole warps. `id` is 1 to 15; __syncthreads uses 0.
template <int Threads> __device__ inline void barrierOf(int id) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(Threads) : "memory");
}

struct GroupProducts {
  __device__ inline void begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
  __device__ inline void commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  }
  template <int Pending> __device__ inline void wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
  }
  template <int Pending = 0, int Size> __device__ inline void finish(float (&d)[Size]) {
    wait<Pending>();
#pragma unroll
    for (int i = 0; i < Size; ++i)
      asm volatile("" : "+f"(d[i])::"memory"); // the compiler moves no read of d before this line
  }
  // Returns the descriptor of a tile. It has two distances in bytes: 1024 from 8 rows to the next
  // 8, and kTurnedTileBytes from 64 elements of a row to the next 64 (used only for Turned).
  __device__ static inline u64 descriptor(u32 address) {
    return u64((address & 0x3ffff) >> 4) | u64(kTurnedTileBytes >> 4) << 16 | u64(1024 >> 4) << 32 |
           u64(1) << 62;
  }
  // The PTX of the instructions. The operands %0 to %(N / 2 - 1) are the registers of d. Then come
  // the two factors with their Turned flags. The last operand is 1 if the product is added to d.
#define LMC_R16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define LMC_R32 LMC_R16 \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, " \
  "%30, %31"
#define LMC_R48 LMC_R32 \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, " \
  "%46, %47"
#define LMC_R64 LMC_R48 \
  ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, " \
  "%62, %63"
#define LMC_R96 LMC_R64 \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, " \
  "%78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, " \
  "%92, %93, %94, %95"
#define LMC_R128 LMC_R96 \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, " \
  "%109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, " \
  "%121, %122, %123, %124, %125, %126, %127"
#define LMC_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define LMC_PART(i) LMC_D4(i), LMC_D4(i + 4), LMC_D4(i + 8), LMC_D4(i + 12)
#define LMC_D16 LMC_PART(0)
#define LMC_D32 LMC_PART(0), LMC_PART(16)
#define LMC_D48 LMC_D32, LMC_PART(32)
#define LMC_D64 LMC_D48, LMC_PART(48)
#define LMC_D96 LMC_D64, LMC_PART(64), LMC_PART(80)
#define LMC_D128 LMC_D96, LMC_PART(96), LMC_PART(112)
#define LMC_WGMMA "wgmma.mma_async.sync.aligned.m64n"
// Macro parameters: the numbers of columns and of registers of d, then the operands after d.
#define LMC_ADD(columns, registers, left, right, turnedA, turnedB, one)                            \
  if constexpr (N == columns)                                                                      \
    asm volatile("{.reg .pred p; setp.ne.b32 p, " one ", 0; " LMC_WGMMA #columns                   \
                 "k16.f32.bf16.bf16 {" LMC_R##registers "}, " left ", " right                      \
                 ", p, 1, 1, " turnedA ", " turnedB ";}"                                           \
                 : LMC_D##registers                                                                \
                 : "l"(descriptor(a)), "l"(descriptor(b)), "n"(int(TurnedA)), "n"(int(TurnedB)),   \
                   "n"(int(!Fresh)))
#define LMC_ADD_WORDS(columns, registers, w0, w1, w2, w3, right, turnedB, one)                     \
  if constexpr (N == columns)                                                                      \
    asm volatile("{.reg .pred p; setp.ne.b32 p, " one ", 0; " LMC_WGMMA #columns                   \
                 "k16.f32.bf16.bf16 {" LMC_R##registers "}, {" w0 ", " w1 ", " w2 ", " w3          \
                 "}, " right ", p, 1, 1, " turnedB ";}"                                            \
                 : LMC_D##registers                                                                \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(descriptor(b)),                 \
                   "n"(int(TurnedB)), "n"(int(!Fresh)))
  __device__ static constexpr bool hasWidth(int n) {
    return n == 32 || n == 64 || n == 96 || n == 128 || n == 192 || n == 256;
  }
  template <int N, bool TurnedA, bool TurnedB, bool Fresh = false>
  __device__ inline void add(float (&d)[N / 2], u32 a, u32 b) {
    static_assert(hasWidth(N), "products of 32, 64, 96, 128, 192 or 256 columns");
    LMC_ADD(32, 16, "%16", "%17", "%18", "%19", "%20");
    LMC_ADD(64, 32, "%32", "%33", "%34", "%35", "%36");
    LMC_ADD(96, 48, "%48", "%49", "%50", "%51", "%52");
    LMC_ADD(128, 64, "%64", "%65", "%66", "%67", "%68");
    LMC_ADD(192, 96, "%96", "%97", "%98", "%99", "%100");
    LMC_ADD(256, 128, "%128", "%129", "%130", "%131", "%132");
  }
  template <int N, bool TurnedB, bool Fresh = false>
  __device__ inline void add(float (&d)[N / 2], const u32 (&a)[4], u32 b) {
    static_assert(hasWidth(N), "products of 32, 64, 96, 128, 192 or 256 columns");
    LMC_ADD_WORDS(32, 16, "%16", "%17", "%18", "%19", "%20", "%21", "%22");
    LMC_ADD_WORDS(64, 32, "%32", "%33", "%34", "%35", "%36", "%37", "%38");
    LMC_ADD_WORDS(96, 48, "%48", "%49", "%50", "%51", "%52", "%53", "%54");
    LMC_ADD_WORDS(128, 64, "%64", "%65", "%66", "%67", "%68", "%69", "%70");
    LMC_ADD_WORDS(192, 96, "%96", "%97", "%98", "%99", "%100", "%101", "%102");
    LMC_ADD_WORDS(256, 128, "%128", "%129", "%130", "%131", "%132", "%133", "%134");
  }
  // The same of 8-bit floats, E4M3 or E5M2, whose 32 terms have the bytes of 16 in bf16: m64n128k32.
#define LMC_ADD_CODES(format)                                                                      \
  asm volatile("{.reg .pred p; setp.ne.b32 p, %66, 0; " LMC_WGMMA "128k32.f32." format "." format  \
               " {" LMC_R64 "}, %64, %65, p, 1, 1;}"                                               \
               : LMC_D64                                                                           \
               : "l"(descriptor(a)), "l"(descriptor(b)), "n"(int(!Fresh)))
  template <int N, bool IsE4M3, bool Fresh = false>
  __device__ inline void addCodes(float (&d)[N / 2], u32 a, u32 b) {
    static_assert(N == 128, "products of 128 columns");
    if constexpr (IsE4M3)
      LMC_ADD_CODES("e4m3");
    else
      LMC_ADD_CODES("e5m2");
  }
#undef LMC_ADD_CODES
#undef LMC_ADD_WORDS
#undef LMC_ADD
#undef LMC_WGMMA
#undef LMC_D128
#undef LMC_D96
#undef LMC_D64
#undef LMC_D48
#undef LMC_D32
#undef LMC_D16
#undef LMC_PART
#undef LMC_D4
#undef LMC_R128
#undef LMC_R96
#undef LMC_R64
#undef LMC_R48
#undef LMC_R32
#undef LMC_R16
};

} // namespace lmc

// What the CUDA printers of all heroes share: the values of a region as C++ expressions, each
// printed where it varies least.
//
// A thread works on *chunks*: vectors of `width` elements along the lane (along the columns of a
// column reduction). A value is evaluated at a point, by recursion down to loads, and what it
// varies with says where its code goes:
//
//   nothing                        `kernel`, once
//   outer dimensions only          `outer`, once for a row; or `loads`, once for each chunk
//   loads that vary along the lane `loads`, a vector for each chunk, or `hoisted`, where they
//                                  don't vary with the rows that a thread takes
//   everything else                `inner`, in a loop over the elements of a chunk
//
// A value that is used once, where it is made, is part of its user's expression; others
// get a name.
#pragma once

#include "compiler/targets/cuda/CudaKernel.h"
#include "compiler/targets/cuda/CudaScalars.h"
#include "compiler/kernels/Hero.h"

#include <map>
#include <optional>

namespace lmc::codegen {

// Lines of C++, indented as a block is put into another.
struct CudaText {
  std::vector<std::string> lines;

  void line(const llvm::Twine &text) { lines.push_back(text.str()); }
  void append(const CudaText &text) {
    lines.insert(lines.end(), text.lines.begin(), text.lines.end());
  }
  // `head { body }`; a block of its own where `head` is empty.
  void block(const llvm::Twine &head, const CudaText &body);
  std::string str(unsigned indent) const;
};

struct CudaValue {
  CudaExpr expr;
  bool lane = false;  // differs along the lane
  bool outer = false; // differs between rows, or chunks
  bool late = false;  // depends on a reduction
};

// Indices that are computed where a loop's body needs them.
struct CudaIndex {
  struct Variable {
    std::string type, name, expr;
  };
  std::vector<Variable> variables;

  void add(const llvm::Twine &type, const llvm::Twine &name, const llvm::Twine &expr) {
    variables.push_back({type.str(), name.str(), expr.str()});
  }
  // Those that `body` or `also` mentions, and what they need in turn.
  void print(CudaText &to, const CudaText &body, llvm::StringRef also) const;
};

// Chunks that a thread loads together, and how the text speaks about them. In a loop over chunks
// `k` counts them; without a loop and a guard there is none.
struct CudaChunks {
  unsigned count = 1;
  std::string guard;     // a condition that the chunk is inside, or empty
  CudaIndex index;       // of the chunk's first element, from `k`
  CudaText declarations; // of what `loads` sets for every chunk
  CudaText loads;
  bool alone() const { return count == 1 && guard.empty(); }
};

class CudaEmitter {
public:
  CudaEmitter(kern::KernelOp kernel, const RegionInfo &info);

protected:
  using Cache = std::map<std::pair<void *, void *>, CudaValue>;

  // Values.
  CudaValue eval(mlir::Value value, mlir::AffineMap point);
  CudaValue evalTensor(mlir::Value value, mlir::AffineMap point);
  CudaValue evalScalar(mlir::Value value, mlir::AffineMap point);
  CudaValue apply(mlir::Operation *op, mlir::AffineMap point);
  CudaValue extract(mlir::tensor::ExtractOp op, mlir::AffineMap point);
  CudaValue load(mlir::BlockArgument input, mlir::AffineMap point,
                 llvm::ArrayRef<std::string> dynamic, bool late);
  CudaValue indexAt(mlir::AffineExpr expr);
  CudaValue name(mlir::Value value, mlir::AffineMap point, CudaValue made);
  CudaExpr inScope(mlir::Value value, mlir::AffineMap point, const CudaValue &user);
  std::optional<CudaExpr> contract(mlir::Operation *op, mlir::AffineMap point,
                                   const CudaValue &made);
  CudaExpr combine(const Reduction &reduction, const std::string &sum, mlir::AffineMap point);
  std::string identityOf(const Reduction &reduction);
  // Combined with what the reduction starts from; `sum` alone where that changes nothing.
  std::string withInit(const Reduction &reduction, const std::string &sum);

  // The caches that a kind of loop fills.
  void startInner();
  void startLoads(CudaChunks &chunks);

  // Memory.
  std::string indexText(mlir::AffineExpr expr);
  // Argument number `argument` (inputs, then results) at `point` of its tensor, of the
  // chunk's first element.
  std::string address(unsigned argument, mlir::RankedTensorType type, mlir::AffineMap point,
                      llvm::ArrayRef<std::string> dynamic = {});
  mlir::RankedTensorType typeOf(unsigned argument);
  unsigned argumentOf(const Output &output) { return inputs + output.result; }
  std::string nameOf(unsigned argument);
  std::string vectorType(mlir::Type element);

  // The loop over chunks, or what stands in its place; nothing for an empty body.
  void loopOverChunks(CudaText &to, const CudaChunks &chunks, const CudaText &body);
  // Without a loop the indices are computed once, in front of all that would be in one: takes
  // them from `chunks`. With a loop every loop computes its own.
  CudaIndex shareIndex(CudaChunks &chunks);
  void loopOverElements(CudaText &to, const CudaText &body);
  // Values of the outputs' elements are made in the loop over elements, vectors stored behind
  // it.
  void storeOutputs(CudaText &chunk, CudaText &elements, llvm::ArrayRef<unsigned> outputs);

  // Elements of a vector: what the widest type that covers the domain, the extents, the pitches
  // and the offsets allow.
  unsigned findWidth();
  bool coversDomain(mlir::AffineMap point);
  bool widthFits(unsigned argument, mlir::AffineMap point, unsigned width);
  bool isLane(mlir::AffineMap point);
  // Whether a thread may read what another thread of its row overwrites.
  bool readsWhatOthersWrite();

  unsigned rank() const { return info.shape.domain.size(); }
  int64_t laneExtent() const;
  CudaKernel finish(uint32_t blocks, uint32_t threads, uint32_t sharedBytes, const CudaText &body,
                    llvm::ArrayRef<std::string> notes);

  kern::KernelOp kernel;
  const RegionInfo &info;
  mlir::MLIRContext *context;
  mlir::Block &region;
  unsigned inputs;
  unsigned width = 1;
  bool isColumn;

  CudaText kernelText;
  CudaText *outerText = nullptr, *lateText = nullptr, *innerText = nullptr;
  CudaChunks *chunks = nullptr, *hoisted = nullptr;
  bool outerPerChunk = false;
  // A load had to be made for each chunk at an index that only a reduction gives.
  bool lateLoad = false;
  // Of a chunk, by all loads so far that differ between rows.
  int64_t rowBytesLoaded = 0;
  GlobalBytes again; // as in CudaKernel

  std::vector<std::string> outerDims; // names of the outer indices
  std::string column = "c";           // of the chunk's first element

  Cache kernelCache, outerCache, hoistedCache, loadCache, innerCache;

private:
  Cache &cacheOf(const CudaValue &value);
  CudaValue &remember(mlir::Value value, mlir::AffineMap point, CudaValue made);
  bool shouldName(mlir::Value value, const CudaValue &made);
  std::string perChunk(CudaChunks &to, const std::string &type, const std::string &name,
                       const std::string &expr);
  std::string fresh(llvm::StringRef prefix);

  std::string &nameOfExpr(const CudaValue &made, const std::string &type);

  std::map<std::string, unsigned> counters;
  // By scope and type: what an expression is already called.
  std::map<Cache *, std::map<std::string, std::string>> names;
};

// The formulas of a kernel's results, a line each, with names for what is used several times:
// "y0 = bf16(x0 * r0 * x1)".
std::vector<std::string> cudaFormulas(kern::KernelOp kernel);

// One for each hero.
CudaKernel printCudaElements(kern::KernelOp kernel, const RegionInfo &info);
CudaKernel printCudaRows(kern::KernelOp kernel, const RegionInfo &info);
CudaKernel printCudaColumns(kern::KernelOp kernel, const RegionInfo &info);

} // namespace lmc::codegen

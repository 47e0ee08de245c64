// The part that the CUDA printers of all heroes share: it prints the values of a region as C++
// expressions, each in the outermost scope in which it can be computed.
//
// A thread works on vectors (chunks in the code) of `width` elements along the innermost dimension
// (along the columns in a column reduction). A value is evaluated at a point, by recursion down to
// its loads. The dimensions with which it varies decide where its code is printed:
//
//   none                           `kernel`, once
//   outer dimensions only          `outer`, once per row; or `loads`, once per vector
//   innermost dimension (loads)    `loads`, once per vector; or `hoisted`, if the load does not
//                                  vary with the rows of a thread
//   everything else                `inner`, in a loop over the elements of a vector
//
// A value that is used once, in the scope that computes it, is part of its user's expression; every
// other value is stored in a variable.
#pragma once

#include "compiler/targets/cuda/CudaKernel.h"
#include "compiler/targets/cuda/CudaScalars.h"
#include "compiler/kernels/Hero.h"

#include <map>
#include <optional>

namespace lmc::codegen {

// Lines of C++. They are indented when a block is put into another one.
struct CudaText {
  std::vector<std::string> lines;

  void line(const llvm::Twine &text) { lines.push_back(text.str()); }
  void append(const CudaText &text) {
    lines.insert(lines.end(), text.lines.begin(), text.lines.end());
  }
  // Appends `head { body }`, or a plain block if `head` is empty.
  void block(const llvm::Twine &head, const CudaText &body);
  std::string str(unsigned indent) const;
};

struct CudaValue {
  CudaExpr expr;
  bool lane = false;  // varies along the innermost dimension
  bool outer = false; // varies between rows, or between vectors
  bool late = false;  // depends on a reduction
};

// Index variables that are declared inside each loop whose body uses them.
struct CudaIndex {
  struct Variable {
    std::string type, name, expr;
  };
  std::vector<Variable> variables;

  void add(const llvm::Twine &type, const llvm::Twine &name, const llvm::Twine &expr) {
    variables.push_back({type.str(), name.str(), expr.str()});
  }
  // Prints the variables that `body` or `also` mentions, and those that these variables depend on.
  void print(CudaText &to, const CudaText &body, llvm::StringRef also) const;
};

// The vectors that a thread loads together, and their C++ text. A loop over vectors counts them
// with the variable `k`; a single vector without a guard needs no loop.
struct CudaChunks {
  unsigned count = 1;
  std::string guard;     // condition that the vector is inside, or empty
  CudaIndex index;       // of the vector's first element, computed from `k`
  CudaText declarations; // of the variables that `loads` sets for every vector
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
  // Returns `sum` combined with the start value of the reduction, or `sum` alone if the start value
  // is neutral.
  std::string withInit(const Reduction &reduction, const std::string &sum);

  // Clear the caches of the values that a loop computes, before its body is printed.
  void startInner();
  void startLoads(CudaChunks &chunks);

  // Memory.
  std::string indexText(mlir::AffineExpr expr);
  // Returns the address of the element of argument `argument` (inputs, then results) at `point`,
  // for the first element of the vector.
  std::string address(unsigned argument, mlir::RankedTensorType type, mlir::AffineMap point,
                      llvm::ArrayRef<std::string> dynamic = {});
  mlir::RankedTensorType typeOf(unsigned argument);
  unsigned argumentOf(const Output &output) { return inputs + output.result; }
  std::string nameOf(unsigned argument);
  std::string vectorType(mlir::Type element);

  // Prints the loop over vectors, or a single body; prints nothing for an empty body.
  void loopOverChunks(CudaText &to, const CudaChunks &chunks, const CudaText &body);
  // Takes the index variables out of `chunks` if there is no loop over vectors, so that they are
  // declared once in front of all bodies. With a loop, every loop declares its own.
  CudaIndex shareIndex(CudaChunks &chunks);
  void loopOverElements(CudaText &to, const CudaText &body);
  // Prints the results: the loop over elements computes them, and the stores of whole vectors
  // follow it.
  void storeOutputs(CudaText &chunk, CudaText &elements, llvm::ArrayRef<unsigned> outputs);

  // Returns the elements per vector that the widest type that covers the domain, the extents, the
  // pitches and the offsets allow.
  unsigned findWidth();
  bool coversDomain(mlir::AffineMap point);
  bool widthFits(unsigned argument, mlir::AffineMap point, unsigned width);
  bool isLane(mlir::AffineMap point);
  // Returns true if a thread may read a value that another thread of its row overwrites.
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
  // True after a load per vector whose index depends on a reduction.
  bool lateLoad = false;
  // Bytes that all loads so far that vary between rows read for one vector.
  int64_t rowBytesLoaded = 0;
  GlobalBytes again; // as in CudaKernel

  std::vector<std::string> outerDims; // names of the outer indices
  std::string column = "c";           // of the vector's first element

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
  // Per scope and type: the variable that holds an expression.
  std::map<Cache *, std::map<std::string, std::string>> names;
};

// Returns the formulas of a kernel's results, one per line, with variables for values used several
// times: "y0 = bf16(x0 * r0 * x1)".
std::vector<std::string> cudaFormulas(kern::KernelOp kernel);

// The printers, one per hero.
CudaKernel printCudaElements(kern::KernelOp kernel, const RegionInfo &info);
CudaKernel printCudaRows(kern::KernelOp kernel, const RegionInfo &info);
CudaKernel printCudaColumns(kern::KernelOp kernel, const RegionInfo &info);

} // namespace lmc::codegen

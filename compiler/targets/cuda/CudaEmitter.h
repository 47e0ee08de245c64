// The base class of the classes that print CUDA kernels, one for each kind of main loop (hero). It
// prints each value as a C++ expression, in the outermost scope that has all its operands.
//
// A thread works on vectors (called chunks in the code) of `width` elements along the innermost
// dimension. A value is computed at a point of the domain, by recursion down to its loads. The
// dimensions along which the value varies decide in which scope its code is printed:
//
//   none                           `kernel`, once
//   outer dimensions only          `outer`, once per row; or `loads`, once per vector
//   innermost dimension (loads)    `loads`, once per vector; or `hoisted`, if all rows of a thread
//                                  share it
//   everything else                `inner`, in a loop over the elements of a vector
//
// Every value gets a variable, unless it is used only once, in its own scope.
#pragma once

#include "compiler/targets/cuda/CudaKernel.h"
#include "compiler/targets/cuda/CudaScalars.h"
#include "compiler/kernels/Hero.h"

#include <map>
#include <optional>

namespace lmc::codegen {

struct CudaText {
  std::vector<std::string> lines;

  void line(const llvm::Twine &text) { lines.push_back(text.str()); }
  void append(const CudaText &text) {
    lines.insert(lines.end(), text.lines.begin(), text.lines.end());
  }
  // Appends `head { body }`, or a plain block if `head` is empty.
  void block(const llvm::Twine &head, const CudaText &body);
};

struct CudaValue {
  CudaExpr expr;
  bool innermost = false; // true if the value varies along the innermost dimension
  bool outer = false;     // true if the value varies between rows, or between vectors
  bool late = false;      // true if the value depends on the result of a reduction
};

// Variables that hold indices. A loop declares only the variables that its body uses.
struct CudaIndex {
  struct Variable {
    std::string type, name, expr;
  };
  std::vector<Variable> variables;

  void add(const llvm::Twine &type, const llvm::Twine &name, const llvm::Twine &expr) {
    variables.push_back({type.str(), name.str(), expr.str()});
  }
  // Prints the variables that `body` and the text `also` use, and those that these variables use.
  void print(CudaText &to, const CudaText &body, llvm::StringRef also) const;
};

// Vectors that a thread loads in one loop over `k`, and the C++ code that loads them.
struct CudaChunks {
  unsigned count = 1;
  std::string guard;     // condition that a vector is inside the domain; may be empty
  CudaIndex index;       // index of the vector's first element, computed from `k`
  CudaText declarations; // declarations of the variables that `loads` sets
  CudaText loads;
  bool alone() const { return count == 1 && guard.empty(); }
};

class CudaEmitter {
public:
  CudaEmitter(kern::KernelOp kernel, const RegionInfo &info);
  virtual ~CudaEmitter() = default;

protected:
  using Key = std::pair<mlir::Value, mlir::AffineMap>; // a value and the point where it is computed
  using Cache = llvm::DenseMap<Key, CudaValue>;

  // Each of these functions returns a value at `point`, and prints the variables that it needs.
  CudaValue eval(mlir::Value value, mlir::AffineMap point);
  CudaValue evalTensor(mlir::Value value, mlir::AffineMap point);
  CudaValue evalScalar(mlir::Value value, mlir::AffineMap point);
  CudaValue apply(mlir::Operation *op, mlir::AffineMap point);
  CudaValue extract(mlir::tensor::ExtractOp op, mlir::AffineMap point);
  CudaValue load(mlir::BlockArgument input, mlir::AffineMap point,
                 llvm::ArrayRef<std::string> dynamic, bool late);
  // Returns C++ code that loads a row's vector. `key` is null if an index was read from memory.
  virtual std::string vectorOfRow(Key key, unsigned input, const std::string &name,
                                  const std::string &from) {
    return "load<" + std::to_string(width) + ">(" + from + ")";
  }
  CudaValue indexAt(mlir::AffineExpr expr);
  CudaValue name(mlir::Value value, mlir::AffineMap point, CudaValue made);
  CudaExpr inScope(mlir::Value value, mlir::AffineMap point, const CudaValue &user);
  std::optional<CudaExpr> contract(mlir::Operation *op, mlir::AffineMap point,
                                   const CudaValue &made);
  CudaExpr combine(const Reduction &reduction, const std::string &sum, mlir::AffineMap point);
  std::string identityOf(const Reduction &reduction);
  // Returns `sum`, combined with the reduction's start value unless that is neutral (0 for a sum).
  std::string withInit(const Reduction &reduction, const std::string &sum);

  // Clear the caches of values inside a loop. Called before the loop's body is printed.
  void startInner();
  void startLoads(CudaChunks &chunks);

  std::string indexText(mlir::AffineExpr expr);
  std::string indexOfDim(unsigned dim);
  // Returns the address of the vector at `point`. `argument` indexes the inputs, then the results.
  std::string address(unsigned argument, mlir::RankedTensorType type, mlir::AffineMap point,
                      llvm::ArrayRef<std::string> dynamic = {});
  mlir::RankedTensorType typeOf(unsigned argument);
  unsigned argumentOf(const Output &output) { return inputs + output.result; }
  std::string nameOf(unsigned argument);
  std::string vectorType(mlir::Type element);
  // In the loop over a vector's elements, returns the C++ expression of the current element.
  std::string elementOf(const std::string &vector) const {
    return vector + (width == 1 ? ".at[0]" : ".at[e]");
  }
  static mlir::Type typeOf(const Reduction &reduction) {
    return mlir::getElementTypeOrSelf(reduction.result.getType());
  }

  // Prints `body` in a loop over vectors. Prints no loop if there is only one vector.
  void loopOverChunks(CudaText &to, const CudaChunks &chunks, const CudaText &body);
  void printLoads(CudaText &to, const CudaChunks &chunks);
  // If a thread has only one vector, moves the index variables from `chunks` to the result, so that
  // the caller can print them once, before all loop bodies. Else returns no variables.
  CudaIndex shareIndex(CudaChunks &chunks);
  void loopOverElements(CudaText &to, const CudaText &body);
  // Prints the code that computes results element by element and stores whole vectors.
  void storeOutputs(CudaText &chunk, CudaText &elements, llvm::ArrayRef<unsigned> outputs);

  unsigned findWidth();
  bool coversDomain(mlir::AffineMap point);
  bool widthFits(unsigned argument, mlir::AffineMap point, unsigned width);
  bool isInnermost(mlir::AffineMap point);
  // Returns true if a thread may read an element that another thread of the same row overwrites.
  bool readsWhatOthersWrite();

  unsigned rank() const { return info.shape.domain.size(); }
  CudaKernel finish(uint32_t blocks, uint32_t threads, uint32_t sharedBytes, const CudaText &body,
                    const std::string &note);

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
  // True after a load of vectors whose index depends on the result of a reduction.
  bool lateLoad = false;
  // Bytes per vector of all loads printed so far. Loads that are the same in all rows do not count.
  int64_t rowBytesLoaded = 0;
  GlobalBytes again; // traffic of CudaKernel::again

  std::vector<std::string> outerDims; // names of the outer dimensions' index variables
  std::string column = "c";           // name of the index variable of the vector's first element

  Cache kernelCache, outerCache, hoistedCache, loadCache, innerCache;

private:
  Cache &cacheOf(const CudaValue &value);
  CudaValue remember(mlir::Value value, mlir::AffineMap point, CudaValue made);
  bool shouldName(mlir::Value value, const CudaValue &made);
  std::string perChunk(CudaChunks &to, const std::string &type, const std::string &name,
                       const std::string &expr);
  std::string fresh(llvm::StringRef prefix);

  std::string &nameOfExpr(const CudaValue &made, const std::string &type);

  std::map<std::string, unsigned> counters;
  // For each scope: from "TYPE EXPRESSION" to the variable that has the expression's value.
  std::map<Cache *, std::map<std::string, std::string>> names;
};

// Returns the formulas of a kernel's results, one per line: "y0 = bf16(x0 * r0 * x1)".
std::vector<std::string> cudaFormulas(kern::KernelOp kernel);

CudaKernel printCudaElements(kern::KernelOp kernel, const RegionInfo &info);
CudaKernel printCudaRows(kern::KernelOp kernel, const RegionInfo &info, const CudaPrinting &how);
CudaKernel printCudaColumns(kern::KernelOp kernel, const RegionInfo &info);

} // namespace lmc::codegen

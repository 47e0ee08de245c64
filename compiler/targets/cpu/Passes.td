#ifndef LMC_PASSES_CODEGEN
#define LMC_PASSES_CODEGEN

include "mlir/Pass/PassBase.td"

def LowerKernelsPass : Pass<"kern-lower-kernels", "::mlir::ModuleOp"> {
  let summary = "Turn every kern.kernel into a vectorised CPU function";
  let description = [{
    A kernel becomes `func.func @NAME(%args: !llvm.ptr, %begin: i64, %end: i64)`,
    in C `void NAME(void *const *args, int64_t begin, int64_t end)`, which computes
    the work items [begin, end). `args` holds the pointers of the inputs, then those of
    the results, all dense and row-major. The hero decides what a work item is; the
    result never depends on how work items are divided among calls.

    The region is not bufferised: each result is evaluated by recursion down to the
    inputs, in vectors of `vector-width` bits along the innermost dimension and in
    scalars for the rest, so that no intermediate value is stored. Values that do not
    vary along a loop are computed before it. Memory is accessed through LLVM
    pointers; arithmetic is `arith` and `math` on vectors. exp, log and tanh of f32
    are polynomials; other functions call libm for each lane.

    `a * b + c` becomes one fma if the target has that instruction and one
    `linalg.generic` contains both ops. The decision depends on the expression alone, so
    that rounding is the same for any fusion, in vector loops, in their scalar tails and
    for any division into chunks. LLVM itself may not contract.

    ```mlir
    kern.kernel @double elementwise {
    ^bb0(%x: tensor<64xf32>):
      %e = tensor.empty() : tensor<64xf32>
      %y = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
                           iterator_types = ["parallel"]}
           ins(%x : tensor<64xf32>) outs(%e : tensor<64xf32>) {
      ^bb0(%a: f32, %o: f32):
        %s = arith.addf %a, %a : f32
        linalg.yield %s : f32
      } -> tensor<64xf32>
      kern.yield %y : tensor<64xf32>
    }
    ```
    becomes (the loop over whole vectors)
    ```mlir
    func.func @double(%args: !llvm.ptr, %begin: i64, %end: i64) {
      %x = llvm.load %args : !llvm.ptr -> !llvm.ptr
      ...
      scf.for %i = %b to %main step %c16 {
        %p = llvm.getelementptr %x[%i64] : (!llvm.ptr, i64) -> !llvm.ptr, f32
        %a = llvm.load %p {alignment = 4 : i64} : !llvm.ptr -> vector<8xf32>
        %s = arith.addf %a, %a : vector<8xf32>
        llvm.store %s, %q {alignment = 4 : i64} : vector<8xf32>, !llvm.ptr
        ...
    ```
  }];
  let options = [
    Option<"vectorWidth", "vector-width", "unsigned", /*default=*/"256",
           "bits of a vector register: 128, 256 or 512">,
    Option<"fma", "fma", "bool", /*default=*/"true",
           "the target has fused multiply-add instructions">
  ];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::func::FuncDialect", "::mlir::LLVM::LLVMDialect",
    "::mlir::math::MathDialect", "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect"
  ];
}

#endif

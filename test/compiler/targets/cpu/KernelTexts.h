// The kernels of a Llama, as the lowering writes them: `$R` rows, `$C` columns,
// `$T` the storage type.
#pragma once

namespace lmc::codegen::test {

// h = x + residual; rstd = 1 / sqrt(mean(h^2) + 1e-5); y = h rstd w.
inline const char *kResidualRmsNorm = R"(
#rc = affine_map<(r, c) -> (r, c)>
#r = affine_map<(r, c) -> (r)>
#c = affine_map<(r, c) -> (c)>
#o = affine_map<(r) -> (r)>
kern.kernel @kernel row_reduction {
^bb0(%x: tensor<$Rx$Cxf32>, %res: tensor<$Rx$Cxf32>, %w: tensor<$Cxf32>):
  %zero = arith.constant 0.0 : f32
  %n = arith.constant $C.0 : f32
  %eps = arith.constant 1.0e-5 : f32
  %e = tensor.empty() : tensor<$Rx$Cxf32>
  %er = tensor.empty() : tensor<$Rxf32>
  %h = linalg.generic {indexing_maps = [#rc, #rc, #rc], iterator_types = ["parallel", "parallel"]}
      ins(%x, %res : tensor<$Rx$Cxf32>, tensor<$Rx$Cxf32>) outs(%e : tensor<$Rx$Cxf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %s = arith.addf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<$Rx$Cxf32>
  %f = linalg.fill ins(%zero : f32) outs(%er : tensor<$Rxf32>) -> tensor<$Rxf32>
  %ss = linalg.generic {indexing_maps = [#rc, #r], iterator_types = ["parallel", "reduction"]}
      ins(%h : tensor<$Rx$Cxf32>) outs(%f : tensor<$Rxf32>) {
  ^bb0(%a: f32, %acc: f32):
    %q = arith.mulf %a, %a : f32
    %s = arith.addf %acc, %q : f32
    linalg.yield %s : f32
  } -> tensor<$Rxf32>
  %rstd = linalg.generic {indexing_maps = [#o, #o], iterator_types = ["parallel"]}
      ins(%ss : tensor<$Rxf32>) outs(%er : tensor<$Rxf32>) {
  ^bb0(%a: f32, %o: f32):
    %m = arith.divf %a, %n : f32
    %p = arith.addf %m, %eps : f32
    %q = math.rsqrt %p : f32
    linalg.yield %q : f32
  } -> tensor<$Rxf32>
  %y = linalg.generic {indexing_maps = [#rc, #r, #c, #rc], iterator_types = ["parallel", "parallel"]}
      ins(%h, %rstd, %w : tensor<$Rx$Cxf32>, tensor<$Rxf32>, tensor<$Cxf32>)
      outs(%e : tensor<$Rx$Cxf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32, %o: f32):
    %s = arith.mulf %a, %b : f32
    %t = arith.mulf %s, %c : f32
    linalg.yield %t : f32
  } -> tensor<$Rx$Cxf32>
  kern.yield %h, %y, %rstd : tensor<$Rx$Cxf32>, tensor<$Rx$Cxf32>, tensor<$Rxf32>
})";

// The same without the residual, x, w and y in bf16.
inline const char *kRmsNormBf16 = R"(
#rc = affine_map<(r, c) -> (r, c)>
#r = affine_map<(r, c) -> (r)>
#c = affine_map<(r, c) -> (c)>
#o = affine_map<(r) -> (r)>
kern.kernel @kernel row_reduction {
^bb0(%x: tensor<$Rx$Cxbf16>, %w: tensor<$Cxbf16>):
  %zero = arith.constant 0.0 : f32
  %n = arith.constant $C.0 : f32
  %eps = arith.constant 1.0e-5 : f32
  %e = tensor.empty() : tensor<$Rx$Cxf32>
  %eb = tensor.empty() : tensor<$Rx$Cxbf16>
  %er = tensor.empty() : tensor<$Rxf32>
  %h = linalg.generic {indexing_maps = [#rc, #rc], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<$Rx$Cxbf16>) outs(%e : tensor<$Rx$Cxf32>) {
  ^bb0(%a: bf16, %o: f32):
    %s = arith.extf %a : bf16 to f32
    linalg.yield %s : f32
  } -> tensor<$Rx$Cxf32>
  %f = linalg.fill ins(%zero : f32) outs(%er : tensor<$Rxf32>) -> tensor<$Rxf32>
  %ss = linalg.generic {indexing_maps = [#rc, #r], iterator_types = ["parallel", "reduction"]}
      ins(%h : tensor<$Rx$Cxf32>) outs(%f : tensor<$Rxf32>) {
  ^bb0(%a: f32, %acc: f32):
    %q = arith.mulf %a, %a : f32
    %s = arith.addf %q, %acc : f32
    linalg.yield %s : f32
  } -> tensor<$Rxf32>
  %rstd = linalg.generic {indexing_maps = [#o, #o], iterator_types = ["parallel"]}
      ins(%ss : tensor<$Rxf32>) outs(%er : tensor<$Rxf32>) {
  ^bb0(%a: f32, %o: f32):
    %m = arith.divf %a, %n : f32
    %p = arith.addf %m, %eps : f32
    %q = math.rsqrt %p : f32
    linalg.yield %q : f32
  } -> tensor<$Rxf32>
  %y = linalg.generic {indexing_maps = [#rc, #r, #c, #rc], iterator_types = ["parallel", "parallel"]}
      ins(%h, %rstd, %w : tensor<$Rx$Cxf32>, tensor<$Rxf32>, tensor<$Cxbf16>)
      outs(%eb : tensor<$Rx$Cxbf16>) {
  ^bb0(%a: f32, %b: f32, %c: bf16, %o: bf16):
    %s = arith.mulf %a, %b : f32
    %u = arith.extf %c : bf16 to f32
    %t = arith.mulf %s, %u : f32
    %z = arith.truncf %t : f32 to bf16
    linalg.yield %z : bf16
  } -> tensor<$Rx$Cxbf16>
  kern.yield %y, %rstd : tensor<$Rx$Cxbf16>, tensor<$Rxf32>
})";

// dx = rstd (g - x rstd^2 mean(g x)), g = dy w, with rstd computed again.
inline const char *kRmsNormGrad = R"(
#rc = affine_map<(r, c) -> (r, c)>
#r = affine_map<(r, c) -> (r)>
#c = affine_map<(r, c) -> (c)>
#o = affine_map<(r) -> (r)>
kern.kernel @kernel row_reduction {
^bb0(%dy: tensor<$Rx$Cx$T>, %x: tensor<$Rx$Cx$T>, %w: tensor<$Cx$T>):
  %zero = arith.constant 0.0 : $T
  %n = arith.constant $C.0 : $T
  %eps = arith.constant 1.0e-5 : $T
  %e = tensor.empty() : tensor<$Rx$Cx$T>
  %er = tensor.empty() : tensor<$Rx$T>
  %f = linalg.fill ins(%zero : $T) outs(%er : tensor<$Rx$T>) -> tensor<$Rx$T>
  %sums:2 = linalg.generic {indexing_maps = [#rc, #rc, #c, #r, #r],
                            iterator_types = ["parallel", "reduction"]}
      ins(%dy, %x, %w : tensor<$Rx$Cx$T>, tensor<$Rx$Cx$T>, tensor<$Cx$T>)
      outs(%f, %f : tensor<$Rx$T>, tensor<$Rx$T>) {
  ^bb0(%d: $T, %a: $T, %c: $T, %acc: $T, %bcc: $T):
    %q = arith.mulf %a, %a : $T
    %s = arith.addf %acc, %q : $T
    %g = arith.mulf %d, %c : $T
    %p = arith.mulf %g, %a : $T
    %t = arith.addf %bcc, %p : $T
    linalg.yield %s, %t : $T, $T
  } -> (tensor<$Rx$T>, tensor<$Rx$T>)
  %rstd = linalg.generic {indexing_maps = [#o, #o], iterator_types = ["parallel"]}
      ins(%sums#0 : tensor<$Rx$T>) outs(%er : tensor<$Rx$T>) {
  ^bb0(%a: $T, %o: $T):
    %m = arith.divf %a, %n : $T
    %p = arith.addf %m, %eps : $T
    %q = math.rsqrt %p : $T
    linalg.yield %q : $T
  } -> tensor<$Rx$T>
  %dx = linalg.generic {indexing_maps = [#rc, #rc, #c, #r, #r, #rc],
                        iterator_types = ["parallel", "parallel"]}
      ins(%dy, %x, %w, %rstd, %sums#1 : tensor<$Rx$Cx$T>, tensor<$Rx$Cx$T>, tensor<$Cx$T>,
          tensor<$Rx$T>, tensor<$Rx$T>) outs(%e : tensor<$Rx$Cx$T>) {
  ^bb0(%d: $T, %a: $T, %c: $T, %i: $T, %s: $T, %o: $T):
    %g = arith.mulf %d, %c : $T
    %i2 = arith.mulf %i, %i : $T
    %m = arith.divf %s, %n : $T
    %k = arith.mulf %i2, %m : $T
    %t = arith.mulf %a, %k : $T
    %u = arith.subf %g, %t : $T
    %z = arith.mulf %u, %i : $T
    linalg.yield %z : $T
  } -> tensor<$Rx$Cx$T>
  kern.yield %dx : tensor<$Rx$Cx$T>
})";

// y = x / rms(x); sums over each $P of the $R rows, of which there are $B blocks, of x y.
inline const char *kBlockSums = R"(
#rc = affine_map<(r, c) -> (r, c)>
#r = affine_map<(r, c) -> (r)>
#o = affine_map<(r) -> (r)>
#brc = affine_map<(b, i, c) -> (b * $P + i, c)>
#br = affine_map<(b, i, c) -> (b * $P + i)>
#i = affine_map<(b, i, c) -> (i)>
#bc = affine_map<(b, i, c) -> (b, c)>
kern.kernel @kernel row_reduction {
^bb0(%x: tensor<$Rx$Cxf32>):
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %n = arith.constant $C.0 : f32
  %e = tensor.empty() : tensor<$Rx$Cxf32>
  %er = tensor.empty() : tensor<$Rxf32>
  %f = linalg.fill ins(%zero : f32) outs(%er : tensor<$Rxf32>) -> tensor<$Rxf32>
  %ss = linalg.generic {indexing_maps = [#rc, #r], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<$Rx$Cxf32>) outs(%f : tensor<$Rxf32>) {
  ^bb0(%a: f32, %acc: f32):
    %q = arith.mulf %a, %a : f32
    %s = arith.addf %acc, %q : f32
    linalg.yield %s : f32
  } -> tensor<$Rxf32>
  %r = linalg.generic {indexing_maps = [#o, #o], iterator_types = ["parallel"]}
      ins(%ss : tensor<$Rxf32>) outs(%er : tensor<$Rxf32>) {
  ^bb0(%a: f32, %o: f32):
    %m = arith.divf %a, %n : f32
    %q = math.sqrt %m : f32
    %i = arith.divf %one, %q : f32
    linalg.yield %i : f32
  } -> tensor<$Rxf32>
  %y = linalg.generic {indexing_maps = [#rc, #r, #rc], iterator_types = ["parallel", "parallel"]}
      ins(%x, %r : tensor<$Rx$Cxf32>, tensor<$Rxf32>) outs(%e : tensor<$Rx$Cxf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %s = arith.mulf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<$Rx$Cxf32>
  %rows = tensor.empty() : tensor<$Pxf32>
  %es = tensor.empty() : tensor<$Bx$Cxf32>
  %fs = linalg.fill ins(%zero : f32) outs(%es : tensor<$Bx$Cxf32>) -> tensor<$Bx$Cxf32>
  %sums = linalg.generic {indexing_maps = [#brc, #br, #i, #bc], iterator_types = ["parallel", "reduction", "parallel"]}
      ins(%x, %r, %rows : tensor<$Rx$Cxf32>, tensor<$Rxf32>, tensor<$Pxf32>) outs(%fs : tensor<$Bx$Cxf32>) {
  ^bb0(%a: f32, %b: f32, %unused: f32, %acc: f32):
    %t = arith.mulf %a, %b : f32
    %q = arith.mulf %a, %t : f32
    %s = arith.addf %acc, %q : f32
    linalg.yield %s : f32
  } -> tensor<$Bx$Cxf32>
  $after
  kern.yield %y, $yield
})";

// loss = lse(logits) - logits[target]; dlogits = scale (softmax - onehot).
inline const char *kCrossEntropy = R"(
#rc = affine_map<(r, c) -> (r, c)>
#r = affine_map<(r, c) -> (r)>
#s = affine_map<(r, c) -> ()>
#o = affine_map<(r) -> (r)>
kern.kernel @kernel row_reduction {
^bb0(%x: tensor<$Rx$Cxf32>, %target: tensor<$Rxi32>, %scale: tensor<f32>):
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<$Rx$Cxf32>
  %er = tensor.empty() : tensor<$Rxf32>
  %f = linalg.fill ins(%zero : f32) outs(%er : tensor<$Rxf32>) -> tensor<$Rxf32>
  %g = linalg.fill ins(%low : f32) outs(%er : tensor<$Rxf32>) -> tensor<$Rxf32>
  %max = linalg.generic {indexing_maps = [#rc, #r], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<$Rx$Cxf32>) outs(%g : tensor<$Rxf32>) {
  ^bb0(%a: f32, %acc: f32):
    %m = arith.maximumf %acc, %a : f32
    linalg.yield %m : f32
  } -> tensor<$Rxf32>
  %sum = linalg.generic {indexing_maps = [#rc, #r, #r], iterator_types = ["parallel", "reduction"]}
      ins(%x, %max : tensor<$Rx$Cxf32>, tensor<$Rxf32>) outs(%f : tensor<$Rxf32>) {
  ^bb0(%a: f32, %m: f32, %acc: f32):
    %d = arith.subf %a, %m : f32
    %p = math.exp %d : f32
    %s = arith.addf %acc, %p : f32
    linalg.yield %s : f32
  } -> tensor<$Rxf32>
  %loss = linalg.generic {indexing_maps = [#o, #o, #o, #o], iterator_types = ["parallel"]}
      ins(%max, %sum, %target : tensor<$Rxf32>, tensor<$Rxf32>, tensor<$Rxi32>)
      outs(%er : tensor<$Rxf32>) {
  ^bb0(%m: f32, %s: f32, %t: i32, %o: f32):
    %row = linalg.index 0 : index
    %col = arith.index_cast %t : i32 to index
    %logit = tensor.extract %x[%row, %col] : tensor<$Rx$Cxf32>
    %l = math.log %s : f32
    %lse = arith.addf %l, %m : f32
    %z = arith.subf %lse, %logit : f32
    linalg.yield %z : f32
  } -> tensor<$Rxf32>
  %dx = linalg.generic {indexing_maps = [#rc, #r, #r, #r, #s, #rc],
                        iterator_types = ["parallel", "parallel"]}
      ins(%x, %max, %sum, %target, %scale : tensor<$Rx$Cxf32>, tensor<$Rxf32>, tensor<$Rxf32>,
          tensor<$Rxi32>, tensor<f32>) outs(%e : tensor<$Rx$Cxf32>) {
  ^bb0(%a: f32, %m: f32, %s: f32, %t: i32, %k: f32, %o: f32):
    %d = arith.subf %a, %m : f32
    %p = math.exp %d : f32
    %q = arith.divf %p, %s : f32
    %col = linalg.index 1 : index
    %hit = arith.index_cast %t : i32 to index
    %is = arith.cmpi eq, %col, %hit : index
    %h = arith.select %is, %one, %zero : f32
    %u = arith.subf %q, %h : f32
    %z = arith.mulf %u, %k : f32
    linalg.yield %z : f32
  } -> tensor<$Rx$Cxf32>
  kern.yield %dx, %loss : tensor<$Rx$Cxf32>, tensor<$Rxf32>
})";

// y = silu(gate) up.
inline const char *kSwiglu = R"(
#i = affine_map<(r, c) -> (r, c)>
kern.kernel @kernel elementwise {
^bb0(%gate: tensor<$Rx$Cxf32>, %up: tensor<$Rx$Cxf32>):
  %one = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<$Rx$Cxf32>
  %y = linalg.generic {indexing_maps = [#i, #i, #i], iterator_types = ["parallel", "parallel"]}
      ins(%gate, %up : tensor<$Rx$Cxf32>, tensor<$Rx$Cxf32>) outs(%e : tensor<$Rx$Cxf32>) {
  ^bb0(%g: f32, %u: f32, %o: f32):
    %n = arith.negf %g : f32
    %x = math.exp %n : f32
    %d = arith.addf %x, %one : f32
    %s = arith.divf %g, %d : f32
    %z = arith.mulf %s, %u : f32
    linalg.yield %z : f32
  } -> tensor<$Rx$Cxf32>
  kern.yield %y : tensor<$Rx$Cxf32>
})";

inline const char *kSwigluGrad = R"(
#i = affine_map<(r, c) -> (r, c)>
kern.kernel @kernel elementwise {
^bb0(%dy: tensor<$Rx$Cxf32>, %gate: tensor<$Rx$Cxf32>, %up: tensor<$Rx$Cxf32>):
  %one = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<$Rx$Cxf32>
  %sig = linalg.generic {indexing_maps = [#i, #i], iterator_types = ["parallel", "parallel"]}
      ins(%gate : tensor<$Rx$Cxf32>) outs(%e : tensor<$Rx$Cxf32>) {
  ^bb0(%g: f32, %o: f32):
    %n = arith.negf %g : f32
    %x = math.exp %n : f32
    %d = arith.addf %x, %one : f32
    %s = arith.divf %one, %d : f32
    linalg.yield %s : f32
  } -> tensor<$Rx$Cxf32>
  %r:2 = linalg.generic {indexing_maps = [#i, #i, #i, #i, #i, #i],
                         iterator_types = ["parallel", "parallel"]}
      ins(%dy, %gate, %up, %sig : tensor<$Rx$Cxf32>, tensor<$Rx$Cxf32>, tensor<$Rx$Cxf32>,
          tensor<$Rx$Cxf32>) outs(%e, %e : tensor<$Rx$Cxf32>, tensor<$Rx$Cxf32>) {
  ^bb0(%d: f32, %g: f32, %u: f32, %s: f32, %o: f32, %o2: f32):
    %silu = arith.mulf %g, %s : f32
    %du = arith.mulf %d, %silu : f32
    %m = arith.subf %one, %s : f32
    %gm = arith.mulf %g, %m : f32
    %p = arith.addf %one, %gm : f32
    %q = arith.mulf %s, %p : f32
    %v = arith.mulf %d, %u : f32
    %dg = arith.mulf %v, %q : f32
    linalg.yield %dg, %du : f32, f32
  } -> (tensor<$Rx$Cxf32>, tensor<$Rx$Cxf32>)
  kern.yield %r#0, %r#1 : tensor<$Rx$Cxf32>, tensor<$Rx$Cxf32>
})";

// Domain (b, s, h, j, i): y = x cos[s, i] + (j ? 1 : -1) x[1 - j] sin[s, i].
inline const char *kRope = R"(
#x = affine_map<(b, s, h, j, i) -> (b, s, h, j, i)>
#o = affine_map<(b, s, h, j, i) -> (b, s, h, 1 - j, i)>
#t = affine_map<(b, s, h, j, i) -> (s, i)>
kern.kernel @kernel elementwise {
^bb0(%x: tensor<2x$Sx3x2x$Cxf32>, %cos: tensor<$Sx$Cxf32>, %sin: tensor<$Sx$Cxf32>):
  %zero = arith.constant 0 : index
  %e = tensor.empty() : tensor<2x$Sx3x2x$Cxf32>
  %y = linalg.generic {indexing_maps = [#x, #o, #t, #t, #x],
      iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]}
      ins(%x, %x, %cos, %sin : tensor<2x$Sx3x2x$Cxf32>, tensor<2x$Sx3x2x$Cxf32>,
          tensor<$Sx$Cxf32>, tensor<$Sx$Cxf32>) outs(%e : tensor<2x$Sx3x2x$Cxf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32, %s: f32, %o: f32):
    %j = linalg.index 3 : index
    %first = arith.cmpi eq, %j, %zero : index
    %n = arith.negf %b : f32
    %r = arith.select %first, %n, %b : f32
    %p = arith.mulf %a, %c : f32
    %q = arith.mulf %r, %s : f32
    %z = arith.addf %p, %q : f32
    linalg.yield %z : f32
  } -> tensor<2x$Sx3x2x$Cxf32>
  kern.yield %y : tensor<2x$Sx3x2x$Cxf32>
})";

// y[t] = table[ids[t]], 11 rows in the table.
inline const char *kGather = R"(
#tc = affine_map<(t, c) -> (t, c)>
#t = affine_map<(t, c) -> (t)>
kern.kernel @kernel gather {
^bb0(%table: tensor<11x$Cxf32>, %ids: tensor<$Rxi32>):
  %e = tensor.empty() : tensor<$Rx$Cxf32>
  %y = linalg.generic {indexing_maps = [#t, #tc], iterator_types = ["parallel", "parallel"]}
      ins(%ids : tensor<$Rxi32>) outs(%e : tensor<$Rx$Cxf32>) {
  ^bb0(%id: i32, %o: f32):
    %row = arith.index_cast %id : i32 to index
    %col = linalg.index 1 : index
    %z = tensor.extract %table[%row, %col] : tensor<11x$Cxf32>
    linalg.yield %z : f32
  } -> tensor<$Rx$Cxf32>
  kern.yield %y : tensor<$Rx$Cxf32>
})";

// dw = acc + sum over rows of dy x rstd[row].
inline const char *kColumnSum = R"(
#rc = affine_map<(r, c) -> (r, c)>
#r = affine_map<(r, c) -> (r)>
#c = affine_map<(r, c) -> (c)>
#o = affine_map<(c) -> (c)>
kern.kernel @kernel column_reduction {
^bb0(%dy: tensor<$Rx$Cxf32>, %x: tensor<$Rx$Cxf32>, %rstd: tensor<$Rxf32>, %acc: tensor<$Cxf32>):
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<$Rx$Cxf32>
  %ec = tensor.empty() : tensor<$Cxf32>
  %p = linalg.generic {indexing_maps = [#rc, #rc, #r, #rc], iterator_types = ["parallel", "parallel"]}
      ins(%dy, %x, %rstd : tensor<$Rx$Cxf32>, tensor<$Rx$Cxf32>, tensor<$Rxf32>)
      outs(%e : tensor<$Rx$Cxf32>) {
  ^bb0(%a: f32, %b: f32, %s: f32, %o: f32):
    %t = arith.mulf %a, %b : f32
    %u = arith.mulf %t, %s : f32
    linalg.yield %u : f32
  } -> tensor<$Rx$Cxf32>
  %f = linalg.fill ins(%zero : f32) outs(%ec : tensor<$Cxf32>) -> tensor<$Cxf32>
  %s = linalg.generic {indexing_maps = [#rc, #c], iterator_types = ["reduction", "parallel"]}
      ins(%p : tensor<$Rx$Cxf32>) outs(%f : tensor<$Cxf32>) {
  ^bb0(%a: f32, %b: f32):
    %t = arith.addf %b, %a : f32
    linalg.yield %t : f32
  } -> tensor<$Cxf32>
  %d = linalg.generic {indexing_maps = [#o, #o, #o], iterator_types = ["parallel"]}
      ins(%s, %acc : tensor<$Cxf32>, tensor<$Cxf32>) outs(%ec : tensor<$Cxf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %t = arith.addf %a, %b : f32
    linalg.yield %t : f32
  } -> tensor<$Cxf32>
  kern.yield %d : tensor<$Cxf32>
})";

// AdamW of rows of a flat parameter, with the clip scale and learning rate as 0-d
// tensors, and each row's sum of squares of the update.
inline const char *kAdamW = R"(
#rc = affine_map<(r, c) -> (r, c)>
#r = affine_map<(r, c) -> (r)>
#s = affine_map<(r, c) -> ()>
kern.kernel @kernel row_reduction {
^bb0(%p: tensor<$Rx$Cxf32>, %g: tensor<$Rx$Cxf32>, %m: tensor<$Rx$Cxf32>, %v: tensor<$Rx$Cxf32>,
     %clip: tensor<f32>, %lr: tensor<f32>):
  %zero = arith.constant 0.0 : f32
  %b1 = arith.constant 0.9 : f32
  %c1 = arith.constant 0.1 : f32
  %b2 = arith.constant 0.95 : f32
  %c2 = arith.constant 0.05 : f32
  %eps = arith.constant 1.0e-8 : f32
  %decay = arith.constant 0.1 : f32
  %e = tensor.empty() : tensor<$Rx$Cxf32>
  %er = tensor.empty() : tensor<$Rxf32>
  %n:4 = linalg.generic {indexing_maps = [#rc, #rc, #rc, #rc, #s, #s, #rc, #rc, #rc, #rc],
                         iterator_types = ["parallel", "parallel"]}
      ins(%p, %g, %m, %v, %clip, %lr : tensor<$Rx$Cxf32>, tensor<$Rx$Cxf32>, tensor<$Rx$Cxf32>,
          tensor<$Rx$Cxf32>, tensor<f32>, tensor<f32>)
      outs(%e, %e, %e, %e : tensor<$Rx$Cxf32>, tensor<$Rx$Cxf32>, tensor<$Rx$Cxf32>,
           tensor<$Rx$Cxf32>) {
  ^bb0(%w: f32, %d: f32, %a: f32, %b: f32, %k: f32, %l: f32, %o0: f32, %o1: f32, %o2: f32, %o3: f32):
    %h = arith.mulf %d, %k : f32
    %t0 = arith.mulf %a, %b1 : f32
    %t1 = arith.mulf %h, %c1 : f32
    %m1 = arith.addf %t0, %t1 : f32
    %t2 = arith.mulf %b, %b2 : f32
    %hh = arith.mulf %h, %h : f32
    %t3 = arith.mulf %hh, %c2 : f32
    %v1 = arith.addf %t2, %t3 : f32
    %rt = math.sqrt %v1 : f32
    %den = arith.addf %rt, %eps : f32
    %st = arith.divf %m1, %den : f32
    %dw = arith.mulf %w, %decay : f32
    %up = arith.addf %st, %dw : f32
    %u = arith.mulf %up, %l : f32
    %w1 = arith.subf %w, %u : f32
    linalg.yield %w1, %m1, %v1, %u : f32, f32, f32, f32
  } -> (tensor<$Rx$Cxf32>, tensor<$Rx$Cxf32>, tensor<$Rx$Cxf32>, tensor<$Rx$Cxf32>)
  %f = linalg.fill ins(%zero : f32) outs(%er : tensor<$Rxf32>) -> tensor<$Rxf32>
  %ss = linalg.generic {indexing_maps = [#rc, #r], iterator_types = ["parallel", "reduction"]}
      ins(%n#3 : tensor<$Rx$Cxf32>) outs(%f : tensor<$Rxf32>) {
  ^bb0(%a: f32, %acc: f32):
    %q = arith.mulf %a, %a : f32
    %s = arith.addf %acc, %q : f32
    linalg.yield %s : f32
  } -> tensor<$Rxf32>
  kern.yield %n#0, %n#1, %n#2, %ss : tensor<$Rx$Cxf32>, tensor<$Rx$Cxf32>, tensor<$Rx$Cxf32>,
                                     tensor<$Rxf32>
})";

} // namespace lmc::codegen::test

// Builds a module in the lm dialect from a Config.
#pragma once

#include "compiler/config/Config.h"
#include "models/families/Decoder.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <vector>

namespace lmc {

// The forward graph of `config`'s model, with all its state declared:
//
//   func.func @forward() -> tensor<f32>   sum of token losses over batch.tokens
//   func.func private @layer(x, cos, sin, weights..., [starts]) -> x   called once per layer; one
//                                         for each kind of layer, under the name of the kind
//   func.func @logits()                   only with monitoring.logits
//
// With training.document_mask attention reads batch.starts, i32 [mbs * seq]: the position
// within its sequence at which the document of each token begins. RoPE's positions go on
// across documents: attention sees their differences alone.
//
// Parameters carry Hugging Face's names. With a bf16 compute dtype every matrix
// also has a NAME.compute copy, which the forward graph reads; vectors (norms and
// biases) are read as they are, in f32.
mlir::OwningOpRef<mlir::ModuleOp> buildModel(const Config &config, mlir::MLIRContext &context);
// Does the same, with this decoder instead of that of the config's family.
mlir::OwningOpRef<mlir::ModuleOp> buildModel(const Config &config, const Decoder &decoder,
                                             mlir::MLIRContext &context);

// Returns the inverse frequencies of the rotary embedding, head_dim / 2 of them, in radians per
// position, including the model's scaling. `attentionFactor` is a factor of cos and sin (yarn). As
// in transformers' modeling_rope_utils.
std::vector<double> ropeFrequencies(const ModelConfig &model, int64_t sequenceLength,
                                    double &attentionFactor);

} // namespace lmc

// Builds the graph of a model, a module in the lm dialect, from a Config.
#pragma once

#include "ground/config/Config.h"
#include "models/families/Decoder.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <string>
#include <vector>

namespace lmc {

// Returns the forward graph of the model of `config`, with declarations of all its state:
//
//   func.func @forward() -> tensor<f32>   returns the sum of token losses over batch.tokens
//   func.func private @layer(x, [cos, sin], weights..., [starts]) -> x   is called once per layer;
//                                         there is one function per kind of layer, named like it
//   func.func @logits()                   exists only with monitoring.logits
//
// With training.document_mask, attention reads the variable batch.starts, i32 [mbs * seq]: for each
// token, the position in its sequence at which its document starts. With
// training.document_positions, lm.rope takes each token's position from batch.positions, i32
// [mbs * seq]; without it, token t has position t mod seq. A decoder with learned positions has no
// RoPE, cos and sin: its table is read at batch.positions or, without training.document_positions,
// at batch.row_positions, to which the host writes t mod seq.
//
// Parameters have Hugging Face's names. With a bf16 compute dtype, every matrix also has a compute
// copy NAME.compute, which the forward graph reads; vectors (norms and biases) are read in f32.
mlir::OwningOpRef<mlir::ModuleOp> buildModel(const Config &config, mlir::MLIRContext &context);
// Returns the graph of `decoder` instead of the decoder of the config's family.
mlir::OwningOpRef<mlir::ModuleOp> buildModel(const Config &config, const Decoder &decoder,
                                             mlir::MLIRContext &context);

// Returns the names of the model's parameters for loadConfig(), in the order of declaration.
std::vector<std::string> parameterNames(const Config &config);

// Returns the head_dim / 2 frequencies of RoPE, in radians per position. They include the model's
// scaling and are computed as in transformers' modeling_rope_utils. Sets `attentionFactor`, by
// which cos and sin must be multiplied (1 except for yarn).
std::vector<double> ropeFrequencies(const ModelConfig &model, int64_t sequenceLength,
                                    double &attentionFactor);

} // namespace lmc

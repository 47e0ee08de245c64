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
//                                         each kind of layer has a function of the same name
//   func.func @logits()                   exists only with monitoring.logits
//
// Inputs are i32 [mbs * seq]. batch.starts (training.document_mask) has, for each token, the
// position in its sequence at which its document starts. batch.positions
// (training.document_positions) has each token's position. Without this key, token t has position t
// mod seq, and a decoder with learned positions reads positions from batch.row_positions.
//
// Parameters have Hugging Face's names. If the compute dtype is bf16, the forward graph reads a
// bf16 copy NAME.compute of every matrix. It reads vectors (norms and biases) in f32.
mlir::OwningOpRef<mlir::ModuleOp> buildModel(const Config &config, mlir::MLIRContext &context);
// Returns the graph of `decoder`, and ignores the decoder of the config's model family.
mlir::OwningOpRef<mlir::ModuleOp> buildModel(const Config &config, const Decoder &decoder,
                                             mlir::MLIRContext &context);

// Returns the names of the model's parameters for loadConfig(), in the order of declaration.
std::vector<std::string> parameterNames(const Config &config);

// Returns the head_dim / 2 frequencies of RoPE, in radians per position, with the model's scaling
// as in transformers' modeling_rope_utils. Sets `attentionFactor`, by which cos and sin must be
// multiplied (1 except for yarn).
std::vector<double> ropeFrequencies(const ModelConfig &model, int64_t sequenceLength,
                                    double &attentionFactor);

} // namespace lmc

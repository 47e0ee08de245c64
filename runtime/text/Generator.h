// Continues prompts with the function `generate` of a plan.
//
// Each new token takes a forward pass over whole sequences (there is no cache of keys and values).
// Each rank continues MBS prompts at a time.
#pragma once

#include "runtime/comm/World.h"
#include "runtime/step/Functions.h"
#include "runtime/step/Inputs.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace lmc {

struct SamplingOptions {
  double temperature = 0; // divisor of the logits; 0: takes the most probable token
  double topP = 1;        // draws from the smallest set of tokens with this probability
};

// Returns a number in [0, 1): the upper 53 bits of XXH64(`place`) with the seed, times 2^-53.
double uniformAt(uint64_t seed, std::span<const uint64_t> place);

// Chooses the next token from the logits [vocab]. Returns nullopt if a logit is NaN or infinite. At
// temperature 0, chooses the first id with the largest logit. Otherwise the random number
// `uniform`, in [0, 1), selects from softmax(logits / temperature), by top-p sampling with topP.
std::optional<uint32_t> chooseToken(std::span<const float> logits, const SamplingOptions &options,
                                    double uniform);

struct GenerateOptions {
  SamplingOptions sampling;
  uint64_t maxNewTokens = 0;
  uint64_t seed = 0, step = 0; // random numbers are hashes of these, prompt number and position
  int32_t endOfDocument = -1;  // the id that ends a text; -1: none
};

struct Continuation {
  enum class End { Length, EndOfDocument, NotFinite };
  std::vector<int32_t> ids; // the new tokens, without the one that ends a document
  End end = End::Length;
};

// Returns "length", "end_of_document" or "not_finite".
const char *nameOf(Continuation::End end);

class Generator {
public:
  // The arguments must outlive the generator. Error: the plan has no function `generate`.
  static Result<std::unique_ptr<Generator>>
  open(const PlanFile &plan, Device &device, Functions &functions, Inputs &inputs, World &world);

  // Continues `prompts`, which are lists of ids. No prompt may be empty. A prompt and maxNewTokens
  // more ids must fit in a sequence. All ranks call it together, with equal arguments, and get all
  // results. The number of ranks and MBS change only the rounding. Returns nullopt if
  // `stopRequested` becomes true on a rank. Overwrites the inputs of a micro-step.
  Result<std::optional<std::vector<Continuation>>>
  generate(const std::vector<std::vector<int32_t>> &prompts, const GenerateOptions &options,
           const std::function<bool()> &stopRequested);

private:
  Generator(const PlanFile &plan, Device &device, Functions &functions, Inputs &inputs,
            World &world, BufferRing ring)
      : plan(plan), device(device), functions(functions), inputs(inputs), world(world),
        ring(std::move(ring)) {}
  struct Row {
    size_t prompt = 0;
    std::vector<int32_t> ids; // the prompt and the new tokens
    bool ended = false;
  };
  // Computes the logits of the next token of each row: [rows, vocab].
  Result<std::vector<float>> nextLogits(const std::vector<Row> &rows);

  const PlanFile &plan;
  Device &device;
  Functions &functions;
  Inputs &inputs;
  World &world;
  BufferRing ring; // host buffers for the index of each row's last token
  ArenaRange positions;
  int logitsSlice = 0;
  plan::DType dtype = plan::DType::F32; // dtype of the logits
};

} // namespace lmc

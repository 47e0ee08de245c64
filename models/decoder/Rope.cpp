// Computes the frequencies of RoPE (rotary position embedding) and their scaling variants.
#include "models/decoder/Model.h"

#include <algorithm>
#include <cmath>
#include <numbers>

using namespace lmc;

// Scales a frequency as Llama 3.1 does (https://arxiv.org/abs/2407.21783): multiplies long
// wavelengths by `factor`, keeps short ones, and interpolates between them.
static double scaleLlama3(double frequency, const RopeScaling &scaling) {
  double wavelength = 2 * std::numbers::pi / frequency;
  double original = double(scaling.originalMaxPositionEmbeddings);
  if (wavelength < original / scaling.highFreqFactor)
    return frequency;
  if (wavelength > original / scaling.lowFreqFactor)
    return frequency / scaling.factor;
  double smooth = (original / wavelength - scaling.lowFreqFactor) /
                  (scaling.highFreqFactor - scaling.lowFreqFactor);
  return (1 - smooth) * frequency / scaling.factor + smooth * frequency;
}

// Scales frequencies as YaRN does (https://arxiv.org/abs/2309.00071): dimensions that complete many
// turns within the original context keep their frequency; the others are interpolated.
static void scaleYarn(std::vector<double> &frequencies, const ModelConfig &model,
                      double &attentionFactor) {
  const RopeScaling &scaling = model.ropeScaling;
  double dim = double(model.headDim), base = model.ropeTheta;
  auto correctionDim = [&](double rotations) {
    return dim *
           std::log(double(scaling.originalMaxPositionEmbeddings) /
                    (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(base));
  };
  double low = std::max(std::floor(correctionDim(scaling.betaFast)), 0.0);
  double high = std::min(std::ceil(correctionDim(scaling.betaSlow)), dim - 1);
  if (low == high)
    high += 0.001; // prevents a division by zero in the ramp below
  for (size_t i = 0; i < frequencies.size(); ++i) {
    double ramp = std::clamp((double(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] = frequencies[i] / scaling.factor * ramp + frequencies[i] * (1 - ramp);
  }
  attentionFactor = scaling.attentionFactor != 0.0 ? scaling.attentionFactor
                    : scaling.factor <= 1          ? 1.0
                                                   : 0.1 * std::log(scaling.factor) + 1.0;
}

std::vector<double> lmc::ropeFrequencies(const ModelConfig &model, int64_t sequenceLength,
                                         double &attentionFactor) {
  const RopeScaling &scaling = model.ropeScaling;
  attentionFactor = 1.0;
  double dim = double(model.headDim), base = model.ropeTheta;
  double trained =
      double(model.maxPositionEmbeddings ? model.maxPositionEmbeddings : sequenceLength);
  // Dynamic NTK scaling: uses a larger base for sequences above max_position_embeddings.
  if (scaling.type == RopeScalingType::Dynamic && double(sequenceLength) > trained)
    base *= std::pow(scaling.factor * double(sequenceLength) / trained - (scaling.factor - 1),
                     dim / (dim - 2));
  std::vector<double> frequencies(size_t(model.headDim / 2));
  for (size_t i = 0; i < frequencies.size(); ++i)
    frequencies[i] = std::pow(base, -2.0 * double(i) / dim);
  if (scaling.type == RopeScalingType::Linear)
    for (double &frequency : frequencies)
      frequency /= scaling.factor;
  else if (scaling.type == RopeScalingType::Llama3)
    for (double &frequency : frequencies)
      frequency = scaleLlama3(frequency, scaling);
  else if (scaling.type == RopeScalingType::Yarn)
    scaleYarn(frequencies, model, attentionFactor);
  return frequencies;
}

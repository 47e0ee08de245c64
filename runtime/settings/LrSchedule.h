// Computes the learning rate of each step: a linear warm-up, then a decay to min_lr.
#pragma once

#include "ground/settings/LrSettings.h"

namespace lmc {

// Returns the learning rate of optimizer step `step` (from 1). With R = begin (restart_step), s =
// step - R, W = warmup_iters, I = warmup_init, D = decay_iters and f = wsd_decay_fraction:
//
//   s <= W                I + (lr - I) * s / W       (all styles except piecewise)
//   constant              lr
//   inverse_sqrt          max(min_lr, lr * sqrt(max(W, 1) / s)) up to step D, then min_lr
//   s >= D                min_lr                     (all styles below except piecewise)
//   linear                min_lr + (lr - min_lr) * (1 - p),   p = (s - W) / (D - W)
//   cosine                min_lr + (lr - min_lr) * (1 + cos(pi p)) / 2
//   wsd                   lr up to step S = max(W, D - round(f D)), then
//                         min_lr + (lr - min_lr) * g(p),      p = (s - S) / (D - S)
//     wsd_decay_style       g: linear 1 - p, cosine (1 + cos(pi p)) / 2,
//                              exponential 2 * 2^-p - 1, minus_sqrt 1 - sqrt(p)
//   piecewise             linear between the nearest two points (step s, rate); the first or last
//                         rate outside of the points
//
// Steps up to R have the rate of step R + 1.
//
// Cosine is eq. 5 of SGDR (arXiv 1608.03983) with one cycle. Inverse_sqrt falls as in section 5.3
// of "Attention Is All You Need" (arXiv 1706.03762); as in Megatron-LM, lr is the rate at step W.
// Wsd (warm-up, stable, decay) is section 4.2 of MiniCPM (arXiv 2404.06395) with a linear decay.
// The other decays have Megatron-LM's names and formulas. Minus_sqrt is the 1-sqrt cooldown of
// Haegele et al. (arXiv 2405.18392).
double learningRate(const LrSettings &settings, int64_t step);

} // namespace lmc

// Computes the learning rate of each step: a linear warm-up, then a decay to min_lr.
#pragma once

#include "runtime/train/Settings.h"

namespace lmc {

// Returns the learning rate of optimizer step `step` (from 1), which depends on nothing else. Steps
// are counted from the begin of the schedule, behind settings.firstStep. With
// W = warmup_iters, D = decay_iters, f = wsd_decay_fraction:
//
//   step <= W             lr * step / W
//   constant              lr
//   step >= D             min_lr                     (all styles but constant)
//   linear                min_lr + (lr - min_lr) * (1 - p),   p = (step - W) / (D - W)
//   cosine                min_lr + (lr - min_lr) * (1 + cos(pi p)) / 2
//    wsd                   lr up to step S = max(W, D - round(f D)), then linear
//                          in p = (step - S) / (D - S)
//
// Cosine is eq. 5 of SGDR (arXiv 1608.03983) with one cycle. Wsd (warm-up, stable, decay) is from
// MiniCPM (arXiv 2404.06395), section 4.2, with a linear decay.
double learningRate(const LrSettings &settings, int64_t step);

} // namespace lmc

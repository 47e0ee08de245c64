#include "dialects/interfaces/Step.h"

#include "dialects/interfaces/Step.cpp.inc"

using namespace mlir;
using namespace lmc;

bool lmc::isBackward(Operation *op) {
  auto step = dyn_cast<StepOpInterface>(op);
  return step && step.getBackward();
}

void lmc::setStep(Operation *op, Operation *like) {
  auto step = dyn_cast<StepOpInterface>(op), source = dyn_cast<StepOpInterface>(like);
  if (!step || !source)
    return;
  step.setBackward(source.getBackward());
  step.setLayerIndex(source.getLayerIndex());
}

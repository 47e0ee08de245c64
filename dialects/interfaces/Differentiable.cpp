#include "dialects/interfaces/Differentiable.h"

#include "dialects/interfaces/Differentiable.cpp.inc"

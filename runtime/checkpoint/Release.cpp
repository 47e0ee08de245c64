#include "runtime/checkpoint/Release.h"

const lmc::Release lmc::kRelease{LMC_VERSION, LMC_COMMIT};

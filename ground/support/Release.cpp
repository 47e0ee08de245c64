#include "ground/support/Release.h"

const lmc::Release lmc::kRelease{LMC_VERSION, LMC_COMMIT, LMC_RELEASE};

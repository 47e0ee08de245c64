// dist-shard-state accepts one rank in this release.
// RUN: not lmc-opt %s --dist-shard-state=devices-per-node=8 2>&1 | FileCheck %s --check-prefix=EIGHT
// RUN: not lmc-opt %s --dist-shard-state="nodes=2 devices-per-node=8 hybrid=true" 2>&1 | FileCheck %s --check-prefix=SIXTEEN
// RUN: not lmc-opt %s --dist-shard-state=nodes=0 2>&1 | FileCheck %s --check-prefix=NONE
// RUN: not lmc-opt %s --dist-shard-state=devices-per-node=-1 2>&1 | FileCheck %s --check-prefix=NONE

// EIGHT: error: cannot divide state between 8 ranks: this release compiles for one rank; use --nodes=1 --devices-per-node=1
// SIXTEEN: error: cannot divide state between 16 ranks: this release compiles for one rank; use --nodes=1 --devices-per-node=1
// NONE: error: needs at least one node and one device per node
module {
}

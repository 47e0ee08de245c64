// What a phase did, as text for people: the .txt files of --dump-ir.
#pragma once

#include "compiler/phases/Phases.h"

namespace lmc {

// A sentence on the phase, then what the module holds: its state and functions, or, behind the
// buffers phase, the place of every buffer. `reports` is PhaseRunner::reports, of which the memory
// phase shows "recompute"; `fusions` is what the phase merged and refused to merge.
std::string phaseTable(Phase phase, mlir::ModuleOp module, const nlohmann::json &reports,
                       const FusionReport &fusions);

// Adds `fusions` to a report "fusion", {"formed": [...], "refused": [...]} (docs/explain.md).
void addNotes(const FusionReport &fusions, nlohmann::json &report);

} // namespace lmc

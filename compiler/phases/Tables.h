// Prints the result of a phase as text for people: the .txt files of --dump-ir.
#pragma once

#include "compiler/phases/Phases.h"

namespace lmc {

// Returns a sentence about the phase, then the contents of the module. `reports` is
// PhaseRunner::reports. `fusions` lists the pairs of ops that the phase merged or refused to merge.
std::string phaseTable(Phase phase, mlir::ModuleOp module, const nlohmann::json &reports,
                       const FusionReport &fusions);

// Adds `fusions` to a report "fusion": {"formed": [...], "refused": [...]} (docs/explain.md).
void addNotes(const FusionReport &fusions, nlohmann::json &report);

} // namespace lmc

// Grows the token trees of several requests in one go: passes of a drafter, and what to expand in
// between.
#pragma once

#include <utility>
#include <vector>

#include "program.h"
#include "ring_rows.h"
#include "team.h"
#include "tree.h"

namespace slipstream {

// A recorded program, and the buffer that holds its logits.
struct LogitsProgram {
  Program* program;
  int logits;
};

class Grower {
 public:
  // `first` reads rows of the target's features, `deeper` those of its own outputs; the logits
  // stand for the tokens `ids` [vocabulary].
  Grower(const KernelSet* kernels, LogitsProgram first, LogitsProgram deeper,
         std::vector<int32_t> ids)
      : kernels_(kernels), first_(first), deeper_(deeper), ids_(std::move(ids)) {}

  std::vector<GrownTree> grow(Team& team, const std::vector<Growth>& growths);

 private:
  // Runs a pass on the rows that are laid and ranks tokens for the children, at this depth, of the
  // nodes `expanded`, each of which has a row of logits.
  void rank(Team& team, const LogitsProgram& pass, const std::vector<Growth>& growths,
            const std::vector<Expanded>& expanded, int depth);

  const KernelSet* kernels_;
  LogitsProgram first_, deeper_;
  const std::vector<int32_t> ids_;

  RingRows rows_;
  int widest_ = 0;
  std::vector<int32_t> tokens_;  // [rows, widest] best first
  std::vector<float> logprobs_;
};

}  // namespace slipstream

// From token trees to the ragged rows of a step; see StepTrees and StepBatch in step_batch.py.
#pragma once

#include <cstdint>
#include <vector>

namespace slipstream {

// One request's tree, and what it stands on.
struct StepTree {
  const int32_t* tokens;   // [nodes]
  const int32_t* parents;  // [nodes]
  int nodes;
  int root;  // the last known token
  int committed;
  const int32_t* pages;
  int page_count;
  bool emits;
};

struct StepRows {
  int requests, page_table_width, tail_width;
  std::vector<int32_t> tokens, positions, slots, owners;  // of each row
  std::vector<uint8_t> follows;                           // of each row
  std::vector<int32_t> page_tables, tail_starts, tail_slots;
  std::vector<int32_t> logit_rows;
};

// The rows of all trees, end to end. Node i is stored in the request's slot `committed + i`.
StepRows lay_rows(const std::vector<StepTree>& trees);

}  // namespace slipstream

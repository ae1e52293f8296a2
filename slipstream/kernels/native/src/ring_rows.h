// The rows of a drafter's passes, whose keys and values are in a ring of pages for each request.
#pragma once

#include <vector>

#include "kernels.h"
#include "tree.h"

namespace slipstream {

// Positions from `start` on, a multiple of the block: block b of them is in page b mod `pages`.
struct Ring {
  int first_page;
  int pages;
  int start;
  int page(int block) const { return first_page + block % pages; }
  int slot(int position) const { return page(position / kBlock) * kBlock + position % kBlock; }
};

// One request: what its first level enters, where its tree grows, and how it draws.
struct Growth {
  Ring ring;
  int entered;             // first position without a key; those up to the root have a row each
  int root;                // position of the root
  const int32_t* tokens;   // [root - entered] of those rows
  const int32_t* sources;  // [root - entered] slots from which they gather
  TreeLimits limits;
  Sampling sampling;  // of the root's children
};

// A node that gets children: the request, and its index in the request's tree.
struct Expanded {
  int request;
  int node;
};

class RingRows {
 public:
  // A row for each position from `entered` to the root; logits of each request's last one.
  void lay_entries(const std::vector<Growth>& growths);

  // A row for each of the nodes `expanded`, which stand at this depth. They are stored as if they
  // were the positions from the root on, `widest` of them at each depth; sets their slots.
  void lay_level(const std::vector<Growth>& growths, std::vector<GrowingTree>& trees,
                 const std::vector<Expanded>& expanded, int depth, int widest);

  Step step() const;

 private:
  // Forgets all rows; the next ones stand on the positions before `committed`, one per request.
  void start(const std::vector<Growth>& growths, const std::vector<int>& committed, int tail_width);
  // A row, with a tail for the case that its path is the positions before it.
  void add(const Growth& growth, int request, int32_t token, int position, int slot, int source,
           bool follows);

  int page_table_width_ = 0, tail_width_ = 0;
  std::vector<int32_t> tokens_, positions_, slots_, angles_, sources_, requests_;
  std::vector<uint8_t> follows_;
  std::vector<int32_t> page_tables_, tail_starts_, tail_slots_, logit_rows_;
};

}  // namespace slipstream

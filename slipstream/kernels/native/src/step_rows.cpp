#include "step_rows.h"

#include <algorithm>

#include "kernels.h"

namespace slipstream {
namespace {

int tail_start(const StepTree& tree) { return tree.committed / kBlock * kBlock; }

// The slot of what is stored as number `place` of a request. Behind its pages any slot will do.
int slot_of(const StepTree& tree, int place) {
  const int page = place / kBlock < tree.page_count ? tree.pages[place / kBlock] : 0;
  return page * kBlock + place % kBlock;
}

// The rows of one tree, which begin at row `first`.
void lay_tree(const StepTree& tree, int request, int first, StepRows* rows) {
  const int start = tail_start(tree), width = rows->tail_width;
  for (int node = 0; node < tree.nodes; ++node) {
    const int row = first + node, parent = tree.parents[node];
    const bool known = node <= tree.root;
    rows->tokens[row] = tree.tokens[node];
    rows->owners[row] = request;
    rows->slots[row] = slot_of(tree, tree.committed + node);
    rows->follows[row] = node > 0 && parent == node - 1;
    rows->positions[row] = known ? tree.committed + node : rows->positions[first + parent] + 1;
    if (tree.emits && node >= tree.root) rows->logit_rows.push_back(row);
    // A known token's path is what is stored before it; a draft node's is its parent's and itself.
    int32_t* tail = rows->tail_slots.data() + size_t(row) * width;
    if (known && node == 0) {
      for (int column = 0; column < width; ++column) tail[column] = slot_of(tree, start + column);
    } else {
      std::copy_n(tail - size_t(known ? 1 : node - parent) * width, width, tail);
    }
    if (!known) tail[rows->positions[row] - start] = rows->slots[row];
  }
}

}  // namespace

StepRows lay_rows(const std::vector<StepTree>& trees) {
  StepRows rows{};
  rows.requests = int(trees.size());
  rows.page_table_width = 1;
  size_t count = 0;
  for (const StepTree& tree : trees) {
    count += tree.nodes;
    rows.page_table_width = std::max(rows.page_table_width, tail_start(tree) / kBlock);
    rows.tail_width = std::max(rows.tail_width, tree.committed + tree.nodes - tail_start(tree));
  }
  for (auto* values : {&rows.tokens, &rows.positions, &rows.slots, &rows.owners})
    values->resize(count);
  rows.follows.resize(count);
  rows.tail_slots.resize(count * rows.tail_width);
  rows.page_tables.resize(trees.size() * rows.page_table_width);
  int first = 0;
  for (int request = 0; request < rows.requests; ++request) {
    const StepTree& tree = trees[request];
    rows.tail_starts.push_back(tail_start(tree));
    std::copy_n(tree.pages, tail_start(tree) / kBlock,
                rows.page_tables.data() + size_t(request) * rows.page_table_width);
    lay_tree(tree, request, first, &rows);
    first += tree.nodes;
  }
  return rows;
}

}  // namespace slipstream

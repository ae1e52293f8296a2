#include "ring_rows.h"

#include <algorithm>

namespace slipstream {

void RingRows::lay_entries(const std::vector<Growth>& growths) {
  std::vector<int> committed;
  int tail_width = 1;
  for (const Growth& growth : growths) {
    committed.push_back(growth.entered);
    tail_width = std::max(tail_width, growth.entered % kBlock + growth.root - growth.entered);
  }
  start(growths, committed, tail_width);
  for (int request = 0; request < int(growths.size()); ++request) {
    const Growth& growth = growths[request];
    for (int position = growth.entered; position < growth.root; ++position) {
      const int row = position - growth.entered;
      add(growth, request, growth.tokens[row], position, growth.ring.slot(position),
          growth.sources[row], row > 0);
    }
    logit_rows_.push_back(int(tokens_.size()) - 1);
  }
}

void RingRows::lay_level(const std::vector<Growth>& growths, std::vector<GrowingTree>& trees,
                         const std::vector<Expanded>& expanded, int depth, int widest) {
  std::vector<int> committed;
  int tail_width = 1;
  for (const Growth& growth : growths) {
    committed.push_back(growth.root);
    tail_width = std::max(tail_width, growth.root % kBlock + depth);
  }
  start(growths, committed, tail_width);
  for (int row = 0, place = 0; row < int(expanded.size()); ++row) {
    const auto [request, index] = expanded[row];
    const Growth& growth = growths[request];
    GrowingTree& tree = trees[request];
    place = row > 0 && requests_.back() == request ? place + 1 : 0;
    GrowingTree::Node& node = tree[index];
    node.slot = growth.ring.slot(growth.root + (depth - 1) * widest + place);
    const bool top = node.parent == GrowingTree::kRoot;
    const int source = top ? growth.ring.slot(growth.root - 1) : tree[node.parent].slot;
    add(growth, request, node.token, growth.root - 1 + depth, node.slot, source, false);
    logit_rows_.push_back(row);
    // Of the tail, the part that is not committed is the node's path.
    int32_t* last = tail_slots_.data() + tail_slots_.size() - tail_width + growth.root % kBlock;
    for (int above = index, i = depth - 1; above != GrowingTree::kRoot; above = tree[above].parent)
      last[i--] = tree[above].slot;
  }
}

void RingRows::start(const std::vector<Growth>& growths, const std::vector<int>& committed,
                     int tail_width) {
  for (auto* rows : {&tokens_, &positions_, &slots_, &angles_, &sources_, &requests_, &tail_starts_,
                     &tail_slots_, &logit_rows_})
    rows->clear();
  follows_.clear();
  tail_width_ = tail_width;
  page_table_width_ = 1;
  for (size_t i = 0; i < growths.size(); ++i) {
    tail_starts_.push_back((committed[i] - growths[i].ring.start) / kBlock * kBlock);
    page_table_width_ = std::max(page_table_width_, tail_starts_.back() / kBlock);
  }
  page_tables_.assign(growths.size() * page_table_width_, 0);
  for (size_t i = 0; i < growths.size(); ++i)
    for (int block = 0; block < tail_starts_[i] / kBlock; ++block)
      page_tables_[i * page_table_width_ + block] =
          growths[i].ring.page(growths[i].ring.start / kBlock + block);
}

void RingRows::add(const Growth& growth, int request, int32_t token, int position, int slot,
                   int source, bool follows) {
  tokens_.push_back(token);
  positions_.push_back(position - growth.ring.start);
  slots_.push_back(slot);
  angles_.push_back(position);
  sources_.push_back(source);
  requests_.push_back(request);
  follows_.push_back(follows);
  const int tail = growth.ring.start + tail_starts_[request];
  for (int i = 0; i < tail_width_; ++i) tail_slots_.push_back(growth.ring.slot(tail + i));
}

Step RingRows::step() const {
  Step step{};
  step.rows = int(tokens_.size());
  step.requests = int(tail_starts_.size());
  step.page_table_width = page_table_width_;
  step.tail_width = tail_width_;
  step.logit_count = int(logit_rows_.size());
  step.tokens = tokens_.data();
  step.positions = positions_.data();
  step.slots = slots_.data();
  step.angles = angles_.data();
  step.sources = sources_.data();
  step.request_of = requests_.data();
  step.follows = follows_.data();
  step.page_tables = page_tables_.data();
  step.tail_starts = tail_starts_.data();
  step.tail_slots = tail_slots_.data();
  step.logit_rows = logit_rows_.data();
  return step;
}

}  // namespace slipstream

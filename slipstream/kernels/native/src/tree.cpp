#include "tree.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace slipstream {

void GrowingTree::propose(int parent, const int32_t* tokens, const float* logprobs) {
  const float score = parent == kRoot ? 0.0f : nodes_[parent].score;
  for (int i = 0; i < limits_.topk; ++i)
    if (logprobs[i] > -INFINITY) nodes_.push_back({tokens[i], parent, logprobs[i] + score, -1});
}

std::vector<int> GrowingTree::expand(int depth) {
  std::vector<int> level;
  if (depth >= limits_.levels || limits_.nodes <= 0) return level;
  level = ranked(level_, limits_.topk);
  level_ = int(nodes_.size());
  while (!level.empty() && nodes_[level.back()].score < limits_.least_score) level.pop_back();
  if (limits_.nodes >= level_) return level;
  std::vector<float> scores;
  for (const Node& node : nodes_) scores.push_back(node.score);
  const auto last = scores.begin() + limits_.nodes - 1;
  std::nth_element(scores.begin(), last, scores.end(), std::greater<float>());
  while (!level.empty() && nodes_[level.back()].score < *last) level.pop_back();
  return level;
}

GrownTree GrowingTree::best() const {
  GrownTree tree;
  std::vector<int> number(nodes_.size());
  for (const int node : ranked(0, limits_.nodes)) {
    const Node& kept = nodes_[node];
    tree.tokens.push_back(kept.token);
    tree.parents.push_back(kept.parent == kRoot ? 0 : number[kept.parent]);
    tree.scores.push_back(kept.score);
    number[node] = int(tree.tokens.size());
  }
  return tree;
}

std::vector<int> GrowingTree::ranked(int first, int count) const {
  std::vector<int> order(nodes_.size() - first);
  std::iota(order.begin(), order.end(), first);
  const int kept = std::clamp(count, 0, int(order.size()));
  const auto before = [&](int a, int b) {
    return nodes_[a].score > nodes_[b].score || (nodes_[a].score == nodes_[b].score && a < b);
  };
  std::partial_sort(order.begin(), order.begin() + kept, order.end(), before);
  order.resize(kept);
  return order;
}

}  // namespace slipstream

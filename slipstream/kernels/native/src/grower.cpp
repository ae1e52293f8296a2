#include "grower.h"

#include <algorithm>

namespace slipstream {

std::vector<GrownTree> Grower::grow(Team& team, const std::vector<Growth>& growths) {
  std::vector<GrowingTree> trees;
  std::vector<Expanded> expanded;
  widest_ = 0;
  for (const Growth& growth : growths) {
    expanded.push_back({int(trees.size()), GrowingTree::kRoot});
    trees.emplace_back(growth.limits);
    widest_ = std::max(widest_, growth.limits.topk);
  }
  rows_.lay_entries(growths);
  for (int depth = 1; !expanded.empty(); ++depth) {
    rank(team, depth == 1 ? first_ : deeper_, growths, expanded, depth);
    for (size_t i = 0; i < expanded.size(); ++i)
      trees[expanded[i].request].propose(expanded[i].node, tokens_.data() + i * widest_,
                                         logprobs_.data() + i * widest_);
    expanded.clear();
    for (int request = 0; request < int(trees.size()); ++request)
      for (const int node : trees[request].expand(depth)) expanded.push_back({request, node});
    rows_.lay_level(growths, trees, expanded, depth, widest_);
  }
  std::vector<GrownTree> grown;
  for (const GrowingTree& tree : trees) grown.push_back(tree.best());
  return grown;
}

void Grower::rank(Team& team, const LogitsProgram& pass, const std::vector<Growth>& growths,
                  const std::vector<Expanded>& expanded, int depth) {
  pass.program->run(team, rows_.step());
  const Rows logits = pass.program->rows(pass.logits);
  tokens_.resize(expanded.size() * widest_);
  logprobs_.resize(expanded.size() * widest_);
  team.run({int(expanded.size())}, [&](int, int row) {
    Sampling sampling = growths[expanded[row].request].sampling;
    sampling.position += depth - 1;
    kernels_->rank(logits.floats + size_t(row) * logits.width, int(ids_.size()), ids_.data(),
                   sampling, widest_, tokens_.data() + size_t(row) * widest_,
                   logprobs_.data() + size_t(row) * widest_);
  });
}

}  // namespace slipstream

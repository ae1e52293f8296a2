// One request's token tree while it grows (EAGLE-2: Li et al., 2024).
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace slipstream {

struct TreeLimits {
  int levels;
  int topk;                       // children of a node, and nodes expanded per level
  int nodes;                      // of the tree in the end, without the root
  float least_score = -INFINITY;  // of a path that goes on
};

// A parent stands before its children. parents[i] is 0 for the root, k for node k - 1; scores are
// the log probabilities of the paths.
struct GrownTree {
  std::vector<int32_t> tokens;
  std::vector<int32_t> parents;
  std::vector<float> scores;
};

// All nodes that were proposed, level after level. candidates.py does the same for several requests
// at a time; both break ties alike.
class GrowingTree {
 public:
  static constexpr int kRoot = -1;

  struct Node {
    int32_t token;
    int32_t parent;  // an index, or kRoot
    float score;     // log probability of the path
    int32_t slot;    // of its key and value, once it is expanded
  };

  explicit GrowingTree(const TreeLimits& limits) : limits_(limits) {}

  // Proposes the first topk of these tokens, best first, as children; -infinity is no token.
  void propose(int parent, const int32_t* tokens, const float* logprobs);

  // The best nodes of the level proposed last, at this depth, which get children next. A node that
  // is not among the best of all is left out, since no path is likelier than its beginning, and so
  // is one that is not likely enough.
  std::vector<int> expand(int depth);

  Node& operator[](int node) { return nodes_[node]; }
  GrownTree best() const;

 private:
  // The most probable nodes from `first` on, best first, ties to the one proposed first.
  std::vector<int> ranked(int first, int count) const;

  TreeLimits limits_;
  std::vector<Node> nodes_;
  int level_ = 0;  // first node of the level proposed last
};

}  // namespace slipstream

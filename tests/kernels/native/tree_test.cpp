// Growing one tree by hand.
#include "tree.h"

#include <limits>
#include <vector>

#include "check.h"
#include "tests.h"

namespace slipstream::test {
namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();
using Ints = std::vector<int>;

void propose(GrowingTree& tree, int parent, std::vector<int32_t> tokens,
             std::vector<float> scores) {
  tree.propose(parent, tokens.data(), scores.data());
}

void test_best_paths_are_kept() {
  GrowingTree tree({3, 2, 4});
  propose(tree, GrowingTree::kRoot, {5, 6, 7}, {-1, -2, -3});  // the third is beyond topk
  CHECK((tree.expand(1) == Ints{0, 1}));
  propose(tree, 0, {8, 9}, {-0.5f, -1});
  propose(tree, 1, {8, -1}, {-1, kNone});
  CHECK((tree.expand(2) == Ints{2, 3}));
  propose(tree, 2, {4, 3}, {-0.25f, -4});
  propose(tree, 3, {4, 3}, {-4, -4});
  CHECK(tree.expand(3).empty());
  const GrownTree grown = tree.best();
  CHECK((grown.tokens == std::vector<int32_t>{5, 8, 4, 6}));
  CHECK((grown.parents == std::vector<int32_t>{0, 1, 2, 0}));
  CHECK((grown.scores == std::vector<float>{-1, -1.5f, -1.75f, -2}));
}

void test_hopeless_nodes_are_left_out() {
  GrowingTree tree({5, 2, 1});
  propose(tree, GrowingTree::kRoot, {5, 6}, {-1, -2});
  CHECK((tree.expand(1) == Ints{0}));
  propose(tree, 0, {7, 8}, {-1, -2});
  CHECK(tree.expand(2).empty());
  CHECK(tree.expand(3).empty());
  CHECK((tree.best().tokens == std::vector<int32_t>{5}));
}

void test_unlikely_paths_end() {
  GrowingTree tree({3, 2, 8, -1.5f});
  propose(tree, GrowingTree::kRoot, {5, 6}, {-1, -2});
  CHECK((tree.expand(1) == Ints{0}));
  propose(tree, 0, {7, 8}, {-0.5f, -1});  // -1.5 is just likely enough
  CHECK((tree.expand(2) == Ints{2}));
  propose(tree, 2, {9, 4}, {-1, -2});
  CHECK((tree.best().tokens == std::vector<int32_t>{5, 7, 6, 8, 9, 4}));
}

void test_ties_go_to_the_first() {
  GrowingTree tree({2, 3, 2});
  propose(tree, GrowingTree::kRoot, {5, 6, 7}, {-1, -1, -1});
  CHECK((tree.expand(1) == Ints{0, 1, 2}));
  CHECK((tree.best().tokens == std::vector<int32_t>{5, 6}));
}

void test_nothing_to_grow() {
  GrowingTree tree({4, 2, 0}), empty({4, 2, 8});
  propose(tree, GrowingTree::kRoot, {5, 6}, {-1, -2});
  propose(empty, GrowingTree::kRoot, {-1, -1}, {kNone, kNone});
  for (GrowingTree* each : {&tree, &empty}) {
    CHECK(each->expand(1).empty());
    CHECK(each->best().tokens.empty());
  }
}

}  // namespace

void test_tree() {
  test_best_paths_are_kept();
  test_hopeless_nodes_are_left_out();
  test_unlikely_paths_end();
  test_ties_go_to_the_first();
  test_nothing_to_grow();
}

}  // namespace slipstream::test

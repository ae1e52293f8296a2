// Attention against a float64 reference, and the row contract bit for bit: however the rows of a
// context are cut into steps, trees, tiles and slots, each has the same bits.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "attention_world.h"
#include "check.h"
#include "kernels.h"
#include "tests.h"

namespace slipstream::test {
namespace {

constexpr double kUnit = 0x1p-24;  // largest relative error of rounding to a float

void check_same(const Row& actual, const Row& expected) {
  CHECK_EQUAL(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) CHECK(std::isfinite(actual[i]));
  CHECK(std::memcmp(actual.data(), expected.data(), actual.size() * sizeof(float)) == 0);
}

// One head of queries or keys in float64, normalised and rotated; `norm` may be null.
std::vector<double> rotated(const World& world, const float* x, int position, const float* norm) {
  const int head_dim = world.shape.head_dim, half = head_dim / 2;
  std::vector<double> values(x, x + head_dim), result(head_dim);
  double squares = 0;
  for (double value : values) squares += value * value / head_dim;
  if (norm)
    for (int i = 0; i < head_dim; ++i) values[i] *= norm[i] / std::sqrt(squares + kEps);
  for (int i = 0; i < half; ++i) {
    const double cosine = world.cosines[position * half + i];
    const double sine = world.sines[position * half + i];
    result[i] = values[i] * cosine - values[i + half] * sine;
    result[i + half] = values[i + half] * cosine + values[i] * sine;
  }
  return result;
}

double largest_of(const std::vector<double>& values) {
  double largest = 0;
  for (double value : values) largest = std::max(largest, std::fabs(value));
  return largest;
}

// Norm and rotation err by less than 64 units of the largest magnitude; storing by half a bfloat16
// step of the value, or half a step of 1 / 127 of the largest.
void check_stored(const World& world, int slot, int head, bool value,
                  const std::vector<double>& exact) {
  double scale = -1;
  const std::vector<double> stored = world.stored(slot, head, value, &scale);
  const double largest = largest_of(exact);
  const bool bytes = world.shape.type == KVType::kInt8;
  const double error = (value ? 1 : 64) * kUnit * largest;
  if (bytes) CHECK_CLOSE(scale, largest / 127, error / 127 + kUnit * scale);
  for (size_t i = 0; i < exact.size(); ++i) {
    const double step = bytes ? scale * (0.5 + 256 * kUnit) : std::fabs(exact[i]) * 0x1p-8;
    CHECK_CLOSE(stored[i], exact[i], step + 2 * error);
  }
}

void test_storing(World& world) {
  const Shape& shape = world.shape;
  const int count = 48;
  const Numbers storage = slots_of(3, 2, count);
  world.chunk(storage, 0, count);
  for (int row = 0; row < count; row += row < count - 3 ? 9 : 1) {
    const std::vector<float> given = world.qkv_of(row);
    const float* rotated_row = world.qkv.data() + row * shape.width();
    for (int head = 0; head < shape.heads + 2 * shape.kv_heads; ++head) {
      const float* x = given.data() + head * shape.head_dim;
      const int kv_head = head - shape.heads;
      if (kv_head >= shape.kv_heads) {
        const std::vector<double> exact(x, x + shape.head_dim);
        check_stored(world, storage[row], kv_head - shape.kv_heads, true, exact);
      } else if (kv_head >= 0) {
        const std::vector<double> exact = rotated(world, x, row, world.key_norm());
        check_stored(world, storage[row], kv_head, false, exact);
      } else {
        const std::vector<double> exact = rotated(world, x, row, world.query_norm());
        const double scale = 1 / std::sqrt(double(shape.head_dim));
        for (int i = 0; i < shape.head_dim; ++i)
          CHECK_CLOSE(rotated_row[head * shape.head_dim + i], exact[i] * scale,
                      66 * kUnit * largest_of(exact) * scale);
      }
    }
  }
}

// One head of one row in float64, from its query and the keys and values as stored.
//
// A score errs by (head_dim + 3) units of the sum of its products' magnitudes, and what is taken
// from it before exp by as much as 2 units of the largest; a sum over n positions by n units, and
// each block's correction by 10. Weights may err by all of that in both directions.
void check_attention(const World& world, const float* query, const Numbers& slots, int head,
                     const float* actual) {
  const int head_dim = world.shape.head_dim;
  const int kv_head = head / (world.shape.heads / world.shape.kv_heads);
  std::vector<double> scores, sums(head_dim), magnitudes(head_dim);
  double largest = -INFINITY, products = 0, total = 0;
  for (int slot : slots) {
    const std::vector<double> key = world.stored(slot, kv_head, false);
    double score = 0, magnitude = 0;
    for (int i = 0; i < head_dim; ++i) {
      score += query[i] * key[i];
      magnitude += std::fabs(query[i] * key[i]);
    }
    scores.push_back(score);
    largest = std::max(largest, score);
    products = std::max(products, magnitude);
  }
  for (size_t p = 0; p < slots.size(); ++p) {
    const double weight = std::exp(scores[p] - largest);
    const std::vector<double> value = world.stored(slots[p], kv_head, true);
    total += weight;
    for (int i = 0; i < head_dim; ++i) {
      sums[i] += weight * value[i];
      magnitudes[i] += weight * std::fabs(value[i]);
    }
  }
  const double n = double(slots.size());
  const double error = ((head_dim + 5) * products + n + 10 * (n / kBlock + 1) + 20) * kUnit;
  for (int i = 0; i < head_dim; ++i)
    CHECK_CLOSE(actual[i], sums[i] / total, 2 * error * magnitudes[i] / total);
}

void test_against_float64(World& world) {
  const Shape& shape = world.shape;
  const Numbers storage = slots_of(2, 1, shape.context);
  const std::vector<Row> rows = world.chunk(storage, 0, shape.context);
  for (int row = 0; row < shape.context; row += row < 40 ? 1 : 37) {
    const Context context("row ", row);
    const Numbers slots(storage.begin(), storage.begin() + row + 1);
    for (int head = 0; head < shape.heads; ++head)
      check_attention(world, world.qkv.data() + row * shape.width() + head * shape.head_dim, slots,
                      head, rows[row].data() + head * shape.head_dim);
  }
}

// Chunks read what came before from pages; the whole context reads its tail.
void test_chunks(World& world, const std::vector<Row>& whole) {
  const int count = world.shape.context;
  for (int split : {1, 31, 32, 33, 255, 256, 257, count - 1}) {
    if (split >= count) continue;
    const Context context("split at ", split);
    const Numbers storage = slots_of(63, -1, count);
    const std::vector<Row> before = world.chunk(storage, 0, split);
    const std::vector<Row> after = world.chunk(storage, split, count);
    for (int row : {0, split / 2, split - 1}) check_same(before[row], whole[row]);
    for (int row : {split, (split + count) / 2, count - 1})
      check_same(after[row - split], whole[row]);
  }
}

void test_tiles(World& world, const std::vector<Row>& whole) {
  const int count = std::min(world.shape.context, 70);
  for (int tile_rows : {1, 2, 3, 7, kTileRows}) {
    const Context context("tiles of ", tile_rows);
    const std::vector<Row> rows = world.chunk(slots_of(30, 1, count), 0, count, tile_rows);
    for (int row = 0; row < count; ++row) check_same(rows[row], whole[row]);
  }
}

// The tail of a chain in slots without any order.
void test_scattered(World& world, const std::vector<Row>& whole) {
  const int count = world.shape.context;
  Numbers storage = slots_of(10, 2, count);
  for (int committed : {0, 32, count / 2}) {
    const Context context("committed ", committed);
    if (committed > 0) world.chunk(storage, 0, committed);
    std::shuffle(storage.begin() + committed, storage.end(), std::mt19937(committed));
    const std::vector<Row> rows = world.chunk(storage, committed, count);
    for (int row = committed; row < count; ++row) check_same(rows[row - committed], whole[row]);
    storage = slots_of(10, 2, count);
  }
}

// The true continuation of a context as one path of a tree, beside two false children of each node.
struct Grafted {
  Numbers tree, parents, path;

  explicit Grafted(int committed) : tree{committed}, parents{-1}, path{0} {
    for (int token = committed + 1; token < committed + 14; ++token) {
      const int parent = path.back();
      const bool followed = token % 3 == 0;
      const int other = token == committed + 5 ? kBroken : 4000 + token;
      path.push_back(int(tree.size()) + !followed);
      tree.insert(tree.end(), {followed ? token : other, followed ? other : token, 3000 + token});
      parents.insert(parents.end(), 3, parent);
    }
  }
};

void test_trees(World& world, const std::vector<Row>& whole) {
  for (int committed : {0, 1, 20, 31, 32, 50, 250, 256}) {
    if (committed + 14 > world.shape.context) continue;
    const Grafted grafted(committed);
    const Numbers storage = slots_of(5, 3, committed + int(grafted.tree.size()));
    if (committed > 0) world.chunk(storage, 0, committed);
    Batch batch;
    batch.add(storage, committed, grafted.tree, grafted.parents);
    for (int tile_rows : {1, 4, kTileRows}) {
      const Context context("committed ", committed, ", tiles of ", tile_rows);
      const std::vector<Row> rows = world.run(batch, tile_rows);
      for (size_t i = 0; i < grafted.path.size(); ++i)
        check_same(rows[grafted.path[i]], whole[committed + i]);
    }
  }
}

// A row of one request among those of others, before and behind it.
void test_neighbours(World& world, const std::vector<Row>& whole) {
  const int last = world.shape.context - 1;
  const Numbers storage = slots_of(20, 1, last + 1);
  world.chunk(storage, 0, last);
  for (int others : {0, 1, 15, 40}) {
    const Context context(others, " others");
    Batch batch;
    for (int i = 0; i < others / 2; ++i)
      batch.add(slots_of(42 + i, 1, 9), 0, range(500, 509), chain(9));
    const size_t row = batch.tokens.size();
    batch.add(storage, last, {last}, {-1});
    for (int i = others / 2; i < others; ++i) batch.add(slots_of(1, 0, 9), 0, {600}, {-1});
    check_same(world.run(batch)[row], whole[last]);
  }
}

// What later rows hold changes nothing, not even when it is not finite.
void test_broken_rows(World& world, const std::vector<Row>& whole) {
  Numbers tokens = range(0, 12);
  tokens.insert(tokens.end(), 4, kBroken);
  Batch batch;
  batch.add(slots_of(7, 1, 16), 0, tokens, chain(16));
  const std::vector<Row> rows = world.run(batch);
  for (int row = 0; row < 12; ++row) check_same(rows[row], whole[row]);
  // Slots are finite nevertheless.
  for (int slot : slots_of(7, 1, 16))
    for (bool value : {false, true})
      for (double element : world.stored(slot, 0, value)) CHECK(std::isfinite(element));
}

void test_zeros(World& world) {
  Batch batch;
  batch.add(slots_of(8, 1, 3), 0, {kZero, kZero, 5}, chain(3));
  const std::vector<Row> rows = world.run(batch);
  for (float value : rows[1]) CHECK_EQUAL(value, 0.0f);
  for (float value : rows[2]) CHECK(std::isfinite(value));
  double scale = 0;
  for (double value : world.stored(8 * kBlock, 0, true, &scale)) CHECK_EQUAL(value, 0.0);
  CHECK_EQUAL(scale, 0.0);
}

// Moves in a chain, across pages, and none.
void test_moves(World& world, const KernelSet& kernels) {
  const Numbers storage = slots_of(12, 1, 60);
  world.chunk(storage, 0, 60);
  const Numbers sources = {storage[5], storage[6], storage[7], storage[40], storage[4]};
  const Numbers targets = {storage[4], storage[5], storage[6], storage[8], storage[41]};
  const auto read = [&](int slot) {
    std::vector<std::vector<double>> all;
    for (int head = 0; head < world.shape.kv_heads; ++head)
      for (bool value : {false, true}) all.push_back(world.stored(slot, head, value));
    return all;
  };
  std::vector<std::vector<std::vector<double>>> expected;
  for (int slot : storage) {
    const auto moved = std::find(targets.begin(), targets.end(), slot) - targets.begin();
    expected.push_back(read(moved < int(targets.size()) ? sources[moved] : slot));
  }
  kernels.move_slots(world.cache, 1, sources.data(), targets.data(), int(sources.size()));
  kernels.move_slots(world.cache, 1, sources.data(), targets.data(), 0);
  for (size_t i = 0; i < storage.size(); ++i) CHECK(read(storage[i]) == expected[i]);
}

}  // namespace

void test_attention(const KernelSet& kernels) {
  for (KVType type : {KVType::kBfloat16, KVType::kInt8}) {
    for (const Shape& shape :
         {Shape{3, 1, 64, type, false, 270}, Shape{4, 2, 16, type, true, 530},
          Shape{11, 1, 80, type, false, 90}, Shape{2, 2, 256, type, true, 70}}) {
      const Context context(shape.heads, " heads of ", shape.head_dim, ", ",
                            type == KVType::kInt8 ? "int8" : "bfloat16");
      World world(kernels, shape);
      test_storing(world);
      test_against_float64(world);
      const std::vector<Row> whole = world.chunk(slots_of(0, 1, shape.context), 0, shape.context);
      test_chunks(world, whole);
      test_tiles(world, whole);
      test_scattered(world, whole);
      test_trees(world, whole);
      test_neighbours(world, whole);
      test_broken_rows(world, whole);
      test_zeros(world);
      test_moves(world, kernels);
    }
  }
}

}  // namespace slipstream::test

// A cache and the steps that tests of attention compute over it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <vector>

#include "check.h"
#include "kernels.h"

namespace slipstream::test {

using Numbers = std::vector<int32_t>;
using Row = std::vector<float>;

constexpr int kPages = 64;
constexpr float kEps = 1e-5f;
constexpr float kUnwritten = -12345;
constexpr int kZero = 10000;    // the token whose queries, keys and values are all zero
constexpr int kBroken = 10001;  // and the one for which they are NaN and infinity

struct Shape {
  int heads;
  int kv_heads;
  int head_dim;
  KVType type;
  bool norms;
  int context;

  int width() const { return (heads + 2 * kv_heads) * head_dim; }
};

inline std::vector<float> random_floats(int count, int seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(generator);
  return values;
}

inline Numbers range(int first, int last) {
  Numbers numbers(last - first);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

// Parents of a chain, the first node of which follows the committed context.
inline Numbers chain(int count) { return range(-1, count - 1); }

// Slots of storage numbers 0, 1, ... in pages first, first + step, ...
inline Numbers slots_of(int first, int step, int count) {
  Numbers slots(count);
  for (int i = 0; i < count; ++i) slots[i] = (first + i / kBlock * step) * kBlock + i % kBlock;
  return slots;
}

// The rows of one step.
struct Batch {
  Numbers tokens, positions, slots, requests, tail_starts;
  std::vector<uint8_t> follows;
  std::vector<Numbers> pages, tails;

  // Node i of the tree is stored in slot storage[committed + i].
  void add(const Numbers& storage, int committed, const Numbers& tree, const Numbers& parents) {
    const int root = int(tokens.size());
    const int tail_start = committed / kBlock * kBlock;
    Numbers own_pages;
    for (int i = 0; i < tail_start; i += kBlock) own_pages.push_back(storage[i] / kBlock);
    for (size_t node = 0; node < tree.size(); ++node) {
      const bool first = parents[node] < 0;
      const int parent = root + parents[node];
      Numbers tail(storage.begin() + tail_start, storage.begin() + committed);
      if (!first) tail = tails[parent];
      tail.push_back(storage[committed + node]);
      tokens.push_back(tree[node]);
      positions.push_back(first ? committed : positions[parent] + 1);
      slots.push_back(tail.back());
      requests.push_back(int(pages.size()));
      follows.push_back(!first && parents[node] + 1 == int(node));
      tails.push_back(tail);
    }
    pages.push_back(own_pages);
    tail_starts.push_back(tail_start);
  }
};

// A matrix of rows of unequal length, padded with zeros.
inline Numbers padded(const std::vector<Numbers>& rows, size_t width) {
  Numbers flat;
  for (Numbers row : rows) {
    row.resize(width);
    flat.insert(flat.end(), row.begin(), row.end());
  }
  return flat;
}

inline size_t widest(const std::vector<Numbers>& rows) {
  size_t width = 1;
  for (const Numbers& row : rows) width = std::max(width, row.size());
  return width;
}

// A cache of two layers, of which the second is used. Slots that were never written hold NaN.
class World {
 public:
  World(const KernelSet& kernels, const Shape& shape)
      : shape(shape),
        kernels_(kernels),
        query_norm_(random_floats(shape.head_dim, 1)),
        key_norm_(random_floats(shape.head_dim, 2)) {
    cache = {shape.type, 2, kPages, shape.kv_heads, shape.head_dim, nullptr};
    data_.assign(2 * kPages * shape.kv_heads * cache.block_bytes(), 0xff);
    cache.data = data_.data();
    for (int i = 0; i < 2000 * shape.head_dim / 2; ++i) {
      const double angle = (i / (shape.head_dim / 2)) / (1.0 + i % (shape.head_dim / 2));
      cosines.push_back(float(std::cos(angle)));
      sines.push_back(float(std::sin(angle)));
    }
  }

  // Queries, keys and values of a token, which depend on its number only.
  const std::vector<float>& qkv_of(int token) {
    std::vector<float>& values = qkv_of_[token];
    if (!values.empty()) return values;
    values = random_floats(shape.width(), token + 10);
    if (token == kZero) std::fill(values.begin(), values.end(), 0.0f);
    if (token == kBroken)
      for (size_t i = 0; i < values.size(); ++i) values[i] = i % 3 ? NAN : INFINITY;
    return values;
  }

  // What all rows give, each [heads * head_dim]; `qkv` then holds their rotated queries.
  std::vector<Row> run(const Batch& batch, int tile_rows = kTileRows) {
    const Numbers page_tables = padded(batch.pages, widest(batch.pages));
    const Numbers tails = padded(batch.tails, widest(batch.tails));
    const Step step = step_of(batch, page_tables, tails);
    qkv.clear();
    for (int token : batch.tokens) {
      const std::vector<float>& values = qkv_of(token);
      qkv.insert(qkv.end(), values.begin(), values.end());
    }
    const int last = *std::max_element(batch.positions.begin(), batch.positions.end());
    const int segments = last / kSegment + 1;
    partials.assign(size_t(step.rows) * shape.heads * segments * (shape.head_dim + 2), kUnwritten);
    const int width = shape.heads * shape.head_dim;
    Attention attention = attention_of(segments);
    attention.out.width = (width + kGroup - 1) / kGroup * kGroup;
    std::vector<float> out(step.rows * attention.out.width);
    attention.out.floats = out.data();
    compute(attention, step, tile_rows);
    std::vector<Row> results;
    for (int row = 0; row < step.rows; ++row) {
      const float* values = out.data() + row * attention.out.width;
      results.emplace_back(values, values + width);
    }
    return results;
  }

  std::vector<Row> chunk(const Numbers& storage, int first, int last, int tile_rows = kTileRows) {
    Batch batch;
    batch.add(storage, first, range(first, last), chain(last - first));
    return run(batch, tile_rows);
  }

  // A slot's keys or values as they are read back; the scale in `scale` if there is one.
  std::vector<double> stored(int slot, int head, bool value, double* scale = nullptr) const {
    const uint8_t* block = cache.block(1, slot / kBlock, head);
    const int lane = slot % kBlock, head_dim = shape.head_dim;
    std::vector<double> result;
    for (int i = 0; i < head_dim; ++i) {
      const int place = value ? kBlock * head_dim + lane * head_dim + i : i * kBlock + lane;
      if (shape.type == KVType::kInt8) {
        float step;
        const uint8_t* scales = block + 2 * kBlock * head_dim;
        std::memcpy(&step, scales + 4 * (value * kBlock + lane), 4);
        if (scale) *scale = step;
        result.push_back(double(step) * int8_t(block[place]));
      } else {
        const uint32_t bits = uint32_t(block[2 * place] | block[2 * place + 1] << 8) << 16;
        float element;
        std::memcpy(&element, &bits, 4);
        result.push_back(element);
      }
    }
    return result;
  }

  const float* query_norm() const { return shape.norms ? query_norm_.data() : nullptr; }
  const float* key_norm() const { return shape.norms ? key_norm_.data() : nullptr; }

  Shape shape;
  Cache cache;
  std::vector<float> qkv, partials, cosines, sines;

 private:
  static Step step_of(const Batch& batch, const Numbers& page_tables, const Numbers& tails) {
    Step step = {};
    step.rows = int(batch.tokens.size());
    step.requests = int(batch.pages.size());
    step.page_table_width = int(widest(batch.pages));
    step.tail_width = int(widest(batch.tails));
    step.tokens = batch.tokens.data();
    step.positions = batch.positions.data();
    step.slots = batch.slots.data();
    step.angles = batch.positions.data();
    step.request_of = batch.requests.data();
    step.follows = batch.follows.data();
    step.page_tables = page_tables.data();
    step.tail_starts = batch.tail_starts.data();
    step.tail_slots = tails.data();
    return step;
  }

  Attention attention_of(int segments) {
    Attention attention = {};
    attention.heads = shape.heads;
    attention.layer = 1;
    attention.cache = cache;
    attention.query_norm = query_norm();
    attention.key_norm = key_norm();
    attention.eps = kEps;
    attention.cosines = cosines.data();
    attention.sines = sines.data();
    attention.qkv = qkv.data();
    attention.qkv_stride = shape.width();
    attention.partials = partials.data();
    attention.segments = segments;
    attention.out.form = Form::kFloat32;
    return attention;
  }

  void compute(const Attention& attention, const Step& step, int tile_rows) {
    for (int row = 0; row < step.rows; ++row) kernels_.store_keys(attention, step, row);
    for (Tile tile = {0, 0}; tile.first < step.rows; tile.first = tile.last + 1) {
      tile.last = tile.first;
      while (tile.last + 1 < step.rows && tile.last + 1 - tile.first < tile_rows &&
             step.request_of[tile.last + 1] == step.request_of[tile.first])
        ++tile.last;
      for (int head = 0; head < shape.kv_heads; ++head)
        for (int segment = attention.segments; segment-- > 0;)
          kernels_.attend(attention, step, tile, head, segment);
    }
    check_untouched(attention, step);
    for (int row = 0; row < step.rows; ++row) kernels_.merge(attention, step, row);
  }

  // Segments after a row's own position are not written; all others are.
  void check_untouched(const Attention& attention, const Step& step) const {
    const float* partial = partials.data();
    for (int row = 0; row < step.rows; ++row)
      for (int head = 0; head < shape.heads; ++head)
        for (int segment = 0; segment < attention.segments; ++segment)
          for (int i = 0; i < shape.head_dim + 2; ++i)
            CHECK_EQUAL(*partial++ != kUnwritten, segment * kSegment <= step.positions[row]);
  }

  const KernelSet& kernels_;
  std::vector<uint8_t> data_;
  std::vector<float> query_norm_, key_norm_;
  std::map<int, std::vector<float>> qkv_of_;
};

}  // namespace slipstream::test

// Attention: one routine for prompts, decodes and token trees alike.
//
// A context is treated in blocks of kBlock logical positions, in order, with an online softmax per
// row and head (Milakov & Gimelshein, 2018). Every sum runs in one order: a score over head_dim, a
// weighted value over the positions of its block. What surrounds a row only decides from where a
// block is read: its page, a copy gathered slot by slot, or either as floats. All are exact.
#pragma once

#include "kernels.h"
#include "kv_cache.h"
#include "rows.h"
#include "vector.h"

namespace slipstream {
namespace {

// Pairs of a row and a head that share what is loaded of a block; more would leave the registers.
constexpr int kQueries = 4;

// Vectors of positions, or of dimensions, that fit beside them.
constexpr int kSpan = kRegisterLanes == 16 ? 2 : 1;

// From so many queries on a block is worth writing out as floats first.
constexpr int kExpandQueries = 8;

constexpr float kMinusInfinity = -__builtin_inff();

// One head of one row, and what has been summed of its context so far.
struct Query {
  const float* vector;  // [head_dim], rotated and scaled
  float* sums;          // [head_dim + 2]: weighted values, maximum, sum of weights
  int last;             // place of the row's own position in this block, or beyond
};

// f(0), f(1), ...: written out, so that the arrays which f indexes are registers.
template <int kTimes, typename Function>
inline void repeat(Function f) {
#pragma GCC unroll 8
  for (int i = 0; i < kTimes; ++i) f(i);
}

template <int kCount, typename Element>
inline void score(const Block<Element>& block, int head_dim, const Query* queries,
                  float (*scores)[kBlock]) {
  for (int lane = 0; lane < kBlock; lane += kSpan * kLanes) {
    Floats sums[kCount][kSpan];
    repeat<kCount>([&](int q) { repeat<kSpan>([&](int s) { sums[q][s] = splat(0.0f); }); });
    for (int i = 0; i < head_dim; ++i) {
      Floats keys[kSpan];
      const Element* from = block.keys + i * kBlock + lane;
      repeat<kSpan>([&](int s) { keys[s] = load_elements(from + s * kLanes); });
      repeat<kCount>([&](int q) {
        const Floats query = splat(queries[q].vector[i]);
        repeat<kSpan>([&](int s) { sums[q][s] = fma(query, keys[s], sums[q][s]); });
      });
    }
    repeat<kCount>([&](int q) {
      repeat<kSpan>([&](int s) { store(scores[q] + lane + s * kLanes, sums[q][s]); });
    });
  }
}

// Turns one query's scores into weights and returns their sum. `change` is the maximum so far less
// the new one.
[[gnu::flatten]] inline float weigh(float* scores, const float* key_scales,
                                    const float* value_scales, const Query& query, int head_dim,
                                    float* change) {
  alignas(64) static constexpr float kPlaces[kLanes] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                        8, 9, 10, 11, 12, 13, 14, 15};
  Floats parts[2];
  for (int s = 0; s < 2; ++s) {
    parts[s] = load(scores + s * kLanes);
    if (key_scales) parts[s] = parts[s] * load(key_scales + s * kLanes);
    Ints later = less(splat(float(query.last - s * kLanes)), load(kPlaces));
    parts[s] = select(later, splat(kMinusInfinity), parts[s]);
  }
  float& largest = query.sums[head_dim];
  const float before = largest;
  const float here = max_lanes(maximum(parts[0], parts[1]));
  largest = before < here ? here : before;
  *change = before - largest;
  for (Floats& part : parts) part = exponential(part - splat(largest));
  const float sum = sum_lanes(parts[0] + parts[1]);
  for (int s = 0; s < 2; ++s) {
    if (value_scales) parts[s] = parts[s] * load(value_scales + s * kLanes);
    store(scores + s * kLanes, parts[s]);
  }
  return sum;
}

// Adds the weighted values of `positions` positions, for kSpans * kLanes dimensions.
template <int kCount, int kSpans, typename Element>
inline void add_values(const Element* values, int head_dim, int positions, int dimension,
                       const Query* queries, const float (*weights)[kBlock],
                       const float* corrections) {
  Floats sums[kCount][kSpans];
  repeat<kCount>([&](int q) {
    const Floats correction = splat(corrections[q]);
    const float* from = queries[q].sums + dimension;
    repeat<kSpans>([&](int s) { sums[q][s] = load(from + s * kLanes) * correction; });
  });
  for (int p = 0; p < positions; ++p) {
    Floats value[kSpans];
    const Element* from = values + p * head_dim + dimension;
    repeat<kSpans>([&](int s) { value[s] = load_elements(from + s * kLanes); });
    repeat<kCount>([&](int q) {
      const Floats weight = splat(weights[q][p]);
      repeat<kSpans>([&](int s) { sums[q][s] = fma(weight, value[s], sums[q][s]); });
    });
  }
  // Positions after a row's own have weight 0 and can change nothing but the sign of a zero; adding
  // zero makes all zeros positive.
  repeat<kCount>([&](int q) {
    float* to = queries[q].sums + dimension;
    repeat<kSpans>([&](int s) { store(to + s * kLanes, sums[q][s] + splat(0.0f)); });
  });
}

template <int kCount, typename Element>
[[gnu::flatten]] void attend_queries(const Block<Element>& block, int head_dim,
                                     const Query* queries) {
  alignas(64) float scores[kCount][kBlock];
  float corrections[kLanes] = {}, sums[kCount];
  score<kCount>(block, head_dim, queries, scores);
  int positions = 0;
  for (int q = 0; q < kCount; ++q) {
    sums[q] = weigh(scores[q], block.key_scales, block.value_scales, queries[q], head_dim,
                    corrections + q);
    positions = queries[q].last < positions ? positions : queries[q].last + 1;
  }
  if (positions > kBlock) positions = kBlock;
  store(corrections, exponential(load(corrections)));
  for (int q = 0; q < kCount; ++q) {
    float& sum = queries[q].sums[head_dim + 1];
    sum = sum * corrections[q] + sums[q];
  }
  int dimension = 0;
  for (; dimension + kSpan * kLanes <= head_dim; dimension += kSpan * kLanes)
    add_values<kCount, kSpan>(block.values, head_dim, positions, dimension, queries, scores,
                              corrections);
  for (; dimension < head_dim; dimension += kLanes)
    add_values<kCount, 1>(block.values, head_dim, positions, dimension, queries, scores,
                          corrections);
}

// ---- One block and many rows

// Rows [first, last], each at or after the block's first position, and the heads of one key head.
struct Group {
  const Attention& attention;
  const Step& step;
  int kv_head;
  int segment;

  int share() const { return attention.heads / attention.cache.kv_heads; }
  float* sums(int row, int head) const {
    size_t place = (size_t(row) * attention.heads + head) * attention.segments + segment;
    return attention.partials + place * (attention.cache.head_dim + 2);
  }
  Query query(int row, int of_share, int start) const {
    const int head = kv_head * share() + of_share;
    const float* qkv = attention.qkv + size_t(row) * attention.qkv_stride;
    return {qkv + head * attention.cache.head_dim, sums(row, head), step.positions[row] - start};
  }
  const uint8_t* page(int number) const {
    return attention.cache.block(attention.layer, number, kv_head);
  }
  // Asks for the block that holds a row's `position`, if there is one.
  void prefetch(int row, int position) const {
    if (position > step.positions[row] || position >= (segment + 1) * kSegment) return;
    const int request = step.request_of[row];
    const int in_tail = position - step.tail_starts[request];
    const uint8_t* block =
        in_tail < 0
            ? page(step.page_tables[size_t(request) * step.page_table_width + position / kBlock])
            : page(step.tail_slots[size_t(row) * step.tail_width + in_tail] / kBlock);
    for (size_t i = 0; i < attention.cache.block_bytes(); i += 64) __builtin_prefetch(block + i);
  }
};

template <typename Element>
void attend_rows(const Group& group, const Block<Element>& block, int start, int first, int last) {
  const int head_dim = group.attention.cache.head_dim, share = group.share();
  Query queries[kQueries];
  int count = 0;
  for (int row = first; row <= last; ++row) {
    for (int of_share = 0; of_share < share; ++of_share) {
      queries[count++] = group.query(row, of_share, start);
      const bool end = row == last && of_share == share - 1;
      if (count < kQueries && !end) continue;
      if (count == 4) attend_queries<4>(block, head_dim, queries);
      if (count == 3) attend_queries<3>(block, head_dim, queries);
      if (count == 2) attend_queries<2>(block, head_dim, queries);
      if (count == 1) attend_queries<1>(block, head_dim, queries);
      count = 0;
    }
  }
}

// Writes a block out as floats, without its scales.
template <typename Element>
Block<float> expand(const Block<Element>& block, int head_dim, float* to) {
  const int count = kBlock * head_dim;
  for (int i = 0; i < count; i += kLanes) store(to + i, load_elements(block.keys + i));
  for (int i = 0; i < count; i += kLanes) store(to + count + i, load_elements(block.values + i));
  return {to, to + count, block.key_scales, block.value_scales};
}

template <typename Element>
void attend_block(const Group& group, const uint8_t* data, int start, int first, int last) {
  const int head_dim = group.attention.cache.head_dim;
  group.prefetch(last, start + kBlock);
  const Block<Element> block = block_at<Element>(data, head_dim);
  if ((last + 1 - first) * group.share() < kExpandQueries)
    return attend_rows(group, block, start, first, last);
  alignas(64) float floats[2 * kBlock * kMaxHeadDim];
  attend_rows(group, expand(block, head_dim, floats), start, first, last);
}

// A block whose first `count` positions are in `slots`: their page if they lie in it in order, as
// they do unless a token tree branched before them, else a copy.
template <typename Element>
const uint8_t* gather(const Group& group, const int32_t* slots, int count, uint8_t* copy) {
  const Cache& cache = group.attention.cache;
  const int page = slots[0] / kBlock;
  const uint8_t* block = group.page(page);
  bool copied = false;
  for (int lane = 0; lane < count; ++lane) {
    if (slots[lane] == page * kBlock + lane) continue;
    if (!copied) std::memcpy(copy, block, cache.block_bytes());
    copied = true;
    copy_lane<Element>(group.page(slots[lane] / kBlock), slots[lane] % kBlock, copy, lane,
                       cache.head_dim);
  }
  return copied ? copy : block;
}

// Rows that follow each other: the last one's tail holds those of all.
template <typename Element>
void attend_tail(const Group& group, int start, int end, int first, int last) {
  alignas(64) uint8_t copy[2 * kBlock * (kMaxHeadDim * sizeof(Element) + sizeof(float))];
  const Step& step = group.step;
  const int tail_start = step.tail_starts[step.request_of[last]];
  const int32_t* slots = step.tail_slots + size_t(last) * step.tail_width - tail_start;
  const int past = step.positions[last] + 1;
  if (start < tail_start) start = tail_start;
  if (end > past) end = past;
  for (; start < end; start += kBlock) {
    while (step.positions[first] < start) ++first;
    const int count = past - start < kBlock ? past - start : kBlock;
    attend_block<Element>(group, gather<Element>(group, slots + start, count, copy), start, first,
                          last);
  }
}

template <typename Element>
void attend_tile(const Group& group, const Tile& tile, int start, int end) {
  const Step& step = group.step;
  const int request = step.request_of[tile.first];
  const int32_t* pages = step.page_tables + size_t(request) * step.page_table_width;
  const int tail_start = step.tail_starts[request];
  for (int block = start; block < end && block < tail_start; block += kBlock)
    attend_block<Element>(group, group.page(pages[block / kBlock]), block, tile.first, tile.last);
  for (int first = tile.first, row = first; row <= tile.last; ++row) {
    if (row < tile.last && step.follows[row + 1]) continue;
    attend_tail<Element>(group, start, end, first, row);
    first = row + 1;
  }
}

void attend(const Attention& attention, const Step& step, const Tile& tile, int kv_head,
            int segment) {
  const Group group = {attention, step, kv_head, segment};
  const int head_dim = attention.cache.head_dim, share = group.share();
  const int start = segment * kSegment;
  for (int row = tile.first; row <= tile.last; ++row) {
    if (step.positions[row] < start) continue;
    for (int head = kv_head * share; head < (kv_head + 1) * share; ++head) {
      float* sums = group.sums(row, head);
      for (int i = 0; i < head_dim + 2; ++i) sums[i] = i == head_dim ? kMinusInfinity : 0;
    }
  }
  if (attention.cache.type == KVType::kBfloat16)
    attend_tile<uint16_t>(group, tile, start, start + kSegment);
  else
    attend_tile<int8_t>(group, tile, start, start + kSegment);
}

inline float exponential(float x) {
  float lanes[kLanes];
  store(lanes, exponential(splat(x)));
  return lanes[0];
}

// The merged row takes the place of its partial results: head h's values end before those of head
// h + 1 begin, and within a head dimensions are read before they are written over.
[[gnu::flatten]] void merge(const Attention& attention, const Step& step, int row) {
  const int head_dim = attention.cache.head_dim, stride = head_dim + 2;
  const int segments = step.positions[row] / kSegment + 1;
  float* merged = attention.partials + size_t(row) * attention.heads * attention.segments * stride;
  float* partial = merged;
  for (int head = 0; head < attention.heads; ++head, partial += attention.segments * stride) {
    float largest = kMinusInfinity, total = 0;
    for (int s = 0; s < segments; ++s) {
      const float here = partial[s * stride + head_dim];
      largest = largest < here ? here : largest;
    }
    for (int s = 0; s < segments; ++s) {
      float& weight = partial[s * stride + head_dim];
      weight = exponential(weight - largest);
      total += weight * partial[s * stride + head_dim + 1];
    }
    for (int i = 0; i < head_dim; i += kLanes) {
      Floats sum = splat(0.0f);
      for (int s = 0; s < segments; ++s)
        sum = fma(load(partial + s * stride + i), splat(partial[s * stride + head_dim]), sum);
      store(merged + head * head_dim + i, sum / splat(total));
    }
  }
  write_row(merged, attention.heads * head_dim, attention.out, row);
}

}  // namespace
}  // namespace slipstream

// Keys and values in their slots: what is stored, read back and moved.
#pragma once

#include "kernels.h"
#include "rows.h"
#include "vector.h"

namespace slipstream {
namespace {

inline Floats load_elements(const float* from) { return load(from); }
inline Floats load_elements(const uint16_t* from) { return load_bfloat16(from); }
inline Floats load_elements(const int8_t* from) {
#if defined(__AVX512F__)
  __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return to_floats(Ints{{(IntRegister)_mm512_cvtepi8_epi32(bytes)}});
#elif defined(__AVX2__)
  return to_floats(each_register<Ints>([&](int i) {
    return (IntRegister)_mm256_cvtepi8_epi32(
        _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + i * kRegisterLanes)));
  }));
#else
  int32_t lanes[kLanes];
  for (int i = 0; i < kLanes; ++i) lanes[i] = from[i];
  return to_floats(load(lanes));
#endif
}

// Keys and values of kBlock positions. An element's value is itself times its position's scale.
template <typename Element>
struct Block {
  const Element* keys;        // [head_dim][kBlock]
  const Element* values;      // [kBlock][head_dim]
  const float* key_scales;    // [kBlock], or null: all 1
  const float* value_scales;  // likewise
};

template <typename Element>
Block<Element> block_at(const uint8_t* data, int head_dim) {
  const Element* keys = reinterpret_cast<const Element*>(data);
  const Element* values = keys + kBlock * head_dim;
  if (sizeof(Element) > 1) return {keys, values, nullptr, nullptr};
  const float* scales = reinterpret_cast<const float*>(values + kBlock * head_dim);
  return {keys, values, scales, scales + kBlock};
}

// Copies one head's keys and values from a lane of one block to a lane of another.
template <typename Element>
void copy_lane(const uint8_t* from, int from_lane, uint8_t* to, int to_lane, int head_dim) {
  const Block<Element> source = block_at<Element>(from, head_dim);
  Element* target = reinterpret_cast<Element*>(to);
  for (int i = 0; i < head_dim; ++i)
    target[i * kBlock + to_lane] = source.keys[i * kBlock + from_lane];
  target += kBlock * head_dim;
  std::memcpy(target + to_lane * head_dim, source.values + from_lane * head_dim,
              head_dim * sizeof(Element));
  if (!source.key_scales) return;
  float* scales = reinterpret_cast<float*>(target + kBlock * head_dim);
  scales[to_lane] = source.key_scales[from_lane];
  scales[kBlock + to_lane] = source.value_scales[from_lane];
}

// RMS norm of one head in place.
inline void normalise_head(float* x, int head_dim, const float* weight, float eps) {
  const Floats scale = splat(inverse_norm(x, head_dim, eps));
  for (int i = 0; i < head_dim; i += kLanes) store(x + i, load(x + i) * scale * load(weight + i));
}

// Rotary embedding of one head in place, then times `scale`: i pairs with i + head_dim / 2.
inline void rotate_head(float* x, int head_dim, const float* cosines, const float* sines,
                        float scale) {
  const int half = head_dim / 2;
  for (int i = 0; i < half; ++i) {
    float first = x[i], second = x[i + half];
    x[i] = (first * cosines[i] - second * sines[i]) * scale;
    x[i + half] = (second * cosines[i] + first * sines[i]) * scale;
  }
}

inline Floats clamp(Floats x, float limit) {  // NaN becomes the limit
  const Floats below = select(less(x, splat(limit)), x, splat(limit));
  return select(less(splat(-limit), below), below, splat(-limit));
}

// Slots hold neither NaN nor infinity, whatever a model does: 0 times either would be NaN.
inline Floats load_finite(const float* from) {
  return clamp(load(from), 3.3895314e38f);  // the largest bfloat16
}

// One head's keys or values as they are stored; writes up to a multiple of kGroup.
inline void encode(const float* x, int head_dim, uint16_t* to, float*) {
  for (int i = 0; i < head_dim; i += kLanes) store_bfloat16(to + i, load_finite(x + i));
}
inline void encode(const float* x, int head_dim, int8_t* to, float* scale) {
  Floats largest = splat(0.0f);
  for (int i = 0; i < head_dim; i += kLanes)
    largest = maximum(largest, absolute(load_finite(x + i)));
  *scale = max_lanes(largest) / 127;
  // Only a subnormal scale, which has few bits, gives levels beyond 127.
  const auto levels = [&](int i) {
    if (i >= head_dim || *scale == 0) return splat(int32_t(0));
    return round_to_ints(clamp(load_finite(x + i) / splat(*scale), 127));
  };
  for (int i = 0; i < head_dim; i += kGroup) store_bytes(to + i, levels(i), levels(i + kLanes));
}

template <typename Element>
void store_slot(const Cache& cache, int layer, int slot, const float* keys, const float* values) {
  const int lane = slot % kBlock, head_dim = cache.head_dim;
  Element encoded[kMaxHeadDim];
  for (int head = 0; head < cache.kv_heads; ++head) {
    Element* to = reinterpret_cast<Element*>(cache.block(layer, slot / kBlock, head));
    float scales[2];
    encode(keys + head * head_dim, head_dim, encoded, &scales[0]);
    for (int i = 0; i < head_dim; ++i) to[i * kBlock + lane] = encoded[i];
    encode(values + head * head_dim, head_dim, encoded, &scales[1]);
    to += kBlock * head_dim;
    std::memcpy(to + lane * head_dim, encoded, head_dim * sizeof(Element));
    if (sizeof(Element) > 1) continue;
    float* of_block = reinterpret_cast<float*>(to + kBlock * head_dim);
    of_block[lane] = scales[0];
    of_block[kBlock + lane] = scales[1];
  }
}

void store_keys(const Attention& attention, const Step& step, int row) {
  const Cache& cache = attention.cache;
  const int head_dim = cache.head_dim, heads = attention.heads;
  const size_t angles = size_t(step.angles[row]) * (head_dim / 2);
  const float query_scale = 1.0f / __builtin_sqrtf(float(head_dim));
  float* qkv = attention.qkv + size_t(row) * attention.qkv_stride;
  for (int head = 0; head < heads + cache.kv_heads; ++head) {
    float* x = qkv + head * head_dim;
    const float* norm = head < heads ? attention.query_norm : attention.key_norm;
    if (norm) normalise_head(x, head_dim, norm, attention.eps);
    rotate_head(x, head_dim, attention.cosines + angles, attention.sines + angles,
                head < heads ? query_scale : 1.0f);
  }
  const float* keys = qkv + heads * head_dim;
  const float* values = keys + cache.kv_heads * head_dim;
  auto store = cache.type == KVType::kBfloat16 ? store_slot<uint16_t> : store_slot<int8_t>;
  store(cache, attention.layer, step.slots[row], keys, values);
}

// One layer's slots of one head at a time. Raises std::bad_alloc.
template <typename Element>
void move_elements(const Cache& cache, int layer, const int32_t* sources, const int32_t* targets,
                   int count) {
  const size_t bytes = cache.block_bytes();
  uint8_t* copies = new uint8_t[(count + kBlock - 1) / kBlock * bytes];
  for (int head = 0; head < cache.kv_heads; ++head) {
    for (int i = 0; i < count; ++i)
      copy_lane<Element>(cache.block(layer, sources[i] / kBlock, head), sources[i] % kBlock,
                         copies + i / kBlock * bytes, i % kBlock, cache.head_dim);
    for (int i = 0; i < count; ++i)
      copy_lane<Element>(copies + i / kBlock * bytes, i % kBlock,
                         cache.block(layer, targets[i] / kBlock, head), targets[i] % kBlock,
                         cache.head_dim);
  }
  delete[] copies;
}

void move_slots(const Cache& cache, int layer, const int32_t* sources, const int32_t* targets,
                int count) {
  auto move = cache.type == KVType::kBfloat16 ? move_elements<uint16_t> : move_elements<int8_t>;
  move(cache, layer, sources, targets, count);
}

}  // namespace
}  // namespace slipstream

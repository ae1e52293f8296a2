// Operations on single rows: the forms that products read, RMS norm, embedding.
#pragma once

#include "kernels.h"
#include "vector.h"

namespace slipstream {
namespace {

// Nearest integers, ties to even, of values within +-2^22.
inline Ints round_to_ints(Floats x) {
  const Floats shift = splat(12582912.0f);  // 1.5 * 2^23
  return bits_of(x + shift) - bits_of(shift);
}

// Thirty-two integers within a signed byte each.
inline void store_bytes(int8_t* to, Ints low, Ints high) {
#if defined(__AVX512F__)
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8((__m512i)low.part[0]));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to) + 1, _mm512_cvtepi32_epi8((__m512i)high.part[0]));
#elif defined(__AVX2__)
  __m256i a = _mm256_packs_epi32((__m256i)low.part[0], (__m256i)low.part[1]);
  __m256i b = _mm256_packs_epi32((__m256i)high.part[0], (__m256i)high.part[1]);
  // The packs work in halves of a register: fours of bytes come out as 0 2 4 6 | 1 3 5 7.
  __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, b), order);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), bytes);
#else
  int32_t lanes[kGroup];
  store(lanes, low);
  store(lanes + kLanes, high);
  for (int i = 0; i < kGroup; ++i) to[i] = int8_t(lanes[i]);
#endif
}

// Thirty-two integers within 16 bits each, every quad as 0, 2, 1, 3: a pair of even places, then a
// pair of odd ones.
inline void store_shorts(int16_t* to, Ints low, Ints high) {
#if defined(__AVX512F__)
  const __m512i a = _mm512_shuffle_epi32((__m512i)low.part[0], _MM_PERM_DBCA);
  const __m512i b = _mm512_shuffle_epi32((__m512i)high.part[0], _MM_PERM_DBCA);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16(a));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to) + 1, _mm512_cvtepi32_epi16(b));
#elif defined(__AVX2__)
  const Ints both[2] = {low, high};
  for (int i = 0; i < 2; ++i) {
    __m256i a = _mm256_shuffle_epi32((__m256i)both[i].part[0], 0xd8);
    __m256i b = _mm256_shuffle_epi32((__m256i)both[i].part[1], 0xd8);
    __m256i shorts = _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to) + i, shorts);
  }
#else
  int32_t lanes[kGroup];
  store(lanes, low);
  store(lanes + kLanes, high);
  for (int i = 0; i < kGroup; i += 4) {
    to[i] = int16_t(lanes[i]);
    to[i + 1] = int16_t(lanes[i + 2]);
    to[i + 2] = int16_t(lanes[i + 1]);
    to[i + 3] = int16_t(lanes[i + 3]);
  }
#endif
}

inline void store_bfloat16(uint16_t* to, Floats value) {
  int32_t lanes[kLanes];
  store(lanes, to_bfloat16(value));
  for (int i = 0; i < kLanes; ++i) to[i] = uint16_t(lanes[i]);
}

// A bit for each of a group's values that is not less than `least`.
inline uint32_t bits_of_largest(Floats low, Floats high, float least) {
  const Ints less_low = less(low, splat(least)), less_high = less(high, splat(least));
#if defined(__AVX512F__)
  const auto bits = [](Ints mask) { return uint32_t(_mm512_movepi32_mask((__m512i)mask.part[0])); };
#elif defined(__AVX2__)
  const auto bits = [](Ints mask) {
    const auto of_part = [&](int i) { return uint32_t(_mm256_movemask_ps((__m256)mask.part[i])); };
    return of_part(0) | of_part(1) << 8;
  };
#else
  const auto bits = [](Ints mask) {
    int32_t lanes[kLanes];
    store(lanes, mask);
    uint32_t all = 0;
    for (int i = 0; i < kLanes; ++i) all |= uint32_t(lanes[i] & 1) << i;
    return all;
  };
#endif
  return ~(bits(less_low) | bits(less_high) << kLanes);
}

// The two largest of a group's magnitudes; the same one twice if it occurs twice.
struct Largest {
  float first;
  float second;
};
inline Largest two_largest(Floats low, Floats high) {
  typedef float Quad __attribute__((vector_size(16)));
  // The comparisons differ so that each is one instruction.
  const auto larger = [](Quad a, Quad b) { return a < b ? b : a; };
  const auto smaller = [](Quad a, Quad b) { return b < a ? b : a; };
  Quad firsts[8], seconds[8];
  std::memcpy(firsts, &low, sizeof low);
  std::memcpy(firsts + 4, &high, sizeof high);
  const auto merge = [&](int i, Quad first, Quad second) {
    seconds[i] = larger(smaller(firsts[i], first), larger(seconds[i], second));
    firsts[i] = larger(firsts[i], first);
  };
  for (int i = 0; i < 4; ++i) {
    seconds[i] = smaller(firsts[i], firsts[i + 4]);
    firsts[i] = larger(firsts[i], firsts[i + 4]);
  }
  for (int i = 0; i < 2; ++i) merge(i, firsts[i + 2], seconds[i + 2]);
  merge(0, firsts[1], seconds[1]);
  const auto turned = [](Quad a) { return Quad{a[2], a[3], a[0], a[1]}; };
  const auto swapped = [](Quad a) { return Quad{a[1], a[0], a[3], a[2]}; };
  merge(0, turned(firsts[0]), turned(seconds[0]));
  merge(0, swapped(firsts[0]), swapped(seconds[0]));
  return {firsts[0][0], seconds[0][0]};
}

// What the integers of values up to `largest` count for if they reach `most`, and its inverse: 0
// for scales too small to invert, so that such values are written as zeros.
struct Rounding {
  float scale;
  float inverse;
};
inline Rounding rounding_to(float most, float largest) {
  const float scale = largest / most;
  return {scale, scale > 1e-37f ? most / largest : 0.0f};
}

inline void write_int8_group(Floats low, Floats high, int8_t* bytes, RowGroup& group) {
  // All ones but for one zero, which the group's outlier meets.
  alignas(64) static constexpr int32_t kKept[2 * kGroup] = {
      -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,
      -1, -1, -1, -1, -1, -1, -1, -1, -1, 0,  -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,
      -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
  const Floats sizes[2] = {absolute(low), absolute(high)};
  const Largest largest = two_largest(sizes[0], sizes[1]);
  const Rounding rounding = rounding_to(127.0f, largest.second);
  const Floats inverse = splat(rounding.inverse);
  const uint32_t candidates = bits_of_largest(sizes[0], sizes[1], largest.first);
  const int place = __builtin_ctz(candidates);
  const int32_t* kept = kKept + kGroup - 1 - place;
  const auto integers_of = [&](Floats x, const int32_t* kept) {
    return round_to_ints(floats_of(bits_of(x * inverse) & load(kept)));
  };
  const Ints integers[2] = {integers_of(low, kept), integers_of(high, kept + kLanes)};
  store_bytes(bytes, integers[0], integers[1]);
  float lanes[kGroup];
  store(lanes, low);
  store(lanes + kLanes, high);
  const float outlier = lanes[place];
  // The fourth byte of a quad is taken from one byte on, where its sign bit is another's.
  const int byte = place % 4, past = byte / 3, bits = (byte - past) * 8 + place / 16 * 4;
  group.scale = rounding.scale;
  group.outlier = outlier / float(1 << bits);
  group.quad_at = place / 4 % 4 * kPanel * 4 + past;
  group.nibble = 15 << bits;
  group.sum = rounding.scale * sum_lanes(to_floats(integers[0] + integers[1])) + outlier;
}

inline void write_int16_group(Floats low, Floats high, int16_t* shorts, RowGroup& group) {
  const float largest = max_lanes(maximum(absolute(low), absolute(high)));
  const Rounding rounding = rounding_to(32767.0f, largest);
  const Floats inverse = splat(rounding.inverse);
  group.scale = rounding.scale;
  store_shorts(shorts, round_to_ints(low * inverse), round_to_ints(high * inverse));
}

// One group of a row in the form of `out`.
inline void write_group(Floats low, Floats high, const Rows& out, int row, int group) {
  const size_t place = size_t(row) * out.width + group * kGroup;
  switch (out.form) {
    case Form::kFloat32:
      store(out.floats + place, low);
      store(out.floats + place + kLanes, high);
      break;
    case Form::kBfloat16:
      store_bfloat16(out.halves + place, low);
      store_bfloat16(out.halves + place + kLanes, high);
      break;
    case Form::kInt8:
      write_int8_group(low, high, out.bytes + place, out.groups[place / kGroup]);
      break;
    case Form::kInt16:
      write_int16_group(low, high, out.shorts + place, out.groups[place / kGroup]);
      break;
  }
}

// Floats [from, from + kLanes) of a row of `width`, zeros beyond its end.
inline Floats load_padded(const float* x, int from, int width) {
  if (from + kLanes <= width) return load(x + from);
  float lanes[kLanes] = {};
  for (int i = from; i < width; ++i) lanes[i - from] = x[i];
  return load(lanes);
}

[[gnu::flatten]] void write_row(const float* x, int width, const Rows& out, int row) {
  for (int group = 0; group < out.width / kGroup; ++group) {
    const int start = group * kGroup;
    write_group(load_padded(x, start, width), load_padded(x, start + kLanes, width), out, row,
                group);
  }
}

// 1 / sqrt(mean of squares + eps).
inline float inverse_norm(const float* x, int width, float eps) {
  Floats squares = splat(0.0f);
  for (int i = 0; i < width; i += kLanes) {
    Floats lanes = load_padded(x, i, width);
    squares = fma(lanes, lanes, squares);
  }
  return 1.0f / __builtin_sqrtf(sum_lanes(squares) / float(width) + eps);
}

[[gnu::flatten]] void rms_norm(const float* x, int width, const float* weight, float eps,
                               const Rows& out, int row) {
  const Floats inverse = splat(inverse_norm(x, width, eps));
  for (int group = 0; group < out.width / kGroup; ++group) {
    const int start = group * kGroup;
    Floats half[2];
    for (int i = 0; i < 2; ++i) {
      const int from = start + i * kLanes;
      half[i] = load_padded(x, from, width) * inverse * load_padded(weight, from, width);
    }
    write_group(half[0], half[1], out, row, group);
  }
}

// Values of one output's weights in one group.
inline float weight_at(const Matrix& table, const uint8_t* group, int lane, int input) {
  const int quad = input / 4;
  const int place = (quad * kPanel + lane) * 4 + input % 4;
  if (table.format == Format::kBfloat16) {
    uint16_t half;
    std::memcpy(&half, group + 2 * ((input / 2 * kPanel + lane) * 2 + input % 2), 2);
    const uint32_t bits = uint32_t(half) << 16;
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
  }
  const int values = table.format == Format::kInt8 ? kGroup * kPanel : kGroup * kPanel / 2;
  uint16_t halves[kPanel];
  float scales[kPanel];
  std::memcpy(halves, group + values, sizeof halves);
  store(scales, load_half(halves));
  if (table.format == Format::kInt8) return scales[lane] * float(int8_t(group[place]));
  const uint8_t byte = group[((quad % 4) * kPanel + lane) * 4 + input % 4];
  const float nibble = float(quad < 4 ? byte & 15 : byte >> 4);
  if (table.format == Format::kInt4) return scales[lane] * (nibble - 8.0f);
  std::memcpy(halves, group + values + sizeof halves, sizeof halves);
  float minimums[kPanel];
  store(minimums, load_half(halves));
  return scales[lane] * nibble + minimums[lane];
}

void embed(const Matrix& table, int token, float* out, int width) {
  const uint8_t* panel = table.data + token / kPanel * table.panel_bytes();
  for (int i = 0; i < width; ++i)
    out[i] = weight_at(table, panel + i / kGroup * table.group_bytes(), token % kPanel, i % kGroup);
}

}  // namespace
}  // namespace slipstream

// Matrix products of rows with packed weights.
//
// A tile of rows meets one panel of outputs at a time; the panel stays in the first cache while all
// rows pass by. Every sum runs over the inputs in one order, whatever the height of the tile:
// within a group integer sums, which are exact, and over the groups one float chain.
#pragma once

#include "rows.h"

namespace slipstream {
namespace {

#if defined(__AVX512VNNI__)
constexpr int kMostTileRows = 8;
#else
constexpr int kMostTileRows = 4;
#endif

// Keeps the compiler from computing ahead what it would then have to spill.
template <typename Register>
inline void in_order(Register& value) {
#if defined(__x86_64__)
  asm volatile("" : "+x"(value));
#else
  (void)value;
#endif
}

inline int32_t load_quad(const int8_t* from) {
  int32_t quad;
  std::memcpy(&quad, from, sizeof quad);
  return quad;
}

// Integer dot products of one group of int4 weights with R rows of bytes, `stride` apart.
template <int R>
inline void dot_int4(const uint8_t* group, const int8_t* bytes, size_t stride, Ints (&sums)[R]) {
#if defined(__AVX512VNNI__)
  const __m512i low = _mm512_set1_epi8(15);
  for (int r = 0; r < R; ++r) sums[r] = splat(0);
  for (int v = 0; v < 4; ++v) {
    __m512i raw = _mm512_loadu_si512(group + v * 64);
    __m512i first = _mm512_and_si512(raw, low);
    __m512i second = _mm512_and_si512(_mm512_srli_epi16(raw, 4), low);
    for (int r = 0; r < R; ++r) {
      const int8_t* row = bytes + r * stride;
      __m512i sum = (__m512i)sums[r].part[0];
      sum = _mm512_dpbusd_epi32(sum, first, _mm512_set1_epi32(load_quad(row + 4 * v)));
      sum = _mm512_dpbusd_epi32(sum, second, _mm512_set1_epi32(load_quad(row + 16 + 4 * v)));
      sums[r].part[0] = (IntRegister)sum;
    }
  }
#elif defined(__AVX2__)
  // Sixteen products of at most 15 * 127 fit into 16 bits: eight quads are added up there.
  const __m256i low = _mm256_set1_epi8(15);
  __m256i pairs[R][2];
  for (int r = 0; r < R; ++r) pairs[r][0] = pairs[r][1] = _mm256_setzero_si256();
#pragma GCC unroll 4
  for (int v = 0; v < 4; ++v) {
    const __m256i* from = reinterpret_cast<const __m256i*>(group + v * 64);
#pragma GCC unroll 2
    for (int upper = 0; upper < 2; ++upper) {
      __m256i raw[2] = {_mm256_loadu_si256(from), _mm256_loadu_si256(from + 1)};
      for (int h = 0; h < 2; ++h)
        raw[h] = _mm256_and_si256(upper ? _mm256_srli_epi16(raw[h], 4) : raw[h], low);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        __m256i quad = _mm256_set1_epi32(load_quad(bytes + r * stride + 16 * upper + 4 * v));
        for (int h = 0; h < 2; ++h) {
          pairs[r][h] = _mm256_add_epi16(pairs[r][h], _mm256_maddubs_epi16(raw[h], quad));
          in_order(pairs[r][h]);
        }
      }
    }
  }
  const __m256i ones = _mm256_set1_epi16(1);
  for (int r = 0; r < R; ++r)
    for (int h = 0; h < 2; ++h) sums[r].part[h] = (IntRegister)_mm256_madd_epi16(pairs[r][h], ones);
#else
  int32_t lanes[R][kPanel] = {};
  for (int v = 0; v < 4; ++v)
    for (int r = 0; r < R; ++r) {
      const int8_t* row = bytes + r * stride + 4 * v;
      for (int lane = 0; lane < kPanel; ++lane)
        for (int i = 0; i < 4; ++i) {
          const uint8_t byte = group[(v * kPanel + lane) * 4 + i];
          lanes[r][lane] += (byte & 15) * row[i] + (byte >> 4) * row[16 + i];
        }
    }
  for (int r = 0; r < R; ++r) sums[r] = load(lanes[r]);
#endif
}

// The same for int8 weights.
template <int R>
inline void dot_int8(const uint8_t* group, const int8_t* bytes, size_t stride, Ints (&sums)[R]) {
#if defined(__AVX512VNNI__)
  // The instruction multiplies unsigned with signed bytes: 128 is added to the rows' bytes, and 128
  // times the weights' sum taken away.
  __m512i excess = _mm512_setzero_si512();
  for (int r = 0; r < R; ++r) sums[r] = splat(0);
  for (int v = 0; v < 8; ++v) {
    __m512i weights = _mm512_loadu_si512(group + v * 64);
    excess = _mm512_dpbusd_epi32(excess, _mm512_set1_epi8(char(0x80)), weights);
    for (int r = 0; r < R; ++r) {
      const int32_t quad = load_quad(bytes + r * stride + 4 * v) ^ int32_t(0x80808080);
      sums[r].part[0] = (IntRegister)_mm512_dpbusd_epi32((__m512i)sums[r].part[0],
                                                         _mm512_set1_epi32(quad), weights);
    }
  }
  for (int r = 0; r < R; ++r) sums[r] = sums[r] - Ints{{(IntRegister)excess}};
#elif defined(__AVX2__)
  // As 16-bit numbers: even and odd bytes of weights and rows.
  __m256i totals[R][2];
  for (int r = 0; r < R; ++r) totals[r][0] = totals[r][1] = _mm256_setzero_si256();
#pragma GCC unroll 8
  for (int v = 0; v < 8; ++v) {
    const __m256i* from = reinterpret_cast<const __m256i*>(group + v * 64);
#pragma GCC unroll 2
    for (int odd = 0; odd < 2; ++odd) {
      __m256i weights[2];
      for (int h = 0; h < 2; ++h) {
        __m256i raw = _mm256_loadu_si256(from + h);
        weights[h] = _mm256_srai_epi16(odd ? raw : _mm256_slli_epi16(raw, 8), 8);
      }
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        __m256i quad = _mm256_set1_epi32(load_quad(bytes + r * stride + 4 * v));
        quad = _mm256_srai_epi16(odd ? quad : _mm256_slli_epi16(quad, 8), 8);
        for (int h = 0; h < 2; ++h) {
          totals[r][h] = _mm256_add_epi32(totals[r][h], _mm256_madd_epi16(weights[h], quad));
          in_order(totals[r][h]);
        }
      }
    }
  }
  for (int r = 0; r < R; ++r)
    for (int h = 0; h < 2; ++h) sums[r].part[h] = (IntRegister)totals[r][h];
#else
  int32_t lanes[R][kPanel] = {};
  for (int v = 0; v < 8; ++v)
    for (int r = 0; r < R; ++r) {
      const int8_t* row = bytes + r * stride + 4 * v;
      for (int lane = 0; lane < kPanel; ++lane)
        for (int i = 0; i < 4; ++i)
          lanes[r][lane] += int8_t(group[(v * kPanel + lane) * 4 + i]) * row[i];
    }
  for (int r = 0; r < R; ++r) sums[r] = load(lanes[r]);
#endif
}

// R rows times one panel of integer weights: scales and minimums are applied group by group.
template <int R, Format F>
inline void panel_of_integers(const Matrix& matrix, const uint8_t* panel, const Rows& in, int row,
                              Floats (&out)[R]) {
  constexpr int kValues = F == Format::kInt8 ? kGroup * kPanel : kGroup * kPanel / 2;
  const int groups = matrix.inputs / kGroup;
  const int8_t* bytes = in.bytes + size_t(row) * in.width;
  const float* scales = in.scales + size_t(row) * groups;
  const float* row_sums = in.sums + size_t(row) * groups;
  const size_t group_bytes = matrix.group_bytes();
  Floats totals[R];
  for (int r = 0; r < R; ++r) totals[r] = splat(0.0f);
  for (int g = 0; g < groups; ++g) {
    const uint8_t* group = panel + g * group_bytes;
    Ints sums[R];
    if (F == Format::kInt8)
      dot_int8<R>(group, bytes + g * kGroup, in.width, sums);
    else
      dot_int4<R>(group, bytes + g * kGroup, in.width, sums);
    const uint16_t* halves = reinterpret_cast<const uint16_t*>(group + kValues);
    const Floats scale = load_half(halves);
    for (int r = 0; r < R; ++r)
      totals[r] = fma(to_floats(sums[r]) * scale, splat(scales[r * groups + g]), totals[r]);
    if (F == Format::kInt8) continue;
    const Floats minimum = F == Format::kInt4 ? scale * splat(-8.0f) : load_half(halves + kPanel);
    for (int r = 0; r < R; ++r)
      totals[r] = fma(minimum, splat(row_sums[r * groups + g]), totals[r]);
  }
  for (int r = 0; r < R; ++r) out[r] = totals[r];
}

// R rows of floats times one panel of bfloat16 weights.
template <int R>
inline void panel_of_bfloat16(const Matrix& matrix, const uint8_t* panel, const Rows& in, int row,
                              Floats (&out)[R]) {
  const float* x = in.floats + size_t(row) * in.width;
  Floats totals[R];
  for (int r = 0; r < R; ++r) totals[r] = splat(0.0f);
  for (int pair = 0; pair < matrix.inputs / 2; ++pair) {
    const Ints both = load_ints(panel + size_t(pair) * kPanel * 4);
    const Floats even = floats_of(both << 16);
    const Floats odd = floats_of(both & splat(int32_t(0xffff0000)));
    for (int r = 0; r < R; ++r) {
      const float* inputs = x + size_t(r) * in.width + 2 * pair;
      totals[r] = fma(odd, splat(inputs[1]), fma(even, splat(inputs[0]), totals[r]));
    }
  }
  for (int r = 0; r < R; ++r) out[r] = totals[r];
}

template <int R>
inline void panel_times_rows(const Product& product, int panel, int row, Floats (&out)[R]) {
  const Matrix& matrix = product.matrix;
  const uint8_t* data = matrix.data + panel * matrix.panel_bytes();
  switch (matrix.format) {
    case Format::kBfloat16: return panel_of_bfloat16<R>(matrix, data, product.in, row, out);
    case Format::kInt8:
      return panel_of_integers<R, Format::kInt8>(matrix, data, product.in, row, out);
    case Format::kInt4:
      return panel_of_integers<R, Format::kInt4>(matrix, data, product.in, row, out);
    default: return panel_of_integers<R, Format::kInt4Min>(matrix, data, product.in, row, out);
  }
}

inline Floats with_bias(const Product& product, int panel, Floats value) {
  return product.matrix.bias ? value + load(product.matrix.bias + panel * kPanel) : value;
}

inline Floats silu(Floats x) { return x / (splat(1.0f) + exponential(splat(0.0f) - x)); }

inline void finish(const Product& product, int panel, int row, Floats value) {
  const size_t place = size_t(row) * product.out_stride + panel * kPanel;
  value = with_bias(product, panel, value);
  if (product.finish == Finish::kAdd) value = value + load(product.residual + place);
  store(product.out + place, value);
}

// Panels of gates g and g + 2 and of the ups after them give one group of the next rows.
inline void finish_swiglu(const Product& product, int panel, int row, const Floats (&four)[4]) {
  Floats half[2];
  for (int i = 0; i < 2; ++i)
    half[i] = silu(with_bias(product, panel + 2 * i, four[2 * i])) *
              with_bias(product, panel + 2 * i + 1, four[2 * i + 1]);
  write_group(half[0], half[1], product.rows_out, row, panel / 4);
}

template <int R>
inline void rows_of_panels(const Product& product, int panel, int row) {
  if (product.finish != Finish::kSwiglu) {
    Floats sums[R];
    panel_times_rows<R>(product, panel, row, sums);
    for (int r = 0; r < R; ++r) finish(product, panel, row + r, sums[r]);
    return;
  }
  Floats sums[4][R];
  for (int i = 0; i < 4; ++i) panel_times_rows<R>(product, panel + i, row, sums[i]);
  for (int r = 0; r < R; ++r)
    finish_swiglu(product, panel, row + r, {sums[0][r], sums[1][r], sums[2][r], sums[3][r]});
}

[[maybe_unused]] void product(const Product& product, int first_panel, int last_panel,
                              int first_row, int last_row) {
  const int together = product.finish == Finish::kSwiglu ? 4 : 1;
  for (int panel = first_panel; panel < last_panel; panel += together) {
    int row = first_row;
    for (; row + kMostTileRows <= last_row; row += kMostTileRows)
      rows_of_panels<kMostTileRows>(product, panel, row);
    if (kMostTileRows > 4)
      for (; row + 4 <= last_row; row += 4) rows_of_panels<4>(product, panel, row);
    for (; row + 2 <= last_row; row += 2) rows_of_panels<2>(product, panel, row);
    for (; row < last_row; ++row) rows_of_panels<1>(product, panel, row);
  }
}

[[maybe_unused]] Form form_of(Format format) {
  return format == Format::kBfloat16 ? Form::kFloat32 : Form::kInt8;
}

}  // namespace
}  // namespace slipstream

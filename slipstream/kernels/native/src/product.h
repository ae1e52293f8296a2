// Matrix products of rows with packed weights.
//
// A tile of rows meets one panel of outputs at a time; the panel stays in the first cache while all
// rows pass by. Every sum runs over the inputs in one order, whatever the height of the tile:
// within a group integer sums, which are exact, and over the groups one float chain.
#pragma once

#include <type_traits>

#include "rows.h"

namespace slipstream {
namespace {

#if defined(__AVX512VNNI__)
constexpr int kMostTileRows = 8;
#else
constexpr int kMostTileRows = 4;
#endif

// Keeps the compiler from computing ahead what it would then have to spill: sums, and places of
// rows, to which it would add all constants before the loop.
template <typename Register>
inline void in_order(Register& value) {
#if defined(__x86_64__)
  asm volatile("" : "+x"(value));
#else
  (void)value;
#endif
}
inline void in_order(size_t& value) {
#if defined(__x86_64__)
  asm volatile("" : "+r"(value));
#else
  (void)value;
#endif
}

inline int32_t load_word(const void* from) {
  int32_t word;
  std::memcpy(&word, from, sizeof word);
  return word;
}

// Integer dot products of one group of int4 weights with R rows of bytes, `at` from the first.
template <int R>
inline void dot_int4(const uint8_t* group, const int8_t* bytes, const size_t (&at)[R],
                     Ints (&sums)[R]) {
#if defined(__AVX512VNNI__)
  const __m512i low = _mm512_set1_epi8(15);
  for (int r = 0; r < R; ++r) sums[r] = splat(0);
  for (int v = 0; v < 4; ++v) {
    __m512i raw = _mm512_loadu_si512(group + v * 64);
    __m512i first = _mm512_and_si512(raw, low);
    __m512i second = _mm512_and_si512(_mm512_srli_epi16(raw, 4), low);
    for (int r = 0; r < R; ++r) {
      const int8_t* row = bytes + at[r];
      __m512i sum = (__m512i)sums[r].part[0];
      sum = _mm512_dpbusd_epi32(sum, first, _mm512_set1_epi32(load_word(row + 4 * v)));
      sum = _mm512_dpbusd_epi32(sum, second, _mm512_set1_epi32(load_word(row + 16 + 4 * v)));
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
        __m256i quad = _mm256_set1_epi32(load_word(bytes + at[r] + 16 * upper + 4 * v));
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
      const int8_t* row = bytes + at[r] + 4 * v;
      for (int lane = 0; lane < kPanel; ++lane)
        for (int i = 0; i < 4; ++i) {
          const uint8_t byte = group[(v * kPanel + lane) * 4 + i];
          lanes[r][lane] += (byte & 15) * row[i] + (byte >> 4) * row[16 + i];
        }
    }
  for (int r = 0; r < R; ++r) sums[r] = load(lanes[r]);
#endif
}

// Integer dot products of one group of int8 weights with R rows of 16-bit numbers.
template <int R>
inline void dot_int8(const uint8_t* group, const int16_t* shorts, const size_t (&at)[R],
                     Ints (&sums)[R]) {
#if defined(__AVX512VNNI__)
  for (int r = 0; r < R; ++r) sums[r] = splat(0);
  for (int v = 0; v < 8; ++v) {
    const __m512i raw = _mm512_loadu_si512(group + v * 64);
    const __m512i even = _mm512_srai_epi16(_mm512_slli_epi16(raw, 8), 8);
    const __m512i odd = _mm512_srai_epi16(raw, 8);
    for (int r = 0; r < R; ++r) {
      const int16_t* quad = shorts + at[r] + 4 * v;
      __m512i sum = (__m512i)sums[r].part[0];
      sum = _mm512_dpwssd_epi32(sum, even, _mm512_set1_epi32(load_word(quad)));
      sum = _mm512_dpwssd_epi32(sum, odd, _mm512_set1_epi32(load_word(quad + 2)));
      sums[r].part[0] = (IntRegister)sum;
    }
  }
#elif defined(__AVX2__)
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
        __m256i pair = _mm256_set1_epi32(load_word(shorts + at[r] + 4 * v + 2 * odd));
        for (int h = 0; h < 2; ++h) {
          totals[r][h] = _mm256_add_epi32(totals[r][h], _mm256_madd_epi16(weights[h], pair));
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
      const int16_t* quad = shorts + at[r] + 4 * v;
      const int32_t inputs[4] = {quad[0], quad[2], quad[1], quad[3]};
      for (int lane = 0; lane < kPanel; ++lane)
        for (int i = 0; i < 4; ++i)
          lanes[r][lane] += int8_t(group[(v * kPanel + lane) * 4 + i]) * inputs[i];
    }
  for (int r = 0; r < R; ++r) sums[r] = load(lanes[r]);
#endif
}

// Memory to ask for with each group while rows meet a panel.
struct Ahead {
  const uint8_t* from;
  size_t bytes;
  [[gnu::always_inline]] void ask() {
    for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(from + i);
    from += bytes;
  }
};

// Tiles of rows that meet a panel one after the other.
struct Visits {
  int first_row;
  int last_row;
  int count() const { return (last_row - first_row + kMostTileRows - 1) / kMostTileRows; }
  int before(int row) const { return (row - first_row) / kMostTileRows; }
};

// The processor's own prefetching falls short. A lone tile, for which memory is all that counts,
// asks for what it needs soon; several ask for a part of the next panel each.
inline Ahead ahead(const Matrix& matrix, int panel, const Visits& visits, int row) {
  constexpr size_t kSoon = 3072, kLine = 64;
  const uint8_t* data = matrix.data + panel * matrix.panel_bytes();
  const size_t group_bytes = matrix.group_bytes();
  if (visits.count() == 1) return {data + kSoon, group_bytes};
  const size_t bytes = group_bytes / visits.count() < kLine ? kLine : group_bytes / visits.count();
  const size_t done = visits.before(row) * bytes;  // of each group
  if (done >= group_bytes) return {data, 0};
  return {data + matrix.panel_bytes() + done * (matrix.inputs / kGroup), bytes};
}

// A panel's int4 weights of the outlier of a row's group, times the power of two that the outlier
// makes up for.
inline Ints outlier_weights(const uint8_t* group, const RowGroup& row) {
  return load_ints(group + row.quad_at) & splat(row.nibble);
}

// R rows times one panel of integer weights: scales and minimums are applied group by group.
template <int R, Format F>
inline void panel_of_integers(const Matrix& matrix, const uint8_t* panel, const Rows& in, int row,
                              Ahead ahead, Floats* __restrict out) {
  constexpr bool kBytes = F != Format::kInt8;
  constexpr size_t kValues = kBytes ? kGroup * kPanel / 2 : kGroup * kPanel;
  constexpr size_t kGroupBytes = kValues + (F == Format::kInt4Min ? 4 : 2) * kPanel;
  const size_t groups = matrix.inputs / kGroup, width = in.width;
  const std::conditional_t<kBytes, int8_t, int16_t>* numbers;
  if constexpr (kBytes)
    numbers = in.bytes + row * width;
  else
    numbers = in.shorts + row * width;
  const char* row_groups = reinterpret_cast<const char*>(in.groups + row * groups);
  // Sums take all registers that there are, so totals are kept in memory, unless there are more.
  Floats registers[R];
  Floats* const totals = kRegisters == 1 ? registers : out;
  size_t numbers_at[R], group_at[R];
  for (int r = 0; r < R; ++r) {
    numbers_at[r] = r * width;
    group_at[r] = r * groups * sizeof(RowGroup);
    totals[r] = splat(0.0f);
  }
  for (const uint8_t* group = panel; group < panel + groups * kGroupBytes; group += kGroupBytes) {
    ahead.ask();
    for (int r = 1; r < R; ++r) {
      in_order(numbers_at[r]);
      in_order(group_at[r]);
    }
    Ints sums[R];
    if constexpr (kBytes)
      dot_int4<R>(group, numbers, numbers_at, sums);
    else
      dot_int8<R>(group, numbers, numbers_at, sums);
    const uint16_t* halves = reinterpret_cast<const uint16_t*>(group + kValues);
    const Floats scale = load_half(halves);
    Floats minimum = scale;
    if (F == Format::kInt4) minimum = scale * splat(-8.0f);
    if (F == Format::kInt4Min) minimum = load_half(halves + kPanel);
    for (int r = 0; r < R; ++r) {
      const RowGroup& row_group = *reinterpret_cast<const RowGroup*>(row_groups + group_at[r]);
      Floats sum = to_floats(sums[r]) * splat(row_group.scale);
      if (kBytes)
        sum = fma(to_floats(outlier_weights(group, row_group)), splat(row_group.outlier), sum);
      Floats total = fma(sum, scale, totals[r]);
      if (kBytes) total = fma(minimum, splat(row_group.sum), total);
      totals[r] = total;
    }
    numbers += kGroup;
    row_groups += sizeof(RowGroup);
  }
  if (totals != out)
    for (int r = 0; r < R; ++r) out[r] = totals[r];
}

// R rows of floats times one panel of bfloat16 weights.
template <int R>
inline void panel_of_bfloat16(const Matrix& matrix, const uint8_t* panel, const Rows& in, int row,
                              Ahead ahead, Floats* out) {
  const float* x = in.floats + size_t(row) * in.width;
  Floats totals[R];
  for (int r = 0; r < R; ++r) totals[r] = splat(0.0f);
  for (int pair = 0; pair < matrix.inputs / 2; ++pair) {
    const uint8_t* weights = panel + size_t(pair) * kPanel * 4;
    if (pair % (kGroup / 2) == 0) ahead.ask();
    const Ints both = load_ints(weights);
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
inline void rows_times_panel(const Product& product, int panel, int row, Ahead ahead, Floats* out) {
  const Matrix& matrix = product.matrix;
  const Rows& in = product.in;
  const uint8_t* data = matrix.data + panel * matrix.panel_bytes();
  switch (matrix.format) {
    case Format::kBfloat16: return panel_of_bfloat16<R>(matrix, data, in, row, ahead, out);
    case Format::kInt8:
      return panel_of_integers<R, Format::kInt8>(matrix, data, in, row, ahead, out);
    case Format::kInt4:
      return panel_of_integers<R, Format::kInt4>(matrix, data, in, row, ahead, out);
    default: return panel_of_integers<R, Format::kInt4Min>(matrix, data, in, row, ahead, out);
  }
}

// Sums of one panel for rows [first_row, last_row), which are among all of its visits.
inline void sum_panel(const Product& product, int panel, int first_row, int last_row,
                      const Visits& visits, Floats* out) {
  int row = first_row;
  const auto meet = [&](auto rows) {
    for (; row + rows <= last_row; row += rows)
      rows_times_panel<rows>(product, panel, row, ahead(product.matrix, panel, visits, row),
                             out + row - first_row);
  };
  meet(std::integral_constant<int, kMostTileRows>());
  if (kMostTileRows > 4) meet(std::integral_constant<int, 4>());
  meet(std::integral_constant<int, 3>());
  meet(std::integral_constant<int, 2>());
  meet(std::integral_constant<int, 1>());
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
[[gnu::flatten]] inline void finish_swiglu(const Product& product, int panel, int row,
                                           const Floats (&four)[4]) {
  Floats half[2];
  for (int i = 0; i < 2; ++i)
    half[i] = silu(with_bias(product, panel + 2 * i, four[2 * i])) *
              with_bias(product, panel + 2 * i + 1, four[2 * i + 1]);
  write_group(half[0], half[1], product.rows_out, row, panel / 4);
}

[[maybe_unused]] void product(const Product& product, int first_panel, int last_panel,
                              int first_row, int last_row) {
  constexpr int kRowsAtATime = 32;  // whose sums stay in the first cache beside a panel
  const int together = product.finish == Finish::kSwiglu ? 4 : 1;
  for (int panel = first_panel; panel < last_panel; panel += together) {
    for (int start = first_row; start < last_row; start += kRowsAtATime) {
      Floats sums[4][kRowsAtATime];
      const int end = last_row < start + kRowsAtATime ? last_row : start + kRowsAtATime;
      for (int i = 0; i < together; ++i)
        sum_panel(product, panel + i, start, end, {first_row, last_row}, sums[i]);
      for (int i = 0; i < end - start; ++i) {
        if (together == 1)
          finish(product, panel, start + i, sums[0][i]);
        else
          finish_swiglu(product, panel, start + i,
                        {sums[0][i], sums[1][i], sums[2][i], sums[3][i]});
      }
    }
  }
}

[[maybe_unused]] Form form_of(Format format) {
  if (format == Format::kBfloat16) return Form::kFloat32;
  return format == Format::kInt8 ? Form::kInt16 : Form::kInt8;
}

}  // namespace
}  // namespace slipstream

// Matrix products on AMX tiles: rows and weights in bfloat16, sums in float32.
//
// Weights of a few groups are expanded into the first cache and serve all rows before the next ones
// are expanded. A tile's sums run over the inputs in order, whatever is computed beside them.
// The format of the tiles: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1,
// chapter 18.
#pragma once

#include "product.h"

namespace slipstream {
namespace {

constexpr int kTileBytes = 1024;     // 16 rows of 64 bytes
constexpr int kExpandedGroups = 16;  // of two panels: 32 KiB
constexpr int kSumPanels = 4;        // side by side in the sums of a row
constexpr int kSumWidth = kSumPanels * kPanel;
constexpr int kRowsAtATime = 128;  // whose sums stay in the second cache

struct TileConfiguration {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// To be called before tiles are configured or loaded from what was just written: gcc's intrinsics
// do not say what memory they read, so that it takes such writes for useless or moves them.
inline void finish_writes(const void* to) { asm volatile("" : : "r"(to) : "memory"); }

// Tiles belong to the thread; they are given back, so that switching threads stays cheap.
class Tiles {
 public:
  Tiles() {
    alignas(64) const TileConfiguration configuration;
    finish_writes(&configuration);
    _tile_loadconfig(&configuration);
  }
  ~Tiles() { _tile_release(); }
};

// Two inputs of sixteen outputs as pairs of bfloat16, rounded to nearest.
inline __m512i pairs_of(Floats first, Floats second) {
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24,
                                         8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  __m512i halves = (__m512i)_mm512_cvtne2ps_pbh(second.part[0], first.part[0]);
  return _mm512_permutexvar_epi16(order, halves);
}

// One group of integer weights as a tile: 16 pairs of inputs by 16 outputs.
template <Format F>
inline void expand_group(const uint8_t* group, uint8_t* tile) {
  constexpr int kQuads = F == Format::kInt8 ? 8 : 4;
  const uint16_t* halves = reinterpret_cast<const uint16_t*>(group + kQuads * kPanel * 4);
  const Floats scale = load_half(halves);
  const Floats minimum = F == Format::kInt4Min ? load_half(halves + kPanel)
                         : F == Format::kInt4  ? scale * splat(-8.0f)
                                               : splat(0.0f);
  for (int quad = 0; quad < 8; ++quad) {
    const Ints raw = load_ints(group + quad % kQuads * 64);
    Floats values[4];
    for (int i = 0; i < 4; ++i) {
      const Ints integers = F == Format::kInt8 ? (raw << (24 - 8 * i)) >> 24
                                               : (raw >> (8 * i + (quad < 4 ? 0 : 4))) & splat(15);
      values[i] = fma(to_floats(integers), scale, minimum);
    }
    _mm512_storeu_si512(tile + quad * 128, pairs_of(values[0], values[1]));
    _mm512_storeu_si512(tile + quad * 128 + 64, pairs_of(values[2], values[3]));
  }
}

// Tiles of groups [first, first + count) of a panel; bfloat16 weights are stored as tiles already.
const uint8_t* tiles_of_panel(const Matrix& matrix, const uint8_t* panel, int first, int count,
                              uint8_t* expanded) {
  const uint8_t* group = panel + first * matrix.group_bytes();
  if (matrix.format == Format::kBfloat16) return group;
  for (int g = 0; g < count; ++g, group += matrix.group_bytes()) {
    uint8_t* tile = expanded + g * kTileBytes;
    if (matrix.format == Format::kInt8) expand_group<Format::kInt8>(group, tile);
    if (matrix.format == Format::kInt4) expand_group<Format::kInt4>(group, tile);
    if (matrix.format == Format::kInt4Min) expand_group<Format::kInt4Min>(group, tile);
  }
  return expanded;
}

// Adds `count` groups of inputs to the sums of two panels and 16 rows, or 32 if `both`.
inline void add_groups(const uint16_t* rows, int width, const uint8_t* left, const uint8_t* right,
                       int count, bool both, float* sums) {
  constexpr int kStride = kSumWidth * sizeof(float);
  const uint16_t* below = rows + size_t(kTileRows) * width;
  float* sums_below = sums + kTileRows * kSumWidth;
  finish_writes(sums);
  _tile_loadd(0, sums, kStride);
  _tile_loadd(1, sums + kPanel, kStride);
  if (both) {
    _tile_loadd(2, sums_below, kStride);
    _tile_loadd(3, sums_below + kPanel, kStride);
  }
  for (int g = 0; g < count; ++g) {
    _tile_loadd(4, rows + g * kGroup, width * 2);
    _tile_loadd(6, left + g * kTileBytes, 64);
    _tile_loadd(7, right + g * kTileBytes, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    if (!both) continue;
    _tile_loadd(5, below + g * kGroup, width * 2);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, sums, kStride);
  _tile_stored(1, sums + kPanel, kStride);
  if (both) {
    _tile_stored(2, sums_below, kStride);
    _tile_stored(3, sums_below + kPanel, kStride);
  }
}

// Sums of two panels for rows [first_row, last_row), into columns of `sums`.
void sum_two_panels(const Product& product, int panel, int first_row, int last_row, float* sums) {
  alignas(64) uint8_t expanded[2][kExpandedGroups * kTileBytes];
  const Matrix& matrix = product.matrix;
  const uint8_t* data = matrix.data + panel * matrix.panel_bytes();
  const int groups = matrix.inputs / kGroup;
  for (int g = 0; g < groups; g += kExpandedGroups) {
    const int count = groups - g < kExpandedGroups ? groups - g : kExpandedGroups;
    const uint8_t* left = tiles_of_panel(matrix, data, g, count, expanded[0]);
    const uint8_t* right =
        tiles_of_panel(matrix, data + matrix.panel_bytes(), g, count, expanded[1]);
    for (int row = first_row; row < last_row; row += 2 * kTileRows) {
      const uint16_t* rows = product.in.halves + size_t(row) * product.in.width + g * kGroup;
      add_groups(rows, product.in.width, left, right, count, row + kTileRows < last_row,
                 sums + (row - first_row) * kSumWidth);
    }
  }
}

void product_of_tiles(const Product& product, int first_panel, int last_panel, int first_row,
                      int last_row) {
  alignas(64) float sums[kRowsAtATime * kSumWidth];
  Tiles tiles;
  const int together = product.finish == Finish::kSwiglu ? 4 : 2;
  for (int panel = first_panel; panel < last_panel; panel += together) {
    for (int start = first_row; start < last_row; start += kRowsAtATime) {
      const int end = last_row < start + kRowsAtATime ? last_row : start + kRowsAtATime;
      std::memset(
          sums, 0,
          sizeof(float) * kSumWidth * ((end - start + kTileRows - 1) / kTileRows * kTileRows));
      for (int i = 0; i < together; i += 2)
        sum_two_panels(product, panel + i, start, end, sums + i * kPanel);
      for (int row = start; row < end; ++row) {
        const float* sum = sums + (row - start) * kSumWidth;
        if (together == 2)
          for (int i = 0; i < 2; ++i) finish(product, panel + i, row, load(sum + i * kPanel));
        else
          finish_swiglu(
              product, panel, row,
              {load(sum), load(sum + kPanel), load(sum + 2 * kPanel), load(sum + 3 * kPanel)});
      }
    }
  }
}

Form form_of_tiles(Format) { return Form::kBfloat16; }

}  // namespace
}  // namespace slipstream

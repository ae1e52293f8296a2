// Random data, packed matrices with their exact values, and rows in every form.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "kernels.h"

namespace slipstream::test {

constexpr double kFloatRounding = 0x1p-24;    // relative error of rounding to float32
constexpr double kBfloat16Rounding = 0x1p-8;  // and to bfloat16
constexpr int kRowCounts[] = {1, 2, 3, 4, 5, 15, 16, 17, 64, 300};

using Random = std::mt19937_64;

inline float uniform(Random& random, float low, float high) {
  return low + (high - low) * float(random() >> 40) * 0x1p-24f;
}

inline std::vector<float> uniform_floats(Random& random, size_t count, float low, float high) {
  std::vector<float> values(count);
  for (float& value : values) value = uniform(random, low, high);
  return values;
}

inline float bfloat16_value(uint16_t half) {
  const uint32_t bits = uint32_t(half) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// A positive half-precision number between 2^-7 and 2^-2, with random digits.
inline uint16_t random_half(Random& random) {
  return uint16_t((8 + random() % 5) << 10 | random() % 1024);
}

inline double half_value(uint16_t half) {  // normal numbers only
  const double magnitude = std::ldexp(1024 + (half & 1023), (half >> 10 & 31) - 25);
  return half & 0x8000 ? -magnitude : magnitude;
}

inline bool same_bits(const void* a, const void* b, size_t bytes) {
  return bytes == 0 || std::memcmp(a, b, bytes) == 0;
}

// A packed matrix of random weights. A weight is scale * q + minimum in exact arithmetic; for
// bfloat16 the scale is the weight and q is 1.
class RandomMatrix {
 public:
  RandomMatrix(Random& random, Format format, int outputs, int inputs, bool bias);

  const Matrix& matrix() const { return matrix_; }
  double scaled(int output, int input) const { return scaled_[at(output, input)]; }
  double minimum(int output, int input) const { return minimums_[at(output, input)]; }
  double weight(int output, int input) const {
    return scaled(output, input) + minimum(output, input);
  }
  double bias(int output) const { return matrix_.bias ? bias_[output] : 0; }

 private:
  size_t at(int output, int input) const { return size_t(output) * matrix_.inputs + input; }
  void fill_bfloat16(Random& random, int panel, int group, uint8_t* to);
  void fill_integers(Random& random, int panel, int group, uint8_t* to);

  Matrix matrix_;
  std::unique_ptr<uint8_t, void (*)(void*)> data_{nullptr, std::free};
  std::vector<float> bias_;
  std::vector<double> scaled_;    // [outputs, inputs]
  std::vector<double> minimums_;  // [outputs, inputs]
};

// Which input of its group an int8 row's outlier is; -1 in rows that were never written.
inline int outlier_place(const RowGroup& group) {
  if (group.nibble == 0) return -1;
  const int bits = __builtin_ctz(group.nibble);
  const int byte = group.quad_at % 4 + bits / 8;
  return group.quad_at / (4 * kPanel) * 4 + byte + bits % 8 / 4 * 16;
}
inline double outlier_value(const RowGroup& group) {
  return double(group.outlier) * (group.nibble / 15);
}

// Rows with buffers of just the size that their form needs.
class OwnedRows {
 public:
  OwnedRows(Form form, int rows, int width);
  // As `kernels` converts these floats [rows, width].
  OwnedRows(const KernelSet& kernels, Form form, const std::vector<float>& floats, int width);

  const Rows& rows() const { return rows_; }
  double value(int row, int i) const;
  // What one integer counts for; 0 if the form has none.
  double step(int row, int i) const;
  bool same_row(int row, const OwnedRows& other, int other_row) const;
  void copy_row(int row, const OwnedRows& from, int from_row);

 private:
  Rows rows_{};
  std::vector<float> floats_;
  std::vector<uint16_t> halves_;
  std::vector<int16_t> shorts_;
  std::vector<int8_t> bytes_;
  std::vector<RowGroup> groups_;
};

// How far a value written in rows may be from `exact`, when it was computed within `error`: one
// rounding to bfloat16; for integers half a step, and as many steps as there are times the
// roundings of scale, inverse and quotient.
inline double row_bound(const OwnedRows& rows, int row, int i, double exact, double error) {
  switch (rows.rows().form) {
    case Form::kFloat32: return error;
    case Form::kBfloat16: return error + kBfloat16Rounding * (std::fabs(exact) + error);
    case Form::kInt8: return error + rows.step(row, i) * (0.5 + 127 * 4 * kFloatRounding);
    default: return error + rows.step(row, i) * (0.5 + 32767 * 4 * kFloatRounding);
  }
}

}  // namespace slipstream::test

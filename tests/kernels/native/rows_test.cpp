// RMS norm, conversion to each form, and embedding, against float64.
#include <algorithm>

#include "check.h"
#include "support.h"
#include "tests.h"

namespace slipstream::test {
namespace {

constexpr Form kForms[] = {Form::kFloat32, Form::kBfloat16, Form::kInt8, Form::kInt16};
constexpr int kWidths[] = {1, 15, 16, 31, 32, 33, 100, 576, 1536};

int padded(int width) { return (width + kGroup - 1) / kGroup * kGroup; }

// Values of very different sizes: each group has its own.
std::vector<float> uneven_floats(Random& random, int count) {
  std::vector<float> values = uniform_floats(random, count, -1, 1);
  for (int i = 0; i < count; ++i) values[i] *= std::ldexp(1.0f, i / kGroup % 7 * 4 - 12);
  return values;
}

// The bfloat16 next to `value` on either side is no closer; of two as close the even one is taken.
void check_nearest_bfloat16(uint16_t half, float value) {
  if (value == 0) CHECK_EQUAL(half, 0);
  if (value == 0) return;
  const double error = std::fabs(bfloat16_value(half) - double(value));
  for (int side : {-1, 1}) {
    const double other = std::fabs(bfloat16_value(uint16_t(half + side)) - double(value));
    CHECK(error < other || (error == other && half % 2 == 0));
  }
}

// The first input of largest magnitude is kept apart; the others share 127 steps.
void check_int8_group(const Rows& rows, int row, int group, const float* exact) {
  const size_t index = size_t(row) * (rows.width / kGroup) + group;
  const RowGroup& found = rows.groups[index];
  int place = 0;
  for (int i = 1; i < kGroup; ++i)
    if (std::fabs(exact[i]) > std::fabs(exact[place])) place = i;
  CHECK_EQUAL(outlier_place(found), place);
  CHECK_EQUAL(outlier_value(found), double(exact[place]));
  CHECK(found.nibble > 0 && found.nibble % 15 == 0);
  double largest = 0;
  int sum = 0;
  for (int i = 0; i < kGroup; ++i) {
    const int byte = rows.bytes[index * kGroup + i];
    CHECK(byte >= -127 && (i != place || byte == 0));
    if (i != place) largest = std::fmax(largest, std::fabs(double(exact[i])));
    sum += byte;
  }
  CHECK_CLOSE(found.scale, largest / 127, largest / 127 * kFloatRounding);
  // The product and the sum round once each.
  const double bytes = double(found.scale) * sum;
  CHECK_CLOSE(found.sum, bytes + exact[place],
              (2 * std::fabs(bytes) + std::fabs(exact[place])) * kFloatRounding);
}

void test_convert(const KernelSet& kernels, Form form, int width) {
  Context context("convert to form ", int(form), " width ", width);
  Random random(width);
  const int out_width = padded(width) + kGroup;  // a whole group of padding is also written
  OwnedRows out(form, 3, out_width), untouched(form, 3, out_width);
  std::vector<float> x = uneven_floats(random, width);
  kernels.convert(x.data(), width, out.rows(), 1);
  CHECK(out.same_row(0, untouched, 0) && out.same_row(2, untouched, 2));
  x.resize(out_width);
  for (int i = 0; i < out_width; ++i) {
    CHECK_CLOSE(out.value(1, i), x[i], row_bound(out, 1, i, x[i], 0));
    if (form == Form::kBfloat16) check_nearest_bfloat16(out.rows().halves[out_width + i], x[i]);
  }
  if (form == Form::kInt8)
    for (int group = 0; group < out_width / kGroup; ++group)
      check_int8_group(out.rows(), 1, group, x.data() + group * kGroup);
}

// Ties of bfloat16 go to even; integers to the nearest, here with a step of exactly 1.
void test_convert_ties(const KernelSet& kernels) {
  std::vector<float> x(kGroup);
  for (int i = 0; i < kGroup; ++i) x[i] = (i % 2 ? -1 : 1) * (1 + (2 * i + 1) * 0x1p-8f);
  OwnedRows halves(kernels, Form::kBfloat16, x, kGroup);
  for (int i = 0; i < kGroup; ++i) check_nearest_bfloat16(halves.rows().halves[i], x[i]);
  for (int i = 0; i < kGroup; ++i) x[i] = float(i % 2 ? 128 - i : i - 127);
  OwnedRows bytes(kernels, Form::kInt8, x, kGroup);
  for (int i = 0; i < kGroup; ++i) CHECK_EQUAL(bytes.value(0, i), double(x[i]));
  for (int i = 0; i < kGroup; ++i) x[i] = float(i % 2 ? 32767 - 1000 * i : 1001 * i - 32767);
  OwnedRows shorts(kernels, Form::kInt16, x, kGroup);
  for (int i = 0; i < kGroup; ++i) CHECK_EQUAL(shorts.value(0, i), double(x[i]));
}

// A sum of n squares in sixteen chains rounds each square and each of n / 16 sums, then four sums
// of chains; the mean and eps round twice more. The root halves that; root, inverse and the two
// products round once each. First order in 2^-24, and 1% for the rest.
double norm_error(int width) {
  const double squares = 1 + (width + 15) / 16 + 4 + 2;
  return 1.01 * (squares / 2 + 4) * kFloatRounding;
}

void test_rms_norm(const KernelSet& kernels, Form form, int width) {
  Context context("rms norm to form ", int(form), " width ", width);
  Random random(width);
  const float eps = 1e-5f;
  std::vector<float> x = uniform_floats(random, width, -3, 3);
  std::vector<float> weight = uniform_floats(random, width, -2, 2);
  OwnedRows out(form, 3, padded(width)), untouched(form, 3, padded(width));
  kernels.rms_norm(x.data(), width, weight.data(), eps, out.rows(), 1);
  CHECK(out.same_row(0, untouched, 0) && out.same_row(2, untouched, 2));
  double squares = 0;
  for (float value : x) squares += double(value) * value;
  const double inverse = 1 / std::sqrt(squares / width + double(eps));
  for (int i = 0; i < padded(width); ++i) {
    const double exact = i < width ? x[i] * inverse * weight[i] : 0;
    const double error = norm_error(width) * std::fabs(exact);
    CHECK_CLOSE(out.value(1, i), exact, row_bound(out, 1, i, exact, error));
  }
  OwnedRows elsewhere(form, 300, padded(width));
  for (int row : {0, 17, 299}) {
    kernels.rms_norm(x.data(), width, weight.data(), eps, elsewhere.rows(), row);
    CHECK(elsewhere.same_row(row, out, 1));
  }
}

void test_zero_row(const KernelSet& kernels, Form form) {
  Context context("zeros in form ", int(form));
  const std::vector<float> zeros(2 * kGroup);
  OwnedRows converted(kernels, form, zeros, 2 * kGroup), normed(form, 1, 2 * kGroup);
  kernels.rms_norm(zeros.data(), 2 * kGroup, zeros.data(), 1e-6f, normed.rows(), 0);
  for (int i = 0; i < 2 * kGroup; ++i) {
    CHECK_EQUAL(converted.value(0, i), 0.0);
    CHECK_EQUAL(normed.value(0, i), 0.0);
  }
}

// A scale has 11 bits and q at most 8, so their product is exact; a minimum adds one rounding.
void test_embed(const KernelSet& kernels, Format format) {
  Context context("embed of format ", int(format));
  Random random{uint64_t(format)};
  const int width = 100;
  const RandomMatrix table(random, format, 64, padded(width), false);
  for (int token = 0; token < 64; ++token) {
    std::vector<float> out(width);
    kernels.embed(table.matrix(), token, out.data(), width);
    for (int i = 0; i < width; ++i) CHECK_EQUAL(out[i], float(table.weight(token, i)));
  }
}

}  // namespace

void test_rows(const KernelSet& kernels) {
  for (Form form : kForms) {
    for (int width : kWidths) {
      test_convert(kernels, form, width);
      test_rms_norm(kernels, form, width);
    }
    test_zero_row(kernels, form);
  }
  test_convert_ties(kernels);
  for (Format format : {Format::kBfloat16, Format::kInt8, Format::kInt4, Format::kInt4Min})
    test_embed(kernels, format);
}

}  // namespace slipstream::test

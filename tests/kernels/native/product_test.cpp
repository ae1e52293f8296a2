// Matrix products of every format and finish against float64, and the row contract bit for bit.
#include <algorithm>

#include "check.h"
#include "support.h"
#include "tests.h"

namespace slipstream::test {
namespace {

constexpr Format kFormats[] = {Format::kBfloat16, Format::kInt8, Format::kInt4, Format::kInt4Min};
constexpr Finish kFinishes[] = {Finish::kStore, Finish::kAdd, Finish::kSwiglu};
constexpr float kUntouched = 1e30f;
constexpr int kMargin = 16;  // floats between the rows that a product writes

// One matrix and what a finish needs.
struct Layer {
  const RandomMatrix& matrix;
  Finish finish;
  const std::vector<float>& residual;  // one value per row
  Form out_form;                       // of swiglu

  int outputs() const { return matrix.matrix().outputs; }
  int stride() const { return outputs() + kMargin; }
  // Swiglu writes groups, so it takes pairs of gates and pairs of ups together.
  int panels_together() const { return finish == Finish::kSwiglu ? 4 : 2; }
};

// What a product wrote: floats, or rows if swiglu.
struct Results {
  std::vector<float> floats;
  OwnedRows rows;
};

Results nothing_written(const Layer& layer, int rows) {
  return {std::vector<float>(size_t(rows) * layer.stride(), kUntouched),
          OwnedRows(layer.out_form, rows, layer.outputs() / 2)};
}

// Calls for all panels and rows, at most so many at once.
Results run(const KernelSet& kernels, const Layer& layer, const OwnedRows& in, int rows,
            int panels_at_once, int rows_at_once) {
  Results results = nothing_written(layer, rows);
  std::vector<float> residual(size_t(rows) * layer.stride());
  for (size_t i = 0; i < residual.size(); ++i) residual[i] = layer.residual[i % layer.stride()];
  const Product product{layer.matrix.matrix(), in.rows(),       layer.finish,
                        results.floats.data(), residual.data(), layer.stride(),
                        results.rows.rows()};
  const int panels = layer.outputs() / kPanel;
  for (int row = 0; row < rows; row += rows_at_once)
    for (int panel = 0; panel < panels; panel += panels_at_once)
      kernels.product(product, panel, std::min(panels, panel + panels_at_once), row,
                      std::min(rows, row + rows_at_once));
  return results;
}

Results run(const KernelSet& kernels, const Layer& layer, const OwnedRows& in, int rows) {
  return run(kernels, layer, in, rows, layer.outputs() / kPanel, rows);
}

bool same_row(const Layer& layer, const Results& a, int row_a, const Results& b, int row_b) {
  if (layer.finish == Finish::kSwiglu) return a.rows.same_row(row_a, b.rows, row_b);
  const size_t stride = layer.stride();
  return same_bits(&a.floats[row_a * stride], &b.floats[row_b * stride], stride * sizeof(float));
}

struct Bounded {
  double value;
  double error;
};

// One output of one row with its bias. The terms are x * scale * q and x * minimum, whose sum of
// magnitudes bounds every partial sum. A float chain over n inputs rounds at most 2 n times, be the
// products fused or not; what reads integers rounds less often. The row's sums, the scales and the
// bias add less than eight. Where rows are bfloat16 and weights are not, each weight is rounded to
// bfloat16 once more.
Bounded reference(const KernelSet& kernels, const RandomMatrix& matrix, const OwnedRows& in,
                  int row, int output) {
  const int inputs = matrix.matrix().inputs;
  double value = matrix.bias(output), magnitude = std::fabs(value), weights = 0;
  for (int i = 0; i < inputs; ++i) {
    const double x = in.value(row, i);
    value += x * matrix.weight(output, i);
    magnitude +=
        std::fabs(x) * (std::fabs(matrix.scaled(output, i)) + std::fabs(matrix.minimum(output, i)));
    weights += std::fabs(x * matrix.weight(output, i));
  }
  const Format format = matrix.matrix().format;
  const int roundings = format == Format::kBfloat16 ? inputs + 2 : 2 * inputs / kGroup + 8;
  const bool rounded = kernels.form_of(format) == Form::kBfloat16 && format != Format::kBfloat16;
  return {value, 1.01 * (rounded ? inputs + 8 : roundings) * kFloatRounding * magnitude +
                     (rounded ? kBfloat16Rounding * weights : 0)};
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// silu has slope at most 1.1. Its exponential is within two units in the last place, four
// roundings; the sum, the quotient and the product with `up` round once each. Where the
// exponential is cut off, silu is below 1e-35.
Bounded swiglu(const Bounded& gate, const Bounded& up) {
  const double silu = gate.value * sigmoid(gate.value), value = silu * up.value;
  const double error = 1.1 * gate.error * (std::fabs(up.value) + up.error) +
                       std::fabs(silu) * up.error + 8 * kFloatRounding * std::fabs(value);
  return {value, error + 1e-35 * (1 + std::fabs(up.value))};
}

void check_floats(const KernelSet& kernels, const Layer& layer, const OwnedRows& in,
                  const Results& results, int row) {
  const float* out = &results.floats[size_t(row) * layer.stride()];
  for (int i = 0; i < layer.outputs(); ++i) {
    Bounded exact = reference(kernels, layer.matrix, in, row, i);
    if (layer.finish == Finish::kAdd) {
      exact.value += layer.residual[i];
      exact.error += kFloatRounding * (std::fabs(exact.value) + exact.error);
    }
    CHECK_CLOSE(out[i], exact.value, exact.error);
  }
  for (int i = layer.outputs(); i < layer.stride(); ++i) CHECK_EQUAL(out[i], kUntouched);
}

void check_rows(const KernelSet& kernels, const Layer& layer, const OwnedRows& in,
                const Results& results, int row) {
  for (int i = 0; i < layer.outputs() / 2; ++i) {
    const int gate = i / kPanel * 2 * kPanel + i % kPanel;
    const Bounded exact = swiglu(reference(kernels, layer.matrix, in, row, gate),
                                 reference(kernels, layer.matrix, in, row, gate + kPanel));
    CHECK_CLOSE(results.rows.value(row, i), exact.value,
                row_bound(results.rows, row, i, exact.value, exact.error));
  }
}

// All row counts; the first rows of each are those of the most, which are compared with float64.
void check_layer(const KernelSet& kernels, const Layer& layer, const OwnedRows& in, int most) {
  const Results all = run(kernels, layer, in, most);
  for (int row = 0; row < most; row += row < 17 ? 1 : 31) {
    Context context("row ", row);
    if (layer.finish == Finish::kSwiglu)
      check_rows(kernels, layer, in, all, row);
    else
      check_floats(kernels, layer, in, all, row);
  }
  for (int rows : kRowCounts) {
    if (rows >= most) break;
    Context context("of ", rows, " rows");
    const Results some = run(kernels, layer, in, rows);
    for (int row = 0; row < rows; ++row) CHECK(same_row(layer, some, row, all, row));
  }
}

// Groups of rows of very different sizes, and one of zeros.
std::vector<float> uneven_rows(Random& random, int rows, int width) {
  std::vector<float> values = uniform_floats(random, size_t(rows) * width, -1, 1);
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t group = i / kGroup;
    values[i] *= group % 11 == 5 ? 0.0f : std::ldexp(1.0f, int(group % 5) - 3);
  }
  return values;
}

void check_format(const KernelSet& kernels, Format format, int inputs, int most, bool bias) {
  Random random(inputs);
  const Form form = kernels.form_of(format);
  const OwnedRows in(kernels, form, uneven_rows(random, most, inputs), inputs);
  for (Finish finish : kFinishes) {
    Context context("format ", int(format), " finish ", int(finish), " inputs ", inputs, " bias ",
                    bias);
    const int outputs = finish == Finish::kSwiglu ? 64 : 96;
    const RandomMatrix matrix(random, format, outputs, inputs, bias);
    const std::vector<float> residual = uniform_floats(random, outputs + kMargin, -9, 9);
    check_layer(kernels, {matrix, finish, residual, form}, in, most);
  }
}

// One row alone, and again among others: first, in the middle, last, with all cuts.
void check_row_contract(const KernelSet& kernels, const Layer& layer, Random& random, int inputs) {
  const Form form = kernels.form_of(layer.matrix.matrix().format);
  const OwnedRows row(kernels, form, uneven_rows(random, 1, inputs), inputs);
  const Results alone = run(kernels, layer, row, 1);
  const int together = layer.panels_together();
  for (int rows : {2, 15, 16, 17, 64, 300}) {
    OwnedRows in(kernels, form, uneven_rows(random, rows, inputs), inputs);
    const int places[] = {0, rows / 2, rows - 1};
    for (int place : places) in.copy_row(place, row, 0);
    for (int panels_at_once : {together, 2 * together, layer.outputs() / kPanel})
      for (int rows_at_once : {kTileRows, 3 * kTileRows, rows}) {
        const Results results = run(kernels, layer, in, rows, panels_at_once, rows_at_once);
        for (int place : places) {
          Context context("row ", place, " of ", rows, ", at once ", panels_at_once, " panels and ",
                          rows_at_once, " rows");
          CHECK(same_row(layer, results, place, alone, 0));
        }
      }
  }
}

constexpr int kPartOf = kTileRows + 9;  // rows in check_only_its_part

// A call writes its own rows and panels and nothing else.
void check_only_its_part(const KernelSet& kernels, const Layer& layer, const OwnedRows& in) {
  const int first = layer.panels_together(), last = 2 * first;
  const int first_row = kTileRows, last_row = kTileRows + 5;
  Results results = nothing_written(layer, kPartOf);
  const std::vector<float> residual(results.floats.size(), 1.0f);
  kernels.product({layer.matrix.matrix(), in.rows(), layer.finish, results.floats.data(),
                   residual.data(), layer.stride(), results.rows.rows()},
                  first, last, first_row, last_row);
  const Results untouched = nothing_written(layer, kPartOf);
  for (int row = 0; row < kPartOf; ++row)
    if (row < first_row || row >= last_row) CHECK(same_row(layer, results, row, untouched, row));
  for (int row = first_row; row < last_row; ++row)
    for (int i = 0; i < layer.outputs(); ++i) {
      const bool mine = first * kPanel <= i && i < last * kPanel;
      if (layer.finish != Finish::kSwiglu)
        CHECK_EQUAL(results.floats[row * layer.stride() + i] != kUntouched, mine);
      else if (!mine)
        CHECK_EQUAL(results.rows.value(row, i / 2), 0.0);
    }
}

}  // namespace

void test_product(const KernelSet& kernels) {
  for (Format format : kFormats) {
    for (bool bias : {false, true}) check_format(kernels, format, 32, 300, bias);
    check_format(kernels, format, 160, 300, true);
    check_format(kernels, format, 576, 64, false);
    check_format(kernels, format, 1536, 17, true);
  }
}

void test_product_row_contract(const KernelSet& kernels) {
  for (Format format : kFormats)
    for (Finish finish : kFinishes) {
      Context context("format ", int(format), " finish ", int(finish));
      const int inputs = 96, outputs = 192;
      Random random(7);
      const RandomMatrix matrix(random, format, outputs, inputs, true);
      const std::vector<float> residual = uniform_floats(random, outputs + kMargin, -9, 9);
      const Form form = kernels.form_of(format);
      const Layer layer{matrix, finish, residual, form};
      check_row_contract(kernels, layer, random, inputs);
      check_only_its_part(kernels, layer,
                          OwnedRows(kernels, form, uneven_rows(random, kPartOf, inputs), inputs));
    }
}

}  // namespace slipstream::test

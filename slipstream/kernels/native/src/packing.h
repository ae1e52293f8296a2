// From weights as files store them to the panels that products read.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels.h"

namespace slipstream {

// Stored rows: how many, of how many bytes, and of which kind ("q4_1", "bfloat16", "float32", ...).
struct StoredRows {
  const uint8_t* data;
  int rows;
  size_t row_bytes;
  std::string kind;
};

// A matrix that owns its memory. Rows are filled in piece by piece; the rest stays zero.
class PackedMatrix {
 public:
  // For a swiglu product `outputs` counts gates and ups.
  PackedMatrix(Format format, int outputs, int inputs, bool swiglu);

  // Packs rows as outputs from `first` on: q4_0, q4_1 and q8_0 losslessly into their own formats,
  // floats into bfloat16 rounded to nearest. Outputs are counted panel by panel, and panel p is put
  // at first_panel + p * panel_step. Throws std::invalid_argument for rows that do not fit.
  void fill(const StoredRows& stored, int first, int first_panel, int panel_step);
  void set_bias(std::vector<float> bias);

  const Matrix& view() const { return matrix_; }
  size_t bytes() const { return data_bytes_; }

 private:
  void fill_row(const StoredRows& stored, const uint8_t* row, uint8_t* panel, int lane);

  Matrix matrix_;
  size_t data_bytes_;
  std::shared_ptr<uint8_t> data_;  // part of what many matrices share
  std::vector<float> bias_;
};

}  // namespace slipstream

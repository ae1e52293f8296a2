#include "support.h"

#include <algorithm>

namespace slipstream::test {

RandomMatrix::RandomMatrix(Random& random, Format format, int outputs, int inputs, bool bias)
    : matrix_{format, outputs, inputs, nullptr, nullptr},
      scaled_(size_t(outputs) * inputs),
      minimums_(size_t(outputs) * inputs) {
  const size_t bytes = outputs / kPanel * matrix_.panel_bytes();
  data_.reset(static_cast<uint8_t*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64)));
  matrix_.data = data_.get();
  for (int panel = 0; panel < outputs / kPanel; ++panel)
    for (int group = 0; group < inputs / kGroup; ++group) {
      uint8_t* to = data_.get() + panel * matrix_.panel_bytes() + group * matrix_.group_bytes();
      if (format == Format::kBfloat16)
        fill_bfloat16(random, panel, group, to);
      else
        fill_integers(random, panel, group, to);
    }
  bias_ = uniform_floats(random, outputs, -1, 1);
  if (bias) matrix_.bias = bias_.data();
}

void RandomMatrix::fill_bfloat16(Random& random, int panel, int group, uint8_t* to) {
  for (int i = 0; i < kGroup; ++i)
    for (int lane = 0; lane < kPanel; ++lane) {
      // Between 2^-8 and 1 in magnitude.
      const uint16_t half =
          uint16_t((random() & 1) << 15 | (119 + random() % 8) << 7 | random() % 128);
      std::memcpy(to + 2 * ((i / 2 * kPanel + lane) * 2 + i % 2), &half, sizeof half);
      scaled_[at(panel * kPanel + lane, group * kGroup + i)] = bfloat16_value(half);
    }
}

void RandomMatrix::fill_integers(Random& random, int panel, int group, uint8_t* to) {
  const bool wide = matrix_.format == Format::kInt8;
  const int quads = wide ? 8 : 4;
  const int values = quads * kPanel * 4;
  std::memset(to, 0, values);
  for (int lane = 0; lane < kPanel; ++lane) {
    const uint16_t scale = random_half(random) | uint16_t(random() & 1) << 15;
    const uint16_t minimum = random_half(random) | uint16_t(random() & 1) << 15;
    std::memcpy(to + values + 2 * lane, &scale, sizeof scale);
    if (matrix_.format == Format::kInt4Min)
      std::memcpy(to + values + 2 * (kPanel + lane), &minimum, sizeof minimum);
    for (int i = 0; i < kGroup; ++i) {
      const int q = wide ? int(random() % 255) - 127 : int(random() % 16);
      uint8_t& byte = to[(i / 4 % quads * kPanel + lane) * 4 + i % 4];
      byte = uint8_t(wide ? q : byte | q << (i < kGroup / 2 ? 0 : 4));
      const size_t place = at(panel * kPanel + lane, group * kGroup + i);
      scaled_[place] = half_value(scale) * q;
      if (matrix_.format == Format::kInt4) minimums_[place] = -8 * half_value(scale);
      if (matrix_.format == Format::kInt4Min) minimums_[place] = half_value(minimum);
    }
  }
}

OwnedRows::OwnedRows(Form form, int rows, int width) {
  // Kernels may read whole tiles of rows.
  const size_t values = size_t(rows + kTileRows - 1) / kTileRows * kTileRows * width;
  if (form == Form::kFloat32) floats_.resize(values);
  if (form == Form::kBfloat16) halves_.resize(values);
  if (form == Form::kInt8) bytes_.resize(values);
  if (form == Form::kInt16) shorts_.resize(values);
  if (form == Form::kInt8 || form == Form::kInt16) groups_.resize(values / kGroup);
  rows_.form = form;
  rows_.width = width;
  rows_.floats = floats_.data();
  rows_.halves = halves_.data();
  rows_.shorts = shorts_.data();
  rows_.bytes = bytes_.data();
  rows_.groups = groups_.data();
}

OwnedRows::OwnedRows(const KernelSet& kernels, Form form, const std::vector<float>& floats,
                     int width)
    : OwnedRows(form, int(floats.size() / width), width) {
  for (size_t row = 0; row < floats.size() / width; ++row)
    kernels.convert(floats.data() + row * width, width, rows_, int(row));
}

double OwnedRows::value(int row, int i) const {
  const size_t place = size_t(row) * rows_.width + i;
  if (rows_.form == Form::kFloat32) return floats_[place];
  if (rows_.form == Form::kBfloat16) return bfloat16_value(halves_[place]);
  const RowGroup& group = groups_[place / kGroup];
  if (rows_.form == Form::kInt8 && i % kGroup == outlier_place(group)) return outlier_value(group);
  if (rows_.form == Form::kInt8) return double(bytes_[place]) * group.scale;
  constexpr int kPlaces[] = {0, 2, 1, 3};  // of a quad's inputs
  return double(shorts_[place - i % 4 + kPlaces[i % 4]]) * group.scale;
}

double OwnedRows::step(int row, int i) const {
  return groups_.empty() ? 0 : groups_[(size_t(row) * rows_.width + i) / kGroup].scale;
}

// Calls visit(vector, other's vector, values per row) for each buffer.
template <typename Mine, typename Other, typename Visit>
static void each_buffer(Mine& mine, Other& other, int width, Visit visit) {
  visit(std::get<0>(mine), std::get<0>(other), width);
  visit(std::get<1>(mine), std::get<1>(other), width);
  visit(std::get<2>(mine), std::get<2>(other), width);
  visit(std::get<3>(mine), std::get<3>(other), width);
  visit(std::get<4>(mine), std::get<4>(other), width / kGroup);
}

bool OwnedRows::same_row(int row, const OwnedRows& other, int other_row) const {
  const auto mine = std::tie(floats_, halves_, shorts_, bytes_, groups_);
  const auto others =
      std::tie(other.floats_, other.halves_, other.shorts_, other.bytes_, other.groups_);
  bool same = true;
  each_buffer(mine, others, rows_.width, [&](const auto& a, const auto& b, size_t count) {
    if (a.empty()) return;
    same &= same_bits(&a[row * count], &b[other_row * count], count * sizeof a[0]);
  });
  return same;
}

void OwnedRows::copy_row(int row, const OwnedRows& from, int from_row) {
  const auto mine = std::tie(floats_, halves_, shorts_, bytes_, groups_);
  const auto others = std::tie(from.floats_, from.halves_, from.shorts_, from.bytes_, from.groups_);
  each_buffer(mine, others, rows_.width, [&](auto& a, const auto& b, size_t count) {
    if (!a.empty()) std::copy_n(&b[from_row * count], count, &a[row * count]);
  });
}

}  // namespace slipstream::test

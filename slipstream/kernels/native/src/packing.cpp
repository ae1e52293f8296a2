#include "packing.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <stdexcept>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace slipstream {
namespace {

constexpr size_t kLine = 64;

size_t padded(size_t count, size_t multiple) {
  return (count + multiple - 1) / multiple * multiple;
}

// Memory that matrices share. A step reads all weights once, and to look up the address of every
// page of 4 KiB costs a step of one row a tenth of its time; matrices are too small for huge pages
// of their own.
class Slab {
 public:
  explicit Slab(size_t bytes)
      : bytes_(padded(bytes, kHugePage)),
        data_(static_cast<uint8_t*>(std::aligned_alloc(kHugePage, bytes_))) {
    if (!data_) throw std::bad_alloc();
#if defined(__linux__)
    madvise(data_, bytes_, MADV_HUGEPAGE);  // or does without
#endif
  }
  ~Slab() { std::free(data_); }
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;

  size_t left() const { return bytes_ - taken_; }
  // Whole cache lines of zeros.
  uint8_t* take(size_t bytes) {
    uint8_t* taken = data_ + taken_;
    taken_ += bytes;
    std::memset(taken, 0, bytes);
    return taken;
  }

 private:
  static constexpr size_t kHugePage = size_t(2) << 20;
  size_t bytes_;
  uint8_t* data_;
  size_t taken_ = 0;
};

// A slab lives as long as a matrix in it.
std::shared_ptr<uint8_t> zeros(size_t bytes) {
  constexpr size_t kSlabBytes = size_t(32) << 20;
  static std::mutex mutex;
  static std::weak_ptr<Slab> latest;
  const std::lock_guard<std::mutex> lock(mutex);
  std::shared_ptr<Slab> slab = latest.lock();
  bytes = padded(bytes, kLine);
  if (!slab || slab->left() < bytes) {
    slab = std::make_shared<Slab>(std::max(bytes, kSlabBytes));
    latest = slab;
  }
  return {slab, slab->take(bytes)};
}

// GGUF's blocks of 32 values: half scale, half minimum if q4_1, then nibbles or bytes.
struct BlockLayout {
  size_t bytes;
  size_t values_at;
  bool has_minimum;
};

BlockLayout layout_of(Format format) {
  switch (format) {
    case Format::kInt8: return {34, 2, false};
    case Format::kInt4: return {18, 2, false};
    default: return {20, 4, true};
  }
}

const char* kind_of(Format format) {
  switch (format) {
    case Format::kInt8: return "q8_0";
    case Format::kInt4: return "q4_0";
    case Format::kInt4Min: return "q4_1";
    default: return "bfloat16";
  }
}

// A block's nibble i and i + 16 share byte i, which is just how a panel pairs quads v and v + 4.
void fill_block(Format format, const uint8_t* block, uint8_t* group, int lane) {
  const BlockLayout layout = layout_of(format);
  const int quads = format == Format::kInt8 ? 8 : 4;
  for (int quad = 0; quad < quads; ++quad)
    std::memcpy(group + (quad * kPanel + lane) * 4, block + layout.values_at + 4 * quad, 4);
  uint8_t* scales = group + size_t(quads) * kPanel * 4;
  std::memcpy(scales + 2 * lane, block, 2);
  if (layout.has_minimum) std::memcpy(scales + 2 * kPanel + 2 * lane, block + 2, 2);
}

uint16_t nearest_bfloat16(const uint8_t* from) {
  uint32_t bits;
  std::memcpy(&bits, from, sizeof bits);
  if ((bits & 0x7fffffff) > 0x7f800000) return uint16_t(bits >> 16 | 0x40);  // NaN stays NaN
  return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace

PackedMatrix::PackedMatrix(Format format, int outputs, int inputs, bool swiglu)
    : matrix_{format, int(padded(outputs, (swiglu ? 4 : 2) * kPanel)), int(padded(inputs, kGroup)),
              nullptr, nullptr} {
  data_bytes_ = matrix_.outputs / kPanel * matrix_.panel_bytes();
  data_ = zeros(data_bytes_);
  matrix_.data = data_.get();
}

void PackedMatrix::fill(const StoredRows& stored, int first, int first_panel, int panel_step) {
  const bool floats = matrix_.format == Format::kBfloat16 && stored.kind == "float32";
  if (stored.kind != kind_of(matrix_.format) && !floats)
    throw std::invalid_argument("a matrix of " + std::string(kind_of(matrix_.format)) +
                                " cannot hold weights of kind " + stored.kind);
  const int last = first + stored.rows - 1;
  const int last_panel = first_panel + last / kPanel * panel_step;
  if (stored.rows > 0 && (first < 0 || last_panel >= matrix_.outputs / kPanel))
    throw std::invalid_argument("rows beyond the end of the matrix");
  for (int row = 0; row < stored.rows; ++row) {
    const int panel = first_panel + (first + row) / kPanel * panel_step;
    fill_row(stored, stored.data + row * stored.row_bytes,
             data_.get() + panel * matrix_.panel_bytes(), (first + row) % kPanel);
  }
}

void PackedMatrix::fill_row(const StoredRows& stored, const uint8_t* row, uint8_t* panel,
                            int lane) {
  if (matrix_.format == Format::kBfloat16) {
    const size_t size = stored.kind == "float32" ? 4 : 2;
    const int inputs = int(stored.row_bytes / size);
    if (inputs > matrix_.inputs) throw std::invalid_argument("rows longer than the matrix");
    for (int i = 0; i < inputs; ++i) {
      uint16_t half;
      if (size == 4)
        half = nearest_bfloat16(row + 4 * size_t(i));
      else
        std::memcpy(&half, row + 2 * size_t(i), 2);
      std::memcpy(panel + ((size_t(i) / 2 * kPanel + lane) * 2 + i % 2) * 2, &half, 2);
    }
    return;
  }
  const size_t block = layout_of(matrix_.format).bytes;
  const size_t groups = stored.row_bytes / block;
  if (groups * kGroup > size_t(matrix_.inputs))
    throw std::invalid_argument("rows longer than the matrix");
  for (size_t g = 0; g < groups; ++g)
    fill_block(matrix_.format, row + g * block, panel + g * matrix_.group_bytes(), lane);
}

void PackedMatrix::set_bias(std::vector<float> bias) {
  if (int(bias.size()) > matrix_.outputs) throw std::invalid_argument("a bias of too many outputs");
  bias.resize(matrix_.outputs, 0.0f);
  bias_ = std::move(bias);
  matrix_.bias = bias_.data();
}

}  // namespace slipstream
